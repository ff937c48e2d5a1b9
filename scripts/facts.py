"""Facts: what an image really holds, read by running it, never taken from a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from torch_pool.refusal import Refusal

from scripts.containers import run_container
from scripts.table import to_record

PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Facts:
    """The fields of scripts/probe.py; versions as the image's own torch and Python print them."""

    torch: str
    cuda: str
    cudnn: str
    python: str
    distribution: str
    backend: str
    installed: Mapping[str, Sequence[str]]
    missing_requirements: tuple[str, ...]
    uid: int
    gid: int
    unwritable: tuple[str, ...]
    wrong_modes: tuple[str, ...]
    failed_imports: tuple[str, ...]
    compiler: bool
    python_headers: bool

    @property
    def content(self) -> str:
        """The content part of a tag, such as torch2.6.0-cu124-py311-debian12."""
        torch = self.torch.partition("+")[0]
        cuda = self.cuda.replace(".", "")
        python = "".join(self.python.split(".")[:2])
        return f"torch{torch}-cu{cuda}-py{python}-{self.distribution}"


def read_facts(
    client: docker.DockerClient,
    image: str,
    python: Sequence[str],
    *,
    imports: Sequence[str] = (),
    **options: Any,
) -> Facts:
    """Runs the probe in an image.

    Raises:
        Refusal: it did not run to its end; says what it said last.
    """
    environment = {"TORCH_POOL_PROBE_IMPORTS": " ".join(imports)}
    command = [*python, "-c", PROBE.read_text("utf-8")]
    outcome = run_container(client, image, command, environment=environment, **options)
    if outcome.status != 0:
        last = outcome.stderr.strip().splitlines() or ["nothing"]
        ended = "ran out of time" if outcome.status is None else f"ended with status {outcome.status}"
        raise Refusal(f"the probe of {image} {ended}; it said: {last[-1]}", 1)
    return parse_facts(outcome.stdout)


def parse_facts(text: str) -> Facts:
    """The probe's output as a record.

    Raises:
        Refusal: it is something else, as when the image prints to stdout before the command does.
    """
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise Refusal(f"the image prints more than its command does: {text[:200]!r}", 1)
    return to_record(Facts, values, "the probe's output")

"""The gate: what an image must be before it gets a tag; each check says what was expected and found."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import docker
from torch_pool.profile import Profile
from torch_pool.refusal import Refusal

from scripts.apt import redacted
from scripts.base_image import ReadyBase
from scripts.builder import image_platform
from scripts.containers import Outcome, run_container
from scripts.facts import Facts, read_facts
from scripts.images import Image
from scripts.layers import Layer, read_layers, stored_bytes

ECHO = "torch-pool-gate"
SELFTEST = ("torch-pool", "selftest", "--quick", "--json")
# What every image says of itself, and what no image may say of the machine that built it.
OCI_LABELS = (
    "authors",
    "created",
    "description",
    "licenses",
    "ref.name",
    "revision",
    "title",
    "vendor",
    "version",
)
# Whole words of a variable's name: TOKENIZERS_PARALLELISM is no token.
SECRET_WORDS = (
    "PROXY",
    "SSL_CERT",
    "CA_BUNDLE",
    "PIP_CERT",
    "INDEX_URL",
    "DEFAULT_INDEX",
    "TOKEN",
    "PASSWORD",
    "SECRET",
)
_SECRET = re.compile(rf"(?:^|_)(?:{'|'.join(SECRET_WORDS)})(?:_|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Evidence:
    """Everything that the checks look at; `config` is the Config of `docker image inspect`."""

    image: Image
    profile: Profile
    base: ReadyBase
    config: Mapping[str, Any]
    platform: str
    facts: Facts
    echo: Outcome
    selftest: Outcome
    layers: tuple[Layer, ...]
    history: tuple[str, ...]
    added_bytes: int


@dataclass(frozen=True)
class Result:
    check: str
    expected: str
    found: str

    @property
    def passed(self) -> bool:
        return self.expected == self.found


def collect(
    client: docker.DockerClient, tag: str, image: Image, profile: Profile, base: ReadyBase
) -> Evidence:
    """Runs the image three times, at the same time, and reads what the engine knows of it.

    Raises:
        Refusal: the probe did not run.
    """
    with ThreadPoolExecutor() as pool:
        facts = pool.submit(read_facts, client, tag, ["python"], imports=image.imports)
        echo = pool.submit(run_container, client, tag, ["echo", ECHO])
        selftest = pool.submit(run_container, client, tag, SELFTEST)
    found = client.images.get(tag)
    return Evidence(
        image=image,
        profile=profile,
        base=base,
        config=found.attrs["Config"],
        platform=image_platform(client, tag),
        facts=facts.result(),
        echo=echo.result(),
        selftest=selftest.result(),
        layers=read_layers(client, tag),
        history=tuple(entry["CreatedBy"] for entry in found.history()),
        added_bytes=stored_bytes(client, tag) - base.stored_bytes,
    )


def judge(evidence: Evidence) -> tuple[Result, ...]:
    """The result of every check, in the order of CHECKS."""
    return tuple(
        Result(name, str(expected), str(found))
        for name, check in CHECKS
        for expected, found in [check(evidence)]
    )


def require_passed(tag: str, results: Sequence[Result]) -> None:
    """Raises Refusal (status 1) with the first failed check, and how many more failed."""
    failed = [result for result in results if not result.passed]
    if failed:
        first = failed[0]
        more = (
            f" (and {len(failed) - 1} more: {', '.join(r.check for r in failed[1:])})" if failed[1:] else ""
        )
        raise Refusal(
            f"the gate refused {tag}: {first.check}: expected {first.expected}, found {first.found}{more}; "
            "the previous tag, if any, is untouched",
            1,
        )


Pair = tuple[str, str]


def _nothing(found: Sequence[str]) -> Pair:
    return "none", "; ".join(found) or "none"


def _one_copy(name: str) -> Callable[[Evidence], Pair]:
    def check(evidence: Evidence) -> Pair:
        expected, found = (facts.installed[name] for facts in (evidence.base.facts, evidence.facts))
        count = "one" if len(found) == 1 else len(found)
        return f"one, {', '.join(expected)}", f"{count}, {', '.join(found) or 'not installed'}"

    return check


def _compiler(evidence: Evidence) -> Pair:
    tools = {"cc and c++": evidence.facts.compiler, "Python.h": evidence.facts.python_headers}
    return " and ".join(tools), " and ".join(name for name, there in tools.items() if there) or "none"


def _environment(evidence: Evidence) -> dict[str, str]:
    pairs = [line.partition("=") for line in evidence.config["Env"]]
    return {name: value for name, _, value in pairs}


def _labels(evidence: Evidence) -> Pair:
    labels = evidence.config["Labels"] or {}
    facts, profile = evidence.facts, evidence.profile
    ours = {
        "profile": profile.name,
        "conf": profile.conf,
        "torch": facts.torch,
        "cuda": facts.cuda,
        "python": facts.python,
    }
    wrong = [
        f"io.torch-pool.{name}={labels.get(f'io.torch-pool.{name}')} for {value}"
        for name, value in ours.items()
        if labels.get(f"io.torch-pool.{name}") != value
    ]
    missing = [f"no {name}" for name in OCI_LABELS if not labels.get(f"org.opencontainers.image.{name}")]
    return "all, true", "; ".join(wrong + missing) or "all, true"


def _secrets(evidence: Evidence) -> Pair:
    names = [name for name in _environment(evidence) if _SECRET.search(name)]
    lines = [line for line in evidence.history if "BEGIN CERTIFICATE" in line or "_PROXY=" in line.upper()]
    return _nothing([*names, *(redacted(" ".join(line.split())) for line in lines)])


def _echo(evidence: Evidence) -> Pair:
    return _ended(Outcome(0, f"{ECHO}\n", "")), _ended(evidence.echo)


_PROVED = ("settings", "environment", "torch", "backend")
"""The checks that need no GPU."""


def _ended(outcome: Outcome) -> str:
    return f"{outcome.stdout!r} and status {outcome.status}"


def _selftest(evidence: Evidence) -> Pair:
    """What needs a GPU or a driver is not provable here, which is no fault of the image."""
    expected = "proved without a GPU"
    try:
        proofs = json.loads(evidence.selftest.stdout)["proofs"]
    except (ValueError, KeyError):
        return expected, _ended(evidence.selftest)
    faults = [f"{proof['name']}: {proof['found']}" for proof in proofs if proof["status"] == "disproved"]
    settled = {proof["name"]: proof["status"] for proof in proofs}
    good = {name: ("disproved", *_allowed(name, evidence.profile)) for name in _PROVED}
    missing = [f"{name}: not proved" for name in _PROVED if settled.get(name) not in good[name]]
    return expected, "; ".join([*faults, *missing]) or expected


def _allowed(name: str, profile: Profile) -> tuple[str, ...]:
    """A launch that sets more than the image's ENV has differs from a bypassed entrypoint: that is a note."""
    sets_more = profile.memory or profile.env
    return ("proved", "note") if name == "environment" and sets_more else ("proved",)


def _nvidia(evidence: Evidence) -> Pair:
    environment = _environment(evidence)
    names = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA")
    expected = ("void", "compute,utility", evidence.base.base.require_cuda)
    return " ".join(expected), " ".join(environment.get(name, "unset") for name in names)


def _within(size_bytes: int, budget_mb: int | None) -> Pair:
    fits = f"at most {budget_mb} MB"
    return fits, fits if budget_mb is None or size_bytes <= budget_mb * 1e6 else f"{size_bytes / 1e6} MB"


CHECKS: tuple[tuple[str, Callable[[Evidence], Pair]], ...] = (
    ("platform", lambda e: (e.base.platform, e.platform)),
    ("torch", lambda e: (e.base.base.torch or e.base.facts.torch, e.facts.torch)),
    ("CUDA", lambda e: (e.base.base.cuda or e.base.facts.cuda, e.facts.cuda)),
    ("copies of torch", _one_copy("torch")),
    ("copies of numpy", _one_copy("numpy")),
    ("unmet needs", lambda e: _nothing(e.facts.missing_requirements)),
    ("failed imports", lambda e: _nothing(e.facts.failed_imports)),
    ("compiler", _compiler),
    ("labels", _labels),
    ("secrets", _secrets),
    ("user", lambda e: ("1000:0", f"{e.facts.uid}:{e.facts.gid}")),
    ("unwritable", lambda e: _nothing(e.facts.unwritable)),
    ("wrong modes", lambda e: _nothing(e.facts.wrong_modes)),
    ("echo", _echo),
    ("backend", lambda e: (e.profile.allocator.get("backend", "native"), e.facts.backend)),
    ("self-test", _selftest),
    ("baked conf", lambda e: (e.profile.conf, _environment(e).get("PYTORCH_CUDA_ALLOC_CONF", "unset"))),
    ("NVIDIA variables", _nvidia),
    ("size of base", lambda e: _within(e.base.unpacked_bytes, e.base.base.budget_mb)),
    ("size added", lambda e: _within(e.added_bytes, e.image.budget_mb)),
)

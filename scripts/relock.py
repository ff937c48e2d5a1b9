"""`make lock`: resolves every locked set of packages anew; what changed is for a person to read and commit.

The sets: the host's own environment, the wheels base, what the common layer adds, and each image's packages,
these constrained to the base and without what the base has.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.apt import redacted
from scripts.builder import uv_binary
from scripts.images import ROOT, load_images
from scripts.machine import choose_ca, choose_index, parse_pip_config, read_output
from scripts.settings import Settings

_BASES = Path("images/bases")
# No host name of an index may come into the project.
_OPTIONS = (
    *("--quiet", "--upgrade", "--generate-hashes", "--no-header", "--no-emit-index-url"),
    *("--no-emit-find-links", "--python-version=3.11"),
)
_IN_IMAGE = "--python-platform=x86_64-manylinux_2_28"


class Lock(NamedTuple):
    """One locked set. Paths are relative to the checkout, as they stand in the file's comments.

    A set upon a `base`, another lock, keeps its versions and leaves out its packages.
    """

    source: Path
    lock: Path
    options: tuple[str, ...] = ()
    base: Path | None = None


def main(settings: Settings) -> int:
    """Writes the lock files.

    Raises:
        Refusal: a set cannot be resolved; the files before it are written.
    """
    locks = list_locks()
    if settings.dry_run.value == "1":
        for lock in locks:
            print(f"would resolve {lock.source} into {lock.lock}", file=sys.stderr)
        return 0
    environ = uv_environment(settings, os.environ)
    for lock in locks:
        resolve(lock, environ)
    return 0


def list_locks(root: Path = ROOT) -> list[Lock]:
    """The locked sets in the order in which they depend on one another."""
    base = _BASES / "wheels" / "requirements.txt"
    images = [Path("images", image.name) for image in load_images(root).values() if image.requirements]
    return [
        Lock(Path("requirements.in"), Path("requirements.lock")),
        *(Lock(_BASES / f"{name}.in", _BASES / f"{name}.txt", (_IN_IMAGE,)) for name in ("common", "pip")),
        Lock(base.with_suffix(".in"), base, (_IN_IMAGE,)),
        *(
            Lock(folder / "requirements.in", folder / "requirements.txt", (_IN_IMAGE,), base)
            for folder in images
        ),
    ]


def uv_environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which uv asks the index that pip asks here, and trusts the same certificates.

    Raises:
        Refusal: CA_BUNDLE names no certificate file.
    """
    pip = parse_pip_config(read_output(sys.executable, "-m", "pip", "config", "list"))
    index, certificates = choose_index(pip), choose_ca(settings.ca_bundle, environ, pip)
    given = {"UV_DEFAULT_INDEX": index, "SSL_CERT_FILE": certificates}
    return {**environ, **{name: fact.value for name, fact in given.items() if fact}}


def upon(base: Path, text: str) -> list[str]:
    """Options that keep the base's versions and leave out its packages; `text` is its lock's."""
    return [f"--constraint={base}", *(f"--no-emit-package={name}" for name in locked_names(text))]


def locked_names(lock: str) -> list[str]:
    """The packages in the text of a lock file."""
    return re.findall(r"(?m)^([A-Za-z0-9_.-]+)==", lock)


def resolve(lock: Lock, environ: Mapping[str, str], root: Path = ROOT) -> None:
    """Runs uv's resolver in the environment of `uv_environment`.

    Raises:
        Refusal: uv finds no solution or no index; says its last words.
    """
    print(f"resolving {lock.source}", file=sys.stderr)
    base = upon(lock.base, (root / lock.base).read_text("utf-8")) if lock.base else []
    command = [str(uv_binary()), "pip", "compile", *_OPTIONS, *lock.options, *base]
    command += [str(lock.source), "-o", str(lock.lock)]
    run = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=False)
    if run.returncode:
        last = redacted(" ".join(run.stderr.split()))[-300:]
        raise Refusal(f"{lock.source} cannot be resolved: {last}", UNAVAILABLE)

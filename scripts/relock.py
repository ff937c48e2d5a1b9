"""`make lock`: resolves every locked set of packages anew; what changed is for a person to read and commit.

The sets: the host's own environment, the wheels base, what the common layer adds, and each image's packages,
these constrained to the base and without what the base has.
"""

import re
import subprocess
import sys
from pathlib import Path

from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.builder import uv_binary
from scripts.images import ROOT, load_images
from scripts.settings import Settings

_BASES = ROOT / "images" / "bases"
# No host name of an index may come into the project.
_OPTIONS = (
    *("--quiet", "--upgrade", "--generate-hashes", "--no-header", "--no-emit-index-url"),
    *("--no-emit-find-links", "--no-annotate", "--python-version=3.11"),
)
_IN_IMAGE = "--python-platform=x86_64-manylinux_2_28"


def main(_settings: Settings) -> int:
    """Writes the lock files.

    Raises:
        Refusal: a set cannot be resolved; the files before it are written.
    """
    base = _BASES / "wheels" / "requirements.txt"
    resolve(ROOT / "requirements.in", ROOT / "requirements.lock")
    resolve(_BASES / "common.in", _BASES / "common.txt", _IN_IMAGE)
    resolve(_BASES / "pip.in", _BASES / "pip.txt", _IN_IMAGE)
    resolve(base.with_suffix(".in"), base, _IN_IMAGE)
    for image in load_images().values():
        if image.requirements:
            lock = ROOT / "images" / image.name / image.requirements
            resolve(lock.with_suffix(".in"), lock, _IN_IMAGE, *upon(base))
    return 0


def upon(base: Path) -> list[str]:
    """Options that keep the base's versions and leave out its packages."""
    left_out = [f"--no-emit-package={name}" for name in locked_names(base.read_text("utf-8"))]
    return [f"--constraint={base}", *left_out]


def locked_names(lock: str) -> list[str]:
    """The packages in the text of a lock file."""
    return re.findall(r"(?m)^([A-Za-z0-9_.-]+)==", lock)


def resolve(source: Path, lock: Path, *options: str) -> None:
    """Runs uv's resolver with the machine's own index.

    Raises:
        Refusal: uv finds no solution or no index; says its last words.
    """
    print(f"resolving {source.relative_to(ROOT)}", file=sys.stderr)
    command = [
        str(uv_binary()),
        "pip",
        "compile",
        *_OPTIONS,
        *options,
        str(source),
        "-o",
        str(lock),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        last = " ".join(run.stderr.split())[-300:]
        raise Refusal(f"{source.relative_to(ROOT)} cannot be resolved: {last}", UNAVAILABLE)

"""Which torch is installed, found without importing it (an import costs seconds and fixes the allocator)."""

import os
import sys

from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_TORCH = "2.6"
"""Judged for where no torch is installed, as on a build host: the torch of our images."""


class Installed(NamedTuple):
    """The version as torch itself spells it (`2.6.0+cu124`), and the site folder that holds it."""

    version: str
    site_dir: str


def installed_torch(site_dirs: "Iterable[str]") -> Installed | None:
    """The first torch in `site_dirs`, or None."""
    for site_dir in site_dirs:
        version = _from_version_file(site_dir) or _from_dist_info(site_dir)
        if version:
            return Installed(version, site_dir)
    return None


def installed_torch_version(site_dirs: "Iterable[str]") -> str | None:
    """The version of the first torch in `site_dirs`, or None."""
    installed = installed_torch(site_dirs)
    return installed.version if installed else None


def image_torch() -> Installed | None:
    """The image's torch. The Python of a launch runs without site packages on its path."""
    import site  # noqa: PLC0415 - os and sys are enough everywhere else

    return installed_torch([*sys.path, *site.getsitepackages()])


def image_torch_version() -> str | None:
    """The version of the image's torch, or None where there is none."""
    installed = image_torch()
    return installed.version if installed else None


def parse_version_file(text: str) -> str | None:
    """`__version__` in the text of torch/version.py, which torch's build writes as one plain assignment."""
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.partition(":")[0].strip() == "__version__":
            return value.partition("#")[0].strip().strip("'\"") or None
    return None


def minor_of(version: str) -> int | None:
    """N of a torch version `2.N...`; None for every other text and for other major versions."""
    major, dot, rest = version.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return int(digits) if major == "2" and dot and 0 < len(digits) < 5 else None


def _from_version_file(site_dir: str) -> str | None:
    try:
        with open(os.path.join(site_dir, "torch", "version.py"), encoding="utf-8", errors="replace") as file:
            return parse_version_file(file.read())
    except OSError:
        return None


def _from_dist_info(site_dir: str) -> str | None:
    try:
        names = sorted(os.listdir(site_dir))
    except OSError:
        return None
    found = (name for name in names if name.startswith("torch-") and name.endswith(".dist-info"))
    return next((name[len("torch-") : -len(".dist-info")] for name in found), None)

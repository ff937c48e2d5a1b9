"""Runs inside an image, given to its Python as text, and prints what is there as one JSON object.

Standard library and the image's own torch only; everything is read, nothing is judged.
"""

import importlib
import json
import os
import platform
import shutil
import stat
import sys
import sysconfig
import tempfile
from importlib.metadata import distributions
from pathlib import Path

import torch


def main() -> None:
    """Prints the facts; the names to import stand in TORCH_POOL_PROBE_IMPORTS."""
    release = platform.freedesktop_os_release()
    facts = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "cudnn": str(torch.backends.cudnn.version() or ""),
        "python": platform.python_version(),
        "distribution": release["ID"] + release.get("VERSION_ID", ""),
        "backend": torch.cuda.get_allocator_backend(),
        "installed": installed("torch", "numpy"),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "unwritable": [path for path in writable_promises() if not is_writable(path)],
        "wrong_modes": wrong_modes("/opt/torch-pool"),
        "failed_imports": failed_imports(os.environ.get("TORCH_POOL_PROBE_IMPORTS", "").split()),
        # After the imports: pip loads a distutils that setuptools would then refuse.
        "missing_requirements": missing_requirements(),
        "compiler": has_command("cc") and has_command("c++"),
        "python_headers": Path(sysconfig.get_paths()["include"], "Python.h").exists(),
    }
    json.dump(facts, sys.stdout)


def installed(*names: str) -> dict[str, list[str]]:
    """The versions of each distribution, one for every copy that Python could import."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for distribution in distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in found:
            found[name].append(distribution.version)
    return found


def missing_requirements() -> list[str]:
    """What pip's own check says of the installed set."""
    from pip._internal.operations import check  # noqa: PLC0415 -- an old pip may lack it

    packages, _ = check.create_package_set_from_installed()
    missing, conflicting = check.check_package_set(packages)
    lines = [f"{name} needs {needed[1]}" for name, all_needed in missing.items() for needed in all_needed]
    lines += [
        f"{name} needs {needed}, found {version}"
        for name, all_found in conflicting.items()
        for _, version, needed in all_found
    ]
    return lines


def writable_promises() -> list[str]:
    """Where any user must be able to write."""
    home = os.environ.get("HOME", "/")
    return [home, f"{home}/.cache", "/workspace", tempfile.gettempdir()]


def is_writable(path: str) -> bool:
    """By writing: permission bits do not know of read-only mounts."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def wrong_modes(root: str) -> list[str]:
    """Files that are not root's with 0644 or 0755, folders that are not root's with 0755."""
    wrong = []
    for folder, folders, files in os.walk(root):
        for path in [f"{folder}/{name}" for name in folders + files]:
            found = os.lstat(path)
            allowed = {0o755} if stat.S_ISDIR(found.st_mode) else {0o644, 0o755}
            if not stat.S_ISLNK(found.st_mode) and (
                found.st_uid or found.st_gid or stat.S_IMODE(found.st_mode) not in allowed
            ):
                wrong.append(f"{path} {stat.S_IMODE(found.st_mode):04o} {found.st_uid}:{found.st_gid}")
    return wrong


def failed_imports(names: list[str]) -> list[str]:
    """The packages that do not import, each with the reason."""
    failed = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 -- whatever an import raises is the finding
            failed.append(f"{name}: {type(error).__name__}: {error}")
    return failed


def has_command(name: str) -> bool:
    return shutil.which(name) is not None


main()

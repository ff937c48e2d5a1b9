"""Failures of the machine, not of this program: each as one sentence that says what to do.

Standard library only: the bootstrap needs it before there is a virtual environment.
"""

import errno
import shutil
import sys
import tempfile
from pathlib import Path

from torch_pool.refusal import UNAVAILABLE

from scripts.apt import redacted

_CURES = {
    errno.EACCES: "run it as the user who owns that, or give this user the right",
    errno.EPERM: "run it as the user who owns that, or give this user the right",
    errno.EROFS: "it must be on a disk that can be written",
    errno.ENOSPC: "make room there and run it again",
    errno.EDQUOT: "make room there and run it again",
    errno.ENOENT: "look at that path, or install the program of that name",
}
_FULL = {errno.ENOSPC, errno.EDQUOT}
# A disk with less than this is full for whoever has to write a file; in bytes.
_LITTLE = 1_000_000


def explain(error: Exception) -> tuple[str, int] | None:
    """Return the sentence and the exit status for a failure of the machine, None for any other error."""
    # Who has not loaded the SDK cannot have got an error from it.
    sdk = sys.modules.get("docker.errors")
    if sdk and isinstance(error, sdk.DockerException):
        return f"the Docker engine failed ({_line(error)}); docker info says more", UNAVAILABLE
    if type(error).__module__.startswith(("requests.", "urllib3.")):
        return f"the Docker engine does not answer ({_line(error)}); docker info says more", UNAVAILABLE
    if isinstance(error, OSError):
        return _explain_system(error), 1
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "a value holds a NUL byte; look at .env and at the files of images/", 1
    return None


def full_disk(folders: tuple[Path, ...], needed: int = _LITTLE) -> str:
    """Return the first of some folders whose disk has less than `needed` bytes free, else an empty text."""
    return next(
        (str(folder) for folder in folders if folder.is_dir() and shutil.disk_usage(folder).free < needed), ""
    )


def _explain_system(error: OSError) -> str:
    # Of two paths, the second is the one that was written.
    path = error.filename2 or error.filename or ""
    if not path and error.errno in _FULL:
        path = full_disk((Path("build").absolute(), Path.cwd(), Path(tempfile.gettempdir())))
    cure = _CURES.get(error.errno or 0, "look at that, and run it again")
    reason = error.strerror or _line(error)
    return f"{f'{path}: ' if path else ''}{reason}; {cure}"


def _line(error: Exception) -> str:
    return redacted(" ".join(str(error).split()))

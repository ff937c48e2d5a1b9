"""The home: a name, a home directory and cache directories that work under any uid and a read-only root.

Caches of torch inductor and Triton are code that is run. Where the usual place does not work they go to a
directory of this uid alone: mode 0700, owner checked, no symbolic link followed.
"""

import os
import stat

from torch_pool.finding import Finding
from torch_pool.launch import (
    SHM,
    TMP,
    code_caches,
    holds_programs,
    is_absent,
    is_own,
    login_name,
    user_name,
)
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.resolution import Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

IMAGE_HOME = "/home/torch-pool"
"""HOME in the image's ENV. Any other HOME is the user's, and kept even where it cannot be written."""
SPARE = (TMP, "/var/tmp", SHM)  # noqa: S108 - only used through private_directory
SOURCE = "default"
_PARTS = {
    "HOME": "home",
    "HF_HOME": "huggingface",
    "MPLCONFIGDIR": "matplotlib",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}
"""The part of our private directory that each variable may have to point to."""


class Home(NamedTuple):
    """What is to be set so that programs find a usable user, home and caches."""

    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]


def settle_home(given: "Mapping[str, str]", uid: int, spare: "Iterable[str]" = SPARE) -> Home:
    """Keep what works; replace what does not. Makes at most one directory."""
    login = login_name(uid)
    name = user_name(given, login, uid)
    settings = [] if login else _name_user(given, name)
    home = given.get("HOME", "")
    unusable = _unusable(given, home, name, uid)
    if not unusable:
        return Home(tuple(settings), ())
    places = [home, *spare] if holds_programs(home) else list(spare)
    private = next(filter(None, (private_directory(place, uid) for place in places)), None)
    if private is None:
        return Home(tuple(settings), (_nowhere(unusable),))
    settings += [
        Setting(variable, os.path.join(private, _PARTS[variable]), SOURCE, reason)
        for variable, reason in unusable.items()
    ]
    if "HOME" in unusable:
        make_directory(os.path.join(private, "home"))
    return Home(tuple(settings), () if holds_programs(private) else (_no_exec(private),))


def _name_user(given: "Mapping[str, str]", name: str) -> list[Setting]:
    reason = "this uid has no entry in /etc/passwd, and getpass fails without a name"
    return [Setting(key, name, SOURCE, reason) for key in ("USER", "LOGNAME") if not given.get(key)]


def _unusable(given: "Mapping[str, str]", home: str, user: str, uid: int) -> dict[str, str]:
    """The variables that must point elsewhere, and why; those of the user's only where they are HOME."""
    found = {}
    if not _is_writable(home):
        # A HOME of the user's own stays; what programs would write there goes elsewhere.
        replaced = ("HOME",) if home in ("", "/", IMAGE_HOME) else ("HF_HOME", "MPLCONFIGDIR")
        found = dict.fromkeys(replaced, f"HOME={home} cannot be written")
    for variable, usual in code_caches(given, home, user).items():
        if not may_hold_code(usual, uid):
            found[variable] = f"{usual} cannot hold compiled code of this user alone"
    return {variable: why for variable, why in found.items() if variable == "HOME" or variable not in given}


def may_hold_code(path: str, uid: int) -> bool:
    """Whether nobody but this user can have written there, and files can be mapped as code."""
    absent = is_absent(path)
    place = os.path.dirname(path) if absent else path
    return (absent or is_own(path, uid)) and _is_writable(place) and holds_programs(place)


def private_directory(parent: str, uid: int) -> str | None:
    """A directory of this user alone, mode 0700, made if need be; None where that cannot be had."""
    path = os.path.join(parent, f".torch-pool-{uid}")
    make_directory(path)
    try:
        found = os.lstat(path)
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077
    return path if is_private and _is_writable(path) else None


def make_directory(path: str) -> None:
    """Make it with mode 0700 if it is not there; whether it is usable shows the caller's next look."""
    try:
        os.mkdir(path, 0o700)
    except OSError:
        return


def _is_writable(directory: str) -> bool:
    """Write and remove a file: permission bits say nothing of read-only mounts, quotas and full disks."""
    if not os.path.isabs(directory):
        return False
    # A name of chance: containers that share a home have the same process ids.
    probe = os.path.join(directory, f".torch-pool-probe-{os.urandom(8).hex()}")
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            return os.write(descriptor, b"x") == 1
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError:
        return False


def _nowhere(unusable: "Mapping[str, object]") -> Finding:
    message = (
        f"no directory can be written for {', '.join(unusable)}; give the container one, "
        "such as --tmpfs /tmp:exec or a volume"
    )
    return Finding("warn", "no-writable-directory", None, message)


def _no_exec(private: str) -> Finding:
    message = (
        f"caches are in {private}, which is mounted noexec: compiled kernels cannot be loaded from it; "
        "give the container --tmpfs /tmp:exec or a volume"
    )
    return Finding("warn", "cache-noexec", None, message)

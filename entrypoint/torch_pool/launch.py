"""The launch: set the environment that the profile asks for, then become the command.

The plain path (the image's own profile, nothing overridden, no GPU) imports nothing but os and the compiled
profile, so that a start costs hardly more than Python itself. Whatever needs a decision goes to preparation.
"""

import _signal  # type: ignore[import-not-found]  # `signal` builds enums: longer than the rest of the launch
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    class Baked(Protocol):
        """The image's own profile, compiled: the module `baked` that the build writes."""

        PROFILE: dict[str, Any]
        CONF: str


CONF = "PYTORCH_CUDA_ALLOC_CONF"
LAUNCHED = "TORCH_POOL_LAUNCHED"
"""What a launch has set, for a second launch: the profile's name, then NAME=VALUE with blanks escaped."""

SHM = "/dev/shm"  # noqa: S108 - the place that PyTorch's data loaders use
TMP = "/tmp"  # noqa: S108 - where torch inductor keeps its cache; tested, not written
USERS = "/etc/passwd"
HOOKS = "/etc/torch-pool/launch.d"
USAGE = 64

_DECIDING = ("PYTORCH_", "TORCH_POOL_", "CUDA_VISIBLE_DEVICES")
_GPU_SIGNS = (
    "/proc/driver/nvidia/version",
    "/dev/nvidiactl",
    "/dev/nvidia0",
    "/dev/dxg",
    "/dev/nvmap",
    "/dev/nvhost-gpu",
    "/dev/nvgpu",
    "/etc/nv_tegra_release",
)
_CLASHING = ("vllm", "sglang", "text-generation-launcher")

_NO_GPU = (
    "no GPU: no NVIDIA driver is to be seen; use a host that has one, and start it with --gpus all (docker), "
    "--device nvidia.com/gpu=all (podman, CDI), or a limit nvidia.com/gpu: 1 (Kubernetes)"
)


def main(argv: list[str], baked: "Baked") -> int:
    """Become the command in `argv`. Returns an exit status only where there is nothing to become."""
    if argv and (argv[0].startswith("-") or argv[0] == "torch-pool"):
        from torch_pool.cli import main as torch_pool  # noqa: PLC0415 - the plain path does not need it

        return torch_pool(argv[1:] if argv[0] == "torch-pool" else argv, baked)
    if not argv and not os.isatty(0):
        say("no command was given; name one, such as: python train.py (torch-pool --help tells more)")
        return USAGE
    return launch(argv or [_shell()], inherited_environment(), baked)


def launch(argv: list[str], environ: dict[str, str], baked: "Baked") -> int:
    """Become the command under the profile; returns an exit status only when that is not possible."""
    if is_plain(argv, environ, baked):
        environ = plain_environment(environ, baked)
        say(f"profile {baked.PROFILE['name']}: {CONF}={baked.CONF}")
        if baked.PROFILE["gpu"] == "wanted":
            say(_NO_GPU, "warning")
        return execute(argv, environ)
    from torch_pool.preparation import prepare  # noqa: PLC0415 - the plain path does not need it

    prepared = prepare(argv, environ, baked)
    return execute(argv, prepared.environ) if prepared.status is None else prepared.status


def is_plain(argv: list[str], environ: dict[str, str], baked: "Baked") -> bool:
    """Whether nothing needs a decision: no override, no GPU, no hook, and a usable home."""
    profile = baked.PROFILE
    return (
        not (
            profile["env"] or profile["memory"] or profile["devices"]["pick"] or profile["devices"]["listed"]
        )
        and profile["gpu"] != "required"
        and environ.get(CONF, baked.CONF) == baked.CONF
        and not any(name.startswith(_DECIDING) and name != CONF for name in environ)
        and not any(os.path.exists(sign) for sign in _GPU_SIGNS)
        and not any(word in argument for argument in argv[:3] for word in _CLASHING)
        and is_absent(HOOKS)
        and (not profile["shm_bytes"] or file_system_bytes(SHM) >= profile["shm_bytes"])
        and has_home(environ)
    )


def file_system_bytes(directory: str) -> int:
    """The size of the file system there; 0 where nobody can tell."""
    try:
        size = os.statvfs(directory)
    except OSError:
        return 0
    return size.f_blocks * size.f_frsize


def has_home(environ: dict[str, str]) -> bool:
    """Whether HOME and /tmp can hold caches and the user has a name, which getpass wants."""
    uid = os.getuid()
    login = login_name(uid)
    named = login or (environ.get("USER") and environ.get("LOGNAME"))
    home = environ.get("HOME") or "/nonexistent"
    return (
        bool(named)
        and all(holds_programs(place) and has_room(place) for place in (home, environ.get("TMPDIR") or TMP))
        and all(
            is_absent(cache) or is_own(cache, uid)
            for cache in code_caches(environ, home, user_name(environ, login, uid)).values()
        )
    )


def user_name(environ: "Mapping[str, str]", login: str | None, uid: int) -> str:
    """In the order of getpass.getuser, by which inductor names its cache."""
    return environ.get("LOGNAME") or environ.get("USER") or login or f"uid{uid}"


def code_caches(environ: "Mapping[str, str]", home: str, user: str) -> dict[str, str]:
    """Where Triton and inductor keep code by default, by the variable that says otherwise."""
    return {
        "TRITON_CACHE_DIR": os.path.join(home, ".triton"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(environ.get("TMPDIR") or TMP, f"torchinductor_{user}"),
    }


def is_absent(path: str) -> bool:
    """Whether nothing is there; what cannot be looked at may be there."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def is_own(directory: str, uid: int) -> bool:
    """Whether it is a directory, no link to one, that this user owns and nobody else can write."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o022


def holds_programs(directory: str) -> bool:
    """Whether files can be written here and mapped as code, as compiled kernels are (tmpfs: often not)."""
    return os.access(directory, os.W_OK | os.X_OK) and not os.statvfs(directory).f_flag & os.ST_NOEXEC


def has_room(directory: str) -> bool:
    """Whether the file system has blocks and inodes left, as far as it counts them.

    No write test as in torch_pool.home: that would leave a new time on directories of the image.
    """
    left = os.statvfs(directory)
    return left.f_bavail > 0 and (left.f_favail > 0 or left.f_files == 0)


def login_name(uid: int, users: str = USERS) -> str | None:
    """The name of a user id. Read here because the plain path imports nothing, and containers have no NSS."""
    try:
        with open(users, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.split(":")
                if len(fields) > 2 and fields[2] == str(uid):
                    return fields[0]
    except OSError:
        pass
    return None


def plain_environment(environ: dict[str, str], baked: "Baked") -> dict[str, str]:
    """The environment with the image's conf, and what was set written down for a second launch."""
    made = {CONF: baked.CONF}
    return {**environ, **made, LAUNCHED: record(baked.PROFILE["name"], made)}


def record(profile: str, made: dict[str, str]) -> str:
    """The value of TORCH_POOL_LAUNCHED; provenance.parse_record is its inverse."""
    return " ".join([profile, *(f"{name}={_escape(value)}" for name, value in made.items())])


def _escape(value: str) -> str:
    # As in a query of a URL: %20 for each blank could make a long value too long for exec.
    return value.replace("%", "%25").replace("+", "%2B").replace(" ", "+").replace("\n", "%0A")


def inherited_environment() -> dict[str, str]:
    """The environment as the container runtime gave it.

    In the C locale Python sets LC_CTYPE in its own environment (PEP 538); the command must not inherit that.
    """
    environ = dict(os.environ)
    if "LC_CTYPE" in environ:
        try:
            with open("/proc/self/environ", "rb") as file:
                given = [pair[9:] for pair in file.read().split(b"\0") if pair.startswith(b"LC_CTYPE=")]
        except OSError:
            return environ
        del environ["LC_CTYPE"]
        if given:
            environ["LC_CTYPE"] = os.fsdecode(given[0])
    return environ


def execute(argv: list[str], environ: dict[str, str]) -> int:
    """Replace this process by the command; returns 126 or 127, as a shell does, when that fails."""
    restore_signals()
    failure: OSError | None = None
    # The search of execvp(3); os.execvpe would import warnings.
    for path in candidates(argv[0], environ.get("PATH", os.defpath)):
        try:
            os.execve(path, argv, environ)  # noqa: S606 - becoming the user's command is what a launch is
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.lexists(path):
                failure = failure or error
        except OSError as error:
            failure = failure or error
    from torch_pool.exec_failure import explain  # noqa: PLC0415 - only a failure pays for the import

    message, status = explain(argv, failure)
    say(message)
    return status


def restore_signals() -> None:
    """Undo what Python ignores: that would outlive exec, and `yes | head` would end with an error."""
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)


def candidates(command: str, search_path: str) -> list[str]:
    """The files that the command may mean, in order of PATH; an empty entry is the working directory."""
    if "/" in command:
        return [command]
    return (
        [os.path.join(directory or ".", command) for directory in search_path.split(":")] if command else []
    )


def say(message: str, kind: str = "") -> None:
    """One line on stderr, written at once: exec would lose what is buffered."""
    start = f"torch-pool: {mark(kind)}: " if kind else "torch-pool: "
    try:
        os.write(2, f"{start}{one_line(message)}\n".encode())
    except OSError:
        # A closed or full stderr must not keep the command from starting.
        return


def one_line(text: str) -> str:
    r"""The text with \n for a line end and so on: no value can forge a line of ours or steer a terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def mark(word: str) -> str:
    """The word, in bold yellow at a terminal that wants colour (https://no-color.org)."""
    environ = os.environ
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb" or not os.isatty(2):
        return word
    return f"\033[1;33m{word}\033[0m"


def _shell() -> str:
    return next((path for path in ("/bin/bash", "/bin/sh") if os.access(path, os.X_OK)), "sh")

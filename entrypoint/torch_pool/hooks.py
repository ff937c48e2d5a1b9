"""Hooks: executables in a directory that run before the command, in the order of their names.

They are an operator's own word, so a hook that fails stops the start. A hook has the environment that the
command will have and cannot change it; its stdout goes to stderr, because stdout is the command's; its stdin
is empty. Hooks run once in a container, not again for a launch in a launch.
"""

import _signal  # type: ignore[import-not-found]  # as in torch_pool.launch
import os
import stat

from torch_pool.finding import Finding
from torch_pool.launch import HOOKS, is_absent
from torch_pool.record import TYPE_CHECKING
from torch_pool.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping


def list_hooks(directory: str = HOOKS) -> list[str]:
    """The paths of the hooks, in the order in which they run. Raises Refusal for one that cannot be read."""
    if is_absent(directory):
        return []
    try:
        names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
        paths = [os.path.join(directory, name) for name in names]
        return [path for path in paths if stat.S_ISREG(os.stat(path).st_mode)]
    except OSError as error:
        where = os.fsdecode(error.filename or directory)
        raise Refusal(f"hooks: {where} cannot be read ({error.strerror}); mend it or remove it") from error


def check_hooks(directory: str = HOOKS) -> list[Finding]:
    """A file that is not executable was most likely meant to run."""
    return [
        Finding("warn", "hook-skipped", path, f"hook {path} is not executable and was skipped: chmod +x it")
        for path in list_hooks(directory)
        if not os.access(path, os.X_OK)
    ]


def run_hooks(environ: "Mapping[str, str]", directory: str = HOOKS) -> None:
    """Run each; raises Refusal for the first that fails."""
    for path in list_hooks(directory):
        if os.access(path, os.X_OK):
            status = _run(path, environ)
            if status != 0:
                raise Refusal(f"hook {path} {_ending(status)}; mend it, or take it out of {directory}")


def _ending(status: int) -> str:
    from signal import Signals  # noqa: PLC0415 - only a failure pays for it

    if status > 0:
        return f"failed with status {status}"
    known = -status in {*Signals}
    return f"was ended by signal {-status}" + (f" ({Signals(-status).name})" if known else "")


def _run(path: str, environ: "Mapping[str, str]") -> int:
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
    restored = [_signal.SIGPIPE, _signal.SIGXFSZ]
    try:
        process = os.posix_spawn(path, [path], environ, file_actions=actions, setsigdef=restored)
    except OSError as error:
        raise Refusal(f"hook {path} cannot be started ({error.strerror}); mend it or remove it") from error
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

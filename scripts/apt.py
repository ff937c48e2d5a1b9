"""apt as the set-up steps use it: never half done, never asking, its output in a log.

Standard library only: the bootstrap needs it before there is a virtual environment.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.settings import Settings

Command = tuple[str, ...]

# All that may be done to a machine that is not ours: add.
_ADD_ONLY = ("--yes", "--no-install-recommends", "--no-remove", "--no-upgrade")
# Tools of administration are not on every PATH; dpkg and dockerd call them.
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_LOCK_SECONDS = 300


class Run(NamedTuple):
    """A command; one that `may_fail` is reported and passed over."""

    command: Command
    may_fail: bool = False

    @property
    def shell(self) -> str:
        return shlex.join(self.command)


def install_command(packages: Sequence[str]) -> Command:
    """Return the command that installs `packages` and changes nothing else."""
    return ("apt-get", "install", *_ADD_ONLY, *packages)


def install_steps(packages: Sequence[str]) -> tuple[Run, ...]:
    """Return what installs `packages`, after what an interrupted installation left is finished."""
    return (
        Run(("dpkg", "--configure", "-a"), may_fail=True),
        # A source that cannot be fetched is only a warning without the option. Another, broken source of the
        # machine is no reason to stop; a missing package is.
        Run(("apt-get", "update", "--error-on=any"), may_fail=True),
        # apt takes no names beside this while something is half installed.
        Run(install_command(["--fix-broken"]), may_fail=True),
        Run(install_command(packages)),
    )


def apt_install(packages: Sequence[str], settings: Settings, why: str) -> None:
    """Announce and install Debian packages; `why` ends the sentence "NAMES must be installed ...".

    Raises:
        Refusal: ENGINE=none, not root, no apt, or apt failed; with the command to run by hand.
    """
    steps = install_steps(packages)
    command = steps[-1].shell
    needed = f"{' and '.join(packages)} must be installed {why}"
    forbidden = _forbidden(settings)
    if forbidden:
        raise Refusal(f"{needed}, and {forbidden}; run as root: {command}", UNAVAILABLE)
    print(f"torch-pool: {needed}; running: {command}", file=sys.stderr)
    for step in steps:
        run_apt(step.command, Path("build/logs/apt.log"), may_fail=step.may_fail)


def _forbidden(settings: Settings) -> str:
    if settings.engine.value == "none":
        return f"ENGINE=none (from {settings.engine.place}) forbids it"
    if not shutil.which("apt-get"):
        return "this machine has no apt"
    return "" if os.geteuid() == 0 else "only root may do that"


def run_apt(command: Command, log: Path, *, may_fail: bool = False) -> None:
    """Run one apt or dpkg command to its end: Ctrl-C waits for it, and it for another apt.

    With `may_fail` a failure is only reported.

    Raises:
        Refusal: It failed; says apt's own reason and where the log is.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    lock = ("-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}") if command[0] == "apt-get" else ()
    path = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"
    environ = os.environ | {"PATH": path, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    with log.open("w+", encoding="utf-8", errors="replace") as out, signals_held_back(command[0]):
        # Its own session, so that a Ctrl-C of the terminal does not reach it.
        done = subprocess.run(
            [*command, *lock],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environ,
            check=False,
        )
    if done.returncode:
        reason = apt_reason(log.read_text("utf-8", errors="replace"))
        failure = f"{shlex.join(command)} failed: {reason}"
        if not may_fail:
            raise Refusal(f"{failure} (all of it is in {log}); the same command goes on", UNAVAILABLE)
        print(f"torch-pool: {failure}; going on without", file=sys.stderr)


def apt_reason(output: str) -> str:
    """Return apt's first error, on one line and without credentials."""
    errors = re.findall(r"^(?:E|W|dpkg): +(.+)$", output, re.MULTILINE)
    lines = output.strip().splitlines()
    return redacted(errors[0] if errors else lines[-1] if lines else "no output")


def redacted(text: str) -> str:
    """Return `text` without the user names and passwords of the URLs in it."""
    return re.sub(r"(?<=://)[^/\s@]+@", "***@", text)


@contextmanager
def signals_held_back(what: str) -> Iterator[None]:
    """Deliver Ctrl-C, a hang-up and a termination only at the end of the block.

    Handlers rather than a blocked mask: a child would inherit the mask, and so would a daemon that it starts.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)
        print(f"torch-pool: stopping as soon as {what} is done", file=sys.stderr)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, hold) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])

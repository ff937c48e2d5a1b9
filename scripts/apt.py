"""apt as the set-up steps use it: never half done, never asking, its output in a log.

Standard library only: the bootstrap needs it before there is a virtual environment.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from torch_pool.refusal import UNAVAILABLE, Refusal

Command = tuple[str, ...]

# What an interrupted dpkg left is finished first; apt would refuse to go on.
CONFIGURE: Command = ("dpkg", "--configure", "-a")
UPDATE: Command = ("apt-get", "update")
_LOCK_SECONDS = 300


def install_command(packages: Sequence[str]) -> Command:
    """Return the command that installs `packages` and can only add to the machine."""
    return ("apt-get", "install", "--yes", "--no-install-recommends", "--no-remove", *packages)


def run_apt(command: Command, log: Path, *, may_fail: bool = False) -> None:
    """Run one apt or dpkg command to its end: Ctrl-C waits for it, and so does another apt.

    Raises:
        Refusal: It failed; says apt's own reason and where the log is.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    lock = ("-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}") if command[0] == "apt-get" else ()
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
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
    if done.returncode and not may_fail:
        reason = apt_reason(log.read_text("utf-8", errors="replace"))
        message = f"{shlex.join(command)} failed: {reason} (all of it is in {log}); the same command goes on"
        raise Refusal(message, UNAVAILABLE)


def apt_reason(output: str) -> str:
    """Return apt's first error, on one line and without credentials."""
    errors = re.findall(r"^(?:E|dpkg): +(.+)$", output, re.MULTILINE)
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

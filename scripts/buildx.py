"""`docker buildx build` as people know it, with its output also in a log, and a failure in one sentence."""

import errno
import fcntl
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.diagnosis import diagnose


def build(what: str, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
    """Runs one build; its progress goes to stderr and to `log`.

    Raises:
        Refusal: the build failed; says what was built, the likely cause and where the log is.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    progress = "tty" if sys.stderr.isatty() else "plain"
    command = ["docker", "buildx", "build", "--progress", progress, *arguments]
    status = _run_in_terminal(command, environ, log) if progress == "tty" else _run(command, environ, log)
    if status:
        cause = diagnose(log.read_text("utf-8", errors="replace"))
        message = f"building {what} failed, nothing was tagged: {cause}; the whole output is in {log}"
        raise Refusal(message, 1)


def _run(command: Sequence[str], environ: Mapping[str, str], log: Path) -> int:
    """Without a terminal: plain lines, copied as they come."""
    with (
        log.open("wb") as out,
        subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process,
    ):
        for line in process.stderr or ():
            out.write(line)
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
    return process.returncode


def _run_in_terminal(command: Sequence[str], environ: Mapping[str, str], log: Path) -> int:
    """Through a terminal of its own: buildx then draws what people know, and the log gets it too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, fcntl.ioctl(sys.stderr, termios.TIOCGWINSZ, b"\0" * 8))
    with (
        log.open("wb") as out,
        subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=theirs) as process,
    ):
        os.close(theirs)
        while data := _read(ours):
            out.write(data)
            sys.stderr.buffer.write(data)
            sys.stderr.flush()
    os.close(ours)
    return process.returncode


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError as error:
        # Linux says EIO, not end of file, when the last holder of the other side is gone.
        if error.errno == errno.EIO:
            return b""
        raise

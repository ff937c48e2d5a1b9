"""Ask a question in a child process, with a time limit.

A GPU library may hang in the kernel, crash, or leave the process unable to fork; none of that may reach the
process that becomes the user's command. A thread would not do: exec waits for a thread that is stuck.
"""

import marshal
import os
import select
import time

from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, NoReturn

    Kind = Literal["library-missing", "symbol-missing", "refused", "hung", "crashed"]

LIMIT_SECONDS = 2.0
_SIGKILL = 9
_GRACE_SECONDS = 0.1


class Failure(NamedTuple):
    """Why there is no answer. `code` is the library's error number or the signal that ended the child."""

    kind: "Kind"
    code: int | None = None
    detail: str = ""


def ask(question: "Callable[[], Any]", limit_seconds: float = LIMIT_SECONDS) -> "Any":
    """The answer of `question`, which runs in a child process, or the Failure to get one.

    An answer is None, a number, a text or nested plain tuples of these: what marshal, which costs no import,
    carries. Nothing that the child prints is seen.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(question, writer, limit_seconds)
    os.close(writer)
    try:
        message = _read_all(reader, time.monotonic() + limit_seconds)
    finally:
        os.close(reader)
    if message is None:
        os.kill(pid, _SIGKILL)
        _reap(pid)
        return Failure("hung", None, f"no answer within {limit_seconds:g} s")
    return _parse(message, _reap(pid))


def _answer(question: "Callable[[], Any]", writer: int, limit_seconds: float) -> "NoReturn":
    import signal  # noqa: PLC0415 - it builds enums for 5 ms, which only the child has to spend

    try:
        # Should the parent be killed first, nobody else would end a child that hangs.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(limit_seconds) + 2)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        answer = question()
        failed = isinstance(answer, Failure)
        message = marshal.dumps((failed, tuple(answer) if failed else answer))
        while message:
            message = message[os.write(writer, message) :]
        os._exit(0)
    except Exception as error:  # noqa: BLE001 - a bug must not run the parent's code a second time
        os.write(writer, marshal.dumps((True, ("crashed", None, f"{type(error).__name__}: {error}"))))
    finally:
        os._exit(1)


def _read_all(reader: int, deadline: float) -> bytes | None:
    chunks: list[bytes] = []
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([reader], [], [], remaining)[0]:
            return None
        chunk = os.read(reader, 65536)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


def _reap(pid: int) -> int | None:
    """The status of an ended child; None for one that not even SIGKILL ends (stuck in the kernel)."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def _parse(message: bytes, status: int | None) -> "Any":
    if not message:
        return Failure("crashed", -status if status else None, f"the child ended with status {status}")
    failed, answer = marshal.loads(message)  # noqa: S302 - written by our own child a moment ago
    return Failure(*answer) if failed else answer

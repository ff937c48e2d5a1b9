"""Why a command did not start, in one sentence, with the exit status that a shell would give."""

import errno
import os

NOT_EXECUTABLE = 126
NOT_FOUND = 127

_SHOWN = 200


def explain(argv: list[str], error: OSError | None) -> tuple[str, int]:
    """The sentence and 126 or 127. `error` is that of execve, None when no file of that name was found."""
    command = argv[0]
    shown = command if len(command) <= _SHOWN else f"{command[:_SHOWN]}..."
    if error is None:
        return f"{shown!r}: {_not_found(command)}{_quoted_hint(argv)}", NOT_FOUND
    path = os.fsdecode(error.filename or command)
    reason, status = _reason(path, error)
    return f"{shown!r}: {reason}{_quoted_hint(argv)}", status


def _reason(path: str, error: OSError) -> tuple[str, int]:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return _missing_interpreter(path), NOT_FOUND
    if os.path.isdir(path):
        return "is a directory, not a program", NOT_EXECUTABLE
    if error.errno == errno.EACCES and os.path.exists(path):
        return f"{path} is not executable; run chmod +x, or name its interpreter before it", NOT_EXECUTABLE
    if error.errno == errno.ENOEXEC:
        return f"{path} {_no_format(path)}", NOT_EXECUTABLE
    return f"cannot be started ({error.strerror})", NOT_EXECUTABLE


def _not_found(command: str) -> str:
    if not command:
        return "the command is empty; name a program"
    if "/" in command:
        return "no such file in the container; check the path and the mounts"
    return "no such command on PATH; check the name, or install it in the image"


def _missing_interpreter(path: str) -> str:
    """A file that is there and yet not found: the kernel means the interpreter that the file names."""
    line = _first_line(path)
    if not line.startswith(b"#!"):
        return f"{path} is a link to nothing, or built for another system: its loader is not in the container"
    words = line[2:].split()
    interpreter = os.fsdecode(words[0]) if words else ""
    if line.endswith(b"\r"):
        return (
            f"{path} has Windows line ends (CRLF), so {interpreter!r} is not found; convert it with dos2unix"
        )
    return f"the interpreter {interpreter!r} that {path} names in its first line is not in the container"


def _no_format(path: str) -> str:
    if _first_line(path).startswith(b"\x7fELF"):
        return "is a program for another kind of machine"
    return f"has no #! line and is not a program; run it as: sh {path}"


def _first_line(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4096).partition(b"\n")[0]
    except OSError:
        return b""


def _quoted_hint(argv: list[str]) -> str:
    """A whole command line in one argument is never split: its quotes are the user's."""
    if len(argv) == 1 and " " in argv[0].strip():
        return "; the whole command came as one argument: drop the outer quotes, or use sh -c '...'"
    return ""

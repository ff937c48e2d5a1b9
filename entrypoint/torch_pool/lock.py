"""Hold GPUs against other containers of the host, in a directory that they share: TORCH_POOL_LOCK_DIR.

One file for each GPU or MIG UUID. The lock is an flock on a descriptor that the command inherits: the kernel
lets go of it when the last process of the command has ended, however it ended.
"""

import fcntl
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TURN_SECONDS = 2.0
_FIRST_DESCRIPTOR = 64
"""Above the numbers that shell scripts name (`exec 3>`, and bash's own from 10), below any usual limit."""


def claim(directory: str, uuids: "Sequence[str]", count: int) -> tuple[str, ...]:
    """Lock the first `count` of the UUIDs that nobody holds, and return them; () when so many are not free.

    Raises OSError when the directory or a file in it cannot be used, TimeoutError (which is one) when another
    start has been choosing for 2 s.
    """
    turn = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held: dict[str, int] = {}
    try:
        _take_turn(turn, directory)
        for uuid in uuids:
            descriptor = _try_lock(turn, uuid) if len(held) < count and uuid not in held else None
            if descriptor is not None:
                held[uuid] = descriptor
    except OSError:
        _release(held)
        raise
    finally:
        os.close(turn)
    if len(held) < count:
        _release(held)
        return ()
    return tuple(held)


def _take_turn(turn: int, directory: str) -> None:
    """Choose one at a time: two starts that want two of three GPUs would else take one each and both fail."""
    deadline = time.monotonic() + TURN_SECONDS
    while True:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"another start has been choosing in {directory} for {TURN_SECONDS:g} s"
                ) from None
            time.sleep(0.01)
        else:
            return


def _try_lock(directory: int, uuid: str) -> int | None:
    """An inherited descriptor that holds the lock, or None where another one does."""
    file = _open(directory, f"{uuid.replace('/', '_')}.lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # F_DUPFD clears close-on-exec, and the copy shares the lock.
        return fcntl.fcntl(file, fcntl.F_DUPFD, _FIRST_DESCRIPTOR)
    except BlockingIOError:
        return None
    finally:
        os.close(file)


def _open(directory: int, name: str) -> int:
    """Open the lock file, made for all users; O_CREAT alone would fail in /tmp (fs.protected_regular)."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=directory)
        os.fchmod(file, 0o666)
    except FileExistsError:
        file = os.open(name, flags, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{name} is not a regular file")
    return file


def _release(held: dict[str, int]) -> None:
    for descriptor in held.values():
        os.close(descriptor)

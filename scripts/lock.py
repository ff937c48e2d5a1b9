"""One at a time: a lock file that the kernel frees when its holder is gone, however it went."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, waiting: str) -> Iterator[int]:
    """Hold `path` alone; print `waiting` once where another process has it.

    Yields the descriptor: a child that inherits it keeps the lock when this process is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"torch-pool: {waiting}", file=sys.stderr)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)

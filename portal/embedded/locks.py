"""File locks between processes; the kernel gives them back when a process dies."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock alone, waiting for it as long as it takes."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def shared(path: Path, *, starting: Path, leave: Callable[[], None]) -> Iterator[None]:
    """Hold a lock together with others; the last to go calls `leave` before it returns.

    Coming and going are serialised by the lock `starting`, so nobody comes while somebody leaves.
    """
    descriptor = _open(path)
    try:
        with exclusive(starting):
            # Waits only while a reaper, which found no user left, is stopping the services.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        with exclusive(starting):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            if _try(descriptor, fcntl.LOCK_EX):
                leave()
            elif not _try(descriptor, fcntl.LOCK_SH):
                # The reaper was quicker and is at it: wait until it has finished.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            os.close(descriptor)


@contextlib.contextmanager
def exclusive_or_not(path: Path) -> Iterator[bool]:
    """Hold a lock alone and say True, or say False at once when somebody else has it."""
    descriptor = _open(path)
    try:
        yield _try(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _try(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

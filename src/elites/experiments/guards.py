"""Protection of a run's folder: a lock, and a clean stop after a signal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from elites.errors import ElitesError


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes. The end of the process releases the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ElitesError(f"{folder} is being run by another process") from None
        yield
    finally:
        os.close(descriptor)


class Interrupts:
    """The first Ctrl-C or SIGTERM requests a stop; the second raises KeyboardInterrupt."""

    def __init__(self, message: str) -> None:
        """`message` is printed after the first one."""
        self.requested = False
        self._message = f"\n{message}; again to stop at once\n".encode()

    def __enter__(self) -> Interrupts:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        # Not through Python's streams: the signal may have interrupted a write to them.
        with contextlib.suppress(OSError):  # in `2>&1 | tee log` Ctrl-C also stops the reader
            os.write(2, self._message)

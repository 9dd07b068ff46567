"""What keeps a run's folder whole: one process at a time, and a clean end when asked to stop."""

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
def alone(folder: Path) -> Iterator[None]:
    """Keeps a second process off the run. The lock goes with the process, however that ends."""
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
    """The first Ctrl-C, or SIGTERM, asks to stop; the second ends the process's work at once."""

    def __init__(self, answer: str) -> None:
        """`answer` is printed after the first one."""
        self.requested = False
        self._answer = f"\n{answer}; again to stop at once\n".encode()

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
        # Not through Python's streams: the signal may have come in the middle of a write to them.
        with contextlib.suppress(OSError):  # in `2>&1 | tee log` Ctrl-C has ended the reader too
            os.write(2, self._answer)

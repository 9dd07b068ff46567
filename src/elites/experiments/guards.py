"""Protection of a run's folder: a lock, and a clean stop after a signal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    """The first Ctrl-C or SIGTERM requests a stop; the second raises KeyboardInterrupt.

    A thread receives them at once. Python's own handlers run only after a compilation or a program has ended.
    """

    def __init__(self, awaited: str, on_stop: Callable[[str, int], None] | None = None) -> None:
        """`awaited` names what a stop waits for. `on_stop` is called with a line and the signals so far."""
        self.requested = False
        self._line = f"waiting for {awaited} to end (Ctrl-C again stops at once)"
        self._on_stop = on_stop or write_stop
        self._received = self._handled = 0  # signals; Python handles equal ones that arrive together once

    def __enter__(self) -> Interrupts:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._pipe_out, self._pipe_in = os.pipe()
            os.set_blocking(self._pipe_in, False)
            self._wakeup_before = signal.set_wakeup_fd(self._pipe_in, warn_on_full_buffer=False)
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._pipe_in)  # ends the listener
            self._listener.join()
            os.close(self._pipe_out)

    def _listen(self) -> None:
        while number := os.read(self._pipe_out, 1):
            if number[0] in self._before:
                self._received += 1
                self.requested = True
                self._on_stop(self._line, self._received)

    def _handle(self, number: int, frame: object) -> None:
        self._handled += 1
        self.requested = True
        if max(self._handled, self._received) > 1:
            raise KeyboardInterrupt


def write_stop(line: str, times: int) -> None:
    """Writes a line to standard error after the first Ctrl-C."""
    if times == 1:
        # Not through Python's streams, which another thread may lock for long.
        with contextlib.suppress(OSError):  # in `2>&1 | tee log` Ctrl-C also stops the reader
            os.write(2, f"\n{line}\n".encode())

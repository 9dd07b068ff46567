"""Standard output and error that never fail: not for any encoding, a full disk or a closed pipe."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class Output:
    """A text stream that escapes characters outside its encoding, and drops text that cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.failure: OSError | None = None  # the first one

    def write(self, text: str) -> int:
        """Writes the text, or drops it."""
        try:
            try:
                self.stream.write(text)
            except UnicodeEncodeError:
                encoding = self.stream.encoding
                self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except (OSError, ValueError) as error:  # a closed file is a ValueError
            self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered, or drops it."""
        try:
            self.stream.flush()
        except (OSError, ValueError) as error:
            self._fail(error)

    def _fail(self, error: OSError | ValueError) -> None:
        if self.failure is None:
            self.failure = error if isinstance(error, OSError) else OSError(errno.EBADF, str(error))
        with contextlib.suppress(OSError, ValueError):  # a stream without a file, or a closed one
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.stream.fileno())  # the buffer is written once more at the end
            os.close(null)

    @property
    def loss_reason(self) -> str:
        """The reason why text was lost; empty if none was, or if the reader stopped, as `head` does."""
        if self.failure is None or isinstance(self.failure, BrokenPipeError):
            return ""
        return os.strerror(self.failure.errno) if self.failure.errno else str(self.failure)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def open_standard_files() -> None:
    """Opens standard files that are closed: otherwise the next opened file would receive their output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number


@contextlib.contextmanager
def safe_output() -> Iterator[Output | None]:
    """Replaces standard output and error by an Output. Gives that of standard output, if there is one."""
    open_standard_files()
    before = sys.stdout, sys.stderr
    out, error = (None if stream is None else Output(stream) for stream in before)
    sys.stdout, sys.stderr = out, error
    try:
        yield out
    finally:
        for stream in (out, error):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before

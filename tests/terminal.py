"""A command in a pseudo-terminal, and the screen that it shows."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pyte

PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches it
from elites.cli import main
sys.exit(main())
"""
UNSET = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
CTRL_C = b"\x03"


class Terminal:
    """`elites` with these arguments, in a terminal of this size."""

    def __init__(self, *arguments, columns=100, lines=30, **environment):
        self.screen, self.written = pyte.Screen(columns, lines), b""
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        variables = {name: value for name, value in os.environ.items() if name not in UNSET}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**variables, "TERM": "xterm-256color", **environment},
        )
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def text(self):
        """The text on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def words(self):
        """The same, however its lines are broken."""
        return " ".join(self.text.split())

    def resize(self, columns, lines):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def type(self, keys):
        os.write(self._master, keys)

    def wait(self, condition, seconds=90):
        """Waits until something holds for the words on the screen. Returns them."""
        end = time.monotonic() + seconds
        while not condition(words := self.words):
            assert time.monotonic() < end, self.text
            assert self._read(), self.text
        return words

    def end(self, seconds=90):
        """Waits for the end. Returns the exit status."""
        end = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < end, self.text
        return self.process.wait(seconds)

    def _read(self):
        """Shows what was written in the last moment; False if nothing more will be."""
        if not select.select([self._master], [], [], 0.02)[0]:
            return True
        try:
            data = os.read(self._master, 2**16)
        except OSError:  # nobody has the terminal open any more
            return False
        self.written += data
        self._stream.feed(data)
        return True

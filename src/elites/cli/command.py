"""The interface of subcommands: dataclasses. Fields are options, docstrings are help texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Protocol

import tyro

INTERRUPTED = 130  # exit status
Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]  # without --no-…


class Command(Protocol):
    """A subcommand with its options."""

    def run(self) -> int:
        """Does the work. Returns the exit status."""


def read_first_line(documented: object) -> str:
    """The first line of a docstring."""
    return (documented.__doc__ or "").splitlines()[0]


def exit_at_once() -> None:
    """Ends the process immediately, as a second Ctrl-C should."""
    os.write(2, b"elites: interrupted\n")
    os._exit(INTERRUPTED)

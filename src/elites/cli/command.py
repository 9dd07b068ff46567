"""The interface of subcommands: dataclasses. Fields are options, docstrings are help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Protocol

import tyro

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]


class Command(Protocol):
    """A subcommand with its options."""

    def run(self) -> int:
        """Does the work. Returns the exit status."""


def first_line(documented: object) -> str:
    """The first line of a docstring."""
    return (documented.__doc__ or "").splitlines()[0]

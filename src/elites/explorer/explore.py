"""Writes the explorer's page."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from elites.errors import ElitesError
from elites.explorer.blocks import Blocks
from elites.explorer.content import colours_of, describe_run, operators_of, read_content
from elites.explorer.page import make_page
from elites.files import error_in_one_line, write_atomically

NAME = "explorer.html"
VERSION = 1
MOST_RUNS = 8


def explore(*folders: Path | str, out: Path | str | None = None) -> Path:
    """Writes one self-contained page that shows the archives of runs. Returns its path.

    Args:
        folders: folders of runs, or archives in files of their own.
        out: the page; by default `explorer.html` in the first folder.
    """
    if not 1 <= len(folders) <= MOST_RUNS:
        raise ElitesError(f"{len(folders)} runs were given; it must be from 1 to {MOST_RUNS}")
    paths = [Path(folder) for folder in folders]
    first = paths[0] if paths[0].is_dir() else paths[0].parent
    target = first / NAME if out is None else Path(out)
    if target.suffix not in (".html", ".htm"):
        raise ElitesError(f"out is {target}; it must end in .html")
    blocks = Blocks()
    contents = [read_content(path) for path in paths]
    for content in contents:
        if not len(content.archive.fitness):
            raise ElitesError(f"{content.path}: the archive is empty; it must have an elite")
    operators = operators_of(contents)
    runs = [describe_run(content, operators, blocks) for content in contents]
    title = " · ".join(f"{run['algorithm']} on {run['task']}" for run in runs)
    header = {"version": VERSION, "operators": colours_of(operators), "runs": runs}
    page = make_page(title, header, blocks.text())

    def write(file: IO[bytes]) -> None:
        file.write(page.encode())

    with error_in_one_line(f"cannot write {target}"):
        write_atomically(target, write)
    return target

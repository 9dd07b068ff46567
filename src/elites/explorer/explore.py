"""Writes the explorer's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from elites.errors import ElitesError
from elites.explorer.blocks import Blocks
from elites.explorer.content import Content, assign_colours, describe_run, list_operators, read_content
from elites.explorer.gaits import Gaits, describe_gaits
from elites.explorer.page import make_page
from elites.files import convert_os_errors, write_atomically
from elites.options import convert_value
from elites.results.folder import RunFolder

VERSION = 1
MAX_RUNS = 8


def explore(
    *folders: Path | str,
    out: Path | str | None = None,
    gaits: Gaits = "best",
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Writes one self-contained page that shows the archives of runs. Returns its path.

    Args:
        folders: folders of runs, or separate archive files.
        out: the page; by default `explorer.html` in the first folder.
        gaits: the elites with movements in the page: "none", "best" (the best elite of each region of
            descriptor space) or "all". A movement takes about 8 kB.
        on_progress: function that is called with the number of movements done and their total, run by run.
    """
    convert_value(Gaits, "gaits", gaits)
    paths = _paths(folders)
    first = paths[0] if paths[0].is_dir() else paths[0].parent
    target = RunFolder(first).explorer if out is None else Path(out)
    if target.suffix not in (".html", ".htm"):
        raise ElitesError(f"out is {target}; it must end in .html")
    contents = _read(paths)
    if not target.parent.is_dir():
        raise ElitesError(f"out is {target}; its folder must exist")
    page = make_text(contents, gaits, on_progress)

    def write(file: IO[bytes]) -> None:
        file.write(page.encode())

    with convert_os_errors(f"cannot write {target}"):
        write_atomically(target, write)
    return target


def serve(
    *folders: Path | str,
    gaits: Gaits = "best",
    port: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Serves the page to browsers on this machine until it is interrupted; it can evaluate elites again.

    `on_ready` is called with the address, which holds a random token. A `port` of 0 means any free port.
    """
    from elites.explorer.serve import Evaluations, Server

    convert_value(Gaits, "gaits", gaits)
    contents = _read(_paths(folders))
    evaluations = Evaluations(contents)
    with convert_os_errors(f"cannot listen on port {port}"):
        server = Server(make_text(contents, gaits, on_progress, served=True), evaluations, port)
    try:
        on_ready(server.address)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
        evaluations.close()


def _paths(folders: Sequence[Path | str]) -> list[Path]:
    if not 1 <= len(folders) <= MAX_RUNS:
        raise ElitesError(f"{len(folders)} runs were given; give 1 to {MAX_RUNS}")
    return [Path(folder) for folder in folders]


def _read(paths: list[Path]) -> list[Content]:
    contents = [read_content(path) for path in paths]
    for content in contents:
        if not len(content.archive.fitness):
            raise ElitesError(f"{content.path}: the archive is empty; it must have an elite")
    return contents


def make_text(
    contents: list[Content],
    gaits: Gaits,
    on_progress: Callable[[int, int], None] | None = None,
    *,
    served: bool = False,
) -> str:
    """The text of the page. A page that is `served` may send requests to its server."""
    blocks, operators = Blocks(), list_operators(contents)
    runs = [
        {
            **describe_run(content, operators, blocks),
            **_describe_movements(content, gaits, blocks, on_progress),
        }
        for content in contents
    ]
    title = " · ".join(f"{run['algorithm']} on {run['task']}" for run in runs)
    header = {"version": VERSION, "operators": assign_colours(operators), "runs": runs, "served": served}
    return make_page(title, header, blocks.text(), served=served)


def _describe_movements(
    content: Content, gaits: Gaits, blocks: Blocks, on_progress: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """The header's entries about movements; there are none if the task cannot be made here."""
    if content.record is None:
        return {
            "gaits": None,
            "no_movement_reason": "Movements need the folder of a run.",
        }
    from elites.explorer.clips import describe_clips
    from elites.tasks.gymnasium import GymnasiumTask
    from elites.tasks.in_memory import make_recorded_task

    record = content.record
    try:
        task = make_recorded_task(content.path, record.task, record.task_parameters)
    except ElitesError as error:
        return {"gaits": None, "no_movement_reason": f"This page has no movements: {error}"}
    if gaits != "none" and isinstance(task, GymnasiumTask) and content.archive.has_parameters:
        return {"gaits": None, **describe_clips(content, task, blocks, on_progress)}
    return describe_gaits(content, task, record.physics, gaits, blocks, on_progress)

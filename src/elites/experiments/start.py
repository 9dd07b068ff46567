"""The archive that a run begins with, in place of random genomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from elites.errors import ElitesError
from elites.genomes import make_genome
from elites.options import Range, check_parameters
from elites.policies import Policy
from elites.results.archive import SavedArchive, load_archive
from elites.results.folder import RunFolder
from elites.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Start:
    """The archive that a run begins with: its elites are evaluated again, with the run's own seeds."""

    archive: str  # folder of its run, or its file
    elites: Annotated[int, Range(1, 2**31 - 1)]
    digest: str  # of the elites


def resolve_start(start: Start | Mapping[str, Any] | str | Path | None) -> Start | None:
    """The Start that a user or a record gives. If it is a path, the archive there is read."""
    if start is None or isinstance(start, Start):
        return start
    if isinstance(start, Mapping):
        fields = check_parameters(Start, start, "start")
        if missing := [name for name in Start.__dataclass_fields__ if name not in fields]:
            raise ElitesError(
                f"start has no {missing[0]}; it must be a path, or have archive, elites, digest"
            )
        return Start(**fields)
    if not isinstance(start, str | Path):
        raise ElitesError(f"start is {start!r}; it must be the folder of a run, or the file of an archive")
    archive = _read(Path(start))
    if not len(archive.fitness):
        raise ElitesError(f"{start} has no elite to begin with: its archive is empty")
    return Start(archive=str(start), elites=len(archive.fitness), digest=archive.digest())


def read_start(start: Start, task: Task, hidden: tuple[int, ...], copy: Path | None = None) -> SavedArchive:
    """The archive of a start, from its copy if that exists; an error if it does not fit this run.

    `hidden` are the hidden units of the run's controllers.
    """
    path = copy if copy is not None and copy.exists() else Path(start.archive)
    archive = _read(path)
    if (len(archive.fitness), archive.digest()) != (start.elites, start.digest):
        raise ElitesError(f"{path} is not the archive that the run began with; it has changed since then")
    genome = make_genome(task, hidden)
    sizes = genome.sizes if isinstance(genome, Policy) else ()
    archived = tuple(int(size) for size in archive.policy_sizes)
    if archived != sizes or archive.parameters.shape[1] != genome.parameter_count:
        raise ElitesError(
            f"{path} has {_describe(archived, archive.parameters.shape[1])}; the run on {task.name} has "
            f"{_describe(sizes, genome.parameter_count)}" + _suggest_option(archived, sizes)
        )
    return archive


def _read(path: Path) -> SavedArchive:
    if path.is_file():
        archive = load_archive(path)
    else:
        RunFolder(path).read_record()  # its error says what the folder is instead
        archive = RunFolder(path).read_archive()
    archive.require_parameters(path)
    return archive


def _describe(sizes: tuple[int, ...], parameters: int) -> str:
    units = "-".join(map(str, sizes))
    return f"controllers of {units} units" if sizes else f"vectors of {parameters} numbers"


def _suggest_option(archived: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """Names the option that makes the run fit the archive, if there is one."""
    if len(archived) < 2 or not sizes or (archived[0], archived[-1]) != (sizes[0], sizes[-1]):
        return ""
    return f"; --hidden {' '.join(map(str, archived[1:-1]))} fits"

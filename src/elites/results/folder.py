"""The folder of a run, and that of a group of runs: paths, readers and writers of everything in it.

Reading needs nothing but the folder: neither the algorithm nor the task has to be installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from elites.errors import ElitesError
from elites.files import convert_os_errors, copy_file, is_partial, remove_partials, write_atomically
from elites.results import names
from elites.results.archive import SavedArchive, load_about, load_archive, save_archive
from elites.results.checkpoints import Checkpoints
from elites.results.corrected import CorrectedArchive, load_corrected, save_corrected
from elites.results.lineage import Lineage, load_lineage
from elites.results.members import Members, load_members, save_members
from elites.results.schemas import (
    CORRECTION,
    TIMING,
    GroupRecord,
    LoggerRecord,
    RunRecord,
    check_table,
    parse,
    read_record,
)
from elites.results.tables import read_table


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / names.CONFIG
        self.archive = self.path / names.ARCHIVE
        self.members = self.path / names.MEMBERS
        self.metrics = self.path / names.METRICS
        self.timings = self.path / names.TIMINGS
        self.corrections = self.path / names.CORRECTIONS
        self.lineage = self.path / names.LINEAGE
        self.explorer = self.path / names.EXPLORER
        self.checkpoints = Checkpoints(self.path / names.CHECKPOINTS)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        """Whether a run has been made here."""
        return self.config.exists()

    @property
    def has_begun(self) -> bool:
        """Whether the run has more than its record."""
        return self.exists and any(
            path != self.config and not is_partial(path) for path in self.path.iterdir()
        )

    def remove_partials(self) -> None:
        """Removes incomplete files that a killed process left in the folder itself."""
        remove_partials(self.path, below=False)

    def create_folder(self) -> None:
        make_folder(self.path)

    def create(self, record: dict[str, Any]) -> None:
        """Makes the folder and writes the run's record."""
        self.create_folder()
        write_json(self.config, record)

    def extend(self, evaluations: int) -> None:
        """Sets the budget in the run's record, atomically. Everything else stays as it is."""
        if self.read_record().evaluations != evaluations:
            write_json(self.config, {**parse(self.config.read_bytes()), "evaluations": evaluations})

    def read_record(self) -> RunRecord:
        """The record of the run: its settings and versions."""
        record = read_record(self.config, RunRecord)
        if record is None:
            if (self.path / names.GROUP).exists():
                raise ElitesError(
                    f"{self.path} holds a group of runs; name one, such as {self.path}/{names.seed_folder(0)}"
                )
            if GroupFolder(self.path).is_incomplete() and any(path.is_dir() for path in self.path.iterdir()):
                raise ElitesError(
                    f"{self.path} is the folder of a group that was killed before it began; the same "
                    "`elites run` command begins it again"
                )
            raise ElitesError(f"{self.path} holds no run: there is no {names.CONFIG} in it")
        return record

    @property
    def has_archive(self) -> bool:
        return self.archive.exists()

    def read_archive(self) -> SavedArchive:
        """The archive as of the last checkpoint, or of the end."""
        if not self.has_archive:
            raise ElitesError(f"{self.path} has no archive yet; it is written with the first checkpoint")
        return load_archive(self.archive)

    def evaluations(self) -> int:
        """Evaluations of the archive; 0 if there is none, or if it cannot be read."""
        if not self.has_archive:
            return 0
        try:
            return int(load_about(self.archive)["evaluations"])
        except ElitesError:
            return 0

    def refuse_folders(self) -> None:
        """Raises an error if a file that the run will write is a folder."""
        for path in (
            self.archive,
            self.members,
            self.corrected_path(),
            *(self.path / log for log in names.LOGS),
        ):
            if path.is_dir():
                raise ElitesError(f"{path} is a folder, not a file of the run; nothing was changed")

    def write_archive(self, archive: SavedArchive) -> None:
        save_archive(self.archive, archive)

    def snapshot_path(self, evaluations: int) -> Path:
        """The path of the archive after this number of evaluations."""
        return self.path / names.SNAPSHOTS / f"{evaluations:010d}.npz"

    def snapshots(self) -> list[int]:
        """The evaluations of all snapshots, in order."""
        paths = (self.path / names.SNAPSHOTS).glob("*.npz")
        return sorted(int(path.stem) for path in paths if re.fullmatch("[0-9]+", path.stem))

    def write_snapshot(self, evaluations: int, archive: SavedArchive) -> None:
        path = self.snapshot_path(evaluations)
        path.parent.mkdir(exist_ok=True)
        save_archive(path, archive)

    def read_snapshot(self, evaluations: int) -> SavedArchive:
        path = self.snapshot_path(evaluations)
        if not path.exists():
            present = ", ".join(map(str, self.snapshots()))
            hint = f"it has {present}" if present else "it kept none: see `elites run … --snapshots`"
            raise ElitesError(f"{self.path} has no snapshot {evaluations}; {hint}")
        return load_archive(path)

    def corrected_path(self, snapshot: int | None = None) -> Path:
        """The path of the corrected archive, or of that of a snapshot."""
        name = Path(names.CORRECTED)
        return self.path / (name if snapshot is None else f"{name.stem}-{snapshot:010d}{name.suffix}")

    @property
    def is_corrected(self) -> bool:
        return self.corrected_path().exists()

    def read_corrected(self) -> CorrectedArchive:
        return load_corrected(self.corrected_path())

    def read_correction(self) -> dict[str, Any]:
        """The settings of the correction; empty if there is none, or if it cannot be read."""
        try:
            return self.read_corrected().about
        except ElitesError:
            return {}

    def list_result_files(self, *, parameters: bool = True) -> Iterator[Path]:
        """The existing files of a run that its results are read from, the archive last.

        Checkpoints and figures are not included. Without `parameters`, the members of a deep grid, the log of
        lineages and TensorBoard's events are not included either.
        """
        logs = (self.metrics, self.timings, self.corrections)
        whole = (self.path / names.EVENTS, self.lineage, self.members) if parameters else ()
        along = self.snapshots()
        corrected = (self.corrected_path(), *map(self.corrected_path, along))
        paths = (self.config, *logs, *whole, *corrected, *map(self.snapshot_path, along), self.archive)
        return (path for path in paths if path.is_file())

    def copy_results(self, target: RunFolder, *, parameters: bool = True) -> None:
        """Copies the results into a new folder. Without `parameters`, archives are compressed and have no
        parameters of controllers."""
        target.create_folder()
        for path in self.list_result_files(parameters=parameters):
            copy = target.path / path.relative_to(self.path)
            copy.parent.mkdir(exist_ok=True)
            if parameters or path.suffix != self.archive.suffix:
                copy_file(path, copy)
            elif path.parent == self.path and path != self.archive:
                save_corrected(copy, load_corrected(path), compressed=True)
            else:
                save_archive(copy, load_archive(path).without_parameters(), compressed=True)

    def write_members(self, members: Members) -> None:
        save_members(self.members, members)

    def read_members(self) -> Members:
        return load_members(self.members)

    def read_metrics(self) -> dict[str, np.ndarray]:
        """The columns of `metrics.csv`."""
        table = read_table(self.metrics)
        check_table(self.metrics, table)
        return table

    def read_corrections(self) -> dict[str, np.ndarray] | None:
        """The columns of `corrections.csv`; None if the run was not corrected while it ran."""
        if not self.corrections.exists():
            return None
        table = read_table(self.corrections)
        check_table(self.corrections, table, CORRECTION)
        return table

    def read_lineage(self) -> Lineage | None:
        """All offspring that entered the archive; None if the run is of an older format."""
        return load_lineage(self.lineage) if self.lineage.exists() else None

    def read_elapsed(self) -> np.ndarray:
        """Seconds at the end of each generation in `timings.csv`; empty if there is none."""
        if not self.timings.exists():
            return np.empty(0)
        table = read_table(self.timings)
        check_table(self.timings, table, TIMING)
        return table["elapsed_s"]

    def read_loggers(self) -> dict[str, LoggerRecord]:
        """The additional loggers of the run, by name."""
        return read_record(self.path / names.LOGGERS, dict[str, LoggerRecord]) or {}

    def write_loggers(self, loggers: dict[str, LoggerRecord]) -> None:
        write_json(self.path / names.LOGGERS, msgspec.to_builtins(loggers))

    def figure_paths(self, colour: str = "fitness", ending: str = "png") -> dict[str, Path]:
        """The paths of all figures of the run, by name."""
        coloured = "" if colour == "fitness" else f"-{colour}"
        return {
            **{name: self.path / f"{name}.{ending}" for name in names.FIGURES},
            **{name: self.path / f"{name}{coloured}.{ending}" for name in names.COLOURED_FIGURES},
        }

    @property
    def home(self) -> str:
        """The name of the folder of its replications, in a study that of the algorithm."""
        parent = self.path.parent
        return parent.parent.name if parent.match(names.ADDED) else parent.name

    def clip_path(self, cell: int | None = None, grid: tuple[int, int] | None = None) -> Path:
        """The path of the clip of the best elite, of the elite of a cell, or of a grid of elites."""
        return self.path / names.clip_name(cell, grid)


class GroupFolder:
    """The folder of the replications of a run, with a folder for each of them."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.record = self.path / names.GROUP
        self.start = self.path / names.START
        self.checkpoints = Checkpoints(self.path / names.CHECKPOINTS)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        """Whether all replications have their records: the group's own is written last."""
        return self.record.exists()

    def complete_files(self) -> Iterator[Path]:
        """All files, except those that are being written."""
        return (path for path in self.path.rglob("*") if path.is_file() and not is_partial(path))

    def remove_partials(self) -> None:
        """Removes incomplete files that a killed process left here or in the replications."""
        remove_partials(self.path)

    def list_groups(self) -> list[GroupFolder]:
        """This group and those that were added to it later, as far as they exist."""
        added = sorted(path for path in self.path.glob(names.ADDED) if path.is_dir())
        return [group for group in (self, *map(GroupFolder, added)) if group.exists]

    def run_folder(self, seed: int) -> RunFolder:
        return RunFolder(self.path / names.seed_folder(seed))

    def create_folder(self) -> None:
        make_folder(self.path)

    def create(self, records: list[dict[str, Any]]) -> list[RunFolder]:
        """Makes a folder for each replication, then the group's record."""
        self.create_folder()
        runs = [self.run_folder(record["seed"]) for record in records]
        for run, record in zip(runs, records, strict=True):
            run.create(record)
        write_json(self.record, {"seeds": [record["seed"] for record in records]})
        return runs

    def runs(self) -> list[RunFolder]:
        """The folders of the replications."""
        return [self.run_folder(seed) for seed in self.seeds()]

    def seeds(self) -> list[int]:
        """The seeds of the replications."""
        record = read_record(self.record, GroupRecord)
        if record is None:
            raise ElitesError(f"{self.path} holds no group of runs: there is no {names.GROUP} in it")
        return record.seeds

    def is_incomplete(self) -> bool:
        """Whether a killed process left only records of replications, without that of the group."""
        if self.exists or not self.path.is_dir():
            return False
        return all(is_partial(path) or _is_unbegun(path) for path in self.path.iterdir())

    def clear_incomplete(self) -> None:
        """Removes the records of an incomplete group."""
        self.remove_partials()
        for folder in self.path.iterdir():
            RunFolder(folder).config.unlink(missing_ok=True)
            folder.rmdir()


def _is_unbegun(path: Path) -> bool:
    """Whether a path is the folder of a replication that contains only its record."""
    if path.is_symlink() or not path.is_dir() or not re.fullmatch(names.seed_folder(r"\d+"), path.name):
        return False
    return all(
        not entry.is_dir() and (entry.name == names.CONFIG or is_partial(entry)) for entry in path.iterdir()
    )


def find_run_folders(folder: Path) -> Iterator[RunFolder]:
    """All runs below a folder, in the order of their paths."""
    return (RunFolder(path.parent) for path in sorted(folder.rglob(names.CONFIG)))


def find_group(folder: Path) -> GroupFolder | None:
    """The group that a run's folder belongs to; None if it is not part of one."""
    group = GroupFolder(folder.resolve().parent)
    if group.exists and folder.resolve() in [run.path for run in group.runs()]:
        return group
    return None


def refuse_used_folder(folder: Path) -> None:
    """Raises an error if a folder is not free for a new run."""
    if (folder / names.CONFIG).exists():
        raise ElitesError(
            f"{folder} already holds a run: `elites resume {folder}` continues it; "
            "for a new run, choose an empty folder with --out"
        )
    if folder.is_dir() and any(not is_partial(path) for path in folder.iterdir()):
        raise ElitesError(f"{folder} is not empty; choose an empty folder with --out")


def make_folder(folder: Path) -> None:
    with convert_os_errors(f"cannot make the run's folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, record: Any) -> None:
    """Writes a record, atomically."""
    text = json.dumps(record, indent=2) + "\n"

    def write(file: IO[bytes]) -> None:
        file.write(text.encode())

    with convert_os_errors(f"cannot write to {path.parent}"):
        write_atomically(path, write)

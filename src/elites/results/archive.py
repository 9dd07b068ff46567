"""An archive in a file: plain arrays, and all that is needed to run an elite again."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elites.archives.archive import Archive
from elites.archives.cells import Cells
from elites.errors import ElitesError
from elites.files import read_arrays, write_arrays
from elites.metrics.metric import ArchiveMetrics, compute_archive_metrics, format_metrics
from elites.options import convert_value
from elites.policies.controller import Controller
from elites.results import schemas
from elites.results.names import ARCHIVE
from elites.results.notebook import DrawableArchive, make_columns, make_table

if TYPE_CHECKING:
    import pandas

VERSION = 1


@dataclass(frozen=True)
class Elite:
    """One elite of an archive, and its origin."""

    index: int  # position in the archive; 0 is the best elite
    cell: int
    fitness: float
    descriptor: tuple[float, ...]
    evaluation: int  # number of the evaluation that found this elite
    seed: int | tuple[int, ...]  # seed of that episode, or of all episodes if fitness is a mean
    generation: int
    operator: str
    parents: tuple[int, ...]  # evaluations of its parents; -1: none
    archive: SavedArchive = field(repr=False, compare=False)

    def policy(self) -> Controller:
        """Its controller: see `SavedArchive.policy`."""
        return self.archive.policy(self.index)


@dataclass(frozen=True)
class SavedArchive(DrawableArchive):
    """Elites `[n, …]`, best first. `about` says which run they come from.

    `archive[0]` is the best elite, `archive.at(cell=…)` that of a cell and `archive.at(descriptor=…)` the one
    nearest to a descriptor. A notebook shows the archive as a picture.
    """

    parameters: np.ndarray  # [n, 0] if they were left out
    fitness: np.ndarray
    descriptor: np.ndarray
    cell: np.ndarray
    evaluation: np.ndarray  # number of the evaluation that found the elite
    seed: np.ndarray  # of that episode
    generation: np.ndarray
    operator: np.ndarray  # names
    parents: np.ndarray  # evaluations of its parents; -1: none
    centroids: np.ndarray
    bounds: np.ndarray
    grid: np.ndarray
    policy_sizes: np.ndarray
    about: dict[str, Any]

    def __len__(self) -> int:
        return len(self.fitness)

    def __repr__(self) -> str:
        cells, metrics = len(self.centroids), format_metrics(self.metrics)
        return f"<{len(self)} elites in {cells} cells: {metrics}; {self.title}>"

    def __getitem__(self, index: int) -> Elite:
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index is {index}; the archive has {len(self)} elites")
        index %= len(self)
        seeds = tuple(np.atleast_1d(self.seed[index]).tolist())
        return Elite(
            index=index,
            cell=int(self.cell[index]),
            fitness=float(self.fitness[index]),
            descriptor=tuple(self.descriptor[index].tolist()),
            evaluation=int(self.evaluation[index]),
            seed=seeds[0] if len(seeds) == 1 else seeds,
            generation=int(self.generation[index]),
            operator=str(self.operator[index]),
            parents=tuple(np.atleast_1d(self.parents[index]).tolist()),
            archive=self,
        )

    def __iter__(self) -> Iterator[Elite]:
        return (self[index] for index in range(len(self)))

    def at(self, *, cell: int | None = None, descriptor: Sequence[float] | float | None = None) -> Elite:
        """The elite of a cell, or the one nearest to a descriptor."""
        if (cell is None) == (descriptor is None):
            raise ElitesError("at() takes either a cell or a descriptor")
        if not len(self):
            raise ElitesError("the archive is empty; it must have an elite")
        if cell is None:
            return self[self._nearest(tuple(np.atleast_1d(np.asarray(descriptor, float)).tolist()))]
        cell, cells = convert_value(int, "cell", cell), len(self.centroids)
        if not 0 <= cell < cells:
            raise ElitesError(f"cell is {cell}; it must be from 0 to {cells - 1}")
        elites = np.flatnonzero(self.cell == cell)
        if not len(elites):
            nearest = self.cell[self._distances(self.centroids[cell]).argmin()]
            raise ElitesError(f"cell {cell} is empty; the nearest cell with an elite is {nearest}")
        return self[elites[0]]

    def _nearest(self, descriptor: tuple[float, ...]) -> int:
        size = len(self.bounds)
        if len(descriptor) != size:
            raise ElitesError(f"descriptor is {descriptor}; it must be {size} number{'s' * (size > 1)}")
        within = (self.bounds[:, 0] <= descriptor) & (descriptor <= self.bounds[:, 1])
        if not within.all():
            ranges = ", ".join(f"{low:g} to {high:g}" for low, high in self.bounds)
            raise ElitesError(f"descriptor is {descriptor}; it must be within {ranges}")
        return int(self._distances(np.array(descriptor)).argmin())

    def _distances(self, descriptor: np.ndarray) -> np.ndarray:
        """The squared distance of each elite from a descriptor, in units of the bounds' ranges."""
        differences = (self.descriptor - descriptor) / np.diff(self.bounds, axis=1)[:, 0]
        return (differences**2).sum(1)  # type: ignore[no-any-return]

    def to_dataframe(self) -> pandas.DataFrame:
        """A row for each elite, best first, and a column for each dimension of the descriptor."""
        return make_table(
            {"cell": self.cell, "fitness": self.fitness},
            self.about["task"]["descriptor_names"],
            self.descriptor,
            {
                "evaluation": self.evaluation,
                **make_columns("seed", self.seed),
                "generation": self.generation,
                "operator": self.operator,
                **make_columns("parent", self.parents),
            },
        )

    @property
    def cells(self) -> Cells:
        return Cells(self.centroids, self.bounds, tuple(int(count) for count in self.grid))

    @property
    def metrics(self) -> ArchiveMetrics:
        return compute_archive_metrics(self.fitness, len(self.centroids), self.about["task"]["qd_offset"])

    def digest(self) -> str:
        """A hash of the elites: a correction records which archive it was made from."""
        if not self.has_parameters:
            return str(self.about["digest"])
        digest = hashlib.sha256()
        for array in (self.cell, self.fitness, self.descriptor, self.parameters):
            digest.update(array.tobytes())
        return digest.hexdigest()

    @property
    def has_parameters(self) -> bool:
        """Whether the archive has the parameters of the controllers."""
        return "digest" not in self.about

    def require_parameters(self, where: object) -> None:
        """Raises an error if the parameters were left out; `where` is the file or folder of the archive."""
        if not self.has_parameters:
            raise ElitesError(
                f"{where} has no parameters of controllers: they were left out when it was merged; "
                "the folder of the original run has them"
            )

    def without_parameters(self) -> SavedArchive:
        """The same elites without the parameters of their controllers, which take most of the space."""
        no_parameters = np.empty((len(self.fitness), 0), np.float32)
        return replace(self, parameters=no_parameters, about={**self.about, "digest": self.digest()})

    def save(self, path: Path | str) -> None:
        """Writes the archive as an npz file, for `elites.load_archive`."""
        save_archive(Path(path), self)

    def policy(self, elite: int = 0) -> Controller:
        """An elite's controller, from observations `[…, observation_size]` to actions within ±1."""
        self.require_parameters("the archive")
        if not len(self.policy_sizes):
            raise ElitesError(f"the elites of {self.about['task']['name']} are vectors, not controllers")
        return Controller(tuple(int(size) for size in self.policy_sizes), self.parameters[elite])


ARRAYS = tuple(name for name in SavedArchive.__dataclass_fields__ if name != "about")


def make_saved_archive(
    archive: Archive,
    cells: Cells,
    operators: tuple[str, ...],
    policy_sizes: tuple[int, ...],
    about: dict[str, Any],
) -> SavedArchive:
    """The filled cells, best first, copied out of an algorithm's state."""
    elites = archive.elites
    fitness = np.asarray(elites.fitness)
    cell = np.flatnonzero(fitness > -np.inf)
    cell = cell[np.argsort(-fitness[cell], kind="stable")]
    return SavedArchive(
        parameters=np.asarray(elites.parameters)[cell],
        fitness=fitness[cell],
        descriptor=np.asarray(elites.descriptor)[cell],
        cell=cell.astype(np.int32),
        evaluation=np.asarray(elites.origin.evaluation)[cell],
        seed=np.asarray(elites.origin.seed)[cell],
        generation=np.asarray(elites.origin.generation)[cell],
        operator=np.array(operators)[np.asarray(elites.origin.operator)[cell]],
        parents=np.asarray(elites.origin.parents)[cell],
        centroids=cells.centroids,
        bounds=cells.bounds,
        grid=np.array(cells.grid, np.int32),
        policy_sizes=np.array(policy_sizes, np.int32),
        about={"format": VERSION, **about},
    )


def save_archive(path: Path, archive: SavedArchive, *, compressed: bool = False) -> None:
    """Writes an `archive.npz`."""
    arrays = {name: getattr(archive, name) for name in ARRAYS}
    arrays["about"] = np.array(json.dumps(archive.about))
    write_arrays(path, arrays, compressed=compressed)


def load_archive(path: Path | str, *, parameters: bool = True) -> SavedArchive:
    """Reads an `archive.npz`, or the one in a run's folder; `parameters=False` skips the parameters."""
    path = Path(path)
    if path.is_dir():
        path /= ARCHIVE
    kinds = {name: kind for name, kind in schemas.ARCHIVE.items() if parameters or name != "parameters"}
    arrays = read_arrays(path, kinds, "an archive of elites")
    about = schemas.read_about(path, arrays.pop("about"), schemas.ArchiveAbout, VERSION)
    schemas.check_archive(path, arrays, about)
    if not parameters:
        arrays["parameters"] = np.empty((len(arrays["fitness"]), 0), np.float32)
    return SavedArchive(**arrays, about=about)


def load_about(path: Path) -> dict[str, Any]:
    """The `about` of an archive; its arrays are not read."""
    arrays = read_arrays(path, {"about": schemas.ARCHIVE["about"]}, "an archive of elites")
    return schemas.read_about(path, arrays["about"], schemas.ArchiveAbout, VERSION)


def load_fitness(path: Path) -> tuple[int, np.ndarray]:
    """The evaluations of an `archive.npz`, and the fitness of its elites; nothing else is read."""
    kinds = {name: schemas.ARCHIVE[name] for name in ("fitness", "about")}
    arrays = read_arrays(path, kinds, "an archive of elites")
    about = schemas.read_about(path, arrays["about"], schemas.ArchiveAbout, VERSION)
    return about["evaluations"], arrays["fitness"]

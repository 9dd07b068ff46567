"""An archive in a file: plain arrays, and all that is needed to run an elite again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elites.archives.archive import Archive
from elites.archives.cells import Cells
from elites.errors import ElitesError
from elites.files import read_arrays, write_arrays
from elites.metrics.archive import ArchiveMetrics, archive_metrics
from elites.results import schemas
from elites.results.names import ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1


@dataclass(frozen=True)
class SavedArchive:
    """Elites `[n, …]`, best first. `about` says which run they come from."""

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

    @property
    def cells(self) -> Cells:
        return Cells(self.centroids, self.bounds, tuple(int(count) for count in self.grid))

    @property
    def metrics(self) -> ArchiveMetrics:
        return archive_metrics(self.fitness, len(self.centroids), self.about["task"]["qd_offset"])

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
        """Whether the parameters of the controllers are there."""
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
        nothing = np.empty((len(self.fitness), 0), np.float32)
        return replace(self, parameters=nothing, about={**self.about, "digest": self.digest()})

    def save(self, path: Path | str) -> None:
        """Writes the archive as an npz file, for `elites.load_archive`."""
        save_archive(Path(path), self)

    def policy(self, elite: int = 0) -> Callable[[np.ndarray], np.ndarray]:
        """An elite's controller, from observations `[…, observation_size]` to actions."""
        import jax.numpy as jnp

        from elites.policies import Policy

        self.require_parameters("the archive")
        if not len(self.policy_sizes):
            raise ElitesError(f"the elites of {self.about['task']['name']} are vectors, not controllers")
        policy, parameters = Policy(tuple(int(size) for size in self.policy_sizes)), self.parameters[elite]
        return lambda observation: np.asarray(policy.apply(parameters, jnp.asarray(observation)))


ARRAYS = tuple(name for name in SavedArchive.__dataclass_fields__ if name != "about")


def saved_archive(
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
    """Reads an `archive.npz`, or the one in a run's folder; without `parameters`, all but those."""
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
    """What an archive says about itself; its arrays are not read."""
    arrays = read_arrays(path, {"about": schemas.ARCHIVE["about"]}, "an archive of elites")
    return schemas.read_about(path, arrays["about"], schemas.ArchiveAbout, VERSION)


def load_fitness(path: Path) -> tuple[int, np.ndarray]:
    """The evaluations of an `archive.npz`, and the fitness of its elites; nothing else is read."""
    kinds = {name: schemas.ARCHIVE[name] for name in ("fitness", "about")}
    arrays = read_arrays(path, kinds, "an archive of elites")
    about = schemas.read_about(path, arrays["about"], schemas.ArchiveAbout, VERSION)
    return about["evaluations"], arrays["fitness"]

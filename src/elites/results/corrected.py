"""A corrected archive in a file: every replication of every elite, their means and the metrics."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elites.errors import ElitesError
from elites.files import read_arrays, write_arrays
from elites.metrics.corrected import EliteSpread, average_replications, compute_loss, compute_spread
from elites.metrics.metric import METRICS, ArchiveMetrics, Elites, Losses, Metric, format_metrics
from elites.options import Physics
from elites.results import schemas
from elites.results.archive import SavedArchive
from elites.results.names import CORRECTED, UNFINISHED
from elites.results.notebook import DrawableArchive, make_table

if TYPE_CHECKING:
    import pandas

VERSION = 1
ROUNDING = "rounding, which depends on the batch under XLA and in a CUDA kernel"


@dataclass(frozen=True)
class CorrectedArchive(DrawableArchive):
    """Elites `[n, …]` in the order of their archive, best first. `about` says how they were re-evaluated.

    A notebook shows the corrected archive as a picture.
    """

    cell: np.ndarray
    original_fitness: np.ndarray
    original_descriptor: np.ndarray
    fitness: np.ndarray  # [n, N], of every replication
    descriptor: np.ndarray  # [n, N, d]
    mean_fitness: np.ndarray  # NaN if a replication is invalid
    mean_descriptor: np.ndarray
    mean_cell: np.ndarray  # of the mean descriptor; -1 if a replication is invalid
    kept: np.ndarray  # whether the elite is in the corrected archive
    centroids: np.ndarray
    bounds: np.ndarray
    grid: np.ndarray
    invalid: np.ndarray  # how many elites have a replication that is not finite
    summary: dict[str, np.ndarray]  # built-in metrics of the corrected archive, and losses, by column
    about: dict[str, Any]

    def __len__(self) -> int:
        return len(self.cell)

    def __repr__(self) -> str:
        return (
            f"<{int(self.kept.sum())} of {len(self)} elites after {self.about['replications']} replications: "
            f"{format_metrics(self.metrics)}; {self.title}>"
        )

    def to_dataframe(self) -> pandas.DataFrame:
        """A row for each elite of the original archive, with its mean descriptor and its spread."""
        spread = self.compute_spread()
        return make_table(
            {"cell": self.cell, "original_fitness": self.original_fitness},
            self.about["task"]["descriptor_names"],
            self.mean_descriptor,
            {
                "mean_fitness": self.mean_fitness,
                "mean_cell": self.mean_cell,
                "kept": self.kept,
                "fitness_deviation": spread.fitness,
                "descriptor_deviation": spread.descriptor,
                "share_in_own_cell": spread.own_cell,
            },
        )

    @property
    def metrics(self) -> ArchiveMetrics:
        """The metrics of the corrected archive."""
        return ArchiveMetrics(*(self._value(metric, metric.name) for metric in METRICS))

    @property
    def losses(self) -> Losses:
        """The loss of each metric, as a share of the original."""
        return Losses(*(self._value(metric, metric.loss.name) for metric in METRICS))

    def _value(self, metric: Metric, column: str) -> float:
        """A metric or its loss. A file of an older format does not have those that were added later."""
        if column in self.summary:
            return float(self.summary[column])
        _, after, lost = self.compare_metric(metric)
        return after if column == metric.name else lost

    @property
    def shows_rounding(self) -> bool:
        """Whether each elite's replications are all the same, but some differ from the recorded episode.

        Then the task has no noise: these episodes were rounded in another way, as in another batch under XLA.
        """
        if self.fitness.shape[1] < 2 or self.about["redraw"]:
            return False
        first = self.fitness[:, 0]
        same = np.repeat(first[:, None], self.fitness.shape[1], axis=1)
        repeated = np.array_equal(self.fitness, same, equal_nan=True)
        valid = ~np.isnan(first)
        return repeated and not np.allclose(first[valid], self.original_fitness[valid], rtol=1e-4)

    def is_correction_of(self, archive: SavedArchive) -> bool:
        """Whether it was made from this archive."""
        return bool(self.about["archive"] == archive.digest())

    def compare_metric(self, metric: Metric) -> tuple[float, float, float]:
        """A metric of the original archive, of the corrected one, and the loss."""
        cells, offset = len(self.centroids), float(self.about["task"]["qd_offset"])
        before = metric.compute_value(Elites(self.original_fitness, self.original_descriptor, cells, offset))
        kept = self.kept
        after = metric.compute_value(
            Elites(self.mean_fitness[kept], self.mean_descriptor[kept], cells, offset)
        )
        return before, after, compute_loss(before, after)

    def compute_spread(self) -> EliteSpread:
        """The spread of each elite's replications."""
        return compute_spread(
            self.cell,
            self.fitness,
            self.descriptor,
            self.centroids,
            grid=self.grid.tolist(),
            bounds=self.bounds,
        )


ARRAYS = tuple(name for name in CorrectedArchive.__dataclass_fields__ if name not in ("summary", "about"))


def make_corrected_archive(
    archive: SavedArchive, fitness: np.ndarray, descriptor: np.ndarray, about: dict[str, Any] | None = None
) -> CorrectedArchive:
    """The corrected archive, given fitness `[n, N]` and descriptors `[n, N, d]` of its replications.

    `about` describes how they were made: see `describe_correction`.
    """
    correction = average_replications(
        archive.fitness,
        archive.descriptor,
        archive.cell,
        fitness,
        descriptor,
        archive.centroids,
        archive.about["task"]["qd_offset"],
        grid=archive.grid.tolist(),
        bounds=archive.bounds,
    )
    return CorrectedArchive(
        cell=archive.cell,
        original_fitness=archive.fitness,
        original_descriptor=archive.descriptor,
        fitness=fitness,
        descriptor=descriptor,
        mean_fitness=correction.fitness,
        mean_descriptor=correction.descriptor,
        mean_cell=correction.cell,
        kept=correction.kept,
        centroids=archive.centroids,
        bounds=archive.bounds,
        grid=archive.grid,
        invalid=np.array(correction.invalid),
        summary={
            name: np.array(value)
            for metric, now, lost in zip(METRICS, correction.metrics, correction.losses, strict=True)
            for name, value in ((metric.name, now), (metric.loss.name, lost))
        },
        about={"format": VERSION, **(about or describe_correction(archive, fitness.shape[1]))},
    )


def describe_correction(
    archive: SavedArchive,
    replications: int,
    seed: int = 0,
    redraw: bool = False,
    physics: Physics | None = None,
) -> dict[str, Any]:
    """The inputs of a corrected archive. The same inputs give the same file."""
    return {
        "replications": replications,
        "seed": seed,
        "redraw": redraw,
        "physics": physics,
        "archive": archive.digest(),
        "algorithm": archive.about["algorithm"],
        "task": archive.about["task"],
        "run_seed": archive.about["seed"],
        "evaluations": archive.about["evaluations"],
    }


def save_corrected(path: Path, corrected: CorrectedArchive, *, compressed: bool = False) -> None:
    """Writes a `corrected.npz`."""
    arrays = {name: getattr(corrected, name) for name in ARRAYS} | corrected.summary
    arrays["about"] = np.array(json.dumps(corrected.about))
    write_arrays(path, arrays, compressed=compressed)


def load_corrected(path: Path | str) -> CorrectedArchive:
    """Reads a `corrected.npz`, or the one in a run's folder."""
    path = Path(path)
    if path.is_dir():
        path /= CORRECTED
    arrays = read_arrays(path, schemas.CORRECTED, "a corrected archive")
    about = schemas.read_about(path, arrays.pop("about"), schemas.CorrectedAbout, VERSION)
    schemas.check_corrected(path, arrays, about)
    summary = {name: arrays.pop(name) for name in schemas.SUMMARY}
    return CorrectedArchive(**arrays, summary=summary, about=about)


def load_corrected_metrics(path: Path) -> tuple[int, dict[str, float]]:
    """The evaluations of a corrected archive, and the metrics and losses in the file, by column.

    The elites are not read. `CorrectedArchive.compare_metric` computes any other metric from them.
    """
    kinds = {**schemas.SUMMARY, "about": schemas.CORRECTED["about"]}
    arrays = read_arrays(path, kinds, "a corrected archive")
    about = schemas.read_about(path, arrays.pop("about"), schemas.CorrectedAbout, VERSION)
    return about["evaluations"], {name: float(value) for name, value in arrays.items()}


def load_corrected_fitness(path: Path) -> tuple[int, np.ndarray]:
    """The evaluations of a `corrected.npz`, and the mean fitness of the elites in the corrected archive."""
    kinds = {name: schemas.CORRECTED[name] for name in ("mean_fitness", "kept", "about")}
    arrays = read_arrays(path, kinds, "a corrected archive")
    about = schemas.read_about(path, arrays["about"], schemas.CorrectedAbout, VERSION)
    return about["evaluations"], arrays["mean_fitness"][arrays["kept"]]


def save_unfinished(path: Path, about: dict[str, Any], fitness: np.ndarray, descriptor: np.ndarray) -> None:
    """Saves the finished elites of a correction in progress, next to `path`, its file when it is complete."""
    arrays = {"fitness": fitness, "descriptor": descriptor, "about": np.array(json.dumps(about))}
    write_arrays(_unfinished(path), arrays)


def load_unfinished(
    path: Path, about: dict[str, Any], shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The fitness and the descriptors of the elites that were finished with the same inputs; maybe of none.

    `shape` is that of all descriptors, `[n, N, d]`.
    """
    with contextlib.suppress(ElitesError):
        arrays = read_arrays(_unfinished(path), schemas.UNFINISHED, "an unfinished correction")
        done, *others = arrays["descriptor"].shape
        if done <= shape[0] and (*others,) == shape[1:] and str(arrays["about"]) == json.dumps(about):
            return arrays["fitness"], arrays["descriptor"]
    return np.empty((0, shape[1]), np.float32), np.empty((0, *shape[1:]), np.float32)


def remove_unfinished(path: Path) -> None:
    """Removes the file that a stopped correction left, if there is one."""
    unfinished = _unfinished(path)
    if not unfinished.is_dir():
        unfinished.unlink(missing_ok=True)


def _unfinished(path: Path) -> Path:
    return path.with_suffix(UNFINISHED)

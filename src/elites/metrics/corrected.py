"""The corrected archive: the archive after its elites are evaluated again. Plain arrays only.

The corrected archive contains the elites by their mean fitness and mean descriptor: in each cell the best
mean, the first one in case of a tie. An elite with a replication that is not finite is left out, and counted
as invalid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from elites.errors import ElitesError
from elites.metrics.metric import ArchiveMetrics, Losses, compute_archive_metrics


class Correction(NamedTuple):
    """The means of each elite's replications `[n, …]`, and the corrected archive."""

    fitness: np.ndarray  # the mean; NaN if a replication is invalid
    descriptor: np.ndarray
    cell: np.ndarray  # of the mean descriptor; -1 if a replication is invalid
    kept: np.ndarray  # whether it is an elite of the corrected archive
    metrics: ArchiveMetrics  # of the corrected archive
    losses: Losses
    invalid: int  # elites with a replication that is not finite


class EliteSpread(NamedTuple):
    """The spread of each elite's replications `[n]`; NaN if one is invalid."""

    fitness: np.ndarray  # standard deviation
    descriptor: np.ndarray  # root mean square distance from the mean descriptor, in ranges of the bounds
    own_cell: np.ndarray  # share in the elite's own cell; invalid replications are in none


def compute_loss(original: float, corrected: float) -> float:
    """(original - corrected) / |original|: positive is worse, whatever the sign of the original.

    For an original of 0 the loss is 0 if nothing changed, otherwise inf (worse) or -inf (better). It is NaN
    if either value is, such as the max-fitness of an empty archive.
    """
    if original == corrected:
        return 0.0
    if original == 0:
        return -math.copysign(math.inf, corrected)
    return (original - corrected) / abs(original)


def compute_losses(original: ArchiveMetrics, corrected: ArchiveMetrics) -> Losses:
    """The loss of each metric."""
    return Losses(*map(compute_loss, original, corrected))


def average_samples(samples: ArrayLike) -> np.ndarray:
    """The mean over axis 1, in double precision. It is within the samples' range; exact if all are equal."""
    samples = np.asarray(samples, np.float64)
    first = samples[:, :1]
    with np.errstate(invalid="ignore"):  # inf - inf: not finite either way
        means = first[:, 0] + (samples - first).mean(1)
    return np.clip(means, samples.min(1), samples.max(1))  # type: ignore[no-any-return]


def average_replications(
    fitness: ArrayLike,
    descriptor: ArrayLike,
    cell: ArrayLike,
    fitness_samples: ArrayLike,
    descriptor_samples: ArrayLike,
    centroids: ArrayLike,
    qd_offset: float,
    *,
    grid: Sequence[int] = (),
    bounds: ArrayLike | None = None,
) -> Correction:
    """The corrected archive.

    Args:
        fitness: fitness of the elites, `[n]`.
        descriptor: descriptors of the elites, `[n, d]`.
        cell: cells of the elites, `[n]`. An elite stays in it if its mean descriptor equals its descriptor.
        fitness_samples: fitness of their replications, `[n, N]`.
        descriptor_samples: descriptors of their replications, `[n, N, d]`.
        centroids: centroids of all cells, `[cells, d]`; a descriptor belongs to the nearest.
        qd_offset: fitness that adds nothing to the QD-score.
        grid: cells per dimension if they are a regular grid within `bounds`, the last dimension fastest.
        bounds: bounds of the descriptor, `[d, 2]`. Distances are relative to their ranges, 1 by default.
    """
    fitness, descriptor, cell = np.asarray(fitness, np.float64), np.asarray(descriptor), np.asarray(cell)
    samples, places = _check_shapes(cell, fitness_samples, descriptor_samples)
    if fitness.shape != cell.shape or descriptor.shape != places[:, 0].shape:
        raise ElitesError(
            f"{fitness.shape} fitnesses, {descriptor.shape} descriptors and {cell.shape} cells do not belong "
            f"to replications of shape {places.shape}"
        )
    means, centres = average_samples(samples), average_samples(places)
    valid = _finite(samples, places)
    means[~valid], centres[~valid] = np.nan, np.nan
    moved = valid & (centres != descriptor).any(-1)
    landed = np.where(valid, cell, -1).astype(np.int32)
    landed[moved] = _assign_cells(centres[moved], centroids, grid, bounds)
    kept = _best_of_each(landed, means)
    cells = len(np.asarray(centroids))
    metrics = compute_archive_metrics(means[kept], cells, qd_offset)
    lost = compute_losses(compute_archive_metrics(fitness, cells, qd_offset), metrics)
    return Correction(means, centres, landed, kept, metrics, lost, int(np.count_nonzero(~valid)))


def compute_spread(
    cell: ArrayLike,
    fitness_samples: ArrayLike,
    descriptor_samples: ArrayLike,
    centroids: ArrayLike,
    *,
    grid: Sequence[int] = (),
    bounds: ArrayLike | None = None,
) -> EliteSpread:
    """The spread of each elite's replications. The arguments are those of `average_replications`."""
    cell = np.asarray(cell)
    samples, places = _check_shapes(cell, fitness_samples, descriptor_samples)
    valid = _finite(samples, places)
    finite = np.isfinite(samples) & np.isfinite(places).all(-1)
    landed = np.full(samples.shape, -1)
    landed[finite] = _assign_cells(places[finite], centroids, grid, bounds)
    with np.errstate(invalid="ignore"):
        squares = average_samples((samples - average_samples(samples)[:, None]) ** 2)
        ranges = 1.0 if bounds is None else np.diff(np.asarray(bounds, np.float64), axis=1)[:, 0]
        distances = average_samples((((places - average_samples(places)[:, None]) / ranges) ** 2).sum(-1))
    squares[~valid], distances[~valid] = np.nan, np.nan
    return EliteSpread(np.sqrt(squares), np.sqrt(distances), (landed == cell[:, None]).mean(1))


def select_most_reproducible(spread: EliteSpread, count: int = 10) -> np.ndarray:
    """Elites that are most often in their own cell; in a tie, those with the least deviation of fitness."""
    order = np.lexsort((spread.fitness, -spread.own_cell))
    return order[np.isfinite(spread.fitness[order])][:count]  # type: ignore[no-any-return]


def select_luckiest(fitness: ArrayLike, mean_fitness: ArrayLike, count: int = 10) -> np.ndarray:
    """Elites with the largest difference between their fitness in the archive and their mean."""
    luck = np.asarray(fitness, np.float64) - np.asarray(mean_fitness)
    order = np.argsort(-luck, kind="stable")
    return order[luck[order] > 0][:count]  # type: ignore[no-any-return]


def _check_shapes(
    cell: np.ndarray, fitness_samples: ArrayLike, descriptor_samples: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    samples, places = np.asarray(fitness_samples, np.float64), np.asarray(descriptor_samples, np.float64)
    fits = samples.ndim == 2 and places.ndim == 3 and places.shape[:2] == samples.shape
    if not fits or cell.shape != samples.shape[:1] or not samples.shape[1]:
        raise ElitesError(
            f"replications have shapes {samples.shape} and {places.shape}; with {len(cell)} elites they must "
            f"be ({len(cell)}, N) and ({len(cell)}, N, d), N at least 1"
        )
    return samples, places


def _finite(samples: np.ndarray, places: np.ndarray) -> np.ndarray:
    finite: np.ndarray = np.isfinite(samples).all(1) & np.isfinite(places).all((1, 2))
    return finite


def _best_of_each(cell: np.ndarray, fitness: np.ndarray) -> np.ndarray:
    """Whether an elite is the best of its cell, or the first one in a tie. False if the cell is -1."""
    order = np.lexsort((np.arange(len(cell)), -fitness, cell))
    order = order[cell[order] >= 0]
    kept = np.zeros(len(cell), bool)
    kept[order[np.diff(cell[order], prepend=-1) > 0]] = True
    return kept


def _assign_cells(
    descriptor: np.ndarray, centroids: ArrayLike, grid: Sequence[int], bounds: ArrayLike | None
) -> np.ndarray:
    """The cells of descriptors, computed as in a run."""
    from elites.archives.cells import Cells

    if len(grid) and bounds is None:
        raise ElitesError("a grid needs its bounds")
    edges = np.tile([0.0, 1.0], (descriptor.shape[-1], 1)) if bounds is None else np.asarray(bounds)
    return Cells(np.asarray(centroids), edges, tuple(int(count) for count in grid)).assign_in_parts(
        descriptor
    )

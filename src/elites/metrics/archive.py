"""The metrics of an archive, from the fitness of its elites."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from elites.metrics.metric import METRICS, Elites


class ArchiveMetrics(NamedTuple):
    """The built-in metrics."""

    qd_score: float  # sum over elites of fitness above the offset; those below it count 0
    max_fitness: float  # NaN for an empty archive
    coverage: float  # share of cells that are filled


def archive_metrics(fitness: np.ndarray, cells: int, qd_offset: float) -> ArchiveMetrics:
    """The metrics of an archive with `cells` cells, from the fitness of its elites."""
    elites = Elites(np.asarray(fitness, np.float64), np.empty((len(fitness), 0)), cells, qd_offset)
    return ArchiveMetrics(*(metric.of(elites) for metric in METRICS))


def archive_profile(fitness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each fitness in ascending order, and the number of elites with at least that fitness."""
    levels, counts = np.unique(np.asarray(fitness, np.float64), return_counts=True)
    return levels, counts[::-1].cumsum()[::-1]


def summary(metrics: ArchiveMetrics, separator: str = " ") -> str:
    """All metrics in a line: label and value."""
    pairs = zip(METRICS, metrics, strict=True)
    return ", ".join(f"{metric.label}{separator}{metric.text(value)}" for metric, value in pairs)

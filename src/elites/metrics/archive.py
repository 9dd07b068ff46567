"""The metrics of an archive, from the fitness of its elites."""

from __future__ import annotations

import numpy as np

from elites.metrics.metric import METRICS, ArchiveMetrics, Elites


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

"""QD-score, max-fitness and coverage."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np


class ArchiveMetrics(NamedTuple):
    """What the paper plots."""

    qd_score: float  # sum over elites of fitness above the offset; those below it count 0
    max_fitness: float  # NaN for an empty archive
    coverage: float  # share of cells that are filled


def archive_metrics(fitness: np.ndarray, cells: int, qd_offset: float) -> ArchiveMetrics:
    """The metrics of an archive with `cells` cells, from its elites' fitness alone."""
    fitness = np.asarray(fitness, np.float64)
    return ArchiveMetrics(
        qd_score=math.fsum(np.maximum(fitness - qd_offset, 0)),  # exact: the order of elites does not matter
        max_fitness=float(fitness.max()) if fitness.size else float("nan"),
        coverage=fitness.size / cells,
    )

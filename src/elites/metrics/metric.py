"""The metrics of an archive: one entry each, from which columns, displays, tables and figures are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from elites.errors import ElitesError
from elites.imports import object_at


@dataclass(frozen=True)
class Elites:
    """What a metric is computed from: the elites of an archive `[n, …]`, and the archive's size."""

    fitness: np.ndarray
    descriptor: np.ndarray  # [n, d]
    cells: int
    qd_offset: float


@dataclass(frozen=True)
class Metric:
    """A number that describes an archive."""

    name: str  # of its column
    label: str  # on axes, in tables and displays
    format: str  # as in a format string: ",.0f"
    of: Callable[[Elites], float]

    def text(self, value: float) -> str:
        """The value as people read it."""
        return format(value, self.format)


def _qd_score(elites: Elites) -> float:
    above = np.maximum(np.asarray(elites.fitness, np.float64) - elites.qd_offset, 0)
    return math.fsum(above)  # exact: the order of elites does not matter


def _max_fitness(elites: Elites) -> float:
    return float(elites.fitness.max()) if elites.fitness.size else math.nan


def _coverage(elites: Elites) -> float:
    return elites.fitness.size / elites.cells


METRICS = (
    Metric("qd_score", "QD-score", ",.0f", _qd_score),  # an elite below the offset counts 0
    Metric("max_fitness", "max-fitness", ",.1f", _max_fitness),  # NaN for an empty archive
    Metric("coverage", "coverage", ".1%", _coverage),  # share of cells that are filled
)
PROGRESS = ("generation", "evaluations", "environment_steps", "gradient_steps")
COUNTS = ("invalid", "made_", "new_", "improved_")  # beginnings of the other columns of `metrics.csv`
BY_NAME = {metric.name: metric for metric in METRICS}


def archive_columns(columns: Iterable[str]) -> list[str]:
    """Those columns of `metrics.csv` that are metrics of the archive."""
    return [name for name in columns if name not in PROGRESS and not name.startswith(COUNTS)]


def metric_named(name: str) -> Metric:
    """The metric of a column. One that is not ours has its name as the label, and no function."""
    return BY_NAME.get(name) or Metric(name, name.replace("_", " "), ".4g", lambda elites: math.nan)


def load_metric(path: str) -> Metric:
    """The Metric at `module:metric`."""
    metric = object_at(path, "metric")
    if not isinstance(metric, Metric):
        raise ElitesError(f"metric {path!r} is not an elites.Metric")
    return metric

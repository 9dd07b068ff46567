"""The metrics of an archive. Columns, displays, tables and figures are generated from these entries."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from elites.errors import ElitesError, describe, require
from elites.imports import object_at
from elites.text import shortened

NAME = r"[\w./%-]{1,100}"  # of a column
LOSS, CORRECTED = "_loss", "corrected_"  # suffix and prefix of quantities derived from a metric


@dataclass(frozen=True)
class Elites:
    """The input of a metric: the elites of an archive `[n, …]`, and the archive's size."""

    fitness: np.ndarray
    descriptor: np.ndarray  # [n, d]
    cells: int
    qd_offset: float


@dataclass(frozen=True)
class Quantity:
    """A number with a name: a metric, its loss, or its corrected value."""

    name: str  # of its column
    label: str  # on axes, in tables and displays
    format: str  # format specification, such as ",.0f"

    def text(self, value: float) -> str:
        """The formatted value."""
        return format(value, self.format)

    @property
    def loss(self) -> Quantity:
        """The share that is lost in the correction."""
        return Quantity(f"{self.name}{LOSS}", f"{self.label} loss", ".1%")

    @property
    def corrected(self) -> Quantity:
        """Its value in the corrected archive."""
        return Quantity(f"{CORRECTED}{self.name}", f"corrected {self.label}", self.format)


@dataclass(frozen=True)
class Metric(Quantity):
    """A number that describes an archive."""

    of: Callable[[Elites], float]

    def value(self, elites: Elites) -> float:
        """The value of the metric for these elites; an error of one line if it cannot be computed."""
        try:
            number = self.of(elites)
            float(number)
        except (Exception, SystemExit) as error:
            raise ElitesError(f"metric {shortened(self.name)} failed: {describe(error)}") from error
        return number


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
BY_NAME = {metric.name: metric for metric in METRICS}


def metric_of(name: str, paths: Iterable[str] = ()) -> Quantity:
    """The metric with this column. `paths` are import paths of further ones: "my_module:my_metric".

    A metric with a module that is not installed has only its name.
    """
    further = {metric.name: metric for metric in installed_metrics(paths)}
    return BY_NAME.get(name) or further.get(name) or Quantity(name, name, ".4g")


def load_metric(path: str) -> Metric:
    """The Metric at `module:metric`."""
    metric = object_at(path, "metric")
    if not isinstance(metric, Metric):
        raise ElitesError(f"metric {path!r} is not an elites.Metric")
    named = isinstance(metric.name, str) and re.fullmatch(NAME, metric.name)
    require(
        bool(named), f"the name of metric {path!r}", repr(metric.name), "letters, digits and _ - . / or %"
    )
    try:
        metric.text(0.5)
    except (TypeError, ValueError) as error:
        raise ElitesError(f"metric {path!r} has the format {metric.format!r}: {describe(error)}") from None
    return metric


def installed_metrics(paths: Iterable[str]) -> list[Metric]:
    """The metrics at these import paths; those that cannot be imported are left out."""
    metrics = []
    for path in paths:
        with contextlib.suppress(ElitesError):
            metrics.append(load_metric(path))
    return metrics

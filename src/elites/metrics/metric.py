"""The metrics of archives and generations. Columns, displays, tables and figures come from these entries."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import numpy as np

from elites.errors import ElitesError, describe_error, require
from elites.imports import load_object
from elites.text import shorten

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
class GenerationResult:
    """The input of a metric of a generation: the archive after it, and what happened in it."""

    archive: Elites
    counts: Mapping[str, int]
    """The columns of `metrics.csv` that count, by name: `generation`, `evaluations`, `made_ga` and so on.
    Those of operators and `invalid` are about this generation, even if not every generation has a row."""
    training_steps: int  # of the critics, in this generation
    critic_loss: float  # sum over these steps
    critic_value: float  # sum over these steps
    greedy_episodes: int  # valid episodes of the trained actor
    greedy_fitness: float  # sum over these episodes

    def count_offspring(self, kind: Literal["made", "new", "improved"]) -> int:
        """Offspring of all operators: all, those in empty cells, or those in place of worse elites."""
        return sum(number for name, number in self.counts.items() if name.startswith(f"{kind}_"))


@dataclass(frozen=True)
class Quantity:
    """A number with a name: a metric, its loss, or its corrected value."""

    name: str  # of its column
    label: str  # on axes, in tables and displays
    format: str  # format specification, such as ",.0f"

    def format_value(self, value: float) -> str:
        """The formatted value."""
        return format(value, self.format)

    @property
    def loss(self) -> Quantity:
        """The share that is lost in the correction."""
        return Quantity(f"{self.name}{LOSS}", f"{self.label} loss", "z.1%")  # no -0.0%

    @property
    def corrected(self) -> Quantity:
        """Its value in the corrected archive."""
        return Quantity(f"{CORRECTED}{self.name}", f"corrected {self.label}", self.format)


@dataclass(frozen=True)
class Metric(Quantity):
    """A number that describes an archive."""

    compute: Callable[[Elites], float]

    def compute_value(self, elites: Elites) -> float:
        """The value of the metric for these elites; an error of one line if it cannot be computed."""
        number = _computed(self, elites)
        assert number is not None
        return number


@dataclass(frozen=True)
class GenerationMetric(Quantity):
    """A number that describes a generation."""

    compute: Callable[[GenerationResult], float | None]  # None is an empty cell: there is nothing to report

    def compute_value(self, result: GenerationResult) -> float | None:
        """The value of the metric for this generation; an error of one line if it cannot be computed."""
        return _computed(self, result)


def _computed(metric: Metric | GenerationMetric, data: Any) -> float | None:
    """A metric's value as a plain number: those of NumPy are written differently."""
    try:
        number = metric.compute(data)
        return None if number is None and isinstance(metric, GenerationMetric) else float(number)  # type: ignore[arg-type]
    except (Exception, SystemExit) as error:
        raise ElitesError(f"metric {shorten(metric.name)} failed: {describe_error(error)}") from error


def _qd_score(elites: Elites) -> float:
    above = np.maximum(np.asarray(elites.fitness, np.float64) - elites.qd_offset, 0)
    return math.fsum(above)  # exact: the order of elites does not matter


def _max_fitness(elites: Elites) -> float:
    return float(elites.fitness.max()) if elites.fitness.size else math.nan


def _coverage(elites: Elites) -> float:
    return elites.fitness.size / elites.cells


class ArchiveMetrics(NamedTuple):
    """The built-in metrics of an archive. A line here makes a column, a curve, a loss and so on."""

    qd_score: Annotated[float, "QD-score", ",.0f", _qd_score]
    """Sum over elites of fitness above the offset; elites below it count as 0."""
    max_fitness: Annotated[float, "max-fitness", ",.1f", _max_fitness]
    """NaN for an empty archive."""
    coverage: Annotated[float, "coverage", ".1%", _coverage]
    """Share of cells that are filled."""


class Losses(ArchiveMetrics):
    """The share of each built-in metric that is lost in the correction; see `elites.metrics.corrected`."""


METRICS: tuple[Metric, ...] = tuple(
    Metric(name, *kind.__metadata__)  # label, format and function
    for name, kind in get_type_hints(ArchiveMetrics, include_extras=True).items()
)


def compute_archive_metrics(fitness: np.ndarray, cells: int, qd_offset: float) -> ArchiveMetrics:
    """The metrics of an archive with `cells` cells, from the fitness of its elites."""
    elites = Elites(np.asarray(fitness, np.float64), np.empty((len(fitness), 0)), cells, qd_offset)
    return ArchiveMetrics(*(metric.compute(elites) for metric in METRICS))


def compute_archive_profile(fitness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each fitness in ascending order, and the number of elites with at least that fitness."""
    levels, counts = np.unique(np.asarray(fitness, np.float64), return_counts=True)
    return levels, counts[::-1].cumsum()[::-1]


def format_metrics(metrics: ArchiveMetrics, separator: str = " ") -> str:
    """All metrics in a line: label and value."""
    pairs = zip(METRICS, metrics, strict=True)
    return ", ".join(f"{metric.label}{separator}{metric.format_value(value)}" for metric, value in pairs)


def _mean_fitness(result: GenerationResult) -> float | None:
    fitness = np.asarray(result.archive.fitness, np.float64)
    return _mean(float(fitness.sum()), len(fitness))


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


GENERATION_METRICS = (
    GenerationMetric("mean_fitness", "mean fitness", ",.1f", _mean_fitness),  # of the archive's elites
    GenerationMetric(
        "critic_loss",
        "critic loss",
        ".4g",
        lambda result: _mean(result.critic_loss, result.training_steps),
    ),
    GenerationMetric(
        "mean_q", "mean Q", ",.1f", lambda result: _mean(result.critic_value, result.training_steps)
    ),
    GenerationMetric(
        "greedy_fitness",
        "fitness of the greedy actor",
        ",.1f",
        lambda result: _mean(result.greedy_fitness, result.greedy_episodes),
    ),
)
_BUILT_IN: tuple[Metric | GenerationMetric, ...] = (*METRICS, *GENERATION_METRICS)
BY_NAME = {metric.name: metric for metric in _BUILT_IN}


class Metrics(NamedTuple):
    """All metrics of a run: the built-in ones, then its own."""

    archive: tuple[Metric, ...] = METRICS
    generation: tuple[GenerationMetric, ...] = GENERATION_METRICS

    @property
    def shown(self) -> tuple[Metric | GenerationMetric, ...]:
        """Those that displays show: the archive's, and the run's own."""
        return (*self.archive, *(metric for metric in self.generation if metric.name not in BY_NAME))

    @property
    def has_own(self) -> bool:
        """Whether some are the run's own."""
        return any(metric.name not in BY_NAME for metric in (*self.archive, *self.generation))


def find_metric(name: str, paths: Iterable[str] = ()) -> Quantity:
    """The metric with this column. `paths` are import paths of further ones: "my_module:my_metric".

    A metric with a module that is not installed has only its name.
    """
    further = {metric.name: metric for metric in installed_metrics(paths)[0]}
    return BY_NAME.get(name) or further.get(name) or Quantity(name, name, ".4g")


def load_metric(path: str) -> Metric | GenerationMetric:
    """The metric at `module:metric`."""
    metric = load_object(path, "metric")
    if not isinstance(metric, Metric | GenerationMetric):
        raise ElitesError(f"metric {path!r} is not an elites.Metric or elites.GenerationMetric")
    named = isinstance(metric.name, str) and re.fullmatch(NAME, metric.name)
    require(
        bool(named), f"the name of metric {path!r}", repr(metric.name), "letters, digits and _ - . / or %"
    )
    try:
        metric.format_value(0.5)
    except (TypeError, ValueError) as error:
        raise ElitesError(
            f"metric {path!r} has the format {metric.format!r}: {describe_error(error)}"
        ) from None
    return metric


def installed_metrics(paths: Iterable[str]) -> tuple[list[Metric | GenerationMetric], list[str]]:
    """The metrics at these import paths, and why others cannot be imported."""
    metrics, problems = [], []
    for path in paths:
        try:
            metrics.append(load_metric(path))
        except ElitesError as error:
            problems.append(str(error))
    return metrics, problems


def load_archive_metrics(paths: Iterable[str]) -> list[Metric]:
    """The metrics of an archive, for which losses are reported: the built-in ones, and those at these import
    paths."""
    own = (metric for metric in installed_metrics(paths)[0] if isinstance(metric, Metric))
    return [*METRICS, *own]


def describe_values(values: Mapping[str, float | None], paths: Iterable[str] = ()) -> str:
    """Label and value of metrics in a line, by the names of their columns. None is left out.

    `paths` are those of the run's own metrics.
    """
    metrics = ((find_metric(name, paths), value) for name, value in values.items() if value is not None)
    return ", ".join(f"{shorten(metric.label)} {metric.format_value(value)}" for metric, value in metrics)

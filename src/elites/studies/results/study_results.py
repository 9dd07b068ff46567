"""The results of a study: the curves of its runs on a common scale, final values, losses, contributions."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import numpy as np

from elites.errors import ElitesError
from elites.metrics.corrected import compute_loss
from elites.metrics.metric import BY_NAME, METRICS, Quantity
from elites.results.archive import load_fitness
from elites.results.corrected import load_corrected_fitness
from elites.results.folder import RunFolder
from elites.results.schemas import StudyRecord
from elites.studies.results.runs import Run

POINTS = 200  # of a curve
QD_SCORE = BY_NAME["qd_score"]
POOLED = (QD_SCORE.name, QD_SCORE.corrected.name, QD_SCORE.loss.name)  # quantities that depend on the offset


class ComparisonBasis(Enum):
    """The evaluations at which the runs of a task are compared, and the offset of their QD-scores."""

    ENDS = "each at its own end"
    COMMON = "all at the most evaluations that every one has reached"
    POOLED = "each at its own end, QD-scores above the lowest fitness of all archives of the task"


@dataclass(frozen=True)
class RunValues:
    """The values of a run after this number of evaluations; NaN before its first generation."""

    evaluations: int
    values: dict[str, float]  # metrics
    rates: dict[str, tuple[float, float]]  # share of an operator's offspring that was added, early and late


@dataclass(frozen=True)
class Curves:
    """A run at evenly spaced evaluations up to the last of its task; NaN before and after its own."""

    run: Run
    evaluations: int  # in its log
    steps: int  # of environments, there
    seconds: float  # of wall time; replications that train together have the time of all. NaN: not known
    archived: int  # evaluations of its archive, which may differ from the last row; 0 if never corrected
    values: dict[str, np.ndarray]  # metrics, environment_steps and elapsed_s
    added: dict[str, np.ndarray]  # offspring added per generation, smoothed, by operator
    window: int  # generations of the smoothing
    corrections: dict[str, np.ndarray]
    end: RunValues  # at its own end, or at the smallest budget of the runs of its task
    common: RunValues  # at the most evaluations that all runs of its task have reached
    across_tasks: tuple[RunValues, RunValues] | None  # the same two, if its task is compared with another


@dataclass(frozen=True)
class StudyResults:
    """The results of all runs, without the archives."""

    folder: Path
    record: StudyRecord  # empty for other folders than a study's
    runs: list[Curves]
    budgets: dict[str, int]  # the largest that all runs of a task have reached
    limits: dict[str, int]  # the largest at which a run of a task is compared; curves go up to it
    metrics: tuple[Quantity, ...]  # those of every run first
    tasks: list[str]
    variants: list[str]
    notes: tuple[str, ...]  # on runs and files that are left out, and on what is compared
    basis: ComparisonBasis = ComparisonBasis.ENDS
    pooled: Mapping[Path, Mapping[str, float]] = field(default_factory=dict)  # of POOLED, by run

    @functools.cached_property
    def at_common_budget(self) -> StudyResults:
        """The same results, with all runs of a task compared after the same evaluations."""
        return replace(self, basis=ComparisonBasis.COMMON)

    @functools.cached_property
    def with_pooled_offset(self) -> StudyResults:
        """The same results, with the lowest fitness of a task's archives as the offset of QD-scores."""
        scores = compute_pooled_scores((curves, self.correction(curves)) for curves in self.runs)
        return replace(self, basis=ComparisonBasis.POOLED, pooled=scores)

    @property
    def tasks_without_common_budget(self) -> list[str]:
        """The tasks with runs that are not compared at the common budget."""
        return [task for task in self.tasks if self.budgets[task] < self.limits[task]]

    @property
    def reevaluated(self) -> tuple[Quantity, ...]:
        """The metrics that corrections have: those of every run, and others where a run has their values."""

        def is_corrected(metric: Quantity) -> bool:
            values = (curves.corrections[metric.corrected.name] for curves in self.runs)
            return any(not np.isnan(column).all() for column in values)

        return tuple(metric for metric in self.metrics if metric in METRICS or is_corrected(metric))

    @property
    def corrected_metrics(self) -> tuple[Quantity, ...]:
        return tuple(metric.corrected for metric in self.reevaluated)

    @property
    def losses(self) -> tuple[Quantity, ...]:
        return tuple(metric.loss for metric in self.reevaluated)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Everything that has final values."""
        return (*self.metrics, *self.corrected_metrics, *self.losses)

    def replications(self, task: str, variant: str) -> list[Curves]:
        """The replications of an algorithm on a task."""
        return self._by_combination.get((task, variant), [])

    @functools.cached_property
    def _by_combination(self) -> dict[tuple[str, str], list[Curves]]:
        combinations: dict[tuple[str, str], list[Curves]] = {}
        for curves in self.runs:
            combinations.setdefault((curves.run.task, curves.run.variant), []).append(curves)
        return combinations

    def grid(self, task: str) -> np.ndarray:
        """Evaluations of the points of curves."""
        return np.linspace(0, self.limits[task], POINTS + 1)[1:]

    def compared_values(self, curves: Curves) -> RunValues:
        """The values of a run that are compared."""
        return curves.common if self.basis is ComparisonBasis.COMMON else curves.end

    def finals(self, task: str, variant: str, name: str) -> np.ndarray:
        """The compared value of a quantity for each replication, NaN where a run does not have it.

        With the pooled offset, a QD-score is NaN if the elites are not known.
        """
        rows: list[tuple[Curves, Mapping[str, float]]]
        if any(name == metric.name for metric in self.metrics):
            rows = [
                (curves, self.compared_values(curves).values) for curves in self.replications(task, variant)
            ]
        else:
            corrections = [(curves, self.correction(curves)) for curves in self.replications(task, variant)]
            rows = [(curves, values) for curves, values in corrections if values]
        if self.basis is ComparisonBasis.POOLED and name in POOLED:
            return np.array([self._find_pooled_value(curves, name) for curves, _ in rows])
        return np.array([values[name] for _, values in rows])

    def qd_score_across_tasks(self, curves: Curves) -> float:
        """A run's QD-score in comparisons of tasks with each other; NaN if it is not part of any."""
        if curves.across_tasks is None:
            return np.nan
        end, common = curves.across_tasks
        if self.basis is ComparisonBasis.POOLED:
            at_end = end.evaluations == curves.end.evaluations
            return self._find_pooled_value(curves, "qd_score") if at_end else np.nan
        return (common if self.basis is ComparisonBasis.COMMON else end).values["qd_score"]

    def _find_pooled_value(self, curves: Curves, name: str) -> float:
        return self.pooled.get(curves.run.folder.path, {}).get(name, np.nan)

    def correction(self, curves: Curves) -> dict[str, float]:
        """The last correction within the evaluations that are compared, else the first after; {} if none.

        A correction older than both the archive and these evaluations does not count: see `is_outdated`.
        """
        budget = self.compared_values(curves).evaluations
        if not len(curves.corrections["evaluations"]) or is_outdated(curves, budget):
            return {}
        row = find_correction_row(curves, budget)
        return {name: float(values[row]) for name, values in curves.corrections.items()}

    @property
    def has_corrections(self) -> bool:
        return any(self.correction(curves) for curves in self.runs)


def is_outdated(curves: Curves, budget: int) -> bool:
    """Whether a run has gone on since its last correction, so that its end was never corrected.

    If runs are compared before the end of this one, a correction at that point or later counts.
    """
    return bool(curves.corrections["evaluations"][-1] < min(curves.archived, budget))


def find_correction_row(curves: Curves, budget: int) -> int:
    """The row of the correction that counts: the last within the budget, else the first after it."""
    within = np.flatnonzero(curves.corrections["evaluations"] <= budget)
    return int(within[-1]) if len(within) else 0


def compute_pooled_scores(
    runs: Iterable[tuple[Curves, Mapping[str, float]]],
) -> dict[Path, dict[str, float]]:
    """The quantities `POOLED` of each run, given with its correction.

    QD-scores are measured above the lowest fitness of all final archives of a task, the corrected ones among
    them, as the paper's authors did. That fitness depends on which runs are compared, so these scores only
    show whether a result depends on the offset. If the elites of a run are not known at the compared
    evaluations, no run of its task is included: the lowest fitness is then not known either.
    """
    tasks: dict[str, dict[Path, list[np.ndarray] | None]] = {}
    for curves, correction in runs:
        known = tasks.setdefault(curves.run.task, {})
        if all(fitness is not None for fitness in known.values()):  # else it is not known anyway
            place = curves.end.evaluations
            known[curves.run.folder.path] = _read_fitness(curves.run.folder, place, bool(correction))
    scores: dict[Path, dict[str, float]] = {}
    for known in tasks.values():
        archives = [fitness for pair in known.values() for fitness in pair or ()]
        if all(pair is not None for pair in known.values()):
            lowest = min((float(fitness.min()) for fitness in archives if len(fitness)), default=0.0)
            scores |= {path: _compute_scores(pair or [], lowest) for path, pair in known.items()}
    return scores


def _compute_scores(archives: list[np.ndarray], offset: float) -> dict[str, float]:
    """The QD-score of an archive and, if it was corrected, those of the correction."""
    before, *after = (math.fsum(fitness - offset) for fitness in archives)
    if not after:
        return {QD_SCORE.name: before}
    return dict(zip(POOLED, (before, after[0], compute_loss(before, after[0])), strict=True))


def _read_fitness(folder: RunFolder, evaluations: int, corrected: bool) -> list[np.ndarray] | None:
    """The fitness of the elites after these evaluations, and of the corrected ones; None if not known."""
    try:
        loaded = [load_fitness(folder.archive)]
        if corrected:
            loaded.append(load_corrected_fitness(folder.corrected_path()))
        archives = [np.asarray(fitness, np.float64).ravel() for _, fitness in loaded]
    except (ElitesError, IndexError, ValueError, TypeError):
        return None
    whole = all(np.isfinite(fitness).all() for fitness in archives)
    return archives if whole and all(at == evaluations for at, _ in loaded) else None

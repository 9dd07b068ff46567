"""The results of a study: the curves of its runs on a common scale, final values, losses, contributions."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elites.errors import ElitesError
from elites.metrics.contribution import count_added, count_rows, smooth, window
from elites.metrics.metric import METRICS, Quantity, find_metric
from elites.results.folder import RunFolder
from elites.results.schemas import RunRecord, StudyRecord
from elites.results.tables import metric_names
from elites.studies.merge.logs import MetricsTable, read_corrections, read_last_row, read_log
from elites.studies.merge.pooled import POOLED, pooled_scores
from elites.studies.merge.runs import Run, describe_differences, differences, find_runs, has_usual_task

POINTS = 200  # of a curve
EARLY, LATE = 0.1, 0.5  # the first tenth and the last half of a run


class Basis(Enum):
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
    basis: Basis = Basis.ENDS
    pooled: Mapping[Path, Mapping[str, float]] = field(default_factory=dict)  # of Basis.POOLED, by run

    @functools.cached_property
    def at_common_budget(self) -> StudyResults:
        """The same results, with all runs of a task compared after the same evaluations."""
        return replace(self, basis=Basis.COMMON)

    @functools.cached_property
    def with_pooled_offset(self) -> StudyResults:
        """The same results, with the lowest fitness of a task's archives as the offset of QD-scores."""
        scores = pooled_scores((curves, self.correction(curves)) for curves in self.runs)
        return replace(self, basis=Basis.POOLED, pooled=scores)

    @property
    def without_common_budget(self) -> list[str]:
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
        return self._by_cell.get((task, variant), [])

    @functools.cached_property
    def _by_cell(self) -> dict[tuple[str, str], list[Curves]]:
        cells: dict[tuple[str, str], list[Curves]] = {}
        for curves in self.runs:
            cells.setdefault((curves.run.task, curves.run.variant), []).append(curves)
        return cells

    def grid(self, task: str) -> np.ndarray:
        """Evaluations of the points of curves."""
        return np.linspace(0, self.limits[task], POINTS + 1)[1:]

    def compared_values(self, curves: Curves) -> RunValues:
        """The values of a run that are compared."""
        return curves.common if self.basis is Basis.COMMON else curves.end

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
        if self.basis is Basis.POOLED and name in POOLED:
            return np.array([self._pooled(curves, name) for curves, _ in rows])
        return np.array([values[name] for _, values in rows])

    def qd_score_across_tasks(self, curves: Curves) -> float:
        """A run's QD-score in comparisons of tasks with each other; NaN if it is not part of any."""
        if curves.across_tasks is None:
            return np.nan
        end, common = curves.across_tasks
        if self.basis is Basis.POOLED:
            at_end = end.evaluations == curves.end.evaluations
            return self._pooled(curves, "qd_score") if at_end else np.nan
        return (common if self.basis is Basis.COMMON else end).values["qd_score"]

    def _pooled(self, curves: Curves, name: str) -> float:
        return self.pooled.get(curves.run.folder.path, {}).get(name, np.nan)

    def correction(self, curves: Curves) -> dict[str, float]:
        """The last correction within the evaluations that are compared, else the first after; {} if none.

        A correction older than both the archive and these evaluations does not count: see `is_outdated`.
        """
        budget = self.compared_values(curves).evaluations
        if not len(curves.corrections["evaluations"]) or is_outdated(curves, budget):
            return {}
        row = _correction_row(curves, budget)
        return {name: float(values[row]) for name, values in curves.corrections.items()}

    @property
    def has_corrections(self) -> bool:
        return any(self.correction(curves) for curves in self.runs)


def read_study(folder: Path, table: Path, compared_tasks: Sequence[tuple[str, ...]] = ()) -> StudyResults:
    """Reads all runs below a folder, each log once, and writes them into the Parquet file `table`.

    `compared_tasks`: tasks that are compared with each other, with their default parameters. See
    `Curves.across_tasks`.
    """
    candidates, record, notes = find_runs(folder)
    last: dict[Path, int] = {}
    columns: dict[Path, list[str]] = {}
    for run in candidates:
        try:
            names, row = read_last_row(run.folder.metrics)
        except ElitesError as error:
            notes.append(f"{run.name} is left out: {error}")
            continue
        if row:
            last[run.folder.path], columns[run.folder.path] = int(row["evaluations"]), names
        else:
            notes.append(f"{run.name} is left out: no generation has been logged")
    runs = [run for run in candidates if run.folder.path in last]
    if not runs:
        raise ElitesError(f"{folder} holds no run with a logged generation")
    while runs:
        compared = _compared_evaluations(runs, last, compared_tasks)
        names = list(dict.fromkeys(name for run in runs for name in columns[run.folder.path]))
        metrics = _metrics(runs, names)
        with MetricsTable(table, names, metrics) as written:
            curves, failed, damaged = _read_curves(runs, compared, metrics, written)
        notes += [f"{run.name} is left out: {error}" for run, error in failed]
        runs = [curve.run for curve in curves]
        if not failed or _compared_evaluations(runs, last, compared_tasks) == {
            run.folder.path: compared[run.folder.path] for run in runs
        }:
            break  # else a run that is now left out has determined them
    if not curves:
        raise ElitesError(f"{folder} holds no run that can be read")
    tasks = list(dict.fromkeys(c.run.task for c in curves))
    variants = [name for _, name in sorted({(c.run.order, c.run.variant) for c in curves})]
    budgets = {c.run.task: c.common.evaluations for c in curves}
    limits = {task: max(c.end.evaluations for c in curves if c.run.task == task) for task in tasks}
    notes += [*_making_notes(curves), *damaged, *_budget_notes(curves, budgets)]
    return StudyResults(folder, record, curves, budgets, limits, metrics, tasks, variants, tuple(notes))


def _metrics(runs: Sequence[Run], columns: Sequence[str]) -> tuple[Quantity, ...]:
    """The metrics that every run has, then those that only some runs have."""
    paths = list(dict.fromkeys(path for run in runs for path in run.record.metrics))
    names = dict.fromkeys([*(metric.name for metric in METRICS), *metric_names(columns)])
    return tuple(find_metric(name, paths) for name in names)


class ComparedEvaluations(NamedTuple):
    """The evaluations at which a run is compared."""

    end: int
    common: int
    limit: int  # where the curves of its task end
    across_tasks: tuple[int, int] | None  # end and common


def _compared_evaluations(
    runs: Sequence[Run], last: Mapping[Path, int], compared_tasks: Sequence[tuple[str, ...]]
) -> dict[Path, ComparedEvaluations]:
    """The evaluations at which each run is compared.

    Runs with different budgets are compared within the smallest one. A run that was stopped early is compared
    at its own end; the common budget of its task is the end of the shortest run.
    """

    def ends(chosen: Sequence[Run]) -> dict[Path, int]:
        planned = min((run.record.evaluations for run in chosen), default=0)
        return {run.folder.path: min(planned, last[run.folder.path]) for run in chosen}

    across: dict[Path, tuple[int, int]] = {}
    for tasks in compared_tasks:
        chosen = [run for run in runs if run.record.task in tasks and has_usual_task(run)]
        if len({run.task for run in chosen}) > 1:
            ended = ends(chosen)
            across |= {path: (end, min(ended.values())) for path, end in ended.items()}
    compared = {}
    for task in {run.task for run in runs}:
        own = ends([run for run in runs if run.task == task])
        for path, end in own.items():
            compared[path] = ComparedEvaluations(end, min(own.values()), max(own.values()), across.get(path))
    return compared


def _read_curves(
    runs: Sequence[Run],
    compared: Mapping[Path, ComparedEvaluations],
    metrics: Sequence[Quantity],
    table: MetricsTable,
) -> tuple[list[Curves], list[tuple[Run, str]], list[str]]:
    """The curves of runs; the runs that cannot be read, with the reason; and notes on parts of the others."""
    curves: list[Curves] = []
    failed: list[tuple[Run, str]] = []
    notes: list[str] = []
    for run in runs:
        try:
            log = read_log(run.folder)
        except ElitesError as error:
            failed.append((run, str(error)))
            continue
        corrections, errors = read_corrections(run.folder, metrics)
        notes += [f"Corrections of {run.name} are left out: {error}" for error in errors]
        try:
            log["elapsed_s"] = _read_elapsed(run.folder, len(log["generation"]))
        except ElitesError as error:
            log["elapsed_s"] = np.full(len(log["generation"]), np.nan)
            notes.append(f"Wall times of {run.name} are left out: {error}")
        table.add(run, log, corrections)
        curves.append(_make_curves(run, log, corrections, metrics, compared[run.folder.path]))
    return curves, failed, notes


def _read_elapsed(folder: RunFolder, count: int) -> np.ndarray:
    """Seconds at the end of each generation, NaN where they were not recorded."""
    seconds = np.full(count, np.nan)
    recorded = folder.read_elapsed()[:count]
    seconds[: len(recorded)] = recorded
    return seconds


def _make_curves(
    run: Run,
    log: dict[str, np.ndarray],
    corrections: dict[str, np.ndarray],
    metrics: Sequence[Quantity],
    compared: ComparedEvaluations,
) -> Curves:
    evaluations = log["evaluations"]
    last = int(evaluations[-1])
    grid = np.linspace(0, compared.limit, POINTS + 1)[1:]
    rows = np.searchsorted(evaluations, grid, side="right") - 1
    outside = (rows < 0) | (grid > last)

    def at(values: np.ndarray) -> np.ndarray:
        return np.where(outside, np.nan, values[np.maximum(rows, 0)])

    names = (*(metric.name for metric in metrics), "environment_steps", "elapsed_s")
    missing = np.full(len(evaluations), np.nan)  # a metric that this run does not have
    by_operator, over = count_added(log), window(int(log["generation"][-1]))
    over_rows = count_rows(over, log["generation"])
    operators = [name for name in by_operator if name != "random"]

    @functools.cache
    def values_after(evaluations: int) -> RunValues:
        row = int(np.searchsorted(log["evaluations"], evaluations, side="right")) - 1
        values = {m.name: float(log.get(m.name, missing)[row]) if row >= 0 else np.nan for m in metrics}
        return RunValues(evaluations, values, {name: _rates(log, name, evaluations) for name in operators})

    return Curves(
        run=run,
        evaluations=last,
        steps=int(log["environment_steps"][-1]),
        seconds=float(log["elapsed_s"][-1]),
        archived=(run.folder.evaluations() or last) if len(corrections["evaluations"]) else 0,
        values={name: at(log.get(name, missing)) for name in names},
        added={name: at(smooth(by_operator[name], over_rows)) for name in operators},
        window=over,
        corrections=corrections,
        end=values_after(compared.end),
        common=values_after(compared.common),
        across_tasks=None
        if compared.across_tasks is None
        else (values_after(compared.across_tasks[0]), values_after(compared.across_tasks[1])),
    )


def _rates(log: dict[str, np.ndarray], operator: str, budget: int) -> tuple[float, float]:
    """The share of an operator's offspring that was added, in the first tenth and last half of the budget."""
    made = log[f"made_{operator}"]
    kept = log[f"new_{operator}"] + log[f"improved_{operator}"]
    active = np.flatnonzero((made > 0) & (log["evaluations"] <= budget))
    if len(active) < 10:
        return np.nan, np.nan
    first = log["evaluations"][active[0]]
    place = (log["evaluations"][active] - first) / max(1.0, budget - first)
    early, late = active[place <= EARLY], active[place > 1 - LATE]
    return tuple(float(kept[at].sum() / max(1, made[at].sum())) for at in (early, late))  # type: ignore[return-value]


def _making_notes(curves: Sequence[Curves]) -> list[str]:
    """Notes on differences in versions or physics, as runs of several machines may have them."""
    cells: dict[tuple[str, str], list[RunRecord]] = {}
    for run in (one.run for one in curves):
        cells.setdefault((run.task, run.variant), []).append(run.record)
    differing = differences(cells.values())
    return [f"Runs were made with different {describe_differences(differing)}."] if differing else []


def _budget_notes(curves: Sequence[Curves], budgets: dict[str, int]) -> list[str]:
    notes = []
    for task in dict.fromkeys(c.run.task for c in curves):
        ended = [c.evaluations for c in curves if c.run.task == task]
        ends = [c.end.evaluations for c in curves if c.run.task == task]
        if min(ended) < max(ended):
            shortest = min((c for c in curves if c.run.task == task), key=lambda c: c.evaluations)
            comparison = (
                f"All are compared at {budgets[task]:,}"
                if min(ends) == max(ends)
                else f"Each is compared at its own end, and all of them at {budgets[task]:,}"
            )
            notes.append(
                f"On {task} runs ended after {min(ended):,} to {max(ended):,} evaluations. {comparison}, "
                f"the most that every one has reached ({shortest.run.name} reached no more)."
            )
        unfinished = [c for c in curves if c.run.task == task and c.evaluations < c.run.record.evaluations]
        if unfinished:
            notes.append(
                f"On {task} {len(unfinished)} of {len(ended)} runs have not reached the end of their budget."
            )
        late = [c for c in curves if c.run.task == task and np.isnan(c.common.values["qd_score"])]
        for variant in dict.fromkeys(c.run.variant for c in late):
            count = sum(c.run.variant == variant for c in late)
            notes.append(
                f"On {task} {count} run{'s' * (count > 1)} of {variant} had not ended "
                f"{'their' if count > 1 else 'its'} first generation after {budgets[task]:,} evaluations: "
                "there is no value to compare."
            )
        corrected = [c for c in curves if c.run.task == task and len(c.corrections["evaluations"])]
        notes += _correction_notes(corrected, task)
    return notes


def _correction_notes(corrected: Sequence[Curves], task: str) -> list[str]:
    """Notes on corrections of a task's runs that do not count, and on the evaluations of the others."""
    notes = []
    outdated = [
        f"{c.run.name} was corrected at {c.corrections['evaluations'][-1]:,.0f} of {c.archived:,} evaluations"
        for c in corrected
        if is_outdated(c, c.end.evaluations)
    ]
    if outdated:
        notes.append(
            f"{'; '.join(outdated)}; run `elites correct` again. Corrections that are not of the final "
            "archive are left out of final values and maps."
        )
    counting = [c for c in corrected if not is_outdated(c, c.end.evaluations)]
    at = {int(c.corrections["evaluations"][_correction_row(c, c.end.evaluations)]) for c in counting}
    if len(at) > 1:
        notes.append(
            f"On {task} archives were corrected after {min(at):,} to {max(at):,} evaluations: corrected "
            "values and losses are compared across these."
        )
    return notes


def is_outdated(curves: Curves, budget: int) -> bool:
    """Whether a run has gone on since its last correction, so that its end was never corrected.

    If runs are compared before the end of this one, a correction at that point or later counts.
    """
    return bool(curves.corrections["evaluations"][-1] < min(curves.archived, budget))


def _correction_row(curves: Curves, budget: int) -> int:
    """The row of the correction that counts: the last within the budget, else the first after it."""
    within = np.flatnonzero(curves.corrections["evaluations"] <= budget)
    return int(within[-1]) if len(within) else 0

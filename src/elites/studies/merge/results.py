"""The results of a study: the curves of its runs on a common scale, final values, losses, contributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elites.errors import ElitesError
from elites.metrics.contribution import added, smoothed, window
from elites.metrics.metric import METRICS, Quantity, metric_of
from elites.results.folder import RunFolder
from elites.results.tables import metric_names
from elites.studies.merge.logs import MetricsTable, read_corrections, read_last_row, read_log
from elites.studies.merge.runs import Run, find_runs

POINTS = 200  # of a curve
EARLY, LATE = 0.1, 0.5  # the first tenth and the last half of a run


@dataclass(frozen=True)
class Curves:
    """A run at evenly spaced evaluations up to its task's common budget; NaN before its first generation."""

    run: Run
    evaluations: int  # in its log
    archived: int  # in its archive, which is written less often than the log; 0 if never corrected
    values: dict[str, np.ndarray]  # metrics, environment_steps and elapsed_s
    added: dict[str, np.ndarray]  # offspring added per generation, smoothed, by operator
    window: int  # generations of the smoothing
    rates: dict[str, tuple[float, float]]  # share of an operator's offspring that was added, early and late
    corrections: dict[str, np.ndarray]
    shared_qd_score: float  # at the budget shared with other tasks; NaN if there is none, or no value yet


@dataclass(frozen=True)
class StudyResults:
    """The results of all runs, without the archives."""

    folder: Path
    runs: list[Curves]
    budgets: dict[str, int]  # the largest that all runs of a task have reached
    metrics: tuple[Quantity, ...]  # those of every run first
    tasks: list[str]
    variants: list[str]
    notes: tuple[str, ...]  # on runs and files that are left out, and on what is compared

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

    def of(self, task: str, variant: str) -> list[Curves]:
        """The replications of an algorithm on a task."""
        return [curves for curves in self.runs if (curves.run.task, curves.run.variant) == (task, variant)]

    def grid(self, task: str) -> np.ndarray:
        """Evaluations of the points of curves."""
        return np.linspace(0, self.budgets[task], POINTS + 1)[1:]

    def finals(self, task: str, variant: str, name: str) -> np.ndarray:
        """A quantity of each replication at the common budget, NaN where a run does not have it."""
        replications = self.of(task, variant)
        if any(name == metric.name for metric in self.metrics):
            return np.array([curves.values[name][-1] for curves in replications])
        corrections = (self.correction(curves) for curves in replications)
        return np.array([values[name] for values in corrections if values])

    def correction(self, curves: Curves) -> dict[str, float]:
        """The last correction within the common budget, else the first after it; {} if there is none.

        One that is older than both the archive and the common budget does not count: see `is_outdated`.
        """
        budget = self.budgets[curves.run.task]
        if not len(curves.corrections["evaluations"]) or is_outdated(curves, budget):
            return {}
        row = _correction_row(curves, budget)
        return {name: float(values[row]) for name, values in curves.corrections.items()}

    @property
    def has_corrections(self) -> bool:
        return any(self.correction(curves) for curves in self.runs)


def read_study(folder: Path, table: Path, shared: Sequence[str] = ()) -> StudyResults:
    """Reads all runs below a folder, each log once, and writes them into the Parquet file `table`.

    `shared` are tasks that are compared with each other: `Curves.shared_qd_score` is at the largest budget
    that all of their runs have reached.
    """
    candidates, notes = find_runs(folder)
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
        budgets = _budgets(runs, last)
        names = list(dict.fromkeys(name for run in runs for name in columns[run.folder.path]))
        metrics = _metrics(runs, names)
        shared_budget = min((budgets.get(task, 0) for task in shared), default=0)
        common = dict.fromkeys(shared, shared_budget) if shared_budget else {}
        with MetricsTable(table, names, metrics) as written:
            curves, failed, damaged = _read_curves(runs, budgets, common, metrics, written)
        notes += [f"{run.name} is left out: {error}" for run, error in failed]
        runs = [curve.run for curve in curves]
        if _budgets(runs, last) == budgets:  # else a run that is left out had set it
            break
    if not curves:
        raise ElitesError(f"{folder} holds no run that can be read")
    tasks = list(dict.fromkeys(c.run.task for c in curves))
    variants = [name for _, name in sorted({(c.run.order, c.run.variant) for c in curves})]
    notes += [*damaged, *_budget_notes(curves, budgets)]
    return StudyResults(folder, curves, budgets, metrics, tasks, variants, tuple(notes))


def _metrics(runs: Sequence[Run], columns: Sequence[str]) -> tuple[Quantity, ...]:
    """Those of every run, then those that some runs have."""
    paths = list(dict.fromkeys(path for run in runs for path in run.record.metrics))
    names = dict.fromkeys([*(metric.name for metric in METRICS), *metric_names(columns)])
    return tuple(metric_of(name, paths) for name in names)


def _budgets(runs: Sequence[Run], last: Mapping[Path, int]) -> dict[str, int]:
    """The largest that all runs of a task have reached."""
    return {
        task: min(last[run.folder.path] for run in runs if run.task == task)
        for task in {run.task for run in runs}
    }


def _read_curves(
    runs: Sequence[Run],
    budgets: Mapping[str, int],
    common: Mapping[str, int],
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
        shared_at = common.get(run.task)
        curves.append(_make_curves(run, log, corrections, metrics, budgets[run.task], shared_at))
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
    budget: int,
    shared_at: int | None,
) -> Curves:
    evaluations = log["evaluations"]
    grid = np.linspace(0, budget, POINTS + 1)[1:]
    rows = np.searchsorted(evaluations, grid, side="right") - 1

    def at(values: np.ndarray) -> np.ndarray:
        return np.where(rows < 0, np.nan, values[np.maximum(rows, 0)])

    names = (*(metric.name for metric in metrics), "environment_steps", "elapsed_s")
    missing = np.full(len(evaluations), np.nan)  # a metric that this run does not have
    by_operator, over = added(log), window(len(evaluations))
    row = -1 if shared_at is None else int(np.searchsorted(evaluations, shared_at, side="right")) - 1
    last = int(evaluations[-1])
    return Curves(
        run=run,
        evaluations=last,
        archived=(run.folder.evaluations() or last) if len(corrections["evaluations"]) else 0,
        values={name: at(log.get(name, missing)) for name in names},
        added={name: at(smoothed(values, over)) for name, values in by_operator.items() if name != "random"},
        window=over,
        rates={name: _rates(log, name, budget) for name in by_operator if name != "random"},
        corrections=corrections,
        shared_qd_score=float(log["qd_score"][row]) if row >= 0 else np.nan,
    )


def _rates(log: dict[str, np.ndarray], operator: str, budget: int) -> tuple[float, float]:
    """Of an operator's offspring, the share added in the first tenth and in the last half of the budget."""
    made = log[f"made_{operator}"]
    kept = log[f"new_{operator}"] + log[f"improved_{operator}"]
    active = np.flatnonzero((made > 0) & (log["evaluations"] <= budget))
    if len(active) < 10:
        return np.nan, np.nan
    first = log["evaluations"][active[0]]
    place = (log["evaluations"][active] - first) / max(1.0, budget - first)
    early, late = active[place <= EARLY], active[place > 1 - LATE]
    return tuple(float(kept[at].sum() / max(1, made[at].sum())) for at in (early, late))  # type: ignore[return-value]


def _budget_notes(curves: Sequence[Curves], budgets: dict[str, int]) -> list[str]:
    notes = []
    for task in dict.fromkeys(c.run.task for c in curves):
        ended = [c.evaluations for c in curves if c.run.task == task]
        if min(ended) < max(ended):
            shortest = min((c for c in curves if c.run.task == task), key=lambda c: c.evaluations)
            notes.append(
                f"On {task} runs ended after {min(ended):,} to {max(ended):,} evaluations. All are compared "
                f"at {budgets[task]:,}, the most that every one has reached ({shortest.run.name} reached "
                "no more)."
            )
        unfinished = [c for c in curves if c.run.task == task and c.evaluations < c.run.record.evaluations]
        if unfinished:
            notes.append(
                f"On {task} {len(unfinished)} of {len(ended)} runs have not reached the end of their budget."
            )
        late = [c for c in curves if c.run.task == task and np.isnan(c.values["environment_steps"][-1])]
        for variant in dict.fromkeys(c.run.variant for c in late):
            count = sum(c.run.variant == variant for c in late)
            notes.append(
                f"On {task} {count} run{'s' * (count > 1)} of {variant} had not ended "
                f"{'their' if count > 1 else 'its'} first generation after {budgets[task]:,} evaluations: "
                "there is no value to compare."
            )
        corrected = [c for c in curves if c.run.task == task and len(c.corrections["evaluations"])]
        notes += _correction_notes(corrected, task, budgets[task])
    return notes


def _correction_notes(corrected: Sequence[Curves], task: str, budget: int) -> list[str]:
    """Which corrections of a task's runs do not count, and at which evaluations the others are compared."""
    notes = []
    outdated = [
        f"{c.run.name} was corrected at {c.corrections['evaluations'][-1]:,.0f} of {c.archived:,} evaluations"
        for c in corrected
        if is_outdated(c, budget)
    ]
    if outdated:
        notes.append(
            f"{'; '.join(outdated)}; run `elites correct` again. Corrections that are not of the final "
            "archive are left out of final values and maps."
        )
    counting = [c for c in corrected if not is_outdated(c, budget)]
    at = {int(c.corrections["evaluations"][_correction_row(c, budget)]) for c in counting}
    if len(at) > 1:
        notes.append(
            f"On {task} archives were corrected after {min(at):,} to {max(at):,} evaluations: corrected "
            "values and losses are compared across these."
        )
    return notes


def is_outdated(curves: Curves, budget: int) -> bool:
    """Whether a run has gone on since its last correction, so that its end was never corrected.

    Where runs are compared before this one's end, a correction there or later counts.
    """
    return bool(curves.corrections["evaluations"][-1] < min(curves.archived, budget))


def _correction_row(curves: Curves, budget: int) -> int:
    """The row of the correction that counts: the last within the budget, else the first after it."""
    within = np.flatnonzero(curves.corrections["evaluations"] <= budget)
    return int(within[-1]) if len(within) else 0

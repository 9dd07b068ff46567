"""What a study's runs come to: curves on a common scale, final values, what was lost, who contributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from elites.errors import ElitesError
from elites.metrics.contribution import added, smoothed, window
from elites.reports.study.logs import (
    CORRECTED,
    LOSSES,
    METRICS,
    MetricsTable,
    ends_of,
    read_archived,
    read_columns,
    read_corrections,
    read_log,
)
from elites.reports.study.runs import Run, find_runs

POINTS = 200  # of a curve
ANT = ("qd-ant", "qd-deterministic-ant")  # compared with each other
EARLY, LATE = 0.1, 0.5  # the first tenth and the last half of a run


@dataclass(frozen=True)
class Curves:
    """A run at evenly spaced evaluations up to its task's common budget; NaN before its first generation."""

    run: Run
    evaluations: int  # at which it ended, or where it stands
    archived: int  # of its archive, which a run in progress writes now and then; 0 if never corrected
    values: dict[str, np.ndarray]  # metrics, environment_steps and elapsed_s
    added: dict[str, np.ndarray]  # by operator, per generation, smoothed
    window: int  # generations it was smoothed over
    rates: dict[str, tuple[float, float]]  # by operator: share of its offspring added, early and late
    corrections: dict[str, np.ndarray]
    also: dict[int, float]  # QD-score at other evaluations that are asked for


@dataclass(frozen=True)
class Study:
    """All that a report tells, but for the archives themselves."""

    folder: Path
    runs: list[Curves]
    budgets: dict[str, int]  # the largest that all runs of a task have reached
    notes: list[str]  # what a reader must know
    tasks: list[str] = field(default_factory=list)
    variants: list[str] = field(default_factory=list)

    def of(self, task: str, variant: str) -> list[Curves]:
        """The replications of an algorithm on a task."""
        return [curves for curves in self.runs if (curves.run.task, curves.run.variant) == (task, variant)]

    def grid(self, task: str) -> np.ndarray:
        """Evaluations at which curves have their points."""
        return np.linspace(0, self.budgets[task], POINTS + 1)[1:]

    def finals(self, task: str, variant: str, metric: str) -> np.ndarray:
        """A metric of each replication at the common budget; corrected ones as `corrected` finds them."""
        of = self.of(task, variant)
        if metric in METRICS:
            return np.array([curves.values[metric][-1] for curves in of])
        found = (self.corrected(curves) for curves in of)
        return np.array([values[metric] for values in found if values])

    def corrected(self, curves: Curves) -> dict[str, float]:
        """The last correction within the common budget, else the first after it; {} if there is none.

        One that is older than both the archive and the common budget is none: see `is_outdated`.
        """
        budget = self.budgets[curves.run.task]
        if not len(curves.corrections["evaluations"]) or is_outdated(curves, budget):
            return {}
        place = _used(curves, budget)
        names = ("evaluations", *CORRECTED, *LOSSES)
        return {name: float(curves.corrections[name][place]) for name in names}

    def has(self, metric: str) -> bool:
        """Whether any run has it."""
        return metric in METRICS or any(self.corrected(curves) for curves in self.runs)


def read_study(folder: Path, table: Path) -> Study:
    """Reads all runs below a folder, each log once, and writes them into the Parquet file `table`."""
    found, notes = find_runs(folder)
    last: dict[Path, int] = {}
    columns: dict[Path, list[str]] = {}
    for run in found:
        try:
            names, row = ends_of(run.folder / "metrics.csv")
        except ElitesError as error:
            notes.append(f"{run.name} is left out: {error}")
            continue
        if row:
            last[run.folder], columns[run.folder] = int(row["evaluations"]), names
        else:
            notes.append(f"{run.name} is left out: no generation has been logged")
    runs = [run for run in found if run.folder in last]
    if not runs:
        raise ElitesError(f"{folder} holds no run with a logged generation")
    while runs:
        budgets = _budgets(runs, last)
        names = [name for run in runs for name in columns[run.folder]]
        with MetricsTable(table, names) as metrics:
            curves, wrong, told = _read(runs, budgets, metrics)
        notes += [f"{run.name} is left out: {error}" for run, error in wrong]
        runs = [curve.run for curve in curves]
        if _budgets(runs, last) == budgets:  # else one that is left out had set it
            break
    if not curves:
        raise ElitesError(f"{folder} holds no run that can be read")
    tasks = list(dict.fromkeys(c.run.task for c in curves))
    variants = [name for _, name in sorted({(c.run.order, c.run.variant) for c in curves})]
    notes += [*told, *_budget_notes(curves, budgets)]
    return Study(folder, curves, budgets, notes, tasks, variants)


def _budgets(runs: Sequence[Run], last: Mapping[Path, int]) -> dict[str, int]:
    """The largest that all runs of a task have reached."""
    return {
        task: min(last[run.folder] for run in runs if run.task == task) for task in {r.task for r in runs}
    }


def _read(
    runs: Sequence[Run], budgets: Mapping[str, int], metrics: MetricsTable
) -> tuple[list[Curves], list[tuple[Run, str]], list[str]]:
    """What can be read; runs that cannot, and why; and which parts of the others cannot."""
    curves: list[Curves] = []
    wrong: list[tuple[Run, str]] = []
    told: list[str] = []
    pair = min(budgets.get(task, 0) for task in ANT)
    for run in runs:
        try:
            log = read_log(run.folder)
        except ElitesError as error:
            wrong.append((run, str(error)))
            continue
        corrections, damaged = read_corrections(run.folder)
        told += [f"Corrections of {run.name} are left out: {error}" for error in damaged]
        try:
            log["elapsed_s"] = _elapsed(run.folder, len(log["generation"]))
        except ElitesError as error:
            log["elapsed_s"] = np.full(len(log["generation"]), np.nan)
            told.append(f"Wall times of {run.name} are left out: {error}")
        metrics.add(run, log, corrections)
        also = (pair,) if run.task in ANT and pair else ()
        curves.append(_curves(run, log, corrections, budgets[run.task], also))
    return curves, wrong, told


def _elapsed(folder: Path, count: int) -> np.ndarray:
    """Seconds at the end of each generation, NaN where they were not kept."""
    seconds = np.full(count, np.nan)
    path = folder / "timings.csv"
    if path.exists():
        found = read_columns(path)
        if "elapsed_s" not in found:
            raise ElitesError(f"{path} is damaged: it has no column elapsed_s")
        there = found["elapsed_s"][:count]
        seconds[: len(there)] = there
    return seconds


def _curves(
    run: Run,
    log: dict[str, np.ndarray],
    corrections: dict[str, np.ndarray],
    budget: int,
    also: Sequence[int],
) -> Curves:
    evaluations = log["evaluations"]
    grid = np.linspace(0, budget, POINTS + 1)[1:]
    rows = np.searchsorted(evaluations, grid, side="right") - 1

    def at(values: np.ndarray) -> np.ndarray:
        return np.where(rows < 0, np.nan, values[np.maximum(rows, 0)])

    names = (*METRICS, "environment_steps", "elapsed_s")
    by_operator, over = added(log), window(len(evaluations))
    extra = {}
    for point in also:
        row = int(np.searchsorted(evaluations, point, side="right")) - 1
        extra[point] = float(log["qd_score"][row]) if row >= 0 else np.nan  # its first generation is later
    return Curves(
        run=run,
        evaluations=int(evaluations[-1]),
        archived=read_archived(run.folder, int(evaluations[-1])) if len(corrections["evaluations"]) else 0,
        values={name: at(log[name]) for name in names},
        added={name: at(smoothed(values, over)) for name, values in by_operator.items() if name != "random"},
        window=over,
        rates={name: _rates(log, name, budget) for name in by_operator if name != "random"},
        corrections=corrections,
        also=extra,
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
        unfinished = [c for c in curves if c.run.task == task and c.evaluations < c.run.record["evaluations"]]
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
    """Of a task's runs that were corrected: which do not count, and what is compared of the others."""
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
    at = {int(c.corrections["evaluations"][_used(c, budget)]) for c in counting}
    if len(at) > 1:
        notes.append(
            f"On {task} archives were corrected after {min(at):,} to {max(at):,} evaluations: corrected "
            "values and losses are compared across these."
        )
    return notes


def is_outdated(curves: Curves, budget: int) -> bool:
    """Whether a run that was corrected has gone on since, so that nothing tells what its end is worth.

    Where runs are compared before this one's end, a correction there or later serves.
    """
    return bool(curves.corrections["evaluations"][-1] < min(curves.archived, budget))


def _used(curves: Curves, budget: int) -> int:
    """Which correction counts: the last within the budget, else the first after it."""
    within = np.flatnonzero(curves.corrections["evaluations"] <= budget)
    return int(within[-1]) if len(within) else 0

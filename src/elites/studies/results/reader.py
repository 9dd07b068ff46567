"""Reads the runs of a study: each log once, the curves on a common scale, and notes on what is left out."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elites.errors import ElitesError
from elites.files import make_one_line, open_file
from elites.metrics.contribution import choose_window, count_added, count_kept, count_made, count_rows, smooth
from elites.metrics.metric import METRICS, Metric, Quantity, find_metric
from elites.results.corrected import ROUNDING, load_corrected, load_corrected_metrics
from elites.results.folder import RunFolder
from elites.results.schemas import MAX_COUNT, OPTIONAL, RunRecord, check_columns
from elites.results.tables import metric_names
from elites.studies.results.metrics_table import MetricsTable
from elites.studies.results.runs import (
    Run,
    StudyRuns,
    describe_differences,
    find_differences,
    has_default_task,
)
from elites.studies.results.study_results import (
    POINTS,
    Curves,
    RunValues,
    StudyResults,
    find_correction_row,
    is_outdated,
)

EARLY, LATE = 0.1, 0.5  # the first tenth and the last half of a run
TAIL = 4096  # bytes at the end of a log that have its last row


def read_results(
    study: StudyRuns, table: Path, compared_tasks: Sequence[tuple[str, ...]] = ()
) -> StudyResults:
    """Reads the runs of a study, each log once, and writes them into the Parquet file `table`.

    `compared_tasks`: tasks that are compared with each other, with their default parameters. See
    `Curves.across_tasks`.
    """
    folder, candidates, record, notes = study
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
        compared = _choose_compared_evaluations(runs, last, compared_tasks)
        names = list(dict.fromkeys(name for run in runs for name in columns[run.folder.path]))
        metrics = _list_metrics(runs, names)
        with MetricsTable(table, names, metrics) as written:
            curves, failed, damaged = _read_curves(runs, compared, metrics, written)
        notes += [f"{run.name} is left out: {error}" for run, error in failed]
        runs = [curve.run for curve in curves]
        if not failed or _choose_compared_evaluations(runs, last, compared_tasks) == {
            run.folder.path: compared[run.folder.path] for run in runs
        }:
            break  # else a run that is now left out has determined them
    if not curves:
        raise ElitesError(f"{folder} holds no run that can be read")
    tasks = list(dict.fromkeys(c.run.task for c in curves))
    variants = [name for _, name in sorted({(c.run.order, c.run.variant) for c in curves})]
    budgets = {c.run.task: c.common.evaluations for c in curves}
    limits = {task: max(c.end.evaluations for c in curves if c.run.task == task) for task in tasks}
    notes += [*_describe_versions(curves), *damaged, *_describe_budgets(curves, budgets)]
    return StudyResults(folder, record, curves, budgets, limits, metrics, tasks, variants, tuple(notes))


def _list_metrics(runs: Sequence[Run], columns: Sequence[str]) -> tuple[Quantity, ...]:
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


def _choose_compared_evaluations(
    runs: Sequence[Run], last: Mapping[Path, int], compared_tasks: Sequence[tuple[str, ...]]
) -> dict[Path, ComparedEvaluations]:
    """The evaluations at which each run is compared.

    Runs with different budgets are compared within the smallest one. A run that was stopped early is compared
    at its own end; the common budget of its task is the end of the shortest run.
    """

    def find_ends(chosen: Sequence[Run]) -> dict[Path, int]:
        planned = min((run.record.evaluations for run in chosen), default=0)
        return {run.folder.path: min(planned, last[run.folder.path]) for run in chosen}

    across: dict[Path, tuple[int, int]] = {}
    for tasks in compared_tasks:
        chosen = [run for run in runs if run.record.task in tasks and has_default_task(run)]
        if len({run.task for run in chosen}) > 1:
            ended = find_ends(chosen)
            across |= {path: (end, min(ended.values())) for path, end in ended.items()}
    compared = {}
    for task in {run.task for run in runs}:
        own = find_ends([run for run in runs if run.task == task])
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
        notes += [f"Corrected values of {run.name} are left out: {error}" for error in errors]
        try:
            log["elapsed_s"] = _read_elapsed(run.folder, len(log["generation"]))
        except ElitesError as error:
            log["elapsed_s"] = np.full(len(log["generation"]), np.nan)
            notes.append(f"Wall times of {run.name} are left out: {error}")
        table.add(run, log, corrections)
        curves.append(_make_curves(run, log, corrections, metrics, compared[run.folder.path]))
    return curves, failed, notes


def read_log(folder: RunFolder) -> dict[str, np.ndarray]:
    """The columns of a run's metrics; an error if one that a report needs is missing."""
    log = folder.read_metrics()
    if not len(log["evaluations"]):
        raise ElitesError(f"{folder.metrics} is damaged: it has no row")
    return log


def read_last_row(path: Path) -> tuple[list[str], dict[str, float]]:
    """The columns of a log and its last complete row, {} if it has none. Rows in between are not read."""
    try:
        with open_file(path) as file:
            header = file.readline()
            start = file.tell()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - TAIL))
            rows = file.read().rpartition(b"\n")[0].split(b"\n")
        columns = header.decode().strip().split(",")
        if not rows[-1]:
            return columns, {}
        cells = dict(zip(columns, rows[-1].split(b","), strict=True))
        last = {name: float(text) for name, text in cells.items() if text or name not in OPTIONAL}
        check_columns(path, columns)
        if not 0 <= last["evaluations"] <= MAX_COUNT:
            raise ValueError(f"its last row has {last['evaluations']} evaluations")
        return columns, last
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is damaged: {make_one_line(error)}") from None


def read_corrections(
    folder: RunFolder, metrics: Iterable[Quantity]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Evaluations, corrected metrics and losses of every correction of a run, the final one too.

    A damaged file and a metric that fails are left out; the second result says why.
    """
    metrics = list(metrics)
    rows: dict[int, dict[str, float]] = {}
    errors: list[str] = []
    for path, read in ((folder.corrections, _read_during), (folder.corrected_path(), _read_final)):
        if path.exists():
            try:
                for at, row in read(folder, metrics, errors).items():
                    rows[at] = {**rows.get(at, {}), **row}
            except ElitesError as error:
                errors.append(str(error))
    evaluations = sorted(rows)
    columns = [column.name for metric in metrics for column in (metric.corrected, metric.loss)]
    values = {name: np.array([rows[at].get(name, np.nan) for at in evaluations]) for name in columns}
    return {"evaluations": np.array(evaluations, float), **values}, errors


def _read_during(folder: RunFolder, metrics: Sequence[Quantity], _: list[str]) -> dict[int, dict[str, float]]:
    """The corrections during a run. Only the metrics that every run has are required."""
    table = folder.read_corrections() or {}
    columns = {}
    for metric in metrics:
        if metric.name in table and metric.loss.name in table:
            columns[metric.corrected.name] = table[metric.name]
            columns[metric.loss.name] = table[metric.loss.name]
    return {
        int(evaluations): {name: float(column[row]) for name, column in columns.items()}
        for row, evaluations in enumerate(table["evaluations"])
    }


def _read_final(
    folder: RunFolder, metrics: Sequence[Quantity], errors: list[str]
) -> dict[int, dict[str, float]]:
    """The correction of the archive. Metrics that its file does not have are computed from the elites."""
    evaluations, values = load_corrected_metrics(folder.corrected_path())
    others = [metric for metric in metrics if isinstance(metric, Metric) and metric.name not in values]
    corrected = load_corrected(folder.corrected_path()) if others else None
    for other in others:
        assert corrected is not None
        try:
            _, values[other.name], values[other.loss.name] = corrected.compare_metric(other)
        except ElitesError as error:
            errors.append(str(error))
    row = {}
    for metric in metrics:
        if metric.name in values:
            row[metric.corrected.name] = values[metric.name]
            row[metric.loss.name] = values[metric.loss.name]
    return {evaluations: row}


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

    def sample(values: np.ndarray) -> np.ndarray:
        return np.where(outside, np.nan, values[np.maximum(rows, 0)])

    names = (*(metric.name for metric in metrics), "environment_steps", "elapsed_s")
    missing = np.full(len(evaluations), np.nan)  # a metric that this run does not have
    by_operator, window_size = count_added(log), choose_window(int(log["generation"][-1]))
    window_rows = count_rows(window_size, log["generation"])
    operators = [name for name in by_operator if name != "random"]

    @functools.cache
    def find_values_after(evaluations: int) -> RunValues:
        row = int(np.searchsorted(log["evaluations"], evaluations, side="right")) - 1
        values = {m.name: float(log.get(m.name, missing)[row]) if row >= 0 else np.nan for m in metrics}
        return RunValues(
            evaluations, values, {name: _compute_rates(log, name, evaluations) for name in operators}
        )

    return Curves(
        run=run,
        evaluations=last,
        steps=int(log["environment_steps"][-1]),
        seconds=float(log["elapsed_s"][-1]),
        archived=(run.folder.evaluations() or last) if len(corrections["evaluations"]) else 0,
        values={name: sample(log.get(name, missing)) for name in names},
        added={name: sample(smooth(by_operator[name], window_rows)) for name in operators},
        window=window_size,
        corrections=corrections,
        end=find_values_after(compared.end),
        common=find_values_after(compared.common),
        across_tasks=None
        if compared.across_tasks is None
        else (find_values_after(compared.across_tasks[0]), find_values_after(compared.across_tasks[1])),
    )


def _compute_rates(log: dict[str, np.ndarray], operator: str, budget: int) -> tuple[float, float]:
    """The share of an operator's offspring that was added, in the first tenth and last half of the budget."""
    made_counts, added_counts = count_made(log, operator), count_kept(log, operator)
    active = np.flatnonzero((made_counts > 0) & (log["evaluations"] <= budget))
    if len(active) < 10:
        return np.nan, np.nan
    first = log["evaluations"][active[0]]
    place = (log["evaluations"][active] - first) / max(1.0, budget - first)
    early, late = active[place <= EARLY], active[place > 1 - LATE]
    return tuple(float(added_counts[at].sum() / max(1, made_counts[at].sum())) for at in (early, late))  # type: ignore[return-value]


def _describe_versions(curves: Sequence[Curves]) -> list[str]:
    """Notes on runs that were made with different versions of packages or different physics."""
    combinations: dict[tuple[str, str], list[RunRecord]] = {}
    for run in (one.run for one in curves):
        combinations.setdefault((run.task, run.variant), []).append(run.record)
    differing = find_differences(combinations.values())
    return [f"Runs were made with different {describe_differences(differing)}."] if differing else []


def _describe_budgets(curves: Sequence[Curves], budgets: dict[str, int]) -> list[str]:
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
        notes += _describe_corrections(corrected, task)
    return notes


def _describe_corrections(corrected: Sequence[Curves], task: str) -> list[str]:
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
    first: dict[str, Curves] = {}
    for own in corrected:
        first.setdefault(own.run.variant, own)
    if rounded := [variant for variant, own in first.items() if _shows_rounding(own)]:
        notes.append(f"{task} has no noise: losses of {', '.join(rounded)} come from {ROUNDING}.")
    counting = [c for c in corrected if not is_outdated(c, c.end.evaluations)]
    at = {int(c.corrections["evaluations"][find_correction_row(c, c.end.evaluations)]) for c in counting}
    if len(at) > 1:
        notes.append(
            f"On {task} archives were corrected after {min(at):,} to {max(at):,} evaluations: corrected "
            "values and losses are compared across these."
        )
    return notes


def _shows_rounding(curves: Curves) -> bool:
    """See `CorrectedArchive.shows_rounding`; of the final correction, if there is one."""
    try:
        return load_corrected(curves.run.folder.corrected_path()).shows_rounding
    except ElitesError:  # there is none, or its metrics alone can be read
        return False

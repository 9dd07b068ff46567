"""The rows of `metrics.csv`, from the results of generations, and their sums where some have no row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elites.algorithms.base import Algorithm
from elites.experiments.generation import FinishedGeneration, Row
from elites.metrics.contribution import BY_OPERATOR, IMPROVED, MADE, NEW
from elites.metrics.metric import Elites, GenerationResult, Metric, Metrics
from elites.results.schemas import COUNTS, is_sum

NOT_SUMMED = ("generation", "elapsed_s", "steps_per_s")  # columns of `timings.csv`


def list_columns(algorithm: Algorithm, metrics: Metrics) -> list[str]:
    """The columns of `metrics.csv`."""
    names = [metric.name for metric in (*metrics.archive, *metrics.generation)]
    by_operator = [f"{prefix}{name}" for name in algorithm.operators for prefix in BY_OPERATOR]
    *progress, invalid = COUNTS
    return [*progress, *names, invalid, *by_operator]


def make_rows(finished: FinishedGeneration, algorithm: Algorithm, metrics: Metrics) -> list[dict[str, Any]]:
    """The row of each replication, in the order of `list_columns`. None is an empty cell."""
    replications = range(len(finished.totals.environment_steps))
    return [_make_row(finished, index, algorithm, metrics) for index in replications]


def _make_row(
    finished: FinishedGeneration, index: int, algorithm: Algorithm, metrics: Metrics
) -> dict[str, Any]:
    totals, row = finished.totals, finished.row
    counts = {
        "generation": totals.generation,
        "evaluations": totals.evaluations,
        "environment_steps": totals.environment_steps[index] + int(row.training_steps[index]),
        "gradient_steps": int(row.gradient_steps[index]),
        "invalid": int(row.counts.invalid[index]),
        **count_by_operator(np.asarray(row.counts.statuses[index]), algorithm.operators),
    }
    elites = collect_elites(algorithm, np.asarray(row.fitness[index]), np.asarray(row.descriptor[index]))
    result = make_generation_result(row, index, elites, counts)
    *progress, _ = COUNTS
    return {
        **{name: counts[name] for name in progress},
        **compute_metrics(metrics.archive, elites),
        **{metric.name: metric.compute_value(result) for metric in metrics.generation},
        **counts,  # the rest of them: they come after the metrics
    }


def collect_elites(algorithm: Algorithm, fitness: np.ndarray, descriptor: np.ndarray) -> Elites:
    """The input of metrics, given the fitness and descriptor of every cell."""
    filled = fitness > -np.inf
    return Elites(fitness[filled], descriptor[filled], len(fitness), algorithm.task.qd_offset)


def compute_metrics(metrics: Sequence[Metric], elites: Elites) -> dict[str, float]:
    """The metrics of an archive."""
    return {metric.name: metric.compute_value(elites) for metric in metrics}


def make_generation_result(row: Row, index: int, elites: Elites, counts: dict[str, int]) -> GenerationResult:
    """The input of a replication's metrics of a generation."""
    training, greedy = row.counts.training, row.counts.greedy
    return GenerationResult(
        elites,
        counts,
        int(training.steps[index]),
        float(training.loss[index]),
        float(training.value[index]),
        int(greedy.episodes[index]),
        float(greedy.fitness[index]),
    )


def count_by_operator(statuses: np.ndarray, operators: tuple[str, ...]) -> dict[str, int]:
    """The columns of `metrics.csv` on operators."""
    counts = {}
    for name, (new, improved, *others) in zip(operators, statuses.tolist(), strict=True):
        counts[f"{MADE}{name}"] = new + improved + sum(others)
        counts[f"{NEW}{name}"], counts[f"{IMPROVED}{name}"] = new, improved
    return counts


class UnloggedCounts:
    """Counts and times since the last row of the logs."""

    def __init__(
        self, counts: Sequence[dict[str, int]] = (), seconds: Mapping[str, float] | None = None
    ) -> None:
        """`counts` has a dictionary for each run, `seconds` has the times; both are empty by default."""
        self.counts, self.seconds = [dict(count) for count in counts], dict(seconds or {})

    def add(self, metrics: Sequence[Mapping[str, Any]], timings: Mapping[str, float]) -> None:
        """Adds a generation."""
        counts = self.counts or [{} for _ in metrics]
        self.counts = [
            {name: count.get(name, 0) + row[name] for name in row if is_sum(name)}
            for count, row in zip(counts, metrics, strict=True)
        ]
        steps = timings["steps_per_s"] * _find_episode_seconds(timings)
        seconds = {name: timings[name] for name in timings if name not in NOT_SUMMED}
        seconds["steps"] = steps
        self.seconds = {name: self.seconds.get(name, 0.0) + seconds[name] for name in seconds}

    def take(
        self, metrics: Sequence[Mapping[str, Any]], timings: Mapping[str, float]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The rows of the last generation, with all counts and times since the rows before. Resets these."""
        rows = [{**row, **count} for row, count in zip(metrics, self.counts, strict=True)]
        steps = self.seconds.pop("steps")
        rate = steps / max(_find_episode_seconds(self.seconds), 1e-9)
        summed_timings = {**timings, **self.seconds, "steps_per_s": rate}
        self.counts, self.seconds = [], {}
        return rows, summed_timings


def _find_episode_seconds(timings: Mapping[str, float]) -> float:
    """The time that `steps_per_s` refers to."""
    return timings["device_s"] if "device_s" in timings else timings["rollouts_s"]

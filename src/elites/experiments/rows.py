"""The rows of `metrics.csv`, from the results of generations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elites.algorithms.base import Algorithm
from elites.experiments.generation import FinishedGeneration, Row
from elites.metrics.contribution import BY_OPERATOR, IMPROVED, MADE, NEW
from elites.metrics.metric import Elites, GenerationResult, Metric, Metrics
from elites.results.schemas import COUNTS


def list_columns(algorithm: Algorithm, metrics: Metrics) -> list[str]:
    """The columns of `metrics.csv`."""
    names = [metric.name for metric in (*metrics.archive, *metrics.generation)]
    by_operator = [f"{prefix}{name}" for name in algorithm.operators for prefix in BY_OPERATOR]
    *progress, invalid = COUNTS
    return [*progress, *names, invalid, *by_operator]


def make_rows(
    finished: FinishedGeneration, algorithm: Algorithm, metrics: Metrics, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """The row of each replication. None is an empty cell."""
    replications = range(len(finished.totals.environment_steps))
    values = [_compute_values(finished, index, algorithm, metrics) for index in replications]
    return [{column: own[column] for column in columns} for own in values]


def _compute_values(
    finished: FinishedGeneration, index: int, algorithm: Algorithm, metrics: Metrics
) -> dict[str, Any]:
    """The value of each column for a replication."""
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
    return {
        **counts,
        **compute_metrics(metrics.archive, elites),
        **{metric.name: metric.compute_value(result) for metric in metrics.generation},
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

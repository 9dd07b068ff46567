"""Measures a QD-score offset where none is known: the worst fitness of random controllers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from elites.errors import ElitesError
from elites.evaluation import make_evaluator
from elites.policies.layout import HIDDEN
from elites.tasks.task import Task

CONTROLLERS = 50
WEIGHT_FACTOR = 3.0  # on the weights of every other controller: large weights make larger movements


def with_measured_offset(task: Task) -> Task:
    """The task with a QD-score offset: its own, or a measured one where that is NaN."""
    if not task.measures_offset or not math.isnan(task.qd_offset):
        return task
    qd_offset, method = measure_offset(task)
    changes: Any = {"qd_offset": qd_offset, "qd_offset_from": method}
    return dataclasses.replace(task, **changes)


def measure_offset(task: Task) -> tuple[float, str]:
    """The worst fitness of some random controllers, rounded down, and a description of the measurement."""
    import jax

    from elites.policies import Policy

    keys = jax.random.split(jax.random.key(0), CONTROLLERS)
    parameters = np.array(jax.jit(jax.vmap(Policy.for_task(task, HIDDEN).init))(keys))
    parameters[::2] *= WEIGHT_FACTOR
    with make_evaluator(task, HIDDEN, threads=None) as evaluator:
        fitness = evaluator.evaluate(parameters, np.arange(CONTROLLERS)).fitness
    if not np.isfinite(fitness).any():
        raise ElitesError(f"{task.name}: all {CONTROLLERS} random controllers gave NaN")
    method = (
        f"measured: the worst fitness of {CONTROLLERS} random controllers with 128-128 hidden units, half of "
        f"them with weights multiplied by {WEIGHT_FACTOR:g}, rounded down"
    )
    return float(math.floor(np.nanmin(fitness))), method

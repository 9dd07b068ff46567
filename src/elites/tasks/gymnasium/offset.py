"""A QD offset where nobody knows one: below what random controllers do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from elites.errors import ElitesError

if TYPE_CHECKING:
    from elites.tasks.gymnasium import GymnasiumTask

CONTROLLERS = 50
LARGE = 3.0  # times the weights, of every other controller: such ones move more


def measured_offset(task: GymnasiumTask) -> tuple[float, str]:
    """The worst fitness of some random controllers, rounded down, and how it was measured."""
    import jax

    from elites.evaluation.processes import ProcessEvaluator
    from elites.policies import Policy

    keys = jax.random.split(jax.random.key(0), CONTROLLERS)
    parameters = np.array(jax.jit(jax.vmap(Policy.of(task).init))(keys))
    parameters[::2] *= LARGE
    with ProcessEvaluator(task) as evaluator:
        fitness = evaluator.evaluate(parameters, np.arange(CONTROLLERS)).fitness
    if not np.isfinite(fitness).any():
        raise ElitesError(f"{task.name}: all of {CONTROLLERS} random controllers gave NaN")
    how = (
        f"measured: the worst fitness of {CONTROLLERS} random controllers with 128-128 hidden units, of half "
        f"of them with weights times {LARGE:g}, rounded down"
    )
    return float(math.floor(np.nanmin(fitness))), how

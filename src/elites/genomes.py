"""Genomes: the parameters of a controller, or a plain vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax

from elites.policies import Policy
from elites.tasks.function import FunctionTask
from elites.tasks.task import Task


class Genome(Protocol):
    """A flat vector of numbers."""

    @property
    def parameter_count(self) -> int:
        """Length of the vector."""

    @property
    def tensors(self) -> tuple[int, ...]:
        """Lengths of the tensors that it consists of."""

    def init(self, key: jax.Array) -> jax.Array:
        """A random vector."""


@dataclass(frozen=True)
class Vector:
    """Plain vectors; random ones are uniform within bounds."""

    parameter_count: int
    low: float
    high: float

    @property
    def tensors(self) -> tuple[int, ...]:
        """One tensor: the vector."""
        return (self.parameter_count,)

    def init(self, key: jax.Array) -> jax.Array:
        """A random vector."""
        return jax.random.uniform(key, (self.parameter_count,), minval=self.low, maxval=self.high)


def make_genome(task: Task, hidden: tuple[int, ...]) -> Policy | Vector:
    """The genome that a task takes."""
    if isinstance(task, FunctionTask):
        return Vector(task.parameters, *task.initial_bounds)
    return Policy.for_task(task, hidden)

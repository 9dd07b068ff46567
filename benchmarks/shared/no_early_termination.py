"""Brax's robots without early termination: a fall does not end an episode."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from elites.tasks import make_task
from elites.tasks.brax import BraxTask
from elites.tasks.task import StepResult


@dataclass(frozen=True, kw_only=True)
class NoEarlyTermination(BraxTask):
    """A robot whose episodes do not end when it falls."""

    def step(self, state: Any, action: jax.Array) -> StepResult:
        after = super().step(state, action)
        return after._replace(terminated=jnp.zeros_like(after.terminated))


def without_early_termination(robot: str, **parameters: Any) -> NoEarlyTermination:
    """The task `brax-ROBOT` without early termination."""
    real = make_task(f"brax-{robot}", **parameters)
    facts = {field.name: getattr(real, field.name) for field in dataclasses.fields(real)}
    return NoEarlyTermination(**facts | {"name": f"endless-{robot}"})

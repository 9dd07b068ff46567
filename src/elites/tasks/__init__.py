"""Names become tasks here, and nowhere else."""

from __future__ import annotations

import dataclasses
from typing import Any

from elites.errors import ElitesError
from elites.tasks import qdgym
from elites.tasks.task import Task

TASKS: dict[str, Task] = {task.name: task for task in qdgym.TASKS}

_FIXED = {"name", "robot", "observation_size", "action_size", "descriptor_names", "descriptor_bounds"}


def make_task(name: str, **parameters: Any) -> Task:
    """The task called `name`, with some of its parameters changed (`noise`, `episode_length`, …)."""
    if name not in TASKS:
        raise ElitesError(f"unknown task {name!r}; the tasks are {', '.join(TASKS)}")
    task = TASKS[name]
    allowed = [field.name for field in dataclasses.fields(task) if field.name not in _FIXED]
    for parameter in parameters:
        if parameter not in allowed:
            raise ElitesError(f"{name} has no parameter {parameter!r}; it has {', '.join(allowed)}")
    return dataclasses.replace(task, **parameters)

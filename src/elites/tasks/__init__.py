"""All tasks by their names."""

from __future__ import annotations

import dataclasses
from typing import Any

from elites.errors import ElitesError
from elites.options import checked
from elites.tasks import brax, qdgym
from elites.tasks.task import Task

TASKS: dict[str, Task] = {task.name: task for task in (*qdgym.TASKS, *brax.TASKS)}


def make_task(name: str, **parameters: Any) -> Task:
    """The task with this name and, where given, these parameters (`noise`, `episode_length`, …).

    `gym:ID` is a Gymnasium environment: see `elites.gymnasium_task`.
    """
    if name.startswith("gym:"):
        from elites.tasks.gymnasium import make

        return make(name, parameters)
    if name not in TASKS:
        raise ElitesError(f"unknown task {name!r}; the tasks are {', '.join(TASKS)}, gym:ID")
    task = TASKS[name]
    return dataclasses.replace(task, **checked(type(task), parameters, name, task.fixed))


def parameters_of(task: Task) -> dict[str, Any]:
    """All parameters of a task, as arguments of `make_task`."""
    return {
        field.name: getattr(task, field.name)
        for field in dataclasses.fields(task)
        if field.name not in task.fixed
    }

"""All tasks by their names."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from elites.errors import ElitesError
from elites.imports import load_object
from elites.options import check_parameters
from elites.tasks import brax, mujoco, qdgym
from elites.tasks.function import PREFIX, FunctionTask, function_task
from elites.tasks.task import Task

Kind = TypeVar("Kind", bound=Task)
TASKS: dict[str, Task] = {task.name: task for task in (*qdgym.TASKS, *brax.TASKS, *mujoco.TASKS)}


def make_task(name: str, **parameters: Any) -> Task:
    """The task with this name and, where given, these parameters (`noise`, `episode_length`, …).

    `gym:ID` is a Gymnasium environment: see `elites.gymnasium_task`. `mujoco:FILE` is your own robot: see
    `elites.mujoco_task`. `module:task` is your own task: a Task, or a function of a batch (`elites.task`).
    """
    if name.startswith("gym:"):
        from elites.tasks.gymnasium import make

        return make(name, parameters)
    if name.startswith("mujoco:"):
        from elites.tasks.mujoco.robot import make as make_robot

        return make_robot(name, parameters)
    if name.startswith(PREFIX):
        raise ElitesError(
            f"{name} was only in the memory of the process that ran it, and no file has it; pass it again in "
            "Python: elites.resume(folder, task=elites.task(…)(function))"
        )
    if name not in TASKS and ":" in name:
        return _task_at(name, parameters)
    if name not in TASKS:
        kinds = "gym:ID, mujoco:FILE, module:task"
        raise ElitesError(f"unknown task {name!r}; the tasks are {', '.join(TASKS)}, {kinds}")
    return TASKS[name].with_parameters(parameters)


def resolve_environment_task(
    task: str | Kind, kind: type[Kind], kind_name: str, parameters: dict[str, Any]
) -> Kind:
    """The task of one of our Gymnasium environments: made from a name and parameters, or given as a Task."""
    if "episode_length" in parameters:
        raise ElitesError(
            "episode_length is a parameter of evaluators; Gymnasium's limit is max_episode_steps"
        )
    if isinstance(task, str):
        named = make_task(task, **parameters)
        if not isinstance(named, kind):
            raise ElitesError(f"task is {task}; it must be a {kind_name} task")
        return named
    if parameters:
        raise ElitesError(f"parameters are {parameters}; they can only be set if task is a name")
    return task


def _task_at(path: str, parameters: dict[str, Any]) -> Task:
    """The task at `module:task`."""
    given = load_object(path, "task")
    if isinstance(given, Task):
        return dataclasses.replace(given, name=path).with_parameters(parameters)
    if callable(given) and {"parameters", "descriptor_bounds"} <= parameters.keys():
        values = check_parameters(FunctionTask, parameters, path, FunctionTask.fixed)
        return function_task(given, name=path, **values)
    raise ElitesError(
        f"task {path!r} is not a task; it must be an elites.Task, or decorated with elites.task"
    )


def list_parameters(task: Task) -> dict[str, Any]:
    """All parameters of a task, as arguments of `make_task`."""
    return {
        field.name: getattr(task, field.name)
        for field in dataclasses.fields(task)
        if field.name not in task.fixed
    }


def describe_task(task: Task) -> dict[str, Any]:
    """The description of a task that an archive contains."""
    return {
        "name": task.name,
        "parameters": list_parameters(task),
        "qd_offset": task.qd_offset,
        "descriptor_names": task.descriptor_names,
        "descriptor_phrase": task.descriptor_phrase,
    }

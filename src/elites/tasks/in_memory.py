"""Functions of a task that only the process that began a run has in memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elites.errors import require
from elites.imports import is_in_memory, load_function, put_in_memory
from elites.tasks import list_parameters, make_task
from elites.tasks.function import PREFIX as FUNCTION
from elites.tasks.function import FunctionTask
from elites.tasks.gymnasium import PREFIX as GYMNASIUM
from elites.tasks.gymnasium import GymnasiumTask
from elites.tasks.task import Task

_functions: dict[Path, FunctionTask] = {}  # of runs with a function in memory, by their folders
NOT_COMPARED = ("qd_offset", "qd_offset_from", "patience")  # may differ when a task is passed again


def remember_function(folder: Path, task: Task) -> None:
    """Remembers the function in memory that the run in a folder optimises, if it has one."""
    if isinstance(task, FunctionTask) and task.name.startswith(FUNCTION):
        _functions[folder.resolve()] = task


def forget_function(folder: Path) -> None:
    """Frees the function of a run whose folder is gone."""
    _functions.pop(folder.resolve(), None)


def make_recorded_task(folder: Path, name: str, parameters: Mapping[str, Any]) -> Task:
    """The task of the run in a folder, which its record has as a name and parameters."""
    task = _functions.get(folder.resolve())
    if task is not None and task.name == name:
        return task.with_parameters(dict(parameters))
    return make_task(name, **parameters)


def provide_functions(folder: Path, name: str, parameters: Mapping[str, Any], task: Task) -> None:
    """Uses the functions of `task` for those of a run's recorded task that were only in memory.

    Raises an error if it is another task.
    """
    recorded, given = dict(parameters), list_parameters(task)
    is_function = isinstance(task, FunctionTask) and name.startswith(FUNCTION)
    if isinstance(task, GymnasiumTask) and name.startswith(GYMNASIUM):
        recorded = {"environment": name.removeprefix(GYMNASIUM), **recorded}
        given = {"environment": task.environment, **given}
    elif not is_function:  # a function may have another name now
        require(task.name == name, "task", task.name, f"{name}, as in the run")
    if not (task.function_fields or is_function):
        return
    provided = {
        parameter: load_function(given[parameter], parameter)
        for parameter in task.function_fields
        if given[parameter] and is_in_memory(str(recorded.get(parameter)))
    }
    for parameter, value in given.items():
        if parameter in recorded and parameter not in (*NOT_COMPARED, *provided):
            same = json.dumps(value) == json.dumps(recorded[parameter])
            require(same, parameter, value, f"{recorded[parameter]}, as in the run")
    for parameter, function in provided.items():
        put_in_memory(recorded[parameter], function)
    if is_function:
        remember_function(folder, dataclasses.replace(task, name=name))

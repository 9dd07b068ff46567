"""Functions of a task that only the process that began a run had in memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from elites.errors import require
from elites.imports import function_at, is_in_memory, put_in_memory
from elites.tasks import list_parameters, register_task
from elites.tasks.function import PREFIX as FUNCTION
from elites.tasks.function import FunctionTask
from elites.tasks.gymnasium import PREFIX as GYMNASIUM
from elites.tasks.gymnasium import GymnasiumTask
from elites.tasks.task import Task

NOT_COMPARED = ("qd_offset", "qd_offset_from", "patience")  # may differ when a task is passed again


def provide_functions(name: str, parameters: Mapping[str, Any], task: Task) -> None:
    """Uses the functions of `task` for those of a recorded task that were only in memory.

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
        parameter: function_at(given[parameter], parameter)
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
        register_task(dataclasses.replace(task, name=name))

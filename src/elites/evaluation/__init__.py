"""How controllers are evaluated."""

from __future__ import annotations

from typing import Any

from elites.errors import ElitesError
from elites.tasks.task import CompiledTask, DeviceTask, HostTask, Task


def evaluator_of(task: Task, hidden: tuple[int, ...], threads: int | None) -> Any:
    """What runs episodes of this task: an Evaluator, to be closed after use."""
    if isinstance(task, DeviceTask):
        from elites.evaluation.device import DeviceEvaluator

        return DeviceEvaluator(task, hidden=hidden)
    if isinstance(task, CompiledTask):
        from elites.evaluation.threads import ThreadEvaluator

        return ThreadEvaluator(task, hidden=hidden, threads=threads)
    if isinstance(task, HostTask):
        from elites.evaluation.processes import ProcessEvaluator

        return ProcessEvaluator(task, hidden=hidden, processes=threads)
    raise ElitesError(f"{task.name} cannot be run")

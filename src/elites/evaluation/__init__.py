"""Evaluators run batches of controllers on a task: on threads, in processes, on a cluster or on a device."""

from __future__ import annotations

from elites.errors import ElitesError
from elites.evaluation.evaluation import Evaluator
from elites.evaluation.physics import choose_physics
from elites.options import Physics, Threads, convert_value
from elites.tasks.function import FunctionTask
from elites.tasks.task import CompiledTask, DeviceTask, HostTask, Task


def make_evaluator(
    task: Task,
    hidden: tuple[int, ...],
    threads: int | None,
    cluster: str | None = None,
    physics: Physics | None = None,
) -> Evaluator:
    """An evaluator of this task, here or on a Ray cluster. It must be closed after use.

    `physics` is for tasks in JAX; the default is XLA.
    """
    if cluster is None:
        convert_value(Threads | None, "threads", threads)
    if isinstance(task, DeviceTask | FunctionTask):
        refuse_cluster(task, cluster)
    if physics is not None:
        choose_physics(task, physics)  # raises an error if it is not available, or not for this task
    if isinstance(task, DeviceTask):
        if physics == "native":
            from elites.evaluation.native import NativeEvaluator

            return NativeEvaluator(task, hidden=hidden, threads=threads)
        from elites.evaluation.device import DeviceEvaluator

        return DeviceEvaluator(task, hidden=hidden, physics=physics)
    if isinstance(task, FunctionTask):
        from elites.evaluation.function import FunctionEvaluator

        return FunctionEvaluator(task)
    if cluster is not None:
        from elites.evaluation.cluster import ClusterEvaluator

        return ClusterEvaluator(task, cluster, hidden=hidden, threads=threads)
    if isinstance(task, CompiledTask):
        from elites.evaluation.threads import ThreadEvaluator

        return ThreadEvaluator(task, hidden=hidden, threads=threads)
    if isinstance(task, HostTask):
        from elites.evaluation.processes import ProcessEvaluator

        return ProcessEvaluator(task, hidden=hidden, processes=threads)
    raise ElitesError(f"{task.name} has no evaluator; it must be a HostTask or a DeviceTask")


def refuse_cluster(task: Task, cluster: str | None) -> None:
    """Raises an error if a cluster is given for a task in JAX, or for a function.

    Results on a cluster must not depend on which machine runs an episode. Results in JAX do, because
    processors round differently.
    """
    if cluster is not None:
        raise ElitesError(
            f"--cluster cannot distribute the episodes of {task.name}: their results would depend on the "
            "processor; `elites study run --cluster` distributes whole runs"
        )

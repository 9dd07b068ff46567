"""Chooses the physics of a task in JAX: XLA, native code or a CUDA kernel."""

from __future__ import annotations

from elites.errors import ElitesError
from elites.evaluation.threads import choose_thread_count
from elites.files import make_one_line
from elites.options import Physics
from elites.tasks.task import DeviceTask, Task

# Measured on an H200 with 16 cores and 20 seeds: native code took 0.29 s per generation of walker2d (22,000
# operations a step) and 0.50 s of ant (62,000), a kernel 0.33 s and 0.40 s. With one seed native code was 1.6
# and 2.7 times as fast.
SEEDS_PER_THREAD, SEEDS_PER_THREAD_IF_LONG = 1.25, 1.0  # up to these, native code is faster
LONG_STEP = 40_000  # operations
_NAMES: dict[Physics, str] = {"xla": "XLA", "native": "native code", "cuda": "a CUDA kernel"}


def refuse_physics(task: Task, physics: Physics | None) -> None:
    """Raises an error if physics is chosen for a task that has its own simulator, or none."""
    if physics is not None and not isinstance(task, DeviceTask):
        raise ElitesError(f"physics is {physics}; it is for tasks in JAX, such as Brax's, not {task.name}")


def choose_physics(
    task: Task, requested: Physics | None, seeds: int = 1, threads: int | None = None
) -> tuple[Physics | None, str]:
    """The physics of episodes and a line that names it: the requested one, or else the fastest.

    The fastest is native code, unless there is a GPU and there are more than 1.25 seeds per thread (more than
    one if a step has many operations). For a task that is not in JAX there is no choice: the result is None
    and an empty line. Raises an error if the requested physics is not available.
    """
    refuse_physics(task, requested)
    if not isinstance(task, DeviceTask):
        return None, ""
    threads, problem = choose_thread_count(threads), ""
    physics = requested or _fastest(task, seeds, threads)
    if physics != "xla":
        from elites.native import UnknownPrimitiveError
        from elites.native.cuda import CudaError

        try:
            _compile(task, physics)
        except (UnknownPrimitiveError, CudaError) as error:
            if requested is not None:
                raise ElitesError(
                    f"{task.name} cannot use {requested} physics: {make_one_line(error)}"
                ) from None
            physics, problem = "xla", f"; {_NAMES[physics]} is not possible: {make_one_line(error)}"
    more = f" in {threads} thread{'s' * (threads != 1)}" if physics == "native" else problem
    return physics, f"physics: {_NAMES[physics]}{more}"


def _fastest(task: DeviceTask, seeds: int, threads: int) -> Physics:
    """The fastest physics, as measured in docs/performance.md."""
    import jax

    backend = jax.default_backend()
    if backend == "cpu" or seeds <= SEEDS_PER_THREAD_IF_LONG * threads:
        return "native"
    if seeds <= SEEDS_PER_THREAD * threads and not (backend == "gpu" and _has_long_steps(task)):
        return "native"
    return "cuda" if backend == "gpu" else "xla"


def _has_long_steps(task: DeviceTask) -> bool:
    from elites.evaluation.native import make_programs
    from elites.native import UnknownPrimitiveError

    try:
        return make_programs(task).step.work > LONG_STEP
    except UnknownPrimitiveError:
        return False  # it cannot be a kernel either


def _compile(task: DeviceTask, physics: Physics) -> None:
    if physics == "native":
        from elites.evaluation.native import make_programs

        make_programs(task)
    else:
        from elites.evaluation.device import make_batch_functions

        make_batch_functions(task, physics)

"""Evaluation on threads, for tasks whose episodes run in compiled code outside the interpreter's lock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from elites.errors import ElitesError
from elites.evaluation.evaluation import Evaluation, Evaluator, blank_evaluation
from elites.options import Spread, Threads, converted
from elites.policies.layout import parameter_count
from elites.tasks.episode import EpisodeResult, Transitions
from elites.tasks.task import CompiledTask, Simulator, Task


class ThreadEvaluator(Evaluator):
    """Runs batches with one simulator per thread; a thread that is free takes the next episode."""

    def __init__(
        self, task: CompiledTask, *, hidden: tuple[int, ...] = (128, 128), threads: int | None = None
    ) -> None:
        """`hidden` are the sizes of the hidden layers; there is one thread per core by default."""
        threads = thread_count(threads)
        self.task = task
        self.sizes = task.controller(hidden)
        self._simulators = [task.simulator() for _ in range(threads)]
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="episodes")
        self._stop = np.zeros(1, np.uint8)

    def evaluate(
        self,
        parameters: ArrayLike,
        seeds: ArrayLike,
        *,
        transitions: bool = False,
        action_noise: float = 0.0,
        limit: int | None = None,
        on_episode: Callable[[int], None] | None = None,
    ) -> Evaluation[np.ndarray]:
        """See `Evaluator.evaluate`. An interrupt ends the running episodes at their next step."""
        if not self._simulators:
            raise ElitesError("the evaluator is closed")
        parameters, seeds, noise, total = checked_batch(
            self.task, self.sizes, parameters, seeds, action_noise, limit
        )
        evaluation = blank_evaluation(self.task, seeds, transitions)
        finished: SimpleQueue[int | Exception] = SimpleQueue()
        indices = itertools.count()  # shared: `next` on it is atomic
        layers = np.array(self.sizes)

        def work(simulator: Simulator) -> None:
            while (index := next(indices)) < total and not self._stop[0]:
                at = np.unravel_index(index, seeds.shape)
                rows = evaluation.transitions
                record = rows and Transitions(*(array[at] for array in rows))
                try:
                    result = simulator.run(
                        parameters[at[0]], layers, int(seeds[at]), self._stop, record, noise
                    )
                except Exception as error:
                    finished.put(_with_episode(error, self.task.name, int(seeds[at])))
                    return
                _store(result, evaluation, at)
                finished.put(result.length)

        self._stop[0] = 0
        workers = [self._executor.submit(work, simulator) for simulator in self._simulators]
        try:
            for _ in range(total):
                length = finished.get()
                if isinstance(length, Exception):
                    raise length
                if on_episode is not None:
                    on_episode(length)
        finally:
            self._stop[0] = 1
            wait(workers)
        return evaluation

    def close(self) -> None:
        """Ends the threads and frees the simulators."""
        self._executor.shutdown()
        while self._simulators:
            self._simulators.pop().close()


def thread_count(threads: int | None) -> int:
    """The given number, or one per core."""
    return len(os.sched_getaffinity(0)) if threads is None else converted(Threads, "threads", threads)


class CheckedBatch(NamedTuple):
    """The arguments of `Evaluator.evaluate` as simulators expect them: compiled code checks nothing."""

    parameters: np.ndarray
    seeds: np.ndarray
    noise: float
    total: int  # episodes to run


def checked_batch(
    task: Task,
    sizes: tuple[int, ...],
    parameters: ArrayLike,
    seeds: ArrayLike,
    action_noise: float,
    limit: int | None,
) -> CheckedBatch:
    """The arguments, checked; `sizes` are those of the controllers' layers."""
    parameters = np.ascontiguousarray(parameters, np.float32).view()
    parameters.flags.writeable = False  # JAX's arrays are read-only: one type, compiled once
    size = parameter_count(sizes)
    if parameters.ndim != 2 or parameters.shape[1] != size:
        raise ElitesError(
            f"parameters have shape {parameters.shape}; {task.name} with layers {sizes} "
            f"takes (controllers, {size})"
        )
    seeds = np.asarray(seeds)
    in_range = seeds.size == 0 or 0 <= seeds.min() <= seeds.max() < 2**32
    if not np.issubdtype(seeds.dtype, np.integer) or not in_range:
        raise ElitesError(f"seeds are {seeds}; they must be whole numbers from 0 to 2**32 - 1")
    if seeds.ndim not in (1, 2) or len(seeds) != len(parameters):
        raise ElitesError(
            f"seeds have shape {seeds.shape}; {len(parameters)} controllers take ({len(parameters)},) "
            f"or ({len(parameters)}, episodes)"
        )
    total = seeds.size if limit is None else min(max(limit, 0), seeds.size)
    return CheckedBatch(parameters, seeds, converted(Spread, "action_noise", action_noise), total)


def _store(result: EpisodeResult, evaluation: Evaluation[np.ndarray], at: tuple[np.integer, ...]) -> None:
    evaluation.fitness[at] = result.fitness
    evaluation.descriptor[at] = result.descriptor
    evaluation.length[at] = result.length
    evaluation.ending[at] = result.ending


def _with_episode(error: Exception, task: str, seed: int) -> Exception:
    """The error, with the episode that raised it."""
    named = ElitesError(f"{task}: the episode with seed {seed} failed: {error}")
    named.__cause__ = error
    return named

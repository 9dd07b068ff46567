"""Evaluation on threads, for tasks whose episodes run in compiled code outside the interpreter's lock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from queue import SimpleQueue

import numpy as np

from elites.errors import ElitesError
from elites.evaluation.evaluation import Evaluation, Evaluator, flatten_episodes
from elites.options import Threads, convert_value
from elites.policies.layout import HIDDEN
from elites.tasks.episode import EpisodeResult, Transitions
from elites.tasks.task import CompiledTask, Simulator


class ThreadEvaluator(Evaluator):
    """Runs batches with one simulator per thread; a thread that is free takes the next episode."""

    def __init__(
        self, task: CompiledTask, *, hidden: tuple[int, ...] = HIDDEN, threads: int | None = None
    ) -> None:
        """`hidden` are the sizes of the hidden layers; there is one thread per core by default."""
        threads = choose_thread_count(threads)
        super().__init__(task, task.controller_sizes(hidden))
        self._simulators = [task.make_simulator() for _ in range(threads)]
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="episodes")
        self._stop = np.zeros(1, np.uint8)

    def _run(
        self,
        parameters: np.ndarray,
        evaluation: Evaluation[np.ndarray],
        total: int,
        noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> Evaluation[np.ndarray]:
        rows, episodes = flatten_episodes(evaluation), evaluation.seed.size // len(parameters)
        finished: SimpleQueue[int | Exception] = SimpleQueue()
        indices = itertools.count()  # shared: `next` on it is atomic
        layers = np.array(self.sizes)

        def work(simulator: Simulator) -> None:
            while (index := next(indices)) < total and not self._stop[0]:
                seed, steps = int(rows.seed[index]), rows.transitions
                record = steps and Transitions(*(array[index] for array in steps))
                try:
                    result = simulator.run(
                        parameters[index // episodes], layers, seed, self._stop, record, noise
                    )
                except Exception as error:
                    finished.put(_with_episode(error, self.task.name, seed))
                    return
                _store(result, rows, index)
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
        super().close()
        self._executor.shutdown()
        while self._simulators:
            self._simulators.pop().close()


def choose_thread_count(threads: int | None) -> int:
    """The given number, or one per core."""
    return len(os.sched_getaffinity(0)) if threads is None else convert_value(Threads, "threads", threads)


def _store(result: EpisodeResult, rows: Evaluation[np.ndarray], index: int) -> None:
    rows.fitness[index] = result.fitness
    rows.descriptor[index] = result.descriptor
    rows.length[index] = result.length
    rows.ending[index] = result.ending


def _with_episode(error: Exception, task: str, seed: int) -> Exception:
    """The error, with the episode that raised it."""
    named = ElitesError(f"{task}: the episode with seed {seed} failed: {error}")
    named.__cause__ = error
    return named

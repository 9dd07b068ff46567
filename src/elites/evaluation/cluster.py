"""Evaluation on a Ray cluster: an actor on each machine runs episodes on all cores that the machine offers.

A result does not depend on the machine that ran the episode. Other machines run the
episodes of a machine that is lost. Machines that join later get episodes, too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from elites.cluster import connect, differing_package, list_machines, read_versions
from elites.errors import ElitesError
from elites.evaluation import make_evaluator
from elites.evaluation.evaluation import Evaluation, Evaluator, flatten_episodes
from elites.imports import add_pickled
from elites.policies.layout import HIDDEN
from elites.tasks.episode import Transitions
from elites.tasks.task import Task

SEARCH_SECONDS = 10.0  # between searches for machines that have joined
NO_MACHINE_SECONDS = 120.0  # without any machine before the evaluation fails
IN_FLIGHT = 2  # parts given to an actor at a time, so that it never waits for the next one
PARTS_PER_THREAD = 4  # at least, of a large batch, so that all threads end at about the same time

EXTRA_ROWS = (1, 0, 0, 0)  # of each array of Transitions: an episode has one observation more than steps


class Part(NamedTuple):
    """Consecutive episodes of a batch."""

    first: int
    last: int


class PartResult(NamedTuple):
    """The evaluation of a part. Transitions are separate, without the rows after the end of each episode."""

    evaluation: Evaluation[np.ndarray]
    steps: Transitions[np.ndarray] | None  # rows of all episodes, one after another


class EvaluatorActor:
    """An evaluator on one machine."""

    def __init__(self, task: Task, functions: dict[str, str], hidden: tuple[int, ...], threads: int) -> None:
        add_pickled(functions)
        self.evaluator = make_evaluator(task, hidden, threads)

    def package_versions(self) -> dict[str, str | None]:
        """The versions of the packages on this machine."""
        return read_versions()

    def evaluate(
        self,
        parameters: np.ndarray,
        rows: np.ndarray,
        seeds: np.ndarray,
        transitions: bool,
        action_noise: float = 0.0,
    ) -> PartResult:
        """Runs an episode of `parameters[row]` for each row, with its seed."""
        evaluation = self.evaluator.evaluate(
            parameters[rows], seeds, transitions=transitions, action_noise=action_noise
        )
        steps = evaluation.transitions
        if steps is None:
            return PartResult(evaluation, None)
        flat = Transitions(
            *(
                np.concatenate(
                    [array[index, : length + extra] for index, length in enumerate(evaluation.length)]
                )
                for array, extra in zip(steps, EXTRA_ROWS, strict=True)
            )
        )
        return PartResult(evaluation._replace(transitions=None), flat)


@dataclass
class _Actor:
    node: str
    threads: int
    handle: Any
    versions: Any  # a reference to its package versions, available once it has started
    started: bool = False
    in_flight: int = 0  # parts


class ClusterEvaluator(Evaluator):
    """Runs batches on all machines of a Ray cluster."""

    def __init__(
        self,
        task: Task,
        address: str,
        *,
        hidden: tuple[int, ...] = HIDDEN,
        threads: int | None = None,
    ) -> None:
        """`threads` is the number on each machine; by default, the number of cores that it offers."""
        if threads is not None and threads < 1:
            raise ElitesError(f"threads is {threads}; it must be at least 1")
        self._ray = connect(address)
        super().__init__(task, task.controller_sizes(hidden))
        self._hidden, self._threads = hidden, threads
        self._actors: dict[str, _Actor] = {}
        self._searched = -np.inf  # time of the last search for machines
        self._start_actors()
        if not self._actors:
            raise ElitesError(f"the Ray cluster at {address!r} has no machine with a free core")

    def _run(
        self,
        parameters: np.ndarray,
        evaluation: Evaluation[np.ndarray],
        total: int,
        noise: float,
        on_episode: Callable[[int], None] | None,
    ) -> Evaluation[np.ndarray]:
        """See `Evaluator._run`. Episodes of a lost machine are run again by another one."""
        results, episodes = flatten_episodes(evaluation), evaluation.seed.size // len(parameters)
        transitions = evaluation.transitions is not None
        waiting = deque(self._parts(total))
        in_flight: dict[Any, tuple[_Actor, Part]] = {}
        no_machine_since = time.monotonic()
        while waiting or in_flight:
            self._start_actors()
            for actor in self._free_actors(waiting):
                part = waiting.popleft()
                rows = np.arange(part.first, part.last) // episodes
                sent = parameters[rows[0] : rows[-1] + 1]
                call = actor.handle.evaluate.remote(
                    sent, rows - rows[0], results.seed[part.first : part.last], transitions, noise
                )
                in_flight[call] = (actor, part)
                actor.in_flight += 1
            starting = [actor.versions for actor in self._actors.values() if not actor.started]
            if not in_flight and not starting:
                if time.monotonic() - no_machine_since > NO_MACHINE_SECONDS:
                    raise ElitesError("no machine of the Ray cluster is left")
                time.sleep(0.5)
                continue
            no_machine_since = time.monotonic()
            done, _ = self._ray.wait([*in_flight, *starting], timeout=1.0)
            for call in done:
                if call in in_flight:
                    actor, part = in_flight.pop(call)
                    actor.in_flight -= 1
                    result = self._await_result(call, actor)
                    if result is None:
                        waiting.appendleft(part)
                        continue
                    _store(result, results, part)
                    if on_episode is not None:
                        for length in result.evaluation.length:
                            on_episode(int(length))
                else:
                    self._mark_started(call)
        return evaluation

    def close(self) -> None:
        """Ends the actors. The cluster itself keeps running."""
        super().close()
        while self._actors:
            _, actor = self._actors.popitem()
            self._ray.kill(actor.handle)

    def _start_actors(self) -> None:
        """Starts an actor on each machine that has none."""
        if time.monotonic() - self._searched < SEARCH_SECONDS:
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._searched = time.monotonic()
        for node in list_machines(self._ray):
            name = node["NodeID"]
            if name in self._actors:
                continue
            cores = int(node["Resources"]["CPU"])
            threads = cores if self._threads is None else self._threads
            actor = self._ray.remote(EvaluatorActor).options(
                num_cpus=min(cores, threads),
                scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
            )
            handle = actor.remote(self.task, self.task.pickled_functions(), self._hidden, threads)
            self._actors[name] = _Actor(name, threads, handle, handle.package_versions.remote())

    def _mark_started(self, call: Any) -> None:
        """Notes that an actor has started, unless its machine is lost, and compares its package versions."""
        actor = next(actor for actor in self._actors.values() if actor.versions == call)
        theirs = self._await_result(call, actor)
        if theirs is None:
            return
        ours = read_versions()
        if (name := differing_package(ours, theirs)) is not None:
            raise ElitesError(f"a machine of the cluster has {name} {theirs[name]}, this one {ours[name]}")
        actor.started = True

    def _await_result(self, call: Any, actor: _Actor) -> Any:
        """The result of a call; None if its machine or process is lost."""
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, ElitesError) else error
            raise ElitesError(str(cause).strip().splitlines()[-1]) from None
        except self._ray.exceptions.RayError:
            if self._actors.get(actor.node) is actor:
                del self._actors[actor.node]
                self._searched = -np.inf  # perhaps only the process died
            return None

    def _free_actors(self, waiting: deque[Part]) -> list[_Actor]:
        """Actors that can take a part, once per part that they can take; the least busy ones first."""
        free = [
            (place, actor)
            for actor in self._actors.values()
            if actor.started
            for place in range(actor.in_flight, IN_FLIGHT)
        ]
        free.sort(key=lambda pair: pair[0])
        return [actor for _, actor in free][: len(waiting)]

    def _parts(self, total: int) -> list[Part]:
        threads = [actor.threads for actor in self._actors.values()] or [1]
        size = max(max(threads), total // (PARTS_PER_THREAD * sum(threads)))
        return [Part(first, min(first + size, total)) for first in range(0, total, size)]


def _store(result: PartResult, results: Evaluation[np.ndarray], part: Part) -> None:
    """Copies the results of a part into the evaluation of the batch, which has one row per episode."""
    for name in ("fitness", "descriptor", "length", "ending"):
        getattr(results, name)[part.first : part.last] = getattr(result.evaluation, name)
    if result.steps is None:
        return
    for array, rows, extra in zip(results.recorded, result.steps, EXTRA_ROWS, strict=True):
        start = 0
        for index, steps in enumerate(result.evaluation.length, part.first):
            length = int(steps) + extra
            array[index, :length] = rows[start : start + length]
            start += length

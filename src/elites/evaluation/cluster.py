"""Evaluation on a Ray cluster: an actor on each machine runs episodes on all cores that the machine offers.

Which machine runs an episode changes nothing in its result. Episodes that a lost machine was running are
given to the others; one that joins is put to use.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from elites.cluster import connect, differing, nodes, versions
from elites.errors import ElitesError
from elites.evaluation import evaluator_of
from elites.evaluation.evaluation import Evaluation, blank_evaluation
from elites.evaluation.threads import checked_batch
from elites.tasks.episode import Transitions
from elites.tasks.task import Task

LOOK_SECONDS = 10.0  # between looks for machines that have joined
NOBODY_SECONDS = 120.0  # without any machine before giving up
IN_FLIGHT = 2  # parts given to an actor at a time: it need not wait for the next
PARTS = 4  # a thread gets, at least, of a large batch: so that all end at about the same time


class Part(NamedTuple):
    """Some episodes in a row of a batch."""

    first: int
    last: int


class Told(NamedTuple):
    """What a part came to: an Evaluation whose transitions end where their episodes do."""

    evaluation: Evaluation[np.ndarray]
    steps: Transitions[np.ndarray] | None  # rows of all episodes, one after another


class Episodes:
    """The actor: an evaluator on one machine."""

    def __init__(self, task: Task, hidden: tuple[int, ...], threads: int) -> None:
        self.evaluator = evaluator_of(task, hidden, threads)

    def about(self) -> dict[str, str | None]:
        """The versions that it runs."""
        return versions()

    def evaluate(
        self, parameters: np.ndarray, rows: np.ndarray, seeds: np.ndarray, transitions: bool
    ) -> Told:
        """An episode of `parameters[row]` for each row, with its seed."""
        found = self.evaluator.evaluate(parameters[rows], seeds, transitions=transitions)
        steps = found.transitions
        if steps is None:
            return Told(found, None)
        flat = Transitions(
            *(
                np.concatenate([array[index, : length + more] for index, length in enumerate(found.length)])
                for array, more in zip(steps, (1, 0, 0, 0), strict=True)
            )
        )
        return Told(found._replace(transitions=None), flat)


@dataclass
class _Actor:
    node: str
    threads: int
    handle: Any
    ready: Any  # a reference that is there once it has started
    started: bool = False
    flying: int = 0


class ClusterEvaluator:
    """Runs batches on all machines of a Ray cluster."""

    def __init__(
        self,
        task: Task,
        address: str,
        *,
        hidden: tuple[int, ...] = (128, 128),
        threads: int | None = None,
    ) -> None:
        """`threads` are those on each machine; as many as it offers cores unless given."""
        if threads is not None and threads < 1:
            raise ElitesError(f"threads is {threads}; it must be at least 1")
        self._ray = connect(address)
        self.task, self.sizes, self._hidden, self._threads = task, task.controller(hidden), hidden, threads
        self._actors: dict[str, _Actor] = {}
        self._looked = -np.inf
        self._open = True
        self._look()
        if not self._actors:
            raise ElitesError(f"the Ray cluster at {address!r} has no machine with a free core")

    def evaluate(
        self,
        parameters: ArrayLike,
        seeds: ArrayLike,
        *,
        transitions: bool = False,
        limit: int | None = None,
        on_episode: Callable[[int], None] | None = None,
    ) -> Evaluation[np.ndarray]:
        """See `Evaluator.evaluate`. What a lost machine was doing is done again by another."""
        if not self._open:
            raise ElitesError("the evaluator is closed")
        parameters, seeds = checked_batch(self.task, self.sizes, parameters, seeds)
        evaluation = blank_evaluation(self.task, seeds, transitions)
        total = seeds.size if limit is None else min(max(limit, 0), seeds.size)
        episodes = seeds.size // max(1, len(parameters))
        flat = seeds.ravel()
        waiting = deque(self._parts(total))
        flying: dict[Any, tuple[_Actor, Part]] = {}
        alone_since = time.monotonic()
        while waiting or flying:
            self._look()
            for actor in self._free(waiting):
                part = waiting.popleft()
                rows = np.arange(part.first, part.last) // episodes
                sent = parameters[rows[0] : rows[-1] + 1]
                call = actor.handle.evaluate.remote(
                    sent, rows - rows[0], flat[part.first : part.last], transitions
                )
                flying[call] = (actor, part)
                actor.flying += 1
            starting = [actor.ready for actor in self._actors.values() if not actor.started]
            if not flying and not starting:
                if time.monotonic() - alone_since > NOBODY_SECONDS:
                    raise ElitesError("no machine of the Ray cluster is left")
                time.sleep(0.5)
                continue
            alone_since = time.monotonic()
            done, _ = self._ray.wait([*flying, *starting], timeout=1.0)
            for call in done:
                if call in flying:
                    actor, part = flying.pop(call)
                    actor.flying -= 1
                    told = self._got(call, actor)
                    if told is None:
                        waiting.appendleft(part)
                        continue
                    _store(told, evaluation, part)
                    if on_episode is not None:
                        for length in told.evaluation.length:
                            on_episode(int(length))
                else:
                    self._begun(call)
        return evaluation

    def at_once(self, episodes: int) -> int | None:
        """Any number will do."""
        return None

    def close(self) -> None:
        """Ends the actors; the cluster goes on."""
        self._open = False
        while self._actors:
            _, actor = self._actors.popitem()
            self._ray.kill(actor.handle)

    def __enter__(self) -> ClusterEvaluator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _look(self) -> None:
        """Puts an actor on each machine that has none."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._looked = time.monotonic()
        for node in nodes(self._ray):
            name = node["NodeID"]
            if name in self._actors:
                continue
            cores = int(node["Resources"]["CPU"])
            threads = cores if self._threads is None else self._threads
            made = self._ray.remote(Episodes).options(
                num_cpus=min(cores, threads),
                scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
            )
            handle = made.remote(self.task, self._hidden, threads)
            self._actors[name] = _Actor(name, threads, handle, handle.about.remote())

    def _begun(self, call: Any) -> None:
        """An actor has started, or its machine is lost."""
        actor = next(actor for actor in self._actors.values() if actor.ready == call)
        about = self._got(call, actor)
        if about is None:
            return
        ours = versions()
        if (name := differing(ours, about)) is not None:
            raise ElitesError(f"a machine of the cluster has {name} {about[name]}, this one {ours[name]}")
        actor.started = True

    def _got(self, call: Any, actor: _Actor) -> Any:
        """What a call came to; None if its machine or process is lost."""
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, ElitesError) else error
            raise ElitesError(str(cause).strip().splitlines()[-1]) from None
        except self._ray.exceptions.RayError:
            if self._actors.get(actor.node) is actor:
                del self._actors[actor.node]
                self._looked = -np.inf  # it may be only the process that died
            return None

    def _free(self, waiting: deque[Part]) -> list[_Actor]:
        """Actors that can take a part, as often as they can; those with the least to do first."""
        room = [
            (place, actor)
            for actor in self._actors.values()
            if actor.started
            for place in range(actor.flying, IN_FLIGHT)
        ]
        room.sort(key=lambda found: found[0])
        return [actor for _, actor in room][: len(waiting)]

    def _parts(self, total: int) -> list[Part]:
        threads = [actor.threads for actor in self._actors.values()] or [1]
        size = max(max(threads), total // (PARTS * sum(threads)))
        return [Part(first, min(first + size, total)) for first in range(0, total, size)]


def _store(told: Told, evaluation: Evaluation[np.ndarray], part: Part) -> None:
    """Puts a part's episodes where they belong."""
    found, count = told.evaluation, part.last - part.first
    for name in ("fitness", "descriptor", "length", "ending"):
        whole: np.ndarray = getattr(evaluation, name)
        whole.reshape(evaluation.seed.size, *whole.shape[evaluation.seed.ndim :])[part.first : part.last] = (
            getattr(found, name)
        )
    if told.steps is None or evaluation.transitions is None:
        return
    for whole, rows, more in zip(evaluation.transitions, told.steps, (1, 0, 0, 0), strict=True):
        into = whole.reshape(evaluation.seed.size, *whole.shape[evaluation.seed.ndim :])
        at = 0
        for index in range(count):
            length = int(found.length[index]) + more
            into[part.first + index, :length] = rows[at : at + length]
            at += length

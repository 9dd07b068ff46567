"""Replications whose episodes run outside the program: on threads, in processes or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from elites.algorithms.base import Batch, Round
from elites.evaluation.environment import raise_failure
from elites.evaluation.evaluation import Evaluation
from elites.experiments.generation import (
    CompiledFunctions,
    Counts,
    FinishedGeneration,
    Generation,
    Row,
    mask_within_budget,
)
from elites.experiments.replications import COMPILING, FIRST_EPISODES, Replications, has_accelerator


class _PlannedRound(NamedTuple):
    """A round of one of the next generations."""

    generation: int  # from 0
    number: int  # in its generation, from 0
    round: Round
    evaluations: int  # of each replication before it
    is_last: bool  # of its generation


class _AskedPart(NamedTuple):
    """The result of `ask` for a part, while genomes and seeds are copied to the host."""

    state: Any  # of the part, after `ask`
    batch: Batch
    parameters: jax.Array
    seeds: jax.Array  # of the episodes


class _Results(NamedTuple):
    """The results of a generation, by part."""

    counts: list[Counts]
    records: list[list[jax.Array]]  # of the offspring, by round
    rows: list[Row]
    timings: dict[str, float]  # seconds of all parts, and steps


class _TrainingExecutor(ThreadPoolExecutor):
    """Trains in one thread while episodes run, in the order of the calls.

    Without `in_thread`, the calling thread trains. The thread is for accelerators: a call of a program blocks
    while its transitions are copied to the device.
    """

    def __init__(self, in_thread: bool) -> None:
        super().__init__(1, thread_name_prefix="training")
        self.in_thread = in_thread

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # type: ignore[override]
        """The result of a function, now or later."""
        if self.in_thread:
            return super().submit(function, *arguments)
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done


class EpisodesOutside(Replications):
    """`ask` and `tell` are programs; the evaluator runs the episodes.

    On a CPU, each replication is a part: a program of one is faster there, as its arrays fit into the caches.
    The episodes of all parts are one batch. An accelerator trains one part while the episodes of another
    run, and goes on training while logs are written: the first `ask` of the next generation is called in
    advance. `state` remains the state before it.
    """

    inside = False
    functions: Generation
    compiled: CompiledFunctions
    timings = ("ask_s", "rollouts_s", "tell_s")  # seconds of waiting for each
    _ahead: list[Future[_AskedPart]] | None = None  # for the next generation, by part

    def advance(self, until: int) -> list[FinishedGeneration]:
        """One generation; if `ask` is called in advance, generations for about two seconds."""
        clock, kind = time.perf_counter(), self.functions.find_rounds(self.generation)
        plan = self._plan(self._generations_until(until) if self.asks_ahead else 1)
        results = {planned.generation: self._make_empty_results() for planned in plan}
        ahead = self._first_round_after(plan) if self.asks_ahead else None
        self._report_if_new(COMPILING)
        with _TrainingExecutor(in_thread=self.asks_ahead) as training:
            telling: dict[int, Future[None]] = {}  # the last call of `tell` for each part
            ask_results = self._ahead or [
                training.submit(self._ask, part, plan[0]) for part in range(self.parts)
            ]
            results[self.generation].timings["ask_s"] += time.perf_counter() - clock
            for planned, following in zip(plan, (*plan[1:], ahead), strict=True):
                result = results[planned.generation]
                for batch in self._list_batches():
                    started = time.perf_counter()
                    for part in batch:
                        if part in telling:
                            telling[part].result()  # an error of this part's last round
                    own = [ask_results[part].result() for part in batch]
                    parameters = _join([one.parameters for one in own])
                    seeds = _join([one.seeds for one in own])
                    raise_failure(self.algorithm.environment)
                    result.timings["ask_s"] += (ask_end := time.perf_counter()) - started
                    self._report_if_new(FIRST_EPISODES)
                    evaluation = self._evaluate(parameters, seeds, planned)
                    self._report_if_new(COMPILING)
                    result.timings["rollouts_s"] += (rollouts_end := time.perf_counter()) - ask_end
                    result.timings["steps_per_s"] += float(evaluation.length.sum())  # of the whole generation
                    for part, one, evaluated in zip(batch, own, self._split_by_part(evaluation), strict=True):
                        telling[part] = training.submit(self._tell, part, planned, one, evaluated, result)
                    result.timings["tell_s"] += (tell_end := time.perf_counter()) - rollouts_end
                    if following is not None:
                        for part in batch:
                            ask_results[part] = training.submit(self._ask, part, following)
                    result.timings["ask_s"] += time.perf_counter() - tell_end
            started, timings = time.perf_counter(), results[plan[-1].generation].timings
            for call in telling.values():
                call.result()
            jax.block_until_ready([(result.rows, result.records) for result in results.values()])
            timings["tell_s"] += (tell_end := time.perf_counter()) - started
        timings["ask_s"] += time.perf_counter() - tell_end
        self._ahead = None if ahead is None else ask_results
        self.paces[kind] = (time.perf_counter() - clock) / len(results)
        return [self._finish(result) for result in results.values()]

    def _ask(self, part: int, planned: _PlannedRound) -> _AskedPart:
        """Asks for the genomes of a round, and starts to copy them and their seeds to the host."""
        state = self.state[part]
        if (genomes := self.read_starting_genomes(planned.generation)) is not None:
            batch = self.compiled.make_starting_batch(genomes)
        else:
            numbers = np.int32(planned.generation), np.int32(planned.number)
            state, batch = self.compiled.ask(state, self.keys[part], *numbers, planned.round)
        seeds = self.compiled.derive_episode_seeds(
            self.keys[part], np.int32(planned.evaluations), planned.round
        )
        return _AskedPart(state, batch, *to_host((batch.parameters, seeds)))

    def _tell(
        self,
        part: int,
        planned: _PlannedRound,
        ask_result: _AskedPart,
        evaluation: Evaluation[np.ndarray],
        result: _Results,
    ) -> None:
        """Passes the evaluation of a round to the algorithm. After the last round, adds the part's row."""
        self.state[part], _, offspring, result.counts[part] = self.compiled.tell(
            ask_result.state,
            self.keys[part],
            np.int32(planned.generation),
            np.int32(planned.number),
            ask_result.batch,
            to_device(evaluation),
            result.counts[part],
            planned.round,
        )
        result.records[part].append(offspring)
        if planned.is_last:
            result.rows.append(self.compiled.make_row(self.state[part], result.counts[part]))

    def _list_batches(self) -> list[list[int]]:
        """The parts whose episodes are evaluated together."""
        parts = list(range(self.parts))
        return [[part] for part in parts] if has_accelerator() else [parts]

    def _split_by_part(self, evaluation: Evaluation[np.ndarray]) -> list[Evaluation[np.ndarray]]:
        """The evaluation of each part of a batch."""
        size, replications = self.functions.count, len(evaluation.fitness)
        return [
            Evaluation(*jax.tree.map(lambda array, i=first: array[i : i + size], evaluation))
            for first in range(0, replications, size)
        ]

    def _plan(self, generations: int) -> list[_PlannedRound]:
        """The rounds of the next generations."""
        plan, evaluations = [], self.evaluations
        for generation in range(self.generation, self.generation + generations):
            rounds = self.functions.find_rounds(generation)
            for number, round in enumerate(rounds):
                is_last = number + 1 == len(rounds)
                plan.append(_PlannedRound(generation, number, round, evaluations, is_last))
                evaluations += round.evaluations
        return plan

    def _first_round_after(self, plan: list[_PlannedRound]) -> _PlannedRound | None:
        """The next round after the planned ones; None if it is of another kind, or beyond the budget."""
        generation, done = plan[-1].generation + 1, plan[-1].evaluations + plan[-1].round.evaluations
        rounds = self.functions.find_rounds(generation)
        if rounds != self.functions.find_rounds(self.generation) or done >= self.budget:
            return None
        return _PlannedRound(generation, 0, rounds[0], done, len(rounds) == 1)

    def _make_empty_results(self) -> _Results:
        """The results of a generation before its first round."""
        counts = [self.functions.make_zero_counts() for _ in self.keys]
        timings = dict.fromkeys((*self.timings, "steps_per_s"), 0.0)
        return _Results(counts, [[] for _ in self.keys], [], timings)

    def _finish(self, result: _Results) -> FinishedGeneration:
        """Joins the results of the parts, for the logs."""
        row = jax.tree.map(
            lambda *arrays: np.concatenate([np.asarray(array) for array in arrays]), *result.rows
        )
        offspring = np.concatenate([np.concatenate(rounds, axis=1) for rounds in result.records])
        timings = {
            **result.timings,
            "steps_per_s": result.timings["steps_per_s"] / max(result.timings["rollouts_s"], 1e-9),
        }
        rounds = self.functions.find_rounds(self.generation)
        self.totals = self.totals.add(rounds, row.counts, self.budget)
        return FinishedGeneration(self.totals, row, offspring, timings)

    def _evaluate(
        self, parameters: np.ndarray, seeds: np.ndarray, planned: _PlannedRound
    ) -> Evaluation[np.ndarray]:
        """Runs the episodes within the budget, in one batch; the others count as skipped."""
        replications, round = len(parameters), planned.round
        limit = int(np.count_nonzero(mask_within_budget(self.budget, planned.evaluations, round)))
        if limit == round.evaluations:
            return self._run(parameters, seeds, round)
        # The first controllers of all replications come first in the batch, and those beyond the budget last.
        whole, rest = divmod(limit, round.episodes)
        ordered = parameters.swapaxes(0, 1), seeds.swapaxes(0, 1)
        by_controller = self._run(*ordered, round, limit=whole * replications * round.episodes)
        result = jax.tree.map(lambda array: array.swapaxes(0, 1).copy(), by_controller)
        if rest:  # of the episodes of one controller
            place = slice(whole, whole + 1)
            last = self._run(parameters[:, place], seeds[:, place, :rest], round)
            for array, episodes in zip(jax.tree.leaves(result), jax.tree.leaves(last), strict=True):
                array[:, place, :rest] = episodes
        return Evaluation(*result)

    def _run(
        self, parameters: np.ndarray, seeds: np.ndarray, round: Round, limit: int | None = None
    ) -> Evaluation[np.ndarray]:
        """Runs a batch. The arrays have two leading axes."""
        first, second = parameters.shape[:2]
        result = self.evaluator.evaluate(
            parameters.reshape(first * second, -1),
            seeds.reshape(first * second, *seeds.shape[2:]),
            transitions=round.transitions,
            action_noise=round.action_noise,
            limit=limit,
        )
        return Evaluation(*jax.tree.map(lambda array: array.reshape(first, second, *array.shape[1:]), result))


def _join(arrays: list[jax.Array]) -> np.ndarray:
    """Concatenates host arrays along the replications; a single array is not copied."""
    return np.asarray(arrays[0]) if len(arrays) == 1 else np.concatenate(arrays)


def to_host(arrays: Any) -> Any:
    """Starts copies from an accelerator to pinned memory of the host; arrays of a CPU are returned as is."""
    (device,) = jax.tree.leaves(arrays)[0].devices()
    if device.platform == "cpu":
        return arrays
    return jax.device_put(arrays, jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host"))


def to_device(arrays: Any) -> Any:
    """Starts copies to an accelerator, if there is one. A program would wait for its arguments otherwise."""
    return jax.device_put(arrays) if has_accelerator() else arrays

"""Replications whose episodes run inside the program: ask, evaluate, tell, many times per dispatch."""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.base import Round
from elites.cache import keep_in_process
from elites.evaluation.device import evaluate_inside
from elites.experiments.generation import (
    Counts,
    FinishedGeneration,
    Generation,
    Keys,
    Row,
    count_evaluations,
)
from elites.experiments.replications import COMPILING, FIRST_EPISODES, Replications, has_accelerator
from elites.options import Physics
from elites.results.lineage import WORDS


class EpisodesInside(Replications):
    """Whole generations are one program, many of them per dispatch."""

    inside = True
    timings = ("device_s",)

    @functools.cached_property
    def program(self) -> DeviceProgram:
        """The program of whole generations."""
        return make_device_program(self.functions, self.physics)

    def advance(self, until: int) -> list[FinishedGeneration]:
        """Generations of the same kind, for about two seconds."""
        rounds = self.functions.find_rounds(self.generation)
        genomes = self.read_starting_genomes(self.generation)
        count = 1 if genomes is not None else self._generations_until(until)
        clock = time.perf_counter()
        self._report_if_new(COMPILING)
        self.state[0], rows, records = self.program.run(
            self.state[0],
            self.keys[0],
            jnp.int32(self.generation),
            jnp.int32(self.evaluations),
            jnp.int32(self.budget),
            jnp.int32(count),
            rounds,
            genomes,
        )
        self._report_if_new(FIRST_EPISODES)  # the call returns once the program is compiled
        done: Row = jax.tree.map(lambda array: _first(array, count), rows)
        offspring = _first(records, count)
        seconds = (time.perf_counter() - clock) / count
        self.paces[rounds] = seconds
        finished = []
        for index, own in enumerate(offspring):
            row: Row = jax.tree.map(lambda array, i=index: array[i], done)
            timings = {"device_s": seconds, "steps_per_s": int(row.counts.steps.sum()) / seconds}
            self.totals = self.totals.add(rounds, row.counts, self.budget)
            finished.append(FinishedGeneration(self.totals, row, own, timings))
        return finished


class DeviceProgram:
    """Generations with their episodes inside."""

    def __init__(self, functions: Generation, physics: Physics | None) -> None:
        self.functions, self.algorithm, self.physics = functions, functions.algorithm, physics
        self.run = jax.jit(self._generations, static_argnums=6, donate_argnums=0)

    def _generations(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        evaluations: jax.Array,
        budget: jax.Array,
        count: jax.Array,
        rounds: tuple[Round, ...],
        starting: jax.Array | None,
    ) -> tuple[Any, Row, jax.Array]:
        """`count` generations of these rounds, from this generation and evaluation on.

        There are at most `compute_max_generations`. `starting` are genomes to evaluate in place of what the
        algorithm asks for. Returns states, rows and the offspring of each row.
        """
        most = self.functions.compute_max_generations(rounds)
        kind = jax.eval_shape(
            lambda state: self.functions.make_row(state, self.functions.make_zero_counts()), states
        )
        rows = jax.tree.map(lambda array: jnp.zeros((most, *array.shape), array.dtype), kind)
        policies = sum(round.policies for round in rounds)
        results = rows, jnp.zeros((most, self.functions.count, policies, WORDS), jnp.int32)

        def run_generation(
            carried: tuple[jax.Array, Any, Any, jax.Array],
        ) -> tuple[jax.Array, Any, Any, jax.Array]:
            done, states, results, evaluations = carried
            numbers = generation + done, evaluations, budget
            states, *new = self._generation(states, keys, *numbers, rounds, starting)
            results = jax.tree.map(lambda all, new: all.at[done].set(new), results, tuple(new))
            evaluations = jnp.minimum(evaluations + count_evaluations(rounds), budget)
            return done + 1, states, results, evaluations

        _, states, (rows, records), _ = jax.lax.while_loop(
            lambda carried: carried[0] < count, run_generation, (jnp.int32(0), states, results, evaluations)
        )
        return states, rows, records

    def _generation(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        evaluations: jax.Array,
        budget: jax.Array,
        rounds: tuple[Round, ...],
        starting: jax.Array | None,
    ) -> tuple[Any, Row, jax.Array]:
        """Ask, evaluate, tell, for each round; equal rounds in a row are compiled once."""
        task, number = self.algorithm.task, 0
        carried = states, self.functions.make_zero_counts(), evaluations
        offspring: list[jax.Array] = []  # of each round
        for round, equal in itertools.groupby(rounds):

            def run_round(
                carried: tuple[Any, Counts, jax.Array], index: jax.Array, round: Round = round
            ) -> tuple[tuple[Any, Counts, jax.Array], jax.Array]:
                states, counts, evaluations = carried
                if starting is None:
                    states, batch = self.functions.ask(states, keys, generation, index, round)
                else:
                    batch = self.functions.make_starting_batch(starting)
                seeds = self.functions.derive_episode_seeds(keys, evaluations, round)
                enabled = self.functions.mask_budget(budget, evaluations, round)
                whole = (self.functions.count * round.policies, *round.shape[1:])
                evaluation = evaluate_inside(
                    task,
                    self.algorithm.genome,
                    batch.parameters.reshape(whole[0], -1),
                    seeds.reshape(whole),
                    transitions=round.transitions,
                    action_noise=round.action_noise,
                    enabled=enabled.reshape(whole),
                    physics=self.physics,
                )
                evaluation = jax.tree.map(
                    lambda array: array.reshape(self.functions.count, -1, *array.shape[1:]), evaluation
                )
                states, _, records, counts = self.functions.tell(
                    states, keys, generation, index, batch, evaluation, counts, round
                )
                evaluations = jnp.minimum(evaluations + round.evaluations, budget)
                return (states, counts, evaluations), records

            indices = number + jnp.arange(len(list(equal)), dtype=jnp.int32)
            if len(indices) == 1:
                carried, records = run_round(carried, indices[0])
            else:
                carried, records = jax.lax.scan(run_round, carried, indices)
                records = jnp.moveaxis(records, 0, 1).reshape(self.functions.count, -1, WORDS)
            offspring.append(records)
            number += len(indices)
        states, counts, _ = carried
        return states, self.functions.make_row(states, counts), jnp.concatenate(offspring, axis=1)


@keep_in_process(max_results=4)
def make_device_program(functions: Generation, physics: Physics | None) -> DeviceProgram:
    """The program of a Generation. Runs that share one share the other."""
    return DeviceProgram(functions, physics)


def _first(array: jax.Array, count: int) -> np.ndarray:
    """The first rows of an array: chosen on an accelerator, or on the CPU, where no new program is needed."""
    return np.asarray(array[:count]) if has_accelerator() else np.asarray(array)[:count]

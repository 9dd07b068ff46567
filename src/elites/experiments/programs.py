"""The functions of a generation as compiled programs, shared by runs of equal settings."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from elites.algorithms.base import Algorithm, Round
from elites.cache import keep_in_process
from elites.evaluation.device import evaluate_inside
from elites.experiments.generation import Counts, Generation, Keys, Row, evaluations_of
from elites.options import Physics
from elites.results.lineage import RECORD, WORDS
from elites.tasks.task import DeviceTask, Task

ROWS = 100  # largest number of generations per dispatch
OFFSPRING_BYTES = 2**26  # of the records of their offspring, if that is more than one generation


class Programs:
    """The functions of a generation, compiled, and whole generations with their episodes inside."""

    def __init__(
        self, functions: Generation, physics: Physics | None = None, *, looks_ahead: bool = False
    ) -> None:
        """`looks_ahead`: the states that `ask` gets are needed afterwards, too."""
        self.functions, self.algorithm, self.physics = functions, functions.algorithm, physics
        self.init = jax.jit(functions.init)
        self.ask = jax.jit(functions.ask, static_argnums=4, donate_argnums=() if looks_ahead else (0,))
        self.given = jax.jit(functions.given)
        self.episodes = jax.jit(functions.episodes, static_argnums=2)
        self.tell = jax.jit(functions.tell, static_argnums=7, donate_argnums=0)
        self.row = jax.jit(functions.row)
        self.archives = jax.jit(functions.archives)
        self.generations = jax.jit(self._generations, static_argnums=6, donate_argnums=0)

    def _generations(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        evaluations: jax.Array,
        budget: jax.Array,
        count: jax.Array,
        rounds: tuple[Round, ...],
        given: jax.Array | None,
    ) -> tuple[Any, Row, jax.Array]:
        """`count` generations of these rounds, at most `most_rows`, from this generation and evaluation on.

        `given` are genomes to evaluate in place of what the algorithm asks for. Returns states, rows and the
        offspring of each row.
        """
        most = self.most_rows(rounds)
        kind = jax.eval_shape(lambda state: self.functions.row(state, self.functions.no_counts()), states)
        rows = jax.tree.map(lambda array: jnp.zeros((most, *array.shape), array.dtype), kind)
        policies = sum(round.policies for round in rounds)
        results = rows, jnp.zeros((most, self.functions.count, policies, WORDS), jnp.int32)

        def one(carried: tuple[jax.Array, Any, Any, jax.Array]) -> tuple[jax.Array, Any, Any, jax.Array]:
            done, states, results, evaluations = carried
            numbers = generation + done, evaluations, budget
            states, *new = self._generation(states, keys, *numbers, rounds, given)
            results = jax.tree.map(lambda all, new: all.at[done].set(new), results, tuple(new))
            evaluations = jnp.minimum(evaluations + evaluations_of(rounds), budget)
            return done + 1, states, results, evaluations

        _, states, (rows, words), _ = jax.lax.while_loop(
            lambda carried: carried[0] < count, one, (jnp.int32(0), states, results, evaluations)
        )
        return states, rows, words

    def most_rows(self, rounds: tuple[Round, ...]) -> int:
        """The largest number of generations of these rounds per dispatch."""
        offspring = self.functions.count * sum(round.policies for round in rounds)
        return max(1, min(ROWS, OFFSPRING_BYTES // (offspring * RECORD.itemsize)))

    def _generation(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        evaluations: jax.Array,
        budget: jax.Array,
        rounds: tuple[Round, ...],
        given: jax.Array | None,
    ) -> tuple[Any, Row, jax.Array]:
        """Ask, evaluate, tell, for each round; equal rounds in a row are compiled once."""
        task, number, carried = self.algorithm.task, 0, (states, self.functions.no_counts(), evaluations)
        offspring: list[jax.Array] = []  # of each round
        for round, equal in itertools.groupby(rounds):

            def one(
                carried: tuple[Any, Counts, jax.Array], index: jax.Array, round: Round = round
            ) -> tuple[tuple[Any, Counts, jax.Array], jax.Array]:
                states, counts, evaluations = carried
                if given is None:
                    states, batch = self.functions.ask(states, keys, generation, index, round)
                else:
                    batch = self.functions.given(given)
                seeds = self.functions.episodes(keys, evaluations, round)
                runs = self.functions.within(budget, evaluations, round)
                whole = (self.functions.count * round.policies, *round.shape[1:])
                evaluation = evaluate_inside(
                    task,
                    self.algorithm.genome,
                    batch.parameters.reshape(whole[0], -1),
                    seeds.reshape(whole),
                    transitions=round.transitions,
                    action_noise=round.action_noise,
                    runs=runs.reshape(whole),
                    physics=self.physics,
                )
                evaluation = jax.tree.map(
                    lambda array: array.reshape(self.functions.count, -1, *array.shape[1:]), evaluation
                )
                states, _, words, counts = self.functions.tell(
                    states, keys, generation, index, batch, evaluation, counts, round
                )
                evaluations = jnp.minimum(evaluations + round.evaluations, budget)
                return (states, counts, evaluations), words

            indices = number + jnp.arange(len(list(equal)), dtype=jnp.int32)
            if len(indices) == 1:
                carried, words = one(carried, indices[0])
            else:
                carried, words = jax.lax.scan(one, carried, indices)
                words = jnp.moveaxis(words, 0, 1).reshape(self.functions.count, -1, WORDS)
            offspring.append(words)
            number += len(indices)
        states, counts, _ = carried
        return states, self.functions.row(states, counts), jnp.concatenate(offspring, axis=1)


def make_programs(
    algorithm: Algorithm,
    count: int,
    describes: bool,
    physics: Physics | None = None,
    looks_ahead: bool = False,
) -> Programs:
    """The programs of an algorithm. Runs of equal settings in one process share them, so that only the first
    one is traced and compiled. An environment outside the program has a state that cannot be shared."""
    if algorithm.environment is None or isinstance(algorithm.task, DeviceTask):
        settings = algorithm.config, algorithm.task, algorithm.given
        return _shared_programs(type(algorithm), *settings, count, describes, physics, looks_ahead)
    functions = Generation(algorithm, count, describes=describes)
    return Programs(functions, looks_ahead=looks_ahead)


@keep_in_process(most=4)
def _shared_programs(
    kind: type[Algorithm],
    config: Any,
    task: Task,
    given: int,
    count: int,
    describes: bool,
    physics: Physics | None,
    looks_ahead: bool,
) -> Programs:
    algorithm = kind(task, config)
    if given:
        algorithm.begin_with(given)
    functions = Generation(algorithm, count, describes=describes)
    return Programs(functions, physics, looks_ahead=looks_ahead)

"""Many generations of many replications in one program, for tasks that are pure JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.algorithm import Algorithm, Round
from elites.archives.archive import Status
from elites.evaluation.device import rollout
from elites.tasks.episode import Ending
from elites.tasks.task import DeviceTask

ROWS = 100  # generations that one dispatch can tell of
COUNTED = (Status.NEW, Status.IMPROVED, Status.REJECTED, Status.STORED)


class Row(NamedTuple):
    """What a generation tells, of every replication; `[generations, replications, …]`."""

    fitness: jax.Array  # of every cell
    statuses: jax.Array  # int32 [operators, statuses], how many offspring
    steps: jax.Array  # of the episodes
    invalid: jax.Array  # episodes
    training_steps: jax.Array
    gradient_steps: jax.Array


class Keys(NamedTuple):
    """Where a replication's random numbers come from."""

    evolving: jax.Array
    seeding: jax.Array


class Generations:
    """The generations of an algorithm, all replications at once; compiled once per kind of generation."""

    def __init__(self, algorithm: Algorithm, budget: int) -> None:
        assert isinstance(algorithm.task, DeviceTask)
        self.algorithm, self.task, self.budget = algorithm, algorithm.task, budget
        self.run = jax.jit(self._counted, static_argnums=5, donate_argnums=0)
        self._traced: set[tuple[Round, ...]] = set()

    def compiled(self, rounds: tuple[Round, ...]) -> bool:
        """Whether the next call with these rounds need not wait for a compiler."""
        return rounds in self._traced

    def _counted(self, *arguments: Any) -> tuple[Any, Row]:
        self._traced.add(arguments[-1])
        return self._run(*arguments)

    def _run(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        evaluations: jax.Array,
        count: jax.Array,
        rounds: tuple[Round, ...],
    ) -> tuple[Any, Row]:
        """`count` generations, at most ROWS, of these rounds, after so many generations and evaluations."""
        algorithm, many = self.algorithm, (ROWS, len(keys.evolving))
        none = jnp.zeros(many, jnp.int32)
        rows = Row(
            fitness=jnp.zeros((*many, len(algorithm.cells.centroids))),
            statuses=jnp.zeros((*many, len(algorithm.operators), len(COUNTED)), jnp.int32),
            steps=none,
            invalid=none,
            training_steps=none,
            gradient_steps=none,
        )

        def one(carried: tuple[jax.Array, Any, Row, jax.Array]) -> tuple[jax.Array, Any, Row, jax.Array]:
            done, states, rows, evaluations = carried
            states, row = self._generation(states, keys, generation + done, evaluations, rounds)
            rows = jax.tree.map(lambda all, new: all.at[done].set(new), rows, row)
            evaluations = jnp.minimum(evaluations + evaluations_of(rounds), self.budget)
            return done + 1, states, rows, evaluations

        _, states, rows, _ = jax.lax.while_loop(
            lambda carried: carried[0] < count, one, (jnp.int32(0), states, rows, evaluations)
        )
        return states, rows

    def _generation(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        evaluations: jax.Array,
        rounds: tuple[Round, ...],
    ) -> tuple[Any, Row]:
        algorithm, operators = self.algorithm, len(self.algorithm.operators)
        replications = len(keys.evolving)
        statuses = jnp.zeros((replications, operators, len(COUNTED)), jnp.int32)
        steps = invalid = jnp.zeros(replications, jnp.int32)
        for index, round in enumerate(rounds):
            drawn = jax.vmap(
                lambda key, i=index: jax.random.split(
                    jax.random.fold_in(jax.random.fold_in(key, generation), i)
                )
            )(keys.evolving)
            states, batch = jax.vmap(lambda state, key, r=round: algorithm.ask(state, key, r))(
                states, drawn[:, 0]
            )
            shape = (round.policies,) if round.episodes == 1 else (round.policies, round.episodes)
            total = round.policies * round.episodes
            numbers = evaluations + jnp.arange(total, dtype=jnp.int32)
            seeds = jax.vmap(
                lambda key, n=numbers: jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(key, i)))(n)
            )(keys.seeding)
            whole = (replications * shape[0], *shape[1:])
            runs = jnp.broadcast_to((numbers < self.budget).reshape(shape), (replications, *shape))
            evaluation = rollout(
                self.task,
                algorithm.policy,
                batch.parameters.reshape(whole[0], -1),
                seeds.reshape(whole),
                transitions=round.transitions,
                runs=runs.reshape(whole),
            )
            evaluation = jax.tree.map(
                lambda array: array.reshape(replications, -1, *array.shape[1:]), evaluation
            )
            states, status = jax.vmap(
                lambda state, key, made, told, r=round: algorithm.tell(state, key, r, made, told)
            )(states, drawn[:, 1], batch, evaluation)
            of_operator = batch.operator[..., None] == jnp.arange(operators)
            as_told = status[..., None] == jnp.array(COUNTED)
            statuses += jnp.einsum("rno,rns->ros", of_operator.astype(jnp.int32), as_told.astype(jnp.int32))
            axes = tuple(range(1, evaluation.length.ndim))
            steps += evaluation.length.sum(axes)
            invalid += (evaluation.ending == Ending.INVALID).sum(axes).astype(jnp.int32)
            evaluations = jnp.minimum(evaluations + total, self.budget)
        return states, Row(
            fitness=jax.vmap(lambda state: algorithm.archive(state).elites.fitness)(states),
            statuses=statuses,
            steps=steps,
            invalid=invalid,
            training_steps=states.progress.training_steps,
            gradient_steps=jax.vmap(algorithm.gradient_steps)(states),
        )


def evaluations_of(rounds: tuple[Round, ...]) -> int:
    """Episodes of a whole generation."""
    return sum(round.policies * round.episodes for round in rounds)


def keys_of(seeds: list[int]) -> tuple[jax.Array, Keys]:
    """Keys to start from, and those to go on with, one for each replication."""
    split = jnp.stack([jax.random.split(jax.random.key(seed), 3) for seed in seeds])
    return split[:, 1], Keys(split[:, 0], split[:, 2])


def counts_of(statuses: np.ndarray, operators: tuple[str, ...]) -> dict[str, int]:
    """The columns of `metrics.csv` on operators."""
    counts = {}
    for name, (new, improved, *others) in zip(operators, statuses.tolist(), strict=True):
        counts[f"made_{name}"] = new + improved + sum(others)
        counts[f"new_{name}"], counts[f"improved_{name}"] = new, improved
    return counts

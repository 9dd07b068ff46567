"""A generation, for any number of replications of a run that differ only in their seeds.

This module defines keys, episode seeds, the budget and counts. All arrays have a leading axis of
replications; a single run is a group of one. `episodes_inside.py` and `episodes_outside.py` drive the
generations: episodes of a pure-JAX task run inside the program unless its physics is native; all others run
outside. `loop.py` logs them.

A *program* is a function compiled by JAX; a *dispatch* is one call of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.base import Algorithm, Batch, Progress, Round, make_solutions
from elites.archives.archive import Archive, Status
from elites.cache import keep_in_process
from elites.errors import ElitesError
from elites.evaluation.evaluation import Evaluation
from elites.learning.critics import TrainingSums
from elites.policies import Policy
from elites.results.archive import SavedArchive, make_saved_archive
from elites.results.lineage import RECORD
from elites.tasks import describe_task
from elites.tasks.episode import Ending
from elites.tasks.task import Task

MAX_GENERATIONS = 100  # per dispatch
OFFSPRING_BYTES = 2**26  # of the records of their offspring, if that is more than one generation
COUNTED = (Status.NEW, Status.IMPROVED, Status.REJECTED, Status.STORED)


class Keys(NamedTuple):
    """The random keys of each replication, `[replications]`."""

    init: jax.Array
    generations: jax.Array
    episodes: jax.Array


def make_keys(seeds: Sequence[int]) -> Keys:
    """The keys of replications with these seeds."""
    generations, init, episodes = jnp.moveaxis(
        jnp.stack([jax.random.split(jax.random.key(seed), 3) for seed in seeds]), 1, 0
    )
    return Keys(init, generations, episodes)


class GreedyEpisodes(NamedTuple):
    """Episodes of the trained actor, `[replications]`."""

    episodes: jax.Array  # int32, the number of valid ones
    fitness: jax.Array  # the sum over them


class Counts(NamedTuple):
    """The counts of a generation so far, `[replications, …]`, int32, and other sums."""

    statuses: jax.Array  # [operators, COUNTED], offspring
    steps: jax.Array  # of the episodes
    invalid: jax.Array  # episodes
    training: TrainingSums
    greedy: GreedyEpisodes


class Row(NamedTuple):
    """The result of a generation, `[replications, …]`."""

    counts: Counts
    fitness: jax.Array  # of every cell; -inf: empty
    descriptor: jax.Array  # of every cell; without columns if no metric needs it
    training_steps: jax.Array
    gradient_steps: jax.Array


class RunTotals(NamedTuple):
    """The counts of replications since they began."""

    generation: int
    evaluations: int  # of each replication
    environment_steps: list[int]  # of each replication, in the episodes that were evaluated

    def add(self, rounds: tuple[Round, ...], counts: Counts, budget: int) -> RunTotals:
        """The counts after another generation of these rounds."""
        steps = zip(self.environment_steps, counts.steps, strict=True)
        return RunTotals(
            self.generation + 1,
            min(self.evaluations + count_evaluations(rounds), budget),
            [before + int(new) for before, new in steps],
        )


class FinishedGeneration(NamedTuple):
    """A generation of all replications, for the logs."""

    totals: RunTotals  # after it
    row: Row
    offspring: np.ndarray  # int32 [replications, n, WORDS]: see `Generation.make_lineage_records`
    timings: dict[str, float]


class CompiledFunctions(NamedTuple):
    """The methods of a Generation, compiled."""

    init: Callable[..., Any]
    ask: Callable[..., Any]
    make_starting_batch: Callable[..., Any]
    derive_episode_seeds: Callable[..., Any]
    tell: Callable[..., Any]
    make_row: Callable[..., Any]
    collect_archives: Callable[..., Any]


class Generation:
    """One generation of an algorithm, as pure functions over all replications."""

    def __init__(
        self,
        algorithm: Algorithm,
        replications: int,
        *,
        with_descriptors: bool = False,
        keep_input_states: bool = False,
    ) -> None:
        """`with_descriptors`: rows have the elites' descriptors.

        `keep_input_states`: compiled `ask` leaves the states that it is given intact.
        """
        self.algorithm, self.count, self.with_descriptors = algorithm, replications, with_descriptors
        self.compiled = CompiledFunctions(
            jax.jit(self.init),
            jax.jit(self.ask, static_argnums=4, donate_argnums=() if keep_input_states else (0,)),
            jax.jit(self.make_starting_batch),
            jax.jit(self.derive_episode_seeds, static_argnums=2),
            jax.jit(self.tell, static_argnums=7, donate_argnums=0),
            jax.jit(self.make_row),
            jax.jit(self.collect_archives),
        )

    def compute_max_generations(self, rounds: tuple[Round, ...]) -> int:
        """The largest number of generations of these rounds per dispatch."""
        offspring = self.count * sum(round.policies for round in rounds)
        return max(1, min(MAX_GENERATIONS, OFFSPRING_BYTES // (offspring * RECORD.itemsize)))

    def find_rounds(self, generation: int) -> tuple[Round, ...]:
        """The rounds of a generation, numbered from 0."""
        opening = self.algorithm.opening
        return opening[generation] if generation < len(opening) else self.algorithm.generation

    def count_evaluations_before_last(self, budget: int) -> int:
        """Evaluations before the last generation of a budget."""
        done = 0
        for rounds in self.algorithm.opening:
            if done + count_evaluations(rounds) >= budget:
                return done
            done += count_evaluations(rounds)
        size = count_evaluations(self.algorithm.generation)
        return done + (budget - done - 1) // size * size

    def map_over_replications(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function for all replications. A single one is not vmapped: some programs do not allow it."""
        if self.count > 1:
            return jax.vmap(function)

        def single(*arguments: Any) -> Any:
            result = function(*jax.tree.map(lambda array: array[0], arguments))
            return jax.tree.map(lambda array: jnp.asarray(array)[None], result)

        return single

    def init(self, keys: Keys) -> Any:
        """The states before the first generation."""
        return self.map_over_replications(self.algorithm.init)(keys.init)

    def ask(
        self, states: Any, keys: Keys, generation: jax.Array, index: jax.Array, round: Round
    ) -> tuple[Any, Batch]:
        """The genomes of a round of a generation; both are numbered from 0."""
        ask_keys = self._derive_round_keys(keys, generation, index)[:, 0]
        states, batch = self.map_over_replications(lambda state, key: self.algorithm.ask(state, key, round))(
            states, ask_keys
        )
        asked, expected = batch.parameters.shape[1:], (round.policies, self.algorithm.genome.parameter_count)
        if asked != expected:
            raise ElitesError(
                f"{self.algorithm.public_name} made genomes of shape {list(asked)} in the round "
                f"{round.name!r}; it must be {list(expected)}"
            )
        return states, batch

    def make_starting_batch(self, parameters: jax.Array) -> Batch:
        """Genomes `[n, P]` that all replications begin with, as the batch of a round."""
        batch = self.algorithm.make_starting_batch(parameters)
        whole: Batch = jax.tree.map(lambda array: jnp.broadcast_to(array, (self.count, *array.shape)), batch)
        return whole

    def derive_episode_seeds(self, keys: Keys, evaluations: jax.Array, round: Round) -> jax.Array:
        """The seed of each episode of a round, `[replications, …]`, after this number of evaluations.

        A seed is a function of the replication's key and the number of the evaluation.
        """
        numbers = evaluations + jnp.arange(round.evaluations, dtype=jnp.int32)
        seeds = jax.vmap(
            lambda key: jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(key, i)))(numbers)
        )(keys.episodes)
        return seeds.reshape(self.count, *round.shape)

    def mask_budget(self, budget: jax.Array, evaluations: jax.Array, round: Round) -> jax.Array:
        """Whether each episode of a round is within the budget, `[replications, …]`."""
        return jnp.broadcast_to(mask_within_budget(budget, evaluations, round), (self.count, *round.shape))

    def tell(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        index: jax.Array,
        batch: Batch,
        evaluation: Evaluation[jax.Array],
        counts: Counts,
        round: Round,
    ) -> tuple[Any, jax.Array, jax.Array, Counts]:
        """Passes the evaluation of a round to the algorithm.

        Returns states, statuses, the offspring for the log of lineages (`make_lineage_records`), and counts.
        """
        before = states.progress
        tell_keys = self._derive_round_keys(keys, generation, index)[:, 1]
        states, status = self.map_over_replications(
            lambda state, key, batch, evaluation: self.algorithm.tell(state, key, round, batch, evaluation)
        )(states, tell_keys, batch, evaluation)
        by_operator = batch.operator[..., None] == jnp.arange(len(self.algorithm.operators))
        by_status = status[..., None] == jnp.array(COUNTED)
        axes = tuple(range(1, evaluation.length.ndim))
        return (
            states,
            status,
            self.map_over_replications(self.make_lineage_records)(before, batch, evaluation, status),
            Counts(
                counts.statuses
                + jnp.einsum("rno,rns->ros", by_operator.astype(jnp.int32), by_status.astype(jnp.int32)),
                counts.steps + evaluation.length.sum(axes),
                counts.invalid + (evaluation.ending == Ending.INVALID).sum(axes).astype(jnp.int32),
                counts.training
                if batch.training is None
                else jax.tree.map(jnp.add, counts.training, batch.training),
                self._add_greedy_episodes(counts.greedy, batch, evaluation),
            ),
        )

    def make_lineage_records(
        self, progress: Progress, batch: Batch, evaluation: Evaluation[jax.Array], status: jax.Array
    ) -> jax.Array:
        """The offspring of a round of one replication as records of `results/lineage.py`, int32 `[n, WORDS]`.

        Offspring that did not enter the archive are included, so that the shape is fixed.
        """
        offspring = make_solutions(batch, evaluation, progress)
        origin = offspring.origin
        fields = (
            origin.evaluation,
            *(origin.parents[:, 0], origin.parents[:, 1]),
            self.algorithm.cells.assign(offspring.descriptor),
            jax.lax.bitcast_convert_type(offspring.fitness.astype(jnp.float32), jnp.int32),
            origin.generation,
            origin.operator.astype(jnp.int32) | status.astype(jnp.int32) << 8,
        )
        return jnp.stack([field.astype(jnp.int32) for field in fields], axis=-1)

    def _add_greedy_episodes(
        self, before: GreedyEpisodes, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> GreedyEpisodes:
        """Adds the episodes of a round."""
        if self.algorithm.greedy_operator not in self.algorithm.operators:
            return before
        valid = evaluation.ending <= Ending.TRUNCATED
        chosen = batch.operator == self.algorithm.operators.index(self.algorithm.greedy_operator)
        valid &= chosen.reshape(*chosen.shape, *[1] * (valid.ndim - chosen.ndim))
        axes = tuple(range(1, valid.ndim))
        return GreedyEpisodes(
            before.episodes + valid.sum(axes).astype(jnp.int32),
            before.fitness + jnp.where(valid, evaluation.fitness, 0).sum(axes),
        )

    def make_zero_counts(self) -> Counts:
        """The counts before the first round of a generation."""
        zero, zero_sum = jnp.zeros(self.count, jnp.int32), jnp.zeros(self.count, jnp.float32)
        statuses = jnp.zeros((self.count, len(self.algorithm.operators), len(COUNTED)), jnp.int32)
        training, greedy = TrainingSums(zero, zero_sum, zero_sum), GreedyEpisodes(zero, zero_sum)
        return Counts(statuses, zero, zero, training, greedy)

    def make_row(self, states: Any, counts: Counts) -> Row:
        """The result of a generation, after its last round."""

        def summarise(state: Any) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
            elites = self.algorithm.archive(state).elites
            descriptor = elites.descriptor if self.with_descriptors else elites.descriptor[:, :0]
            return (
                elites.fitness,
                descriptor,
                state.progress.training_steps,
                self.algorithm.gradient_steps(state),
            )

        return Row(counts, *self.map_over_replications(summarise)(states))

    def collect_archives(self, states: Any) -> Archive:
        """The archives of all replications."""
        return self.map_over_replications(self.algorithm.archive)(states)  # type: ignore[no-any-return]

    def _derive_round_keys(self, keys: Keys, generation: jax.Array, index: jax.Array) -> jax.Array:
        """Two keys for a round of each replication: for `ask` and for `tell`."""
        return jax.vmap(
            lambda key: jax.random.split(jax.random.fold_in(jax.random.fold_in(key, generation), index))
        )(keys.generations)


def make_generation(
    algorithm: Algorithm, count: int, *, with_descriptors: bool, keep_input_states: bool = False
) -> Generation:
    """The Generation of an algorithm. Runs of equal settings in one process share it, so that only the first
    one is traced and compiled. An environment outside the program has a state that cannot be shared."""
    if algorithm.environment is None or algorithm.task.is_jax:
        settings = algorithm.config, algorithm.task, algorithm.starting_genome_count
        return _make_shared_generation(type(algorithm), *settings, count, with_descriptors, keep_input_states)
    return Generation(
        algorithm, count, with_descriptors=with_descriptors, keep_input_states=keep_input_states
    )


@keep_in_process(max_results=4)
def _make_shared_generation(
    kind: type[Algorithm],
    config: Any,
    task: Task,
    starting_count: int,
    count: int,
    with_descriptors: bool,
    keep_input_states: bool,
) -> Generation:
    algorithm = kind(task, config)
    if starting_count:
        algorithm.replace_initial_genomes(starting_count)
    return Generation(
        algorithm, count, with_descriptors=with_descriptors, keep_input_states=keep_input_states
    )


def mask_within_budget(budget: Any, evaluations: Any, round: Round) -> Any:
    """Whether each episode of a round is within the budget, `[policies, …]`.

    The result is a JAX array if an argument is one.
    """
    return (np.arange(round.evaluations, dtype=np.int32) < budget - evaluations).reshape(round.shape)


def count_evaluations(rounds: tuple[Round, ...]) -> int:
    """Episodes of a whole generation."""
    return sum(round.evaluations for round in rounds)


def pack_archive(
    algorithm: Algorithm, archive: Archive, *, name: str, seed: int, evaluations: int
) -> SavedArchive:
    """The archive of a replication in the form in which it is saved. `name` is that of the algorithm."""
    sizes = algorithm.genome.sizes if isinstance(algorithm.genome, Policy) else ()
    about = {
        "algorithm": name,
        "hyper_parameters": asdict(algorithm.config),
        "task": describe_task(algorithm.task),
        "seed": seed,
        "evaluations": evaluations,
    }
    return make_saved_archive(archive, algorithm.cells, algorithm.operators, sizes, about)

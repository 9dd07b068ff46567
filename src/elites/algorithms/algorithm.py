"""What every algorithm is: pure functions over one pytree, to be jitted, saved, scanned and vmapped."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from elites.archives.archive import Archive, Origin, Solutions, Status, select
from elites.archives.cells import Cells
from elites.evaluation.evaluation import Evaluation
from elites.policies import Policy
from elites.tasks.episode import Ending
from elites.tasks.task import Task
from elites.variation import isoline


class Round(NamedTuple):
    """The shape of one ask/tell exchange. Static: `ask` and `tell` are compiled once per Round."""

    name: str
    policies: int
    episodes: int = 1  # per policy
    transitions: bool = False  # whether `tell` needs every step


class Batch(NamedTuple):
    """Controllers to evaluate `[n, …]`."""

    parameters: jax.Array
    operator: jax.Array  # int32, an index into the algorithm's `operators`
    parents: jax.Array  # int32 [n, 2], the evaluations they come from; -1: none


class Stream(IntEnum):
    """Folded into a key, so that what one operator draws never depends on another being there."""

    RANDOM = 0
    GA = 1
    PG = 2
    TRAINING = 3
    EVICTION = 4
    PARENT = 5
    NOISE = 6
    DIVERSITY = 7
    DIVERSITY_TRAINING = 8
    STATE_DESCRIPTORS = 9
    EPISODE = 10


class Algorithm(Protocol):
    """An algorithm on a task. Its state is a NamedTuple of its own, whose `progress` is a Progress."""

    task: Task
    config: Any  # its hyper-parameters, a dataclass
    policy: Policy
    cells: Cells
    operators: tuple[str, ...]
    opening: tuple[tuple[Round, ...], ...]  # the rounds of each of the first generations
    generation: tuple[Round, ...]  # those of all others

    def init(self, key: jax.Array) -> Any:
        """The state before anything is evaluated."""

    def ask(self, state: Any, key: jax.Array, round: Round) -> tuple[Any, Batch]:
        """Makes the next controllers."""

    def tell(
        self, state: Any, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation
    ) -> tuple[Any, jax.Array]:
        """Takes in what they did. Returns the Status of each."""

    def archive(self, state: Any) -> Archive:
        """The collection so far, one elite per cell."""

    def gradient_steps(self, state: Any) -> jax.Array:
        """Training steps of the critics so far."""


class Progress(NamedTuple):
    """Where a run stands."""

    generation: jax.Array
    evaluations: jax.Array
    training_steps: jax.Array  # in an environment of the algorithm's own, beside the evaluations


def start() -> Progress:
    """Before the first generation."""
    return Progress(jnp.int32(0), jnp.int32(0), jnp.int32(0))


def advance(progress: Progress, evaluation: Evaluation) -> Progress:
    """After a generation of one round."""
    evaluated = (evaluation.ending != Ending.SKIPPED).sum()
    return progress._replace(
        generation=progress.generation + 1,
        evaluations=progress.evaluations + evaluated.astype(jnp.int32),
    )


def rounds_of_random(
    initial: int, batch: int, *, episodes: int = 1, transitions: bool = False
) -> tuple[tuple[Round, ...], ...]:
    """`initial` random controllers, in generations as large as all others: nothing is compiled twice."""
    whole, rest = divmod(initial, batch)
    sizes = [batch] * whole + [rest] * (rest > 0)
    return tuple((Round("random", size, episodes, transitions),) for size in sizes)


def random_controllers(policy: Policy, key: jax.Array, count: int, operator: int) -> Batch:
    """Controllers without parents."""
    parameters = jax.vmap(policy.init)(jax.random.split(key, count))
    return Batch(parameters, jnp.full(count, operator, jnp.int32), jnp.full((count, 2), -1, jnp.int32))


def ga_offspring(
    archive: Archive, key: jax.Array, count: int, operator: int, sigma1: float, sigma2: float
) -> Batch:
    """Offspring of `count` pairs of elites, each drawn uniformly."""
    selecting, varying = jax.random.split(key)
    pairs = select(archive, selecting, 2 * count).reshape(2, count)
    first, second = archive.elites.parameters[pairs]
    return Batch(
        isoline.vary(varying, first, second, sigma1, sigma2),
        jnp.full(count, operator, jnp.int32),
        archive.elites.origin.evaluation[pairs].T,
    )


def join(batches: list[Batch]) -> Batch:
    """One batch of several."""
    return Batch(*map(jnp.concatenate, zip(*batches, strict=True)))


def averaged(evaluation: Evaluation) -> tuple[jax.Array, jax.Array]:
    """Fitness `[n]` and descriptor `[n, d]` of controllers: the mean, if they have several episodes.

    A controller one of whose episodes is invalid, or was not run, is NaN. The mean of equal numbers is
    exactly that number.
    """
    fitness, descriptor = jnp.asarray(evaluation.fitness), jnp.asarray(evaluation.descriptor)
    if fitness.ndim == 1:
        return fitness, descriptor

    def mean(values: jax.Array) -> jax.Array:
        first = values[:, :1]
        return first[:, 0] + (values - first).mean(1)

    return mean(fitness), mean(descriptor)


def solutions(batch: Batch, evaluation: Evaluation, progress: Progress) -> Solutions:
    """What was evaluated, with its origin."""
    count, episodes = len(batch.operator), evaluation.fitness.size // len(batch.operator)
    fitness, descriptor = averaged(evaluation)
    return Solutions(
        parameters=batch.parameters,
        fitness=fitness,
        descriptor=descriptor,
        origin=Origin(
            evaluation=progress.evaluations + episodes * jnp.arange(count, dtype=jnp.int32),
            seed=jnp.asarray(evaluation.seed),
            generation=jnp.full(count, progress.generation + 1),
            operator=batch.operator,
            parents=batch.parents,
        ),
    )


def skipped(evaluation: Evaluation, status: jax.Array) -> jax.Array:
    """The status, saying which offspring the budget had no room for."""
    first = evaluation.ending.reshape(len(status), -1)[:, 0]
    return jnp.where(first == Ending.SKIPPED, Status.SKIPPED, status)

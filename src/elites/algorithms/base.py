"""What every algorithm is: pure functions over one pytree, to be jitted, saved, scanned and vmapped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from elites.archives.archive import Archive, Origin, Solutions, Status, empty_archive, insert
from elites.archives.cells import make_cells
from elites.archives.deep_grid import DeepGrid
from elites.errors import ElitesError, require
from elites.evaluation.environment import Environment
from elites.evaluation.evaluation import Evaluation
from elites.genomes import genome_of
from elites.policies import Policy
from elites.tasks.episode import Ending
from elites.tasks.task import Task
from elites.variation.offspring import Offspring, random_genomes


class Round(NamedTuple):
    """The shape of one ask/tell exchange. Static: `ask` and `tell` are compiled once per Round."""

    name: str
    policies: int
    episodes: int = 1  # per policy
    transitions: bool = False  # whether `tell` needs every step

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the episodes: `[policies]`, or `[policies, episodes]` if there are several."""
        return (self.policies,) if self.episodes == 1 else (self.policies, self.episodes)

    @property
    def evaluations(self) -> int:
        return self.policies * self.episodes


class Batch(NamedTuple):
    """Genomes to evaluate `[n, …]`."""

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


class Progress(NamedTuple):
    """Where a run stands."""

    generation: jax.Array
    evaluations: jax.Array
    training_steps: jax.Array  # in an environment of the algorithm's own, beside the evaluations


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """Hyper-parameters that all algorithms have."""

    hidden: tuple[int, ...] = (128, 128)
    """Hidden units of the controllers."""
    archive: Literal["cvt", "grid"] = "cvt"
    """Shape of the cells: CVT or a regular grid."""

    def __post_init__(self) -> None:
        require(all(width >= 1 for width in self.hidden), "hidden", self.hidden, "widths of at least 1")


class Algorithm(ABC):
    """An algorithm on a task. Its state is a NamedTuple whose `progress` is a Progress."""

    Config: ClassVar[type[Any]] = AlgorithmConfig
    """The dataclass of its hyper-parameters; a subclass of AlgorithmConfig."""
    operators: ClassVar[tuple[str, ...]]
    """The names of what makes its offspring, as columns and figures show them."""

    opening: tuple[tuple[Round, ...], ...] = ()  # the rounds of each of the first generations
    generation: tuple[Round, ...]  # those of all others
    environment: Environment | None = None  # that it acts in step by step, beside the evaluations
    shares_program: bool = True  # whether `ask` and `tell` can be vmapped over replications
    keeps_members: bool = False  # whether the members of all cells are saved at the end
    needs_policy: ClassVar[bool] = False
    """Whether it can only evolve controllers."""
    has_members: ClassVar[bool] = False
    """Whether a cell holds several members, of which the elite is the best."""

    def __init__(self, task: Task, config: Any = None) -> None:
        self.task = task
        self.config: Any = self.Config() if config is None else config
        self.genome = genome_of(task, self.config.hidden)
        self.cells = make_cells(task, self.config.archive)
        if self.needs_policy:
            self.policy  # noqa: B018 # refuses a task without an environment

    @property
    def policy(self) -> Policy:
        """The controllers of the task, for algorithms that learn in its environment."""
        if not isinstance(self.genome, Policy):
            raise ElitesError(
                f"{type(self).__name__} trains controllers in an environment; {self.task.name} has none. "
                "map-elites and cma-map-elites can optimise it"
            )
        return self.genome

    @abstractmethod
    def init(self, key: jax.Array) -> Any:
        """The state before anything is evaluated."""

    @abstractmethod
    def ask(self, state: Any, key: jax.Array, round: Round) -> tuple[Any, Batch]:
        """Makes the next genomes."""

    @abstractmethod
    def tell(
        self, state: Any, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation
    ) -> tuple[Any, jax.Array]:
        """Takes in their evaluation. Returns the Status of each."""

    def archive(self, state: Any) -> Archive:
        """The collection so far, one elite per cell."""
        archive: Archive = state.archive
        return archive

    def members(self, state: Any) -> DeepGrid | None:
        """All members of the cells, where they have several."""
        return None

    def gradient_steps(self, state: Any) -> jax.Array:
        """Training steps of the critics so far."""
        return jnp.zeros((), jnp.int32)

    # What most algorithms need to write the above.

    def empty_archive(self, episodes: int = 1) -> Archive:
        """An archive without elites; `episodes` are those that a fitness is the mean of."""
        sizes = len(self.cells.centroids), self.genome.parameter_count, self.task.descriptor_size
        return empty_archive(*sizes, episodes)

    def random(self, key: jax.Array, count: int) -> Batch:
        """Random genomes, made by the operator `random`."""
        return self.batch(random=random_genomes(self.genome, jax.random.fold_in(key, Stream.RANDOM), count))

    def batch(self, **offspring: Offspring) -> Batch:
        """One batch of what these operators made."""
        numbers = [
            jnp.full(len(made.parameters), self.operators.index(name), jnp.int32)
            for name, made in offspring.items()
        ]
        parameters, parents = zip(*offspring.values(), strict=True)
        return Batch(jnp.concatenate(parameters), jnp.concatenate(numbers), jnp.concatenate(parents))

    def insert(
        self, archive: Archive, batch: Batch, evaluation: Evaluation[jax.Array], progress: Progress
    ) -> tuple[Archive, jax.Array]:
        """Adds an evaluated batch to the archive. Returns the Status of each."""
        offspring = solutions(batch, evaluation, progress)
        archive, status = insert(archive, self.cells.of(offspring.descriptor), offspring)
        return archive, mark_skipped(evaluation, status)


def start() -> Progress:
    """Before the first generation."""
    return Progress(jnp.int32(0), jnp.int32(0), jnp.int32(0))


def advance(progress: Progress, evaluation: Evaluation[jax.Array]) -> Progress:
    """After a generation of one round."""
    evaluated = (evaluation.ending != Ending.SKIPPED).sum()
    return progress._replace(
        generation=progress.generation + 1,
        evaluations=progress.evaluations + evaluated.astype(jnp.int32),
    )


def random_rounds(
    initial: int, batch: int, *, episodes: int = 1, transitions: bool = False
) -> tuple[tuple[Round, ...], ...]:
    """`initial` random genomes, in generations as large as all others: nothing is compiled twice."""
    whole, rest = divmod(initial, batch)
    sizes = [batch] * whole + [rest] * (rest > 0)
    return tuple((Round("random", size, episodes, transitions),) for size in sizes)


def mean_of_episodes(evaluation: Evaluation[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Fitness `[n]` and descriptor `[n, d]` of genomes: the mean, if they have several episodes.

    A genome one of whose episodes is invalid, or was not run, is NaN. The mean of equal numbers is exactly
    that number.
    """
    fitness, descriptor = jnp.asarray(evaluation.fitness), jnp.asarray(evaluation.descriptor)
    if fitness.ndim == 1:
        return fitness, descriptor

    def mean(values: jax.Array) -> jax.Array:
        first = values[:, :1]
        return first[:, 0] + (values - first).mean(1)

    return mean(fitness), mean(descriptor)


def solutions(batch: Batch, evaluation: Evaluation[jax.Array], progress: Progress) -> Solutions:
    """What was evaluated, with its origin."""
    count, episodes = len(batch.operator), evaluation.fitness.size // len(batch.operator)
    fitness, descriptor = mean_of_episodes(evaluation)
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


def mark_skipped(evaluation: Evaluation[jax.Array], status: jax.Array) -> jax.Array:
    """The status, SKIPPED for offspring that the budget had no room for."""
    first = evaluation.ending.reshape(len(status), -1)[:, 0]
    return jnp.where(first == Ending.SKIPPED, Status.SKIPPED, status)

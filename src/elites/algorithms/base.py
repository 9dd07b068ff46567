"""The interface of algorithms: pure functions over one pytree, to be jitted, saved, scanned and vmapped."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from elites.archives.archive import Archive, Origin, Solutions, Status, empty_archive, insert
from elites.archives.cells import CVT_VERSION, make_cells
from elites.archives.deep_grid import DeepGridArchive
from elites.errors import ElitesError
from elites.evaluation.environment import Environment
from elites.evaluation.evaluation import Evaluation
from elites.genomes import make_genome
from elites.learning.critics import CriticConfig, TrainingSums
from elites.learning.products import Precision
from elites.options import Range, Widths, check_fields
from elites.policies import Policy
from elites.policies.layout import HIDDEN
from elites.tasks.episode import Ending
from elites.tasks.task import Task
from elites.variation.offspring import Offspring, random_genomes, without_parents

START = "start"  # the operator of genomes that a run begins with


class Round(NamedTuple):
    """The shape of one ask/tell exchange. Static: `ask` and `tell` are compiled once per Round."""

    name: str
    policies: int
    episodes: int = 1  # per policy
    transitions: bool = False  # whether `tell` needs every step
    action_noise: float = 0.0  # standard deviation of noise on every action: see `Evaluator.evaluate`

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the episodes: `[policies]`, or `[policies, episodes]` with several per policy."""
        return (self.policies,) if self.episodes == 1 else (self.policies, self.episodes)

    @property
    def evaluations(self) -> int:
        return self.policies * self.episodes


class Batch(NamedTuple):
    """Genomes to evaluate `[n, …]`."""

    parameters: jax.Array
    operator: jax.Array  # int32, an index into the algorithm's `operators`
    parents: jax.Array  # int32 [n, 2], evaluations of the parents; -1: none
    training: TrainingSums | None = None  # of the critics, before these genomes were made


class RandomStream(IntEnum):
    """Numbers that are folded into a random key, so that the random numbers of an operator do not depend on
    the other operators."""

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
    """Counts since the start of a run."""

    generation: jax.Array
    evaluations: jax.Array
    training_steps: jax.Array  # in the algorithm's own environment; not part of the evaluations


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """Hyper-parameters of all algorithms."""

    hidden: Widths = HIDDEN
    """Hidden units of the controllers."""
    archive: Literal["cvt", "grid"] = "cvt"
    """Shape of the cells: CVT or a regular grid."""
    cvt_version: Annotated[int, Range(1, CVT_VERSION)] = CVT_VERSION
    """Version of the CVT: 2 begins with k-means++ and is uniform in one dimension, 1 begins with random
    samples."""

    def __post_init__(self) -> None:
        check_fields(self)

    def shortest_opening(self) -> dict[str, Any]:
        """Hyper-parameters with which the first generations, before the usual ones, take the least time."""
        return {}


class Algorithm(ABC):
    """An algorithm on a task. Its state is a NamedTuple with a field `progress`, a Progress."""

    Config: ClassVar[type[Any]] = AlgorithmConfig
    """The dataclass of its hyper-parameters; a subclass of AlgorithmConfig."""
    operators: tuple[str, ...]
    """Names of the variation operators, as shown in columns and figures."""
    greedy_operator: ClassVar[str] = ""
    """Name of the operator that evaluates copies of the trained actor; empty if there is none."""

    opening: tuple[tuple[Round, ...], ...] = ()  # rounds of each of the first generations
    generation: tuple[Round, ...]  # rounds of all other generations
    environment: Environment | None = None  # for training step by step; not used for evaluations
    members_per_cell: int = 1  # at most
    starting_genome_count: int = 0  # number of given genomes that replace the random ones
    needs_policy: ClassVar[bool] = False
    """Whether it evolves controllers only, and so needs a task with an environment."""
    has_members: ClassVar[bool] = False
    """Whether a cell holds several members. The best one is the elite."""

    def __init__(self, task: Task, config: Any = None) -> None:
        self.task = task
        self.config: Any = self.Config() if config is None else config
        self.genome = make_genome(task, self.config.hidden)
        self.cells = make_cells(task, self.config.archive, self.config.cvt_version)
        if self.needs_policy:
            self.require_policy()

    @classmethod
    def shares_program(cls, task: Task, config: Any) -> bool:
        """Whether `ask` and `tell` can be vmapped over replications."""
        return True

    @classmethod
    def keeps_members(cls, config: Any) -> bool:
        """Whether the members of all cells are saved at the end, so that a correction can draw from them."""
        return False

    def require_policy(self) -> Policy:
        """The controllers of the task; an error if it has no environment."""
        if not isinstance(self.genome, Policy):
            from elites.algorithms import ALGORITHMS  # imports this module

            *others, last = (name for name, kind in ALGORITHMS.items() if not kind.needs_policy)
            raise ElitesError(
                f"{self.public_name} trains controllers in an environment; {self.task.name} has none. "
                f"{', '.join(others)} and {last} can optimise it"
            )
        return self.genome

    @property
    def public_name(self) -> str:
        """The name that users give it; that of its class if it is not built in."""
        from elites.algorithms import ALGORITHMS  # imports this module

        names = {kind: name for name, kind in ALGORITHMS.items()}
        return names.get(type(self), type(self).__name__)

    @property
    def training_precision(self) -> Precision | None:
        """The numbers that critics are trained with; None for algorithms without critics."""
        return self.config.training_precision if isinstance(self.config, CriticConfig) else None

    @property
    def policy(self) -> Policy:
        """The controllers of the task, for algorithms that learn in its environment."""
        return self.require_policy()

    @abstractmethod
    def init(self, key: jax.Array) -> Any:
        """The state before the first evaluation."""

    @abstractmethod
    def ask(self, state: Any, key: jax.Array, round: Round) -> tuple[Any, Batch]:
        """Makes the next genomes."""

    @abstractmethod
    def tell(
        self, state: Any, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[Any, jax.Array]:
        """Updates the state with their evaluation. Returns the Status of each genome."""

    def start_round(self) -> Round | None:
        """The round that evaluates the genomes of an earlier archive, if a run begins with one.

        By default, the first round of random genomes; None if the algorithm cannot begin with an archive.
        """
        rounds = (round for rounds in self.opening for round in rounds if round.name == "random")
        return next(rounds, None)

    def replace_initial_genomes(self, count: int) -> None:
        """Replaces the random genomes of the opening by this number of given ones, of the operator `start`.

        `ask` is not called for them; `tell` gets them in the rounds of `start_round`.
        """
        round = self.start_round()
        if round is None:
            raise ElitesError(
                f"{self.public_name} has no initial population that an archive could replace (--from)"
            )
        others = tuple(rounds for rounds in self.opening if rounds[0].name != round.name)
        self.opening = (*split_rounds(round, count), *others)
        self.operators, self.starting_genome_count = (*self.operators, START), count

    def opening_evaluations(self) -> int:
        """Evaluations before anything is varied or trained: those of random or given genomes."""
        round = self.start_round()
        rounds = [one for rounds in self.opening for one in rounds if round and one.name == round.name]
        return sum(one.evaluations for one in rounds)

    def archive(self, state: Any) -> Archive:
        """The collection so far, one elite per cell."""
        archive: Archive = state.archive
        return archive

    def members(self, state: Any) -> DeepGridArchive | None:
        """All members of the cells; None if a cell holds only its elite."""
        return None

    def gradient_steps(self, state: Any) -> jax.Array:
        """Training steps of the critics so far."""
        return jnp.zeros((), jnp.int32)

    def working_bytes(self) -> int:
        """Lower bound for the memory of its largest arrays, apart from the state and the batch."""
        return 0

    # Helpers for subclasses.

    def empty_archive(self, episodes: int = 1) -> Archive:
        """An archive without elites. A fitness is the mean over `episodes`."""
        sizes = len(self.cells.centroids), self.genome.parameter_count, self.task.descriptor_size
        return empty_archive(*sizes, episodes)

    def make_random_batch(self, key: jax.Array, count: int) -> Batch:
        """Random genomes, made by the operator `random`."""
        return self.make_batch(
            random=random_genomes(self.genome, jax.random.fold_in(key, RandomStream.RANDOM), count)
        )

    def operator_key(self, key: jax.Array, operator: str) -> jax.Array:
        """A key for an operator, made from its name: its random numbers do not depend on other operators."""
        return jax.random.fold_in(key, zlib.crc32(operator.encode()))

    def make_starting_batch(self, parameters: jax.Array) -> Batch:
        """A batch of given genomes, which a run begins with."""
        return self.make_batch(start=without_parents(parameters))

    def make_batch(self, **offspring: Offspring) -> Batch:
        """One batch of the offspring of several operators."""
        for name in offspring:
            if name not in self.operators:
                allowed = ", ".join(self.operators)
                raise ElitesError(f"{self.public_name} has no operator {name!r}; its operators are {allowed}")
        numbers = [
            jnp.full(len(genomes.parameters), self.operators.index(name), jnp.int32)
            for name, genomes in offspring.items()
        ]
        parameters, parents = zip(*offspring.values(), strict=True)
        return Batch(jnp.concatenate(parameters), jnp.concatenate(numbers), jnp.concatenate(parents))

    def insert(
        self, archive: Archive, batch: Batch, evaluation: Evaluation[jax.Array], progress: Progress
    ) -> tuple[Archive, jax.Array]:
        """Adds an evaluated batch to the archive. Returns the Status of each genome."""
        offspring = make_solutions(batch, evaluation, progress)
        archive, status = insert(archive, self.cells.assign(offspring.descriptor), offspring)
        return archive, mark_skipped(evaluation, status)


def zero_progress() -> Progress:
    """The progress before the first generation."""
    return Progress(jnp.int32(0), jnp.int32(0), jnp.int32(0))


def advance(progress: Progress, evaluation: Evaluation[jax.Array]) -> Progress:
    """The progress after a generation of one round."""
    evaluated = (evaluation.ending != Ending.SKIPPED).sum()
    return progress._replace(
        generation=progress.generation + 1,
        evaluations=progress.evaluations + evaluated.astype(jnp.int32),
    )


def random_rounds(
    initial: int, batch: int, *, episodes: int = 1, transitions: bool = False
) -> tuple[tuple[Round, ...], ...]:
    """Rounds of `initial` random genomes. They have the usual size, so that they share a compiled program."""
    return split_rounds(Round("random", batch, episodes, transitions), initial)


def split_rounds(usual: Round, genomes: int) -> tuple[tuple[Round, ...], ...]:
    """Splits `genomes` into generations of one `usual` round each; the last one may be smaller."""
    whole, rest = divmod(genomes, usual.policies)
    return ((usual,),) * whole + ((usual._replace(policies=rest),),) * (rest > 0)


def average_episodes(evaluation: Evaluation[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Fitness `[n]` and descriptor `[n, d]` of genomes: means over their episodes.

    NaN for a genome with an episode that is invalid or was not run. The mean of equal numbers is exactly that
    number.
    """
    fitness, descriptor = jnp.asarray(evaluation.fitness), jnp.asarray(evaluation.descriptor)
    if fitness.ndim == 1:
        return fitness, descriptor

    def mean(values: jax.Array) -> jax.Array:
        first = values[:, :1]
        return first[:, 0] + (values - first).mean(1)

    return mean(fitness), mean(descriptor)


def make_solutions(batch: Batch, evaluation: Evaluation[jax.Array], progress: Progress) -> Solutions:
    """The evaluated batch, with its origin."""
    count, episodes = len(batch.operator), evaluation.fitness.size // len(batch.operator)
    fitness, descriptor = average_episodes(evaluation)
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
    """The status of each offspring, with SKIPPED for those beyond the budget."""
    first = evaluation.ending.reshape(len(status), -1)[:, 0]
    return jnp.where(first == Ending.SKIPPED, Status.SKIPPED, status)

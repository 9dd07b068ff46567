"""What the runner drives: one run on the host, or many replications of it in one program on the device."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.algorithm import Algorithm, Batch, Round
from elites.archives.archive import Archive, Status
from elites.archives.deep_grid import DeepGrid
from elites.cache import keep_compiled_programs
from elites.errors import ElitesError
from elites.evaluation import evaluator_of, refuse_cluster
from elites.evaluation.environment import raise_failure
from elites.evaluation.evaluation import Evaluation, Evaluator
from elites.experiments.config import RunConfig
from elites.experiments.device import ROWS, Generations, Row, counts_of, evaluations_of, keys_of
from elites.memory import available_bytes
from elites.metrics.archive import archive_metrics
from elites.results.archive import SavedArchive, saved_archive
from elites.results.members import Members, members_of
from elites.tasks import parameters_of
from elites.tasks.task import DeviceTask

DISPATCH_SECONDS = 2.0  # of work are given to the device at once: it can be stopped and looked at in between


class Generation(NamedTuple):
    """What a generation came to: a row of `metrics.csv` for each replication, and the time it took."""

    metrics: list[dict[str, Any]]
    timings: dict[str, float]


class Replications(Protocol):
    """Runs that differ in their seeds alone, and go on together."""

    configs: list[RunConfig]
    algorithm: Algorithm
    evaluator: Evaluator
    timings: tuple[str, ...]  # what a Generation's timings name
    state: Any  # a pytree, all that a checkpoint needs beside the numbers below
    started: float
    generation: int
    evaluations: int  # of each replication
    environment_steps: list[int]

    def advance(self, until: int) -> list[Generation]:
        """Goes on by a generation or more, but not past the first that reaches so many evaluations."""

    def fitness(self) -> np.ndarray:
        """Of every cell of every replication, -inf where it is empty."""

    def archives(self) -> list[Archive]:
        """Those of the replications."""

    def members(self, index: int) -> Members | None:
        """Those of a replication's deep grid."""


def replications(configs: list[RunConfig], threads: int | None, cluster: str | None = None) -> Replications:
    """The runs of these configurations, which differ in their seeds alone. Refused if they cannot fit."""
    keep_compiled_programs()
    algorithm = configs[0].make_algorithm()
    if isinstance(algorithm.task, DeviceTask):
        jax.eval_shape(algorithm.task.reset, jnp.uint32(0))  # tells what is not installed
    if together(algorithm):
        refuse_cluster(algorithm.task, cluster)
        return OnDevice(configs, algorithm)
    (config,) = configs
    return OnHost(config, algorithm, threads, cluster)


def together(algorithm: Algorithm) -> bool:
    """Whether replications of it can run in one program."""
    return isinstance(algorithm.task, DeviceTask) and not getattr(algorithm, "on_host", False)


def rounds_at(algorithm: Algorithm, generation: int) -> tuple[Round, ...]:
    """What the generation after so many consists of."""
    opening = algorithm.opening
    return opening[generation] if generation < len(opening) else algorithm.generation


def metric_columns(algorithm: Algorithm) -> list[str]:
    """The columns of `metrics.csv`."""
    made = [f"{what}_{name}" for name in algorithm.operators for what in ("made", "new", "improved")]
    progress = ["generation", "evaluations", "environment_steps", "gradient_steps"]
    return [*progress, "qd_score", "max_fitness", "coverage", "invalid", *made]


def metrics_of(algorithm: Algorithm, fitness: np.ndarray) -> dict[str, float]:
    """QD-score, max-fitness and coverage, given the fitness of every cell."""
    return archive_metrics(fitness[fitness > -np.inf], len(fitness), algorithm.task.qd_offset)._asdict()


def to_save(config: RunConfig, algorithm: Algorithm, archive: Archive, evaluations: int) -> SavedArchive:
    """An archive as it is saved."""
    about = {
        "algorithm": config.algorithm,
        "hyper_parameters": asdict(algorithm.config),
        "task": {
            "name": config.task,
            "parameters": parameters_of(algorithm.task),
            "qd_offset": algorithm.task.qd_offset,
            "descriptor_names": algorithm.task.descriptor_names,
            "descriptor_phrase": algorithm.task.descriptor_phrase,
        },
        "seed": config.seed,
        "evaluations": evaluations,
    }
    return saved_archive(archive, algorithm.cells, algorithm.operators, algorithm.policy.sizes, about)


@jax.jit
def _episode_seeds(key: jax.Array, evaluations: jax.Array) -> jax.Array:
    return jax.vmap(lambda number: jax.random.bits(jax.random.fold_in(key, number)))(evaluations)


class OnHost:
    """One run: the algorithm is compiled, the episodes run outside of it."""

    timings: tuple[str, ...] = ("ask_s", "rollouts_s", "tell_s")

    def __init__(
        self, config: RunConfig, algorithm: Algorithm, threads: int | None, cluster: str | None = None
    ) -> None:
        self.started = time.perf_counter()
        self.configs, self.algorithm = [config], algorithm
        require_memory(algorithm)
        hidden = algorithm.policy.sizes[1:-1]
        self.evaluator: Evaluator = evaluator_of(algorithm.task, hidden, threads, cluster)
        self._evolving, starting, self._seeding = jax.random.split(jax.random.key(config.seed), 3)
        self._ask = jax.jit(algorithm.ask, static_argnums=2, donate_argnums=0)
        self._tell = jax.jit(algorithm.tell, static_argnums=2, donate_argnums=0)
        self._fitness = jax.jit(lambda state: algorithm.archive(state).elites.fitness)
        self.state = jax.block_until_ready(jax.jit(algorithm.init)(starting))
        raise_failure(getattr(algorithm, "environment", None))
        self.generation = self.evaluations = 0
        self.environment_steps = [0]

    def advance(self, until: int) -> list[Generation]:
        """One generation."""
        counts = {
            f"{what}_{name}": 0 for name in self.algorithm.operators for what in ("made", "new", "improved")
        }
        spent = dict.fromkeys(self.timings, 0.0)
        invalid = steps = 0
        key = jax.random.fold_in(self._evolving, self.generation)
        for index, round in enumerate(rounds_at(self.algorithm, self.generation)):
            asking, telling = jax.random.split(jax.random.fold_in(key, index))
            clock = time.perf_counter()
            self.state, batch = self._ask(self.state, asking, round)
            parameters = np.asarray(batch.parameters)
            raise_failure(getattr(self.algorithm, "environment", None))
            spent["ask_s"] += (asked := time.perf_counter()) - clock
            evaluation = self._evaluate(parameters, round)
            spent["rollouts_s"] += (evaluated := time.perf_counter()) - asked
            self.state, status = self._tell(self.state, telling, round, batch, evaluation)
            _count(counts, self.algorithm.operators, batch, np.asarray(status))
            spent["tell_s"] += time.perf_counter() - evaluated
            steps += int(evaluation.length.sum())
            invalid += evaluation.invalid
        self.generation += 1
        self.environment_steps[0] += steps
        metrics = {
            "generation": self.generation,
            "evaluations": self.evaluations,
            "environment_steps": self.environment_steps[0] + int(self.state.progress.training_steps),
            "gradient_steps": int(self.algorithm.gradient_steps(self.state)),
            **metrics_of(self.algorithm, self.fitness()[0]),
            "invalid": invalid,
            **counts,
        }
        return [Generation([metrics], {**spent, "steps_per_s": steps / max(spent["rollouts_s"], 1e-9)})]

    def _evaluate(self, parameters: np.ndarray, round: Round) -> Evaluation:
        """Runs as many episodes as the budget has room for; the others count as skipped."""
        shape = (round.policies,) if round.episodes == 1 else (round.policies, round.episodes)
        total = round.policies * round.episodes
        numbers = self.evaluations + np.arange(total, dtype=np.int32)
        seeds = np.asarray(_episode_seeds(self._seeding, numbers)).reshape(shape)
        limit = min(total, self.configs[0].evaluations - self.evaluations)
        self.evaluations += limit
        return self.evaluator.evaluate(parameters, seeds, transitions=round.transitions, limit=limit)

    def fitness(self) -> np.ndarray:
        """Of every cell of the run, `[1, cells]`."""
        return np.asarray(self._fitness(self.state))[None]

    def archives(self) -> list[Archive]:
        """The run's."""
        return [self.algorithm.archive(self.state)]

    def members(self, index: int) -> Members | None:
        """Those of a deep grid."""
        return _members(self.state, self.evaluations)


def _count(counts: dict[str, int], operators: tuple[str, ...], batch: Batch, status: np.ndarray) -> None:
    operator = np.asarray(batch.operator)
    for index, name in enumerate(operators):
        of_operator = status[operator == index]
        counts[f"made_{name}"] += int(np.count_nonzero(of_operator != Status.SKIPPED))
        counts[f"new_{name}"] += int(np.count_nonzero(of_operator == Status.NEW))
        counts[f"improved_{name}"] += int(np.count_nonzero(of_operator == Status.IMPROVED))


def _members(state: Any, evaluations: int) -> Members | None:
    grid = getattr(state, "grid", None)
    return members_of(grid, evaluations) if isinstance(grid, DeepGrid) else None


class OnDevice:
    """Replications side by side in one program, many generations of them at a time."""

    timings: tuple[str, ...] = ("device_s",)

    def __init__(self, configs: list[RunConfig], algorithm: Algorithm) -> None:
        self.started = time.perf_counter()
        self.configs, self.algorithm = configs, algorithm
        require_memory(algorithm, len(configs))
        self.evaluator: Evaluator = evaluator_of(algorithm.task, algorithm.policy.sizes[1:-1], None)
        starting, self._keys = keys_of([config.seed for config in configs])
        self._generations = Generations(algorithm, configs[0].evaluations)
        self._archive = jax.jit(jax.vmap(algorithm.archive))
        self._fitness = jax.jit(jax.vmap(lambda state: algorithm.archive(state).elites.fitness))
        self.state = jax.jit(jax.vmap(algorithm.init))(starting)
        self.generation = self.evaluations = 0
        self.environment_steps = [0] * len(configs)
        self._pace: float | None = None  # seconds per generation, once known

    def advance(self, until: int) -> list[Generation]:
        """As many generations of the same kind as take about two seconds."""
        rounds, budget = rounds_at(self.algorithm, self.generation), self.configs[0].evaluations
        each = evaluations_of(rounds)
        count = 1 if self._pace is None else round(DISPATCH_SECONDS / self._pace)
        count = max(1, min(count, ROWS, -(-(min(until, budget) - self.evaluations) // each)))
        kinds = [rounds_at(self.algorithm, self.generation + ahead) for ahead in range(count)]
        count = next((ahead for ahead, kind in enumerate(kinds) if kind != rounds), count)
        known = self._generations.compiled(rounds)
        clock = time.perf_counter()
        self.state, rows = self._generations.run(
            self.state,
            self._keys,
            jnp.int32(self.generation),
            jnp.int32(self.evaluations),
            jnp.int32(count),
            rounds,
        )
        told: Row = jax.tree.map(lambda array: np.asarray(array[:count]), rows)
        seconds = (time.perf_counter() - clock) / count
        self._pace = seconds if known else self._pace
        return [
            self._row(jax.tree.map(lambda array, i=i: array[i], told), each, seconds) for i in range(count)
        ]

    def _row(self, row: Row, evaluations: int, seconds: float) -> Generation:
        self.generation += 1
        self.evaluations = min(self.evaluations + evaluations, self.configs[0].evaluations)
        metrics: list[dict[str, Any]] = []
        for index in range(len(self.configs)):
            self.environment_steps[index] += int(row.steps[index])
            metrics.append(
                {
                    "generation": self.generation,
                    "evaluations": self.evaluations,
                    "environment_steps": self.environment_steps[index] + int(row.training_steps[index]),
                    "gradient_steps": int(row.gradient_steps[index]),
                    **metrics_of(self.algorithm, np.asarray(row.fitness[index])),
                    "invalid": int(row.invalid[index]),
                    **counts_of(np.asarray(row.statuses[index]), self.algorithm.operators),
                }
            )
        return Generation(metrics, {"device_s": seconds, "steps_per_s": int(row.steps.sum()) / seconds})

    def fitness(self) -> np.ndarray:
        """Of every cell of every replication."""
        return np.asarray(self._fitness(self.state))

    def archives(self) -> list[Archive]:
        """All of them, copied to the host together."""
        whole = jax.tree.map(np.asarray, self._archive(self.state))
        return [jax.tree.map(lambda array, i=i: array[i], whole) for i in range(len(self.configs))]

    def members(self, index: int) -> Members | None:
        """Those of a replication's deep grid."""
        return _members(jax.tree.map(lambda array: array[index], self.state), self.evaluations)


def bytes_needed(algorithm: Algorithm) -> int:
    """What one replication takes: its state; and the largest batch with its transitions, or a copy of its
    largest array, which a checkpoint makes."""
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    sizes = [int(leaf.size * leaf.dtype.itemsize) for leaf in jax.tree.leaves(state)]
    held = sum(sizes)
    task, parameters = algorithm.task, algorithm.policy.parameter_count
    step = 4 * (task.observation_size + task.action_size + 2) + task.descriptor_size
    batch = max(
        round.policies * (4 * parameters + round.transitions * round.episodes * task.episode_length * step)
        for rounds in (*algorithm.opening, algorithm.generation)
        for round in rounds
    )
    # On the device a program holds copies: of some arrays as they are updated, and of transitions as they
    # come, by episode, and as rows of the buffer.
    return 3 * held // 2 + 6 * batch if isinstance(task, DeviceTask) else held + max(batch, *sizes)


def require_memory(algorithm: Algorithm, count: int = 1) -> None:
    """Refuses a plan that cannot fit, before anything is allocated."""
    each, there = bytes_needed(algorithm), available_bytes()
    if count * each <= there:
        return
    fits = there // each
    raise ElitesError(
        f"{'this run takes' if count == 1 else f'{count} seeds take'} {count * each / 1e9:.1f} GB and "
        f"{there / 1e9:.1f} GB are free; {f'{fits} seeds fit' if fits else 'smaller sizes take less'}"
    )

"""Replications of a run: what they have in common, whether their episodes run inside the program or outside.

`episodes_outside.py` and `episodes_inside.py` drive their generations.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.base import Algorithm, Round
from elites.archives.archive import Archive
from elites.evaluation import make_evaluator
from elites.evaluation.environment import raise_failure
from elites.experiments.config import RunConfig
from elites.experiments.execution import Execution
from elites.experiments.generation import (
    FinishedGeneration,
    RunTotals,
    count_evaluations,
    make_generation,
    make_keys,
    pack_archive,
)
from elites.experiments.rows import collect_elites, compute_metrics
from elites.memory import require_bytes
from elites.options import Physics
from elites.results.archive import SavedArchive
from elites.results.members import Members, make_members

DISPATCH_SECONDS = 2.0  # of work per dispatch to the device; a run can stop only between dispatches
StartGenomes = Callable[[], np.ndarray]  # returns the genomes [n, P] that runs begin with
COMPILING, FIRST_EPISODES = "compiling", "first episodes"  # phases


class Replications(ABC):
    """Runs that differ only in their seeds, and advance together."""

    inside: ClassVar[bool]  # whether episodes are part of the program
    timings: tuple[str, ...]  # of a FinishedGeneration

    def __init__(
        self,
        configs: list[RunConfig],
        algorithm: Algorithm,
        execution: Execution,
        start_genomes: StartGenomes | None,
    ) -> None:
        self.started, self.on_phase = time.perf_counter(), execution.on_phase
        self._start_genomes = None if start_genomes is None else functools.cache(start_genomes)
        self.configs, self.metrics = configs, configs[0].make_metrics()
        self.physics = configs[0].physics
        require_memory(algorithm, self.physics, len(configs))
        self.on_phase(COMPILING)
        self.parts = count_parts(
            len(configs), inside=self.inside
        )  # of equal size; each is a call of a program
        self.asks_ahead = asks_ahead(self.parts)
        size, self.budget = len(configs) // self.parts, configs[0].evaluations
        self.functions = make_generation(
            algorithm, size, with_descriptors=self.metrics.has_own, keep_input_states=self.asks_ahead
        )
        self.compiled = self.functions.compiled
        seeds = [config.seed for config in configs]
        self.keys = [make_keys(seeds[start : start + size]) for start in range(0, len(seeds), size)]
        self.algorithm, hidden = algorithm, algorithm.config.hidden
        self.evaluator = make_evaluator(
            algorithm.task, hidden, execution.threads, execution.cluster, self.physics
        )
        self.totals = RunTotals(0, 0, [0] * len(configs))  # so far
        self.paces: dict[tuple[Round, ...], float] = {}  # seconds per generation of each kind
        self.state: Any = jax.block_until_ready([self.compiled.init(keys) for keys in self.keys])  # by part
        raise_failure(algorithm.environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.evaluator.close()

    @property
    def generation(self) -> int:
        """Generations so far."""
        return self.totals.generation

    @property
    def evaluations(self) -> int:
        """Evaluations of each replication so far."""
        return self.totals.evaluations

    @abstractmethod
    def advance(self, until: int) -> list[FinishedGeneration]:
        """Advances by one or more generations, at most to the first that reaches `until` evaluations."""

    def _report_if_new(self, phase: str) -> None:
        """Reports a phase, if generations of this kind are new."""
        if self.functions.find_rounds(self.generation) not in self.paces:
            self.on_phase(phase)

    def _generations_until(self, until: int) -> int:
        """Generations of the next dispatch, all of one kind: for two seconds, once the pace is known."""
        rounds = self.functions.find_rounds(self.generation)
        left = min(until, self.budget) - self.evaluations
        generations = round(DISPATCH_SECONDS / self.paces[rounds]) if rounds in self.paces else 1
        most = max(
            1,
            min(
                generations,
                self.functions.compute_max_generations(rounds),
                -(-left // count_evaluations(rounds)),
            ),
        )
        kinds = [self.functions.find_rounds(self.generation + ahead) for ahead in range(most)]
        return next((ahead for ahead, kind in enumerate(kinds) if kind != rounds), most)

    def read_starting_genomes(self, generation: int) -> np.ndarray | None:
        """The genomes `[n, P]` of a generation that the runs begin with; None for all other generations."""
        opening = self.algorithm.opening
        begin = generation * opening[0][0].policies if opening else 0
        if begin >= self.algorithm.starting_genome_count:
            return None
        assert self._start_genomes is not None
        return self._start_genomes()[begin : begin + opening[generation][0].policies]

    def split_states(self, parts: list[Any]) -> list[Any]:
        """The state of each replication, given those of the parts: arrays `[1, …]` of the host.

        Checkpoints hold them, so that another machine can have another number of parts.
        """
        on_host = [jax.tree.map(np.asarray, part) for part in parts]
        size = self.functions.count
        return [
            jax.tree.map(lambda array, i=i: array[i : i + 1], part) for part in on_host for i in range(size)
        ]

    def restore(self, states: list[Any]) -> None:
        """Continues from the state of each replication. The list is emptied, as states are large."""
        structure = jax.tree.structure(states[0])
        leaves = [jax.tree.leaves(state) for state in states]
        states.clear()
        parts: list[list[jax.Array]] = [[] for _ in self.keys]
        for _ in range(len(leaves[0])):
            arrays = [own.pop(0) for own in leaves]
            for part, joined in enumerate(parts):
                first = part * self.functions.count
                joined.append(jnp.array(np.concatenate(arrays[first : first + self.functions.count])))
        self.state = [jax.tree.unflatten(structure, part) for part in parts]

    def copy_archives(self) -> list[Archive]:
        """The archives of all replications, copied to the host together."""
        parts = [jax.tree.map(np.asarray, self.compiled.collect_archives(state)) for state in self.state]
        indices = range(self.functions.count)
        return [jax.tree.map(lambda array, i=i: array[i], part) for part in parts for i in indices]

    def make_saved_archives(self) -> list[SavedArchive]:
        """The archives in the form in which they are saved."""
        return [
            pack_archive(
                self.algorithm,
                archive,
                name=config.algorithm,
                seed=config.seed,
                evaluations=self.evaluations,
            )
            for config, archive in zip(self.configs, self.copy_archives(), strict=True)
        ]

    def compute_summaries(self) -> list[dict[str, float]]:
        """The metrics of each archive."""
        return [
            compute_metrics(
                self.metrics.archive,
                collect_elites(
                    self.algorithm,
                    np.asarray(archive.elites.fitness),
                    np.asarray(archive.elites.descriptor),
                ),
            )
            for archive in self.copy_archives()
        ]

    def make_members(self, index: int) -> Members | None:
        """The members of a replication's cells; None if a cell holds only its elite."""
        part, place = divmod(index, self.functions.count)
        state = jax.tree.map(lambda array: array[place], self.state[part])
        grid = self.algorithm.members(state)
        return None if grid is None else make_members(grid, self.evaluations)


def runs_inside(algorithm: Algorithm, physics: Physics | None) -> bool:
    """Whether evaluations are part of the program."""
    task = algorithm.task
    return task.is_jax and physics != "native" and algorithm.shares_program(task, algorithm.config)


def count_parts(replications: int, *, inside: bool) -> int:
    """The number of parts of equal size into which replications are split, each a call of a program.

    One if episodes are inside the program. Otherwise on a CPU as many as there are replications, because a
    program of one is faster: its arrays fit into the caches. On an accelerator two or three parts of two
    replications or more, if they can be equal: it trains one part while the episodes of another run.
    """
    if inside:
        return 1
    if not has_accelerator():
        return replications
    return next((parts for parts in (2, 3) if replications % parts == 0 and replications > parts), 1)


def has_accelerator() -> bool:
    """Whether programs run on something other than the CPU."""
    return jax.default_backend() != "cpu"


def asks_ahead(parts: int) -> bool:
    """Whether replications in this number of parts ask for the next generation in advance."""
    return parts > 1 and has_accelerator()


def estimate_bytes(algorithm: Algorithm, physics: Physics | None, count: int = 1) -> int:
    """Memory of each of `count` replications: its state, and the largest batch with its transitions or, for a
    checkpoint, a copy of its largest array. With `asks_ahead` there are the states before and after `ask`.
    """
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    sizes = [int(leaf.size * leaf.dtype.itemsize) for leaf in jax.tree.leaves(state)]
    state_bytes = sum(sizes)
    task, parameters = algorithm.task, algorithm.genome.parameter_count
    described = task.step_descriptor_size * np.dtype(task.step_descriptor_dtype).itemsize
    step = 4 * (task.observation_size + task.action_size + 2) + described
    batch = max(
        round.policies * (4 * parameters + round.transitions * round.episodes * task.episode_length * step)
        for rounds in {*algorithm.opening, algorithm.generation}
        for round in rounds
    )
    # A program on the device needs copies of arrays that it updates, and of transitions: as they come, by
    # episode, and as rows of the buffer.
    batch = max(batch, algorithm.working_bytes())
    if runs_inside(algorithm, physics):
        return 3 * state_bytes // 2 + 6 * batch
    return (1 + asks_ahead(count_parts(count, inside=False))) * state_bytes + max(batch, *sizes)


def require_memory(algorithm: Algorithm, physics: Physics | None, count: int = 1) -> None:
    """Raises an error if the replications do not fit into memory, before anything is allocated."""
    what = "this run takes" if count == 1 else f"{count} seeds take"
    require_bytes(count, estimate_bytes(algorithm, physics, count), what, "seeds")

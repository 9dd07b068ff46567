"""Replications of a run, and the drivers of their generations: episodes inside the program or outside."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.base import Algorithm, Batch, Round
from elites.archives.archive import Archive
from elites.cache import keep_compiled_programs
from elites.errors import ElitesError
from elites.evaluation import make_evaluator, refuse_cluster
from elites.evaluation.environment import raise_failure
from elites.evaluation.evaluation import Evaluation
from elites.experiments.config import RunConfig
from elites.experiments.correct import Settings, require_correction
from elites.experiments.device_program import DeviceProgram, device_program
from elites.experiments.execution import Execution
from elites.experiments.generation import (
    FinishedGeneration,
    Row,
    archive_values,
    collect_elites,
    count_evaluations,
    make_generation,
    make_keys,
    metric_columns,
    metric_rows,
    within_budget,
)
from elites.memory import require_bytes
from elites.options import Physics
from elites.policies import Policy
from elites.results.archive import SavedArchive, saved_archive
from elites.results.members import Members, make_members
from elites.tasks import describe_task
from elites.tasks.function import FunctionTask
from elites.tasks.task import DeviceTask

DISPATCH_SECONDS = 2.0  # of work per dispatch to the device; a run can stop only between dispatches
StartGenomes = Callable[[], np.ndarray]  # returns the genomes [n, P] that runs begin with
COMPILING, FIRST_EPISODES = "compiling", "first episodes"  # phases


class Replications(ABC):
    """Runs that differ only in their seeds, and advance together."""

    timings: tuple[str, ...]  # of a FinishedGeneration
    parts: int  # of equal size; each is a call of a program

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
        self.parts = self.count_parts(len(configs))
        self.asks_ahead = asks_ahead(self.parts)
        size, self.budget = len(configs) // self.parts, configs[0].evaluations
        self.functions = make_generation(
            algorithm, size, describes=self.metrics.has_own, keeps_states=self.asks_ahead
        )
        self.compiled = self.functions.compiled
        seeds = [config.seed for config in configs]
        self.keys = [make_keys(seeds[start : start + size]) for start in range(0, len(seeds), size)]
        self.columns = metric_columns(algorithm, self.metrics)  # of `metrics.csv`
        self.algorithm, hidden = algorithm, algorithm.config.hidden
        self.evaluator = make_evaluator(
            algorithm.task, hidden, execution.threads, execution.cluster, self.physics
        )
        self.generation = self.evaluations = 0  # so far, of each replication
        self.paces: dict[tuple[Round, ...], float] = {}  # seconds per generation of each kind
        self.environment_steps = [0] * len(configs)
        self.state: Any = jax.block_until_ready([self.compiled.init(keys) for keys in self.keys])  # by part
        raise_failure(algorithm.environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.evaluator.close()

    @staticmethod
    def count_parts(replications: int) -> int:
        """The number of parts into which replications are split."""
        return 1

    @abstractmethod
    def advance(self, until: int) -> list[FinishedGeneration]:
        """Advances by one or more generations, at most to the first that reaches `until` evaluations."""

    def _report_if_new(self, phase: str) -> None:
        """Reports a phase, if generations of this kind are new."""
        if self.functions.rounds(self.generation) not in self.paces:
            self.on_phase(phase)

    def _generations_until(self, until: int) -> int:
        """Generations of the next dispatch, all of one kind: for two seconds, once the pace is known."""
        rounds = self.functions.rounds(self.generation)
        left = min(until, self.budget) - self.evaluations
        wanted = round(DISPATCH_SECONDS / self.paces[rounds]) if rounds in self.paces else 1
        most = max(
            1, min(wanted, self.functions.most_generations(rounds), -(-left // count_evaluations(rounds)))
        )
        kinds = [self.functions.rounds(self.generation + ahead) for ahead in range(most)]
        return next((ahead for ahead, kind in enumerate(kinds) if kind != rounds), most)

    def starting_genomes(self, generation: int) -> np.ndarray | None:
        """The genomes `[n, P]` of a generation that the runs begin with; None for all other generations."""
        opening = self.algorithm.opening
        begin = generation * opening[0][0].policies if opening else 0
        if begin >= self.algorithm.starting_genomes:
            return None
        assert self._start_genomes is not None
        return self._start_genomes()[begin : begin + opening[generation][0].policies]

    def states(self, parts: list[Any]) -> list[Any]:
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

    def archives(self) -> list[Archive]:
        """The archives of all replications, copied to the host together."""
        parts = [jax.tree.map(np.asarray, self.compiled.archives(state)) for state in self.state]
        indices = range(self.functions.count)
        return [jax.tree.map(lambda array, i=i: array[i], part) for part in parts for i in indices]

    def saved_archives(self) -> list[SavedArchive]:
        """The archives in the form in which they are saved."""
        pairs = zip(self.configs, self.archives(), strict=True)
        return [self._saved(config, archive) for config, archive in pairs]

    def summaries(self) -> list[dict[str, float]]:
        """The metrics of each archive."""
        return [
            archive_values(
                self.metrics.archive,
                collect_elites(
                    self.algorithm,
                    np.asarray(archive.elites.fitness),
                    np.asarray(archive.elites.descriptor),
                ),
            )
            for archive in self.archives()
        ]

    def members(self, index: int) -> Members | None:
        """The members of a replication's cells; None if a cell holds only its elite."""
        part, place = divmod(index, self.functions.count)
        state = jax.tree.map(lambda array: array[place], self.state[part])
        grid = self.algorithm.members(state)
        return None if grid is None else make_members(grid, self.evaluations)

    def _saved(self, config: RunConfig, archive: Archive) -> SavedArchive:
        algorithm = self.algorithm
        sizes = algorithm.genome.sizes if isinstance(algorithm.genome, Policy) else ()
        about = {
            "algorithm": config.algorithm,
            "hyper_parameters": asdict(algorithm.config),
            "task": describe_task(algorithm.task),
            "seed": config.seed,
            "evaluations": self.evaluations,
        }
        return saved_archive(archive, algorithm.cells, algorithm.operators, sizes, about)

    def _finish(
        self, row: Row, offspring: np.ndarray, evaluations: int, timings: dict[str, float]
    ) -> FinishedGeneration:
        """Updates the counters after a generation, and computes its metrics."""
        self.generation += 1
        self.evaluations = min(self.evaluations + evaluations, self.budget)
        steps = zip(self.environment_steps, row.counts.steps, strict=True)
        self.environment_steps = [before + int(new) for before, new in steps]
        counters = self.generation, self.evaluations, self.environment_steps
        metrics = metric_rows(*counters, row, self.algorithm, self.metrics, self.columns)
        return FinishedGeneration(self.generation, self.evaluations, metrics, offspring, timings)


def make_replications(
    configs: list[RunConfig],
    execution: Execution | None = None,
    start_genomes: StartGenomes | None = None,
) -> Replications:
    """The runs of these configurations, which differ only in their seeds, if they fit into memory.

    `start_genomes` returns the genomes that they begin with, if their configuration has a `start`.
    """
    keep_compiled_programs()
    execution, algorithm = execution or Execution(), configs[0].make_algorithm()
    task = algorithm.task
    driver: type[Replications] = EpisodesOutside
    if isinstance(task, DeviceTask):
        if problem := task.unavailable_reason():
            raise ElitesError(problem)
        refuse_cluster(task, execution.cluster)
    if configs[0].correct_every:
        elites = min(len(algorithm.cells.centroids), configs[0].evaluations)
        settings = Settings(replications=configs[0].correct_replications, redraw=configs[0].correct_redraw)
        require_correction(elites, task.descriptor_size, algorithm.genome.parameter_count, settings)
    if runs_inside(algorithm, configs[0].physics):
        driver = EpisodesInside
    return driver(configs, algorithm, execution, start_genomes)


def runs_inside(algorithm: Algorithm, physics: Physics | None) -> bool:
    """Whether evaluations are part of the program."""
    task = algorithm.task
    is_jax = task.is_jax if isinstance(task, FunctionTask) else isinstance(task, DeviceTask)
    return is_jax and physics != "native" and algorithm.shares_program(task, algorithm.config)


class _PlannedRound(NamedTuple):
    """A round of one of the next generations."""

    ahead: int  # generations after the current one
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


class _TrainingExecutor(ThreadPoolExecutor):
    """A thread that trains during the episodes, in order. Without `in_thread`, the caller itself trains.

    It is for accelerators: the thread that calls a program waits while transitions are copied to them.
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

    timings = ("ask_s", "rollouts_s", "tell_s")  # seconds of waiting for each
    _ahead: list[Future[_AskedPart]] | None = None  # for the next generation, by part

    @staticmethod
    def count_parts(replications: int) -> int:
        """On an accelerator two or three parts of two replications or more, if they can be equal."""
        if not has_accelerator():
            return replications
        return next((parts for parts in (2, 3) if replications % parts == 0 and replications > parts), 1)

    def advance(self, until: int) -> list[FinishedGeneration]:
        """One generation; if `ask` is called in advance, generations for about two seconds."""
        clock, count = time.perf_counter(), self._generations_until(until) if self.asks_ahead else 1
        kind, next_kind = (self.functions.rounds(self.generation + ahead) for ahead in (0, count))
        plan, first = self._plan(count), self.generation
        asked_for, done = list(plan), self.evaluations + sum(one.round.evaluations for one in plan)
        if self.asks_ahead and kind == next_kind and done < self.budget:
            asked_for.append(_PlannedRound(count, 0, next_kind[0], done, False))  # made in advance
        spent = [dict.fromkeys((*self.timings, "steps_per_s"), 0.0) for _ in range(count)]
        rows: list[list[Row]] = [[] for _ in range(count)]
        records: list[list[list[jax.Array]]] = [[[] for _ in self.keys] for _ in range(count)]
        counts = [self.functions.no_counts() for _ in self.keys]

        def ask(part: int, planned: _PlannedRound) -> _AskedPart:
            state, generation = self.state[part], first + planned.ahead
            if (genomes := self.starting_genomes(generation)) is not None:
                batch = self.compiled.starting_batch(genomes)
            else:
                numbers = np.int32(generation), np.int32(planned.number)
                state, batch = self.compiled.ask(state, self.keys[part], *numbers, planned.round)
            seeds = self.compiled.episodes(self.keys[part], np.int32(planned.evaluations), planned.round)
            return _AskedPart(state, batch, *to_host((batch.parameters, seeds)))

        def tell(
            part: int, planned: _PlannedRound, asked: _AskedPart, evaluation: Evaluation[np.ndarray]
        ) -> None:
            self.state[part], _, offspring, counts[part] = self.compiled.tell(
                asked.state,
                self.keys[part],
                np.int32(first + planned.ahead),
                np.int32(planned.number),
                asked.batch,
                to_device(evaluation),
                counts[part],
                planned.round,
            )
            records[planned.ahead][part].append(offspring)
            if planned.is_last:
                rows[planned.ahead].append(self.compiled.row(self.state[part], counts[part]))
                counts[part] = self.functions.no_counts()

        self._report_if_new(COMPILING)
        with _TrainingExecutor(in_thread=self.asks_ahead) as training:
            pending: dict[int, Future[None]] = {}  # the last call of `tell` for each part
            asked = self._ahead or [training.submit(ask, part, plan[0]) for part in range(self.parts)]
            self._ahead = None
            spent[0]["ask_s"] += time.perf_counter() - clock
            for item, planned in enumerate(plan):
                times = spent[planned.ahead]
                for batch in self._batches():
                    started = time.perf_counter()
                    for part in batch if item > 0 else ():
                        pending[part].result()  # an error of this part's last round
                    own = [asked[part].result() for part in batch]
                    parameters, seeds = (
                        _joined([one.parameters for one in own]),
                        _joined([one.seeds for one in own]),
                    )
                    raise_failure(self.algorithm.environment)
                    times["ask_s"] += (ask_end := time.perf_counter()) - started
                    self._report_if_new(FIRST_EPISODES)
                    evaluation = self._evaluate(parameters, seeds, planned)
                    self._report_if_new(COMPILING)
                    times["rollouts_s"] += (rollouts_end := time.perf_counter()) - ask_end
                    for part, one, result in zip(batch, own, self._by_part(evaluation), strict=True):
                        pending[part] = training.submit(tell, part, planned, one, result)
                    times["tell_s"] += (tell_end := time.perf_counter()) - rollouts_end
                    for following in asked_for[item + 1 : item + 2]:
                        for part in batch:
                            asked[part] = training.submit(ask, part, following)
                    times["ask_s"] += time.perf_counter() - tell_end
                    times["steps_per_s"] += float(evaluation.length.sum())
            started = time.perf_counter()
            for call in pending.values():
                call.result()
            jax.block_until_ready((rows, records))
            spent[-1]["tell_s"] += (tell_end := time.perf_counter()) - started
        spent[-1]["ask_s"] += time.perf_counter() - tell_end
        self._ahead = asked if len(asked_for) > len(plan) else None
        self.paces[kind] = (time.perf_counter() - clock) / count
        return [self._done(*generation) for generation in zip(rows, records, spent, strict=True)]

    def _batches(self) -> list[list[int]]:
        """The parts whose episodes are evaluated together."""
        parts = list(range(self.parts))
        return [[part] for part in parts] if has_accelerator() else [parts]

    def _by_part(self, evaluation: Evaluation[np.ndarray]) -> list[Evaluation[np.ndarray]]:
        """The evaluation of each part of a batch."""
        size, replications = self.functions.count, len(evaluation.fitness)
        return [
            Evaluation(*jax.tree.map(lambda array, i=first: array[i : i + size], evaluation))
            for first in range(0, replications, size)
        ]

    def _plan(self, generations: int) -> list[_PlannedRound]:
        """The rounds of the next generations."""
        plan, evaluations = [], self.evaluations
        for ahead in range(generations):
            rounds = self.functions.rounds(self.generation + ahead)
            for index, round in enumerate(rounds):
                plan.append(_PlannedRound(ahead, index, round, evaluations, index + 1 == len(rounds)))
                evaluations += round.evaluations
        return plan

    def _done(
        self, rows: list[Row], records: list[list[jax.Array]], spent: dict[str, float]
    ) -> FinishedGeneration:
        row = jax.tree.map(lambda *arrays: np.concatenate([np.asarray(array) for array in arrays]), *rows)
        spent["steps_per_s"] /= max(spent["rollouts_s"], 1e-9)
        offspring = np.concatenate([np.concatenate(rounds, axis=1) for rounds in records])
        return self._finish(row, offspring, count_evaluations(self.functions.rounds(self.generation)), spent)

    def _evaluate(
        self, parameters: np.ndarray, seeds: np.ndarray, planned: _PlannedRound
    ) -> Evaluation[np.ndarray]:
        """Runs the episodes within the budget; the others count as skipped."""
        (replications, policies), round = parameters.shape[:2], planned.round
        limit = int(np.count_nonzero(within_budget(self.budget, planned.evaluations, round)))
        if limit == round.evaluations:
            whole = self.evaluator.evaluate(
                parameters.reshape(replications * policies, -1),
                seeds.reshape(replications * policies, *seeds.shape[2:]),
                transitions=round.transitions,
                action_noise=round.action_noise,
            )
            return Evaluation(
                *jax.tree.map(lambda array: array.reshape(replications, policies, *array.shape[1:]), whole)
            )
        parts = [
            self.evaluator.evaluate(
                own, numbers, transitions=round.transitions, action_noise=round.action_noise, limit=limit
            )
            for own, numbers in zip(parameters, seeds, strict=True)
        ]
        return Evaluation(*jax.tree.map(lambda *arrays: np.stack(arrays), *parts))


def _joined(arrays: list[jax.Array]) -> np.ndarray:
    """Arrays of the host as one, replications first. A single one is not copied."""
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


def has_accelerator() -> bool:
    """Whether programs run on something other than the CPU."""
    return jax.default_backend() != "cpu"


def asks_ahead(parts: int) -> bool:
    """Whether replications in this number of parts ask for the next generation in advance."""
    return parts > 1 and has_accelerator()


class EpisodesInside(Replications):
    """Whole generations are one program, many of them per dispatch."""

    timings = ("device_s",)

    @functools.cached_property
    def program(self) -> DeviceProgram:
        """The program of whole generations."""
        return device_program(self.functions, self.physics)

    def advance(self, until: int) -> list[FinishedGeneration]:
        """Generations of the same kind, for about two seconds."""
        rounds = self.functions.rounds(self.generation)
        genomes = self.starting_genomes(self.generation)
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
        single = [jax.tree.map(lambda array, i=i: array[i], done) for i in range(count)]
        return [
            self._finish(
                row,
                own,
                count_evaluations(rounds),
                {"device_s": seconds, "steps_per_s": int(row.counts.steps.sum()) / seconds},
            )
            for row, own in zip(single, offspring, strict=True)
        ]


def _first(array: jax.Array, count: int) -> np.ndarray:
    """The first rows of an array: chosen on an accelerator, or on the CPU, where no new program is needed."""
    return np.asarray(array[:count]) if has_accelerator() else np.asarray(array)[:count]


def bytes_needed(algorithm: Algorithm, physics: Physics | None, count: int = 1) -> int:
    """Memory of each of `count` replications: its state, and the largest batch with its transitions or, for a
    checkpoint, a copy of its largest array. With `asks_ahead` there are the states before and after `ask`.
    """
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    sizes = [int(leaf.size * leaf.dtype.itemsize) for leaf in jax.tree.leaves(state)]
    state_bytes = sum(sizes)
    task, parameters = algorithm.task, algorithm.genome.parameter_count
    step = 4 * (task.observation_size + task.action_size + 2) + task.descriptor_size
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
    return (1 + asks_ahead(EpisodesOutside.count_parts(count))) * state_bytes + max(batch, *sizes)


def require_memory(algorithm: Algorithm, physics: Physics | None, count: int = 1) -> None:
    """Raises an error if the replications do not fit into memory, before anything is allocated."""
    what = "this run takes" if count == 1 else f"{count} seeds take"
    require_bytes(count, bytes_needed(algorithm, physics, count), what, "seeds")

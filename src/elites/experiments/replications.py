"""Replications of a run, and the drivers of their generations: episodes inside the program or outside."""

from __future__ import annotations

import functools
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.base import Algorithm, Batch, Round
from elites.archives.archive import Archive
from elites.cache import keep_compiled_programs, keep_in_process
from elites.evaluation import evaluator_of, refuse_cluster
from elites.evaluation.device import evaluate_inside, runs_inside
from elites.evaluation.environment import raise_failure
from elites.evaluation.evaluation import Evaluation, Evaluator
from elites.experiments.config import RunConfig
from elites.experiments.correct import Settings, require_correction
from elites.experiments.execution import ignore
from elites.experiments.generation import (
    Counts,
    Generation,
    Keys,
    Row,
    archive_values,
    evaluations_of,
    keys_of,
    metric_rows,
)
from elites.memory import require_bytes
from elites.metrics.metric import METRICS
from elites.options import Physics
from elites.policies import Policy
from elites.results.archive import SavedArchive, saved_archive
from elites.results.lineage import RECORD, WORDS
from elites.results.members import Members, members_of
from elites.tasks import record_of
from elites.tasks.task import DeviceTask, Task

DISPATCH_SECONDS = 2.0  # of work per dispatch to the device; a run can stop only between dispatches
ROWS = 100  # largest number of generations per dispatch
OFFSPRING_BYTES = 2**26  # of the records of their offspring, if that is more than one generation
Given = Callable[[], np.ndarray]  # returns the genomes [n, P] that runs begin with
COMPILING, FIRST_EPISODES = "compiling", "first episodes"  # phases


class Advance(NamedTuple):
    """A finished generation: for each replication a row of `metrics.csv` and its offspring; the timings."""

    metrics: list[dict[str, Any]]
    offspring: np.ndarray  # int32 [replications, n, WORDS]: see `Generation.words`
    timings: dict[str, float]


class Replications(ABC):
    """Runs that differ only in their seeds, and advance together."""

    timings: tuple[str, ...]  # columns of an Advance
    parts: int  # of equal size; each is a call of a program

    def __init__(
        self,
        configs: list[RunConfig],
        algorithm: Algorithm,
        threads: int | None,
        cluster: str | None,
        given: Given | None,
        on_phase: Callable[[str], None],
    ) -> None:
        self.started, self.on_phase = time.perf_counter(), on_phase
        self._given = None if given is None else functools.cache(given)
        self.configs, self.metrics = configs, configs[0].make_metrics()
        physics = configs[0].physics
        require_memory(algorithm, physics, len(configs))
        on_phase(COMPILING)
        describes = len(self.metrics) > len(METRICS)
        self.parts = self.parts_of(len(configs))
        size = len(configs) // self.parts
        self.programs = make_programs(algorithm, size, configs[0].evaluations, describes, physics)
        self.functions = self.programs.functions
        seeds = [config.seed for config in configs]
        self.keys = [keys_of(seeds[start : start + size]) for start in range(0, len(seeds), size)]
        self.algorithm, hidden = algorithm, algorithm.config.hidden
        self.evaluator: Evaluator = evaluator_of(algorithm.task, hidden, threads, cluster, physics)
        self.generation = self.evaluations = 0  # so far, of each replication
        self.paces: dict[tuple[Round, ...], float] = {}  # seconds per generation of each kind
        self.environment_steps = [0] * len(configs)
        self.state: Any = jax.block_until_ready([self.programs.init(keys) for keys in self.keys])  # by part
        raise_failure(algorithm.environment)

    @staticmethod
    def parts_of(replications: int) -> int:
        """The number of parts into which replications are split."""
        return 1

    @abstractmethod
    def advance(self, until: int) -> list[Advance]:
        """Advances by one or more generations, at most to the first that reaches `until` evaluations."""

    def _first_time(self, phase: str) -> None:
        """Reports a phase, if generations of this kind are new."""
        if self.functions.rounds(self.generation) not in self.paces:
            self.on_phase(phase)

    def _generations_until(self, until: int) -> int:
        """Generations of the next dispatch, all of one kind: for two seconds, once the pace is known."""
        rounds = self.functions.rounds(self.generation)
        left = min(until, self.functions.budget) - self.evaluations
        wanted = round(DISPATCH_SECONDS / self.paces[rounds]) if rounds in self.paces else 1
        most = max(1, min(wanted, self.programs.most_rows(rounds), -(-left // evaluations_of(rounds))))
        kinds = [self.functions.rounds(self.generation + ahead) for ahead in range(most)]
        return next((ahead for ahead, kind in enumerate(kinds) if kind != rounds), most)

    def given(self, generation: int) -> np.ndarray | None:
        """The genomes `[n, P]` of a generation that the runs begin with; None for all other generations."""
        opening = self.algorithm.opening
        begin = generation * opening[0][0].policies if opening else 0
        if begin >= self.algorithm.given:
            return None
        assert self._given is not None
        return self._given()[begin : begin + opening[generation][0].policies]

    def archives(self) -> list[Archive]:
        """The archives of all replications, copied to the host together."""
        parts = [jax.tree.map(np.asarray, self.programs.archives(state)) for state in self.state]
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
                self.algorithm,
                self.metrics,
                np.asarray(archive.elites.fitness),
                np.asarray(archive.elites.descriptor),
            )
            for archive in self.archives()
        ]

    def members(self, index: int) -> Members | None:
        """The members of a replication's cells; None if a cell holds only its elite."""
        part, place = divmod(index, self.functions.count)
        state = jax.tree.map(lambda array: array[place], self.state[part])
        grid = self.algorithm.members(state)
        return None if grid is None else members_of(grid, self.evaluations)

    def _saved(self, config: RunConfig, archive: Archive) -> SavedArchive:
        algorithm = self.algorithm
        sizes = algorithm.genome.sizes if isinstance(algorithm.genome, Policy) else ()
        about = {
            "algorithm": config.algorithm,
            "hyper_parameters": asdict(algorithm.config),
            "task": record_of(algorithm.task),
            "seed": config.seed,
            "evaluations": self.evaluations,
        }
        return saved_archive(archive, algorithm.cells, algorithm.operators, sizes, about)

    def _finish(
        self, row: Row, offspring: np.ndarray, evaluations: int, timings: dict[str, float]
    ) -> Advance:
        """Updates the counters after a generation."""
        self.generation += 1
        self.evaluations = min(self.evaluations + evaluations, self.functions.budget)
        before = self.environment_steps
        metrics = metric_rows(row, self.algorithm, self.metrics, self.generation, self.evaluations, before)
        self.environment_steps = [n + int(m) for n, m in zip(before, row.counts.steps, strict=True)]
        return Advance(metrics, offspring, timings)


def make_replications(
    configs: list[RunConfig],
    threads: int | None = None,
    cluster: str | None = None,
    given: Given | None = None,
    on_phase: Callable[[str], None] = ignore,
) -> Replications:
    """The runs of these configurations, which differ only in their seeds, if they fit into memory.

    `given` returns the genomes that they begin with, if their configuration has a `start`.
    """
    keep_compiled_programs()
    algorithm = configs[0].make_algorithm()
    task = algorithm.task
    driver: type[Replications] = EpisodesOutside
    if isinstance(task, DeviceTask):
        jax.eval_shape(task.reset, jnp.uint32(0))  # raises an error if a package is missing
        refuse_cluster(task, cluster)
    if configs[0].correct_every:
        elites = min(len(algorithm.cells.centroids), configs[0].evaluations)
        settings = Settings(replications=configs[0].correct_replications, redraw=configs[0].correct_redraw)
        require_correction(elites, task.descriptor_size, algorithm.genome.parameter_count, settings)
    if runs_inside(task, configs[0].physics) and algorithm.shares_program(task, algorithm.config):
        driver = EpisodesInside
    return driver(configs, algorithm, threads, cluster, given, on_phase)


class _Asked(NamedTuple):
    """The result of `ask` for a part, while it is copied to the host."""

    batch: Batch
    parameters: jax.Array
    seeds: jax.Array  # of the episodes


class _Helper(ThreadPoolExecutor):
    """A thread that works during the episodes, in order. Without `helps`, `submit` does the work itself.

    It is for accelerators: the thread that calls a program waits while transitions are copied to them.
    """

    def __init__(self, helps: bool) -> None:
        super().__init__(1, thread_name_prefix="training")
        self.helps = helps

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # type: ignore[override]
        """The result of a function, now or later."""
        if self.helps:
            return super().submit(function, *arguments)
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done


class EpisodesOutside(Replications):
    """`ask` and `tell` are programs; the evaluator runs the episodes of a part as one batch.

    An accelerator trains one part while the episodes of another run.
    """

    timings = ("ask_s", "rollouts_s", "tell_s")  # seconds of waiting for each

    @staticmethod
    def parts_of(replications: int) -> int:
        """Two or three parts of two replications or more, if they can be equal: they share a program."""
        return next((parts for parts in (2, 3) if replications % parts == 0 and replications > parts), 1)

    def advance(self, until: int) -> list[Advance]:
        """One generation; with several parts, generations for about two seconds."""
        clock, count = time.perf_counter(), 1 if self.parts == 1 else self._generations_until(until)
        work = [
            (ahead, index, round)
            for ahead in range(count)
            for index, round in enumerate(self.functions.rounds(self.generation + ahead))
        ]
        evaluations = np.cumsum([self.evaluations, *(round.evaluations for *_, round in work)])
        spent = [dict.fromkeys((*self.timings, "steps_per_s"), 0.0) for _ in range(count)]
        rows: list[list[Row]] = [[] for _ in range(count)]
        words: list[list[list[jax.Array]]] = [[[] for _ in self.keys] for _ in range(count)]
        counts = [self.functions.no_counts() for _ in self.keys]

        def ask(part: int, item: int) -> _Asked:
            ahead, index, round = work[item]
            numbers = np.int32(self.generation + ahead), np.int32(index), round
            if (given := self.given(self.generation + ahead)) is not None:
                batch = self.programs.given(given)
            else:
                self.state[part], batch = self.programs.ask(self.state[part], self.keys[part], *numbers)
            seeds = self.programs.episodes(self.keys[part], np.int32(evaluations[item]), round)[0]
            return _Asked(batch, *to_host((batch.parameters, seeds)))

        def tell(part: int, item: int, batch: Batch, evaluation: Evaluation) -> None:
            ahead, index, round = work[item]
            numbers = np.int32(self.generation + ahead), np.int32(index)
            self.state[part], _, offspring, counts[part] = self.programs.tell(
                self.state[part], self.keys[part], *numbers, batch, to_device(evaluation), counts[part], round
            )
            words[ahead][part].append(offspring)
            if item + 1 == len(work) or work[item + 1][0] > ahead:  # the generation's last round
                rows[ahead].append(self.programs.row(self.state[part], counts[part]))
                counts[part] = self.functions.no_counts()

        self._first_time(COMPILING)
        with _Helper(helps=self.parts > 1 and has_accelerator()) as helper:
            pending: list[Future[None]] = []  # calls of `tell`, for each part and round
            asked = [helper.submit(ask, part, 0) for part in range(self.parts)]
            spent[0]["ask_s"] += time.perf_counter() - clock
            for item, (ahead, _, round) in enumerate(work):
                times = spent[ahead]
                for part in range(self.parts):
                    started = time.perf_counter()
                    if item > 0:
                        pending[-self.parts].result()  # an error of this part's last round
                    batch, parameters, seeds = asked[part].result()
                    parameters, seeds = np.asarray(parameters), np.asarray(seeds)
                    raise_failure(self.algorithm.environment)
                    times["ask_s"] += (ask_end := time.perf_counter()) - started
                    self._first_time(FIRST_EPISODES)
                    evaluation = self._evaluate(parameters, seeds, int(evaluations[item]), round)
                    self._first_time(COMPILING)
                    times["rollouts_s"] += (rollouts_end := time.perf_counter()) - ask_end
                    pending.append(helper.submit(tell, part, item, batch, evaluation))
                    times["tell_s"] += (tell_end := time.perf_counter()) - rollouts_end
                    if item + 1 < len(work):
                        asked[part] = helper.submit(ask, part, item + 1)
                    times["ask_s"] += time.perf_counter() - tell_end
                    times["steps_per_s"] += float(evaluation.length.sum())
            started = time.perf_counter()
            for call in pending:
                call.result()
            jax.block_until_ready(self.state)
            spent[-1]["tell_s"] += time.perf_counter() - started
        self.paces[self.functions.rounds(self.generation)] = (time.perf_counter() - clock) / count
        return [self._done(*generation) for generation in zip(rows, words, spent, strict=True)]

    def _done(self, rows: list[Row], words: list[list[jax.Array]], spent: dict[str, float]) -> Advance:
        row = jax.tree.map(lambda *arrays: np.concatenate([np.asarray(array) for array in arrays]), *rows)
        spent["steps_per_s"] /= max(spent["rollouts_s"], 1e-9)
        offspring = np.concatenate([np.concatenate(rounds, axis=1) for rounds in words])
        return self._finish(row, offspring, evaluations_of(self.functions.rounds(self.generation)), spent)

    def _evaluate(
        self, parameters: np.ndarray, seeds: np.ndarray, evaluations: int, round: Round
    ) -> Evaluation:
        """Runs the episodes within the budget; the others count as skipped."""
        replications, policies = parameters.shape[:2]
        limit = min(round.evaluations, max(0, self.functions.budget - evaluations))
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


class EpisodesInside(Replications):
    """Whole generations are one program, many of them per dispatch."""

    timings = ("device_s",)

    def advance(self, until: int) -> list[Advance]:
        """Generations of the same kind, for about two seconds."""
        rounds, given = self.functions.rounds(self.generation), self.given(self.generation)
        count = 1 if given is not None else self._generations_until(until)
        clock = time.perf_counter()
        self._first_time(COMPILING)
        self.state[0], rows, words = self.programs.generations(
            self.state[0],
            self.keys[0],
            jnp.int32(self.generation),
            jnp.int32(self.evaluations),
            jnp.int32(count),
            rounds,
            given,
        )
        self._first_time(FIRST_EPISODES)  # the call returns once the program is compiled
        done: Row = jax.tree.map(lambda array: np.asarray(array[:count]), rows)
        offspring = np.asarray(words[:count])
        seconds = (time.perf_counter() - clock) / count
        self.paces[rounds] = seconds
        single = [jax.tree.map(lambda array, i=i: array[i], done) for i in range(count)]
        return [
            self._finish(
                row,
                own,
                evaluations_of(rounds),
                {"device_s": seconds, "steps_per_s": int(row.counts.steps.sum()) / seconds},
            )
            for row, own in zip(single, offspring, strict=True)
        ]


class Programs:
    """The functions of a generation, compiled, and whole generations with their episodes inside."""

    def __init__(self, functions: Generation, physics: Physics | None = None) -> None:
        self.functions, self.algorithm, self.physics = functions, functions.algorithm, physics
        self.init = jax.jit(functions.init)
        self.ask = jax.jit(functions.ask, static_argnums=4, donate_argnums=0)
        self.given = jax.jit(functions.given)
        self.episodes = jax.jit(functions.episodes, static_argnums=2)
        self.tell = jax.jit(functions.tell, static_argnums=7, donate_argnums=0)
        self.row = jax.jit(functions.row)
        self.archives = jax.jit(functions.archives)
        self.generations = jax.jit(self._generations, static_argnums=5, donate_argnums=0)

    def _generations(
        self,
        states: Any,
        keys: Keys,
        generation: jax.Array,
        evaluations: jax.Array,
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
            states, *new = self._generation(states, keys, generation + done, evaluations, rounds, given)
            results = jax.tree.map(lambda all, new: all.at[done].set(new), results, tuple(new))
            evaluations = jnp.minimum(evaluations + evaluations_of(rounds), self.functions.budget)
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
                seeds, runs = self.functions.episodes(keys, evaluations, round)
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
                evaluations = jnp.minimum(evaluations + round.evaluations, self.functions.budget)
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
    algorithm: Algorithm, count: int, budget: int, describes: bool, physics: Physics | None = None
) -> Programs:
    """The programs of an algorithm. Runs of equal settings in one process share them, so that only the first
    one is traced and compiled. An environment outside the program has a state that cannot be shared."""
    if algorithm.environment is None or isinstance(algorithm.task, DeviceTask):
        settings = algorithm.config, algorithm.task, algorithm.given
        return _shared_programs(type(algorithm), *settings, count, budget, describes, physics)
    return Programs(Generation(algorithm, count, budget, describes=describes))


@keep_in_process(most=4)
def _shared_programs(
    kind: type[Algorithm],
    config: Any,
    task: Task,
    given: int,
    count: int,
    budget: int,
    describes: bool,
    physics: Physics | None,
) -> Programs:
    algorithm = kind(task, config)
    if given:
        algorithm.begin_with(given)
    return Programs(Generation(algorithm, count, budget, describes=describes), physics)


def bytes_needed(algorithm: Algorithm, physics: Physics | None) -> int:
    """Memory of one replication: its state, and the largest batch with its transitions or, for a checkpoint,
    a copy of its largest array."""
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
    inside = isinstance(task, DeviceTask) and physics != "native"
    return 3 * state_bytes // 2 + 6 * batch if inside else state_bytes + max(batch, *sizes)


def require_memory(algorithm: Algorithm, physics: Physics | None, count: int = 1) -> None:
    """Raises an error if the replications do not fit into memory, before anything is allocated."""
    what = "this run takes" if count == 1 else f"{count} seeds take"
    require_bytes(count, bytes_needed(algorithm, physics), what, "seeds")

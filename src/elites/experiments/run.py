"""One run: ask, evaluate, tell, until the budget is spent; logged, checkpointed, resumable.

Everything random comes from the run's seed, the generation and the number of the evaluation, so a run that is
killed and resumed ends with the same bits as one that is not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np

from elites.algorithms.algorithm import Algorithm, Batch, Round
from elites.archives.archive import Status
from elites.archives.deep_grid import DeepGrid
from elites.archives.members import Members, members_of, save_members
from elites.archives.saved import SavedArchive, load_archive, save_archive, saved_archive
from elites.cache import keep_compiled_programs
from elites.errors import ElitesError, require
from elites.evaluation.evaluation import Evaluation
from elites.evaluation.threads import ThreadEvaluator
from elites.experiments.checkpoint import Checkpoints
from elites.experiments.config import FILE, RunConfig, load_config, versions
from elites.experiments.correct import Settings, StoppedError, correct_archive, corrected_already
from elites.experiments.guards import Interrupts, alone
from elites.experiments.logs import Logs
from elites.files import told_in_one_line, write_atomically
from elites.memory import available_bytes
from elites.metrics.archive import ArchiveMetrics, archive_metrics
from elites.metrics.corrected import Losses
from elites.tasks import parameters_of
from elites.tasks.task import CompiledTask

CHECKPOINT_SHARE = 0.02  # of the time may go into checkpoints
TIMINGS = ("generation", "ask_s", "rollouts_s", "tell_s", "checkpoint_s", "elapsed_s", "steps_per_s")


CORRECTIONS = (
    *("generation", "evaluations", "elites", *ArchiveMetrics._fields),
    *(f"{name}_loss" for name in Losses._fields),
    "invalid",
)


class Report(NamedTuple):
    """What a run tells after each generation: the row of `metrics.csv` and that of `timings.csv`."""

    metrics: dict[str, Any]
    timings: dict[str, Any]
    evaluations: int  # the budget


@dataclass(frozen=True)
class Outcome:
    """How a run, or a part of one, ended."""

    folder: Path
    finished: bool  # else it was interrupted, or reached its time limit
    evaluations: int
    metrics: dict[str, Any]


def default_folder(config: RunConfig) -> Path:
    """Where a run goes unless told."""
    return Path("runs") / f"{config.algorithm}-{config.task}-{config.seed}"


def run(
    config: RunConfig,
    folder: Path | str | None = None,
    *,
    threads: int | None = None,
    max_hours: float | None = None,
    checkpoint_seconds: float = 60.0,
    on_generation: Callable[[Report], None] | None = None,
    on_correction: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = print,
) -> Outcome:
    """Begins a run in a new folder and drives it to its end.

    Args:
        config: what to run.
        folder: where its files go; it must be new or empty.
        threads: of the rollouts, one per core unless given. They change nothing but the speed.
        max_hours: ends the run cleanly after so many hours; `resume` goes on.
        checkpoint_seconds: the least time between checkpoints. They take at most 2 % of the time anyway.
        on_generation: called after each generation.
        on_correction: called now and then during a correction, with the episodes done and all there are.
        tell: takes what a person should read.
    """
    folder = default_folder(config) if folder is None else Path(folder)
    how = How(threads, max_hours, checkpoint_seconds, on_generation, on_correction, tell)
    _refuse_taken(folder)
    with _Run(config, threads) as current:  # whatever can fail does so before anything is written
        with told_in_one_line(f"cannot make the run's folder {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            _refuse_taken(folder)
            record = json.dumps(config.record(), indent=2) + "\n"
            with told_in_one_line(f"cannot write to {folder}"):
                write_atomically(folder / FILE, lambda file: _write_text(file, record))
            return _drive(folder, current, how)


def resume(
    folder: Path | str,
    *,
    threads: int | None = None,
    max_hours: float | None = None,
    checkpoint_seconds: float = 60.0,
    on_generation: Callable[[Report], None] | None = None,
    on_correction: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = print,
) -> Outcome:
    """Goes on with a run that was killed, interrupted or out of time, from its last checkpoint."""
    folder = Path(folder)
    how = How(threads, max_hours, checkpoint_seconds, on_generation, on_correction, tell)
    config, made_with = load_config(folder)
    with alone(folder):
        if finished := _finished(folder, config):
            tell(f"{folder} is finished: {finished.evaluations} evaluations")
            Checkpoints(folder).clear()
            return finished
        if (folder / "archive.npz").exists() and not Checkpoints(folder).paths():
            raise ElitesError(f"{folder} has an archive but no checkpoint to go on from; nothing was changed")
        changed = [name for name, now in versions().items() if made_with.get(name) != now]
        if changed:
            told = ", ".join(f"{name} {made_with.get(name)} (now {versions()[name]})" for name in changed)
            tell(f"begun with {told}: the result may differ from an undisturbed run's")
        with _Run(config, threads) as current:
            return _drive(folder, current, how)


@dataclass(frozen=True)
class How:
    """How a run is driven; nothing in its result depends on it."""

    threads: int | None
    max_hours: float | None
    checkpoint_seconds: float
    on_generation: Callable[[Report], None] | None
    on_correction: Callable[[int, int], None] | None
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        require(self.threads is None or self.threads >= 1, "threads", self.threads, "at least 1")
        require(self.max_hours is None or self.max_hours > 0, "max_hours", self.max_hours, "above 0")
        require(self.checkpoint_seconds >= 0, "checkpoint_seconds", self.checkpoint_seconds, "at least 0")


def _refuse_taken(folder: Path) -> None:
    if (folder / FILE).exists():
        raise ElitesError(
            f"{folder} already holds a run: `elites resume {folder}` goes on with it, --out takes another"
        )
    if folder.is_dir() and any(not path.name.endswith(".partial") for path in folder.iterdir()):
        raise ElitesError(f"{folder} is not empty; --out takes a new folder")


def _write_text(file: IO[bytes], text: str) -> None:
    file.write(text.encode())


@jax.jit
def _episode_seeds(key: jax.Array, evaluations: jax.Array) -> jax.Array:
    return jax.vmap(lambda number: jax.random.bits(jax.random.fold_in(key, number)))(evaluations)


class _Run:
    """A run in memory: what the loop carries from generation to generation."""

    def __init__(self, config: RunConfig, threads: int | None) -> None:
        keep_compiled_programs()
        self.started = time.perf_counter()
        self.config, self.algorithm = config, (algorithm := config.make_algorithm())
        require_memory(algorithm)
        if not isinstance(algorithm.task, CompiledTask):
            raise ElitesError(f"{algorithm.task.name} cannot be run on threads")
        hidden = algorithm.policy.sizes[1:-1]
        self.evaluator = ThreadEvaluator(algorithm.task, hidden=hidden, threads=threads)
        self.evolving, starting, self.seeding = jax.random.split(jax.random.key(config.seed), 3)
        self._ask = jax.jit(algorithm.ask, static_argnums=2, donate_argnums=0)
        self._tell = jax.jit(algorithm.tell, static_argnums=2, donate_argnums=0)
        self._fitness = jax.jit(lambda state: algorithm.archive(state).elites.fitness)
        self.state = jax.jit(algorithm.init)(starting)
        self.generation = self.evaluations = self.environment_steps = 0
        self.corrected = 0  # evaluations at the last correction

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *exception: object) -> None:
        self.evaluator.close()

    def rounds(self) -> tuple[Round, ...]:
        opening = self.algorithm.opening
        return opening[self.generation] if self.generation < len(opening) else self.algorithm.generation

    def step(self) -> tuple[dict[str, Any], dict[str, float]]:
        """One generation. Returns its metrics and its timings."""
        counts = {
            f"{what}_{name}": 0 for name in self.algorithm.operators for what in ("made", "new", "improved")
        }
        spent = {"ask_s": 0.0, "rollouts_s": 0.0, "tell_s": 0.0}
        invalid = steps = 0
        key = jax.random.fold_in(self.evolving, self.generation)
        for index, round in enumerate(self.rounds()):
            asking, telling = jax.random.split(jax.random.fold_in(key, index))
            clock = time.perf_counter()
            self.state, batch = self._ask(self.state, asking, round)
            parameters = np.asarray(batch.parameters)
            spent["ask_s"] += (asked := time.perf_counter()) - clock
            evaluation = self._evaluate(parameters, round)
            spent["rollouts_s"] += (evaluated := time.perf_counter()) - asked
            self.state, status = self._tell(self.state, telling, round, batch, evaluation)
            _count(counts, self.algorithm.operators, batch, np.asarray(status))
            spent["tell_s"] += time.perf_counter() - evaluated
            steps += int(evaluation.length.sum())
            invalid += evaluation.invalid
        self.generation += 1
        self.environment_steps += steps
        metrics = {
            "generation": self.generation,
            "evaluations": self.evaluations,
            "environment_steps": self.environment_steps + int(self.state.progress.training_steps),
            "gradient_steps": int(self.algorithm.gradient_steps(self.state)),
            **self.metrics(),
            "invalid": invalid,
            **counts,
        }
        return metrics, {**spent, "steps_per_s": steps / max(spent["rollouts_s"], 1e-9)}

    def _evaluate(self, parameters: np.ndarray, round: Round) -> Evaluation:
        """Runs as many episodes as the budget has room for; the others count as skipped."""
        shape = (round.policies,) if round.episodes == 1 else (round.policies, round.episodes)
        total = round.policies * round.episodes
        numbers = self.evaluations + np.arange(total, dtype=np.int32)
        seeds = np.asarray(_episode_seeds(self.seeding, numbers)).reshape(shape)
        limit = min(total, self.config.evaluations - self.evaluations)
        self.evaluations += limit
        return self.evaluator.evaluate(parameters, seeds, transitions=round.transitions, limit=limit)

    def metrics(self) -> dict[str, float]:
        fitness = np.asarray(self._fitness(self.state))
        offset = self.algorithm.task.qd_offset
        return archive_metrics(fitness[fitness > -np.inf], len(fitness), offset)._asdict()

    def archive(self) -> SavedArchive:
        """The collection so far, as it is saved."""
        algorithm = self.algorithm
        about = {
            "algorithm": self.config.algorithm,
            "hyper_parameters": asdict(algorithm.config),
            "task": {
                "name": self.config.task,
                "parameters": parameters_of(algorithm.task),
                "qd_offset": algorithm.task.qd_offset,
                "descriptor_names": algorithm.task.descriptor_names,
            },
            "seed": self.config.seed,
            "evaluations": self.evaluations,
        }
        elites = algorithm.archive(self.state)
        return saved_archive(elites, algorithm.cells, algorithm.operators, algorithm.policy.sizes, about)

    def members(self) -> Members | None:
        """Those of a deep grid."""
        grid = getattr(self.state, "grid", None)
        return members_of(grid, self.evaluations) if isinstance(grid, DeepGrid) else None

    def correction_is_due(self) -> bool:
        """At the first generation that reaches a multiple of `correct_every`, and at the end."""
        every = self.config.correct_every
        reached = every > 0 and self.evaluations // every > self.corrected // every
        at_the_end = every > 0 and self.evaluations >= self.config.evaluations > self.corrected
        return reached or at_the_end

    def correct(self, path: Path, stop: Callable[[], bool], how: How) -> dict[str, Any]:
        """Corrects the archive as it is now. Returns the row of `corrections.csv`."""
        config, archive = self.config, self.archive()
        settings = Settings(replications=config.correct_replications, redraw=config.correct_redraw)
        members = self.members() if config.correct_redraw else None
        found = corrected_already(path, archive, settings) or correct_archive(
            path, archive, settings, self.evaluator, members, stop=stop, on_progress=how.on_correction
        )
        self.corrected = self.evaluations
        return {
            "generation": self.generation,
            "evaluations": self.evaluations,
            "elites": len(archive.cell),
            **found.metrics._asdict(),
            **{f"{name}_loss": value for name, value in found.losses._asdict().items()},
            "invalid": int(found.invalid),
        }

    def save_members(self, path: Path) -> None:
        """Keeps them, if the run was told to."""
        if getattr(self.algorithm.config, "keep_members", False) and (members := self.members()):
            save_members(path, members)


def _count(counts: dict[str, int], operators: tuple[str, ...], batch: Batch, status: np.ndarray) -> None:
    operator = np.asarray(batch.operator)
    for index, name in enumerate(operators):
        of_operator = status[operator == index]
        counts[f"made_{name}"] += int(np.count_nonzero(of_operator != Status.SKIPPED))
        counts[f"new_{name}"] += int(np.count_nonzero(of_operator == Status.NEW))
        counts[f"improved_{name}"] += int(np.count_nonzero(of_operator == Status.IMPROVED))


def require_memory(algorithm: Algorithm) -> None:
    """Refuses a plan that cannot fit, before anything is allocated."""
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    task, parameters = algorithm.task, algorithm.policy.parameter_count
    step = 4 * (task.observation_size + task.action_size + 2) + task.descriptor_size
    needed += max(
        round.policies * (4 * parameters + round.transitions * round.episodes * task.episode_length * step)
        for rounds in (*algorithm.opening, algorithm.generation)
        for round in rounds
    )
    if needed > (there := available_bytes()):
        raise ElitesError(
            f"this run takes {needed / 1e9:.1f} GB and {there / 1e9:.1f} GB are free; smaller sizes take less"
        )


def _drive(folder: Path, current: _Run, how: How) -> Outcome:
    checkpoints = Checkpoints(folder)
    for partial in folder.rglob(".*.partial"):  # what a kill left of a file it was writing
        partial.unlink()
    header: dict[str, Any] = {"sizes": {}, "elapsed": 0.0}
    if loaded := checkpoints.load(current.state):
        current.state, header, wrong = loaded
        for message in wrong:
            how.tell(f"{message}; going on from the one before it")
        current.generation, current.evaluations = header["generation"], header["evaluations"]
        current.environment_steps = header["environment_steps"]
        current.corrected = header.get("corrected", 0)
    corrects = current.config.correct_every > 0
    timings = (*TIMINGS, "corrections_s") if corrects else TIMINGS
    corrections = CORRECTIONS if corrects else ()
    with told_in_one_line(f"cannot write to {folder}"):
        logs = Logs(folder, _metric_columns(current.algorithm), timings, corrections, header["sizes"])
    with logs, Interrupts("stopping after this generation") as interrupts:
        return _loop(folder, current, logs, checkpoints, interrupts, header["elapsed"], how)


def _metric_columns(algorithm: Algorithm) -> list[str]:
    made = [f"{what}_{name}" for name in algorithm.operators for what in ("made", "new", "improved")]
    progress = ["generation", "evaluations", "environment_steps", "gradient_steps"]
    return [*progress, "qd_score", "max_fitness", "coverage", "invalid", *made]


def _loop(
    folder: Path,
    current: _Run,
    logs: Logs,
    checkpoints: Checkpoints,
    interrupts: Interrupts,
    elapsed_before: float,
    how: How,
) -> Outcome:
    config = current.config
    saved_at, cost, spent, correcting = time.perf_counter(), 0.0, 0.0, 0.0
    metrics: dict[str, Any] = current.metrics()

    def elapsed() -> float:
        return elapsed_before + time.perf_counter() - current.started

    def stop() -> bool:
        over = how.max_hours is not None and time.perf_counter() - current.started >= 3600 * how.max_hours
        return interrupts.asked or over

    def done() -> bool:
        return current.evaluations >= config.evaluations and not current.correction_is_due()

    def checkpoint() -> float:
        clock = time.perf_counter()
        checkpoints.save(
            current.state,
            {
                "generation": current.generation,
                "evaluations": current.evaluations,
                "environment_steps": current.environment_steps,
                "corrected": current.corrected,
                "elapsed": elapsed(),
                "sizes": logs.sync(),
            },
        )
        if current.evaluations < config.evaluations:  # else it would count as finished
            save_archive(folder / "archive.npz", current.archive())
        return time.perf_counter() - clock

    writing = f"cannot write to {folder}; what its last checkpoint holds is intact"
    while not done():
        if current.correction_is_due():
            clock = time.perf_counter()
            with told_in_one_line(writing):
                try:
                    logs.corrections.append(current.correct(folder / "corrected.npz", stop, how))
                except StoppedError:
                    checkpoint()
                    return Outcome(folder, False, current.evaluations, metrics)
            correcting = time.perf_counter() - clock
            continue
        before = current.evaluations
        metrics, timings = current.step()
        stopping = stop() and not done()
        with told_in_one_line(writing):
            crossed = [moment for moment in _snapshots(config) if before < moment <= current.evaluations]
            if crossed:
                (folder / "snapshots").mkdir(exist_ok=True)
                save_archive(folder / "snapshots" / f"{crossed[-1]:010d}.npz", current.archive())
            # The time of a checkpoint or a correction stands in the row after it.
            timings |= {"generation": current.generation, "checkpoint_s": spent, "elapsed_s": elapsed()}
            logs.append(metrics, {**timings, "corrections_s": correcting})
            waited, spent, correcting = time.perf_counter() - saved_at, 0.0, 0.0
            if stopping or (not done() and waited > max(how.checkpoint_seconds, cost / CHECKPOINT_SHARE)):
                cost = spent = checkpoint()
                saved_at = time.perf_counter()
        if how.on_generation is not None:
            how.on_generation(Report(metrics, timings, config.evaluations))
        if stopping:
            return Outcome(folder, False, current.evaluations, metrics)
    with told_in_one_line(writing):
        logs.sync()
        current.save_members(folder / "members.npz")
        save_archive(folder / "archive.npz", current.archive())  # from here on the run counts as finished
        checkpoints.clear()
    return Outcome(folder, True, current.evaluations, metrics)


def _snapshots(config: RunConfig) -> list[int]:
    """Evaluations at which the archive is kept, the last at the end."""
    return [config.evaluations * (index + 1) // config.snapshots for index in range(config.snapshots)]


def _finished(folder: Path, config: RunConfig) -> Outcome | None:
    """What a run came to that has spent its budget; None if it has not."""
    if not (folder / "archive.npz").exists():
        return None
    archive = load_archive(folder)
    if archive.about["evaluations"] < config.evaluations:
        return None
    return Outcome(folder, True, archive.about["evaluations"], archive.metrics._asdict())

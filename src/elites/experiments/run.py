"""Runs: ask, evaluate, tell, until the budget is spent; logged, checkpointed, resumable.

Everything random comes from the run's seed, the generation and the number of the evaluation, so a run that is
killed and resumed ends with the same bits as one that is not. Replications that run as one program are
checkpointed and resumed together, as a group; each has a run's folder of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np

from elites.archives.members import save_members
from elites.archives.saved import SavedArchive, load_archive, save_archive
from elites.errors import ElitesError, require
from elites.experiments.checkpoint import Checkpoints
from elites.experiments.config import FILE, GROUP, RunConfig, load_config, versions
from elites.experiments.correct import Settings, StoppedError, correct_archive, corrected_already
from elites.experiments.guards import Interrupts, alone
from elites.experiments.logs import Logs
from elites.experiments.replications import (
    Generation,
    Replications,
    metric_columns,
    metrics_of,
    replications,
    require_memory,
    to_save,
    together,
)
from elites.files import told_in_one_line, write_atomically
from elites.metrics.archive import ArchiveMetrics
from elites.metrics.corrected import Losses

CHECKPOINT_SHARE = 0.02  # of the time may go into checkpoints
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


def default_folder(config: RunConfig, seeds: int | None = None) -> Path:
    """Where a run, or a group of them, goes unless told."""
    last = config.seed if seeds is None else f"{config.seed}-to-{config.seed + seeds - 1}"
    return Path("runs") / f"{config.algorithm}-{config.task}-{last}"


def run(
    config: RunConfig,
    folder: Path | str | None = None,
    *,
    threads: int | None = None,
    max_hours: float | None = None,
    checkpoint_seconds: float = 60.0,
    cluster: str | None = None,
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
        cluster: address of a Ray cluster whose machines run the episodes; this machine alone unless given.
        on_generation: called after each generation.
        on_correction: called now and then during a correction, with the episodes done and all there are.
        tell: takes what a person should read.
    """
    folder = default_folder(config) if folder is None else Path(folder)
    how = How(threads, max_hours, checkpoint_seconds, cluster, on_generation, on_correction, tell)
    _refuse_taken(folder)
    with _begun([config], how) as current:  # whatever can fail does so before anything is written
        _make(folder)
        with alone(folder):
            _refuse_taken(folder)
            _write(folder / FILE, config.record())
            (outcome,) = _drive(folder, [folder], current, how)
            return outcome


def resume(
    folder: Path | str,
    *,
    threads: int | None = None,
    max_hours: float | None = None,
    checkpoint_seconds: float = 60.0,
    cluster: str | None = None,
    on_generation: Callable[[Report], None] | None = None,
    on_correction: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = print,
) -> Outcome:
    """Goes on with a run that was killed, interrupted or out of time, from its last checkpoint."""
    folder = Path(folder)
    if (folder / GROUP).exists():
        raise ElitesError(f"{folder} holds a group of runs: resume_group goes on with it")
    whole = folder.resolve()
    if (whole.parent / GROUP).exists() and whole in group_folders(whole.parent):
        return next(  # one of several that go on together
            outcome
            for outcome in resume_group(
                whole.parent,
                threads=threads,
                max_hours=max_hours,
                checkpoint_seconds=checkpoint_seconds,
                cluster=cluster,
                on_generation=on_generation,
                on_correction=on_correction,
                tell=tell,
            )
            if outcome.folder == whole
        )
    how = How(threads, max_hours, checkpoint_seconds, cluster, on_generation, on_correction, tell)
    config, made_with = load_config(folder)
    with alone(folder):
        (outcome,) = _go_on(folder, [folder], [config], made_with, how)
        return outcome


def run_group(
    config: RunConfig,
    seeds: int,
    folder: Path | str | None = None,
    *,
    threads: int | None = None,
    max_hours: float | None = None,
    checkpoint_seconds: float = 60.0,
    cluster: str | None = None,
    on_generation: Callable[[Report], None] | None = None,
    on_correction: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = print,
) -> list[Outcome]:
    """Begins replications of a run, with the seeds from the configuration's on, each in a folder in `folder`.

    Those of a task that is pure JAX run in one program, the others one after the other. The other arguments
    are those of `run`; `max_hours` is for all of them together.
    """
    require(seeds >= 1, "seeds", seeds, "at least 1")
    require(config.seed + seeds <= 2**32, "seeds", seeds, f"at most {2**32 - config.seed} from that seed on")
    folder = default_folder(config, seeds) if folder is None else Path(folder)
    how = How(threads, max_hours, checkpoint_seconds, cluster, on_generation, on_correction, tell)
    configs = [dataclasses.replace(config, seed=config.seed + index) for index in range(seeds)]
    folders = [folder / f"seed-{config.seed}" for config in configs]
    _refuse_taken(folder)
    algorithm = config.make_algorithm()
    with contextlib.ExitStack() as stack:
        current = None
        if together(algorithm):
            current = stack.enter_context(_begun(configs, how))
        else:
            require_memory(algorithm)
        _make(folder)
        stack.enter_context(alone(folder))
        _refuse_taken(folder)
        for config, own in zip(configs, folders, strict=True):
            _make(own)
            _write(own / FILE, config.record())
        _write(folder / GROUP, {"seeds": [config.seed for config in configs]})
        if current is not None:
            return _drive(folder, folders, current, how)
    return resume_group(folder, **vars(how))


def resume_group(
    folder: Path | str,
    *,
    threads: int | None = None,
    max_hours: float | None = None,
    checkpoint_seconds: float = 60.0,
    cluster: str | None = None,
    on_generation: Callable[[Report], None] | None = None,
    on_correction: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = print,
) -> list[Outcome]:
    """Goes on with replications that were killed, interrupted or out of time."""
    folder, started = Path(folder), time.perf_counter()
    how = How(threads, max_hours, checkpoint_seconds, cluster, on_generation, on_correction, tell)
    folders = group_folders(folder)
    loaded = [load_config(own) for own in folders]
    configs, made_with = [config for config, _ in loaded], loaded[0][1]
    with alone(folder):
        if together(configs[0].make_algorithm()):
            return _go_on(folder, folders, configs, made_with, how)
        outcomes = []
        with Interrupts("stopping after this generation") as interrupts:
            for own, config in zip(folders, configs, strict=True):
                left = None if max_hours is None else max_hours - (time.perf_counter() - started) / 3600
                if interrupts.asked or (left is not None and left <= 0):
                    outcomes.append(_so_far(own, config))
                    continue
                within = dataclasses.replace(how, max_hours=left)
                with alone(own):
                    outcomes += _go_on(own, [own], [config], made_with, within, interrupts)
        return outcomes


def _so_far(folder: Path, config: RunConfig) -> Outcome:
    """What there is of a run that is left as it is."""
    if finished := _finished(folder, config):
        return finished
    begun = (folder / "archive.npz").exists()
    return Outcome(folder, False, load_archive(folder).about["evaluations"] if begun else 0, {})


def group_folders(folder: Path) -> list[Path]:
    """The folders of a group's replications."""
    path = folder / GROUP
    try:
        return [folder / f"seed-{int(seed)}" for seed in json.loads(path.read_text())["seeds"]]
    except FileNotFoundError:
        raise ElitesError(f"{folder} holds no group of runs: there is no {GROUP} in it") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ElitesError(f"{path} is damaged: {error}") from None


def _go_on(
    home: Path,
    folders: list[Path],
    configs: list[RunConfig],
    made_with: dict[str, str | None],
    how: How,
    interrupts: Interrupts | None = None,
) -> list[Outcome]:
    checkpoints = Checkpoints(home)
    finished = [_finished(folder, config) for folder, config in zip(folders, configs, strict=True)]
    done = [outcome for outcome in finished if outcome is not None]
    if len(done) == len(folders):
        how.tell(f"{home} is finished: {done[0].evaluations} evaluations")
        checkpoints.clear()
        return done
    archived = any((folder / "archive.npz").exists() for folder in folders)
    if archived and not done and not checkpoints.paths():  # a group may have been killed at its very end
        raise ElitesError(f"{home} has an archive but no checkpoint to go on from; nothing was changed")
    changed = {name: (made_with.get(name), now) for name, now in versions().items()}
    told = ", ".join(f"{name} {then} (now {now})" for name, (then, now) in changed.items() if then != now)
    if told:
        how.tell(f"begun with {told}: the result may differ from an undisturbed run's")
    with _begun(configs, how) as current:
        return _drive(home, folders, current, how, interrupts)


@contextlib.contextmanager
def _begun(configs: list[RunConfig], how: How) -> Iterator[Replications]:
    current = replications(configs, how.threads, how.cluster)
    try:
        yield current
    finally:
        current.evaluator.close()


@dataclass(frozen=True)
class How:
    """How a run is driven; nothing in its result depends on it."""

    threads: int | None
    max_hours: float | None
    checkpoint_seconds: float
    cluster: str | None
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


def _make(folder: Path) -> None:
    with told_in_one_line(f"cannot make the run's folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def _write(path: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=2) + "\n"

    def write(file: IO[bytes]) -> None:
        file.write(text.encode())

    with told_in_one_line(f"cannot write to {path.parent}"):
        write_atomically(path, write)


def _drive(
    home: Path,
    folders: list[Path],
    current: Replications,
    how: How,
    interrupts: Interrupts | None = None,
) -> list[Outcome]:
    """Runs to the end, or until it has to stop; the checkpoints are in `home`."""
    with ExitStack() as stack:
        for folder in folders:
            if folder != home:
                stack.enter_context(alone(folder))
        if interrupts is None:
            interrupts = stack.enter_context(Interrupts("stopping after this generation"))
        return _continued(home, folders, current, how, interrupts)


def _continued(
    home: Path, folders: list[Path], current: Replications, how: How, interrupts: Interrupts
) -> list[Outcome]:
    checkpoints = Checkpoints(home)
    for partial in home.rglob(".*.partial"):  # what a kill left of a file it was writing
        partial.unlink()
    header: dict[str, Any] = {"sizes": [{} for _ in folders], "elapsed": 0.0, "corrected": 0}
    if checkpoints.paths():
        empty, current.state = jax.tree.map(np.asarray, current.state), None  # room for what is loaded
        current.state, header, wrong = checkpoints.load(empty)
        for message in wrong:
            how.tell(f"{message}; going on from the one before it")
        current.generation, current.evaluations = header["generation"], header["evaluations"]
        current.environment_steps = header["environment_steps"]
    corrects = current.configs[0].correct_every > 0
    timings = ["generation", *current.timings, "checkpoint_s", "elapsed_s", "steps_per_s"]
    with ExitStack() as stack:
        with told_in_one_line(f"cannot write to {home}"):
            logs = [
                stack.enter_context(
                    Logs(
                        folder,
                        metric_columns(current.algorithm),
                        [*timings, *["corrections_s"] * corrects],
                        CORRECTIONS if corrects else (),
                        sizes,
                    )
                )
                for folder, sizes in zip(folders, header["sizes"], strict=True)
            ]
        return _Loop(home, folders, current, logs, checkpoints, interrupts, header, how).run()


class _Loop:
    """Goes from generation to generation: logs, snapshots, corrections and checkpoints."""

    def __init__(
        self,
        home: Path,
        folders: list[Path],
        current: Replications,
        logs: list[Logs],
        checkpoints: Checkpoints,
        interrupts: Interrupts,
        header: dict[str, Any],
        how: How,
    ) -> None:
        self.folders, self.current, self.logs, self.how = folders, current, logs, how
        self.checkpoints, self.interrupts = checkpoints, interrupts
        self.config = current.configs[0]
        self.elapsed_before: float = header["elapsed"]
        self.logged = current.evaluations
        self.corrected: int = header["corrected"]  # evaluations at the last correction
        self.writing = f"cannot write to {home}; what its last checkpoint holds is intact"
        self.saved_at, self.cost = time.perf_counter(), 0.0
        self.spent = self.correcting = 0.0  # seconds that stand in the next row of timings
        self.metrics: list[dict[str, Any]] = [
            metrics_of(current.algorithm, fitness) for fitness in current.fitness()
        ]

    def run(self) -> list[Outcome]:
        while not self.done():
            if self.correction_is_due():
                try:
                    with told_in_one_line(self.writing):
                        self.correct()
                except StoppedError:
                    return self.stopped()
                continue
            for generation in self.current.advance(until=self.next_moment()):
                self.log(generation)
            stopping = self.stop() and not self.done()
            waited = time.perf_counter() - self.saved_at
            due = waited > max(self.how.checkpoint_seconds, self.cost / CHECKPOINT_SHARE)
            if due and not (stopping or self.done()):
                self.checkpoint()
            if stopping:
                return self.stopped()
        with told_in_one_line(self.writing):
            for index, (folder, archive) in enumerate(zip(self.folders, self.archives(), strict=True)):
                self.logs[index].sync()
                if getattr(self.current.algorithm.config, "keep_members", False):
                    members = self.current.members(index)
                    assert members is not None
                    save_members(folder / "members.npz", members)
                save_archive(folder / "archive.npz", archive)  # from here on the run counts as finished
            self.checkpoints.clear()
        return self.outcomes(finished=True)

    def outcomes(self, *, finished: bool) -> list[Outcome]:
        evaluations = self.current.evaluations
        return [
            Outcome(folder, finished, evaluations, metrics)
            for folder, metrics in zip(self.folders, self.metrics, strict=True)
        ]

    def stopped(self) -> list[Outcome]:
        self.checkpoint()
        return self.outcomes(finished=False)

    def archives(self) -> list[SavedArchive]:
        current = self.current
        return [
            to_save(config, current.algorithm, archive, current.evaluations)
            for config, archive in zip(current.configs, current.archives(), strict=True)
        ]

    def elapsed(self) -> float:
        return self.elapsed_before + time.perf_counter() - self.current.started

    def stop(self) -> bool:
        hours, seconds = self.how.max_hours, time.perf_counter() - self.current.started
        return self.interrupts.asked or (hours is not None and seconds >= 3600 * hours)

    def done(self) -> bool:
        return self.current.evaluations >= self.config.evaluations and not self.correction_is_due()

    def next_moment(self) -> int:
        """The evaluations at which something is due that a generation must not pass."""
        now, every = self.current.evaluations, self.config.correct_every
        moments = [moment for moment in _snapshots(self.config) if moment > now]
        moments += [(now // every + 1) * every] if every else []
        return min([*moments, self.config.evaluations])

    def log(self, generation: Generation) -> None:
        """A row in every log, the snapshots that are due, and a report."""
        evaluations = generation.metrics[0]["evaluations"]
        before, self.logged, self.metrics = self.logged, evaluations, generation.metrics
        timings = {
            **generation.timings,
            "generation": generation.metrics[0]["generation"],
            "checkpoint_s": self.spent,
            "elapsed_s": self.elapsed(),
            "corrections_s": self.correcting,
        }
        self.spent = self.correcting = 0.0
        with told_in_one_line(self.writing):
            crossed = [moment for moment in _snapshots(self.config) if before < moment <= evaluations]
            if crossed:
                for folder, archive in zip(self.folders, self.archives(), strict=True):
                    (folder / "snapshots").mkdir(exist_ok=True)
                    save_archive(folder / "snapshots" / f"{crossed[-1]:010d}.npz", archive)
            for log, metrics in zip(self.logs, generation.metrics, strict=True):
                log.append(metrics, timings)
        if self.how.on_generation is not None:
            median = {
                name: _median([metrics[name] for metrics in generation.metrics])
                for name in generation.metrics[0]
            }
            self.how.on_generation(Report(median, timings, self.config.evaluations))

    def checkpoint(self) -> None:
        clock, current = time.perf_counter(), self.current
        with told_in_one_line(self.writing):
            self.checkpoints.save(
                current.state,
                {
                    "generation": current.generation,
                    "evaluations": current.evaluations,
                    "environment_steps": current.environment_steps,
                    "corrected": self.corrected,
                    "elapsed": self.elapsed(),
                    "sizes": [log.sync() for log in self.logs],
                },
            )
            if current.evaluations < self.config.evaluations:  # else it would count as finished
                for folder, archive in zip(self.folders, self.archives(), strict=True):
                    save_archive(folder / "archive.npz", archive)
        self.saved_at = time.perf_counter()
        self.cost = self.spent = self.saved_at - clock

    def correction_is_due(self) -> bool:
        """At the first generation that reaches a multiple of `correct_every`, and at the end."""
        every, now = self.config.correct_every, self.current.evaluations
        reached = every > 0 and now // every > self.corrected // every
        return reached or (every > 0 and now >= self.config.evaluations > self.corrected)

    def correct(self) -> None:
        """Corrects the archives as they are now, a row of `corrections.csv` each."""
        clock, config = time.perf_counter(), self.config
        settings = Settings(replications=config.correct_replications, redraw=config.correct_redraw)
        rows = []
        for index, (folder, archive) in enumerate(zip(self.folders, self.archives(), strict=True)):
            path = folder / "corrected.npz"
            members = self.current.members(index) if config.correct_redraw else None
            found = corrected_already(path, archive, settings) or correct_archive(
                path,
                archive,
                settings,
                self.current.evaluator,
                members,
                stop=self.stop,
                on_progress=self.how.on_correction,
            )
            rows.append(
                {
                    "generation": self.current.generation,
                    "evaluations": self.current.evaluations,
                    "elites": len(archive.cell),
                    **found.metrics._asdict(),
                    **{f"{name}_loss": value for name, value in found.losses._asdict().items()},
                    "invalid": int(found.invalid),
                }
            )
        for log, row in zip(self.logs, rows, strict=True):
            log.corrections.append(row)
        self.corrected = self.current.evaluations
        self.correcting = time.perf_counter() - clock


def _median(values: list[Any]) -> Any:
    middle = float(np.median(values))
    return int(middle) if all(isinstance(value, int) for value in values) else middle


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

"""The loop of a run: advance, log, snapshot, correct, checkpoint; until the budget is spent, or a stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites.errors import require
from elites.experiments.config import RunConfig
from elites.experiments.correct import Settings, StoppedError, correct_archive, corrected_already
from elites.experiments.guards import Interrupts, alone
from elites.experiments.replications import (
    Generation,
    Replications,
    metric_columns,
    metrics_of,
    to_save,
)
from elites.files import error_in_one_line
from elites.metrics.archive import ArchiveMetrics
from elites.metrics.corrected import Losses
from elites.results.archive import SavedArchive, save_archive
from elites.results.checkpoints import Checkpoints, outline
from elites.results.members import save_members
from elites.results.tables import Logs

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


def drive(
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
    checkpoints = Checkpoints(home / "checkpoints")
    for partial in home.rglob(".*.partial"):  # what a kill left of a file it was writing
        partial.unlink()
    header: dict[str, Any] = {"sizes": [{} for _ in folders], "elapsed": 0.0, "corrected": 0}
    if checkpoints.paths():
        empty, current.state = outline(current.state), None  # room for what is loaded
        current.state, header, wrong = checkpoints.load(empty)
        for message in wrong:
            how.tell(f"{message}; going on from the one before it")
        current.generation, current.evaluations = header["generation"], header["evaluations"]
        current.environment_steps = header["environment_steps"]
    corrects = current.configs[0].correct_every > 0
    timings = ["generation", *current.timings, "checkpoint_s", "elapsed_s", "steps_per_s"]
    with ExitStack() as stack:
        with error_in_one_line(f"cannot write to {home}"):
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
                    with error_in_one_line(self.writing):
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
        with error_in_one_line(self.writing):
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
        with error_in_one_line(self.writing):
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
        with error_in_one_line(self.writing):
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

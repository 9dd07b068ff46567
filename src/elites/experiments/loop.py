"""The loop of a run: advance, log, snapshot, correct and checkpoint, until the budget is spent or a stop."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from elites.experiments.config import RunConfig
from elites.experiments.correct import (
    Settings,
    StoppedError,
    correct_archive,
    find_recorded_physics,
    load_existing_correction,
)
from elites.experiments.execution import Execution, Report
from elites.experiments.generation import FinishedGeneration, RunTotals
from elites.experiments.guards import Interrupts, folder_lock
from elites.experiments.pictures import Pictures, draw
from elites.experiments.replications import Replications
from elites.experiments.rows import UnloggedCounts, list_columns, make_rows
from elites.files import convert_os_errors, make_one_line
from elites.learning import products
from elites.loggers.group import Loggers, open_loggers
from elites.metrics.metric import Metric
from elites.results.checkpoints import Checkpoints, RunIdentity, share_empty_rows
from elites.results.folder import GroupFolder, RunFolder
from elites.results.schemas import CheckpointHeader
from elites.results.tables import Logs, check_logs

CHECKPOINT_SHARE = 0.02  # largest share of the time for checkpoints
STOP_AWAITS = "the running generation"  # before a run stops


def list_correction_columns(metrics: Sequence[Metric]) -> list[str]:
    """The columns of `corrections.csv`."""
    names, losses = [metric.name for metric in metrics], [metric.loss.name for metric in metrics]
    return ["generation", "evaluations", "elites", *names, *losses, "invalid"]


@dataclass(frozen=True)
class Outcome:
    """The result of a run or a part of it. `evaluations` of a group is the smallest of its runs."""

    folder: Path
    finished: bool  # otherwise it was interrupted, or reached its time limit
    evaluations: int
    metrics: dict[str, Any]
    runs: tuple[Outcome, ...] = ()


def run_to_end(
    home: Path,
    folders: list[RunFolder],
    replications: Replications,
    execution: Execution,
    interrupts: Interrupts | None = None,
) -> list[Outcome]:
    """Runs the replications, each in its folder, until the end or a stop. The checkpoints are in `home`."""
    if replications.algorithm.training_precision == "bfloat16" and not products.gains_speed():
        execution.log("this processor has no bfloat16 products: training is not faster than in float32")
    with ExitStack() as stack:
        for folder in folders:
            if folder.path != home:
                stack.enter_context(folder_lock(folder.path))
        if interrupts is None:
            interrupts = stack.enter_context(Interrupts(STOP_AWAITS, execution.on_stop))
        return _run_to_end(home, folders, replications, execution, interrupts)


def _run_to_end(
    home: Path,
    folders: list[RunFolder],
    replications: Replications,
    execution: Execution,
    interrupts: Interrupts,
) -> list[Outcome]:
    group = GroupFolder(home)
    checkpoints = group.checkpoints
    group.remove_partials()
    budget = replications.configs[0].evaluations
    identity = RunIdentity([replace(folder.read_record(), evaluations=budget) for folder in folders])
    header = None
    if checkpoints.paths():
        header = _restore(checkpoints, identity, folders, replications, execution)
    for folder in folders:
        folder.extend(budget)
    corrects = replications.configs[0].correct_every > 0
    columns = list_columns(replications.algorithm, replications.metrics)
    timings = ["generation", *replications.timings, "checkpoint_s", "elapsed_s", "steps_per_s"]
    with ExitStack() as stack:
        with convert_os_errors(f"cannot write to {home}"):
            logs = [
                stack.enter_context(
                    Logs(
                        folder.path,
                        columns,
                        [*timings, *["corrections_s"] * corrects],
                        list_correction_columns(replications.metrics.archive) if corrects else (),
                        replications.algorithm.operators,
                        header.logs[index] if header else {},
                    )
                )
                for index, folder in enumerate(folders)
            ]
        loggers = open_loggers(folders, logs, execution.loggers, replications.evaluations, execution.log)
        stack.callback(loggers.close)
        places = home, folders, logs, loggers, checkpoints
        outcomes = _Loop(*places, replications, identity, header, interrupts, execution).run()
        loggers.close(outcomes[0].finished)
        return outcomes


def _restore(
    checkpoints: Checkpoints,
    identity: RunIdentity,
    folders: list[RunFolder],
    replications: Replications,
    execution: Execution,
) -> CheckpointHeader:
    """Continues from the last good checkpoint, if the logs are those that it was written with."""
    execution.on_phase("reading the checkpoint")
    empty, replications.state = share_empty_rows(replications.state), []  # frees memory for the loaded states
    states, header, problems = checkpoints.load(replications.split_states(empty), identity)
    replications.restore(states)
    for folder, marks in zip(folders, header.logs, strict=True):
        check_logs(folder.path, marks)
    for message in problems:
        execution.log(f"{message}; continuing from the previous one")
    replications.totals = RunTotals(header.generation, header.evaluations, header.environment_steps)
    return header


class _Loop:
    """The loop over generations, with logs, snapshots, corrections and checkpoints."""

    def __init__(
        self,
        home: Path,
        folders: list[RunFolder],
        logs: list[Logs],
        loggers: Loggers,
        checkpoints: Checkpoints,
        replications: Replications,
        identity: RunIdentity,
        header: CheckpointHeader | None,
        interrupts: Interrupts,
        execution: Execution,
    ) -> None:
        """`header` is that of the checkpoint from which the runs continue."""
        self.folders, self.replications, self.logs, self.execution = folders, replications, logs, execution
        self.checkpoints, self.identity, self.interrupts = checkpoints, identity, interrupts
        self.config, self.loggers = replications.configs[0], loggers
        self.pictures = Pictures(execution.pictures, self.config.evaluations, replications.evaluations)
        self.seeds = tuple(config.seed for config in replications.configs)
        self.elapsed_before = header.elapsed if header else 0.0
        self.logged_evaluations = replications.evaluations
        self.corrected_evaluations = header.corrected if header else 0  # evaluations at the last correction
        self.write_error = f"cannot write to {home}; its last checkpoint is intact"
        self.saved_at, self.checkpoint_cost = time.perf_counter(), 0.0
        self.saved_generation = header.generation if header else None  # generation of the newest checkpoint
        self.checkpoint_seconds = self.correction_seconds = 0.0  # seconds, for the next row of timings
        self.metrics: list[dict[str, Any]] = []  # of the last generation
        self.pending = UnloggedCounts(header.pending, header.pending_s) if header else UnloggedCounts()

    def run(self) -> list[Outcome]:
        while not self.done():
            if self.correction_is_due():
                try:
                    with convert_os_errors(self.write_error):
                        self.correct()
                except StoppedError:
                    return self.stop_early()
                continue
            if self.state_is_due():
                self.checkpoint()
            self.execution.on_phase(f"generation {self.replications.generation + 1:,}")
            for finished in self.replications.advance(until=self.find_next_event()):
                self.log(finished)
            self.draw_pictures()
            stopping = self.stop_requested() and not self.done()
            if self.checkpoint_is_due() and not (stopping or self.done()):
                self.checkpoint()
            if stopping:
                return self.stop_early()
        self.execution.on_phase("writing the archive")
        with convert_os_errors(self.write_error):
            archives = self.replications.make_saved_archives()
            for index, (folder, archive) in enumerate(zip(self.folders, archives, strict=True)):
                self.logs[index].sync()
                if self.config.keeps_members:
                    members = self.replications.make_members(index)
                    assert members is not None
                    folder.write_members(members)
                folder.write_archive(archive)  # marks the run as finished
            remove_checkpoints(self.checkpoints, self.execution)
        return self.make_outcomes(finished=True)

    def make_outcomes(self, *, finished: bool) -> list[Outcome]:
        evaluations, metrics = (
            self.replications.evaluations,
            self.metrics or self.replications.compute_summaries(),
        )
        return [
            Outcome(folder.path, finished, evaluations, own)
            for folder, own in zip(self.folders, metrics, strict=True)
        ]

    def stop_early(self) -> list[Outcome]:
        self.checkpoint()
        return self.make_outcomes(finished=False)

    def state_is_due(self) -> bool:
        """Whether to save the state from which the run can be extended: the one before the last generation.

        An extended run computes that generation again: the budget may have cut it, and the end of a run adds
        rows to the logs that a longer run does not have there.
        """
        replications = self.replications
        before_last = replications.functions.count_evaluations_before_last(replications.budget)
        at_last = replications.evaluations == before_last
        return self.execution.keep_state and at_last and self.saved_generation != replications.generation

    def checkpoint_is_due(self) -> bool:
        """True after `checkpoint_seconds` and within `CHECKPOINT_SHARE`; with 0 s, whenever possible."""
        seconds, waited = self.execution.checkpoint_seconds, time.perf_counter() - self.saved_at
        return seconds == 0 or waited > max(seconds, self.checkpoint_cost / CHECKPOINT_SHARE)

    def measure_elapsed(self) -> float:
        return self.elapsed_before + time.perf_counter() - self.replications.started

    def stop_requested(self) -> bool:
        hours, seconds = self.execution.max_hours, time.perf_counter() - self.replications.started
        return self.interrupts.requested or (hours is not None and seconds >= 3600 * hours)

    def done(self) -> bool:
        return self.replications.evaluations >= self.config.evaluations and not self.correction_is_due()

    def find_next_event(self) -> int:
        """Evaluations of the next snapshot, correction, last generation or end."""
        now, every = self.replications.evaluations, self.config.correct_every
        events = [snapshot for snapshot in _list_snapshot_evaluations(self.config) if snapshot > now]
        events += [(now // every + 1) * every] if every else []
        last = self.replications.functions.count_evaluations_before_last(self.replications.budget)
        events += [last] if last > now and self.execution.keep_state else []
        return min([*events, self.config.evaluations])

    def log(self, finished: FinishedGeneration) -> None:
        """Writes rows of the logs and snapshots that are due; reports the generation."""
        evaluations = finished.totals.evaluations
        before, self.logged_evaluations = self.logged_evaluations, evaluations
        metrics = make_rows(finished, self.replications.algorithm, self.replications.metrics)
        self.metrics = metrics
        timings = {
            **finished.timings,
            "generation": finished.totals.generation,
            "checkpoint_s": self.checkpoint_seconds,
            "elapsed_s": self.measure_elapsed(),
            "corrections_s": self.correction_seconds,
        }
        self.checkpoint_seconds = self.correction_seconds = 0.0
        with convert_os_errors(self.write_error):
            crossed = [
                snapshot
                for snapshot in _list_snapshot_evaluations(self.config)
                if before < snapshot <= evaluations
            ]
            if crossed:
                for folder, archive in zip(
                    self.folders, self.replications.make_saved_archives(), strict=True
                ):
                    folder.write_snapshot(crossed[-1], archive)
            for log, offspring in zip(self.logs, finished.offspring, strict=True):
                log.add_offspring(offspring)
            self.pending.add(metrics, timings)
            if self.row_is_due(before, finished):
                rows, summed_timings = self.pending.take(metrics, timings)
                for log, row in zip(self.logs, rows, strict=True):
                    log.metrics.append(row)
                    log.timings.append(summed_timings)
                self.loggers.log_rows(rows)
        if self.execution.on_generation is not None:
            self.execution.on_generation(
                Report(
                    compute_medians(metrics),
                    timings,
                    self.config.evaluations,
                    self.seeds,
                    self.replications.metrics.shown,
                )
            )

    def draw_pictures(self) -> None:
        """Draws the archives for the loggers, if pictures are due."""
        evaluations, clock = self.replications.evaluations, time.perf_counter()
        elapsed = clock - self.replications.started
        if not self.pictures.is_due(evaluations, elapsed, last=self.loggers.has_others):
            return
        archives = self.replications.make_saved_archives()
        if all(len(archive.fitness) for archive in archives):
            try:
                self.loggers.log_pictures(evaluations, draw(archives))
            except Exception as error:  # a figure must not end a run
                self.pictures.count = 0
                self.execution.log(f"the archive cannot be drawn for the loggers: {make_one_line(error)}")
        self.pictures.record_drawing(evaluations, time.perf_counter() - clock)

    def row_is_due(self, before: int, finished: FinishedGeneration) -> bool:
        """Whether a generation has a row. The last one always does, and each one before a correction."""
        evaluations, every = finished.totals.evaluations, self.config.correct_every
        corrected = every > 0 and evaluations // every > before // every
        return (
            finished.totals.generation % self.config.log_every == 0
            or evaluations >= self.config.evaluations
            or corrected
        )

    def checkpoint(self) -> None:
        clock, replications = time.perf_counter(), self.replications
        self.execution.on_phase("writing a checkpoint")
        with convert_os_errors(self.write_error):
            self.checkpoints.save(
                replications.split_states(replications.state),
                self.identity.make_header(
                    generation=replications.generation,
                    evaluations=replications.evaluations,
                    environment_steps=replications.totals.environment_steps,
                    corrected=self.corrected_evaluations,
                    elapsed=self.measure_elapsed(),
                    logs=[log.sync() for log in self.logs],
                    pending=self.pending.counts,
                    pending_s=self.pending.seconds,
                ),
            )
            # At the end it would count as finished.
            if 0 < replications.evaluations < self.config.evaluations:
                for folder, archive in zip(self.folders, replications.make_saved_archives(), strict=True):
                    folder.write_archive(archive)
        self.saved_generation, self.saved_at = replications.generation, time.perf_counter()
        self.checkpoint_cost = self.checkpoint_seconds = self.saved_at - clock

    def correction_is_due(self) -> bool:
        """True after the first generation that reaches a multiple of `correct_every`, and at the end."""
        every, now = self.config.correct_every, self.replications.evaluations
        reached = every > 0 and now // every > self.corrected_evaluations // every
        return reached or (every > 0 and now >= self.config.evaluations > self.corrected_evaluations)

    def correct(self) -> None:
        """Corrects the current archives, and writes a row of `corrections.csv` for each."""
        clock, config = time.perf_counter(), self.config
        self.execution.on_phase("correcting")
        settings = Settings(
            replications=config.correct_replications,
            redraw=config.correct_redraw,
            physics=find_recorded_physics(config.physics),
        )
        rows = []
        for index, (folder, archive) in enumerate(
            zip(self.folders, self.replications.make_saved_archives(), strict=True)
        ):
            path = folder.corrected_path()
            members = self.replications.make_members(index) if config.correct_redraw else None
            corrected = load_existing_correction(
                path, archive, settings, self.execution.log
            ) or correct_archive(
                path,
                archive,
                settings,
                self.replications.evaluator,
                members,
                stop=self.stop_requested,
                on_progress=self.execution.on_correction,
            )
            row: dict[str, Any] = {
                "generation": self.replications.generation,
                "evaluations": self.replications.evaluations,
                "elites": len(archive.cell),
                "invalid": int(corrected.invalid),
            }
            for metric in self.replications.metrics.archive:
                _, row[metric.name], row[metric.loss.name] = corrected.compare_metric(metric)
            rows.append(row)
        for log, row in zip(self.logs, rows, strict=True):
            log.corrections.append(row)
        self.corrected_evaluations = self.replications.evaluations
        self.correction_seconds = time.perf_counter() - clock


def remove_checkpoints(checkpoints: Checkpoints, execution: Execution) -> None:
    """Removes the checkpoints of a finished run, except its last state if `keep_state`."""
    checkpoints.clear(keep=checkpoints.find_extensible() if execution.keep_state else None)


def compute_medians(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The median of each metric over the rows of several runs."""
    return {name: _compute_median([row[name] for row in rows]) for name in rows[0]}


def _compute_median(values: list[Any]) -> Any:
    """The median of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    middle = float(np.median(known))
    return int(middle) if all(isinstance(value, int) for value in known) else middle


def _list_snapshot_evaluations(config: RunConfig) -> list[int]:
    """Evaluations of the snapshots; the last one is at the end."""
    return [config.evaluations * (index + 1) // config.snapshots for index in range(config.snapshots)]

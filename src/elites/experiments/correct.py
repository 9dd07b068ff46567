"""Correcting an archive: every elite is evaluated again, and what is left of the archive is saved.

The seed of an episode is a function of the correction's seed, the run's seed, the elite's cell and the
number of the replication, so neither threads, nor order, nor an interruption change anything. The run is not
touched.
"""

from __future__ import annotations

import contextlib
import json
import numbers
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elites.errors import ElitesError, require
from elites.evaluation import evaluator_of
from elites.evaluation.evaluation import Evaluator
from elites.experiments.guards import Interrupts, alone
from elites.files import error_in_one_line, read_arrays, write_arrays
from elites.results.archive import SavedArchive
from elites.results.corrected import (
    CorrectedArchive,
    corrected_archive,
    load_corrected,
    save_corrected,
)
from elites.results.folder import RunFolder
from elites.results.members import Members
from elites.tasks import make_task

CHUNK_SECONDS = (
    10.0  # between saves; idle threads at the end of one, for at most an episode, are then nothing
)
FIRST_CHUNK = 200  # episodes, before their speed is known
REPORT_SECONDS = 0.1  # between reports of progress
DRAWN_BYTES = 2**28  # of controllers that are drawn for one chunk
EPISODES, MEMBERS = 0, 1  # streams of random numbers, apart from each other and from the run's


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a correction depends on, beside the archive."""

    replications: int = 50
    seed: int = 0
    redraw: bool = False  # deep-grid: a member of the cell is drawn for each replication

    def __post_init__(self) -> None:
        for name in ("replications", "seed"):
            given = getattr(self, name)
            require(isinstance(given, numbers.Integral), name, repr(given), "a whole number")
            object.__setattr__(self, name, int(given))
        require(self.replications >= 1, "replications", self.replications, "at least 1")
        require(0 <= self.seed < 2**32, "seed", self.seed, "from 0 to 2**32 - 1")


class StoppedError(Exception):
    """A correction was asked to stop; what it has so far is saved."""


def correct(
    folder: Path | str,
    *,
    replications: int = 50,
    snapshot: int | None = None,
    seed: int = 0,
    redraw: bool = False,
    threads: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    log: Callable[[str], None] = print,
) -> CorrectedArchive:
    """Evaluates every elite of a run again and saves what is left of its archive as `corrected.npz`.

    A file that is there already and was made in the same way is returned as it is. Ctrl-C and SIGTERM raise
    KeyboardInterrupt; the next call goes on from what was saved, at most some seconds before.

    Args:
        folder: the run's, finished or not.
        replications: episodes per elite (N).
        snapshot: the evaluations of the snapshot to correct, into `corrected-EVALUATIONS.npz`; unless given,
            the archive.
        seed: of the replications; the run's own episodes have others.
        redraw: for deep-grid, draws a member of the cell for each replication, as the authors did; otherwise
            the cell's best is evaluated. The run must have kept its members.
        threads: one per core unless given. They change nothing but the speed.
        on_progress: called now and then with the episodes done and all there are.
        log: called with each line for the user.
    """
    run = RunFolder(folder)
    settings = Settings(replications=replications, seed=seed, redraw=redraw)
    require(threads is None or threads >= 1, "threads", threads, "at least 1")
    record = run.read_record()
    with alone(run.path):
        path = run.corrected(snapshot)
        archive = run.read_archive() if snapshot is None else run.read_snapshot(snapshot)
        if (corrected := existing_correction(path, archive, settings)) is not None:
            log(f"{path} is there already: {replications} replications of {len(archive.cell)} elites")
            return corrected
        members = _kept_members(run, archive) if redraw else None
        hidden = tuple(int(size) for size in archive.policy_sizes[1:-1])
        with (
            evaluator_of(make_task(record.task, **record.task_parameters), hidden, threads) as evaluator,
            Interrupts("stopping") as interrupts,
            error_in_one_line(f"cannot write to {run}"),
        ):
            try:
                return correct_archive(
                    path,
                    archive,
                    settings,
                    evaluator,
                    members,
                    stop=lambda: interrupts.requested,
                    on_progress=on_progress,
                )
            except StoppedError as stopped:
                log(f"{stopped}; the same command goes on")
                raise KeyboardInterrupt from None


def correct_archive(
    path: Path,
    archive: SavedArchive,
    settings: Settings,
    evaluator: Evaluator,
    members: Members | None,
    *,
    stop: Callable[[], bool],
    on_progress: Callable[[int, int], None] | None = None,
) -> CorrectedArchive:
    """Evaluates the elites again and saves the corrected archive as `path`; StoppedError if asked to stop."""
    unfinished = path.with_suffix(".unfinished.npz")
    about = _about(archive, settings)
    shape = (len(archive.cell), settings.replications)
    fitness = np.full(shape, np.nan, np.float32)
    descriptor = np.full((*shape, archive.descriptor.shape[1]), np.nan, np.float32)
    done = _load_unfinished(unfinished, about, fitness, descriptor)
    seeds = episode_seeds(archive, settings)
    drawn = None
    most = len(archive.cell)
    if members is not None:
        drawn = members.drawn(archive.cell, chances(archive, settings))
        most = max(1, DRAWN_BYTES // (4 * settings.replications * archive.parameters.shape[1]))
    progress = _Progress(fitness.size, done * settings.replications, stop, on_progress)

    fixed = evaluator.at_once(settings.replications)
    size = min(fixed or -(-FIRST_CHUNK // settings.replications), most)
    while done < len(archive.cell):
        # Where the number matters the last ones are filled up with the first, interrupted or not.
        last = done + size if fixed else min(done + size, len(archive.cell))
        rows = np.arange(done, last) % len(archive.cell)
        started = time.perf_counter()
        try:
            if members is None or drawn is None:
                evaluation = evaluator.evaluate(archive.parameters[rows], seeds[rows], on_episode=progress)
            else:
                evaluation = evaluator.evaluate(
                    members.parameters(drawn[rows].ravel()), seeds[rows].ravel(), on_episode=progress
                )
        except StoppedError:
            raise StoppedError(f"stopped after {done} of {len(archive.cell)} elites") from None
        count = min(size, len(archive.cell) - done)
        new = slice(done, done + count)
        fitness[new] = evaluation.fitness.reshape(-1, *fitness.shape[1:])[:count]
        descriptor[new] = evaluation.descriptor.reshape(-1, *descriptor.shape[1:])[:count]
        done += count
        if not fixed:
            per_second = count / max(time.perf_counter() - started, 1e-3)
            size = min(max(1, round(CHUNK_SECONDS * per_second)), most)
        if done < len(archive.cell):
            _save_unfinished(unfinished, about, fitness, descriptor, done)
    progress.finish()
    corrected = corrected_archive(archive, fitness, descriptor, about)
    save_corrected(path, corrected)
    unfinished.unlink(missing_ok=True)
    return corrected


class _Progress:
    """Called with each episode that ends: tells of it now and then, and raises StoppedError when asked to."""

    def __init__(
        self,
        total: int,
        done: int,
        stop: Callable[[], bool],
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self.total, self.done, self.stop, self.on_progress = total, done, stop, on_progress
        self._reported = 0.0

    def __call__(self, steps: int) -> None:
        self.done += 1
        if self.stop():
            raise StoppedError
        if (now := time.perf_counter()) - self._reported > REPORT_SECONDS:
            self._reported = now
            self.finish()

    def finish(self) -> None:
        if self.on_progress is not None:
            self.on_progress(min(self.done, self.total), self.total)


def episode_seeds(archive: SavedArchive, settings: Settings) -> np.ndarray:
    """The seed of each replication of each elite, `[n, N]`."""
    rows = [part.generate_state(settings.replications) for part in _parts(archive, settings, EPISODES)]
    return np.array(rows, np.int64).reshape(-1, settings.replications)


def chances(archive: SavedArchive, settings: Settings) -> np.ndarray:
    """The number below 1 that picks the member for each replication of each cell, `[n, N]`."""
    parts = _parts(archive, settings, MEMBERS)
    rows = [np.random.default_rng(part).random(settings.replications) for part in parts]
    return np.array(rows).reshape(-1, settings.replications)


def _parts(archive: SavedArchive, settings: Settings, stream: int) -> list[np.random.SeedSequence]:
    """A source of random numbers for each cell; more of them begin with the same ones."""
    entropy = (settings.seed, int(archive.about["seed"]))
    return [np.random.SeedSequence(entropy, spawn_key=(stream, int(cell))) for cell in archive.cell]


def _about(archive: SavedArchive, settings: Settings) -> dict[str, Any]:
    """What a corrected archive was made from: the same again gives the same file."""
    return {
        **asdict(settings),
        "archive": archive.digest(),
        "algorithm": archive.about["algorithm"],
        "task": archive.about["task"],
        "run_seed": archive.about["seed"],
        "evaluations": archive.about["evaluations"],
    }


def existing_correction(path: Path, archive: SavedArchive, settings: Settings) -> CorrectedArchive | None:
    """The corrected archive in a file, if it was made from this archive with these settings."""
    with contextlib.suppress(ElitesError):  # damaged, or none: it is made again
        corrected = load_corrected(path)
        same = corrected.about["evaluations"] == archive.about["evaluations"]
        if (
            same
            and corrected.is_correction_of(archive)
            and all(corrected.about[name] == value for name, value in asdict(settings).items())
        ):
            return corrected
    return None


def _kept_members(run: RunFolder, archive: SavedArchive) -> Members:
    path, evaluations = run.members, archive.about["evaluations"]
    if not path.exists():
        raise ElitesError(
            f"redraw is for deep-grid, whose cells have several members, and needs {path}, which "
            "`elites run deep-grid … --keep-members` leaves at its end; this is "
            f"{archive.about['algorithm']}. Runs can redraw on their way: --correct-every, --correct-redraw"
        )
    members = run.read_members()
    if members.evaluations != evaluations:
        raise ElitesError(
            f"{path} holds the members after {members.evaluations} evaluations, not after {evaluations}: "
            "only the final archive can be corrected by drawing from them"
        )
    return members


def _save_unfinished(
    path: Path, about: dict[str, Any], fitness: np.ndarray, descriptor: np.ndarray, done: int
) -> None:
    arrays = {
        "fitness": fitness[:done],
        "descriptor": descriptor[:done],
        "about": np.array(json.dumps(about)),
    }
    write_arrays(path, arrays)


def _load_unfinished(path: Path, about: dict[str, Any], fitness: np.ndarray, descriptor: np.ndarray) -> int:
    """Fills in the elites that are done already, if they were done in the same way. Returns how many."""
    with contextlib.suppress(ElitesError):
        arrays = read_arrays(path, ("fitness", "descriptor", "about"), "an unfinished correction")
        if str(arrays["about"]) == json.dumps(about):
            done = len(arrays["fitness"])
            fitness[:done], descriptor[:done] = arrays["fitness"], arrays["descriptor"]
            return done
    return 0

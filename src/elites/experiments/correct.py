"""Correction of an archive: every elite is evaluated again, and the corrected archive is saved.

The seed of an episode is a function of the correction's seed, the run's seed, the elite's cell and the
number of the replication. Threads, order and interruptions therefore do not change the result. The files of
the run are not changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from elites.errors import ElitesError, require
from elites.evaluation import make_evaluator
from elites.evaluation.evaluation import Evaluator
from elites.experiments.guards import Interrupts, folder_lock
from elites.files import convert_os_errors
from elites.memory import require_bytes
from elites.options import Physics, Replications, Seed, Threads, convert_value, read_types
from elites.results.archive import SavedArchive
from elites.results.corrected import (
    CorrectedArchive,
    describe_correction,
    load_corrected,
    load_unfinished,
    make_corrected_archive,
    remove_unfinished,
    save_corrected,
    save_unfinished,
)
from elites.results.folder import RunFolder
from elites.results.members import Members
from elites.tasks.in_memory import make_recorded_task, provide_functions
from elites.tasks.task import Task

CHUNK_SECONDS = 10.0  # between saves; long, since threads idle at the end of a chunk
FIRST_CHUNK = 200  # episodes, before the speed is known
REPORT_SECONDS = 0.1  # between progress reports
DRAWN_BYTES = 2**28  # of the controllers of one chunk, if members are drawn
EPISODES, MEMBERS = 0, 1  # independent streams of random numbers


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a correction."""

    replications: Replications = 50
    seed: Seed = 0
    redraw: bool = False  # deep-grid: a member of the cell is drawn for each replication
    physics: Physics | None = None  # of a task in JAX; None: XLA

    def __post_init__(self) -> None:
        for name, expected in read_types(Settings).items():
            object.__setattr__(self, name, convert_value(expected, name, getattr(self, name)))


def find_recorded_physics(physics: Physics | None) -> Physics | None:
    """The physics as corrections record it: None for XLA, as in corrections of an older format."""
    return None if physics == "xla" else physics


class StoppedError(Exception):
    """A correction was stopped; its progress is saved."""


def correct(
    folder: Path | str,
    *,
    replications: int = 50,
    snapshot: int | None = None,
    seed: int = 0,
    redraw: bool = False,
    threads: int | None = None,
    physics: Physics | None = None,
    task: Task | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_stop: Callable[[str, int], None] | None = None,
    log: Callable[[str], None] = print,
) -> CorrectedArchive:
    """Evaluates every elite of a run again and saves the corrected archive as `corrected.npz`.

    If the file exists and has the same settings, it is returned. Ctrl-C and SIGTERM raise KeyboardInterrupt;
    the next call continues from the last save, which is a few seconds old at most.

    Args:
        folder: folder of the run, finished or not.
        replications: episodes per elite (N).
        snapshot: evaluations of the snapshot to correct, into `corrected-EVALUATIONS.npz`; the default is the
            archive.
        seed: seed of the replications; they share no episode with the run.
        redraw: deep-grid: whether a member of the cell is drawn for each replication, as its authors did,
            instead of its best. Needs a run with `keep_members`.
        threads: number of threads, which changes only the speed; the default is one per core.
        physics: what computes the episodes of a task in JAX, "xla", "native" or "cuda"; by default the run's.
        task: the run's task again, as for `elites.resume`.
        on_progress: called regularly with the number of episodes done and the total.
        on_stop: called at each Ctrl-C or SIGTERM, from another thread, with a line that says what the stop
            waits for, and with the number of signals so far; the default writes it to standard error.
        log: called with each line for the user.
    """
    run = RunFolder(folder)
    convert_value(Threads | None, "threads", threads)
    convert_value(Physics | None, "physics", physics)
    record = run.read_record()
    if task is not None:
        provide_functions(run.path, record.task, record.task_parameters, task)
    chosen = physics or record.physics
    settings = Settings(
        replications=replications, seed=seed, redraw=redraw, physics=find_recorded_physics(chosen)
    )
    with folder_lock(run.path):
        path = run.corrected_path(snapshot)
        archive = run.read_archive() if snapshot is None else run.read_snapshot(snapshot)
        run.remove_partials()
        if (corrected := load_existing_correction(path, archive, settings, log)) is not None:
            log(f"{path} already exists: {replications} replications of {len(archive.cell)} elites")
            return corrected
        archive.require_parameters(run)
        members = _read_members(run, archive) if redraw else None
        hidden = tuple(int(size) for size in archive.policy_sizes[1:-1])
        run_task = make_recorded_task(run.path, record.task, record.task_parameters)
        if run_task.descriptor_size != archive.descriptor.shape[1]:
            raise ElitesError(
                f"{path.parent} has an archive of {archive.descriptor.shape[1]} descriptors; "
                f"{record.task} has {run_task.descriptor_size}"
            )
        with (
            make_evaluator(run_task, hidden, threads, physics=chosen) as evaluator,
            Interrupts("the running episodes", on_stop) as interrupts,
            convert_os_errors(f"cannot write to {run}"),
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
                log(f"{stopped}; the same command continues")
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
    """Evaluates the elites again and saves the corrected archive. Raises StoppedError if `stop()`."""
    about = describe_correction(archive, **asdict(settings))
    shape = (len(archive.cell), settings.replications, archive.descriptor.shape[1])
    require_correction_memory(shape[0], shape[2], archive.parameters.shape[1], settings)
    fitness, descriptor = np.full(shape[:2], np.nan, np.float32), np.full(shape, np.nan, np.float32)
    finished = load_unfinished(path, about, shape)
    done = len(finished[0])
    fitness[:done], descriptor[:done] = finished
    seeds = derive_episode_seeds(archive, settings)
    chosen = None
    most = len(archive.cell)
    if members is not None:
        chosen = members.draw(archive.cell, draw_uniform(archive, settings))
        most = max(1, DRAWN_BYTES // (4 * settings.replications * archive.parameters.shape[1]))
    progress = _Progress(fitness.size, done * settings.replications, stop, on_progress)
    progress.report()

    fixed = evaluator.controllers_per_call(settings.replications)
    size = min(fixed or -(-FIRST_CHUNK // settings.replications), most)
    while done < len(archive.cell):
        # A chunk of fixed size is filled up with the first elites, so that interruptions change nothing.
        last = done + size if fixed else min(done + size, len(archive.cell))
        rows = np.arange(done, last) % len(archive.cell)
        started = time.perf_counter()
        try:
            if members is None or chosen is None:
                evaluation = evaluator.evaluate(archive.parameters[rows], seeds[rows], on_episode=progress)
            else:
                evaluation = evaluator.evaluate(
                    members.parameters(chosen[rows].ravel()), seeds[rows].ravel(), on_episode=progress
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
            save_unfinished(path, about, fitness[:done], descriptor[:done])
    progress.report()
    corrected = make_corrected_archive(archive, fitness, descriptor, about)
    save_corrected(path, corrected)
    remove_unfinished(path)
    return corrected


class _Progress:
    """Called after each episode: reports the progress regularly; raises StoppedError if `stop()`."""

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
            self.report()

    def report(self) -> None:
        if self.on_progress is not None:
            self.on_progress(min(self.done, self.total), self.total)


def require_correction_memory(elites: int, dimensions: int, parameters: int, settings: Settings) -> None:
    """Raises an error if the replications of this number of elites do not fit into memory."""
    drawn = 4 * parameters if settings.redraw else 0  # members for one elite at least
    require_bytes(
        settings.replications,
        elites * (2 * 4 * (1 + dimensions) + 8) + drawn,
        f"{settings.replications:,} replications of {elites:,} elites take",
        "replications",
    )


def derive_episode_seeds(archive: SavedArchive, settings: Settings) -> np.ndarray:
    """The seed of each replication of each elite, `[n, N]`."""
    rows = [
        one.generate_state(settings.replications) for one in _make_seed_sequences(archive, settings, EPISODES)
    ]
    return np.array(rows, np.int64).reshape(-1, settings.replications)


def draw_uniform(archive: SavedArchive, settings: Settings) -> np.ndarray:
    """A uniform random number in [0, 1) for each replication of each cell, `[n, N]`: selects the member."""
    sequences = _make_seed_sequences(archive, settings, MEMBERS)
    rows = [np.random.default_rng(one).random(settings.replications) for one in sequences]
    return np.array(rows).reshape(-1, settings.replications)


def _make_seed_sequences(
    archive: SavedArchive, settings: Settings, stream: int
) -> list[np.random.SeedSequence]:
    """A seed sequence for each cell. More replications start with the same numbers as fewer."""
    run_seed = int(archive.about["seed"])
    require(run_seed >= 0, "seed of the archive", run_seed, "at least 0")
    entropy = (settings.seed, run_seed)
    return [np.random.SeedSequence(entropy, spawn_key=(stream, int(cell))) for cell in archive.cell]


def load_existing_correction(
    path: Path, archive: SavedArchive, settings: Settings, log: Callable[[str], None]
) -> CorrectedArchive | None:
    """The corrected archive in a file, if it belongs to this archive and these settings; else None."""
    if not path.exists():
        return None
    try:
        corrected = load_corrected(path)
    except ElitesError as error:
        log(f"{error}; it is computed again")
        return None
    same = corrected.about["evaluations"] == archive.about["evaluations"]
    if (
        same
        and corrected.is_correction_of(archive)
        and all(corrected.about[name] == value for name, value in asdict(settings).items())
    ):
        remove_unfinished(path)  # left by a process that was killed
        return corrected
    return None


def _read_members(run: RunFolder, archive: SavedArchive) -> Members:
    path, evaluations = run.members, archive.about["evaluations"]
    if not path.exists():
        raise ElitesError(
            f"redraw is for deep-grid, which has several members per cell, and needs {path}, which "
            "`elites run deep-grid … --keep-members` saves at its end; this is "
            f"{archive.about['algorithm']}. A run can also redraw: --correct-every, --correct-redraw"
        )
    members = run.read_members()
    if members.evaluations != evaluations:
        raise ElitesError(
            f"{path} has the members after {members.evaluations} evaluations, not after {evaluations}: "
            "only the final archive can be corrected by drawing from them"
        )
    width = members.parameters(np.arange(0)).shape[1]
    if width != archive.parameters.shape[1] or not np.isin(archive.cell, members.cell).all():
        raise ElitesError(f"{path} is damaged: it does not have the members of {run.archive}")
    return members

"""Runs: ask, evaluate, tell, until the budget is spent; logged, checkpointed, resumable.

Everything random comes from the run's seed, the generation and the number of the evaluation, so a run that is
killed and resumed ends with the same bits as one that is not. Replications that run as one program are
checkpointed and resumed together, as a group; each has a run's folder of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from elites.errors import ElitesError, require
from elites.experiments.config import FILE, GROUP, RunConfig, load_config, versions
from elites.experiments.guards import Interrupts, alone
from elites.experiments.loop import How, Outcome, Report, drive
from elites.experiments.replications import (
    Replications,
    replications,
    require_memory,
    together,
)
from elites.files import error_in_one_line, write_atomically
from elites.results.archive import load_archive
from elites.results.checkpoints import Checkpoints


def default_folder(config: RunConfig, seeds: int | None = None) -> Path:
    """Where a run, or a group of them, goes unless told."""
    last = config.seed if seeds is None else f"{config.seed}-to-{config.seed + seeds - 1}"
    task = re.sub(r"[^\w.-]+", "-", config.task)  # of `gym:…`, what has no place in a folder's name
    return Path("runs") / f"{config.algorithm}-{task}-{last}"


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
            (outcome,) = drive(folder, [folder], current, how)
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
            return drive(folder, folders, current, how)
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
    checkpoints = Checkpoints(home / "checkpoints")
    finished = [_finished(folder, config) for folder, config in zip(folders, configs, strict=True)]
    done = [outcome for outcome in finished if outcome is not None]
    if len(done) == len(folders):
        how.tell(f"{home} is finished: {done[0].evaluations} evaluations")
        checkpoints.clear()
        return done
    archived = any((folder / "archive.npz").exists() for folder in folders)
    if archived and not done and not checkpoints.paths():  # a group may have been killed at its very end
        raise ElitesError(f"{home} has an archive but no checkpoint to go on from; nothing was changed")
    changed = {name: (made_with.get(name, now), now) for name, now in versions().items()}
    told = ", ".join(f"{name} {then} (now {now})" for name, (then, now) in changed.items() if then != now)
    if told:
        how.tell(f"begun with {told}: the result may differ from an undisturbed run's")
    with _begun(configs, how) as current:
        return drive(home, folders, current, how, interrupts)


@contextlib.contextmanager
def _begun(configs: list[RunConfig], how: How) -> Iterator[Replications]:
    current = replications(configs, how.threads, how.cluster)
    try:
        yield current
    finally:
        current.evaluator.close()


def _refuse_taken(folder: Path) -> None:
    if (folder / FILE).exists():
        raise ElitesError(
            f"{folder} already holds a run: `elites resume {folder}` goes on with it, --out takes another"
        )
    if folder.is_dir() and any(not path.name.endswith(".partial") for path in folder.iterdir()):
        raise ElitesError(f"{folder} is not empty; --out takes a new folder")


def _make(folder: Path) -> None:
    with error_in_one_line(f"cannot make the run's folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def _write(path: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=2) + "\n"

    def write(file: IO[bytes]) -> None:
        file.write(text.encode())

    with error_in_one_line(f"cannot write to {path.parent}"):
        write_atomically(path, write)


def _finished(folder: Path, config: RunConfig) -> Outcome | None:
    """What a run came to that has spent its budget; None if it has not."""
    if not (folder / "archive.npz").exists():
        return None
    archive = load_archive(folder)
    if archive.about["evaluations"] < config.evaluations:
        return None
    return Outcome(folder, True, archive.about["evaluations"], archive.metrics._asdict())

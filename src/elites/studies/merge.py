"""Joins folders of one study: different machines may have run its seeds, tasks or algorithms.

Only finished runs are joined. In the new folder, no run is part of a group, even if it was trained
together with others. A study there can therefore continue with any missing seeds.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from elites.errors import ElitesError
from elites.experiments.guards import folder_lock
from elites.files import convert_os_errors, require_space
from elites.results import names
from elites.results.folder import RunFolder
from elites.results.schemas import ChoiceRecord, RunRecord, StudyRecord
from elites.results.study import StudyFolder
from elites.studies.remaining import format_differing_part
from elites.studies.results.runs import describe_differences, find_differences
from elites.studies.study import Choice

FREE_FIELDS = (
    "tasks",
    "algorithms",
    "seeds",
    "first_seed",
    "physics",
)  # fields of a study's record in which pieces may differ


@dataclass(frozen=True)
class MergeSummary:
    """The contents of a merged folder."""

    seeds: tuple[int, ...]
    runs: int
    unfinished: int  # runs that were left out
    uncorrected: int  # of a study that corrects its archives
    differing: dict[str, list[str]]  # versions of each package, and the physics, if they are not the same


@dataclass(frozen=True)
class _PartOfStudy:
    folder: StudyFolder
    study: StudyRecord
    finished: dict[str, tuple[RunFolder, RunRecord]]  # by their paths in the merged folder
    unfinished: int


def merge_studies(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    parameters: bool = True,
    mixed_versions: bool = False,
) -> MergeSummary:
    """Joins folders with different parts of the same study in a new folder. Nothing in them is changed.

    Args:
        folders: the folders. Runs that are not finished are left out.
        out: folder of the result; it must be new or empty. It appears when it is complete.
        parameters: whether to keep the parameters of the controllers. Without them the folder is small and
            reports are the same, but nothing in it can be replayed or corrected.
        mixed_versions: whether runs may have been made with different versions of packages, or with different
            physics.
    """
    if not folders:
        raise ElitesError("no folder to merge was given")
    target = Path(out).resolve()
    with contextlib.ExitStack() as stack:
        for folder in dict.fromkeys(Path(one).resolve() for one in folders):
            if target == folder or folder in target.parents:
                raise ElitesError(
                    f"{out} is in {folder}, which stays as it is; choose another folder with --out"
                )
            if folder.is_dir():
                stack.enter_context(folder_lock(folder))
        read = [_read(Path(one)) for one in folders]
        for piece in read[1:]:
            _refuse_other_plan(read[0], piece)
        runs = _collect_runs(read)
        _refuse_other_settings(runs)
        differing = find_differences([record for _, record in group] for group in _list_combinations(runs))
        if differing and not mixed_versions:
            raise ElitesError(
                f"the runs were made with different {describe_differences(differing)}; "
                "--mixed-versions allows it"
            )
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ElitesError(f"{out} is not empty; choose an empty folder with --out")
        if parameters:
            sizes = [path.stat().st_size for run, _ in runs.values() for path in run.list_result_files()]
            require_space(target, sum(sizes), "these runs take")
        seeds = sorted({record.seed for _, record in runs.values()})
        planned = [seed for piece in read for seed in _find_planned_seeds(piece.study)]
        first, last = min([*seeds, *planned]), max([*seeds, *planned])
        physics = read[0].study.physics
        study = {
            **msgspec.to_builtins(read[0].study),
            "tasks": _join_choices([piece.study.tasks for piece in read]),
            "algorithms": _join_choices([piece.study.algorithms for piece in read]),
            "first_seed": first,
            "seeds": last - first + 1,
            "physics": physics if all(piece.study.physics == physics for piece in read) else None,
        }
        _write(target, runs, study, parameters)
    uncorrected = sum(not run.is_corrected for run, _ in runs.values()) if read[0].study.correct else 0
    unfinished = sum(piece.unfinished for piece in read)
    return MergeSummary(tuple(seeds), len(runs), unfinished, uncorrected, differing)


def describe(merged: MergeSummary, out: Path) -> str:
    """A summary of the merge, as text."""
    seeds = f"seed {merged.seeds[0]}"
    if len(merged.seeds) > 1:
        count, first, last = len(merged.seeds), merged.seeds[0], merged.seeds[-1]
        is_complete = count == last - first + 1
        seeds = (
            f"{count} seeds from {first} to {last}"
            if is_complete
            else f"{count} of the seeds {first} to {last}"
        )
    lines = [f"{out} has {merged.runs} run{'s' * (merged.runs != 1)}, {seeds}"]
    if merged.unfinished:
        lines.append(f"left out: {merged.unfinished} unfinished run{'s' * (merged.unfinished != 1)}")
    if merged.uncorrected:
        lines.append(
            f"{merged.uncorrected} of the merged runs {_choose_verb(merged.uncorrected)} not corrected yet"
        )
    if merged.differing:
        lines.append(f"the merged runs were made with different {describe_differences(merged.differing)}")
    return "\n".join(lines)


def _choose_verb(count: int) -> str:
    return "is" if count == 1 else "are"


def _read(path: Path) -> _PartOfStudy:
    if not path.is_dir():
        raise ElitesError(f"{path} is not a folder")
    folder = StudyFolder(path)
    study = folder.read_record()
    if study is None:
        raise ElitesError(f"{path} is not the folder of a study: there is no {names.STUDY} in it")
    finished: dict[str, tuple[RunFolder, RunRecord]] = {}
    unfinished = 0
    for run in folder.runs():
        record = run.read_record()
        place = folder.merged_path(run, record.seed)
        if run.evaluations() < record.evaluations or not run.metrics.is_file():
            unfinished += 1
        elif place in finished:
            raise _make_repeated_run_error(finished[place][0], run)
        else:
            finished[place] = run, record
    return _PartOfStudy(folder, study, finished, unfinished)


def _make_repeated_run_error(one: RunFolder, other: RunFolder) -> ElitesError:
    return ElitesError(
        f"{one} and {other} are the same run; merged runs must differ in seeds, tasks or algorithms"
    )


def _find_planned_seeds(study: StudyRecord) -> tuple[int, ...]:
    """The first and the last seed of a study, if its record has them."""
    return (study.first_seed, study.first_seed + study.seeds - 1) if study.seeds else ()


def _refuse_other_plan(one: _PartOfStudy, other: _PartOfStudy) -> None:
    """Raises an error if two studies differ in more than tasks, algorithms and seeds."""
    for name in StudyRecord.__struct_fields__:
        before, after = getattr(one.study, name), getattr(other.study, name)
        if name not in FREE_FIELDS and before != after:
            raise ElitesError(
                f"{one.folder} and {other.folder} are not the same study: {name} {json.dumps(before)} and "
                f"{json.dumps(after)}; only tasks, algorithms and seeds may differ"
            )


def _join_choices(pieces: Sequence[Sequence[ChoiceRecord]]) -> list[dict[str, Any]]:
    """The tasks or algorithms of all pieces, each once."""
    choices: dict[str, dict[str, Any]] = {}
    for record in (msgspec.to_builtins(choice) for piece in pieces for choice in piece):
        name = Choice(**record).slug()
        if choices.setdefault(name, record) != record:
            raise ElitesError(
                f"{name} is {json.dumps(choices[name])} in one folder and {json.dumps(record)} in another"
            )
    return list(choices.values())


def _collect_runs(pieces: Sequence[_PartOfStudy]) -> dict[str, tuple[RunFolder, RunRecord]]:
    """All finished runs by their paths. A run that occurs twice is an error."""
    runs: dict[str, tuple[RunFolder, RunRecord]] = {}
    for piece in pieces:
        for place, (run, record) in piece.finished.items():
            if place in runs:
                raise _make_repeated_run_error(runs[place][0], run)
            runs[place] = run, record
    if not runs:
        folders = " or ".join(str(piece.folder) for piece in pieces)
        raise ElitesError(f"no run in {folders} is finished: there is nothing to merge")
    return runs


def _list_combinations(
    runs: Mapping[str, tuple[RunFolder, RunRecord]],
) -> Iterator[list[tuple[RunFolder, RunRecord]]]:
    """The runs of each task and algorithm."""
    combinations: dict[str, list[tuple[RunFolder, RunRecord]]] = {}
    for place, run in runs.items():
        combinations.setdefault(place.rpartition("/")[0], []).append(run)
    yield from combinations.values()


def _refuse_other_settings(runs: Mapping[str, tuple[RunFolder, RunRecord]]) -> None:
    """Raises an error if replications differ in more than the seed and the physics."""
    for (first, expected), *others in _list_combinations(runs):
        for run, record in others:
            expected_settings, settings = expected.settings(), record.settings()
            for name, other in expected_settings.items():
                if name not in ("seed", "physics") and other != settings[name]:
                    raise ElitesError(
                        f"{first} has {name} {format_differing_part(other, settings[name])} and {run} "
                        f"{format_differing_part(settings[name], other)}; only their seeds may differ"
                    )


def _write(
    target: Path,
    runs: Mapping[str, tuple[RunFolder, RunRecord]],
    study: dict[str, Any],
    parameters: bool,
) -> None:
    """Makes the folder under a temporary name, its record last, and then renames it."""
    study_folder = StudyFolder(target).unfinished
    partial = study_folder.path
    with convert_os_errors(f"cannot write to {target}"):
        partial.mkdir(parents=True, exist_ok=True)
        with folder_lock(partial):
            try:
                for left in partial.iterdir():  # by a merge that was killed
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                for place, (run, _) in runs.items():
                    run.copy_results(RunFolder(partial / place), parameters=parameters)
                study_folder.write_record(study)
                partial.rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

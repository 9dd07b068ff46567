"""Finds the runs of a study and names them by the settings in which they differ. Reads only their records."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elites.errors import ElitesError
from elites.results.folder import RunFolder, find_run_folders
from elites.results.schemas import ChoiceRecord, RunRecord, StudyRecord, result_parameters
from elites.results.study import StudyFolder
from elites.text import make_printable


@dataclass(frozen=True)
class Run:
    """A run's folder and record."""

    folder: RunFolder
    record: RunRecord
    task: str  # label in figures and tables
    variant: str  # label of the algorithm
    order: int  # of the variant

    @property
    def algorithm(self) -> str:
        return self.record.algorithm

    @property
    def seed(self) -> int:
        return self.record.seed

    @property
    def home(self) -> str:
        """The name of the folder of its replications."""
        return self.folder.home

    @property
    def name(self) -> str:
        return f"{self.variant} on {self.task}, seed {self.seed}"


class StudyRuns(NamedTuple):
    """The runs below a folder."""

    folder: Path
    runs: list[Run]  # by task, variant and seed
    record: StudyRecord  # of the study; empty if there is none, or if it is damaged
    notes: list[str]  # on what is left out


def find_runs(folder: Path) -> StudyRuns:
    """All runs below a folder. Those that cannot be read are left out with a note."""
    if not folder.is_dir():
        raise ElitesError(f"{folder} is not a folder")
    folders, records, notes = [], [], []
    for run_folder in find_run_folders(folder):
        try:
            records.append(run_folder.read_record())
            folders.append(run_folder)
        except ElitesError as error:
            notes.append(f"Left out: {error}")
    study = None
    try:
        study = StudyFolder(folder).read_record() if records else None
    except ElitesError as error:
        notes.append(f"Labels of the study are left out: {error}")
    study = study or StudyRecord()
    tasks = _make_labels(records, "task", "task_parameters", _list_choices("tasks", study.tasks))
    variants = _make_labels(
        records, "algorithm", "hyper_parameters", _list_choices("algorithms", study.algorithms)
    )
    if len({record.algorithm for record in records}) == 1 and len(set(variants)) > 1:
        variants = [variant.removeprefix(f"{records[0].algorithm}, ") for variant in variants]
    tasks, variants = ([make_printable(label) for label in labels] for labels in (tasks, variants))
    order = _order_variants(records, variants)
    runs = [
        Run(run_folder, record, task, variant, order[variant])
        for run_folder, record, task, variant in zip(folders, records, tasks, variants, strict=True)
    ]
    runs.sort(key=_make_report_key)
    kept: dict[tuple[str, str, int], Run] = {}
    for run in runs:
        key = (run.task, run.variant, run.seed)
        if key in kept:
            notes.append(f"{run.folder.path.relative_to(folder)} repeats {run.name} and is left out")
        else:
            kept[key] = run
    return StudyRuns(folder, list(kept.values()), study, notes)


def _make_report_key(run: Run) -> tuple[Any, ...]:
    """The order of runs in a report. A folder that has only a record comes after others of its seed."""
    return (
        *(_make_task_key(run.record.task), run.task, run.order, run.seed),
        *(not run.folder.has_begun, str(run.folder)),
    )


def find_differences(combinations: Iterable[Sequence[RunRecord]]) -> dict[str, list[str]]:
    """The versions and the physics in which runs differ.

    `combinations` has the runs of each task and algorithm. A run without a package did not need it, so this
    is no difference.
    """
    versions: dict[str, set[str]] = {}
    physics: set[str] = set()
    for records in combinations:
        for name, version in (pair for record in records for pair in record.versions.items()):
            if version is not None:
                versions.setdefault(name, set()).add(version)
        computed = {record.physics or "xla" for record in records}
        physics |= computed if len(computed) > 1 else set()
    used = {**versions, "physics": physics}
    return {name: sorted(values) for name, values in used.items() if len(values) > 1}


def describe_differences(differing: Mapping[str, Sequence[str]]) -> str:
    """The result of `find_differences` as text."""
    return ", ".join(f"{name} ({' and '.join(values)})" for name, values in differing.items())


def _order_variants(records: Sequence[RunRecord], variants: Sequence[str]) -> dict[str, int]:
    """The position of each variant: the package's algorithms come first, in its order."""
    from elites.algorithms import ALGORITHMS

    built_in = list(ALGORITHMS)
    names = [record.algorithm for record in records]
    ranked = sorted(
        {
            (
                built_in.index(name) if name in built_in else len(built_in),
                name,
                _make_natural_key(variant),
                variant,
            )
            for name, variant in zip(names, variants, strict=True)
        }
    )
    return {variant: place for place, (_, _, _, variant) in enumerate(ranked)}


def _make_task_key(task: str) -> tuple[int, str]:
    """A sort key: the package's tasks come first, in its order."""
    from elites.tasks import TASKS

    built_in = list(TASKS)
    return built_in.index(task) if task in built_in else len(built_in), task


def _make_natural_key(text: str) -> tuple[tuple[bool, float, str], ...]:
    """A key that sorts numbers by their value."""
    parts = []
    for word in text.replace(",", " ").split():
        try:
            parts.append((False, float(word), ""))
        except ValueError:
            parts.append((True, 0.0, word))
    return tuple(parts)


def _list_choices(what: str, choices: Sequence[ChoiceRecord]) -> list[dict[str, Any]]:
    """The tasks or algorithms of the study's record, with all of their parameters."""
    return [
        {
            "name": choice.name,
            "label": choice.label,
            "given": len(choice.parameters),
            "parameters": _add_defaults(what, choice.name, choice.parameters),
        }
        for choice in choices
    ]


def _add_defaults(what: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """All parameters as a record has them; only those given if the defaults are not known."""
    defaults = find_defaults(what, name) or {}
    parameters: dict[str, Any] = json.loads(json.dumps({**defaults, **given}))
    return result_parameters(name, parameters)


@functools.cache
def find_defaults(what: str, name: str) -> dict[str, Any] | None:
    """Default parameters as a record has them, of one of the `algorithms` or `tasks`.

    None if they are not known: a user's own task or algorithm does not have to be installed.
    """
    from elites.algorithms import make_config
    from elites.tasks import TASKS, list_parameters

    defaults = None
    if what == "algorithms":
        with contextlib.suppress(ElitesError):
            defaults = dataclasses.asdict(make_config(name))
    elif name in TASKS:
        defaults = list_parameters(TASKS[name])
    recorded: dict[str, Any] | None = json.loads(json.dumps(defaults))
    return recorded


def has_default_task(run: Run, free: str | None = None) -> bool:
    """Whether a run's task is a built-in one with its default parameters, `free` apart."""
    defaults, given = find_defaults("tasks", run.record.task), run.record.task_parameters
    return defaults is not None and all(
        given.get(name) == value for name, value in defaults.items() if name != free
    )


def _find_label(name: str, parameters: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """The study's own label for a run with these parameters; empty if it has none.

    Of several choices that match, the one with most parameters given is taken.
    """
    matches = [
        choice
        for choice in choices
        if choice["name"] == name
        and all(
            key not in parameters or parameters[key] == value for key, value in choice["parameters"].items()
        )
    ]
    best = max(matches, key=lambda choice: choice["given"], default=None)
    return "" if best is None else str(best["label"])


def _make_labels(
    records: Sequence[RunRecord],
    field: str,
    parameters_field: str,
    choices: Sequence[Mapping[str, Any]],
) -> list[str]:
    """A label for each record: its name, with the parameters in which records of that name differ."""
    pairs = [(str(getattr(record, field)), getattr(record, parameters_field)) for record in records]
    differing: dict[str, list[str]] = {}
    for name in sorted({name for name, _ in pairs}):
        given = [result_parameters(name, parameters) for other, parameters in pairs if other == name]
        keys = dict.fromkeys(key for g in given for key in g)
        differing[name] = [key for key in keys if len({json.dumps(g.get(key)) for g in given}) > 1]
    labels = []
    for name, parameters in pairs:
        details = [f"{key} {_format_value(parameters.get(key))}" for key in differing[name]]
        labels.append(_find_label(name, parameters, choices) or ", ".join([name, *details]))
    return labels


def _format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value) if value is None else str(value)

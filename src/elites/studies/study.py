"""A study: algorithms on tasks, with replications."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elites.errors import ElitesError, require
from elites.evaluation.offset import with_measured_offset
from elites.experiments.config import RunConfig
from elites.experiments.options import RunSettings
from elites.files import make_one_line, open_file
from elites.options import Physics, Seed, Seeds, check_fields, select_values
from elites.results.names import job_name, replications_folder, seed_folder
from elites.results.schemas import StudyRecord, result_parameters
from elites.tasks import list_parameters, make_task
from elites.tasks.task import DeviceTask
from elites.text import make_folder_name


@dataclass(frozen=True)
class Choice:
    """A task or an algorithm by name, with the parameters that differ from its defaults."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""  # shown instead of the name and the parameters

    def slug(self) -> str:
        """The name of its folder. It depends on nothing else in the study."""
        given = result_parameters(self.name, self.parameters)
        parts = [f"{name}-{_plain(value)}" for name, value in given.items()]
        return make_folder_name(self.label or "-".join([self.name, *parts]))


def _plain(value: Any) -> str:
    """A parameter's value in a folder's name; numbers keep their sign."""
    return "-".join(map(_plain, value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True, kw_only=True)
class Study(RunSettings):
    """Every algorithm on every task, with the seeds from `first_seed` on."""

    name: str
    tasks: tuple[Choice, ...]
    algorithms: tuple[Choice, ...]
    seeds: Seeds = 20
    first_seed: Seed = 0
    correct: bool = False  # the final archives
    reference: str = ""  # algorithm that a report compares all others with; empty: the report's default

    def __post_init__(self) -> None:
        check_fields(self)
        for what in ("tasks", "algorithms"):
            chosen = [choice.slug() for choice in getattr(self, what)]
            if not chosen:
                raise ElitesError(f"{what} is empty; a study needs at least one")
            duplicates = sorted({slug for slug in chosen if chosen.count(slug) > 1})
            if duplicates:
                raise ElitesError(f"{what} contains {duplicates[0]} twice")
        jobs = self.jobs()  # checks the configuration of every run
        if self.physics is not None and all(job.configs[0].physics is None for job in jobs):
            raise ElitesError(
                f"physics is {self.physics}; it is for tasks in JAX, such as Brax's, and the study has none"
            )

    def jobs(self) -> list[Job]:
        """Its runs, ordered by seed first; replications that train together are one job."""
        return list(self._jobs)

    @functools.cached_property
    def _jobs(self) -> tuple[Job, ...]:
        jobs: list[tuple[int, Job]] = []
        for task in self.tasks:
            parameters = _task_parameters(task)  # once for all of its runs: it may take seconds
            in_jax = isinstance(make_task(task.name, **parameters), DeviceTask)
            physics = self.physics if in_jax else None
            for algorithm in self.algorithms:
                configs = [
                    self._config(task.name, parameters, physics, algorithm, self.first_seed + index)
                    for index in range(self.seeds)
                ]
                home = replications_folder(task.slug(), algorithm.slug())
                groups = [configs] if _train_together(configs[0]) else [[config] for config in configs]
                for index, group in enumerate(groups):
                    single = len(groups) > 1 or self.seeds == 1
                    folder = f"{home}/{seed_folder(group[0].seed)}" if single else home
                    jobs.append((index, Job(folder, tuple(group), not single, self.correct)))
        return tuple(job for _, job in sorted(jobs, key=lambda entry: entry[0]))

    def _config(
        self,
        task: str,
        parameters: Mapping[str, Any],
        physics: Physics | None,
        algorithm: Choice,
        seed: int,
    ) -> RunConfig:
        config = RunConfig(
            **select_values(self, RunConfig)
            | {
                "algorithm": algorithm.name,
                "task": task,
                "seed": seed,
                "physics": physics,
                "hyper_parameters": dict(algorithm.parameters),
                "task_parameters": dict(parameters),
            }
        )
        redraws = bool(self.correct_every) and config.keeps_members
        return dataclasses.replace(config, correct_redraw=True) if redraws else config

    def record(self) -> dict[str, Any]:
        """The study as plain values, for its folder."""
        return {"name": self.name, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class Job:
    """The work of one worker: a run, or a group that trains together, and the correction of its archives."""

    folder: str  # within the study's
    configs: tuple[RunConfig, ...]
    group: bool
    correct: bool

    @property
    def folders(self) -> list[str]:
        """The folders of its runs."""
        if not self.group:
            return [self.folder]
        return [f"{self.folder}/{seed_folder(config.seed)}" for config in self.configs]

    @property
    def redraw(self) -> bool:
        """Whether a correction draws members of the cells."""
        return self.configs[0].keeps_members

    @property
    def name(self) -> str:
        return job_name(self.folder)


def _train_together(config: RunConfig) -> bool:
    return config.make_task().is_jax and config.shares_program


def _task_parameters(choice: Choice) -> dict[str, Any]:
    """A task's parameters: those given, or all of them where some have to be measured first."""
    task = make_task(choice.name, **choice.parameters)
    if task.measures_offset:
        return list_parameters(with_measured_offset(task))
    return dict(choice.parameters)


ENTRIES = {"tasks": ("task", "task_parameters"), "algorithms": ("algorithm", "hyper_parameters")}


def read_study_file(path: Path) -> dict[str, Any]:
    """The fields of a Study from a TOML file. An error says in one line what is wrong with it."""
    try:
        with open_file(path) as file:
            record = tomllib.load(file)
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is not a TOML file: {make_one_line(error)}") from None
    except RecursionError:
        raise ElitesError(f"{path} is not the TOML file of a study: it is nested too deep") from None
    allowed = StudyRecord.__struct_fields__
    for name in record:
        if name not in allowed:
            raise ElitesError(f"{path} has a field {name!r}; a study has {', '.join(allowed)}")
    fields: dict[str, Any] = {"name": path.stem, **record}
    require(isinstance(fields["name"], str), f"name in {path}", repr(fields["name"]), "text")
    metrics = record.get("metrics", [])
    named = isinstance(metrics, list) and all(isinstance(metric, str) for metric in metrics)
    require(named, f"metrics in {path}", repr(metrics), 'a list such as ["module:metric"]')
    fields["metrics"] = tuple(metrics)
    for what in ENTRIES:
        if what not in record:
            raise ElitesError(f"{path} has no {what}")
        entries = record[what]
        require(isinstance(entries, list), f"{what} in {path}", repr(entries), "a list")
        fields[what] = tuple(_choice(path, what, entry) for entry in entries)
    return fields


def _choice(path: Path, what: str, entry: Any) -> Choice:
    """A name alone, or a table with the fields of a run's record."""
    key, parameters = ENTRIES[what]
    if isinstance(entry, str):
        return Choice(entry)
    require(isinstance(entry, dict), f"{what} in {path}", repr(entry), "names or tables")
    for name in entry:
        if name not in (key, parameters, "label"):
            raise ElitesError(
                f"{what} in {path} have a field {name!r}; they have {key}, {parameters} and label"
            )
    name, given, label = entry.get(key), entry.get(parameters, {}), entry.get("label", "")
    require(isinstance(name, str), f"{key} in {path}", repr(name), "a name")
    require(isinstance(given, dict), f"{parameters} in {path}", repr(given), "a table")
    require(isinstance(label, str), f"label in {path}", repr(label), "text")
    return Choice(name, given, label)

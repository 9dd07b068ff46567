"""What a study consists of: algorithms on tasks, with replications. The paper's four, or one's own."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elites.algorithms import find_algorithm
from elites.errors import ElitesError, require
from elites.evaluation.offset import with_measured_offset
from elites.experiments.config import RunConfig
from elites.tasks import make_task, parameters_of
from elites.tasks.task import CompiledTask, DeviceTask, HostTask

ROBOTS = ("walker", "halfcheetah", "ant", "hopper")
UNCERTAIN = tuple(f"qd-{robot}" for robot in ROBOTS)
DETERMINISTIC = tuple(f"qd-deterministic-{robot}" for robot in ROBOTS)
LONGEST = 100  # name of a folder, in bytes
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the GA in the paper's ablation (p_evo)


@dataclass(frozen=True)
class Choice:
    """A task or an algorithm by name, with those of its parameters that differ from its own."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""  # what it is called instead of by its name and parameters

    def slug(self) -> str:
        """As a folder is called. It depends on nothing else that is in the study."""
        given = [
            f"{name}-{_plain(value)}" for name, value in self.parameters.items() if name != "keep_members"
        ]
        raw = self.label or "-".join([self.name, *given])
        text = re.sub(r"[\s:,]+", "-", raw)  # these only part words; of others a trace is kept
        text, replaced = re.subn(r"[^\w.-]+", "-", text)
        text = text.lstrip(".").rstrip("-.")
        digest = hashlib.sha256((raw if replaced or not text else text).encode()).hexdigest()[:8]
        if text and not replaced and len(text.encode()) <= LONGEST:
            return text
        cut = text.encode()[: LONGEST - 9].decode(errors="ignore")
        return f"{cut}-{digest}" if cut else digest


def _plain(value: Any) -> str:
    """A parameter's value in a folder's name; numbers keep their sign."""
    return "-".join(map(_plain, value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Every algorithm on every task, with the seeds from `first_seed` on."""

    name: str
    tasks: tuple[Choice, ...]
    algorithms: tuple[Choice, ...]
    evaluations: int = 1_000_000
    seeds: int = 20
    first_seed: int = 0
    snapshots: int = 0
    correct: bool = False  # the final archives
    correct_every: int = 0  # the archives along the way too
    correct_replications: int = 50

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("first_seed", 0)):
            given = getattr(self, name)
            whole = isinstance(given, int) and not isinstance(given, bool)
            require(whole and given >= least, name, repr(given), f"a whole number from {least}")
        require(isinstance(self.correct, bool), "correct", repr(self.correct), "true or false")
        for what in ("tasks", "algorithms"):
            chosen = [choice.slug() for choice in getattr(self, what)]
            require(len(chosen) > 0, what, "empty", "at least one")
            twice = sorted({slug for slug in chosen if chosen.count(slug) > 1})
            if twice:
                raise ElitesError(f"{what} name {twice[0]} twice")
        self.jobs()  # whatever is wrong with a run is told now

    def jobs(self) -> list[Job]:
        """Its runs, the first seed of everything first; replications that share a program are one job."""
        return list(self._jobs)

    @functools.cached_property
    def _jobs(self) -> tuple[Job, ...]:
        alone: list[tuple[int, Job]] = []
        for task in self.tasks:
            parameters = _settled(task)  # once for all of its runs: it may take seconds
            for algorithm in self.algorithms:
                configs = [
                    self._config(task.name, parameters, algorithm, self.first_seed + index)
                    for index in range(self.seeds)
                ]
                home = f"runs/{task.slug()}/{algorithm.slug()}"
                groups = [configs] if _share_a_program(configs[0]) else [[config] for config in configs]
                for place, group in enumerate(groups):
                    one = len(groups) > 1 or self.seeds == 1
                    folder = f"{home}/seed-{group[0].seed}" if one else home
                    alone.append((place, Job(folder, tuple(group), not one, self.correct)))
        return tuple(job for _, job in sorted(alone, key=lambda found: found[0]))

    def _config(self, task: str, parameters: Mapping[str, Any], algorithm: Choice, seed: int) -> RunConfig:
        return RunConfig(
            algorithm=algorithm.name,
            task=task,
            evaluations=self.evaluations,
            seed=seed,
            snapshots=self.snapshots,
            correct_every=self.correct_every,
            correct_replications=self.correct_replications,
            correct_redraw=bool(self.correct_every) and bool(algorithm.parameters.get("keep_members")),
            hyper_parameters=dict(algorithm.parameters),
            task_parameters=dict(parameters),
        )

    def record(self) -> dict[str, Any]:
        """As `study.json` holds it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Job:
    """What one worker does: a run, or a group in one program, and the correction of what that leaves."""

    folder: str  # within the study's
    configs: tuple[RunConfig, ...]
    group: bool
    correct: bool

    @property
    def folders(self) -> list[str]:
        """Those of its runs."""
        if not self.group:
            return [self.folder]
        return [f"{self.folder}/seed-{config.seed}" for config in self.configs]

    @property
    def redraw(self) -> bool:
        """Whether a correction draws members of the cells."""
        return bool(self.configs[0].hyper_parameters.get("keep_members", False))

    @property
    def name(self) -> str:
        return self.folder.removeprefix("runs/")


def _share_a_program(config: RunConfig) -> bool:
    return isinstance(config.make_task(), DeviceTask) and find_algorithm(config.algorithm).shares_program


def _settled(choice: Choice) -> dict[str, Any]:
    """A task's parameters: those given, or, where others have to be found out first, all of them."""
    task = make_task(choice.name, **choice.parameters)
    if isinstance(task, HostTask) and not isinstance(task, CompiledTask):
        return parameters_of(with_measured_offset(task))
    return dict(choice.parameters)


def _named(names: Iterable[str]) -> tuple[Choice, ...]:
    return tuple(Choice(name) for name in names)


DEEP_GRID = Choice("deep-grid", {"keep_members": True})  # corrected by drawing from its cells
STUDIES: dict[str, dict[str, Any]] = {
    "performance": {
        "tasks": _named((*UNCERTAIN, *DETERMINISTIC)),
        "algorithms": _named(
            ("pga-map-elites", "map-elites", "map-elites-es", "qd-pg", "cma-map-elites", "td3")
        ),
    },
    "reproducibility": {
        "tasks": _named(UNCERTAIN),
        "algorithms": (
            *_named(("pga-map-elites", "map-elites", "map-elites-es", "map-elites-sampling")),
            DEEP_GRID,
        ),
        "correct": True,
    },
    "ablation": {
        "tasks": _named(UNCERTAIN),
        "algorithms": tuple(Choice("pga-map-elites", {"p_evo": share}) for share in SHARES),
        "seeds": 10,
        "correct": True,
    },
    "contribution": {"tasks": _named(UNCERTAIN), "algorithms": _named(("pga-map-elites",))},
}


def make_study(
    given: str,
    *,
    tasks: Iterable[str] = (),
    algorithms: Iterable[str] = (),
    **changes: Any,
) -> Study:
    """The study called `given`, or the one in the TOML file of this path, with what is given changed.

    `tasks` and `algorithms` name what to keep of the study's own, or what to take instead.
    """
    if given in STUDIES:
        fields = {"name": given, **STUDIES[given]}
    elif given.endswith(".toml"):
        fields = read_study(Path(given))
    else:
        raise ElitesError(
            f"unknown study {given!r}; the studies are {', '.join(STUDIES)}, or a file of your own: NAME.toml"
        )
    fields = {**fields, **{name: value for name, value in changes.items() if value is not None}}
    for what, names in (("tasks", tuple(tasks)), ("algorithms", tuple(algorithms))):
        if names:
            fields[what] = tuple(choice for name in names for choice in _kept(fields[what], name, what))
    return Study(**fields)


def _kept(choices: tuple[Choice, ...], name: str, what: str) -> tuple[Choice, ...]:
    """Those of the study that go by this name; else one of this name without parameters of its own."""
    found = tuple(choice for choice in choices if name in (choice.name, choice.slug()))
    if found:
        return found
    if what == "algorithms" and name == "deep-grid":
        return (DEEP_GRID,)
    return (Choice(name),)


ENTRIES = {"tasks": ("task", "task_parameters"), "algorithms": ("algorithm", "hyper_parameters")}


def read_study(path: Path) -> dict[str, Any]:
    """The fields of a Study from a TOML file. What is wrong with it is told in one line."""
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is no TOML file: {str(error).splitlines()[0]}") from None
    allowed = [field.name for field in dataclasses.fields(Study)]
    for name in record:
        if name not in allowed:
            raise ElitesError(f"{path} has a field {name!r}; a study has {', '.join(allowed)}")
    fields: dict[str, Any] = {"name": path.stem, **record}
    require(isinstance(fields["name"], str), f"name in {path}", repr(fields["name"]), "text")
    for what in ENTRIES:
        if what not in record:
            raise ElitesError(f"{path} has no {what}")
        entries = record[what]
        require(isinstance(entries, list), f"{what} in {path}", repr(entries), "a list")
        fields[what] = tuple(_choice(path, what, entry) for entry in entries)
    return fields


def _choice(path: Path, what: str, entry: Any) -> Choice:
    """A name alone, or a table with the fields that a run's record has."""
    called, parameters = ENTRIES[what]
    if isinstance(entry, str):
        return Choice(entry)
    require(isinstance(entry, dict), f"{what} in {path}", repr(entry), "names or tables")
    for name in entry:
        if name not in (called, parameters, "label"):
            raise ElitesError(
                f"{what} in {path} have a field {name!r}; they have {called}, {parameters} and label"
            )
    name, given, label = entry.get(called), entry.get(parameters, {}), entry.get("label", "")
    require(isinstance(name, str), f"{called} in {path}", repr(name), "a name")
    require(isinstance(given, dict), f"{parameters} in {path}", repr(given), "a table")
    require(isinstance(label, str), f"label in {path}", repr(label), "text")
    return Choice(name, given, label)

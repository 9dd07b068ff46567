"""The record of a run: enough to do it again."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elites.algorithms import find, make_algorithm
from elites.algorithms.algorithm import Algorithm
from elites.errors import ElitesError
from elites.tasks import make_task
from elites.tasks.task import Task

FILE = "config.json"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a run's result depends on, and nothing else but the machine."""

    algorithm: str
    task: str
    evaluations: int = 1_000_000
    seed: int = 0
    snapshots: int = 0
    hyper_parameters: dict[str, Any] = field(default_factory=dict)
    task_parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("evaluations", 1), ("seed", 0), ("snapshots", 0)):
            given = getattr(self, name)
            if not isinstance(given, int) or given < least:
                raise ElitesError(f"{name} is {given!r}; it must be a whole number from {least}")
        if self.seed >= 2**32 or self.evaluations >= 2**31:
            raise ElitesError("seed must be below 2**32 and evaluations below 2**31")
        self.make_task()
        find(self.algorithm).config(**self._checked(self.hyper_parameters))

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters as the algorithm takes them; JSON has lists where they are tuples."""
        config = find(self.algorithm).config
        unknown = set(given) - set(config.__dataclass_fields__)
        if unknown:
            raise ElitesError(f"{self.algorithm} has no hyper-parameter {', '.join(sorted(unknown))}")
        return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}

    def make_task(self) -> Task:
        """The run's task."""
        return make_task(self.task, **self.task_parameters)

    def make_algorithm(self) -> Algorithm:
        """The run's algorithm."""
        return make_algorithm(self.algorithm, self.make_task(), **self._checked(self.hyper_parameters))

    def record(self) -> dict[str, Any]:
        """All of it, defaults spelled out, with the versions that it ran on."""
        hyper_parameters = find(self.algorithm).config(**self._checked(self.hyper_parameters))
        return {
            **dataclasses.asdict(self),
            "hyper_parameters": dataclasses.asdict(hyper_parameters),
            "versions": {
                "python": platform.python_version(),
                **{
                    name: _version(name) for name in ("elites", "jax", "jaxlib", "numpy", "numba", "pybullet")
                },
            },
        }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def load_config(folder: Path) -> RunConfig:
    """The record in a run's folder."""
    path = folder / FILE
    try:
        record = json.loads(path.read_text())
        record.pop("versions")
        return RunConfig(**record)
    except FileNotFoundError:
        raise ElitesError(f"{folder} holds no run: there is no {FILE} in it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ElitesError(f"{path} is damaged: {error}") from None

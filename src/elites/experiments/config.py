"""The configuration of a run: everything that its result depends on."""

from __future__ import annotations

import dataclasses
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from elites.algorithms import find_algorithm, make_algorithm, make_config
from elites.algorithms.base import Algorithm
from elites.errors import ElitesError, require
from elites.evaluation.offset import with_measured_offset
from elites.evaluation.physics import refuse_physics
from elites.experiments.options import RunSettings
from elites.experiments.start import Start, read_start, resolve_start
from elites.files import make_one_line
from elites.metrics.metric import GENERATION_METRICS, METRICS, GenerationMetric, Metric, Metrics, load_metric
from elites.options import Seed, convert_value, read_types
from elites.results.archive import SavedArchive
from elites.results.folder import RunFolder
from elites.tasks import list_parameters, make_task
from elites.tasks.function import PREFIX as FUNCTION
from elites.tasks.function import FunctionTask
from elites.tasks.in_memory import make_recorded_task
from elites.tasks.task import DeviceTask, Task
from elites.versions import package_version


@dataclass(frozen=True, kw_only=True)
class RunConfig(RunSettings):
    """Everything that a run's result depends on, except the machine."""

    algorithm: str  # a name, or module:Class
    task: str | Task  # a name, or module:task; a Task with an environment is replaced by name and parameters
    seed: Seed = 0
    correct_redraw: bool = False  # deep-grid: whether a correction draws a member of the cell each time
    start: Start | str | Path | None = None  # archive whose elites replace random genomes: a run's folder
    hyper_parameters: dict[str, Any] = field(default_factory=dict)
    task_parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.task, Task):
            object.__setattr__(self, "task_parameters", list_parameters(self.task) | self.task_parameters)
            if not isinstance(self.task, FunctionTask):  # a function may have no name in other processes
                object.__setattr__(self, "task", self.task.name)
        find_algorithm(self.algorithm)  # raises an error for an unknown algorithm
        for name, expected in {**read_types(RunConfig), "task": str}.items():
            if not isinstance(value := getattr(self, name), Task):
                object.__setattr__(self, name, convert_value(expected, name, value))
        object.__setattr__(self, "start", resolve_start(self.start))
        require(self.snapshots <= self.evaluations, "snapshots", self.snapshots, "at most the evaluations")
        refuse_redraw(self.algorithm, self.correct_redraw)
        self._make_algorithm_config()
        self.make_metrics()
        task = self.make_task()
        refuse_physics(task, self.physics)
        if task.measures_offset:  # only once
            object.__setattr__(self, "task_parameters", list_parameters(with_measured_offset(task)))

    @property
    def task_name(self) -> str:
        """The name of the run's task."""
        return self.task.name if isinstance(self.task, Task) else self.task

    def make_task(self) -> Task:
        """The run's task."""
        if isinstance(self.task, Task):
            return self.task.with_parameters(self.task_parameters)
        return make_task(self.task, **self.task_parameters)

    def _make_algorithm_config(self) -> Any:
        """The checked hyper-parameters of the run's algorithm, with all defaults."""
        return make_config(self.algorithm, **self.hyper_parameters)

    def make_algorithm(self) -> Algorithm:
        """The run's algorithm."""
        algorithm = make_algorithm(self.algorithm, self.make_task(), **self.hyper_parameters)
        if isinstance(self.start, Start):
            algorithm.replace_initial_genomes(self.start.elites)
        return algorithm

    def read_start(self, copy: Path | None = None) -> SavedArchive | None:
        """The archive that the run begins with, if there is one; from its copy if that exists."""
        if not isinstance(self.start, Start):
            return None
        return read_start(self.start, self.make_task(), self._make_algorithm_config().hidden, copy)

    @property
    def shares_program(self) -> bool:
        """Whether its replications can train together."""
        return find_algorithm(self.algorithm).shares_program(self.make_task(), self._make_algorithm_config())

    @property
    def keeps_members(self) -> bool:
        """Whether the members of all cells are saved at the end."""
        return find_algorithm(self.algorithm).keeps_members(self._make_algorithm_config())

    def make_metrics(self) -> Metrics:
        """The built-in metrics and the additional ones of the run."""
        own = [load_metric(path) for path in self.metrics]
        archive = (*METRICS, *(metric for metric in own if isinstance(metric, Metric)))
        generation = (
            *GENERATION_METRICS,
            *(metric for metric in own if isinstance(metric, GenerationMetric)),
        )
        names = [metric.name for metric in (*archive, *generation)]
        repeated = sorted({name for name in names if names.count(name) > 1})
        require(
            not repeated,
            "metrics",
            ", ".join(repeated),
            "unique: each name may be given only once and must not be the name of another column",
        )
        return Metrics(archive, generation)

    def record(self) -> dict[str, Any]:
        """The configuration as a dictionary, with all defaults and the versions of all packages."""
        return {
            "algorithm": self.algorithm,
            "task": self.task_name,
            **{name: value for name, value in vars(self).items() if name not in ("task", "start")},
            "start": None if self.start is None else dataclasses.asdict(cast(Start, self.start)),
            "hyper_parameters": dataclasses.asdict(self._make_algorithm_config()),
            "task_parameters": list_parameters(self.make_task()),
            "versions": read_versions(),
        }


def refuse_redraw(algorithm: str, redraw: bool) -> None:
    """Raises an error if `redraw` is set for an algorithm with one member per cell."""
    if redraw and not find_algorithm(algorithm).has_members:
        raise ElitesError(f"redraw is for deep-grid, which has several members per cell; this is {algorithm}")


def read_versions() -> dict[str, str | None]:
    """Versions of the packages that the exact bits of a result depend on."""
    packages = (
        *("elites", "jax", "jaxlib", "numpy", "numba", "optax", "scipy", "ribs"),
        *("pybullet", "brax", "gymnasium", "mujoco"),
    )
    return {"python": platform.python_version(), **{name: package_version(name) for name in packages}}


def load_config(folder: Path | str) -> tuple[RunConfig, dict[str, str | None]]:
    """The configuration in a run's folder, and the versions of the packages that it started with."""
    run = RunFolder(folder)
    record = run.read_record()
    try:
        settings = record.settings()
        hyper_parameters = {"cvt_version": 1, **settings["hyper_parameters"]}  # a run of an older format
        if record.task.startswith(FUNCTION):
            settings["task"] = make_recorded_task(run.path, record.task, record.task_parameters)
        config = RunConfig(**{**settings, "hyper_parameters": hyper_parameters})
        if config.physics is None and isinstance(config.make_task(), DeviceTask):  # of an older format
            config = dataclasses.replace(config, physics="xla")
        return config, record.versions
    except ElitesError as error:
        raise ElitesError(f"{run.config}: {error}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ElitesError(f"{run.config} is damaged: {make_one_line(error)}") from None

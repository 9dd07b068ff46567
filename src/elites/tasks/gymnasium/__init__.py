"""Any Gymnasium environment with continuous actions and a vector of observations, as a task.

Fitness is the sum of the rewards. An episode starts with `reset(seed=…)` in a new environment: some, even
Gymnasium's BipedalWalker, keep state between episodes, so that a result would depend on earlier episodes.
Making an environment takes some milliseconds. Where it takes long, and `reset` is known to clear all state,
`fresh=False` uses one environment for all episodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from elites.child_processes import in_child
from elites.errors import ElitesError, require
from elites.imports import (
    make_function_path,
    require_function,
)
from elites.options import Patience, check_parameters
from elites.tasks.task import HostTask, default_cells, default_grid

if TYPE_CHECKING:
    from elites.tasks.gymnasium.remote import RemoteSimulator
    from elites.tasks.gymnasium.simulator import GymnasiumSimulator

PREFIX = "gym:"
LENGTH = 1000  # steps of an episode in environments without a limit of their own


@dataclass(frozen=True, kw_only=True)
class GymnasiumTask(HostTask):
    """A Gymnasium environment, simulated in worker processes."""

    fixed: ClassVar[tuple[str, ...]] = ("name", "environment")
    step_descriptor_dtype: ClassVar[str] = "float32"
    measures_offset: ClassVar[bool] = True
    function_fields: ClassVar[tuple[str, ...]] = ("environment", "descriptor", "step_descriptor")

    # Paths of functions are `module:function`; those of a notebook or an inner function are in memory.
    environment: str  # Gymnasium's id, or the path of a function that makes the environment
    environment_options: dict[str, Any] = field(
        default_factory=dict, hash=False
    )  # arguments of the environment
    descriptor: str | None = None  # path of a function of an Episode
    step_descriptor: str | None = None  # path of a function of (observation, action, info)
    qd_offset_from: str = "given"  # or a description of how it was measured
    fresh: bool = True  # whether each episode has a new environment
    patience: Patience = 60.0  # longest time of a step in s before its worker is considered hung

    def __post_init__(self) -> None:
        require(
            len(self.descriptor_bounds) == len(self.descriptor_names),
            "descriptor_names",
            self.descriptor_names,
            f"as many as there are bounds: {len(self.descriptor_bounds)}",
        )
        super().__post_init__()
        for name in ("descriptor", "step_descriptor"):
            path = getattr(self, name)
            require(path is None or isinstance(path, str), name, repr(path), "module:function")
        if self.descriptor is None and self.step_descriptor is None:
            raise ElitesError(f"{self.name} needs a descriptor: --descriptor module:function")
        _require_plain(self.environment_options)

    @property
    def describes_steps(self) -> bool:
        """Whether each step has a descriptor, as QD-PG needs."""
        return self.step_descriptor is not None

    @property
    def step_seconds(self) -> float:
        """See `HostTask.step_seconds`."""
        return self.patience

    def make_simulator(self) -> GymnasiumSimulator:
        from elites.tasks.gymnasium.simulator import GymnasiumSimulator

        return GymnasiumSimulator(self)

    def make_stepper(self) -> RemoteSimulator:
        from elites.tasks.gymnasium.remote import RemoteSimulator

        return RemoteSimulator(self)


def gymnasium_task(
    environment: str | Callable[..., Any],
    *,
    descriptor: str | Callable[..., Any] | None = None,
    step_descriptor: str | Callable[..., Any] | None = None,
    descriptor_bounds: Sequence[Sequence[float]] | None = None,
    descriptor_names: Sequence[str] | None = None,
    **parameters: Any,
) -> GymnasiumTask:
    """A Gymnasium environment as a task, for `RunConfig` and the evaluators.

    Worker processes import functions of a module. Functions of a script work if it starts nothing when it is
    imported (`if __name__ == "__main__":`). Lambdas, inner functions and functions of a notebook are sent to
    the workers. They are not saved: another process that resumes, corrects or replays the run needs the task
    again (`elites.resume(folder, task=…)`).

    Args:
        environment: Gymnasium's id, or a function that makes the environment.
        descriptor: function of an `elites.Episode` that returns one number per dimension.
        step_descriptor: function of (observation, action, info) after a step that returns one number per
            dimension. QD-PG needs it. Without `descriptor`, an episode's is the mean over its steps.
        descriptor_bounds: (lowest, highest) of each dimension; (0, 1) by default.
        descriptor_names: labels of the dimensions in figures and summaries.
        parameters: other fields of `GymnasiumTask`: `environment_options` (arguments of the environment),
            `episode_length`, `cells`, `grid`, `qd_offset` (measured at the start of a run by default),
            `fresh`, `patience`.
    """
    fields: dict[str, Any] = {
        "descriptor": descriptor if isinstance(descriptor, str | None) else make_function_path(descriptor),
        "step_descriptor": step_descriptor
        if isinstance(step_descriptor, str | None)
        else make_function_path(step_descriptor),
        "descriptor_bounds": descriptor_bounds,
        "descriptor_names": descriptor_names,
        **parameters,
    }
    name = environment if isinstance(environment, str) else make_function_path(environment)
    return make(
        PREFIX + name.removeprefix(PREFIX), {key: value for key, value in fields.items() if value is not None}
    )


def make(name: str, parameters: Mapping[str, Any]) -> GymnasiumTask:
    """The task with the name `gym:…`. Parameters that are not given are read from the environment."""
    _require_pairs(parameters.get("descriptor_bounds", ((0, 1),)))
    fields = check_parameters(GymnasiumTask, parameters, name, GymnasiumTask.fixed)
    environment = name.removeprefix(PREFIX)
    require(
        bool(environment),
        "the environment",
        repr(name),
        "gym:ID, as Gymnasium knows it, or gym:module:function",
    )
    for field_name in GymnasiumTask.function_fields:
        require_function({"environment": environment, **fields}.get(field_name) or "", field_name)
    if "observation_size" not in fields:  # a run's record has all parameters
        if not fields.get("descriptor") and not fields.get("step_descriptor"):
            raise ElitesError(f"{name} needs a descriptor: --descriptor module:function")
        _require_plain(fields.get("environment_options", {}))
        fields = {**_inspect(name, environment, fields), **fields}
    size = len(fields["descriptor_bounds"])
    fields.setdefault("descriptor_names", tuple(f"dimension {index + 1}" for index in range(size)))
    fields.setdefault("grid", default_grid(size))
    fields.setdefault("cells", default_cells(fields["grid"]))
    fields.setdefault("qd_offset", math.nan)
    return GymnasiumTask(name=name, environment=environment, **fields)


def _inspect(name: str, environment: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The sizes of an environment, from a first episode in a separate process."""
    if in_child():  # already a process that may hang or die
        from elites.tasks.gymnasium.simulator import inspect_environment

        return inspect_environment(name, environment, fields)
    from elites.tasks.gymnasium.remote import inspect_remotely

    return inspect_remotely(name, environment, fields, fields.get("patience", GymnasiumTask.patience))


def _require_pairs(bounds: Any) -> None:
    listed = isinstance(bounds, list | tuple | np.ndarray) and len(bounds) > 0
    pairs = listed and all(np.shape(pair) == (2,) for pair in bounds)
    require(pairs, "descriptor_bounds", bounds, "pairs of a lowest and a highest value")


def _require_plain(options: Any) -> None:
    """Raises an error if options cannot be recorded in a run's folder."""
    try:
        plain = isinstance(options, dict) and json.loads(json.dumps(options)) == options
    except (TypeError, ValueError):
        plain = False
    require(plain, "environment_options", repr(options), "a dict that can be written as JSON")

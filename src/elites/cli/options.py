"""Parameters of a task, as options of several commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from elites.errors import ElitesError, require
from elites.options import (
    Cells,
    Count,
    EpisodeLength,
    Finite,
    Patience,
    Spread,
    values_of,
)
from elites.text import shortened


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Parameters of a task."""

    noise: Spread | None = None
    """Noise on the initial joint angles in rad; Brax's own noise; on all coordinates and velocities of
    mujoco- tasks. The default is the task's."""
    episode_length: EpisodeLength | None = None
    """Steps after which an episode is truncated; the default is the task's."""
    noise_distribution: Literal["uniform", "normal"] | None = None
    """qd- tasks: distribution of the initial joint angles. The noise is half the width of a uniform one
    (the default), the standard deviation of a normal one."""
    ends_on_fall: bool | None = None
    """Whether a fall ends the episode; the default is the task's."""

    backend: str | None = None
    """Brax tasks: physics backend: spring (the default), positional, generalized or mjx."""
    cells: Cells | None = None
    """Number of cells of a CVT archive (--archive cvt); the default is the task's."""
    grid: tuple[Count, ...] | None = None
    """Cells per dimension of a grid archive (--archive grid); the default is the task's."""
    qd_offset: Finite | None = None
    """Fitness that adds nothing to the QD-score; the default is the task's, measured for gym: and
    mujoco: tasks."""

    descriptor: str | None = None
    """mujoco- tasks: feet, position or velocity. gym: tasks: module:function that computes the descriptor of
    an episode."""
    step_descriptor: str | None = None
    """gym: tasks: module:function that computes the descriptor of a step; the mean over the episode is the
    default descriptor."""
    descriptor_bounds: tuple[Finite, ...] | None = None
    """gym: and mujoco: tasks: lowest and highest value of each descriptor dimension, in pairs; the default is
    0 1, or the descriptor's."""
    descriptor_names: tuple[str, ...] | None = None
    """gym: tasks: names of the descriptor dimensions in figures and summaries."""
    environment_options: str | None = None
    """Options as JSON. gym: tasks: arguments of the environment, '{"gravity": -9.8}'. mujoco- tasks: options
    of Gymnasium's version 5 and all other parameters, '{"healthy_reward": 0}'."""
    fresh: bool | None = None
    """gym: tasks: whether each episode gets a new environment; the default is true."""
    patience: Patience | None = None
    """gym: tasks: longest time of a step in seconds, then its worker is replaced; the default is 60."""

    def task_parameters(self) -> dict[str, Any]:
        """The parameters that were given."""
        given = {name: value for name, value in values_of(self, TaskOptions).items() if value is not None}
        if (bounds := given.get("descriptor_bounds")) is not None:
            pairs = len(bounds) >= 2 and len(bounds) % 2 == 0
            require(pairs, "descriptor_bounds", bounds, "pairs of a lowest and a highest value")
            given["descriptor_bounds"] = tuple(zip(bounds[::2], bounds[1::2], strict=True))
        if (options := given.get("environment_options")) is not None:
            given["environment_options"] = _parse_json(options)
        return given


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ElitesError(f"environment_options is {shortened(text)!r}, which is not JSON: {error}") from None

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
    select_values,
)
from elites.text import shorten


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Parameters of a task."""

    noise: Spread | None = None
    """Scale of the noise on the initial state, in the task's units: joint angles in rad (qd- tasks), or all
    positions and velocities (brax- and mujoco- tasks). Default: the task's."""
    episode_length: EpisodeLength | None = None
    """Steps after which an episode is truncated. Default: the task's."""
    noise_distribution: Literal["uniform", "normal"] | None = None
    """qd- tasks: distribution of the initial joint angles. The noise is half the width of a uniform one, the
    standard deviation of a normal one. Default: uniform."""
    ends_on_fall: bool | None = None
    """Whether a fall ends the episode. Default: the task's."""

    backend: str | None = None
    """Brax tasks: physics backend, spring, positional, generalized or mjx. Default: spring."""
    cells: Cells | None = None
    """Number of cells of a CVT archive (--archive cvt). Default: the task's."""
    grid: tuple[Count, ...] | None = None
    """Cells per dimension of a grid archive (--archive grid). Default: the task's."""
    qd_offset: Finite | None = None
    """Offset of the QD-score: the fitness that adds nothing to it. Default: the task's; for gym: and mujoco:
    tasks it is measured."""

    descriptor: str | None = None
    """mujoco- and mujoco: tasks: feet, position or velocity. gym: tasks: module:function that computes the
    descriptor of an episode."""
    step_descriptor: str | None = None
    """gym: tasks: module:function that computes the descriptor of a step. Without --descriptor, the
    descriptor of an episode is the mean over its steps."""
    descriptor_bounds: tuple[Finite, ...] | None = None
    """gym: and mujoco: tasks: lowest and highest value of each descriptor dimension, in pairs. Default:
    the descriptor's bounds, or 0 1."""
    descriptor_names: tuple[str, ...] | None = None
    """gym: tasks: names of the descriptor dimensions in figures and summaries."""
    environment_options: str | None = None
    """Further options as JSON. gym: tasks: arguments of the environment, such as '{"gravity": -9.8}'. mujoco-
    and mujoco: tasks: any parameters of the task, such as '{"ctrl_cost_weight": 0}'."""
    fresh: bool | None = None
    """gym: tasks: whether each episode has a new environment. Default: true."""
    patience: Patience | None = None
    """gym: tasks: time limit of a step in seconds, after which its worker is replaced. Default: 60."""

    def make_task_parameters(self) -> dict[str, Any]:
        """The parameters that were given."""
        given = {name: value for name, value in select_values(self, TaskOptions).items() if value is not None}
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
        raise ElitesError(f"environment_options is {shorten(text)!r}, which is not JSON: {error}") from None

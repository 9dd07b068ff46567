"""Gymnasium's MuJoCo robots (version 5 of their environments), on the same compiled loop as QDGym.

Models, observations, rewards, ends and initial states are those of Gymnasium's environments. Their options
are parameters of the tasks under the same names; `reset_noise_scale` is another name of `noise`, as other
tasks call it. Fitness is the sum of the rewards. The descriptor is, per foot, the share of steps after which
it touches the ground; or the final position of the robot; or its mean velocity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from elites.errors import ElitesError, require
from elites.options import Count, Finite, Index, Range, Spread
from elites.tasks.mujoco.library import Sizes, missing_package, model_sizes
from elites.tasks.task import CompiledTask, Task, default_cells, default_grid

if TYPE_CHECKING:
    from elites.tasks.mujoco.simulator import MujocoSimulator

NOISE = "reset_noise_scale"  # Gymnasium's name of `noise`
UNLIMITED = 1e30
UNBOUNDED = (-math.inf, math.inf)
DESCRIPTORS = {"feet": "contact of {}", "position": "final {}", "velocity": "mean velocity along {}"}
Length = Annotated[float, Range(0, 1e6, above=True)]
Limits = tuple[Finite, Finite]
"""The lowest and the highest value; ±1e30 means no limit."""
Walls = tuple[tuple[float, float, float, float], ...]
"""x and y of the middle of each wall, and half of its sides."""


class Robot(NamedTuple):
    """Facts about a robot that its model does not have."""

    model: str  # Gymnasium's file
    sizes: Sizes  # of that model
    dimensions: int  # in which it moves over the ground: 1 or 2
    feet: tuple[tuple[str, str], ...] = ()  # geoms of the model, and their display names


class RobotRules:
    """Default rules: the robot never becomes unhealthy and contacts cost nothing.

    Tasks turn some of them into parameters.
    """

    place: Literal["root", "body", "mass"] = "root"  # defines the robot's position; mass: centre of mass
    main_body: Index | str = ""
    keyframe: str = ""  # of the model, for the initial coordinates
    reward: str = ""  # path of a function of the robot's state: module:function
    ends: str = ""
    normal_velocities: bool = False  # whether the noise of the initial velocities is normal, not uniform
    speed_limit: float = math.inf  # of the velocities in an observation
    double_control: bool = False  # whether the cost of control is computed in double precision
    healthy_reward: float = 0.0
    terminate_when_unhealthy: bool = False
    healthy_z_range: tuple[float, float] = UNBOUNDED
    healthy_angle_range: tuple[float, float] = UNBOUNDED
    healthy_state_range: tuple[float, float] = UNBOUNDED
    contact_cost_weight: float = 0.0
    contact_cost_range: tuple[float, float] = UNBOUNDED
    contact_force_range: tuple[float, float] = UNBOUNDED
    include_cinert_in_observation: bool = False
    include_cvel_in_observation: bool = False
    include_qfrc_actuator_in_observation: bool = False
    include_cfrc_ext_in_observation: bool = False


@dataclass(frozen=True, kw_only=True)
class MujocoTask(RobotRules, CompiledTask):
    """A robot of Gymnasium's in MuJoCo, with the options that all of them have."""

    fixed: ClassVar[tuple[str, ...]] = (*Task.fixed, "walls", "goal")
    step_descriptor_dtype: ClassVar[str] = "float32"

    robot: Robot
    walls: Walls = ()
    goal: tuple[float, ...] = ()  # a position; forwards is towards it
    descriptor: Literal["feet", "position", "velocity"] = "feet"
    reach: Length = 30.0  # bound of a final position, in m from the origin
    top_speed: Length = 5.0  # bound of a mean velocity, in m/s
    xml_file: str = ""  # a path, or a file of Gymnasium's; the robot's own by default
    frame_skip: Count = 5  # physics steps of a control step
    noise: Spread = 0.1  # of the initial coordinates and velocities
    forward_reward_weight: Finite = 1.0
    ctrl_cost_weight: Finite = 0.0
    exclude_current_positions_from_observation: bool = True

    def __post_init__(self) -> None:
        sizes = model_sizes(self.xml_file) if self.xml_file else self.robot.sizes
        described = dimension_names(self.robot, self.descriptor)
        object.__setattr__(self, "observation_size", self.observed_values(sizes))
        object.__setattr__(self, "action_size", sizes.actuators)
        object.__setattr__(self, "descriptor_names", described)
        object.__setattr__(self, "descriptor_bounds", self.bounds())
        super().__post_init__()

    def bounds(self) -> tuple[tuple[float, float], ...]:
        """The lowest and the highest value of each dimension of the descriptor."""
        highest = {"feet": 1.0, "position": self.reach}.get(self.descriptor, self.top_speed)
        lowest = 0.0 if self.descriptor == "feet" else -highest
        return ((lowest, highest),) * len(dimension_names(self.robot, self.descriptor))

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """The task with other parameters. Another descriptor has another default archive."""
        parameters = with_options(parameters)
        descriptor = parameters.get("descriptor", self.descriptor)
        if descriptor != self.descriptor and descriptor in tuple(DESCRIPTORS):
            grid = default_grid(len(dimension_names(self.robot, descriptor)))
            parameters = {"grid": grid, "cells": default_cells(grid), **parameters}
        return super().with_parameters(parameters)

    @property
    def model(self) -> str:
        """The file of the model."""
        return self.xml_file or self.robot.model

    @property
    def descriptor_phrase(self) -> str:  # type: ignore[override]
        return DESCRIPTORS[self.descriptor]

    @property
    def describes_steps(self) -> bool:
        """Whether each step has a descriptor of the same kind as an episode."""
        return self.descriptor != "position"

    @property
    def hidden_positions(self) -> int:
        """Coordinates that are not observed: where the robot is."""
        return self.exclude_current_positions_from_observation * self.robot.dimensions

    def observed_values(self, sizes: Sizes) -> int:
        """The length of an observation."""
        of_bodies = 10 * self.include_cinert_in_observation
        of_bodies += 6 * (self.include_cvel_in_observation + self.include_cfrc_ext_in_observation)
        of_joints = (sizes.qvel - 6) * self.include_qfrc_actuator_in_observation
        positions = sizes.qpos - self.hidden_positions
        return positions + sizes.qvel + of_bodies * (sizes.bodies - 1) + of_joints

    def unavailable_reason(self) -> str:
        """See `Task.unavailable_reason`."""
        return missing_package()

    def make_simulator(self) -> MujocoSimulator:
        from elites.tasks.mujoco.simulator import MujocoSimulator

        return MujocoSimulator(self)


def with_options(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters, merged with those in `environment_options`, under the tasks' own names."""
    parameters = dict(parameters)
    options = parameters.pop("environment_options", {})
    require(isinstance(options, dict), "environment_options", repr(options), 'a table: {"option": value}')
    if twice := sorted(options.keys() & parameters.keys()):
        raise ElitesError(f"{twice[0]} is given twice: as a parameter and in environment_options")
    parameters |= options
    if NOISE in parameters:
        if "noise" in parameters:
            raise ElitesError(f"noise is given twice: {NOISE} is another name of it")
        parameters["noise"] = parameters.pop(NOISE)
    return parameters


def dimension_names(robot: Robot, descriptor: str) -> tuple[str, ...]:
    """The names of the descriptor's dimensions."""
    if descriptor != "feet":
        return ("x", "y")[: robot.dimensions]
    if not robot.feet:
        raise ElitesError("descriptor is feet; this robot has none, so it must be position or velocity")
    return tuple(name for _, name in robot.feet)


@dataclass(frozen=True, kw_only=True)
class SwimmerTask(MujocoTask):
    """Three links in a fluid."""

    frame_skip: Count = 4
    ctrl_cost_weight: Finite = 1e-4


@dataclass(frozen=True, kw_only=True)
class HalfCheetahTask(MujocoTask):
    """A planar runner that may turn over."""

    normal_velocities = True

    ctrl_cost_weight: Finite = 0.1


@dataclass(frozen=True, kw_only=True)
class Walker2dTask(MujocoTask):
    """A planar walker with two legs."""

    speed_limit = 10.0

    frame_skip: Count = 4
    noise: Spread = 5e-3
    ctrl_cost_weight: Finite = 1e-3
    healthy_reward: Finite = 1.0  # of each step in which it is healthy
    terminate_when_unhealthy: bool = True
    healthy_z_range: Limits = (0.8, 2.0)  # heights of the torso
    healthy_angle_range: Limits = (-1.0, 1.0)  # of the torso


@dataclass(frozen=True, kw_only=True)
class HopperTask(Walker2dTask):
    """A planar hopper with one leg."""

    healthy_z_range: Limits = (0.7, UNLIMITED)
    healthy_angle_range: Limits = (-0.2, 0.2)
    healthy_state_range: Limits = (-100.0, 100.0)  # of all other coordinates and of the velocities


@dataclass(frozen=True, kw_only=True)
class AntTask(MujocoTask):
    """A robot with four legs."""

    place = "body"
    normal_velocities = True

    ctrl_cost_weight: Finite = 0.5
    contact_cost_weight: Finite = 5e-4
    healthy_reward: Finite = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Limits = (0.2, 1.0)
    contact_force_range: Limits = (-1.0, 1.0)
    main_body: Index | str = "torso"  # number or name of the body whose position counts
    include_cfrc_ext_in_observation: bool = True


@dataclass(frozen=True, kw_only=True)
class HumanoidTask(MujocoTask):
    """A robot with two legs and two arms."""

    place = "mass"
    double_control = True

    noise: Spread = 1e-2
    forward_reward_weight: Finite = 1.25
    ctrl_cost_weight: Finite = 0.1
    contact_cost_weight: Finite = 5e-7
    contact_cost_range: Limits = (-UNLIMITED, 10.0)
    healthy_reward: Finite = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Limits = (1.0, 2.0)
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


_WALKER = Robot(
    "walker2d_v5.xml",
    Sizes(9, 9, 8, 6),
    dimensions=1,
    feet=(("foot_geom", "right foot"), ("foot_left_geom", "left foot")),
)
_HALF_CHEETAH = Robot(
    "half_cheetah.xml",
    Sizes(9, 9, 8, 6),
    dimensions=1,
    feet=(("ffoot", "front foot"), ("bfoot", "back foot")),
)
_ANT = Robot(
    "ant.xml",
    Sizes(15, 14, 14, 8),
    dimensions=2,
    feet=(
        ("left_ankle_geom", "front left foot"),
        ("right_ankle_geom", "front right foot"),
        ("third_ankle_geom", "back left foot"),
        ("fourth_ankle_geom", "back right foot"),
    ),
)
_HOPPER = Robot("hopper.xml", Sizes(6, 6, 5, 3), dimensions=1, feet=(("foot_geom", "foot"),))
_HUMANOID = Robot(
    "humanoid.xml",
    Sizes(24, 23, 14, 17),
    dimensions=2,
    feet=(("right_foot", "right foot"), ("left_foot", "left foot")),
)
_SWIMMER = Robot("swimmer.xml", Sizes(5, 5, 4, 2), dimensions=2)


def _pair(
    kind: type[MujocoTask], name: str, robot: Robot, qd_offset: float, **parameters: Any
) -> list[MujocoTask]:
    """The uncertain and the deterministic task of a robot."""
    grid = default_grid(len(dimension_names(robot, parameters.get("descriptor", "feet"))))
    facts: dict[str, Any] = {
        "robot": robot,
        "observation_size": 0,
        "action_size": 0,
        "descriptor_names": (),
        "descriptor_bounds": (),
        "cells": default_cells(grid),
        "grid": grid,
        "qd_offset": qd_offset,
        **parameters,
    }
    return [
        kind(name=f"mujoco-{name}", **facts),
        kind(name=f"mujoco-deterministic-{name}", **facts, noise=0.0),
    ]


# A wall around the ant that is open at the back: the ant must first move away from the goal.
_GOAL = (12.0, 0.0)
_TRAP: Walls = ((4.0, 0.0, 0.5, 4.5), (1.0, 4.0, 3.0, 0.5), (1.0, -4.0, 3.0, 0.5))

TASKS: tuple[MujocoTask, ...] = tuple(
    task
    for variant in zip(
        _pair(Walker2dTask, "walker2d", _WALKER, -114.0),
        _pair(HalfCheetahTask, "halfcheetah", _HALF_CHEETAH, -2177.0),
        _pair(AntTask, "ant", _ANT, -3002.0),
        _pair(HopperTask, "hopper", _HOPPER, -3.0),
        _pair(HumanoidTask, "humanoid", _HUMANOID, 0.0),
        _pair(SwimmerTask, "swimmer", _SWIMMER, -197.0, descriptor="position", reach=15.0),
        _pair(AntTask, "ant-omni", _ANT, -3002.0, descriptor="position", forward_reward_weight=0.0),
        _pair(AntTask, "ant-trap", _ANT, -3002.0, descriptor="position", reach=15.0, walls=_TRAP, goal=_GOAL),
        strict=True,
    )
    for task in variant
)


def register_environments() -> None:
    """Registers each task with Gymnasium, as `elites/MujocoWalker2d-v0` and so on."""
    import gymnasium

    for task in TASKS:
        words = [{"halfcheetah": "HalfCheetah"}.get(word, word.capitalize()) for word in task.name.split("-")]
        gymnasium.register(
            id=f"elites/{''.join(words)}-v0",
            entry_point="elites.tasks.mujoco.environment:MujocoEnv",
            max_episode_steps=task.episode_length,
            kwargs={"task": task.name},
        )

"""The eight QDGym tasks of the paper: PyBullet's locomotion robots, described by their feet's contacts.

Reward per step: alive (+1 or -1) + progress towards a target 1 km away - cost of the motors - 0.1 for each
joint at its limit. Fitness is the sum over the episode. The descriptor is, per foot, the share of steps
after which it touches the floor. Uncertain tasks start each joint at a random angle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from elites.errors import ElitesError
from elites.options import Range
from elites.tasks.qdgym import robots
from elites.tasks.task import CONTACT_PHRASE, CompiledTask

if TYPE_CHECKING:
    from elites.tasks.qdgym.simulator import QDGymSimulator


@dataclass(frozen=True, kw_only=True)
class QDGymTask(CompiledTask):
    """A PyBullet robot on a flat floor."""

    descriptor_phrase: ClassVar[str] = CONTACT_PHRASE

    robot: robots.Robot
    noise: Annotated[float, Range(0, math.pi)] = (
        0.1  # of the initial joint angles, in rad: half width or standard deviation
    )
    noise_distribution: Literal["uniform", "normal"] = "uniform"
    ends_on_fall: bool = True  # whether an episode ends when the robot is not upright

    def unavailable_reason(self) -> str:
        """See `Task.unavailable_reason`."""
        from elites.tasks.qdgym.library import require_bullet

        try:
            require_bullet()
        except ElitesError as error:
            return str(error)
        return ""

    def make_simulator(self) -> QDGymSimulator:
        from elites.tasks.qdgym.simulator import QDGymSimulator

        return QDGymSimulator(self)


def _pair(
    name: str, robot: robots.Robot, cells: int, grid: tuple[int, ...], qd_offset: float
) -> list[QDGymTask]:
    """The uncertain and the deterministic task of a robot."""
    return [
        QDGymTask(
            name=f"qd-{variant}{name}",
            robot=robot,
            observation_size=robot.observation_size,
            action_size=robot.motors,
            descriptor_names=robot.foot_names,
            descriptor_bounds=((0.0, 1.0),) * len(robot.feet),
            cells=cells,
            grid=grid,
            qd_offset=qd_offset,
            noise=noise,
            ends_on_fall=robot.ends_on_fall,
        )
        for variant, noise in (("", 0.1), ("deterministic-", 0.0))
    ]


TASKS: tuple[QDGymTask, ...] = tuple(
    task
    for variant in zip(
        _pair("walker", robots.WALKER, 1024, (32, 32), -67.17),
        _pair("halfcheetah", robots.HALF_CHEETAH, 1024, (32, 32), -2797.52),
        _pair("ant", robots.ANT, 1296, (6, 6, 6, 6), -374.70),
        _pair("hopper", robots.HOPPER, 1000, (1000,), -362.09),
        strict=True,
    )
    for task in variant
)


def register_environments() -> None:
    """Registers each task with Gymnasium, as `elites/QDWalker-v0` and so on."""
    import gymnasium

    for task in TASKS:
        *variant, robot = task.name.removeprefix("qd-").split("-")
        robot = {"halfcheetah": "HalfCheetah"}.get(robot, robot.capitalize())
        gymnasium.register(
            id=f"elites/QD{''.join(variant).capitalize()}{robot}-v0",
            entry_point="elites.tasks.qdgym.environment:QDGymEnv",
            max_episode_steps=task.episode_length,
            kwargs={"task": task.name},
        )

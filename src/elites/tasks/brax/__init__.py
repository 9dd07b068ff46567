"""Brax's locomotion robots, described by their feet's contacts: whole episodes on the accelerator.

Physics, observation, reward and termination are those of Brax's own environments. The descriptor is, per
foot, the share of steps after which it touches the floor. Uncertain tasks start with the environment's own
noise on positions and velocities. The QD offset is the worst fitness, rounded down, of 400 random
controllers, of the same controllers with three times as large weights and, for walker2d, of the elites of
twenty runs of PGA-MAP-Elites.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from elites.cache import fingerprint_files
from elites.options import Spread
from elites.tasks.task import CONTACT_PHRASE, DeviceTask, StepResult

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True, kw_only=True)
class BraxTask(DeviceTask):
    """A Brax robot on a flat floor."""

    descriptor_phrase: ClassVar[str] = CONTACT_PHRASE
    step_descriptor_dtype: ClassVar[str] = "uint8"

    robot: str  # Brax's name
    feet: tuple[str, ...]  # shapes of Brax's model
    noise: Spread  # of the initial positions and velocities
    backend: Literal["spring", "positional", "generalized", "mjx"] = "spring"

    def unavailable_reason(self) -> str:
        """See `Task.unavailable_reason`."""
        return missing_package()

    @property
    def code_version(self) -> str | None:
        """See `DeviceTask.code_version`: all parameters, and the files that define the robot."""
        if type(self) is not BraxTask:
            return None  # a subclass may have other functions
        files = fingerprint_files("elites", "brax", "mujoco")
        if files is None:
            return None
        import jax

        return f"{self!r} {files} {jax.default_backend()}"  # the simulation depends on the backend

    def reset(self, seed: jax.Array) -> tuple[Any, jax.Array]:
        """See `DeviceTask.reset`: the physics' state and the observation."""
        import jax

        from elites.tasks.brax.simulation import make_environment

        state = make_environment(self).reset(jax.random.key(seed))
        return state.pipeline_state, state.obs

    def step(self, state: Any, action: jax.Array) -> StepResult:
        """See `DeviceTask.step`."""
        import jax.numpy as jnp
        from brax.envs.base import State

        from elites.tasks.brax.simulation import TOUCH, find_feet, make_environment

        zero = jnp.zeros(())
        after = make_environment(self).step(State(state, zero, zero, zero, {}, {}), action)
        touching = find_feet(self).height(after.pipeline_state) <= TOUCH
        return StepResult(after.pipeline_state, after.obs, after.reward, after.done > 0, touching)


def missing_package() -> str:
    """A line that names a package that Brax's tasks need and that is not installed; empty if all are."""
    missing = [name for name in ("brax", "mujoco") if find_spec(name) is None]
    return f"brax tasks need {missing[0]}, which is not installed; install elites[brax]" if missing else ""


class _Robot(NamedTuple):
    """Brax's name for a robot, its sizes and feet, Brax's own noise, and the robot's archive."""

    name: str
    observation_size: int
    action_size: int
    feet: dict[str, str]  # shapes of Brax's model, with their display names
    noise: float
    cells: int
    grid: tuple[int, ...]
    qd_offset: float


_WALKER_FEET = {"foot_geom": "right foot", "foot_left_geom": "left foot"}
_ANT_FEET = {
    "left_foot_geom": "front left foot",
    "right_foot_geom": "front right foot",
    "third_foot_geom": "back left foot",
    "fourth_foot_geom": "back right foot",
}
_ROBOTS = (
    _Robot("walker2d", 17, 6, _WALKER_FEET, 5e-3, 1024, (32, 32), -54.0),
    _Robot("halfcheetah", 17, 6, {"ffoot": "front foot", "bfoot": "back foot"}, 0.1, 1024, (32, 32), -1276.0),
    _Robot("ant", 27, 8, _ANT_FEET, 0.1, 1296, (6, 6, 6, 6), -3000.0),
    _Robot("hopper", 11, 3, {"foot_geom": "foot"}, 5e-3, 1000, (1000,), 0.0),
)


def _task(robot: _Robot, variant: str, noise: float) -> BraxTask:
    return BraxTask(
        name=f"brax-{variant}{robot.name}",
        robot=robot.name,
        feet=tuple(robot.feet),
        observation_size=robot.observation_size,
        action_size=robot.action_size,
        descriptor_names=tuple(robot.feet.values()),
        descriptor_bounds=((0.0, 1.0),) * len(robot.feet),
        cells=robot.cells,
        grid=robot.grid,
        qd_offset=robot.qd_offset,
        noise=noise,
    )


TASKS: tuple[BraxTask, ...] = (
    *(_task(robot, "", robot.noise) for robot in _ROBOTS),
    *(_task(robot, "deterministic-", 0.0) for robot in _ROBOTS),
)

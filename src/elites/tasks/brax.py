"""Brax's locomotion robots, described by how their feet touch down: whole episodes on the accelerator.

Physics, observation, reward and early ends are those of Brax's own environments. The descriptor is, per foot,
the share of steps at whose end it touches the floor. Uncertain tasks start with the environment's own noise
on positions and velocities.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError, require
from elites.tasks.task import DeviceTask, Stepping


class Robot(NamedTuple):
    """A robot of Brax."""

    environment: str  # its name there
    observation_size: int
    action_size: int
    feet: tuple[str, ...]  # the shapes that count as feet
    noise: float  # Brax's own
    cells: int
    grid: tuple[int, ...]
    qd_offset: float


ROBOTS = {
    "walker2d": Robot("walker2d", 17, 6, ("foot_geom", "foot_left_geom"), 5e-3, 1024, (32, 32), 0.0),
    "halfcheetah": Robot("halfcheetah", 17, 6, ("ffoot", "bfoot"), 0.1, 1024, (32, 32), 0.0),
    "ant": Robot(
        "ant",
        27,
        8,
        ("left_foot_geom", "right_foot_geom", "third_foot_geom", "fourth_foot_geom"),
        0.1,
        1296,
        (6, 6, 6, 6),
        0.0,
    ),
    "hopper": Robot("hopper", 11, 3, ("foot_geom",), 5e-3, 1000, (1000,), 0.0),
}
CAPSULE = 3  # MuJoCo's number for that shape; a foot that is none is a sphere
TOUCH = 0.01  # m: a foot that is no higher than this touches the floor


@dataclass(frozen=True, kw_only=True)
class BraxTask(DeviceTask):
    """A Brax robot on a flat floor."""

    robot: str
    noise: float  # of the initial positions and velocities
    backend: Literal["spring", "positional", "generalized", "mjx"] = "spring"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.noise >= 0, "noise", self.noise, "at least 0")

    def reset(self, seed: jax.Array) -> tuple[Any, jax.Array]:
        state = _environment(self.robot, self.backend, self.noise).reset(jax.random.key(seed))
        return state.pipeline_state, state.obs

    def step(self, state: Any, action: jax.Array) -> Stepping:
        from brax.envs.base import State

        environment = _environment(self.robot, self.backend, self.noise)
        before = State(state, jnp.zeros(()), jnp.zeros(()), jnp.zeros(()), {}, {})
        after = environment.step(before, action)
        feet = _feet(self.robot, self.backend, self.noise)
        touching = feet.height(after.pipeline_state) <= TOUCH
        return Stepping(after.pipeline_state, after.obs, after.reward, after.done > 0, touching)


@functools.cache
def _environment(robot: str, backend: str, noise: float) -> Any:
    """Brax's environment. On an accelerator a control step's physics is unrolled, which makes it faster."""
    with (
        _quiet(),
        jax.ensure_compile_time_eval(),
    ):  # constants must not belong to the program that asked first
        from brax import envs

        environment = envs.get_environment(
            ROBOTS[robot].environment, backend=backend, reset_noise_scale=noise
        )
        pipeline = importlib.import_module(f"brax.{backend}.pipeline")
    frames = environment._n_frames

    def step(state: Any, action: jax.Array) -> Any:
        unroll = 1 if jax.default_backend() == "cpu" else frames  # there it would take a minute to compile
        return jax.lax.scan(
            lambda now, _: (pipeline.step(environment.sys, now, action), None),
            state,
            length=frames,
            unroll=unroll,
        )[0]

    environment.pipeline_step = step
    return environment


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Brax and MuJoCo tell of packages that are missing and models that are old: no user can help it."""
    try:
        import brax  # noqa: F401
        import mujoco
    except ModuleNotFoundError as missing:
        raise ElitesError(
            f"brax tasks need {missing.name}, which is not installed; install elites[brax]"
        ) from None
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(before)


class _Feet(NamedTuple):
    """Where the feet are: spheres, or capsules whose ends are `half` from their middle, on links."""

    links: np.ndarray  # [feet]
    middle: np.ndarray  # [feet, 3] in the link's frame
    half: np.ndarray  # [feet, 3], zero for a sphere
    radius: np.ndarray  # [feet]

    def height(self, state: Any) -> jax.Array:
        """How far the lowest point of each foot is above the floor."""
        from brax.math import rotate

        position, rotation = state.x.pos[self.links], state.x.rot[self.links]
        middle = position + jax.vmap(rotate)(jnp.asarray(self.middle), rotation)
        half = jax.vmap(rotate)(jnp.asarray(self.half), rotation)
        lowest: jax.Array = middle[:, 2] - jnp.abs(half[:, 2]) - jnp.asarray(self.radius)
        return lowest


@functools.cache
def _feet(robot: str, backend: str, noise: float) -> _Feet:
    model = _environment(robot, backend, noise).sys.mj_model
    geoms = [model.geom(name).id for name in ROBOTS[robot].feet]
    w, x, y, z = model.geom_quat[geoms].T
    axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    capsule = model.geom_type[geoms] == CAPSULE
    return _Feet(
        links=model.geom_bodyid[geoms] - 1,
        middle=model.geom_pos[geoms],
        half=np.where(capsule[:, None], model.geom_size[geoms, 1:2] * axis, 0),
        radius=model.geom_size[geoms, 0],
    )


def _task(name: str, robot: Robot, variant: str, noise: float) -> BraxTask:
    return BraxTask(
        name=f"brax-{variant}{name}",
        robot=name,
        observation_size=robot.observation_size,
        action_size=robot.action_size,
        descriptor_names=tuple(foot.removesuffix("_geom") for foot in robot.feet),
        descriptor_bounds=((0.0, 1.0),) * len(robot.feet),
        cells=robot.cells,
        grid=robot.grid,
        qd_offset=robot.qd_offset,
        noise=noise,
    )


TASKS: tuple[BraxTask, ...] = (
    *(_task(name, robot, "", robot.noise) for name, robot in ROBOTS.items()),
    *(_task(name, robot, "deterministic-", 0.0) for name, robot in ROBOTS.items()),
)

"""Brax's environments, the heights of their feet, and their models."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError
from elites.tasks.brax import missing_package
from elites.tasks.mujoco.library import quiet_mujoco

if TYPE_CHECKING:
    from elites.tasks.brax import BraxTask

CAPSULE = 3  # MuJoCo's number for that shape; other feet are spheres
UNROLL = 5  # frames of physics at most: more take minutes to compile
TOUCH = 0.01  # m, largest height of the lowest point of a foot that touches the floor


def make_environment(task: BraxTask) -> Any:
    """Brax's environment of a task, made once in a process."""
    return _environment(task.robot, task.backend, task.noise)


@functools.cache
def _environment(robot: str, backend: str, noise: float) -> Any:
    """Brax's environment. On an accelerator its physics is unrolled, which makes it faster."""
    # Its constants must not become part of the program that is being traced.
    with _quiet(), jax.ensure_compile_time_eval():
        from brax import envs

        environment = envs.get_environment(robot, backend=backend, reset_noise_scale=noise)
        pipeline = importlib.import_module(f"brax.{backend}.pipeline")
    frames = environment._n_frames

    def step(state: Any, action: jax.Array) -> Any:
        unroll = 1 if jax.default_backend() == "cpu" else min(frames, UNROLL)
        with _summing_in_order(backend):
            return jax.lax.scan(
                lambda now, _: (pipeline.step(environment.sys, now, action), None),
                state,
                length=frames,
                unroll=unroll,
            )[0]

    environment.pipeline_step = step
    return environment


@contextlib.contextmanager
def _summing_in_order(backend: str) -> Iterator[None]:
    """While Brax's physics is traced, forces on a link are summed by `segment_sum` below."""
    with contextlib.ExitStack() as patches:
        for name in ("joints", "collisions"):
            path = f"brax.{backend}.{name}"
            if find_spec(path) is not None and hasattr(importlib.import_module(path), "segment_sum"):
                patches.enter_context(mock.patch(f"{path}.segment_sum", segment_sum))
        yield


def segment_sum(data: jax.Array, segment_ids: jax.Array, num_segments: int) -> jax.Array:
    """As `jax.ops.segment_sum`, for few rows.

    The scatter of an accelerator adds in any order, so that runs could not be repeated exactly, and it needs
    a separate kernel.
    """
    belongs = segment_ids == jnp.arange(num_segments)[:, None]
    belongs = belongs.reshape(*belongs.shape, *(1 for _ in data.shape[1:]))
    return jnp.where(belongs, data, 0).sum(1)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings of Brax and MuJoCo about missing packages and old models: no user can change them."""
    if missing := missing_package():
        raise ElitesError(missing)
    importlib.import_module("mujoco")  # so that it is quiet, too
    with quiet_mujoco(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


class Feet(NamedTuple):
    """The feet on their links: spheres, or capsules whose ends are `half` from their middle."""

    links: np.ndarray  # [feet]
    middle: np.ndarray  # [feet, 3] in the link's frame
    half: np.ndarray  # [feet, 3], zero for a sphere
    radius: np.ndarray  # [feet]

    def height(self, state: Any) -> jax.Array:
        """The height of the lowest point of each foot above the floor."""
        from brax.math import rotate

        position, rotation = state.x.pos[self.links], state.x.rot[self.links]
        middle = position + jax.vmap(rotate)(jnp.asarray(self.middle), rotation)
        half = jax.vmap(rotate)(jnp.asarray(self.half), rotation)
        lowest: jax.Array = middle[:, 2] - jnp.abs(half[:, 2]) - jnp.asarray(self.radius)
        return lowest


def load_model(task: BraxTask) -> tuple[Any, float]:
    """MuJoCo's model of a task's robot, and the seconds of a step."""
    environment = make_environment(task)
    return environment.sys.mj_model, float(environment.dt)


@functools.cache
def find_feet(task: BraxTask) -> Feet:
    """The feet of a task's robot."""
    model = make_environment(task).sys.mj_model
    geoms = [model.geom(name).id for name in task.feet]
    w, x, y, z = model.geom_quat[geoms].T
    axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    capsule = model.geom_type[geoms] == CAPSULE
    return Feet(
        links=model.geom_bodyid[geoms] - 1,
        middle=model.geom_pos[geoms],
        half=np.where(capsule[:, None], model.geom_size[geoms, 1:2] * axis, 0),
        radius=model.geom_size[geoms, 0],
    )

"""Brax tasks: an episode is run again, recording the pose of every link, and drawn by a small renderer.

The program is not the evaluator's, so it rounds differently, and the physics amplifies such differences: the
fitness of the episode that is drawn may differ from the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError
from elites.policies import Policy
from elites.replays.capsules import Camera, Shapes
from elites.replays.scene import Scene, SmoothTarget
from elites.tasks.brax import BraxTask
from elites.tasks.brax.simulation import model_of
from elites.tasks.task import DeviceTask

SPHERE, CAPSULE = 2, 3  # MuJoCo's numbers for these shapes
COLOUR, FOOT_COLOUR = (225, 115, 40), (45, 70, 120)
PACE = 0.1  # of the camera: share of the distance per step
VIEWS = {"ant": (35.0, -25.0, 5.5, 0.5)}  # yaw and pitch in degrees, distance, height of the target
SIDE = (0.0, -10.0, 3.4, 0.8)


class _Path(NamedTuple):
    """The poses of the links before each step, and the results of the step; `[n, T, …]`."""

    position: jax.Array
    rotation: jax.Array
    reward: jax.Array
    descriptor: jax.Array
    terminated: jax.Array


def run(
    task: DeviceTask, hidden: tuple[int, ...], parameters: np.ndarray, seeds: list[int], size: tuple[int, int]
) -> tuple[list[Scene], np.ndarray, np.ndarray, np.ndarray]:
    """The scenes of these controllers' episodes, with fitness, descriptor and length of each."""
    if not isinstance(task, BraxTask):
        raise ElitesError(f"{task.name} cannot be drawn; device tasks other than Brax's have no renderer")
    policy = Policy.of(task, hidden)

    def one(controller: jax.Array, seed: jax.Array) -> tuple[_Path, Any]:
        layers = policy.layers(controller)

        def step(carried: tuple[Any, jax.Array], _: None) -> tuple[tuple[Any, jax.Array], _Path]:
            state, observation = carried
            after = task.step(state, policy.act(layers, observation))
            recorded = _Path(state.x.pos, state.x.rot, after.reward, after.descriptor, after.terminated)
            return (after.state, after.observation), recorded

        (last, _), path = jax.lax.scan(step, task.reset(seed), length=task.episode_length)
        return path, (last.x.pos, last.x.rot)

    recorded, last = jax.jit(jax.vmap(one))(jnp.asarray(parameters), jnp.asarray(seeds, jnp.uint32))
    path: Any = _Path(*map(np.asarray, recorded))  # type: ignore[arg-type]
    length = np.where(path.terminated.any(1), path.terminated.argmax(1) + 1, task.episode_length)
    executed = np.arange(task.episode_length) < length[:, None]
    fitness = np.where(executed, path.reward, 0).sum(1)
    descriptor = (executed[..., None] & path.descriptor).sum(1) / length[:, None]
    scenes: list[Scene] = []
    for index, steps in enumerate(length):
        positions, rotations = (
            np.concatenate([array[index], np.asarray(end)[index, None]])[: steps + 1]
            for array, end in ((path.position, last[0]), (path.rotation, last[1]))
        )
        scenes.append(BraxScene(task, positions, rotations, size))
    return scenes, fitness, descriptor, length


class BraxScene:
    """An episode, given by the poses of its links, `[T + 1, links, …]`."""

    threaded = True

    def __init__(
        self, task: BraxTask, positions: np.ndarray, rotations: np.ndarray, size: tuple[int, int]
    ) -> None:
        model, self.seconds = model_of(task)
        self.positions, self.rotations, self.steps = positions, rotations, len(positions) - 1
        limbs = np.flatnonzero((model.geom_bodyid > 0) & np.isin(model.geom_type, (SPHERE, CAPSULE)))
        feet = [model.geom(name).id for name in task.feet]
        self._links = model.geom_bodyid[limbs] - 1
        self._middle = model.geom_pos[limbs]
        long = np.where(model.geom_type[limbs] == CAPSULE, model.geom_size[limbs, 1], 0)
        self._half = long[:, None] * _rotated(model.geom_quat[limbs], np.array([0.0, 0.0, 1.0]))
        self._radius = model.geom_size[limbs, 0]
        self._colour = np.where(np.isin(limbs, feet)[:, None], FOOT_COLOUR, COLOUR)
        yaw, pitch, distance, self._height = VIEWS.get(task.robot, SIDE)
        self._camera = Camera(size, yaw, pitch, distance)

    def frames(self, wanted: Sequence[int]) -> Iterator[np.ndarray]:
        """See `Scene.frames`."""
        follow, wanted_steps = SmoothTarget(PACE), set(wanted)
        for step in range(max(wanted_steps, default=-1) + 1):
            x, y, _ = self.positions[step, 0]
            target = follow(np.array([x, y, self._height]))
            if step in wanted_steps:
                position, rotation = self.positions[step][self._links], self.rotations[step][self._links]
                middle = position + _rotated(rotation, self._middle)
                half = _rotated(rotation, self._half)
                shapes = Shapes(middle - half, middle + half, self._radius, self._colour)
                yield self._camera.shot(shapes, target)


def _rotated(quaternions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors rotated by quaternions (w, x, y, z)."""
    w, u = quaternions[..., :1], quaternions[..., 1:]
    across = np.cross(u, vectors)
    rotated: np.ndarray = vectors + 2 * (w * across + np.cross(u, across))
    return rotated

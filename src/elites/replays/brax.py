"""Brax tasks: an episode is run again, recording the pose of every link, and drawn by a small renderer.

Under XLA the program is not the run's, so it rounds differently, and the physics amplifies such differences:
the fitness of the episode that is drawn may differ from the recorded one. Native code gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError
from elites.evaluation import evaluator_of
from elites.options import Physics
from elites.replays.capsules import Camera, Shapes
from elites.replays.poses import Limb, Robot
from elites.replays.scene import Scene, SmoothTarget
from elites.tasks.brax import BraxTask
from elites.tasks.brax.simulation import model_of
from elites.tasks.task import DeviceTask, Stepping

SPHERE, CAPSULE = 2, 3  # MuJoCo's numbers for these shapes
COLOUR, FOOT_COLOUR = (225, 115, 40), (45, 70, 120)
PACE = 0.1  # of the camera: share of the distance per step
VIEWS = {"ant": (35.0, -25.0, 5.5, 0.5)}  # yaw and pitch in degrees, distance, height of the target
SIDE = (0.0, -10.0, 3.4, 0.8)


@dataclass(frozen=True, kw_only=True)
class _Posed(BraxTask):
    """A task whose steps are also described by the poses of all links."""

    step_descriptor_dtype: ClassVar[str] = "float32"

    links: int

    @property
    def step_descriptor_size(self) -> int:
        """The feet's contacts, and a position and a rotation per link."""
        return self.descriptor_size + 7 * self.links

    def step(self, state: Any, action: jax.Array) -> Stepping:
        after = super().step(state, action)
        return after._replace(descriptor=jnp.concatenate([after.descriptor, *_poses(after.state)]))

    def episode_descriptor(self, mean: jax.Array, state: Any) -> jax.Array:
        return mean[: self.descriptor_size]


def _poses(state: Any) -> tuple[jax.Array, jax.Array]:
    return state.x.pos.reshape(-1), state.x.rot.reshape(-1)


def run(
    task: DeviceTask,
    hidden: tuple[int, ...],
    parameters: np.ndarray,
    seeds: list[int],
    size: tuple[int, int],
    physics: Physics | None,
) -> tuple[list[Scene], np.ndarray, np.ndarray, np.ndarray]:
    """The scenes of these controllers' episodes, with fitness, descriptor and length of each."""
    if not isinstance(task, BraxTask):
        raise ElitesError(f"{task.name} cannot be drawn; device tasks other than Brax's have no renderer")
    links = int(model_of(task)[0].nbody) - 1  # without the world
    posed = _Posed(links=links, **{field.name: getattr(task, field.name) for field in fields(BraxTask)})
    with evaluator_of(posed, hidden, None, physics=physics) as evaluator:
        evaluation = evaluator.evaluate(parameters, np.array(seeds), transitions=True)
    first = jax.jit(jax.vmap(lambda seed: _poses(task.reset(seed)[0])))(jnp.asarray(seeds, jnp.uint32))
    touching, *later = np.split(
        evaluation.transitions.step_descriptors,
        [task.descriptor_size, task.descriptor_size + 3 * links],
        2,
    )
    contacts = np.concatenate([np.zeros_like(touching[:, :1]), touching], 1) > 0
    positions, rotations = (
        np.concatenate([np.asarray(start)[:, None], rest], 1).reshape(len(seeds), -1, links, width)
        for start, rest, width in zip(first, later, (3, 4), strict=True)
    )
    scenes: list[Scene] = [
        BraxScene(task, positions[index, :end], rotations[index, :end], contacts[index, :end], size)
        for index, end in enumerate(evaluation.length + 1)
    ]
    return scenes, evaluation.fitness, evaluation.descriptor, evaluation.length


class BraxScene:
    """An episode, given by the poses of its links and the feet's contacts, `[T + 1, …]`."""

    threaded = True

    def __init__(
        self,
        task: BraxTask,
        positions: np.ndarray,
        rotations: np.ndarray,
        contacts: np.ndarray,
        size: tuple[int, int],
    ) -> None:
        model, self.seconds = model_of(task)
        self.positions, self.rotations, self.contacts = positions, rotations, contacts
        self.steps = len(positions) - 1
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


def robot_of(task: BraxTask) -> Robot:
    """The limbs of a task's robot; its links are the bodies."""
    model, seconds = model_of(task)
    feet = {model.geom(name).id: number for number, name in enumerate(task.feet)}
    limbs = []
    for geom in np.flatnonzero((model.geom_bodyid > 0) & np.isin(model.geom_type, (SPHERE, CAPSULE))):
        long = model.geom_size[geom, 1] if model.geom_type[geom] == CAPSULE else 0.0
        half = long * _rotated(model.geom_quat[geom], np.array([0.0, 0.0, 1.0]))
        middle, radius = model.geom_pos[geom], float(model.geom_size[geom, 0])
        body = int(model.geom_bodyid[geom]) - 1
        limbs.append(Limb(body, middle - half, middle + half, radius, feet.get(int(geom), -1)))
    return Robot(int(model.nbody) - 1, limbs, seconds, VIEWS.get(task.robot, SIDE))


def _rotated(quaternions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors rotated by quaternions (w, x, y, z)."""
    w, u = quaternions[..., :1], quaternions[..., 1:]
    across = np.cross(u, vectors)
    rotated: np.ndarray = vectors + 2 * (w * across + np.cross(u, across))
    return rotated

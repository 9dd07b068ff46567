"""Brax tasks: an episode is run again, recording the pose of every link, and drawn by a small renderer.

Under XLA, this program differs from that of the run and rounds differently. The physics amplifies such
differences, so the fitness of the drawn episode may differ from the recorded one. Native code gives the same
bits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from elites.errors import ElitesError
from elites.evaluation import make_evaluator
from elites.options import Physics
from elites.replays.models import ModelShapes, PosedScene
from elites.replays.poses import Robot
from elites.replays.scene import Scene
from elites.tasks.brax import BraxTask
from elites.tasks.brax.simulation import load_model
from elites.tasks.task import DeviceTask, StepResult

VIEWS = {"ant": (35.0, -25.0, 5.5, 0.5)}  # yaw and pitch in degrees, distance, height of the target
SIDE = (0.0, -10.0, 3.4, 0.8)


@dataclass(frozen=True, kw_only=True)
class _TaskWithPoses(BraxTask):
    """A task with the poses of all links in the descriptors of its steps."""

    step_descriptor_dtype: ClassVar[str] = "float32"

    links: int

    @property
    def step_descriptor_size(self) -> int:
        """The feet's contacts, and a position and a rotation per link."""
        return self.descriptor_size + 7 * self.links

    def step(self, state: Any, action: jax.Array) -> StepResult:
        after = super().step(state, action)
        return after._replace(descriptor=jnp.concatenate([after.descriptor, *_poses(after.state)]))

    def episode_descriptor(self, mean: jax.Array, state: Any) -> jax.Array:
        return mean[: self.descriptor_size]


def _poses(state: Any) -> tuple[jax.Array, jax.Array]:
    return state.x.pos.reshape(-1), state.x.rot.reshape(-1)


def make_scenes(
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
    links = int(load_model(task)[0].nbody) - 1  # without the world
    posed = _TaskWithPoses(
        links=links, **{field.name: getattr(task, field.name) for field in fields(BraxTask)}
    )
    with make_evaluator(posed, hidden, None, physics=physics) as evaluator:
        evaluation = evaluator.evaluate(parameters, np.array(seeds), transitions=True)
    first = jax.jit(jax.vmap(lambda seed: _poses(task.reset(seed)[0])))(jnp.asarray(seeds, jnp.uint32))
    touching, *later = np.split(
        evaluation.recorded.step_descriptors,
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


class BraxScene(PosedScene):
    """An episode, given by the poses of its links and the feet's contacts, `[T + 1, …]`."""

    def __init__(
        self,
        task: BraxTask,
        positions: np.ndarray,
        rotations: np.ndarray,
        contacts: np.ndarray,
        size: tuple[int, int],
    ) -> None:
        self.contacts = contacts
        view = VIEWS.get(task.robot, SIDE)
        super().__init__(_shapes(task), positions, rotations, load_model(task)[1], view, size)


def read_robot(task: BraxTask) -> Robot:
    """The limbs of a task's robot; its links are the bodies."""
    model, seconds = load_model(task)
    return Robot(int(model.nbody) - 1, _shapes(task).limbs(), seconds, VIEWS.get(task.robot, SIDE))


def _shapes(task: BraxTask) -> ModelShapes:
    model, _ = load_model(task)
    feet = {int(model.geom(name).id): number for number, name in enumerate(task.feet)}
    return ModelShapes(model, range(1, int(model.nbody)), feet)

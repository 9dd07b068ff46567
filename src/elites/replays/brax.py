"""Brax tasks: an episode is run again, with where every link is, and drawn by a small renderer of our own.

The program is not the evaluator's, so its rounding is not either, which the physics blows up: what is drawn
and told is this episode, whose fitness may differ from the recorded one.
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
from elites.replays.scene import Following, Scene
from elites.tasks.brax import BraxTask
from elites.tasks.brax.simulation import model_of
from elites.tasks.task import DeviceTask

SPHERE, CAPSULE = 2, 3  # MuJoCo's numbers for these shapes
COLOUR, FOOT_COLOUR = (225, 115, 40), (45, 70, 120)
PACE = 0.1
VIEWS = {"ant": (35.0, -25.0, 5.5, 0.5)}  # yaw and pitch in degrees, distance, height of the target
SIDE = (0.0, -10.0, 3.4, 0.8)


class _Path(NamedTuple):
    """Where the links are before each step, and what the step came to; `[n, T, …]`."""

    place: jax.Array
    turn: jax.Array
    reward: jax.Array
    contacts: jax.Array
    ends: jax.Array


def run(
    task: DeviceTask, hidden: tuple[int, ...], parameters: np.ndarray, seeds: list[int], size: tuple[int, int]
) -> tuple[list[Scene], np.ndarray, np.ndarray, np.ndarray]:
    """The scenes of these controllers' episodes, with fitness, descriptor and length of each."""
    if not isinstance(task, BraxTask):
        raise ElitesError(f"{task.name} cannot be drawn")
    policy = Policy.of(task, hidden)

    def one(controller: jax.Array, seed: jax.Array) -> tuple[_Path, Any]:
        layers = policy.layers(controller)

        def step(carried: tuple[Any, jax.Array], _: None) -> tuple[tuple[Any, jax.Array], _Path]:
            state, observation = carried
            after = task.step(state, policy.act(layers, observation))
            seen = _Path(state.x.pos, state.x.rot, after.reward, after.descriptor, after.terminated)
            return (after.state, after.observation), seen

        (last, _), path = jax.lax.scan(step, task.reset(seed), length=task.episode_length)
        return path, (last.x.pos, last.x.rot)

    found, last = jax.jit(jax.vmap(one))(jnp.asarray(parameters), jnp.asarray(seeds, jnp.uint32))
    path: Any = _Path(*map(np.asarray, found))  # type: ignore[arg-type]
    length = np.where(path.ends.any(1), path.ends.argmax(1) + 1, task.episode_length)
    ran = np.arange(task.episode_length) < length[:, None]
    fitness = np.where(ran, path.reward, 0).sum(1)
    descriptor = (ran[..., None] & path.contacts).sum(1) / length[:, None]
    scenes: list[Scene] = []
    for index, steps in enumerate(length):
        places, turns = (
            np.concatenate([array[index], np.asarray(end)[index, None]])[: steps + 1]
            for array, end in ((path.place, last[0]), (path.turn, last[1]))
        )
        scenes.append(BraxScene(task, places, turns, size))
    return scenes, fitness, descriptor, length


class BraxScene:
    """An episode given by where its links are, `[T + 1, links, …]`."""

    threaded = True

    def __init__(self, task: BraxTask, places: np.ndarray, turns: np.ndarray, size: tuple[int, int]) -> None:
        model, self.seconds = model_of(task)
        self.places, self.turns, self.steps = places, turns, len(places) - 1
        limbs = np.flatnonzero((model.geom_bodyid > 0) & np.isin(model.geom_type, (SPHERE, CAPSULE)))
        feet = [model.geom(name).id for name in task.feet]
        self._links = model.geom_bodyid[limbs] - 1
        self._middle = model.geom_pos[limbs]
        long = np.where(model.geom_type[limbs] == CAPSULE, model.geom_size[limbs, 1], 0)
        self._half = long[:, None] * _turned(model.geom_quat[limbs], np.array([0.0, 0.0, 1.0]))
        self._radius = model.geom_size[limbs, 0]
        self._colour = np.where(np.isin(limbs, feet)[:, None], FOOT_COLOUR, COLOUR)
        yaw, pitch, distance, self._height = VIEWS.get(task.robot, SIDE)
        self._camera = Camera(size, yaw, pitch, distance)

    def frames(self, wanted: Sequence[int]) -> Iterator[np.ndarray]:
        """See `Scene.frames`."""
        follow, due = Following(PACE), set(wanted)
        for step in range(max(due, default=-1) + 1):
            x, y, _ = self.places[step, 0]
            target = follow(np.array([x, y, self._height]))
            if step in due:
                place, turn = self.places[step][self._links], self.turns[step][self._links]
                middle, half = place + _turned(turn, self._middle), _turned(turn, self._half)
                shapes = Shapes(middle - half, middle + half, self._radius, self._colour)
                yield self._camera.shot(shapes, target)


def _turned(quaternions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors turned by quaternions (w, x, y, z)."""
    w, u = quaternions[..., :1], quaternions[..., 1:]
    across = np.cross(u, vectors)
    turned: np.ndarray = vectors + 2 * (w * across + np.cross(u, across))
    return turned

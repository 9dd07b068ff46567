"""Robots in MuJoCo: an episode is run again step by step, and the pose of every body is recorded.

MuJoCo's own renderer draws it if an OpenGL library can draw without a display, otherwise our small renderer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from elites.evaluation import make_evaluator
from elites.options import Physics
from elites.replays.models import ModelShapes, PosedScene, View, find_floor, find_visible_geoms
from elites.replays.offscreen import Offscreen, open_renderer
from elites.replays.poses import Movement, Robot
from elites.replays.rays import FIELD_OF_VIEW
from elites.replays.scene import Scene
from elites.tasks.mujoco import MujocoTask
from elites.tasks.mujoco.simulator import MujocoSimulator

DISTANCE = 3.6  # of the camera, in radii of the robot
MIN_RADIUS = 0.02  # m
MAX_FLAT_HEIGHT = 0.25  # height of a robot that is seen from above, in radii
SIDE, AROUND, ABOVE = (0.0, -10.0), (35.0, -25.0), (0.0, -55.0)  # yaw and pitch in degrees


class Episode(NamedTuple):
    """The states of an episode, `[frames, …]`."""

    coordinates: np.ndarray
    positions: np.ndarray  # of the bodies that are seen; heights are those above the floor
    rotations: np.ndarray
    contacts: np.ndarray


class Recorder:
    """Steps through episodes of a task, given by their seeds and the controller's actions.

    The poses are those for which MuJoCo has computed the contacts.
    """

    def __init__(self, task: MujocoTask) -> None:
        self.simulator = task.make_simulator()
        self.simulator.begin(0)
        model, rules = self.simulator.model, self.simulator.rules
        feet = {int(geom): int(rules.feet[geom]) for geom in np.flatnonzero(rules.feet >= 0)}
        visible_geoms = find_visible_geoms(model, feet)
        followed = rules.body if task.place == "body" else int(np.argmax(model.body_dofnum > 0))
        others = {int(body) for body in model.geom_bodyid[visible_geoms]} - {followed}
        self._bodies = [followed, *sorted(others, key=lambda body: (body == 0, body))]
        self.shapes = ModelShapes(model, self._bodies, feet)
        view, self.floor = _choose_view(
            self.simulator, visible_geoms, followed, planar=task.robot.dimensions == 1
        )
        self.robot = Robot(len(self._bodies), self.shapes.limbs(), float(rules.duration), view)

    def record_episode(self, seed: int, actions: np.ndarray, every: int = 1) -> Episode:
        """The states from the beginning on, one per `every` steps."""
        self.simulator.begin(seed)
        states = [self._state()]
        for step, action in enumerate(actions, 1):
            self.simulator.advance(action)
            if step % every == 0:
                states.append(self._state())
        coordinates, positions, rotations, contacts = (np.array(part) for part in zip(*states, strict=True))
        positions[..., 2] -= self.floor
        return Episode(coordinates, positions, rotations, contacts > 0)

    def _state(self) -> tuple[np.ndarray, ...]:
        data: Any = self.simulator.data
        return data.qpos.copy(), data.xpos[self._bodies], data.xquat[self._bodies], self.simulator.contacts

    def record_movement(self, seed: int, actions: np.ndarray, every: int, fitness: float) -> Movement:
        """The poses of an episode."""
        _, positions, rotations, contacts = self.record_episode(seed, actions, every)
        return Movement(positions, rotations, contacts, len(actions), fitness)

    def close(self) -> None:
        """Frees the simulation."""
        self.simulator.close()


def _choose_view(
    simulator: MujocoSimulator, visible_geoms: list[int], followed: int, *, planar: bool
) -> tuple[View, float]:
    """The view of a robot, and the height of the floor; without a floor, a height below everything."""
    model = simulator.model
    corners = np.array([_corners(simulator, geom) for geom in visible_geoms]).reshape(-1, 2, 3)
    floor = find_floor(model)
    if floor is None:
        floor = float(corners[:, 0, 2].min(initial=simulator.data.xpos[followed, 2]))
    own = model.body_rootid[model.geom_bodyid[visible_geoms]] == model.body_rootid[followed]
    low, high = (
        choice([*corners[own, end], simulator.data.xpos[followed]], 0)
        for end, choice in enumerate((np.min, np.max))
    )
    radius = max(float(np.linalg.norm(high - low)) / 2, MIN_RADIUS)
    yaw, pitch = SIDE if planar else ABOVE if high[2] - low[2] < MAX_FLAT_HEIGHT * radius else AROUND
    return (yaw, pitch, DISTANCE * radius, float(low[2] + high[2]) / 2 - floor), floor


def _corners(simulator: MujocoSimulator, geom: int) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest corner of the box around a geom."""
    model, data = simulator.model, simulator.data
    axes = data.geom_xmat[geom].reshape(3, 3)
    middle = data.geom_xpos[geom] + axes @ model.geom_aabb[geom, :3]
    half = np.abs(axes) @ model.geom_aabb[geom, 3:]
    return middle - half, middle + half


def make_scenes(
    task: MujocoTask,
    hidden: tuple[int, ...],
    parameters: np.ndarray,
    seeds: list[int],
    size: tuple[int, int],
    physics: Physics | None,
) -> tuple[list[Scene], np.ndarray, np.ndarray, np.ndarray]:
    """The scenes of these controllers' episodes, with fitness, descriptor and length of each."""
    with make_evaluator(task, hidden, None, physics=physics) as evaluator:
        evaluation = evaluator.evaluate(parameters, np.array(seeds), transitions=True)
    recorder = Recorder(task)
    renderer = open_renderer(recorder.simulator.model, size, recorder.robot.view[:3], FIELD_OF_VIEW)
    scenes: list[Scene] = []
    for index, seed in enumerate(seeds):
        actions = evaluation.recorded.actions[index, : evaluation.length[index]]
        scenes.append(MujocoScene(recorder, recorder.record_episode(seed, actions), size, renderer))
    recorder.close()
    return scenes, evaluation.fitness, evaluation.descriptor, evaluation.length


class MujocoScene(PosedScene):
    """An episode that a recorder has recorded."""

    def __init__(
        self, recorder: Recorder, episode: Episode, size: tuple[int, int], renderer: Offscreen | None
    ) -> None:
        robot = recorder.robot
        super().__init__(
            recorder.shapes, episode.positions, episode.rotations, robot.seconds, robot.view, size
        )
        self.threaded = renderer is None
        self._coordinates, self._renderer = episode.coordinates, renderer
        self._floor = np.array([0.0, 0.0, recorder.floor])

    def picture(self, step: int, target: np.ndarray) -> np.ndarray:
        """See `PosedScene.picture`."""
        if self._renderer is None:
            return super().picture(step, target)
        return self._renderer.take_picture(self._coordinates[step], target + self._floor)

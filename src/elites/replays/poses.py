"""The movements of robots as numbers: episodes are run again, as for clips, and all poses are recorded."""

from __future__ import annotations

import ctypes
import os
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from elites.errors import ElitesError
from elites.options import Physics
from elites.tasks.mujoco import MujocoTask
from elites.tasks.qdgym import QDGymTask
from elites.tasks.task import DeviceTask

BATCH = 64  # episodes whose transitions are in memory at once


class Limb(NamedTuple):
    """A capsule that moves with a body: its axis in the body's frame. A sphere's ends are one point."""

    body: int
    start: np.ndarray
    end: np.ndarray
    radius: float
    foot: int  # number of the foot whose contact it has, or -1


class Robot(NamedTuple):
    """A robot's moving parts, and the view of it."""

    bodies: int
    limbs: list[Limb]
    seconds: float  # of a step
    view: tuple[float, float, float, float]  # yaw and pitch in degrees, distance, height of the target


class Movement(NamedTuple):
    """The poses of all bodies at regular steps of an episode, from its beginning."""

    positions: np.ndarray  # [frames, bodies, 3]; the camera follows the first body
    rotations: np.ndarray  # [frames, bodies, 4], w, x, y, z
    contacts: np.ndarray  # [frames, feet], bool
    length: int  # steps of the episode, at most the requested number
    fitness: float  # of these steps


def no_poses_reason(task: Any) -> str:
    """The reason why the episodes of a task have no poses; empty if they have poses."""
    from elites.tasks.brax import BraxTask
    from elites.tasks.function import FunctionTask

    if isinstance(task, QDGymTask | MujocoTask | BraxTask):
        return ""
    if isinstance(task, FunctionTask):
        return f"{task.name} is a function without an environment: there is nothing to draw."
    return f"{task.name} has no robot whose poses are known."


def read_robot(task: Any) -> Robot:
    """The robot of a task."""
    if isinstance(task, QDGymTask | MujocoTask):
        recorder = _recorder(task)
        recorder.close()
        return recorder.robot
    from elites.replays import brax

    return brax.read_robot(task)


def record(
    task: Any,
    hidden: tuple[int, ...],
    parameters: np.ndarray,
    seeds: Sequence[int],
    *,
    steps: int,
    every: int,
    physics: Physics | None,
) -> Iterator[Movement]:
    """The movements of controllers `[n, …]`, each in the episode with its seed, up to `steps` steps.

    The beginning of an episode does not depend on its end, so only these steps are run.
    """
    reason = no_poses_reason(task)
    if reason:
        raise ElitesError(reason)
    short = replace(task, episode_length=min(steps, task.episode_length))
    recording = _record_brax if isinstance(task, DeviceTask) else _record_compiled
    for first in range(0, len(seeds), BATCH):
        part = slice(first, first + BATCH)
        yield from recording(short, hidden, parameters[part], list(seeds[part]), every, physics)


def _record_brax(
    task: Any,
    hidden: tuple[int, ...],
    parameters: np.ndarray,
    seeds: list[int],
    every: int,
    physics: Physics | None,
) -> Iterator[Movement]:
    from elites.replays.brax import BraxScene, make_scenes

    scenes, fitness, _, lengths = make_scenes(task, hidden, parameters, seeds, (32, 32), physics)
    for scene, reward, length in zip(scenes, fitness, lengths, strict=True):
        assert isinstance(scene, BraxScene)
        shown = slice(0, int(length) + 1, every)
        movement = (scene.positions[shown], scene.rotations[shown], scene.contacts[shown])
        yield Movement(*movement, int(length), float(reward))


class _Recorder(Protocol):
    """Steps through the episodes of a compiled task and reads the poses. One thread at a time may use it."""

    robot: Robot

    def record_movement(self, seed: int, actions: np.ndarray, every: int, fitness: float) -> Movement:
        """The poses of an episode that is given by its seed and the controller's actions."""

    def close(self) -> None:
        """Frees the simulation."""


def _recorder(task: QDGymTask | MujocoTask) -> _Recorder:
    if isinstance(task, QDGymTask):
        return _Bullet(task)
    from elites.replays.mujoco import Recorder

    return Recorder(task)


def _record_compiled(
    task: QDGymTask | MujocoTask,
    hidden: tuple[int, ...],
    parameters: np.ndarray,
    seeds: list[int],
    every: int,
    physics: Physics | None,
) -> Iterator[Movement]:
    """Records with one world per thread: an episode does not depend on earlier ones."""
    from elites.evaluation import make_evaluator

    with make_evaluator(task, hidden, None, physics=physics) as evaluator:
        evaluation = evaluator.evaluate(parameters, np.array(seeds), transitions=True)
    own, recorders = threading.local(), []

    def movement(index: int) -> Movement:
        if not hasattr(own, "recorder"):
            own.recorder = _recorder(task)
            recorders.append(own.recorder)
        recorder: _Recorder = own.recorder
        actions = evaluation.recorded.actions[index, : evaluation.length[index]]
        return recorder.record_movement(seeds[index], actions, every, float(evaluation.fitness[index]))

    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            yield from pool.map(movement, range(len(seeds)))
    finally:
        for recorder in recorders:
            recorder.close()


class _Bullet:
    """A QDGym robot in its world, from which the poses of its links are read."""

    def __init__(self, task: QDGymTask) -> None:
        from elites.replays.bullet import SIDE, VIEWS
        from elites.tasks.qdgym import episode
        from elites.tasks.qdgym.simulator import QDGymSimulator

        self.simulator = QDGymSimulator(task)
        self.anatomy = self.simulator.anatomy
        self._pointers = (ctypes.c_ssize_t * 3)()
        feet = {int(self.anatomy.contacts[foot]): number for number, foot in enumerate(self.anatomy.feet)}
        self.simulator.begin(0)
        _, inertial = self._read()
        shapes = _shapes(task.robot.model)
        links = [link for link in shapes if link != self.anatomy.torso]
        self.links = [self.anatomy.torso, *sorted(links)]  # the torso is followed
        limbs = [
            Limb(
                self.links.index(link),
                start - inertial[link],
                end - inertial[link],
                radius,
                feet.get(link, -1),
            )
            for link, capsules in shapes.items()
            for start, end, radius in capsules
        ]
        self.robot = Robot(len(self.links), limbs, episode.TIME_STEP, VIEWS.get(task.robot.model, SIDE))

    def record_movement(self, seed: int, actions: np.ndarray, every: int, fitness: float) -> Movement:
        """The poses of an episode that is given by its seed and the controller's actions."""
        self.simulator.begin(seed)
        contact = np.zeros(len(self.anatomy.feet), bool)
        poses, contacts = [self._poses()], [contact]
        for step, action in enumerate(actions, 1):
            contact = self.simulator.step(np.ascontiguousarray(action))[3] > 0
            if step % every == 0:
                poses.append(self._poses())
                contacts.append(contact)
        recorded = np.array(poses)
        return Movement(
            recorded[..., :3], recorded[..., [6, 3, 4, 5]], np.array(contacts), len(actions), fitness
        )

    def _poses(self) -> np.ndarray:
        """Position and rotation (x, y, z, w) of each body."""
        return self._read()[0][[link % (self.anatomy.links + 1) for link in self.links]]

    def _read(self) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """The poses of the links' centres of mass, the base last, and their positions in the links."""
        client, links = self.simulator.world.client, self.anatomy.links
        submit, process, request, actual = _calls()
        submit(client, request(client, self.simulator.world.body))
        status = process(client)
        base, inertial, states = (ctypes.addressof(self._pointers) + 8 * index for index in range(3))
        actual(status, 0, 0, 0, 0, 0, base, 0, 0, inertial, 0, states, 0)
        poses = np.empty((links + 1, 7))
        poses[:links] = _doubles(self._pointers[2], 7 * links).reshape(links, 7)
        poses[links] = _doubles(self._pointers[0], 7)
        centres = _doubles(self._pointers[1], 7 * links).reshape(links, 7)[:, :3]
        return poses, {-1: np.zeros(3), **{link: centres[link].copy() for link in range(links)}}

    def close(self) -> None:
        self.simulator.close()


def _calls() -> tuple[Callable[..., Any], ...]:
    """Bullet's functions that read a state."""
    from elites.tasks.qdgym import bullet as b3

    address, integer = ctypes.c_ssize_t, ctypes.c_int
    signatures: dict[str, tuple[Any, ...]] = {
        "b3SubmitClientCommand": (integer, address, address),
        "b3ProcessServerStatus": (address, address),
        "b3RequestActualStateCommandInit": (address, address, integer),
        "b3GetStatusActualState2": (integer, *[address] * 13),
    }
    return tuple(ctypes.CFUNCTYPE(*types)((name, b3.library.library)) for name, types in signatures.items())


def _doubles(at: int, count: int) -> np.ndarray:
    return np.array((ctypes.c_double * count).from_address(at))


def _shapes(model: str) -> dict[int, list[tuple[np.ndarray, np.ndarray, float]]]:
    """The capsules of each link, from the robot's model file: Bullet has no function for them."""
    from elites.tasks.qdgym.simulator import ASSETS, load_joints

    links = {joint.link_name.decode(): joint.link for joint in load_joints(model)}
    capsules: dict[int, list[tuple[np.ndarray, np.ndarray, float]]] = {}
    root = ElementTree.parse(ASSETS / "mjcf" / model).getroot()
    for body in root.iter("body"):
        for geom in body.findall("geom"):
            capsules.setdefault(links.get(body.get("name", ""), -1), []).append(_capsule(geom))
    return capsules


def _capsule(geom: ElementTree.Element) -> tuple[np.ndarray, np.ndarray, float]:
    """The ends and the radius of a capsule or a sphere in a model file."""

    def values(name: str, usual: str) -> np.ndarray:
        return np.array(geom.get(name, usual).split(), float)

    size = values("size", "0")
    ends = values("fromto", "")
    if len(ends):
        return ends[:3], ends[3:], float(size[0])
    middle = values("pos", "0 0 0")
    x, y, z, angle = values("axisangle", "0 0 1 0")
    axis = np.array([x, y, z]) / np.linalg.norm([x, y, z])
    up = np.array([0.0, 0.0, 1.0])  # turned by Rodrigues' formula
    along = up * np.cos(angle) + np.cross(axis, up) * np.sin(angle) + axis * axis[2] * (1 - np.cos(angle))
    half = along * (size[1] if len(size) > 1 else 0.0)
    return middle - half, middle + half, float(size[0])

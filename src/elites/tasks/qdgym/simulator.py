"""A QDGym robot in its own Bullet world: whole episodes, or step by step."""

from __future__ import annotations

import threading
import weakref
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from elites.errors import ElitesError
from elites.tasks.action_noise import draw_noise
from elites.tasks.episode import EpisodeResult, Transitions
from elites.tasks.loops import INVALID, Trace, empty_trace
from elites.tasks.qdgym import bullet, episode
from elites.tasks.qdgym.robots import FLOOR, Robot

if TYPE_CHECKING:
    from elites.tasks.qdgym import QDGymTask

ASSETS = bullet.FILES.models
FLAGS = bullet.USE_SELF_COLLISION | bullet.EXCLUDE_ALL_PARENTS
_LOADING = threading.Lock()  # Bullet's model reader numbers fixed joints in a global


@cache
def load_joints(name: str) -> tuple[bullet.Joint, ...]:
    return tuple(bullet.read_joints(str(ASSETS / "mjcf" / name), FLAGS))


def read_anatomy(robot: Robot) -> episode.Anatomy:
    """The anatomy of a robot, from its model file and the facts in `robots`."""
    joints = load_joints(robot.model)
    links = {joint.link_name.decode(): joint.link for joint in joints}
    moving = [joint for joint in joints if joint.position_index >= 0]
    motors = [joint for joint in moving if not joint.joint_name.startswith(b"ignore")]
    torso = links.get("torso", -1)

    def indices(values: list[int]) -> np.ndarray:
        return np.array(values, np.int32)

    return episode.Anatomy(
        links=len(joints),
        torso=torso,
        parts=indices([0, torso] + [link for link in range(1, len(joints)) if link != torso]),
        contacts=indices([links[contact] for contact in robot.contacts]),
        feet=indices([robot.contacts.index(foot) for foot in robot.feet]),
        fatal=np.array([contact in robot.fatal for contact in robot.contacts]),
        moving_position=indices([joint.position_index for joint in moving]),
        moving_velocity=indices([joint.velocity_index for joint in moving]),
        joint=indices([joint.link for joint in motors]),
        position=indices([joint.position_index for joint in motors]),
        velocity=indices([joint.velocity_index for joint in motors]),
        low=np.array([joint.low for joint in motors]),
        high=np.array([joint.high for joint in motors]),
        torque=np.array(
            [robot.power * robot.strength.get(joint.joint_name.decode(), 100.0) for joint in motors]
        ),
        min_height=robot.min_height,
        max_pitch=robot.max_pitch,
    )


class QDGymSimulator:
    """Episodes of one task. One thread at a time may use it."""

    truncated = False  # never: see `Simulator`

    def __init__(self, task: QDGymTask) -> None:
        self.task = task
        self.anatomy = read_anatomy(task.robot)
        self._empty_trace = empty_trace(
            task.observation_size, task.action_size, np.empty((0, task.descriptor_size), np.uint8)
        )
        self._observation = np.zeros(task.observation_size, np.float32)
        self._contacts = np.zeros(len(self.anatomy.contacts), np.float32)
        self._initial_height = self._distance = 0.0
        self._open()
        self._compile()

    def draw_angles(self, generator: np.random.Generator) -> np.ndarray:
        """Random initial joint angles, as in PyBullet's own environments."""
        if self.task.noise == 0:
            return np.zeros(self.task.action_size)
        if self.task.noise_distribution == "normal":
            return generator.normal(0, self.task.noise, self.task.action_size)
        return generator.uniform(-self.task.noise, self.task.noise, self.task.action_size)

    def run(
        self,
        parameters: np.ndarray,
        sizes: np.ndarray,
        seed: int,
        stop: np.ndarray,
        transitions: Transitions[np.ndarray] | None,
        action_noise: float = 0.0,
    ) -> EpisodeResult:
        """Runs one episode: see `elites.tasks.task.Simulator`. Shapes are not checked."""
        self._require_open()
        fitness, descriptor, length, ending = episode.rollout(
            self.world,
            self.anatomy,
            parameters,
            sizes,
            self.draw_angles(np.random.default_rng(seed)),
            self.task.episode_length,
            self.task.ends_on_fall,
            stop,
            self._empty_trace if transitions is None else Trace(*transitions),
            draw_noise(seed, action_noise, self.task.episode_length, self.task.action_size),
        )
        if ending == INVALID:  # a world that has held NaN is not used again
            self.close()
            self._open()
        return EpisodeResult(fitness, descriptor, length, ending)

    def begin(self, seed: int) -> np.ndarray:
        """Starts the episode with this seed. Returns the observation."""
        return self.reset(self.draw_angles(np.random.default_rng(seed)))

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One control step. Returns (observation, reward, whether the task ended the episode)."""
        observation, reward, upright, _ = self.step(action)
        return observation, reward, self.task.ends_on_fall and not upright

    def reset(self, angles: np.ndarray) -> np.ndarray:
        """Starts an episode with the joints at these angles. Returns the observation."""
        self._require_open()
        self._initial_height, self._distance = episode.reset(
            self.world, self.anatomy, angles, self._contacts, self._observation
        )
        return self._observation.copy()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, np.ndarray]:
        """One control step by a float32 action. Returns (observation, reward, upright, foot contacts)."""
        self._require_open()
        reward, upright, self._distance = episode.step(
            self.world,
            self.anatomy,
            action,
            self._initial_height,
            self._distance,
            self._contacts,
            self._observation,
        )
        return self._observation.copy(), reward, upright, self._contacts[self.anatomy.feet]

    def close(self) -> None:
        """Frees the Bullet world. Closing twice does nothing."""
        self._free()

    def _require_open(self) -> None:
        if not self._free.alive:
            raise ElitesError(f"this simulation of {self.task.name} is closed")

    def _open(self) -> None:
        plane, model = (
            np.frombuffer(str(ASSETS / path).encode() + b"\0", np.uint8)
            for path in (FLOOR[0], f"mjcf/{self.task.robot.model}")
        )
        with _LOADING:
            self.world = episode.World(*episode.create(self.anatomy, plane, model, FLAGS))
        self._free = weakref.finalize(self, episode.destroy, self.world.client)
        if min(self.world) < 0:
            raise ElitesError(f"Bullet could not load {self.task.robot.model} from {ASSETS}")

    def _compile(self) -> None:
        """Runs an episode of no steps to compile all code, so that no later episode or interrupt waits."""
        parameters = np.zeros(0, np.float32)
        parameters.flags.writeable = False
        sizes = np.zeros(1, np.int64)
        angles = np.zeros(self.task.action_size)
        stop = np.ones(1, np.uint8)
        noise, trace = draw_noise(0, 0.0, 0, self.task.action_size), self._empty_trace
        episode.rollout(self.world, self.anatomy, parameters, sizes, angles, 0, True, stop, trace, noise)

"""A robot in MuJoCo: whole episodes, or step by step."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import mujoco
import numpy as np

from elites.errors import ElitesError
from elites.tasks.action_noise import draw_noise
from elites.tasks.episode import EpisodeResult, Transitions
from elites.tasks.loops import Trace, empty_trace
from elites.tasks.mujoco import AntTask, MujocoTask, Walls, episode, interface
from elites.tasks.mujoco.library import (
    compile_spec,
    find_geoms,
    identify,
    model_path,
    modification_time,
    read_spec,
    view_contacts,
    view_time,
)
from elites.tasks.mujoco.robot_state import Arrays, find_address, tabulate

WALL_HEIGHT = 1.0  # half of it, in m
PLACES = {"root": episode.ROOT, "body": episode.BODY, "mass": episode.MASS}
KINDS = {"feet": episode.FEET, "position": episode.POSITION, "velocity": episode.VELOCITY}
_LOADING = threading.Lock()


@cache
def _model(path: str, modified: int, walls: Walls) -> Any:
    """A model, which all simulators share: it does not change."""
    spec = read_spec(path)
    for x, y, half_x, half_y in walls:
        spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[x, y, WALL_HEIGHT],
            size=[half_x, half_y, WALL_HEIGHT],
            conaffinity=1,
        )
    model = compile_spec(spec, path)
    if model.ntree == 1:  # one robot is one island: looking for more takes 5 % of the time
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, "mjDSBL_ISLAND", 0))  # 0: never looks
    return model


def make_model(task: MujocoTask) -> Any:
    """The model of a task, with its walls."""
    path = model_path(task.model)
    with _LOADING:
        return _model(str(path), modification_time(path), task.walls)


class MujocoSimulator:
    """Episodes of one task. One thread at a time may use it."""

    truncated = False  # never: see `Simulator`

    def __init__(self, task: MujocoTask) -> None:
        self.task = task
        self.model = make_model(task)
        self.data = mujoco.MjData(self.model)
        self.world = _make_world(self.model, self.data)
        self._start = _read_start(task, self.model)
        self.rules = _make_rules(task, self.model, self.data, self._start)
        self._observation = np.zeros(task.observation_size)
        self._empty_trace = empty_trace(
            task.observation_size,
            task.action_size,
            np.empty((0, task.step_descriptor_size), task.step_descriptor_dtype),
        )
        self._open = True
        self._compile()

    def draw_initial_state(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Random initial coordinates and velocities, as in Gymnasium's environments."""
        noise = self.task.noise
        qpos = self._start + generator.uniform(low=-noise, high=noise, size=self.model.nq)
        if self.task.normal_velocities:
            return qpos, noise * generator.standard_normal(self.model.nv)
        return qpos, generator.uniform(low=-noise, high=noise, size=self.model.nv)

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
        return EpisodeResult(
            *episode.rollout(
                self.world,
                self.rules,
                parameters,
                sizes,
                *self.draw_initial_state(np.random.default_rng(seed)),
                self.task.episode_length,
                stop,
                self._empty_trace if transitions is None else Trace(*transitions),
                draw_noise(seed, action_noise, self.task.episode_length, self.task.action_size),
            )
        )

    def begin(self, seed: int) -> np.ndarray:
        """Starts the episode with this seed. Returns the observation."""
        return self.reset(*self.draw_initial_state(np.random.default_rng(seed))).astype(np.float32)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One control step. Returns (observation, reward, whether the task ended the episode)."""
        control = self.rules.middle + self.rules.half * action
        observation, reward, ended = self.step(control)
        return observation.astype(np.float32), reward, ended

    def reset(self, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Starts an episode with these coordinates and velocities. Returns the observation."""
        self._require_open()
        episode.reset(self.world, self.rules, qpos, qvel, self._observation)
        return self._observation.copy()

    def step(self, control: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One control step by a float32 control, in the actuators' units.

        Returns (observation in float64, reward, whether the task ends the episode).
        """
        self._require_open()
        reward, ended = episode.step(self.world, self.rules, control, self._observation)
        return self._observation.copy(), reward, ended

    @property
    def contacts(self) -> np.ndarray:
        """Whether each foot touched the ground in the last step."""
        return self.rules.touching.astype(np.uint8)

    @property
    def step_descriptor(self) -> np.ndarray:
        """The descriptor of the last step."""
        described = np.zeros(self.task.descriptor_size)
        episode.describe(self.rules, described)
        return described

    @property
    def warnings(self) -> int:
        """MuJoCo's warnings since the start of the episode."""
        return int(episode.count_warnings(self.world))

    def close(self) -> None:
        """Frees the simulation. Closing twice does nothing."""
        self._open = False

    def _require_open(self) -> None:
        if not self._open:
            raise ElitesError(f"this simulation of {self.task.name} is closed")

    def _compile(self) -> None:
        """Runs an episode of no steps to compile all code, so that no later episode or interrupt waits."""
        parameters = np.zeros(0, np.float32)
        parameters.flags.writeable = False
        episode.rollout(
            self.world,
            self.rules,
            parameters,
            np.zeros(1, np.int64),
            self._start,
            np.zeros(self.model.nv),
            0,
            np.ones(1, np.uint8),
            self._empty_trace,
            draw_noise(0, 0.0, 0, self.task.action_size),
        )


def _make_world(model: Any, data: Any) -> episode.World:
    count, contacts = view_contacts(data, interface.LAYOUT)
    return episode.World(
        model=model._address,
        data=data._address,
        qpos=data.qpos,
        qvel=data.qvel,
        ctrl=data.ctrl,
        xpos=data.xpos,
        xipos=data.xipos,
        forces=data.cfrc_ext.reshape(-1),
        warnings=data.warning.number,
        contact_count=count,
        contacts=contacts,
    )


def _read_start(task: MujocoTask, model: Any) -> np.ndarray:
    """The initial coordinates of an episode, without noise."""
    if not task.keyframe:
        return np.array(model.qpos0)
    return np.array(model.key_qpos[identify(model, "key", task.keyframe, task.name)])


def _make_rules(task: MujocoTask, model: Any, data: Any, start: np.ndarray) -> episode.Rules:
    observed = _list_observed(task, data)
    low, high = model.actuator_ctrlrange.astype(np.float32).T
    feet = np.full(model.ngeom, -1, np.int64)
    for index, (foot, _) in enumerate(task.robot.feet):
        feet[find_geoms(model, foot, task.name)] = index
    is_body = task.place == "body"
    position, velocity, touching = np.zeros(2), np.zeros(2), np.zeros(len(task.robot.feet))
    state = _read_state(model, data, start, position, velocity, touching)
    lowest, highest = task.healthy_z_range
    if isinstance(task, AntTask):  # both ends of its range are healthy
        lowest, highest = np.nextafter(lowest, -np.inf), np.nextafter(highest, np.inf)
    return episode.Rules(
        frames=task.frame_skip,
        duration=model.opt.timestep * task.frame_skip,
        middle=(low + high) / 2,
        half=(high - low) / 2,
        observed=np.array([(values.ctypes.data, values.size) for values, _ in observed], np.int64),
        limits=np.array([limits for _, limits in observed], np.float64),
        feet=feet,
        ground=model.body_weldid[model.geom_bodyid] == 0,
        foot_count=len(task.robot.feet),
        place=PLACES[task.place],
        dimensions=task.robot.dimensions,
        body=identify(model, "body", task.main_body, task.name) if is_body else 0,
        masses=model.body_mass.copy(),
        mass=float(model.body_mass.sum()),
        forward_weight=task.forward_reward_weight,
        goal=np.array(task.goal, np.float64),
        healthy_reward=task.healthy_reward,
        control_weight=task.ctrl_cost_weight,
        control_in_double=task.double_control,
        contact_weight=task.contact_cost_weight,
        force_limits=np.array(task.contact_force_range),
        contact_cost_limits=np.array(task.contact_cost_range),
        needs_forces=task.contact_cost_weight != 0
        or task.include_cfrc_ext_in_observation
        or bool(task.reward or task.ends),
        height=min(task.robot.dimensions, model.nq - 1),
        height_limits=np.array([lowest, highest]),
        angle_limits=np.array(task.healthy_angle_range),
        state_limits=np.array(task.healthy_state_range),
        ends_unhealthy=task.terminate_when_unhealthy,
        descriptor=KINDS[task.descriptor],
        reward=find_address(task.reward, "reward", state),
        ends=find_address(task.ends, "ends", state),
        state_table=tabulate(state),
        position=position,
        velocity=velocity,
        touching=touching,
    )


def _read_state(
    model: Any,
    data: Any,
    start: np.ndarray,
    position: np.ndarray,
    velocity: np.ndarray,
    touching: np.ndarray,
) -> Arrays:
    """The arrays of a RobotState, as they are at the beginning of an episode."""
    data.qpos[:] = start
    mujoco.mj_forward(model, data)
    return {
        "time": view_time(data, interface.LAYOUT),
        "qpos": data.qpos,
        "qvel": data.qvel,
        "ctrl": data.ctrl,
        "actuator_force": data.actuator_force,
        "sensordata": data.sensordata,
        "xpos": data.xpos,
        "xquat": data.xquat,
        "cvel": data.cvel,
        "cfrc_ext": data.cfrc_ext,
        "contacts": touching,
        "position": position,
        "velocity": velocity,
    }


def _list_observed(task: MujocoTask, data: Any) -> list[tuple[np.ndarray, tuple[float, float]]]:
    """The arrays that make up an observation, and what they are clipped to."""
    unlimited = (-np.inf, np.inf)
    observed = [
        (data.qpos[task.hidden_positions :], unlimited),
        (data.qvel, (-task.speed_limit, task.speed_limit)),
    ]
    further = (
        (task.include_cinert_in_observation, data.cinert[1:], unlimited),
        (task.include_cvel_in_observation, data.cvel[1:], unlimited),
        (task.include_qfrc_actuator_in_observation, data.qfrc_actuator[6:], unlimited),
        (task.include_cfrc_ext_in_observation, data.cfrc_ext[1:], task.contact_force_range),
    )
    return observed + [(values, limits) for included, values, limits in further if included]

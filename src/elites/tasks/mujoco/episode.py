"""MuJoCo's robots compiled: whole episodes without the interpreter and without its lock.

The order of operations and their precision are those of Gymnasium's environments, so that results agree.
All code that Numba compiles is in this file, in `interface.py`, in `elites.tasks.loops`, in
`elites.c_library` and in `elites.policies.numba`.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numba import carray

from elites import c_library
from elites.c_library import pointer
from elites.machine_code import Compiler
from elites.policies import numba as policy
from elites.tasks import loops
from elites.tasks.loops import (
    INVALID,
    STOPPED,
    TERMINATED,
    TRUNCATED,
    Trace,
    add_noise,
    any_nan,
    clear,
    fill,
    pairwise_sum,
    widest,
)
from elites.tasks.mujoco import interface as mj

compiled = Compiler(
    __file__, mj.__file__, c_library.__file__, loops.__file__, policy.__file__, mj.DESCRIPTION
)

ROOT, BODY, MASS = 0, 1, 2  # places of a robot: its first coordinates, a body, the centre of mass
FEET, POSITION, VELOCITY = 0, 1, 2  # descriptors


class World(NamedTuple):
    """A model and the state of a simulation. One thread at a time may use it. Arrays are MuJoCo's memory."""

    model: int
    data: int
    qpos: np.ndarray
    qvel: np.ndarray
    ctrl: np.ndarray
    xpos: np.ndarray
    xipos: np.ndarray
    forces: np.ndarray  # cfrc_ext, flat
    warnings: np.ndarray  # the number of each kind since the reset
    contact_count: np.ndarray
    contacts: np.ndarray  # the address of the first one


class Rules(NamedTuple):
    """Facts about a task for compiled code."""

    frames: int  # physics steps of a control step
    duration: float  # of a control step, in s
    middle: np.ndarray  # of each actuator's range, float32
    half: np.ndarray
    observed: np.ndarray  # [k, 2]: address and number of the values, in order
    limits: np.ndarray  # [k, 2]: what they are clipped to
    feet: np.ndarray  # per geom: the foot it belongs to, or -1
    ground: np.ndarray  # per geom: whether it is part of the world
    foot_count: int
    place: int
    dimensions: int  # in which the robot moves: 1 or 2
    body: int
    masses: np.ndarray
    mass: float
    forward_weight: float
    goal: np.ndarray  # its position; empty: forwards is along x
    healthy_reward: float
    control_weight: float
    control_in_double: bool  # whether the cost is of MuJoCo's controls, not of the action in float32
    contact_weight: float
    force_limits: np.ndarray
    contact_cost_limits: np.ndarray
    needs_forces: bool
    height: int  # index of the coordinate that must be within a range; the next one is the angle
    height_limits: np.ndarray  # both excluded
    angle_limits: np.ndarray
    state_limits: np.ndarray  # of the coordinates from the angle on, and of the velocities
    ends_unhealthy: bool
    descriptor: int
    reward: int  # address of a function of the robot's state, or 0
    ends: int
    state_table: np.ndarray  # [k, 3], for these functions: see `elites.tasks.mujoco.robot_state`
    position: np.ndarray  # x and y, float64, as they are given
    velocity: np.ndarray
    touching: np.ndarray  # per foot, float64


@compiled
def locate_robot(world: World, rules: Rules) -> tuple[float, float]:
    """Where the robot is."""
    if rules.place == BODY:
        return world.xpos[rules.body, 0], world.xpos[rules.body, 1]
    if rules.place == MASS:
        x, y = 0.0, 0.0
        for i in range(len(rules.masses)):
            x += rules.masses[i] * world.xipos[i, 0]
            y += rules.masses[i] * world.xipos[i, 1]
        return x / rules.mass, y / rules.mass
    return world.qpos[0], world.qpos[1] if rules.dimensions == 2 else 0.0


@compiled
def observe(rules: Rules, observation: np.ndarray) -> None:
    """Fills in the observation."""
    at = 0
    for k in range(len(rules.observed)):
        values = carray(pointer(rules.observed[k, 0]), rules.observed[k, 1], np.float64)
        low, high = rules.limits[k, 0], rules.limits[k, 1]
        for i in range(len(values)):
            value = values[i]
            observation[at] = low if value < low else (high if value > high else value)  # NaN stays
            at += 1


@compiled
def find_contacts(world: World, rules: Rules) -> None:
    """Sets each foot to 1 if it touches the ground, else to 0."""
    clear(rules.touching)
    points = carray(pointer(world.contacts[0]), world.contact_count[0], mj.CONTACT)
    for k in range(len(points)):
        first, second = points[k]["geom"], points[k]["other_geom"]
        if points[k]["exclude"] == 0 and first >= 0 and second >= 0:
            if rules.ground[first] and rules.feet[second] >= 0:
                rules.touching[rules.feet[second]] = 1
            if rules.ground[second] and rules.feet[first] >= 0:
                rules.touching[rules.feet[first]] = 1


@compiled
def within(value: float, limits: np.ndarray) -> bool:
    return bool(limits[0] < value < limits[1])


@compiled
def is_healthy(world: World, rules: Rules) -> bool:
    if not within(world.qpos[rules.height], rules.height_limits):
        return False
    for i in range(rules.height + 1, len(world.qpos)):
        if not within(world.qpos[i], rules.state_limits):
            return False
    for i in range(len(world.qvel)):
        if not within(world.qvel[i], rules.state_limits):
            return False
    return rules.height + 1 == len(world.qpos) or within(world.qpos[rules.height + 1], rules.angle_limits)


@compiled
def control_cost(world: World, rules: Rules, control: np.ndarray) -> float:
    if rules.control_in_double:
        return rules.control_weight * pairwise_sum(world.ctrl * world.ctrl)
    return float(np.float32(rules.control_weight) * pairwise_sum(control * control))


@compiled
def contact_cost(world: World, rules: Rules) -> float:
    if rules.contact_weight == 0:
        return 0.0
    low, high = rules.force_limits
    squares = np.empty(len(world.forces))
    for i in range(len(squares)):
        force = min(max(world.forces[i], low), high)
        squares[i] = force * force
    cost = rules.contact_weight * pairwise_sum(squares)
    return min(max(cost, rules.contact_cost_limits[0]), rules.contact_cost_limits[1])  # type: ignore[no-any-return]


@compiled
def distance_to(goal: np.ndarray, x: float, y: float) -> float:
    return sqrt((goal[0] - x) ** 2 + (goal[1] - y) ** 2)


@compiled
def built_in_reward(
    world: World, rules: Rules, control: np.ndarray, before_x: float, before_y: float
) -> tuple[float, bool]:
    """The reward of a control step and whether it ends the episode, by the rules of Gymnasium's robots."""
    x, y = rules.position[0], rules.position[1]
    speed = rules.velocity[0]
    if len(rules.goal) == 2:
        before = distance_to(rules.goal, before_x, before_y)
        speed = (before - distance_to(rules.goal, x, y)) / rules.duration
    healthy = is_healthy(world, rules)
    gains = rules.forward_weight * speed + (rules.healthy_reward if healthy else 0.0)
    reward = gains - (control_cost(world, rules, control) + contact_cost(world, rules))
    return reward, rules.ends_unhealthy and not healthy


@compiled
def measure_step(
    world: World, rules: Rules, control: np.ndarray, before_x: float, before_y: float
) -> tuple[float, bool]:
    """The reward of a control step, and whether the task ends the episode after it."""
    x, y = locate_robot(world, rules)
    rules.position[0], rules.position[1] = x, y
    rules.velocity[0] = (x - before_x) / rules.duration
    rules.velocity[1] = (y - before_y) / rules.duration
    find_contacts(world, rules)
    if rules.reward != 0:
        reward, ended = mj.call(rules.reward, rules.state_table.ctypes.data), False
    else:
        reward, ended = built_in_reward(world, rules, control, before_x, before_y)
    if rules.ends != 0:
        answer = mj.call(rules.ends, rules.state_table.ctypes.data)
        ended = answer != 0
        if np.isnan(answer):  # the function failed
            reward = np.nan
    return reward, ended


@compiled
def reset(world: World, rules: Rules, qpos: np.ndarray, qvel: np.ndarray, observation: np.ndarray) -> None:
    """Starts an episode with these coordinates and velocities."""
    mj.reset(world.model, world.data)
    fill(world.qpos, qpos)
    fill(world.qvel, qvel)
    mj.forward(world.model, world.data)
    rules.position[0], rules.position[1] = locate_robot(world, rules)
    clear(rules.velocity)
    clear(rules.touching)
    observe(rules, observation)


@compiled
def advance(world: World, rules: Rules, control: np.ndarray) -> None:
    """MuJoCo's own share of a control step."""
    fill(world.ctrl, control)
    for _ in range(rules.frames):
        mj.step(world.model, world.data)
    if rules.needs_forces:
        mj.external_forces(world.model, world.data)


@compiled
def step(world: World, rules: Rules, control: np.ndarray, observation: np.ndarray) -> tuple[float, bool]:
    """One control step by a float32 control. Returns (reward, whether the task ends the episode)."""
    x, y = locate_robot(world, rules)
    advance(world, rules, control)
    result = measure_step(world, rules, control, x, y)
    observe(rules, observation)
    return result


@compiled
def count_warnings(world: World) -> int:
    """MuJoCo's warnings since the reset: states that are not finite, or too little memory for contacts."""
    count = 0
    for number in world.warnings:
        count += number
    return count


@compiled
def describe(rules: Rules, step_descriptor: np.ndarray) -> None:
    """Fills in the descriptor of the last step."""
    for i in range(len(step_descriptor)):
        if rules.descriptor == FEET:
            step_descriptor[i] = rules.touching[i]
        elif rules.descriptor == POSITION:
            step_descriptor[i] = rules.position[i]
        else:
            step_descriptor[i] = rules.velocity[i]


@compiled
def rollout(
    world: World,
    rules: Rules,
    parameters: np.ndarray,
    sizes: np.ndarray,
    qpos: np.ndarray,
    qvel: np.ndarray,
    max_steps: int,
    stop: np.ndarray,
    trace: Trace,
    noise: np.ndarray,
) -> tuple[float, np.ndarray, int, int]:
    """One episode. Returns its fitness, its descriptor, its length and how it ended.

    Row t of `noise` is added to the action of step t, and the sum is clipped to ±1. Steps after the last row
    have no noise.
    """
    motors = len(rules.half)
    observation = np.empty(rules.observed[:, 1].sum())
    action, control = np.empty(motors, np.float32), np.empty(motors, np.float32)
    width = widest(sizes)
    inputs, outputs = np.empty(width, np.float32), np.empty(width, np.float32)
    described = rules.foot_count if rules.descriptor == FEET else rules.dimensions
    step_descriptor, descriptor = np.zeros(described), np.zeros(described)
    fitness, steps, ending = 0.0, 0, TRUNCATED

    reset(world, rules, qpos, qvel, observation)
    while steps < max_steps:
        if stop[0]:
            ending = STOPPED
            break
        fill(inputs, observation)
        policy.perceptron(parameters, sizes, inputs, outputs, action)
        if any_nan(action):
            ending = INVALID
            break
        add_noise(action, noise, steps)
        recorded = steps < len(trace.rewards)
        if recorded:
            fill(trace.observations[steps], observation)
            fill(trace.actions[steps], action)
        for i in range(motors):
            control[i] = rules.middle[i] + rules.half[i] * action[i]
        reward, ended = step(world, rules, control, observation)
        describe(rules, step_descriptor)
        if recorded:
            fill(trace.observations[steps + 1], observation)
            for i in range(trace.step_descriptors.shape[1]):
                trace.step_descriptors[steps, i] = step_descriptor[i]
            trace.rewards[steps] = reward
        fitness += reward
        for i in range(described):
            descriptor[i] += step_descriptor[i]
        steps += 1
        if count_warnings(world) > 0 or any_nan(observation) or not np.isfinite(reward):
            ending = INVALID
            break
        if ended:
            ending = TERMINATED
            break
    if ending == INVALID:
        fitness = np.nan
    for i in range(described):
        if ending == INVALID:
            descriptor[i] = np.nan
        elif rules.descriptor == POSITION:
            descriptor[i] = step_descriptor[i] if steps > 0 else rules.position[i]
        elif steps > 0:
            descriptor[i] /= steps
    return fitness, descriptor, steps, ending

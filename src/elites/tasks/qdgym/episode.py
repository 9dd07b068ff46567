"""QDGym compiled: whole episodes without the interpreter and without its lock.

The order of operations and their precision are those of PyBullet's own environments, so that results agree.
Lines marked "sic" look wrong, but are part of the task as published results have it.
All code that Numba compiles is in this file, in `bullet.py`, in `elites.tasks.loops`, in `elites.c_library`
and in `elites.policies.numba`.
"""

from __future__ import annotations

from math import asin, atan2, cos, pi, sin, sqrt
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
from elites.tasks.qdgym import bullet as b3

TIME_STEP = 0.0165
TARGET_X, TARGET_Y = 1e3, 0.0

compiled = Compiler(__file__, b3.__file__, c_library.__file__, loops.__file__, policy.__file__)


class World(NamedTuple):
    """A physics client that holds a robot on a floor. One thread at a time may use it."""

    client: int
    floor: int
    body: int
    start: int  # saved state


class Anatomy(NamedTuple):
    """Facts about a robot for compiled code. Links, joints and coordinates are Bullet's indices."""

    links: int
    torso: int  # a link; -1 is the base
    parts: np.ndarray  # links whose mean position is the robot's; -1 is the base
    contacts: np.ndarray  # links whose contact with the floor is observed
    feet: np.ndarray  # positions among `contacts`
    fatal: np.ndarray  # per contact: whether it must not happen
    moving_position: np.ndarray  # per joint that moves, motor or not
    moving_velocity: np.ndarray
    joint: np.ndarray  # per motor, as are those below
    position: np.ndarray
    velocity: np.ndarray
    low: np.ndarray
    high: np.ndarray
    torque: np.ndarray
    min_height: float
    max_pitch: float


@compiled
def submit(client: int, command: int) -> int:
    b3.submit_command(client, command)
    return b3.process_status(client)  # type: ignore[no-any-return]


@compiled
def set_physics(client: int) -> None:
    command = b3.physics(client)
    b3.set_gravity(command, 0.0, 0.0, -9.8)
    b3.set_contact_erp(command, 0.9)
    b3.set_solver_iterations(command, 5)
    b3.set_substeps(command, 4)
    b3.set_time_step(command, TIME_STEP)
    submit(client, command)


@compiled
def disable_motors(client: int, body: int, positions: np.ndarray, velocities: np.ndarray) -> None:
    command = b3.control(client, body, b3.POSITION_CONTROL)
    for i in range(len(positions)):
        b3.control_position(command, positions[i], 0.0)
        b3.control_velocity(command, velocities[i], 0.0)
        b3.control_kp(command, velocities[i], 0.1)
        b3.control_kd(command, velocities[i], 0.1)
        b3.control_max_force(command, velocities[i], 0.0)
    submit(client, command)


@compiled
def pose_joints(client: int, body: int, anatomy: Anatomy, angles: np.ndarray) -> None:
    """Puts the motors' joints at these angles, at rest and free to move."""
    command = b3.pose(client, body)
    for i in range(len(angles)):
        b3.pose_position(client, command, anatomy.joint[i], angles[i])
        b3.pose_velocity(client, command, anatomy.joint[i], 0.0)
    submit(client, command)
    disable_motors(client, body, anatomy.position, anatomy.velocity)


@compiled
def only_body(status: int) -> int:
    """The body that a load command created; -1 if it did not create just one."""
    bodies = np.empty(16, np.int32)
    count = b3.body_indices(status, bodies.ctypes.data, 16)
    return np.int64(bodies[0]) if count == 1 else np.int64(-1)  # type: ignore[return-value]


@compiled
def create(anatomy: Anatomy, plane_path: np.ndarray, model_path: np.ndarray, flags: int) -> tuple[int, ...]:
    """The fields of a World, some -1 on failure. Paths are bytes that end in a zero."""
    client = b3.connect()
    submit(client, b3.sync_bodies(client))
    submit(client, b3.sync_user_data(client))
    submit(client, b3.reset_simulation(client))
    command = b3.physics(client)
    b3.set_deterministic(command, 1)
    submit(client, command)
    set_physics(client)

    floor = only_body(submit(client, b3.load_sdf(client, plane_path.ctypes.data)))
    command = b3.dynamics(client)
    b3.set_friction(command, floor, -1, 0.8)
    b3.set_restitution(command, floor, -1, 0.5)
    submit(client, command)

    command = b3.load_mjcf(client, model_path.ctypes.data)
    b3.load_mjcf_flags(command, flags)
    body = only_body(submit(client, command))
    disable_motors(client, body, anatomy.moving_position, anatomy.moving_velocity)
    pose_joints(client, body, anatomy, np.zeros(len(anatomy.joint)))
    return client, floor, body, b3.saved_state(submit(client, b3.save_state(client)))


@compiled
def destroy(client: int) -> None:
    b3.disconnect(client)


@compiled
def roll_pitch_yaw(x: float, y: float, z: float, w: float) -> tuple[float, float, float]:
    sine = -2 * (x * z - w * y)
    if sine <= -0.99999:
        return 0.0, -0.5 * pi, 2 * atan2(x, -y)
    if sine >= 0.99999:
        return 0.0, 0.5 * pi, 2 * atan2(-x, y)
    return (
        atan2(2 * (y * z + w * x), w * w - x * x - y * y + z * z),
        asin(sine),
        atan2(2 * (x * y + w * z), w * w + x * x - y * y - z * z),
    )


@compiled
def observe(
    world: World, anatomy: Anatomy, contacts: np.ndarray, initial_height: float, observation: np.ndarray
) -> tuple[float, float, float]:
    """Fills in the observation, not yet clipped. Returns the torso's height and pitch, and the distance.

    `initial_height` is NaN at the start of an episode: the current height is then used.
    """
    command = b3.request_state(world.client, world.body)
    if anatomy.torso >= 0:
        b3.request_link_velocity(command, 1)
    status = submit(world.client, command)
    pointers = np.empty(4, np.intp)
    at = pointers.ctypes.data
    b3.actual_state(status, 0, 0, 0, 0, 0, at, at + 8, 0, 0, 0, at + 16, at + 24)
    coordinates = len(anatomy.moving_position)
    q = carray(pointer(pointers[0]), 7 + coordinates, np.float64)  # the base's pose first
    u = carray(pointer(pointers[1]), 6 + coordinates, np.float64)
    link_poses = carray(pointer(pointers[2]), (anatomy.links, 7), np.float64)
    link_velocities = carray(pointer(pointers[3]), (anatomy.links, 6), np.float64)

    if anatomy.torso < 0:
        pose, velocity, speed_y = q[:7], u[:6], u[1]
    else:
        pose, velocity = link_poses[anatomy.torso], link_velocities[anatomy.torso]
        speed_y = velocity[5]  # sic: the yaw rate stands in for the speed along y

    height = pose[2]
    if np.isnan(initial_height):
        initial_height = height
    roll, pitch, yaw = roll_pitch_yaw(pose[3], pose[4], pose[5], pose[6])

    parts = len(anatomy.parts)
    xs, ys = np.zeros(parts + 1), np.zeros(parts + 1)  # sic: the last part is the floor, at 0
    for i in range(parts):
        link = anatomy.parts[i]
        part = q[:7] if link < 0 else link_poses[link]
        xs[i], ys[i] = part[0], part[1]
    dx = TARGET_X - pairwise_sum(xs) / len(xs)
    dy = TARGET_Y - pairwise_sum(ys) / len(ys)
    distance = sqrt(b3.fma(dx, dx, dy * dy))
    angle = atan2(dy, dx) - yaw
    c, s = cos(-yaw), sin(-yaw)

    observation[0] = height - initial_height
    observation[1] = sin(angle)
    observation[2] = cos(angle)
    observation[3] = 0.3 * b3.fma(c, velocity[0], -s * speed_y)
    observation[4] = 0.3 * b3.fma(s, velocity[0], c * speed_y)
    observation[5] = 0.3 * velocity[2]
    observation[6] = roll
    observation[7] = pitch
    motors = len(anatomy.joint)
    for i in range(motors):
        low, high = anatomy.low[i], anatomy.high[i]
        observation[8 + 2 * i] = 2 * (q[anatomy.position[i]] - low) / (high - low) - 1.0
        observation[9 + 2 * i] = 0.1 * u[anatomy.velocity[i]]
    for i in range(len(contacts)):
        observation[8 + 2 * motors + i] = contacts[i]
    return height, pitch, distance


@compiled
def clip(observation: np.ndarray) -> None:
    for i in range(len(observation)):
        observation[i] = min(max(observation[i], np.float32(-5)), np.float32(5))


@compiled
def restore(world: World) -> None:
    command = b3.load_state(world.client)
    b3.load_state_id(command, world.start)
    submit(world.client, command)


@compiled
def reset(
    world: World, anatomy: Anatomy, angles: np.ndarray, contacts: np.ndarray, observation: np.ndarray
) -> tuple[float, float]:
    """Starts an episode with the joints at `angles`. Returns the torso's height and the target's distance."""
    # Twice: pairs that touched at the end of the last episode outlive a restored state, and the order in
    # which Bullet keeps them shows in later contacts. Looking for collisions in between forgets them.
    restore(world)
    submit(world.client, b3.detect_collisions(world.client))
    restore(world)
    set_physics(world.client)
    pose_joints(world.client, world.body, anatomy, angles)
    clear(contacts)
    height, _, distance = observe(world, anatomy, contacts, np.nan, observation)
    clip(observation)
    return height, distance


@compiled
def find_contacts(world: World, anatomy: Anatomy, contacts: np.ndarray) -> None:
    """Sets each contact to 1 if its link touches the floor, else to 0."""
    command = b3.request_contacts(world.client)
    b3.contacts_body_a(command, world.body)
    b3.contacts_body_b(command, world.floor)
    submit(world.client, command)
    information = np.empty(1, b3.CONTACTS)
    b3.get_contacts(world.client, information.ctypes.data)
    clear(contacts)
    points = carray(pointer(information[0]["points"]), information[0]["count"], b3.CONTACT)
    for k in range(len(points)):
        for i in range(len(contacts)):
            if points[k]["link_a"] == anatomy.contacts[i] and points[k]["link_b"] == -1:
                contacts[i] = 1


@compiled
def apply_torques(world: World, anatomy: Anatomy, action: np.ndarray) -> None:
    """Applies the motors' torques for the next step."""
    command = b3.control(world.client, world.body, b3.TORQUE_CONTROL)
    for i in range(len(action)):
        b3.control_torque(command, anatomy.velocity[i], anatomy.torque[i] * min(max(action[i], -1), 1))
    submit(world.client, command)


@compiled
def advance(world: World) -> None:
    """Bullet's own share of a step."""
    submit(world.client, b3.step_simulation(world.client))


@compiled
def measure_step(
    world: World,
    anatomy: Anatomy,
    action: np.ndarray,
    initial_height: float,
    distance: float,
    contacts: np.ndarray,
    observation: np.ndarray,
) -> tuple[float, bool, float]:
    """After a step: observation and contacts are filled in. Returns (reward, upright, distance)."""
    _, pitch, new_distance = observe(world, anatomy, contacts, initial_height, observation)
    motors = len(action)
    work, heat, at_limit = np.empty(motors, np.float32), np.empty(motors, np.float32), 0
    for i in range(motors):
        at_limit += abs(observation[8 + 2 * i]) > np.float32(0.99)
        work[i] = abs(action[i] * observation[9 + 2 * i])
        heat[i] = action[i] * action[i]
    clip(observation)

    upright = observation[0] + initial_height > anatomy.min_height and abs(pitch) < anatomy.max_pitch
    for i in range(len(contacts)):
        if anatomy.fatal[i] and contacts[i] > 0:
            upright = False
    alive = 1.0 if upright else -1.0
    progress = -new_distance / TIME_STEP - -distance / TIME_STEP
    electricity = -2.0 * float(np.float32(pairwise_sum(work) / motors))
    electricity += -0.1 * float(np.float32(pairwise_sum(heat) / motors))
    reward = alive + progress + electricity + -0.1 * at_limit
    find_contacts(world, anatomy, contacts)  # the observation carries those of the step before: sic
    return reward, upright, new_distance


@compiled
def step(
    world: World,
    anatomy: Anatomy,
    action: np.ndarray,
    initial_height: float,
    distance: float,
    contacts: np.ndarray,
    observation: np.ndarray,
) -> tuple[float, bool, float]:
    """One control step of 0.0165 s. Returns (reward, upright, distance)."""
    apply_torques(world, anatomy, action)
    advance(world)
    return measure_step(world, anatomy, action, initial_height, distance, contacts, observation)


@compiled
def rollout(
    world: World,
    anatomy: Anatomy,
    parameters: np.ndarray,
    sizes: np.ndarray,
    angles: np.ndarray,
    max_steps: int,
    ends_on_fall: bool,
    stop: np.ndarray,
    trace: Trace,
    noise: np.ndarray,
) -> tuple[float, np.ndarray, int, int]:
    """One episode. Returns its fitness, its descriptor, its length and how it ended.

    Row t of `noise` is added to the action of step t, and the sum is clipped to ±1. Steps after the last row
    have no noise.
    """
    motors, feet = len(anatomy.joint), anatomy.feet
    observation = np.empty(8 + 2 * motors + len(anatomy.contacts), np.float32)
    contacts = np.empty(len(anatomy.contacts), np.float32)
    action = np.empty(motors, np.float32)
    width = widest(sizes)
    inputs, outputs = np.empty(width, np.float32), np.empty(width, np.float32)
    descriptor = np.zeros(len(feet))
    fitness, steps, ending = 0.0, 0, TRUNCATED

    initial_height, distance = reset(world, anatomy, angles, contacts, observation)
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
        reward, upright, distance = step(
            world, anatomy, action, initial_height, distance, contacts, observation
        )
        if recorded:
            fill(trace.observations[steps + 1], observation)
            for i in range(len(feet)):
                trace.step_descriptors[steps, i] = contacts[feet[i]]
            trace.rewards[steps] = reward
        fitness += reward
        for i in range(len(feet)):
            descriptor[i] += contacts[feet[i]]
        steps += 1
        if any_nan(observation) or np.isnan(reward):
            ending = INVALID
            break
        if ends_on_fall and not upright:
            ending = TERMINATED
            break
    if ending == INVALID:
        fitness = np.nan
        for i in range(len(feet)):
            descriptor[i] = np.nan
    elif steps > 0:
        for i in range(len(feet)):
            descriptor[i] /= steps
    return fitness, descriptor, steps, ending

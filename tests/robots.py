"""Robots of somebody else's in MuJoCo: what a user's module would hold."""

import numba
import numpy as np

CART = """
<mujoco model="cart">
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="box" pos="0 0 0.4">
      <freejoint/>
      <geom name="hull" type="box" size="0.2 0.1 0.05" mass="2"/>
      <site name="top"/>
      <body name="front_leg" pos="0.15 0 0">
        <joint name="front" axis="0 1 0" range="-60 60" limited="true" damping="0.2"/>
        <geom name="front_foot" type="capsule" fromto="0 0 0 0 0 -0.25" size="0.03" mass="0.3"/>
      </body>
      <body name="back_leg" pos="-0.15 0 0">
        <joint name="back" axis="0 1 0" range="-60 60" limited="true" damping="0.2"/>
        <geom type="capsule" fromto="0 0.1 0 0 0.1 -0.25" size="0.03" mass="0.3"/>
        <geom type="capsule" fromto="0 -0.1 0 0 -0.1 -0.25" size="0.03" mass="0.3"/>
      </body>
    </body>
    {more}
  </worldbody>
  <actuator>
    <motor name="front_motor" joint="front" ctrlrange="-2 3"/>
    <general joint="back" ctrlrange="-1 1" dyntype="filter" dynprm="0.05" gainprm="2"/>
  </actuator>
  <sensor><accelerometer site="top"/></sensor>
  <keyframe><key name="low" qpos="0 0 0.3 1 0 0 0 0.1 -0.1"/></keyframe>
</mujoco>
"""
LOOSE = """
<body name="ball" pos="0.6 0 0.2"><freejoint/><geom name="ball" size="0.1" mass="0.2"/></body>
<body name="hand" mocap="true" pos="0 2 1"><geom size="0.1"/></body>
"""  # another tree, and a body that only a hand moves


@numba.njit
def effort(forces):
    return np.sum(forces**2)


def reward(state):
    """Something of everything."""
    return (
        state.velocity[0]
        - 0.1 * effort(state.actuator_force)
        + 0.01 * state.time * state.position[1]
        + state.qpos[3] * state.qvel[-1]
        - 0.2 * np.abs(state.ctrl).max()
        + 0.001 * state.sensordata[2]
        + state.xpos[2, 2] * state.xquat[3, 0]
        + 0.1 * state.cvel[2, 4]
        + 0.01 * state.cfrc_ext[3, 5]
        + 0.5 * state.contacts[0] * (1 - state.contacts[1])
    )


def ends(state):
    return state.xpos[1, 2] < 0.22 or state.velocity[0] > 2


def late(state):
    """1, and too far into the forces when half a second has passed."""
    return 1.0 if state.time < 0.495 else state.actuator_force[len(state.qpos)]


def unbounded(state):
    return 1 / (state.time - state.time)


def beyond(state):
    return state.qpos[100]


def wordy(state):
    return "far"


def moved(state):
    state.qpos[0] = 0
    return 0.0


def plain(forces):
    return 1.0


def uncompiled(state):
    return plain(state.ctrl)


def ends_late(state):
    """False, and too far into the forces when half a second has passed."""
    return state.time >= 0.495 and state.actuator_force[len(state.qpos)] > 0

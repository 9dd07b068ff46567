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


def reward(moment):
    """Something of everything."""
    return (
        moment.velocity[0]
        - 0.1 * effort(moment.actuator_force)
        + 0.01 * moment.time * moment.position[1]
        + moment.qpos[3] * moment.qvel[-1]
        - 0.2 * np.abs(moment.ctrl).max()
        + 0.001 * moment.sensordata[2]
        + moment.xpos[2, 2] * moment.xquat[3, 0]
        + 0.1 * moment.cvel[2, 4]
        + 0.01 * moment.cfrc_ext[3, 5]
        + 0.5 * moment.contacts[0] * (1 - moment.contacts[1])
    )


def ends(moment):
    return moment.xpos[1, 2] < 0.22 or moment.velocity[0] > 2


def late(moment):
    """1, and too far into the forces when half a second has passed."""
    return 1.0 if moment.time < 0.495 else moment.actuator_force[len(moment.qpos)]


def unbounded(moment):
    return 1 / (moment.time - moment.time)


def beyond(moment):
    return moment.qpos[100]


def wordy(moment):
    return "far"


def moved(moment):
    moment.qpos[0] = 0
    return 0.0


def plain(forces):
    return 1.0


def uncompiled(moment):
    return plain(moment.ctrl)


def ends_late(moment):
    """False, and too far into the forces when half a second has passed."""
    return moment.time >= 0.495 and moment.actuator_force[len(moment.qpos)] > 0

"""Bullet's C interface, as the pybullet library exports it, callable from Numba code.

The library is loaded, not imported, so it prints nothing and holds no lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from elites.c_library import CLibrary, address, integer, nothing, real
from elites.errors import ElitesError
from elites.tasks.qdgym.library import VERSION, require_bullet

FILES = require_bullet()
library = CLibrary(FILES.library, "Bullet", f"install the pybullet=={VERSION} wheel")
bind, external = library.bind, library.external
client = command = status = address  # opaque handles

if numba.config.DISABLE_JIT:

    def fma(a: float, b: float, c: float) -> float:
        """a * b + c; rounded twice here, once in compiled code."""
        return a * b + c

else:

    @intrinsic
    def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.fma(*arguments)

        return types.float64(types.float64, types.float64, types.float64), generate


# Values of Bullet's enums (SharedMemoryPublic.h).
TORQUE_CONTROL, POSITION_CONTROL = 1, 2
USE_SELF_COLLISION, EXCLUDE_ALL_PARENTS = 8, 32

# b3ContactPointData and b3ContactInformation.
CONTACT = np.dtype(
    [
        ("flags", "i4"),
        ("body_a", "i4"),
        ("body_b", "i4"),
        ("link_a", "i4"),
        ("link_b", "i4"),
        ("rest", "f8", 19),
    ],
    align=True,
)
CONTACTS = np.dtype([("count", "i4"), ("points", "i8")], align=True)

connect = bind("b3ConnectPhysicsDirect", client)
disconnect = bind("b3DisconnectSharedMemory", nothing, client)
submit_command = bind("b3SubmitClientCommand", integer, client, command)
process_status = bind("b3ProcessServerStatus", status, client)

sync_bodies = bind("b3InitSyncBodyInfoCommand", command, client)
sync_user_data = bind("b3InitSyncUserDataCommand", command, client)
reset_simulation = bind("b3InitResetSimulationCommand", command, client)
load_sdf = bind("b3LoadSdfCommandInit", command, client, address)
load_mjcf = bind("b3LoadMJCFCommandInit", command, client, address)
load_mjcf_flags = bind("b3LoadMJCFCommandSetFlags", nothing, command, integer)
body_indices = bind("b3GetStatusBodyIndices", integer, status, address, integer)

physics = bind("b3InitPhysicsParamCommand", command, client)
set_gravity = bind("b3PhysicsParamSetGravity", integer, command, real, real, real)
set_contact_erp = bind("b3PhysicsParamSetDefaultContactERP", integer, command, real)
set_solver_iterations = bind("b3PhysicsParamSetNumSolverIterations", integer, command, integer)
set_substeps = bind("b3PhysicsParamSetNumSubSteps", integer, command, integer)
set_time_step = bind("b3PhysicsParamSetTimeStep", integer, command, real)
set_deterministic = bind("b3PhysicsParameterSetDeterministicOverlappingPairs", integer, command, integer)

dynamics = bind("b3InitChangeDynamicsInfo", command, client)
set_friction = bind("b3ChangeDynamicsInfoSetLateralFriction", integer, command, integer, integer, real)
set_restitution = bind("b3ChangeDynamicsInfoSetRestitution", integer, command, integer, integer, real)

save_state = bind("b3SaveStateCommandInit", command, client)
saved_state = bind("b3GetStatusGetStateId", integer, status)
load_state = bind("b3LoadStateCommandInit", command, client)
load_state_id = bind("b3LoadStateSetStateId", integer, command, integer)

pose = bind("b3CreatePoseCommandInit", command, client, integer)
pose_position = bind("b3CreatePoseCommandSetJointPosition", integer, client, command, integer, real)
pose_velocity = bind("b3CreatePoseCommandSetJointVelocity", integer, client, command, integer, real)

control = bind("b3JointControlCommandInit2", command, client, integer, integer)
control_torque = bind("b3JointControlSetDesiredForceTorque", integer, command, integer, real)
control_position = bind("b3JointControlSetDesiredPosition", integer, command, integer, real)
control_velocity = bind("b3JointControlSetDesiredVelocity", integer, command, integer, real)
control_kp = bind("b3JointControlSetKp", integer, command, integer, real)
control_kd = bind("b3JointControlSetKd", integer, command, integer, real)
control_max_force = bind("b3JointControlSetMaximumForce", integer, command, integer, real)

detect_collisions = bind("b3InitPerformCollisionDetectionCommand", command, client)
step_simulation = bind("b3InitStepSimulationCommand", command, client)

request_state = bind("b3RequestActualStateCommandInit", command, client, integer)
request_link_velocity = bind("b3RequestActualStateCommandComputeLinkVelocity", integer, command, integer)
actual_state = bind("b3GetStatusActualState2", integer, status, *[address] * 12)

request_contacts = bind("b3InitRequestContactPointInformation", command, client)
contacts_body_a = bind("b3SetContactFilterBodyA", nothing, command, integer)
contacts_body_b = bind("b3SetContactFilterBodyB", nothing, command, integer)
get_contacts = bind("b3GetContactPointInformation", nothing, client, address)


class Joint(ctypes.Structure):
    """b3JointInfo: a joint and the link it carries."""

    _fields_ = (
        ("link_name", ctypes.c_char * 1024),
        ("joint_name", ctypes.c_char * 1024),
        ("kind", ctypes.c_int),
        ("position_index", ctypes.c_int),  # -1: the joint does not move
        ("velocity_index", ctypes.c_int),
        ("link", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("damping", ctypes.c_double),
        ("friction", ctypes.c_double),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("rest", ctypes.c_double * 32),  # more than the struct has, so that Bullet never writes beyond it
    )


def read_joints(model: str, flags: int) -> list[Joint]:
    """The joints of the one body in an MJCF file, in Bullet's order."""
    world = external("b3ConnectPhysicsDirect", client)()
    try:
        return list(_joints(world, model, flags))
    finally:
        external("b3DisconnectSharedMemory", nothing, client)(world)


def _joints(world: int, model: str, flags: int) -> Iterator[Joint]:
    path = ctypes.create_string_buffer(model.encode())
    load = external("b3LoadMJCFCommandInit", command, client, address)(world, ctypes.addressof(path))
    external("b3LoadMJCFCommandSetFlags", nothing, command, integer)(load, flags)
    external("b3SubmitClientCommand", integer, client, command)(world, load)
    loaded = external("b3ProcessServerStatus", status, client)(world)
    bodies = (ctypes.c_int * 16)()
    count = external("b3GetStatusBodyIndices", integer, status, address, integer)(
        loaded, ctypes.addressof(bodies), len(bodies)
    )
    if count != 1:
        raise ElitesError(f"{model}: Bullet found {count} bodies where there should be one")
    get_joint = external("b3GetJointInfo", integer, client, integer, integer, address)
    for index in range(external("b3GetNumJoints", integer, client, integer)(world, bodies[0])):
        joint = Joint()
        get_joint(world, bodies[0], index, ctypes.addressof(joint))
        yield joint

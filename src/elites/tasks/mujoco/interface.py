"""MuJoCo's C functions, callable from Numba code, and calls of functions by their address."""

from __future__ import annotations

import ctypes
from typing import Any

import mujoco
import numba
from mujoco.introspect import structs
from numba import types
from numba.extending import intrinsic

from elites.c_library import CLibrary, address, nothing
from elites.tasks.mujoco.library import library_path, read_checked_layout

LAYOUT = read_checked_layout()
CONTACT = LAYOUT.contact
DESCRIPTION = structs.__file__  # of the structs: compiled code depends on it
library = CLibrary(library_path(), "MuJoCo", "install the mujoco wheel")

step = library.bind("mj_step", nothing, address, address)
forward = library.bind("mj_forward", nothing, address, address)
reset = library.bind("mj_resetData", nothing, address, address)
external_forces = library.bind("mj_rnePostConstraint", nothing, address, address)


@numba.cfunc(types.void(types.voidptr))
def _keep_quiet(message: Any) -> None:
    """MuJoCo counts its warnings in `mjData`, where they are read."""


mujoco.set_mju_user_warning(_keep_quiet.ctypes)  # its address: no thread waits for the interpreter
# MuJoCo's timers call a clock, which takes about a tenth of the time of `mj_step`. The module's own call for
# switching it off, `set_mjcb_time(None)`, sets the module's clock again.
clock = ctypes.c_void_p.in_dll(library.library, "mjcb_time")
their_clock = clock.value
clock.value = None

if numba.config.DISABLE_JIT:

    def call(function: int, table: int) -> float:
        """Calls the C function at an address."""
        prototype = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_ssize_t)
        return float(prototype(function)(table))

else:

    @intrinsic
    def call(typing: Any, function: Any, table: Any) -> Any:
        """Calls the C function at an address."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from llvmlite import ir

            target = ir.FunctionType(ir.DoubleType(), [ir.IntType(64)]).as_pointer()
            return builder.call(builder.inttoptr(arguments[0], target), [arguments[1]])

        return types.float64(types.intp, types.intp), generate

"""Reward and termination functions of custom robots: functions of a robot's state, which Numba compiles."""

from __future__ import annotations

import ctypes
import functools
import math
import numbers
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import carray, types

from elites import c_library
from elites.c_library import pointer
from elites.errors import ElitesError, describe_error
from elites.imports import load_function
from elites.machine_code import Compiler
from elites.text import shorten

MAX_REASON_LENGTH = 300  # characters of what Numba says
THIS_FILE = Path(__file__).name
FIELDS = 13

Arrays = Mapping[str, np.ndarray]
"""The fields of a RobotState; the time is an array of one."""

compiled = Compiler(__file__, c_library.__file__)


class RobotState(NamedTuple):
    """The state of a robot after a control step. Arrays are float64 and MuJoCo's own memory, under its names.

    As in Gymnasium's environments, `qpos`, `qvel` and `time` are those after the last physics step. All that
    MuJoCo computes from them (`xpos` and the following ones) is from the beginning of that step.
    """

    time: float  # since the episode began, in s
    qpos: np.ndarray  # coordinates
    qvel: np.ndarray  # velocities
    ctrl: np.ndarray  # the action, in the actuators' units
    actuator_force: np.ndarray
    sensordata: np.ndarray
    xpos: np.ndarray  # [bodies, 3]: positions, the world first, then as in the file
    xquat: np.ndarray  # [bodies, 4]: orientations
    cvel: np.ndarray  # [bodies, 6]: rotational, then linear velocities
    cfrc_ext: np.ndarray  # [bodies, 6]: torques, then forces from contacts
    contacts: np.ndarray  # [feet]: 1 where it touches the ground, else 0
    position: np.ndarray  # x and y of the robot
    velocity: np.ndarray  # its mean over the control step, along x and y


@compiled
def _values(table: np.ndarray, row: int) -> np.ndarray:
    return carray(pointer(table[row, 0]), (table[row, 1],), np.float64)  # type: ignore[no-any-return]


@compiled
def _rows(table: np.ndarray, row: int) -> np.ndarray:
    return carray(pointer(table[row, 0]), (table[row, 1], table[row, 2]), np.float64)  # type: ignore[no-any-return]


@compiled
def read_state(address: int) -> RobotState:
    """The state in a table at an address: see `tabulate`."""
    table = carray(pointer(address), (FIELDS, 3), np.int64)
    return RobotState(
        _values(table, 0)[0],
        _values(table, 1),
        _values(table, 2),
        _values(table, 3),
        _values(table, 4),
        _values(table, 5),
        _rows(table, 6),
        _rows(table, 7),
        _rows(table, 8),
        _rows(table, 9),
        _values(table, 10),
        _values(table, 11),
        _values(table, 12),
    )


def tabulate(arrays: Arrays) -> np.ndarray:
    """The address, the length and the width of each array."""
    rows = [(arrays[name].ctypes.data, *arrays[name].shape, 1)[:3] for name in RobotState._fields]
    return np.array(rows, np.int64)


def find_address(path: str, what: str, arrays: Arrays) -> int:
    """The address of the compiled function at a path, for `interface.call`; 0 if the path is empty.

    The function is first tried on a state, because compiled code cannot report what is wrong with it.
    """
    if not path:
        return 0
    function = load_function(path, what)
    function = getattr(function, "py_func", function)  # of one that Numba has compiled already
    _try(function, f"{what} {path!r}", arrays)
    return _compile(function, f"{what} {path!r}")


def _try(function: Callable[..., Any], what: str, arrays: Arrays) -> None:
    """Raises an error if a function cannot be computed, or returns neither a number nor a bool."""
    seen = {name: values.view() for name, values in arrays.items()}
    for values in seen.values():
        values.flags.writeable = False
    fields: dict[str, Any] = {**seen, "time": float(arrays["time"][0])}
    try:
        with np.errstate(all="ignore"):
            result = function(RobotState(**fields))
    except ArithmeticError:  # of a division by 0, which is no error in compiled code
        return
    except Exception as error:
        raise ElitesError(f"{what} failed at the beginning of an episode: {describe_error(error)}") from error
    if not isinstance(result, numbers.Real | np.bool):
        given = shorten(repr(result))
        raise ElitesError(f"{what} returned {given}; it must return a number, or true or false")


# Compiled functions live as long as the process: simulators have their addresses.
_compiled_functions: list[Any] = []


@functools.cache
def _compile(function: Callable[..., Any], what: str) -> int:
    """The address of the compiled function, which takes the address of a table of fields.

    An exception in it gives NaN.
    """
    if numba.config.DISABLE_JIT:
        interpreted = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_ssize_t)(_return_nan_on_error(function))
        _compiled_functions.append(interpreted)
        return int(ctypes.cast(interpreted, ctypes.c_void_p).value or 0)
    try:
        inner = numba.njit(nogil=True, error_model="numpy", boundscheck=True)(function)
        compiled = numba.cfunc(types.float64(types.intp))(_return_nan_on_error(inner))
    except Exception as error:
        raise ElitesError(f"{what} cannot be compiled by Numba: {_reason(error)}") from error
    _compiled_functions.append(compiled)
    return int(compiled.address)


def _return_nan_on_error(function: Callable[..., Any]) -> Callable[[int], float]:
    def guarded(address: int) -> float:
        try:
            return function(read_state(address)) + 0.0  # type: ignore[no-any-return] # a bool too
        except Exception:
            return math.nan

    return guarded


def _reason(error: Exception) -> str:
    """Numba's message and the line it refers to, without colours and without the names of its passes."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    skipped = ("Failed in nopython", "During:", "File ")
    message_lines = [line for line in lines if not line.startswith(skipped)]
    count = 2 if message_lines and message_lines[0].endswith(":") else 1
    reason = " ".join(message_lines[:count]) or type(error).__name__
    places = re.findall(r'^File "(.+)", line (\d+)', "\n".join(lines), re.MULTILINE)
    where = [f" ({Path(file).name}, line {line})" for file, line in places if Path(file).name != THIS_FILE]
    return shorten(reason + "".join(where[:1]), MAX_REASON_LENGTH)

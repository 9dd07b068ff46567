"""C functions of a shared library, callable from Numba code.

The library is loaded but not imported as a Python module. Each function is registered with LLVM under its
own name, at the address it has in this process: compiled code refers to it by name, so Numba can keep that
code on disk although addresses change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba import types
from numba.extending import intrinsic

from elites.errors import ElitesError

address, integer, real, nothing = types.intp, types.int32, types.float64, types.void
_C_TYPES = {address: ctypes.c_ssize_t, integer: ctypes.c_int32, real: ctypes.c_double, nothing: None}


class CLibrary:
    """A shared library."""

    def __init__(self, path: Path, name: str, advice: str) -> None:
        """`advice` tells what to install if the library lacks a function."""
        self.path, self.advice = path, advice
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise ElitesError(f"{name}'s library cannot be loaded: {error}") from None

    def external(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """A C function for interpreted code."""
        function = self._symbol(name)
        function.restype, function.argtypes = _C_TYPES[result], [_C_TYPES[argument] for argument in arguments]
        return function  # type: ignore[no-any-return]

    def bind(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """A C function for compiled code."""
        if numba.config.DISABLE_JIT:
            return self.external(name, result, *arguments)
        llvmlite.binding.add_symbol(name, ctypes.cast(self._symbol(name), ctypes.c_void_p).value)
        return types.ExternalFunction(name, result(*arguments))  # type: ignore[no-any-return]

    def _symbol(self, name: str) -> Any:
        try:
            return self.library[name]
        except AttributeError:
            raise ElitesError(f"{self.path} does not export {name}; {self.advice}") from None


if numba.config.DISABLE_JIT:  # NUMBA_DISABLE_JIT=1 runs the same code interpreted, for debuggers and coverage

    def pointer(number: int) -> Any:
        """The address `number` as a pointer, for numba.carray."""
        return ctypes.c_void_p(int(number) or 1)  # carray refuses NULL, even for no elements

else:

    @intrinsic
    def pointer(typing: Any, number: Any) -> Any:
        """The address `number` as a pointer, for numba.carray."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.voidptr(types.intp), generate

"""Validation of user input and files against the types of a dataclass, and the ranges declared with them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import os
import sys
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from elites.errors import ElitesError, require


@dataclass(frozen=True)
class Range:
    """The numbers that a field may hold, `Annotated[int, Range(1, 100)]`, or the length of a tuple.

    NaN is in no range.
    """

    low: float
    high: float
    above: bool = False  # whether `low` itself is excluded

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low, high = _text(self.low), _text(self.high)
        return f"above {low}, at most {high}" if self.above else f"from {low} to {high}"


def _text(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


Count = Annotated[int, Range(1, 1_000_000)]
"""A number of things that are held in memory, or of steps."""
Steps = Annotated[int, Range(0, 1_000_000)]
Width = Annotated[int, Range(1, 65_536)]
"""Units of a layer."""
Widths = Annotated[tuple[Width, ...], Range(0, 16)]
"""Units of the hidden layers."""
Share = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(0, 1000, above=True)]
"""A learning rate, or a step size."""
Spread = Annotated[float, Range(0, 1000)]
"""A standard deviation, or half a width."""
Finite = Annotated[float, Range(-1e30, 1e30)]
"""A number that float32 holds with room for a sum and a square root."""
Cells = Annotated[int, Range(1, 100_000)]
"""Cells of a CVT, at most the number of samples that it is made from."""
EpisodeLength = Annotated[int, Range(1, 10_000_000)]
Seed = Annotated[int, Range(0, 2**32 - 1)]
Evaluations = Annotated[int, Range(1, 2**31 - 1)]
Interval = Annotated[int, Range(0, 2**31 - 1)]
"""A number of evaluations; 0 means never."""
Seeds = Annotated[int, Range(1, 10_000)]
Snapshots = Annotated[int, Range(0, 10_000)]
Pictures = Annotated[int, Range(0, 100)]
RowInterval = Annotated[int, Range(1, 1_000_000)]
"""Generations from one row of a log to the next."""
Replications = Annotated[int, Range(1, 1_000_000)]
Index = Annotated[int, Range(0, 2**31 - 1)]
Pixels = Annotated[int, Range(32, 4096)]
Inches = Annotated[float, Range(3, 40)]
"""A side of a figure."""
Percentile = Annotated[float, Range(0, 100)]
Seconds = Annotated[float, Range(0, 1_000_000_000)]
Patience = Annotated[float, Range(0, 1_000_000_000, above=True)]
Workers = Annotated[int, Range(1, 4096)]
Threads = Annotated[int, Range(1, max(64, 8 * (os.cpu_count() or 1)))]
"""Threads or processes on this machine."""
Physics = Literal["xla", "native", "cuda"]
"""What computes the episodes of a task in JAX: XLA, native code in threads, or a CUDA kernel."""


@functools.cache
def read_types(kind: type[Any]) -> dict[str, Any]:
    """The type of each field of a dataclass, with its `Range`.

    Types that cannot be evaluated are left out, such as names that are imported only for type checkers.
    """
    types: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = {**vars(typing), **vars(sys.modules.get(base.__module__, typing)), **vars(base)}
        for name, text in inspect.get_annotations(base).items():
            types.pop(name, None)
            try:
                types[name] = eval(text, names) if isinstance(text, str) else text
            except Exception:  # of any type
                continue
    fields = [field.name for field in dataclasses.fields(kind)]
    return {name: types[name] for name in fields if name in types}


def select_values(instance: Any, kind: type[Any]) -> dict[str, Any]:
    """The values of the fields that a dataclass shares with `kind`, by name."""
    shared = {field.name for field in dataclasses.fields(kind)}
    return {
        field.name: getattr(instance, field.name)
        for field in dataclasses.fields(instance)
        if field.name in shared
    }


def check_parameters(
    kind: type, values: Mapping[str, Any], owner: str, fixed: Collection[str] = ()
) -> dict[str, Any]:
    """The values for the dataclass `kind`: NumPy's numbers as Python's, lists as tuples.

    Raises an error that names an unknown or `fixed` parameter, or a value of the wrong type or out of range.
    """
    allowed = [field.name for field in dataclasses.fields(kind) if field.name not in fixed]
    for name in values:
        if name not in allowed:
            raise ElitesError(f"{owner} has no parameter {name!r}; it has {', '.join(allowed)}")
    return {
        name: convert_value(read_types(kind).get(name, Any), name, value) for name, value in values.items()
    }


def check_fields(instance: Any) -> None:
    """Raises an error if a field of a dataclass has a value of the wrong type or out of range."""
    kind: Any = type(instance)
    for name, expected in read_types(kind).items():
        convert_value(expected, name, getattr(instance, name))


def convert_value(expected: Any, name: str, value: Any) -> Any:
    """A parameter's value as the type `expected`; an error if it is of another type, or out of range."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is Annotated:
        plain = convert_value(arguments[0], name, value)
        for allowed in arguments[1:]:
            if isinstance(allowed, Range) and isinstance(plain, tuple):
                require(len(plain) in allowed, name, f"{len(plain)} values", f"{allowed} values")
            elif isinstance(allowed, Range):
                require(plain in allowed, name, _short(value), str(allowed))
        return plain
    if origin in (typing.Union, types.UnionType) and type(None) in arguments:
        others = [one for one in arguments if one is not type(None)]
        return convert_value(others[0], name, value) if value is not None and len(others) == 1 else value
    if arguments == (Index, str):  # the number of something, or its name
        if isinstance(value, str):
            return value
        require(_is_whole(value), name, _short(value), "a whole number or text")
        return convert_value(arguments[0], name, value)
    if origin is typing.Literal:
        require(value in arguments, name, _short(value), f"one of {', '.join(map(str, arguments))}")
    elif origin is tuple:
        require(isinstance(value, list | tuple), name, _short(value), "a list")
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        require(len(kinds) == len(value), name, _short(value), f"{len(kinds)} values")
        return tuple(convert_value(kind, name, item) for kind, item in zip(kinds, value, strict=True))
    elif origin is dict:
        require(isinstance(value, dict), name, _short(value), "a table")
    elif expected is bool:
        require(isinstance(value, bool), name, _short(value), "true or false")
    elif expected is str:
        require(isinstance(value, str), name, _short(value), "text")
    elif expected is int:
        require(_is_whole(value), name, _short(value), "a whole number")
        return int(value)
    elif expected is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        require(real, name, _short(value), "a number")
        return _float(value)
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the largest float
        return math.inf


def _short(value: Any) -> str:
    """A value in a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"

"""Validation of user input and files against the types of a dataclass."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import typing
from collections.abc import Collection, Mapping
from typing import Any

from elites.errors import ElitesError, require


@functools.cache
def _types(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def checked(kind: type, given: Mapping[str, Any], owner: str, fixed: Collection[str] = ()) -> dict[str, Any]:
    """The values for the dataclass `kind`: NumPy's numbers as Python's, lists as tuples.

    Raises an error that names an unknown or `fixed` parameter, or a value of the wrong type.
    """
    allowed = [field.name for field in dataclasses.fields(kind) if field.name not in fixed]
    for name in given:
        if name not in allowed:
            raise ElitesError(f"{owner} has no parameter {name!r}; it has {', '.join(allowed)}")
    return {name: _converted(_types(kind)[name], name, value) for name, value in given.items()}


def _converted(expected: Any, name: str, value: Any) -> Any:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is typing.Literal:
        require(value in arguments, name, repr(value), f"one of {', '.join(map(str, arguments))}")
    elif origin is tuple:
        require(isinstance(value, list | tuple), name, repr(value), "a list")
        return tuple(_converted(arguments[0], name, item) for item in value)
    elif expected is bool:
        require(isinstance(value, bool), name, repr(value), "true or false")
    elif expected is int:
        require(
            isinstance(value, numbers.Integral) and not isinstance(value, bool),
            name,
            repr(value),
            "a whole number",
        )
        return int(value)
    elif expected is float:
        require(
            isinstance(value, numbers.Real) and not isinstance(value, bool), name, repr(value), "a number"
        )
        return float(value)
    return value

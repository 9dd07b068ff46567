"""Optimisation without an environment: fitness and descriptor are a function of a batch of vectors."""

# Without `from __future__ import annotations`: with strings, `Problem.__required_keys__` would be empty.

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Required, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from elites.errors import ElitesError, require
from elites.imports import find_import_path
from elites.options import Finite, Range, check_parameters
from elites.tasks.task import Task

PREFIX = "function:"  # of the names of functions that only this process knows
Function = Callable[..., tuple[Any, Any]]
"""From vectors `[n, parameters]`, and the seeds `[n]` if it takes two arguments, to (fitness `[n]`,
descriptors `[n, d]`)."""


@dataclass(frozen=True, kw_only=True)
class FunctionTask(Task):
    """A function to be optimised. Random vectors are uniform within `initial_bounds`."""

    fixed: ClassVar[tuple[str, ...]] = (
        "name",
        "function",
        "observation_size",
        "action_size",
        "episode_length",
    )
    genomes: ClassVar[str] = "vectors"

    function: Function
    parameters: Annotated[int, Range(1, 100_000_000)]
    initial_bounds: tuple[Finite, Finite] = (-1.0, 1.0)
    observation_size: int = 0
    action_size: int = 0
    episode_length: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.initial_bounds
        require(low <= high, "initial_bounds", self.initial_bounds, "a lowest and a highest value")

    def __call__(self, *arguments: Any) -> tuple[Any, Any]:
        return self.function(*arguments)

    @property
    def describes_steps(self) -> bool:
        return False

    def functions_in_memory(self) -> list[str]:
        """Its name, if no other process can import the function."""
        return [self.name] if self.name.startswith(PREFIX) else []

    @functools.cached_property
    def takes_seeds(self) -> bool:
        """Whether the function has a second argument: the seeds of a noisy one."""
        try:
            kinds = [parameter.kind for parameter in inspect.signature(self.function).parameters.values()]
        except (TypeError, ValueError):  # a compiled function has no signature
            return False
        return (
            sum(
                kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                for kind in kinds
            )
            > 1
        )

    @functools.cached_property
    def is_jax(self) -> bool:
        """Whether JAX can trace the function: then it runs inside the program."""
        import jax
        import jax.numpy as jnp

        vectors = jax.ShapeDtypeStruct((2, self.parameters), jnp.float32)
        seeds = (jax.ShapeDtypeStruct((2,), jnp.uint32),) * self.takes_seeds
        try:
            jax.eval_shape(self.function, vectors, *seeds)
        except Exception:  # NumPy rejects JAX's tracers in many ways; real errors occur again on the host
            return False
        return True


class Problem(TypedDict, total=False):
    """The arguments of `task`, `optimise` and `Optimiser` that describe the function."""

    parameters: Required[int]
    """Length of a vector."""
    descriptor_bounds: Required[ArrayLike]
    """Lowest and highest value of each descriptor dimension, `[d, 2]`."""
    descriptor_names: tuple[str, ...]
    """Names of the dimensions in figures."""
    cells: int
    """Number of cells of a CVT archive; 1024 by default."""
    grid: tuple[int, ...]
    """Cells per dimension of a grid archive, which `hyper_parameters={"archive": "grid"}` selects."""
    qd_offset: float
    """Fitness that adds nothing to the QD-score; 0 by default."""
    initial_bounds: tuple[float, float]
    """Lowest and highest number of a random vector; (-1, 1) by default."""


def task(**problem: Unpack[Problem]) -> Callable[[Function], FunctionTask]:
    """Makes a task of a function of a batch, for `elites run ALGORITHM module:function`.

    The arguments are those of `Problem`.
    """
    return lambda function: function_task(function, _choose_name(function), **problem)


def function_task(function: Function, name: str, **problem: Unpack[Problem]) -> FunctionTask:
    """The task of a function."""
    field_names = list(Problem.__annotations__)
    unknown = [key for key in problem if key not in field_names]
    if unknown:
        raise ElitesError(
            f"unknown argument {', '.join(unknown)}; hyper-parameters go into hyper_parameters, and a "
            f"function is described by {', '.join(field_names)}"
        )
    required = [key for key in field_names if key in Problem.__required_keys__]
    missing = [key for key in required if key not in problem]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ElitesError(f"{' and '.join(required)} are required; {' and '.join(missing)} {verb} missing")
    bounds = np.asarray(problem["descriptor_bounds"], float)
    fits = bounds.ndim == 2 and bounds.shape[1] == 2 and len(bounds) >= 1
    require(
        fits and np.isfinite(bounds).all() and bool((bounds[:, 0] < bounds[:, 1]).all()),
        "descriptor_bounds",
        bounds.tolist(),
        "a lowest and a highest value of each dimension",
    )
    size, values = len(bounds), {"cells": 1024, "qd_offset": 0.0, **problem}
    given = check_parameters(
        FunctionTask, values | {"descriptor_bounds": bounds.tolist()}, name, FunctionTask.fixed
    )
    names = given.setdefault("descriptor_names", tuple(f"descriptor {index + 1}" for index in range(size)))
    require(len(names) == size, "descriptor_names", names, f"{size} names")
    given.setdefault("grid", (max(2, round(given["cells"] ** (1 / size))),) * size)
    return FunctionTask(name=name, function=function, **given)


def _choose_name(function: Function) -> str:
    """Its import path, or a name that only this process knows."""
    return find_import_path(function) or f"{PREFIX}{getattr(function, '__name__', 'unnamed')}"

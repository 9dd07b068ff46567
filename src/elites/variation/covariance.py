"""The CMA evolution strategies of pyribs, as pure functions over arrays.

In pyribs a strategy is an object. In this module the state is its arrays, which can be saved, donated and
vmapped: each call creates the object from the arrays, updates it, and reads the arrays back. The samples
depend only on the arrays, which include a seed. `tell` draws them again, because an object also keeps other
values from drawing them.

Code that calls these functions directly should wait for each result: on a single core, a callback cannot read
its arguments while another program runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.variation.isotropic import Arrays, IsotropicStrategies, Ranking

Kind = Literal["isotropic", "full", "separable", "limited-memory"]
SEEDS = "seeds"  # uint32 [strategies], of the last samples


class _Part(NamedTuple):
    """An attribute of the pyribs object, its type, and its shape in dimensions (n) and batch (b)."""

    attribute: str
    type: Callable[[Any], Any]
    shape: str


def _float32(array: np.ndarray) -> np.ndarray:
    return np.array(array, np.float32)


def _float64(array: np.ndarray) -> np.ndarray:
    return np.array(array, np.float64)


_COMMON = (_Part("mean", _float32, "n"), _Part("sigma", float, ""), _Part("ps", _float32, "n"))
_COUNTED = (*_COMMON, _Part("pc", _float32, "n"), _Part("current_eval", int, ""))
PARTS: dict[Kind, tuple[_Part, ...]] = {
    "isotropic": _COMMON,
    "full": (
        *_COUNTED,
        _Part("cov.cov", _float32, "nn"),
        _Part("cov.eigenbasis", _float32, "nn"),
        _Part("cov.invsqrt", _float32, "nn"),
        _Part("cov.eigenvalues", _float32, "n"),
        _Part("cov.condition_number", float, ""),
        _Part("cov.updated_eval", int, ""),
    ),
    "separable": (*_COUNTED, _Part("cov.cov", _float32, "n")),
    "limited-memory": (*_COMMON, _Part("m", _float64, "bn"), _Part("current_gens", int, "")),
}


class CovarianceStrategies:
    """Independent evolution strategies of one kind that adapt a covariance, each with its own batch."""

    def __init__(self, kind: Kind, strategies: int, batch: int, dimensions: int, sigma: float) -> None:
        from ribs.emitters.opt import (
            CMAEvolutionStrategy,
            LMMAEvolutionStrategy,
            SeparableCMAEvolutionStrategy,
        )

        self.count, self.batch, self.dimensions, self.sigma = strategies, batch, dimensions, sigma
        self._parts = PARTS[kind]
        self._type = {
            "full": CMAEvolutionStrategy,
            "separable": SeparableCMAEvolutionStrategy,
            "limited-memory": LMMAEvolutionStrategy,
        }[kind]

    def start(self) -> Arrays:
        """The arrays of strategies at the origin."""
        n, b = self.dimensions, self.batch

        def value(part: _Part) -> jax.Array:
            if part.shape == "nn":
                return jnp.eye(n)
            first = self.sigma if part.attribute == "sigma" else float(part.attribute.startswith("cov."))
            shape = [{"n": n, "b": b}[size] for size in part.shape]
            return jnp.zeros((), jnp.int32) if part.type is int else jnp.full(shape, first)

        return {SEEDS: jnp.zeros(self.count, jnp.uint32)} | {
            part.attribute: jnp.broadcast_to(v := value(part), (self.count, *v.shape)) for part in self._parts
        }

    def ask(self, arrays: Arrays, key: jax.Array) -> tuple[Arrays, jax.Array]:
        """Samples `[strategies, batch, dimensions]`."""
        arrays = arrays | {SEEDS: jax.random.bits(key, (self.count,))}
        samples = jax.ShapeDtypeStruct((self.count, self.batch, self.dimensions), jnp.float32)
        return jax.pure_callback(  # type: ignore[no-any-return]
            self._ask, (_shapes(arrays), samples), arrays, vmap_method="sequential"
        )

    def tell(self, arrays: Arrays, samples: jax.Array, ranking: Ranking) -> Arrays:
        """See `IsotropicStrategies.tell`. The samples are drawn again."""
        return jax.pure_callback(  # type: ignore[no-any-return]
            self._tell, _shapes(arrays), arrays, ranking, vmap_method="sequential"
        )

    def _ask(self, arrays: Arrays) -> tuple[dict[str, np.ndarray], np.ndarray]:
        strategies = self._objects(arrays)
        return self._read(arrays, strategies), np.stack([samples for _, samples in strategies])

    def _tell(self, arrays: Arrays, ranking: Ranking) -> dict[str, np.ndarray]:
        strategies = self._objects(arrays)
        updates = zip(strategies, *map(np.asarray, ranking), strict=True)
        for (strategy, _), ranks, value, count, origin in updates:
            strategy.tell(ranks, value, int(count))
            if count == 0 or strategy.check_stop(value[ranks].astype(float)):  # a float32 norm could overflow
                strategy.reset(origin)
        return self._read(arrays, strategies)

    def _objects(self, arrays: Arrays) -> list[tuple[Any, np.ndarray]]:
        """The strategies as pyribs objects, with their samples."""
        host = {name: np.asarray(array) for name, array in arrays.items()}
        strategies = []
        for index, seed in enumerate(host[SEEDS]):
            strategy = self._type(
                sigma0=self.sigma,
                solution_dim=self.dimensions,
                batch_size=self.batch,
                seed=int(seed),
                dtype=np.float32,
            )
            strategy.reset(host["mean"][index])
            for part in self._parts:
                *path, name = part.attribute.split(".")
                owner = attrgetter(*path)(strategy) if path else strategy
                setattr(owner, name, part.type(host[part.attribute][index]))
            strategies.append((strategy, strategy.ask()))
        return strategies

    def _read(self, arrays: Arrays, strategies: list[tuple[Any, np.ndarray]]) -> dict[str, np.ndarray]:
        """The strategies as arrays again."""
        return {SEEDS: np.asarray(arrays[SEEDS])} | {
            part.attribute: np.stack([attrgetter(part.attribute)(strategy) for strategy, _ in strategies])
            .astype(np.int32 if part.type is int else np.float32)
            for part in self._parts
        }  # fmt: skip


Strategies = IsotropicStrategies | CovarianceStrategies


def make_strategies(kind: Kind, strategies: int, batch: int, dimensions: int, sigma: float) -> Strategies:
    """Independent evolution strategies of one kind, each with its own batch."""
    if kind == "isotropic":
        return IsotropicStrategies(strategies, batch, dimensions, sigma)
    return CovarianceStrategies(kind, strategies, batch, dimensions, sigma)


def size_in_bytes(kind: Kind, strategies: int, batch: int, dimensions: int) -> int:
    """Memory of the arrays of all strategies, without their seeds."""
    sizes = {"n": dimensions, "b": batch}
    return 4 * strategies * sum(math.prod(sizes[size] for size in part.shape) for part in PARTS[kind])


def _shapes(arrays: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in arrays.items()}

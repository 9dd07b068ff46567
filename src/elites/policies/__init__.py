"""The controller: a perceptron with rectified hidden units and tanh outputs.

`layout` defines its parameters, one flat vector. There are three implementations, whose actions agree to
float32 rounding: JAX for learning and device tasks, NumPy for worker processes, Numba for compiled episodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elites.policies.layout import parameter_count, split_layers

if TYPE_CHECKING:
    from elites.policies.jax import Layers, Policy, init_layers, normc_layers

__all__ = ["Layers", "Policy", "init_layers", "normc_layers", "parameter_count", "split_layers"]


def __getattr__(name: str) -> Any:
    if name in ("Layers", "Policy", "init_layers", "normc_layers"):  # worker processes never import JAX
        from elites.policies import jax

        return getattr(jax, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

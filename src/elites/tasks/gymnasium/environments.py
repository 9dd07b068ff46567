"""Makes Gymnasium environments, and checks that a controller can act in them."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from elites.errors import ElitesError, describe_error
from elites.imports import import_module, is_in_memory, load_function


class Spaces(NamedTuple):
    """Sizes and bounds of observations and actions."""

    observation_size: int
    observation_type: np.dtype
    low: np.ndarray  # of each action
    high: np.ndarray


def make_environment(
    environment: str,
    options: dict[str, Any],
    *,
    episode_length: int | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env[Any, Any]:
    """The environment with Gymnasium's id, or made by the function at a path.

    `episode_length`, if given, replaces the registered limit of the id.
    """
    if render_mode is not None:
        options = {**options, "render_mode": render_mode}
    module, colon, name = environment.partition(":")
    factory: Any = None
    if is_in_memory(environment):
        factory = load_function(environment, "environment")
    elif colon:  # Gymnasium's own ids may name the module that registers them, too
        factory = import_module(module, f"environment {environment!r}")
        for part in name.split("."):
            factory = getattr(factory, part, None)
        if factory is None and "-" not in name and name not in gymnasium.registry:
            load_function(environment, "environment")  # raises an error that lists the functions
    try:
        if factory is not None:
            instance = factory(**options)
        else:
            limit = {} if episode_length is None else {"max_episode_steps": episode_length}
            instance = gymnasium.make(name or module, disable_env_checker=True, **limit, **options)
    except gymnasium.error.UnregisteredEnv:
        raise ElitesError(_unknown(environment)) from None
    except ElitesError:
        raise
    except (Exception, SystemExit) as error:
        raise ElitesError(f"{environment} could not be made: {describe_error(error)}") from error
    if not isinstance(instance, gymnasium.Env):
        raise ElitesError(f"{environment} makes a {type(instance).__name__}; it must make a gymnasium.Env")
    return instance


def _unknown(environment: str) -> str:
    module, _, name = environment.rpartition(":")
    near = difflib.get_close_matches(name, gymnasium.registry, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "gymnasium.registry lists all environments."
    if not module:
        hint += f" If a module of yours registers it, give gym:module:{name}"
    return f"unknown environment {environment!r}; {hint}"


def read_spaces(environment: gymnasium.Env[Any, Any], name: str) -> Spaces:
    """Sizes and bounds; observations must be a vector, and actions a vector of continuous numbers."""
    observed, acted = environment.observation_space, environment.action_space
    if not isinstance(observed, spaces.Box) or len(observed.shape) != 1:
        raise ElitesError(
            f"{name} has observations {_description(observed)}; they must be a vector "
            "(gymnasium.wrappers.FlattenObservation makes one)"
        )
    continuous = isinstance(acted, spaces.Box) and np.issubdtype(acted.dtype, np.floating)
    if not continuous or len(acted.shape or ()) != 1:
        raise ElitesError(
            f"{name} takes actions {_description(acted)}; they must be a vector of continuous numbers"
        )
    assert isinstance(acted, spaces.Box)
    if not (
        np.isfinite(acted.low).all() and np.isfinite(acted.high).all() and (acted.low < acted.high).all()
    ):
        raise ElitesError(
            f"{name} takes actions from {acted.low} to {acted.high}; the bounds must be finite "
            "(gymnasium.wrappers.RescaleAction sets them)"
        )
    return Spaces(observed.shape[0], np.dtype(observed.dtype), acted.low, acted.high)


def _description(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Box):
        return f"Box{space.shape} of {space.dtype}"
    return " ".join(str(space).split())

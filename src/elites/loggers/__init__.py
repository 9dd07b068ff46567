"""Loggers of a run in addition to its own tables: TensorBoard, trackers, and the user's own loggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from elites.errors import ElitesError
from elites.imports import load_object
from elites.loggers.logger import METHODS, Logger
from elites.versions import package_version

LOGGERS = {"wandb": "elites.loggers.wandb:WandB", "mlflow": "elites.loggers.mlflow:MLflow"}
PACKAGES = {"wandb": ("wandb",), "mlflow": ("mlflow", "mlflow-skinny")}  # one of each must be installed

Choice = str | Callable[[], Logger]
"""A logger: its name, its import path `module:Class`, or a function that makes one for each run."""


def find_logger(choice: Choice) -> Callable[[], Logger]:
    """The function that makes the loggers of a choice; an error if there is no such logger."""
    if not isinstance(choice, str):
        return _check_factory(choice, repr(choice))
    if choice in PACKAGES and not any(map(package_version, PACKAGES[choice])):
        raise ElitesError(f"logger {choice} is not installed: pip install 'elites[{choice}]' adds it")
    if choice not in LOGGERS and ":" not in choice:
        raise ElitesError(f"unknown logger {choice!r}; it must be {', '.join(LOGGERS)} or module:Class")
    return _check_factory(load_object(LOGGERS.get(choice, choice), "logger"), repr(choice))


def _check_factory(factory: Any, name: str) -> Callable[[], Logger]:
    missing = [method for method in METHODS if isinstance(factory, type) and not hasattr(factory, method)]
    if missing or not callable(factory):
        needed = ", ".join(METHODS)
        raise ElitesError(f"logger {name} is not a class of loggers; it must have the methods {needed}")
    return factory  # type: ignore[no-any-return]


def name_loggers(choices: Iterable[Choice]) -> dict[str, Choice]:
    """Loggers by their names in messages and in the run's folder."""
    named: dict[str, Choice] = {}
    for choice in choices:
        name = choice if isinstance(choice, str) else _import_path(choice)
        while named.get(name, choice) is not choice:  # several of one class
            name += "'"
        named[name] = choice
    return named


def _import_path(choice: Any) -> str:
    inner = getattr(choice, "func", choice)  # of a functools.partial
    return f"{inner.__module__}:{getattr(inner, '__qualname__', type(inner).__name__)}"

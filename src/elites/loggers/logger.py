"""The interface of loggers: where a run is logged beside its own tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from elites.results.schemas import BY_OPERATOR


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """What a logger is told of its run."""

    folder: Path
    name: str
    group: str | None = None  # the name of the group, if the run is one of several seeds
    config: Mapping[str, Any]  # what `config.json` says
    evaluations: int = 0  # so far; not 0 if the run is resumed
    remembered: Mapping[str, str] = field(default_factory=dict)  # what `open` returned before


class Logger(Protocol):
    """Logs one run. If a method raises an exception, the run goes on without the logger."""

    def open(self, run: LoggedRun) -> Mapping[str, str] | None:
        """Begins, or goes on with, the log of a run. Returns what to remember if the run is resumed.

        A `url` in it is shown to the user.
        """

    def row(self, row: Mapping[str, float | None]) -> None:
        """A row of `metrics.csv`, by column; None is an empty cell.

        Rows after the last checkpoint come again, the same, when a killed run is resumed.
        """

    def picture(self, evaluations: int, png: bytes) -> None:
        """A picture of the archive after so many evaluations."""

    def close(self, finished: bool) -> None:
        """The end of the run, or of a part of it: `finished` says whether the budget is spent."""


METHODS = ("open", "row", "picture", "close")


def numbers(row: Mapping[str, float | None]) -> dict[str, float]:
    """The numbers of a row but `evaluations`. Those of operators are named `made/ga` and so on: viewers make
    groups of them."""
    named = {}
    for column, number in row.items():
        if number is not None and column != "evaluations":
            what = next((what for what in BY_OPERATOR if column.startswith(what)), "")
            named[f"{what[:-1]}/{column.removeprefix(what)}" if what else column] = number
    return named


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run without levels: its hyper-parameters, and the task's as `task.noise`."""
    chosen = {name: config[name] for name in ("algorithm", "task", "seed", "evaluations", "physics")}
    task = {f"task.{name}": value for name, value in config["task_parameters"].items()}
    return {**chosen, **config["hyper_parameters"], **task}

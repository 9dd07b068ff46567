"""The interface of loggers, which log a run in addition to its own tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """The information that a logger receives about its run."""

    folder: Path
    name: str
    group: str | None = None  # the name of the group, if the run is one of several seeds
    config: Mapping[str, Any]  # the content of `config.json`
    evaluations: int = 0  # so far; not 0 if the run is resumed
    remembered: Mapping[str, str] = field(default_factory=dict)  # what `open` returned before


class Logger(Protocol):
    """Logs one run. If a method raises an exception, the run goes on without the logger."""

    def open(self, run: LoggedRun) -> Mapping[str, str] | None:
        """Begins the log of a run, or continues it. Returns values to remember for when the run is resumed.

        If they include a `url`, it is shown to the user.
        """

    def log_row(self, row: Mapping[str, float | None]) -> None:
        """Logs a row of `metrics.csv`, by column; None is an empty cell.

        When a killed run is resumed, the rows after its last checkpoint are logged again, unchanged.
        """

    def log_picture(self, evaluations: int, png: bytes) -> None:
        """Logs a picture of the archive after this number of evaluations."""

    def close(self, finished: bool) -> None:
        """Ends the log, at the end of the run or of a part of it: `finished` if the budget is spent."""


METHODS = ("open", "log_row", "log_picture", "close")


def select_numbers(row: Mapping[str, float | None]) -> dict[str, float]:
    """The numbers of a row without `evaluations`. Those of operators are named `made/ga` and so on, because
    viewers group such names."""
    from elites.metrics.contribution import BY_OPERATOR  # only here: the command line reads the types above

    named = {}
    for column, number in row.items():
        if number is not None and column != "evaluations":
            prefix = next((prefix for prefix in BY_OPERATOR if column.startswith(prefix)), "")
            named[f"{prefix[:-1]}/{column.removeprefix(prefix)}" if prefix else column] = number
    return named


def flatten_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run as a flat dictionary; the task's parameters are named `task.noise` and so on."""
    chosen = {name: config[name] for name in ("algorithm", "task", "seed", "evaluations", "physics")}
    task = {f"task.{name}": value for name, value in config["task_parameters"].items()}
    return {**chosen, **config["hyper_parameters"], **task}

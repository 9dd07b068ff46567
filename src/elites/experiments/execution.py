"""The execution of a run: settings that do not change its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from elites.experiments.guards import write_stop
from elites.experiments.options import ExecutionOptions
from elites.loggers import find_logger
from elites.metrics.metric import METRICS, GenerationMetric, Metric
from elites.options import Threads, check_fields, convert_value


class Report(NamedTuple):
    """The report after each generation: a row of `metrics.csv` and one of `timings.csv`.

    With several seeds, the metrics are medians over all of them. None is an empty cell.
    """

    metrics: dict[str, Any]
    timings: dict[str, Any]
    budget: int  # of evaluations
    seeds: tuple[int, ...]
    shown_metrics: tuple[Metric | GenerationMetric, ...] = METRICS  # the archive's, and the run's own


def ignore(*_: object) -> None:
    """A callback that does nothing."""


@dataclass(frozen=True, kw_only=True)
class Execution(ExecutionOptions):
    """Resources, limits and callbacks of a run. Nothing in the result depends on them."""

    on_generation: Callable[[Report], None] | None = None
    """Called after each generation."""
    on_correction: Callable[[int, int], None] | None = None
    """Called during a correction with the number of episodes done and the total."""
    on_phase: Callable[[str], None] = ignore
    """Called with the name of each phase, such as "compiling"."""
    on_resume: Callable[[Report], None] = ignore
    """Called with the metrics of the archive from which a run is resumed, before anything is compiled."""
    on_stop: Callable[[str, int], None] = write_stop
    """Called at each Ctrl-C or SIGTERM, from another thread, with a line that says what the stop waits for,
    and with the number of signals so far; the default writes the line to standard error."""
    log: Callable[[str], None] = print
    """Called with each line for the user."""

    def __post_init__(self) -> None:
        check_fields(self)
        for choice in self.loggers:
            find_logger(choice)
        if self.cluster is None:
            convert_value(Threads | None, "threads", self.threads)

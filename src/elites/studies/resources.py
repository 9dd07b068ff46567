"""The execution of a study: settings that do not change its results."""

from __future__ import annotations

from dataclasses import dataclass

from elites.experiments.options import RunResources
from elites.options import Patience, Threads, Workers, check_fields, convert_value


@dataclass(frozen=True, kw_only=True)
class StudyExecution(RunResources):
    """Resources and limits of a study. No result depends on them."""

    workers: Workers | None = None
    """Number of parallel runs. Default: one per core, fewer if memory is short."""
    cluster: str | None = None
    """Address of a Ray cluster to run on, such as 10.0.0.1:6379, or auto."""
    max_hours: Patience | None = None
    """Time limit of the whole study in hours. It then stops cleanly, and the same command continues it."""
    keep_state: bool = False
    calibrate: bool = True
    """Whether to measure the speed of the runs before the plan is made."""

    def check(self) -> None:
        """Raises an error if a value is out of its range, which is smaller without a cluster."""
        if self.cluster is None:
            convert_value(Threads | None, "workers", self.workers)
            convert_value(Threads | None, "threads", self.threads)
        check_fields(self)

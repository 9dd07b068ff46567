"""Options that Python and the command line share; each is declared and described once."""

from __future__ import annotations

from dataclasses import dataclass

from elites.loggers import Choice
from elites.options import (
    Evaluations,
    Interval,
    Patience,
    Physics,
    Pictures,
    Replications,
    RowInterval,
    Seconds,
    Snapshots,
    Threads,
    Workers,
)


@dataclass(frozen=True, kw_only=True)
class PhysicsOptions:
    """The choice of what computes episodes."""

    physics: Physics | None = None
    """Physics of tasks in JAX: xla, native (machine code in threads) or cuda (a GPU kernel). Their rounding
    differs. Default: the run's own; a new run uses native if the task can be compiled, or cuda on a GPU with
    more than 1.25 seeds per CPU thread (1 if steps are long)."""


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions(PhysicsOptions):
    """Options of a command that evaluates controllers and trains nothing."""

    threads: Threads | None = None
    """Number of threads (worker processes for gym: tasks). Default: one per core."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(PhysicsOptions):
    """Settings of a run, or of every run of a study."""

    evaluations: Evaluations = 1_000_000
    """Budget: number of evaluated episodes."""
    snapshots: Snapshots = 0
    """Number of archives to save during the run, evenly spaced."""
    log_every: RowInterval = 1
    """Interval between rows of metrics.csv, in generations. The last generation always has a row."""
    metrics: tuple[str, ...] = ()
    """Metrics of your own, each as module:metric."""
    correct_every: Interval = 0
    """Number of evaluations between corrections of the archive, as by `elites correct`; 0: no corrections."""
    correct_replications: Replications = 50
    """Episodes per elite and correction."""


@dataclass(frozen=True, kw_only=True)
class RunResources:
    """Resources of a run, or of every run of a study."""

    threads: Workers | None = None
    """Number of rollout threads per run (worker processes for gym: tasks). Default: one per core; parallel
    runs of a study share the cores."""
    checkpoint_seconds: Seconds = 60.0
    """Minimum time between checkpoints in seconds; 0: as often as possible. Checkpoints use at most 2 % of
    the run time."""
    keep_state: bool = True
    """Whether to save the state of a finished run; `resume` needs it to extend the run. It takes as much
    space as the archive, plus up to 300 MB for a replay buffer."""


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions(RunResources):
    """Options that do not change the result of a run."""

    max_hours: Patience | None = None
    """Time limit in hours. The run then stops cleanly, and `resume` continues it."""
    cluster: str | None = None
    """Address of a Ray cluster that runs the episodes, such as 10.0.0.1:6379, or auto."""
    loggers: tuple[Choice, ...] = ()
    """Loggers in addition to metrics.csv and TensorBoard: wandb, mlflow, or module:Class of your own (in
    Python also the class itself). A resumed run continues with its loggers."""
    pictures: Pictures | None = None
    """Number of pictures of the archive during the run, for TensorBoard and the loggers; 0: none. Default: up
    to ten, which take at most 2 % of the run time."""

"""`elites run` and `elites resume`."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from elites.cli.command import Folder, exit_at_once
from elites.cli.inspect import Show
from elites.cli.options import TaskOptions
from elites.errors import ElitesError
from elites.options import (
    Evaluations,
    Interval,
    Patience,
    Physics,
    Pictures,
    Replications,
    RowInterval,
    Seconds,
    Seed,
    Seeds,
    Snapshots,
    Workers,
)

if TYPE_CHECKING:
    from elites.experiments.config import RunConfig
    from elites.experiments.execution import Execution
    from elites.experiments.loop import Outcome


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Options that do not change the result."""

    threads: Workers | None = None
    """Number of rollout threads (worker processes for gym: tasks); the default is one per core."""
    max_hours: Patience | None = None
    """Hours after which the run stops cleanly; `elites resume` continues it."""
    checkpoint_seconds: Seconds = 60.0
    """Minimum seconds between checkpoints; 0: as often as possible. Checkpoints use at most 2 % of the run
    time."""
    keep_state: bool = True
    """Whether a finished run keeps the state that `elites resume --evaluations` continues from: a checkpoint,
    which is as large as the archive, with a replay buffer up to 300 MB larger."""
    cluster: str | None = None
    """Address of a Ray cluster for the episodes, such as 10.0.0.1:6379, or auto."""
    log: tuple[str, ...] = ()
    """Loggers in addition to metrics.csv and TensorBoard: wandb, mlflow, or module:Class of your own. A
    resumed run continues with its loggers."""
    pictures: Pictures | None = None
    """Pictures of the archive along the run, for TensorBoard and the loggers. The default is up to ten, which
    take at most 2 % of the time; 0: none."""

    def execution(self, **callbacks: Any) -> Execution:
        """The `Execution` with these options."""
        from elites.experiments.execution import Execution

        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(ExecutionOptions)}
        loggers = given.pop("log")
        return Execution(**given, loggers=loggers, **callbacks)


@dataclass(frozen=True, kw_only=True)
class RunOptions(TaskOptions, ExecutionOptions):
    """Options of every `elites run ALGORITHM`; the algorithm's hyper-parameters are added."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Task: one of `elites tasks`, gym:ID for a Gymnasium environment, or module:task for your own."""
    evaluations: Evaluations = 1_000_000
    """Budget: number of evaluated episodes."""
    seed: Seed = 0
    """Seed of everything random."""
    seeds: Seeds = 1
    """Number of replications, with consecutive seeds. Trained in one program. Non-isotropic cma-map-elites,
    and td3 on tasks outside JAX, run one after the other."""
    out: Path | None = None
    """Folder of the run; the default is runs/ALGORITHM-TASK-SEED."""
    start: Annotated[Path | None, tyro.conf.arg(name="from", metavar="DIR")] = None
    """Folder of a run, or file of an archive, whose elites are evaluated first, in place of random
    controllers. Their evaluations count."""
    snapshots: Snapshots = 0
    """Number of archives to keep along the way, evenly spaced."""
    log_every: RowInterval = 1
    """Interval between rows of metrics.csv, in generations. The last generation always has a row."""
    metrics: tuple[str, ...] = ()
    """Metrics of your own, each as module:metric."""
    correct_every: Interval = 0
    """Evaluations between corrections of the archive, as `elites correct` does them; 0: none."""
    correct_replications: Replications = 50
    """Episodes per elite and correction."""
    correct_redraw: bool = False
    """deep-grid: whether a correction draws a member of the cell for each replication."""

    physics: Physics | None = None
    """Tasks in JAX: what computes the episodes, xla, native (machine code in threads) or cuda (a
    kernel for the steps). They round differently. The default is native where the task can be compiled, and
    cuda on a GPU with more than 1.25 seeds per CPU thread (one if steps are long)."""

    def run(self) -> int:
        from elites.experiments.display import Display

        hyper_parameters = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in RunOptions.__dataclass_fields__
        }
        _refuse_other_cells(hyper_parameters["archive"], self.cells, self.grid)
        algorithm = type(self).__name__
        with Display(f"{algorithm} on {self.task}", end_process=exit_at_once) as display:
            from elites.experiments.config import RunConfig
            from elites.experiments.run import run

            config = RunConfig(
                algorithm=algorithm,
                task=self.task,
                evaluations=self.evaluations,
                seed=self.seed,
                snapshots=self.snapshots,
                log_every=self.log_every,
                metrics=self.metrics,
                correct_every=self.correct_every,
                correct_replications=self.correct_replications,
                correct_redraw=self.correct_redraw,
                physics=self.physics,
                start=self.start,
                hyper_parameters=hyper_parameters,
                task_parameters=self.task_parameters(),
            )
            _warn_if_replay_cannot_draw(config)
            execution = self.execution(**display.callbacks())
            outcome = run(config, self.out, self.seeds, execution, progress=False)
        return conclude(outcome)


def _warn_if_replay_cannot_draw(config: RunConfig) -> None:
    """Prints a line if `elites replay` cannot draw the run: environments may need other packages for it."""
    from elites.tasks.gymnasium import GymnasiumTask
    from elites.tasks.gymnasium.remote import why_not_drawn

    task = config.make_task()
    if isinstance(task, GymnasiumTask) and (reason := why_not_drawn(task)):
        print(f"`elites replay` cannot draw this run yet: {reason}", flush=True)


def _refuse_other_cells(archive: str, cells: int | None, grid: tuple[int, ...] | None) -> None:
    if archive != "grid" and grid is not None:
        raise ElitesError(f"--grid is for --archive grid; this archive is {archive}, which takes --cells")
    if archive == "grid" and cells is not None:
        raise ElitesError("--cells is for --archive cvt; this archive is grid, which takes --grid")


@functools.cache
def run_command(name: str) -> type[RunOptions]:
    """`elites run NAME`: the options of every run and the algorithm's own."""
    from elites.algorithms import find_algorithm

    config: Any = find_algorithm(name).Config
    clashing = sorted(set(config.__dataclass_fields__) & set(RunOptions.__dataclass_fields__))
    if clashing:
        raise ElitesError(
            f"hyper-parameters of {name} have names of options of `elites run`: {', '.join(clashing)}"
        )
    command = type(
        name, (RunOptions, config), {"__doc__": config.__doc__, "__post_init__": lambda self: None}
    )
    return dataclass(frozen=True, kw_only=True)(command)


@dataclass(frozen=True, kw_only=True)
class Resume(ExecutionOptions):
    """Continue a run that was killed, interrupted or out of time, or extend one that is finished."""

    folder: Folder
    """Folder of the run, or of a group of runs."""
    evaluations: Evaluations | None = None
    """A larger budget; the result is that of a run which had it from the beginning, bit for bit."""

    def run(self) -> int:
        from elites.experiments.display import Display

        with Display(f"{self.folder}", end_process=exit_at_once) as display:
            from elites.experiments.run import resume

            execution = self.execution(**display.callbacks())
            outcome = resume(self.folder, execution, evaluations=self.evaluations, progress=False)
        return conclude(outcome)


def conclude(outcome: Outcome) -> int:
    """Prints the result of a run or a group of runs."""
    from elites.files import in_bytes
    from elites.metrics.archive import summary
    from elites.metrics.metric import ArchiveMetrics
    from elites.results.folder import RunFolder

    if not outcome.finished:
        print(
            f"stopped after {outcome.evaluations:,} evaluations; `elites resume {outcome.folder}` continues",
            flush=True,
        )
        return 0
    if not outcome.runs:
        Show(folder=outcome.folder).run()
    for run in outcome.runs:
        metrics = ArchiveMetrics(*(run.metrics[name] for name in ArchiveMetrics._fields))
        print(f"{run.folder}: {run.evaluations:,} evaluations, {summary(metrics)}")
    folders = [outcome.folder, *(run.folder for run in outcome.runs)]
    kept = sum(RunFolder(folder).checkpoints.size() for folder in folders)
    if kept:
        print(
            f"`elites resume {outcome.folder} --evaluations N` continues from here: its state takes "
            f"{in_bytes(kept)} (--no-keep-state: none)"
        )
    return 0

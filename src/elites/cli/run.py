"""`elites run` and `elites resume`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from elites.cli.command import Folder, exit_at_once
from elites.cli.options import TaskOptions
from elites.errors import ElitesError
from elites.experiments.options import ExecutionOptions, RunSettings
from elites.options import Evaluations, Seed, Seeds, select_values

if TYPE_CHECKING:
    from elites.experiments.config import RunConfig
    from elites.experiments.execution import Execution
    from elites.experiments.loop import Outcome


@dataclass(frozen=True, kw_only=True)
class ExecutionArguments(ExecutionOptions):
    """Options of a command that do not change the result."""

    loggers: Annotated[tuple[str, ...], tyro.conf.arg(name="log")] = ()

    def make_execution(self, **callbacks: Any) -> Execution:
        """The `Execution` with these options."""
        from elites.experiments.execution import Execution

        return Execution(**select_values(self, ExecutionOptions), **callbacks)


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunSettings, ExecutionArguments, TaskOptions):
    """Options of every `elites run ALGORITHM`; the algorithm's hyper-parameters are added."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Task: one of `elites tasks`, gym:ID for a Gymnasium environment, or module:task for your own."""
    seed: Seed = 0
    """Random seed."""
    seeds: Seeds = 1
    """Number of replications, with consecutive seeds. They train together; non-isotropic cma-map-elites, and
    td3 on tasks outside JAX, run one after the other."""
    out: Path | None = None
    """Folder of the run; the default is runs/ALGORITHM-TASK-SEED."""
    start: Annotated[Path | None, tyro.conf.arg(name="from", metavar="DIR")] = None
    """Archive to begin with: a run's folder or an archive file. Its elites are evaluated first, instead of
    random controllers. These evaluations count towards the budget."""
    correct_redraw: bool = False
    """deep-grid: whether a correction draws a member of the cell for each replication."""

    def run(self) -> int:
        from elites.algorithms import find_algorithm, refuse_other_cells
        from elites.experiments.display import Display

        algorithm = type(self).__name__
        hyper_parameters = select_values(self, find_algorithm(algorithm).Config)
        refuse_other_cells(hyper_parameters["archive"], self.cells, self.grid)
        with Display(f"{algorithm} on {self.task}", end_process=exit_at_once) as display:
            from elites.experiments.config import RunConfig
            from elites.experiments.run import run

            config = RunConfig(
                **select_values(self, RunConfig)
                | {
                    "algorithm": algorithm,
                    "hyper_parameters": hyper_parameters,
                    "task_parameters": self.make_task_parameters(),
                }
            )
            _warn_if_replay_cannot_draw(config)
            execution = self.make_execution(**display.make_callbacks())
            outcome = run(config, self.out, self.seeds, execution, progress=False)
        return print_outcome(outcome)


def _warn_if_replay_cannot_draw(config: RunConfig) -> None:
    """Prints a line if `elites replay` cannot draw the run: environments may need other packages for it."""
    from elites.tasks.gymnasium import GymnasiumTask
    from elites.tasks.gymnasium.remote import no_drawing_reason

    task = config.make_task()
    if isinstance(task, GymnasiumTask) and (reason := no_drawing_reason(task)):
        print(f"`elites replay` cannot draw this run yet: {reason}", flush=True)


@functools.cache
def make_run_command(name: str) -> type[RunOptions]:
    """`elites run NAME`: the options of every run and the algorithm's own."""
    from elites.algorithms import find_algorithm

    config: Any = find_algorithm(name).Config
    clashing = sorted(set(config.__dataclass_fields__) & {*RunOptions.__dataclass_fields__, "log"})
    if clashing:
        raise ElitesError(
            f"hyper-parameters of {name} have names of options of `elites run`: {', '.join(clashing)}"
        )
    command = type(
        name, (RunOptions, config), {"__doc__": config.__doc__, "__post_init__": lambda self: None}
    )
    return dataclass(frozen=True, kw_only=True)(command)


@dataclass(frozen=True, kw_only=True)
class Resume(ExecutionArguments):
    """Continue a run that was killed, interrupted or out of time, or extend one that is finished."""

    folder: Folder
    """Folder of the run, or of a group of runs."""
    evaluations: Evaluations | None = None
    """Larger budget. The result is bit for bit that of a run planned with this budget."""

    def run(self) -> int:
        from elites.experiments.display import Display

        with Display(f"{self.folder}", end_process=exit_at_once) as display:
            from elites.experiments.run import resume

            execution = self.make_execution(**display.make_callbacks())
            outcome = resume(self.folder, execution, evaluations=self.evaluations, progress=False)
        return print_outcome(outcome)


def print_outcome(outcome: Outcome) -> int:
    """Prints the result of a run or a group of runs."""
    from elites.experiments.display import Bar
    from elites.files import format_bytes
    from elites.metrics.metric import METRICS, describe_values, installed_metrics
    from elites.results.folder import RunFolder

    if not outcome.finished:
        print(
            f"stopped after {outcome.evaluations:,} evaluations; `elites resume {outcome.folder}` continues",
            flush=True,
        )
        return 0
    if not outcome.runs:
        with Bar(f"{outcome.folder}", activity="drawing figures"):
            from elites.reports.show import show

            text = show(outcome.folder)
        print(text)
    for run in outcome.runs:
        paths = RunFolder(run.folder).read_record().metrics
        names = [metric.name for metric in (*METRICS, *installed_metrics(paths)[0])]
        values = {name: run.metrics.get(name) for name in names}
        print(f"{run.folder}: {run.evaluations:,} evaluations, {describe_values(values, paths)}")
    folders = [outcome.folder, *(run.folder for run in outcome.runs)]
    state_bytes = sum(RunFolder(folder).checkpoints.size() for folder in folders)
    if state_bytes:
        print(
            f"`elites resume {outcome.folder} --evaluations N` continues from here; the saved state takes "
            f"{format_bytes(state_bytes)} (--no-keep-state does not save it)"
        )
    return 0

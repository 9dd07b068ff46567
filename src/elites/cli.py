"""The `elites` command. A subcommand is a dataclass: its fields are the options, its docstring the help."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import tyro

from elites.errors import ElitesError, require
from elites.replays.command import Replay
from elites.study_commands import STUDY_COMMANDS, StudyRun

if TYPE_CHECKING:
    from elites.experiments.loop import Outcome
    from elites.tasks.task import Task

INTERRUPTED = 130


class Command(Protocol):
    """A subcommand whose options have been given."""

    def run(self) -> int:
        """Does it. Returns the exit status."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Parameters of a task; its own unless given."""

    noise: float | None = None
    """Of the initial joint angles, in rad, or as Brax has it; the task's own unless given."""
    episode_length: int | None = None
    """Steps after which an episode is truncated; the task's own unless given."""
    noise_distribution: Literal["uniform", "normal"] | None = None
    """qd- tasks: how the initial joint angles are drawn, uniform unless given: noise is half the width of
    uniform ones, the standard deviation of normal ones."""
    ends_on_fall: bool | None = None
    """Whether a robot that is not upright ends its episode; the task's own unless given."""

    backend: str | None = None
    """Brax tasks: the physics, spring unless given; positional, generalized and mjx are the others."""
    cells: int | None = None
    """Of the CVT archive (--archive cvt); the task's own unless given."""
    grid: tuple[int, ...] | None = None
    """Cells per dimension of the grid archive (--archive grid); the task's own unless given."""
    qd_offset: float | None = None
    """Fitness that counts nothing in the QD-score; of a gym: task measured unless given."""

    descriptor: str | None = None
    """gym: tasks: module:function that describes an episode."""
    step_descriptor: str | None = None
    """gym: tasks: module:function that describes a step, whose mean describes the episode unless told."""
    descriptor_bounds: tuple[float, ...] | None = None
    """gym: tasks: lowest and highest value of each dimension, one pair after the other; 0 1 unless given."""
    descriptor_names: tuple[str, ...] | None = None
    """gym: tasks: what figures and summaries call the dimensions."""
    environment_options: str | None = None
    """gym: tasks: arguments of what makes the environment, as JSON: '{"gravity": -9.8}'."""
    fresh: bool | None = None
    """gym: tasks: whether each episode has an environment of its own; true unless given."""
    patience: float | None = None
    """gym: tasks: seconds that a step may take before its worker is replaced; 60 unless given."""

    def task_parameters(self) -> dict[str, Any]:
        """Those that were given."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(TaskOptions)}
        given = {name: value for name, value in given.items() if value is not None}
        if (bounds := given.get("descriptor_bounds")) is not None:
            pairs = len(bounds) >= 2 and len(bounds) % 2 == 0
            require(pairs, "descriptor_bounds", bounds, "pairs of a lowest and a highest value")
            given["descriptor_bounds"] = tuple(zip(bounds[::2], bounds[1::2], strict=True))
        if (options := given.get("environment_options")) is not None:
            given["environment_options"] = _json(options)
        return given


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ElitesError(f"environment_options is {text!r}, which is no JSON: {error}") from None


@dataclass(frozen=True)
class Tasks:
    """List the tasks and their sizes."""

    def run(self) -> int:
        from elites.tasks import TASKS
        from elites.tasks.task import parameter_count

        rows = [("task", "observation", "action", "descriptor", "controller", "cells", "steps", "QD offset")]
        rows += [
            (
                task.name,
                str(task.observation_size),
                str(task.action_size),
                str(task.descriptor_size),
                str(parameter_count(task.controller())),
                str(task.cells),
                str(task.episode_length),
                f"{task.qd_offset:.2f}",
            )
            for task in TASKS.values()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, *numbers in rows:
            cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
            print("  ".join((name.ljust(widths[0]), *cells)))
        print("gym:ID  any Gymnasium environment with continuous actions, described by --descriptor")
        return 0


@dataclass(frozen=True)
class Algorithms:
    """List the algorithms and their hyper-parameters."""

    def run(self) -> int:
        from elites.algorithms import ALGORITHMS

        for name, entry in ALGORITHMS.items():
            print(f"{name}: {_first_line(entry.config)}")
            for field in dataclasses.fields(entry.config):
                print(f"  --{field.name.replace('_', '-'):<22} {_as_typed(field.default)}")
        return 0


def _as_typed(default: object) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


@dataclass(frozen=True, kw_only=True)
class Random(TaskOptions):
    """Evaluate random controllers and print what they do."""

    tasks: tyro.conf.Positional[tuple[str, ...]] = ("qd-walker", "qd-halfcheetah", "qd-ant", "qd-hopper")
    """Tasks to run on."""
    controllers: int = 100
    """How many random controllers per task."""
    seed: int = 0
    """Of the controllers and of their episodes."""
    threads: int | None = None
    """One per core unless given."""

    def run(self) -> int:
        from elites.tasks import make_task

        require(self.controllers >= 1, "controllers", self.controllers, "at least 1")
        last = 2**32 - self.controllers
        require(0 <= self.seed <= last, "seed", self.seed, f"from 0 to {last}")
        tasks = [make_task(name, **self.task_parameters()) for name in self.tasks]  # checked before any runs
        for task in tasks:
            self._evaluate(task)
        return 0

    def _evaluate(self, task: Task) -> None:
        import jax
        import numpy as np
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from elites.evaluation import evaluator_of
        from elites.policies import Policy

        keys = jax.random.split(jax.random.key(self.seed), self.controllers)
        parameters = jax.jit(jax.vmap(Policy.of(task).init))(keys)
        seeds = self.seed + np.arange(self.controllers)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with (
            evaluator_of(task, (128, 128), self.threads) as evaluator,
            Progress(*columns, transient=True) as progress,
        ):
            bar = progress.add_task(task.name, total=self.controllers)
            started = time.perf_counter()
            evaluation = evaluator.evaluate(parameters, seeds, on_episode=lambda _: progress.advance(bar))
            seconds = time.perf_counter() - started
        low, middle, high = np.nanquantile(evaluation.fitness, (0, 0.5, 1))
        spread = ", ".join(
            f"{name} {np.nanmin(touch):.2f} to {np.nanmax(touch):.2f}"
            for name, touch in zip(task.descriptor_names, evaluation.descriptor.T, strict=True)
        )
        steps = int(evaluation.length.sum())
        print(f"{task.name}: {self.controllers} controllers, {steps} steps, {steps / seconds:.0f} steps/s")
        print(f"  fitness     {low:.1f} to {high:.1f}, median {middle:.1f}")
        print(f"  descriptor  {spread}")
        if evaluation.invalid:
            print(f"  {evaluation.invalid} episodes gave NaN")


@dataclass(frozen=True, kw_only=True)
class HowToRun:
    """What changes nothing in the result."""

    threads: int | None = None
    """Of the rollouts, processes of a gym: task; one per core unless given."""
    max_hours: float | None = None
    """Stops cleanly after so many hours; `elites resume` goes on."""
    checkpoint_seconds: float = 60.0
    """Least time between checkpoints; they never take more than 2 % of the time."""
    cluster: str | None = None
    """Address of a Ray cluster that runs the episodes, such as 10.0.0.1:6379, or auto."""

    def how(self) -> dict[str, Any]:
        """For `elites.run` and `elites.resume`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(HowToRun)}


@dataclass(frozen=True, kw_only=True)
class RunOptions(TaskOptions, HowToRun):
    """What every `elites run ALGORITHM` takes; the algorithm's hyper-parameters come on top."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """One of `elites tasks`, or gym:ID for a Gymnasium environment."""
    evaluations: int = 1_000_000
    """Budget: episodes of offspring."""
    seed: int = 0
    """All that is random follows from it."""
    seeds: int = 1
    """Replications, from that seed on: of a Brax task in one program, of others one after the other."""
    out: Path | None = None
    """Folder of the run; runs/ALGORITHM-TASK-SEED unless given."""
    snapshots: int = 0
    """How many archives to keep along the way, evenly spaced."""
    correct_every: int = 0
    """Corrects the archive every so many evaluations and at the end, as `elites correct` does; 0: never."""
    correct_replications: int = 50
    """Episodes per elite and correction."""
    correct_redraw: bool = False
    """Of deep-grid: corrections draw a member of the cell for each replication."""

    def run(self) -> int:
        from elites.experiments.config import RunConfig
        from elites.experiments.display import Display
        from elites.experiments.run import run, run_group

        require(self.seeds >= 1, "seeds", self.seeds, "at least 1")
        hyper_parameters = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in RunOptions.__dataclass_fields__
        }
        _refuse_other_cells(hyper_parameters["archive"], self.cells, self.grid)
        config = RunConfig(
            algorithm=type(self).__name__,
            task=self.task,
            evaluations=self.evaluations,
            seed=self.seed,
            snapshots=self.snapshots,
            correct_every=self.correct_every,
            correct_replications=self.correct_replications,
            correct_redraw=self.correct_redraw,
            hyper_parameters=hyper_parameters,
            task_parameters=self.task_parameters(),
        )
        several = f", {self.seeds} seeds" if self.seeds > 1 else ""
        with Display(f"{config.algorithm} on {config.task}{several}") as display:
            how = {**self.how(), **display.takes()}
            outcomes = (
                [run(config, self.out, **how)]
                if self.seeds == 1
                else run_group(config, self.seeds, self.out, **how)
            )
        return _conclude(outcomes)


def _refuse_other_cells(archive: str, cells: int | None, grid: tuple[int, ...] | None) -> None:
    if archive != "grid" and grid is not None:
        raise ElitesError(f"--grid is for --archive grid; this archive is {archive}, which takes --cells")
    if archive == "grid" and cells is not None:
        raise ElitesError("--cells is for --archive cvt; this archive is grid, which takes --grid")


@functools.cache
def run_command(name: str) -> type[RunOptions]:
    """`elites run NAME`: the options of every run and the algorithm's own."""
    from elites.algorithms import find

    config = find(name).config
    command = type(
        name, (RunOptions, config), {"__doc__": config.__doc__, "__post_init__": lambda self: None}
    )
    return dataclass(frozen=True, kw_only=True)(command)


@dataclass(frozen=True, kw_only=True)
class Resume(HowToRun):
    """Go on with a run that was killed, interrupted or out of time."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's folder."""

    def run(self) -> int:
        from elites.experiments.config import GROUP
        from elites.experiments.display import Display
        from elites.experiments.run import resume, resume_group

        with Display(f"{self.folder}") as display:
            how = {**self.how(), **display.takes()}
            group = (self.folder / GROUP).exists()
            outcomes = resume_group(self.folder, **how) if group else [resume(self.folder, **how)]
        return _conclude(outcomes)


def _conclude(outcomes: list[Outcome]) -> int:
    first, *others = outcomes
    whole = first.folder.parent if others else first.folder
    if not all(outcome.finished for outcome in outcomes):
        least = min(outcome.evaluations for outcome in outcomes)
        print(f"stopped after {least:,} evaluations; `elites resume {whole}` goes on", flush=True)
        return 0
    if not others:
        return Show(folder=whole).run()
    for outcome in outcomes:
        found = outcome.metrics
        print(
            f"{outcome.folder}: {outcome.evaluations:,} evaluations, QD-score {found['qd_score']:,.0f}, "
            f"max-fitness {found['max_fitness']:.1f}, coverage {found['coverage']:.1%}"
        )
    return 0


@dataclass(frozen=True, kw_only=True)
class Correct:
    """Evaluate every elite of a run again, to see how much of its archive was luck.

    Saves all replications, and the corrected archive that their means make, as corrected.npz in the run's
    folder. Interrupted, the same command goes on where it stopped.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's folder."""
    replications: int = 50
    """Episodes per elite (N)."""
    snapshot: int | None = None
    """Corrects the snapshot of so many evaluations instead, into corrected-EVALUATIONS.npz."""
    seed: int = 0
    """Of the replications; the run's own episodes have others."""
    redraw: bool = False
    """Of deep-grid: draw a member of the cell for each replication, instead of evaluating its best."""
    threads: int | None = None
    """One per core unless given."""

    def run(self) -> int:
        from elites.experiments.correct import correct
        from elites.experiments.display import Bar

        with Bar(f"correcting {self.folder}") as bar:
            corrected = correct(
                self.folder,
                replications=self.replications,
                snapshot=self.snapshot,
                seed=self.seed,
                redraw=self.redraw,
                threads=self.threads,
                on_progress=bar,
                tell=bar.tell,
            )
        from elites.reports.tables import losses

        print(losses(corrected))
        return 0


@dataclass(frozen=True, kw_only=True)
class Show:
    """Print what a run has found and draw its archive and its progress."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's folder."""

    def run(self) -> int:
        from elites.reports.show import show

        print(show(self.folder))
        return 0


@dataclass(frozen=True, kw_only=True)
class InstallBullet:
    """Fetch the physics of the qd- tasks where pybullet has no wheel for this Python."""

    to: Path | None = None
    """Folder for the files; the cache folder unless given. ELITES_BULLET=FOLDER then names it."""

    def run(self) -> int:
        from elites.tasks.qdgym.install import install_bullet

        install_bullet(self.to)
        return 0


COMMANDS: dict[str, type[Command]] = {
    "run": RunOptions,
    "resume": Resume,
    "correct": Correct,
    "show": Show,
    "replay": Replay,
    "study": StudyRun,
    "tasks": Tasks,
    "algorithms": Algorithms,
    "random": Random,
    "install-bullet": InstallBullet,
}


def overview(command: str | None = None) -> str:
    """What `elites --help` prints, and `elites run --help` and `elites study --help`."""
    if command == "run":
        from elites.algorithms import ALGORITHMS

        return _listing(
            "elites run ALGORITHM TASK [OPTIONS]",
            "Run an algorithm on a task, one of `elites tasks`.",
            {name: _first_line(entry.config) for name, entry in ALGORITHMS.items()},
            "elites run ALGORITHM --help lists its options.",
        )
    if command == "study":
        return _listing(
            "elites study run STUDY --out DIR, or elites study report DIR",
            "Run many runs as one and compare them.",
            {name: _first_line(action) for name, action in STUDY_COMMANDS.items()},
            "elites study run --help and elites study report --help list their options.",
        )
    described = {name: _first_line(command) for name, command in COMMANDS.items()}
    described["run"] = "Run an algorithm on a task: elites run ALGORITHM TASK."
    described["study"] = "Run many runs as one and compare them: elites study run, elites study report."
    about = "Evolve collections of diverse, high-performing controllers."
    return _listing("elites COMMAND …", about, described, "elites COMMAND --help tells more.")


def _listing(usage: str, about: str, described: dict[str, str], more: str) -> str:
    width = max(map(len, described))
    lines = [f"  {name:<{width}}   {text}" for name, text in described.items()]
    return "\n".join([f"usage: {usage}", "", about, "", *lines, "", more])


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").splitlines()[0]


def parse(arguments: Sequence[str]) -> Command:
    """The command that was asked for, its options checked. A wrong one is told in one line."""
    if not arguments:
        raise ElitesError(f"no command was given; the commands are {', '.join(COMMANDS)}")
    name, *rest = arguments
    if name not in COMMANDS:
        raise ElitesError(f"unknown command {name!r}; the commands are {', '.join(COMMANDS)}")
    program, command = f"elites {name}", COMMANDS[name]
    if name == "run":
        from elites.algorithms import ALGORITHMS

        if not rest or rest[0].startswith("-"):
            raise ElitesError(f"usage: elites run ALGORITHM TASK; the algorithms are {', '.join(ALGORITHMS)}")
        algorithm, *rest = rest
        program, command = f"{program} {algorithm}", run_command(algorithm)
    if name == "study":
        if not rest or rest[0] not in STUDY_COMMANDS:
            raise ElitesError("usage: elites study run STUDY --out DIR, or elites study report DIR")
        action, *rest = rest
        program, command = f"{program} {action}", STUDY_COMMANDS[action]
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return tyro.cli(command, prog=program, args=rest)
    except SystemExit as stopped:
        if stopped.code in (0, None):
            raise
    raise ElitesError(f"{one_line(told.getvalue())}; see {program} --help")


def one_line(box: str) -> str:
    """What a box drawn by tyro says, without its title, its frame and its pointer to the help."""
    text = " ".join(re.sub("[│╭╮╰╯]", " ", box).split())
    _, *sections = (part.strip(" ─") for part in re.split("[─-]{3,}", text))
    kept = [part for part in sections if part and not re.match("For full helptext|Argument helptext", part)]
    return "; ".join(part.rstrip(".") for part in kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 0, 2 after bad input, 130 after a second Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        match list(arguments):
            case ["-h" | "--help"]:
                print(overview())
            case ["run" | "study" as command, "-h" | "--help"]:
                print(overview(command))
            case _:
                return parse(arguments).run()
        return 0
    except ElitesError as error:
        print(f"elites: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("elites: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has left, as `| head` does
        sys.stdout = None  # type: ignore[assignment] # nothing is left to flush at exit
        return 0

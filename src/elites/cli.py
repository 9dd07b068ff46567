"""The `elites` command. A subcommand is a dataclass: its fields are the options, its docstring the help."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from elites.errors import ElitesError

if TYPE_CHECKING:
    from elites.tasks.task import Task

INTERRUPTED = 130


@dataclass
class Tasks:
    """List the tasks and their sizes."""

    def run(self) -> None:
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


@dataclass
class Random:
    """Evaluate random controllers and print what they do."""

    tasks: tyro.conf.Positional[tuple[str, ...]] = ("qd-walker", "qd-halfcheetah", "qd-ant", "qd-hopper")
    """Tasks to run on."""
    controllers: int = 100
    """How many random controllers per task."""
    seed: int = 0
    """Of the controllers and of their episodes."""
    threads: int | None = None
    """One per core unless given."""
    noise: float | None = None
    """Of the initial joint angles, in rad; the task's own unless given."""
    episode_length: int | None = None
    """Steps after which an episode is truncated; the task's own unless given."""
    ends_on_fall: bool | None = None
    """Whether a robot that is not upright ends its episode; the task's own unless given."""

    def run(self) -> None:
        from elites.tasks import make_task

        if self.controllers < 1 or self.seed < 0:
            raise ElitesError(
                f"controllers is {self.controllers} and seed {self.seed}; they must be at least 1 and 0"
            )
        given = {name: getattr(self, name) for name in ("noise", "episode_length", "ends_on_fall")}
        parameters = {name: value for name, value in given.items() if value is not None}
        tasks = [make_task(name, **parameters) for name in self.tasks]  # all checked before any runs
        for task in tasks:
            self._evaluate(task)

    def _evaluate(self, task: Task) -> None:
        import jax
        import numpy as np
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from elites.evaluation.threads import ThreadEvaluator
        from elites.policies import Policy
        from elites.tasks.task import CompiledTask

        assert isinstance(task, CompiledTask)
        keys = jax.random.split(jax.random.key(self.seed), self.controllers)
        parameters = jax.jit(jax.vmap(Policy.of(task).init))(keys)
        seeds = self.seed + np.arange(self.controllers)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with (
            ThreadEvaluator(task, threads=self.threads) as evaluator,
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


Command = Annotated[Tasks, tyro.conf.subcommand("tasks")] | Annotated[Random, tyro.conf.subcommand("random")]


def parse(arguments: Sequence[str] | None) -> Tasks | Random:
    """The command that was asked for. A wrong one is told in one line."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return tyro.cli(  # type: ignore[call-overload,no-any-return]
                Command,
                prog="elites",
                args=arguments,
                description="Evolve collections of diverse controllers.",
            )
    except SystemExit as stopped:
        if stopped.code in (0, None):
            raise
    raise ElitesError(one_line(told.getvalue()))


def one_line(box: str) -> str:
    """What a box drawn by tyro says, without its title, its frame and its pointer to the help."""
    text = " ".join(re.sub("[│╭╮╰╯]", " ", box).split())
    _, *sections = (part.strip(" ─") for part in re.split("[─-]{3,}", text))
    kept = [part for part in sections if part and not re.match("For full helptext|Argument helptext", part)]
    return "; ".join(part.rstrip(".") for part in kept) + "; see elites --help"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 0, 2 after bad input, 130 after Ctrl-C."""
    try:
        parse(arguments).run()
    except ElitesError as error:
        print(f"elites: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("elites: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0

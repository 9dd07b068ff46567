"""What a person sees while a run goes on: a live panel on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from elites.experiments.loop import Report

LINE_SECONDS = 15.0
APART_SECONDS = 0.5


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """What is shown goes on when whoever read it has left."""


class Shown:
    """Something live on a terminal, with lines above it; elsewhere the lines alone."""

    def __init__(self, console: Console | None) -> None:
        self.console = console or _Console()
        self.live: Live | Progress

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def tell(self, message: str) -> None:
        """A line above it."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)


class Display(Shown):
    """Call it with each Report."""

    live: Live

    def __init__(self, title: str, console: Console | None = None) -> None:
        super().__init__(console)
        self._bar = Progress(
            TextColumn(title, markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>5.1f} %"),
            console=self.console,
        )
        self._task = self._bar.add_task(title)
        self._correction = Bar("correcting", self.console)
        self._panel: RenderableType = ""
        self.live = Live(self._bar, console=self.console, refresh_per_second=4, transient=True)
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)
        self._told = 0.0

    def takes(self) -> dict[str, Any]:
        """What `elites.run` and `elites.resume` are given to report to."""
        return {"on_generation": self, "on_correction": self.correction, "tell": self.tell}

    def correction(self, done: int, total: int) -> None:
        """How far a correction is."""
        self._correction(done, total)
        if self.console.is_terminal:
            self.live.update(Group(self._bar, self._panel, self._correction.live))

    def __call__(self, report: Report) -> None:
        metrics, now = report.metrics, time.perf_counter()
        done = metrics["evaluations"]
        if self._recent and now - self._recent[-1][0] < APART_SECONDS:  # several came at once
            self._recent.pop()
        self._recent.append((now, done))
        (then, before), *_ = self._recent
        rate = (done - before) / (now - then) if now > then else 0.0
        left = _duration((report.evaluations - done) / rate) if rate else "…"
        if self.console.is_terminal:
            self._bar.update(self._task, completed=done, total=report.evaluations)
            self._panel = _panel(report, rate, left)
            self.live.update(Group(self._bar, self._panel))
        elif now - self._told > LINE_SECONDS or done >= report.evaluations:
            self._told = now
            self.tell(
                f"{done:,} of {report.evaluations:,} evaluations, {rate:.1f}/s, {left} left: "
                f"QD-score {metrics['qd_score']:,.0f}, max-fitness {metrics['max_fitness']:.1f}, "
                f"coverage {metrics['coverage']:.1%}, added {_added(report)}"
            )


class Bar(Shown):
    """How far some episodes are, or other units. Call it with those done and all there are."""

    live: Progress

    def __init__(self, title: str, console: Console | None = None, unit: str = "episodes") -> None:
        super().__init__(console)
        self._unit = unit
        self.live = Progress(
            TextColumn(title, markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._title, self._task = title, self.live.add_task(title, total=None)
        self._told = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        if self.console.is_terminal:
            self.live.update(self._task, completed=done, total=total)
        elif time.perf_counter() - self._told > LINE_SECONDS:
            self._told = time.perf_counter()
            self.tell(f"{self._title}: {done:,} of {total:,} {self._unit}")


def _added(report: Report) -> str:
    """Offspring added in the last generation, by operator."""
    metrics = report.metrics
    operators = [name.removeprefix("made_") for name in metrics if name.startswith("made_")]
    return ", ".join(
        f"{name} {metrics[f'new_{name}'] + metrics[f'improved_{name}']}/{metrics[f'made_{name}']}"
        for name in operators
        if metrics[f"made_{name}"]
    )


def _panel(report: Report, rate: float, left: str) -> Table:
    metrics, timings = report.metrics, report.timings
    table = Table.grid(padding=(0, 2))
    rows = {
        "evaluations": f"{metrics['evaluations']:,} of {report.evaluations:,}, {rate:.1f}/s, {left} left",
        "QD-score": f"{metrics['qd_score']:,.0f}",
        "max-fitness": f"{metrics['max_fitness']:.1f}",
        "coverage": f"{metrics['coverage']:.1%}",
        "added": f"{_added(report)} in the last generation",
        "time": f"{timings['device_s']:.2f} s, {timings['steps_per_s']:,.0f} steps/s"
        if "device_s" in timings
        else f"{timings['rollouts_s']:.1f} s of rollouts at {timings['steps_per_s']:,.0f} steps/s, "
        f"{timings['ask_s']:.1f} s of training and variation",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"

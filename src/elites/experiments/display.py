"""The display of a run's progress: a live panel on a terminal, otherwise regular lines."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from elites.text import printable, shortened

if TYPE_CHECKING:
    from elites.experiments.execution import Report

LINE_SECONDS = 15.0
APART_SECONDS = 0.5


class LiveView:
    """A live view on a terminal, with lines above it; otherwise only the lines."""

    def __init__(self, console: Console | None) -> None:
        self.console = console or Console()
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

    def log(self, message: str) -> None:
        """Prints a line above the view."""
        text = "\n".join(map(printable, message.split("\n")))
        self.console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)


class Display(LiveView):
    """The progress of a run. Call it with each Report."""

    live: Live

    def __init__(self, title: str, console: Console | None = None) -> None:
        super().__init__(console)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>5.1f} %"),
            console=self.console,
        )
        self._task = self._bar.add_task(shortened(title))
        self._correction = Bar("correcting", self.console)
        self._panel: RenderableType = ""
        self.live = Live(self._bar, console=self.console, refresh_per_second=4, transient=True)
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)
        self._logged = 0.0

    def callbacks(self) -> dict[str, Any]:
        """The callbacks of an Execution that this display shows."""
        return {"on_generation": self, "on_correction": self.correction, "log": self.log}

    def correction(self, done: int, total: int) -> None:
        """Shows the progress of a correction."""
        self._correction(done, total)
        if self.console.is_terminal:
            self.live.update(Group(self._bar, self._panel, self._correction.live))

    def __call__(self, report: Report) -> None:
        metrics, now = report.metrics, time.perf_counter()
        done = metrics["evaluations"]
        if len(self._recent) > 1 and self._recent[-1][0] - self._recent[-2][0] < APART_SECONDS:
            self._recent.pop()  # reports come one upon another: what is kept is further apart
        self._recent.append((now, done))
        (then, before), *_ = self._recent
        rate = (done - before) / (now - then) if now - then >= APART_SECONDS else 0.0
        left = _duration((report.evaluations - done) / rate) if rate else "…"
        if self.console.is_terminal:
            self._bar.update(self._task, completed=done, total=report.evaluations)
            self._panel = _panel(report, rate, left)
            self.live.update(Group(self._bar, self._panel))
        elif now - self._logged > LINE_SECONDS or done >= report.evaluations:
            self._logged = now
            self.log(
                f"{done:,} of {report.evaluations:,} evaluations, {rate:.1f}/s, {left} left: "
                f"{', '.join(f'{label} {text}' for label, text in _values(report))}, "
                f"added {_added(report)} ({_seeds(report)})"
            )


class Bar(LiveView):
    """The progress of some episodes, or of other units. Call it with the number done and the total."""

    live: Progress

    def __init__(self, title: str, console: Console | None = None, unit: str = "episodes") -> None:
        super().__init__(console)
        self._unit = unit
        self.live = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._title, self._task = title, self.live.add_task(shortened(title), total=None)
        self._logged = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        if self.console.is_terminal:
            self.live.update(self._task, completed=done, total=total)
        elif time.perf_counter() - self._logged > LINE_SECONDS:
            self._logged = time.perf_counter()
            self.log(f"{self._title}: {done:,} of {total:,} {self._unit}")


def _added(report: Report) -> str:
    """Offspring added in the last generation, by operator."""
    metrics = report.metrics
    operators = [name.removeprefix("made_") for name in metrics if name.startswith("made_")]
    return ", ".join(
        f"{name} {metrics[f'new_{name}'] + metrics[f'improved_{name}']}/{metrics[f'made_{name}']}"
        for name in operators
        if metrics[f"made_{name}"]
    )


def _seeds(report: Report) -> str:
    """The seeds of the numbers shown."""
    seeds = report.seeds
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"median of seeds {seeds[0]} to {seeds[-1]}"


def _values(report: Report) -> list[tuple[str, str]]:
    """Label and text of each metric of the archive."""
    return [
        (shortened(metric.label), metric.text(report.metrics[metric.name])) for metric in report.described
    ]


def _panel(report: Report, rate: float, left: str) -> Table:
    metrics, timings = report.metrics, report.timings
    table = Table.grid(padding=(0, 2))
    rows = {
        "evaluations": f"{metrics['evaluations']:,} of {report.evaluations:,}, {rate:.1f}/s, {left} left",
        "shown": _seeds(report),
        **dict(_values(report)),
        "added": f"{_added(report)} in the last generation",
        "time": f"{timings['device_s']:.2f} s, {timings['steps_per_s']:,.0f} steps/s"
        if "device_s" in timings
        else f"{timings['rollouts_s']:.1f} s of rollouts at {timings['steps_per_s']:,.0f} steps/s, "
        f"{timings['ask_s']:.1f} s of training and variation",
    }
    for name, text in rows.items():
        table.add_row(Text(name), Text(text))
    return table


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"

"""The display of progress: a live panel on a terminal, a table in a notebook, otherwise regular lines."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elites.experiments.guards import write_stop
from elites.text import make_printable, shorten

if TYPE_CHECKING:
    from elites.experiments.execution import Execution, Report

LINE_SECONDS = 15.0
MIN_REPORT_SECONDS = 0.5  # between reports that the rate uses
NOTEBOOK_SECONDS = 0.5  # between the drawings of a notebook's table
GRACE_SECONDS = 1.0  # after a second Ctrl-C, before a process that does not react is ended
BAR_WIDTH = 8  # columns at least
STARTING = "starting"
FRAMES, ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"


class LiveView:
    """A title, a bar, the current activity and its duration, and rows below.

    A thread redraws it regularly; other threads only set its content. It is a panel on a terminal and a table
    in a notebook. Elsewhere there are only lines.
    """

    widest = 100  # columns

    def __init__(
        self, title: str, console: Console | None = None, end_process: Callable[[], None] | None = None
    ) -> None:
        """`end_process` ends the process if it still runs a second after the second Ctrl-C."""
        self.console = console or _standard_console()
        self.in_notebook = console is None and in_notebook()
        self.is_live = self.in_notebook or self.console.is_interactive
        self.title, self.activity, self.rows = shorten(title), STARTING, dict[str, str]()
        self.done, self.total = 0.0, 0.0  # 0: unknown
        self._awaited, self._end_process = "", end_process
        self._started, self._ended = time.perf_counter(), 0.0
        self._logged = self._started
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)
        self._width = self.console.width
        self._live: Live | _NotebookOutput | None = None

    def __enter__(self) -> Self:
        self._ended = 0.0
        if self.in_notebook:
            self._live = _NotebookOutput(self._make_bundle)
            self._live.start()
        elif self.is_live:
            self._live = Live(get_renderable=self._make_panel, console=self.console)
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = time.perf_counter()
        if kind is not None and not issubclass(kind, KeyboardInterrupt):
            self.activity = "failed"
        else:
            self.activity = "finished" if 0 < self.total <= self.done else "stopped"
        if isinstance(self._live, Live):
            self._live.transient = not self.stays_visible()
        if self._live is not None:
            self._live.stop()

    def stays_visible(self) -> bool:
        """Whether the panel stays on the terminal at the end."""
        return False

    def make_parts_below(self) -> list[RenderableType]:
        """The parts of the panel below the bar."""
        if not self.rows:
            return []
        table = Table.grid(padding=(0, 2))
        width = min(self.console.width, self.widest)
        names = min(max(map(len, self.rows)), width // 2)
        table.add_column(no_wrap=True, width=names)
        table.add_column(no_wrap=True, max_width=max(1, width - names - 2))
        for name, text in self.rows.items():
            table.add_row(Text(name), Text(text))
        return [table]

    def log(self, message: str) -> None:
        """Prints a line above the view."""
        text = "\n".join(map(make_printable, message.split("\n")))
        self.console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def show_phase(self, activity: str) -> None:
        """Sets the current activity.

        The first one is shown at once; without a live view it is printed as a line.
        """
        is_first, self.activity = self.activity == STARTING, activity
        if is_first and not self.is_live:
            self.log(activity)
        elif is_first and isinstance(self._live, Live):
            self._live.refresh()

    def show_stop(self, line: str, times: int) -> None:
        """Shows what a stop waits for. `times` is the number of Ctrl-C so far."""
        if not self.is_live:
            write_stop(line, times)
        self._awaited = line if times == 1 else "stopping at once"
        if times == 2 and self._end_process is not None:
            timer = threading.Timer(GRACE_SECONDS, self._end)
            timer.daemon = True
            timer.start()

    def _end(self) -> None:
        if not self._ended and self._end_process is not None:
            self.__exit__(KeyboardInterrupt, None, None)
            self._end_process()

    def update_bar(self, done: int, total: int) -> tuple[float, str]:
        """Updates the bar. Returns the rate per second and the remaining time, as text."""
        now = time.perf_counter()
        self.done, self.total = done, total
        if len(self._recent) > 1 and self._recent[-1][0] - self._recent[-2][0] < MIN_REPORT_SECONDS:
            self._recent.pop()  # reports in quick succession: keep only some of them
        self._recent.append((now, done))
        (then, before), *_ = self._recent
        rate = (done - before) / (now - then) if now - then >= MIN_REPORT_SECONDS else 0.0
        return rate, _format_clock((total - done) / rate) if rate else "…"

    def line_is_due(self, seconds: float = LINE_SECONDS) -> bool:
        """Whether to print a line now, because there is no live view."""
        due = not self.is_live and time.perf_counter() - self._logged > seconds
        if due:
            self._logged = time.perf_counter()
        return due

    def _make_panel(self) -> RenderableType:
        if self._ended and not self.stays_visible():
            return ""
        if (width := self.console.width) < min(self._width, self.widest):
            self.console.clear()  # the terminal may have wrapped the panel's lines
        self._width = width
        share = self._format_share()
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(no_wrap=True, max_width=max(1, min(width, self.widest) - len(share) - BAR_WIDTH))
        head.add_column(ratio=1)
        head.add_column(no_wrap=True, width=len(share))
        head.add_row(Text(self.title), ProgressBar(self.total or None, self.done), Text(share))
        frames = ASCII_FRAMES if self.console.options.ascii_only else FRAMES
        frame = "" if self._ended else f"{frames[int(8 * time.perf_counter()) % len(frames)]} "
        parts: list[RenderableType] = [head]
        parts.append(Text.assemble((frame, "cyan"), self.activity, "  ", (self._format_elapsed(), "cyan")))
        if self._awaited and not self._ended:
            parts.append(Text(self._awaited, style="bold yellow"))
        parts += self.make_parts_below()
        if not self._ended:
            parts.append(Text())  # the cursor's line, where a terminal shows ^C
        return Constrain(Group(*parts), self.widest)

    def _make_bundle(self) -> Mapping[str, str]:
        """The output of a notebook cell: as HTML, and as text for viewers without HTML."""
        share, status = self._format_share(), f"{self.activity}  {self._format_elapsed()}"
        awaited = "" if self._ended else self._awaited
        value = f' value="{self.done / self.total:.4f}"' if self.total else ""
        cells = (
            f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in self.rows.items()
        )
        lines = [
            f"<b>{escape(self.title)}</b> <progress{value}></progress> {share}",
            escape(status),
            *([f"<b>{escape(awaited)}</b>"] if awaited else []),
        ]
        return {
            "text/html": f"<div>{'<br>'.join(lines)}<table>{''.join(cells)}</table></div>",
            "text/plain": " ".join([self.title, share, status, awaited]),
        }

    def _format_share(self) -> str:
        return f"{100 * self.done / self.total:.1f} %" if self.total else ""

    def _format_elapsed(self) -> str:
        return _format_clock((self._ended or time.perf_counter()) - self._started)


class Display(LiveView):
    """The progress of a run. Call it with each Report."""

    def __init__(
        self, title: str, console: Console | None = None, end_process: Callable[[], None] | None = None
    ) -> None:
        super().__init__(title, console, end_process)
        self._logged = 0.0  # the first report is a line

    def make_callbacks(self) -> dict[str, Callable[..., None]]:
        """The callbacks of an Execution that this display shows."""
        return {
            "on_generation": self,
            "on_resume": self.show_resumed,
            "on_correction": self.show_correction,
            "on_phase": self.show_phase,
            "on_stop": self.show_stop,
            "log": self.log,
        }

    def stays_visible(self) -> bool:
        """Only if the run was stopped. After a finished run, the summary replaces the panel."""
        return bool(self.rows) and self.done < self.total

    def show_resumed(self, report: Report) -> None:
        """Shows the progress of a run that is resumed."""
        done, total = report.metrics["evaluations"], report.budget
        self.done, self.total, so_far = done, total, f"{done:,} of {total:,}"
        self.rows = _make_rows(report, so_far)
        if not self.is_live:
            self.log(
                f"continuing from {so_far} evaluations: {_format_metrics(report)} ({_format_seeds(report)})"
            )

    def show_correction(self, done: int, total: int) -> None:
        """Shows the progress of a correction."""
        self.activity = f"correcting: {done:,} of {total:,} episodes"
        if self.line_is_due():
            self.log(self.activity)

    def __call__(self, report: Report) -> None:
        done, total = report.metrics["evaluations"], report.budget
        rate, remaining_time = self.update_bar(done, total)
        pace = f", {rate:.1f}/s, {remaining_time} left" if rate > 0 else ""  # the first report begins it
        self.rows = _make_rows(report, f"{done:,} of {total:,}{pace}")
        if self.line_is_due() or (done >= total and not self.is_live):
            self.log(
                f"{done:,} of {total:,} evaluations{pace}: "
                f"{_format_metrics(report)}, added {_format_added(report)} ({_format_seeds(report)})"
            )


class Bar(LiveView):
    """The progress of some episodes, or of other units. Call it with the number done and the total."""

    def __init__(
        self,
        title: str,
        console: Console | None = None,
        *,
        unit: str = "episodes",
        activity: str = STARTING,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(title, console, end_process)
        self._unit, self.activity = unit, activity

    def __call__(self, done: int, total: int) -> None:
        _, remaining_time = self.update_bar(done, total)
        self.activity = f"{done:,} of {total:,} {self._unit}, {remaining_time} left"
        if self.line_is_due():
            self.log(f"{self.title}: {done:,} of {total:,} {self._unit}")


@contextlib.contextmanager
def show_progress(title: str, execution: Execution, progress: bool | None) -> Iterator[Execution]:
    """The execution with a display in addition to its own callbacks, if `progress`.

    None means: on a terminal or in a notebook, unless it has its own `on_generation`.
    """
    display = Display(title)
    if progress is None:
        progress = display.is_live and execution.on_generation is None
    if not progress:
        yield execution
        return
    callbacks: dict[str, Any] = display.make_callbacks()
    for field in dataclasses.fields(execution):
        own_callback = getattr(execution, field.name)
        if field.name in callbacks and own_callback is not field.default:
            callbacks[field.name] = (
                own_callback if field.name == "log" else _call_both(own_callback, callbacks[field.name])
            )
    with display:
        yield dataclasses.replace(execution, **callbacks)


def _call_both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        first(*arguments)
        second(*arguments)

    return call


def in_notebook() -> bool:
    """Whether this process runs in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _standard_console() -> Console:
    """Standard output. It is not live in a file or a pipe, even if colours are forced."""
    is_terminal = False
    with contextlib.suppress(AttributeError, ValueError):  # no stream, or a closed one
        is_terminal = sys.stdout.isatty()
    return Console(force_jupyter=False, force_interactive=None if is_terminal else False)


class _NotebookOutput:
    """An output of a notebook's cell that a thread redraws regularly."""

    def __init__(self, bundle: Callable[[], Mapping[str, str]]) -> None:
        """`bundle` returns the content by MIME type."""
        self._make_bundle, self._over = bundle, threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def start(self) -> None:
        from IPython.display import display

        self._handle = display(self._make_bundle(), raw=True, display_id=True)
        self._thread.start()

    def _draw(self) -> None:
        while not self._over.wait(NOTEBOOK_SECONDS):
            self._handle.update(self._make_bundle(), raw=True)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._handle.update(self._make_bundle(), raw=True)


def _format_added(report: Report) -> str:
    """Offspring added in the last generation, by operator."""
    from elites.metrics.contribution import count_kept, count_made, find_operators  # the display starts first

    metrics = report.metrics
    return ", ".join(
        f"{name} {count_kept(metrics, name)}/{count_made(metrics, name)}"
        for name in find_operators(metrics)
        if count_made(metrics, name)
    )


def _format_seeds(report: Report) -> str:
    """The seeds of the numbers shown."""
    seeds = report.seeds
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"median of seeds {seeds[0]} to {seeds[-1]}"


def _format_values(report: Report) -> dict[str, str]:
    """Text of each metric of the archive and of the run's own, by its label; without empty cells."""
    values = ((metric, report.metrics[metric.name]) for metric in report.shown_metrics)
    return {
        shorten(metric.label): metric.format_value(value) for metric, value in values if value is not None
    }


def _format_metrics(report: Report) -> str:
    return ", ".join(f"{label} {text}" for label, text in _format_values(report).items())


def _make_rows(report: Report, evaluations: str) -> dict[str, str]:
    rows = {"evaluations": evaluations, "metrics of": _format_seeds(report), **_format_values(report)}
    if added := _format_added(report):
        rows["added"] = f"{added} in the last generation"
    timings = report.timings
    if "device_s" in timings:
        rows["time"] = f"{timings['device_s']:.2f} s, {timings['steps_per_s']:,.0f} steps/s"
    elif timings:
        rows["time"] = (
            f"{timings['rollouts_s']:.1f} s of rollouts at {timings['steps_per_s']:,.0f} steps/s, "
            f"{timings['ask_s']:.1f} s of training and variation"
        )
    return rows


def _format_clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"

"""The progress of a study: a live table on a terminal, a line once a minute elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elites.experiments.display import LiveView
from elites.metrics.metric import METRICS, describe_values, find_metric
from elites.results.study import StudyFolder
from elites.studies.execution import State
from elites.text import format_duration, shorten

LINE_SECONDS = 60.0
WIDTHS = (("seed", 7), ("", 10), ("", 15))
METRIC_WIDTH = 10  # at least
MARKS = {"waiting": "·", "finished": "ok", "failed": "FAILED", "stopped": "stopped"}
LISTED_STAGES = ("running", "correcting", "failed")
COLOURS = {"waiting": "dim", "finished": "green", "failed": "bold red", "stopped": "yellow"}


class StudyDisplay(LiveView):
    """The table of all runs. `finished` is the number of runs that were finished before."""

    widest = 10**6

    def __init__(self, study: Path, finished: int = 0, console: Console | None = None) -> None:
        super().__init__(f"{study}", console)
        self.study, self.finished = StudyFolder(study), finished
        self.states: Sequence[State] = ()

    def report_end(self, state: State) -> None:
        """Prints the end of a job."""
        name = state.job.name
        if state.stage == "failed":
            log = self.study.log_path(state.job.folder)
            more = f" (see {log})" if log.exists() and log.stat().st_size else ""
            self.log(f"{name} failed: {state.error}{more}")
        elif state.stage == "stopped":
            after = f" after {state.farthest:,} evaluations" if state.farthest else ""
            self.log(f"{name} stopped{after}; the same command continues it")
        elif state.stage == "finished":
            on = f" on {state.where}" if state.where else ""
            self.log(f"{name} finished in {format_duration(state.seconds)}{on}: {_format_summary(state)}")

    def __call__(self, states: Sequence[State]) -> None:
        self.states, self.activity = states, self.format_totals(states)
        self.done = self.finished + sum(len(state.job.folders) * _compute_share(state) for state in states)
        self.total = self.finished + sum(len(state.job.folders) for state in states)
        if self.line_is_due(LINE_SECONDS):
            self.log(self.activity)

    def stays_visible(self) -> bool:
        """True once there is a table."""
        return bool(self.states)

    def make_parts_below(self) -> list[RenderableType]:
        """The table."""
        return [self.make_table(self.states)] if self.states else []

    def format_totals(self, states: Sequence[State]) -> str:
        """The number of runs at each stage."""
        counts = Counter(state.stage for state in states)
        counts["finished"] += self.finished
        stages = ("finished", "running", "correcting", "waiting", "stopped", "failed")
        return ", ".join(f"{counts[stage]} {stage}" for stage in stages if counts[stage])

    def make_table(self, states: Sequence[State]) -> Table:
        """A row for each run, or for each task and algorithm if there are too many runs.

        If that is too long as well, only those that are running or have failed are shown.
        """
        room = max(1, self.console.height - 7)
        return _make_run_table(states) if len(states) <= room else _make_combination_table(states, room)


def _make_run_table(states: Sequence[State]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    if any(state.job.group for state in states):
        table.caption, table.caption_justify = "seeds that train together: medians", "left"
    table.add_column("run", overflow="ellipsis", no_wrap=True, ratio=1)  # the width that the others leave
    names = dict.fromkeys([metric.name for metric in METRICS])
    names |= dict.fromkeys(name for state in states for name in state.metrics)
    paths = dict.fromkeys(path for state in states for path in state.job.configs[0].metrics)
    metrics = [find_metric(name, paths) for name in names]
    labels = [shorten(metric.label) for metric in metrics]
    widths = [(label, max(METRIC_WIDTH, len(label))) for label in labels]
    for name, width in (*WIDTHS, *widths):
        table.add_column(Text(name), justify="right" if name else "left", no_wrap=True, width=width)
    for state in states:
        share = state.done / state.total if state.total else 0.0
        values = [(metric, state.metrics.get(metric.name)) for metric in metrics]
        numbers = ("" if value is None else metric.format_value(value) for metric, value in values)
        bar = ProgressBar(1.0, 1.0 if state.stage == "finished" else share, width=10)
        seeds = [config.seed for config in state.job.configs]
        seed = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        table.add_row(Text(_name_combination(state)), seed, bar, _format_stage(state), *numbers)
    return table


def _make_combination_table(states: Sequence[State], room: int) -> Table:
    rows: dict[str, list[State]] = {}
    for state in states:
        rows.setdefault(_name_combination(state), []).append(state)
    table = Table(box=None, pad_edge=False)
    table.add_column("runs")
    table.add_column("progress of each seed")
    shown = list(rows)
    if len(rows) > room:
        shown = [home for home, group in rows.items() if any(s.stage in LISTED_STAGES for s in group)][:room]
    for home in shown:
        marks = Text()
        for state in sorted(rows[home], key=lambda state: state.job.configs[0].seed):
            marks.append_text(_format_stage(state, short=True)).append(" ")
        table.add_row(Text(home), marks)
    if len(shown) < len(rows):
        table.add_row(f"and {len(rows) - len(shown)} more", "")
    return table


def _name_combination(state: State) -> str:
    """Task and algorithm."""
    return state.job.name if state.job.group else state.job.name.rpartition("/")[0]


def _compute_share(state: State) -> float:
    """The share of a job that is done, without corrections."""
    return 1.0 if state.stage == "finished" else state.farthest / state.job.configs[0].evaluations


def _format_stage(state: State, *, short: bool = False) -> Text:
    if state.stage in MARKS:
        return Text(MARKS[state.stage] if short else state.stage, style=COLOURS[state.stage])
    beginning = "…" if short else state.phase or "…"
    share = f"{state.done / state.total:.0%}" if state.total else beginning
    if state.stage == "correcting":
        return Text(f"c{share}" if short else f"correcting {share}", style="cyan")
    return Text(share, style="bold")


def _format_summary(state: State) -> str:
    if not state.metrics:
        return "its archive was corrected" if state.corrected else "nothing was left to run"
    values = describe_values(state.metrics, state.job.configs[0].metrics)
    seeds = [config.seed for config in state.job.configs]
    return f"median of seeds {seeds[0]} to {seeds[-1]}: {values}" if len(seeds) > 1 else values

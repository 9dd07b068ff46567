"""What a person sees while a study goes on: a live table on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elites.experiments.display import LiveView
from elites.studies.execution import State, log_of
from elites.studies.plan import duration

LINE_SECONDS = 60.0
WIDTHS = (("seed", 7), ("", 10), ("", 15), ("QD-score", 10), ("max-fitness", 11), ("coverage", 8))
MARKS = {"waiting": "·", "finished": "ok", "failed": "FAILED", "stopped": "stopped"}
LIVELY = ("running", "correcting", "failed")
COLOURS = {"waiting": "dim", "finished": "green", "failed": "bold red", "stopped": "yellow"}


class StudyDisplay(LiveView):
    """The table of all runs. `finished` runs were there already."""

    live: Live

    def __init__(self, study: Path, finished: int = 0, console: Console | None = None) -> None:
        super().__init__(console)
        self.study, self.finished = study, finished
        self.live = Live(console=self.console, refresh_per_second=4, transient=False)
        self._told = time.monotonic()

    def ended(self, state: State) -> None:
        """A job has ended."""
        name = state.job.name
        if state.stage == "failed":
            log = log_of(self.study, state.job)
            more = f" (see {log})" if log.exists() and log.stat().st_size else ""
            self.log(f"{name} failed: {state.error}{more}")
        elif state.stage == "stopped":
            after = f" after {state.farthest:,} evaluations" if state.farthest else ""
            self.log(f"{name} stopped{after}; the same command goes on")
        elif state.stage == "finished":
            on = f" on {state.where}" if state.where else ""
            self.log(f"{name} finished in {duration(state.seconds)}{on}: {_summary(state)}")

    def __call__(self, states: Sequence[State]) -> None:
        if self.console.is_terminal:
            self.live.update(Group(self.totals(states), self.table(states)))  # what must not be cut first
        elif time.monotonic() - self._told > LINE_SECONDS:
            self._told = time.monotonic()
            self.log(self.totals(states))

    def totals(self, states: Sequence[State]) -> str:
        """How many runs are where."""
        counts = Counter(state.stage for state in states)
        counts["finished"] += self.finished
        named = ("finished", "running", "correcting", "waiting", "stopped", "failed")
        return ", ".join(f"{counts[name]} {name}" for name in named if counts[name])

    def table(self, states: Sequence[State]) -> Table:
        """A row for each run; where that would be too long, one for each task and algorithm.

        Where even that is too long, only for those that are going on or have failed.
        """
        room = max(1, self.console.height - 6)
        return _by_run(states) if len(states) <= room else _by_cell(states, room)


def _by_run(states: Sequence[State]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("run", overflow="ellipsis", no_wrap=True, ratio=1)  # what the others leave
    for name, width in WIDTHS:
        table.add_column(name, justify="right" if name else "left", no_wrap=True, width=width)
    for state in states:
        found = state.metrics
        share = state.done / state.total if state.total else 0.0
        numbers = (
            (f"{found['qd_score']:,.0f}", f"{found['max_fitness']:.1f}", f"{found['coverage']:.1%}")
            if found
            else ("", "", "")
        )
        bar = ProgressBar(1.0, 1.0 if state.stage == "finished" else share, width=10)
        seeds = [config.seed for config in state.job.configs]
        seed = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        table.add_row(_home(state), seed, bar, _stage(state), *numbers)
    return table


def _by_cell(states: Sequence[State], room: int) -> Table:
    rows: dict[str, list[State]] = {}
    for state in states:
        rows.setdefault(_home(state), []).append(state)
    table = Table(box=None, pad_edge=False)
    table.add_column("runs")
    table.add_column("progress of each seed")
    shown = list(rows)
    if len(rows) > room:
        shown = [home for home, of_home in rows.items() if any(s.stage in LIVELY for s in of_home)][:room]
    for home in shown:
        of_home = rows[home]
        marks = Text()
        for state in sorted(of_home, key=lambda state: state.job.configs[0].seed):
            marks.append_text(_stage(state, short=True)).append(" ")
        table.add_row(home, marks)
    if len(shown) < len(rows):
        table.add_row(f"and {len(rows) - len(shown)} more", "")
    return table


def _home(state: State) -> str:
    """Task and algorithm."""
    return state.job.name if state.job.group else state.job.name.rpartition("/")[0]


def _stage(state: State, *, short: bool = False) -> Text:
    if state.stage in MARKS:
        return Text(MARKS[state.stage] if short else state.stage, style=COLOURS[state.stage])
    share = f"{state.done / state.total:.0%}" if state.total else "…"
    if state.stage == "correcting":
        return Text(f"c{share}" if short else f"correcting {share}", style="cyan")
    return Text(share, style="bold")


def _summary(state: State) -> str:
    found = state.metrics
    if not found:
        return "its archive was corrected" if state.corrected else "nothing was left to run"
    return (
        f"QD-score {found['qd_score']:,.0f}, max-fitness {found['max_fitness']:.1f}, "
        f"coverage {found['coverage']:.1%}"
    )

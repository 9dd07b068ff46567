"""Prints the table of claims in docs/reproduction.md from the reports beside this file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import NamedTuple

from elites.paper.claims import CLAIMS
from elites.paper.presets import SUITES
from elites.paper.verdicts import Verdict
from elites.results import names
from elites.results.study import ReportFolder

PAPER = 1_000_000  # evaluations of a run
WORDS = {
    Verdict.HOLDS: "**holds**",
    Verdict.PARTLY: "**holds**",
    Verdict.CONTRADICTED: "**contradicted**",
    Verdict.UNDECIDED: "undecided",
}


class Column(NamedTuple):
    """Runs on the same tasks with the same budget. They sort by suite, then from the largest budget."""

    suite: int
    less_evaluations: int
    tasks: tuple[str, ...]


def verdicts() -> dict[Column, list[dict[str, str]]]:
    """The rows of all reports that have a verdict."""
    suites = [suite.title for suite in SUITES.values()]
    known: dict[Column, list[dict[str, str]]] = {}
    here = ReportFolder(Path(__file__).parent)
    for file in sorted(here.path.glob(f"*/{here.table_path(names.ReportTable.CLAIMS).name}")):
        study = json.loads((file.parent / names.STUDY).read_text())
        tasks = tuple(task["name"] for task in study["tasks"])
        with file.open() as lines:
            for row in csv.DictReader(lines):
                if row["verdict"] in WORDS:
                    column = Column(suites.index(row["suite"]), -study["evaluations"], tasks)
                    known.setdefault(column, []).append(row)
    return known


def make_title(column: Column, rows: list[dict[str, str]]) -> str:
    """The tasks that are compared, and the budget."""
    words = {word.strip(":") for row in rows for word in row["comparison"].split()}
    budget = "10^6" if -column.less_evaluations == PAPER else f"{-column.less_evaluations:,}"
    return "<br>".join([*(f"`{task}`" for task in column.tasks if task in words), budget])


def make_cell(claim: str, rows: list[dict[str, str]]) -> str:
    """The verdict on a claim, with the number of comparisons; empty if there is none."""
    for row in rows:
        if row["claim"] == claim:
            count = f"{row['comparisons_tested']} of {row['comparisons']}"
            return f"{WORDS[Verdict(row['verdict'])]} ({count})"
    return ""


def table() -> list[str]:
    """A row for each claim: its words, and the verdicts on all tasks."""
    known = verdicts()
    columns = sorted(known)
    titles = [make_title(column, known[column]) for column in columns]
    rows = [
        f"| claim | the paper's words, in short | {' | '.join(titles)} |",
        "|---|---|" + "---|" * len(columns),
    ]
    for number, text, _ in CLAIMS:
        cells = [make_cell(number, known[column]) for column in columns]
        name = f"[{number}](#claim-{number})" if any(cells) else number
        rows.append(f"| {name} | {text} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))

"""Prints the table of claims in docs/reproduction.md from the reports beside this file."""

from __future__ import annotations

import csv
import json
from itertools import groupby
from pathlib import Path

from elites.paper.claims import CLAIMS
from elites.paper.presets import SUITES
from elites.paper.verdicts import Verdict
from elites.results import names
from elites.results.study import ReportFolder

PAPER = 1_000_000  # evaluations of a run
OPEN = "open"


def verdicts() -> dict[tuple[str, str], str]:
    """The verdicts of all reports on each claim and suite, with the robots and the numbers of comparisons."""
    known: dict[tuple[str, str], dict[tuple[int, str], None]] = {}  # each verdict once, with the budget first
    here = ReportFolder(Path(__file__).parent)
    for file in sorted(here.path.glob(f"*/{here.table_path(names.ReportTable.CLAIMS).name}")):
        study = json.loads((file.parent / names.STUDY).read_text())
        with file.open() as lines:
            rows = [row for row in csv.DictReader(lines) if row["verdict"] != Verdict.UNTESTED]
        for (claim, suite), group in groupby(rows, key=lambda row: (row["claim"], row["suite"])):
            comparisons = list(group)
            robots = _find_robots([task["name"] for task in study["tasks"]], comparisons)
            count = f"{comparisons[0]['comparisons_tested']} of {comparisons[0]['comparisons']}"
            budget = study["evaluations"]
            runs = f"{' and '.join(robots)}, {'10^6' if budget == PAPER else f'{budget:,}'}"
            text = f"{runs}: **{Verdict(comparisons[0]['verdict'])}** ({count})"
            known.setdefault((claim, suite), {})[-budget, text] = None
    return {key: "<br>".join(text for _, text in sorted(cell)) for key, cell in known.items()}


def _find_robots(tasks: list[str], comparisons: list[dict[str, str]]) -> list[str]:
    """The robots of the tasks that are compared."""
    words = {word.strip(":") for row in comparisons for word in row["comparison"].split()}
    return [task.partition("-")[2] for task in tasks if task in words]


def table() -> list[str]:
    """A row for each claim: its words, and the verdicts on each suite."""
    known = verdicts()
    titles = [suite.title for suite in SUITES.values()]
    rows = [
        f"| claim | the paper's words, in short | {' | '.join(titles)} |",
        "|---|---|" + "---|" * len(titles),
    ]
    for number, text, _ in CLAIMS:
        cells = [known.get((number, title), OPEN) for title in titles]
        tested = any((number, title) in known for title in titles)
        name = f"[{number}](#claim-{number})" if tested else number
        rows.append(f"| {name} | {text} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))

"""Prints the table of claims in docs/reproduction.md from the reports beside this file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
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
    known: dict[tuple[str, str], dict[int, dict[str, None]]] = {}  # by budget, in order and each once
    here = ReportFolder(Path(__file__).parent)
    for file in sorted(here.path.glob(f"*/{here.table_path(names.ReportTable.CLAIMS).name}")):
        study = json.loads((file.parent / names.STUDY).read_text())
        robots = " and ".join(task["name"].partition("-")[2] for task in study["tasks"])
        with file.open() as lines:
            for row in csv.DictReader(lines):
                verdict = Verdict(row["verdict"])
                if verdict is not Verdict.UNTESTED:
                    text = f"{robots} **{verdict}** ({row['comparisons_tested']} of {row['comparisons']})"
                    budgets = known.setdefault((row["claim"], row["suite"]), {})
                    budgets.setdefault(study["evaluations"], {})[text] = None
    return {key: "; ".join(_cells(budgets)) for key, budgets in known.items()}


def _cells(budgets: dict[int, dict[str, None]]) -> Iterator[str]:
    """The verdicts by budget, the largest one first."""
    for budget, verdicts in sorted(budgets.items(), reverse=True):
        prefix = "" if budget == PAPER else f"with {budget:,} evaluations: "
        yield prefix + ", ".join(verdicts)


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

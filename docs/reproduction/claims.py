"""Prints the table of claims in docs/reproduction.md from the reports beside this file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from elites.paper.claims import CLAIMS
from elites.paper.presets import SUITES
from elites.paper.verdicts import Verdict
from elites.results import names
from elites.results.study import ReportFolder

PAPER = 1_000_000  # evaluations of a run
SHORT = {Verdict.UNTESTED: "open"}


def verdicts() -> dict[tuple[str, str], str]:
    """The verdicts of all reports on each claim and suite, with the numbers of comparisons."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    here = ReportFolder(Path(__file__).parent)
    for file in here.path.glob(f"*/{here.table(names.ReportTable.CLAIMS).name}"):
        evaluations = json.loads((file.parent / names.STUDY).read_text())["evaluations"]
        with file.open() as lines:
            for row in csv.DictReader(lines):
                verdict = SHORT.get(Verdict(row["verdict"]), row["verdict"])
                if verdict != SHORT[Verdict.UNTESTED]:
                    tested = f"{row['comparisons_tested']} of {row['comparisons']}"
                    cell = evaluations, f"**{verdict}** ({tested})"
                    known = found.setdefault((row["claim"], row["suite"]), [])
                    known += [cell] if cell not in known else []
    texts = {}
    for key, cells in found.items():
        cells.sort(reverse=True)
        shorter = [f"with {budget:,} evaluations {text}" for budget, text in cells if budget < PAPER]
        texts[key] = "; ".join([*(text for budget, text in cells if budget == PAPER), *shorter])
    return texts


def table() -> list[str]:
    """A row for each claim: its words, and the verdicts on each suite."""
    known = verdicts()
    titles = [suite.title for suite in SUITES.values()]
    rows = [
        f"| claim | the paper's words, in short | {' | '.join(titles)} |",
        "|---|---|" + "---|" * len(titles),
    ]
    for number, text, _ in CLAIMS:
        cells = [known.get((number, title), SHORT[Verdict.UNTESTED]) for title in titles]
        tested = any((number, title) in known for title in titles)
        name = f"[{number}](#claim-{number})" if tested else number
        rows.append(f"| {name} | {text} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))

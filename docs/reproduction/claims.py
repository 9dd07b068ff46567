"""Prints the table of claims in docs/reproduction.md from the reports beside this file."""

from __future__ import annotations

import csv
from pathlib import Path

from elites.paper.claims import CLAIMS
from elites.paper.presets import SUITES
from elites.paper.verdicts import Verdict

SHORT = {Verdict.UNTESTED: "open"}


def table() -> list[str]:
    """A row for each claim: its words, and the verdict on each suite with the number of comparisons."""
    verdicts: dict[tuple[str, str], str] = {}
    for file in sorted(Path(__file__).parent.glob("*/claims.csv")):
        with file.open() as lines:
            for row in csv.DictReader(lines):
                verdict = SHORT.get(Verdict(row["verdict"]), row["verdict"])
                if verdict != SHORT[Verdict.UNTESTED]:
                    tested = f"{row['comparisons_tested']} of {row['comparisons']}"
                    verdicts[row["claim"], row["suite"]] = f"**{verdict}** ({tested})"
    titles = [suite.title for suite in SUITES.values()]
    rows = [
        f"| claim | the paper's words, in short | {' | '.join(titles)} |",
        "|---|---|" + "---|" * len(titles),
    ]
    for number, text, _ in CLAIMS:
        cells = [verdicts.get((number, title), SHORT[Verdict.UNTESTED]) for title in titles]
        tested = any((number, title) in verdicts for title in titles)
        name = f"[{number}](#claim-{number})" if tested else number
        rows.append(f"| {name} | {text} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))

"""The page of the reproduction has what its data say."""

import csv
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_the_verdicts_of_the_reports():
    table = runpy.run_path(str(DOCS / "reproduction" / "claims.py"))["table"]()
    assert len(table) == 2 + 12
    assert "\n".join(table) in (DOCS / "reproduction.md").read_text()


def test_the_page_has_the_final_values():
    page = (DOCS / "reproduction.md").read_text()
    with (DOCS / "reproduction" / "brax-walker2d" / "final.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["algorithm"] for row in rows} == {"pga-map-elites", "map-elites"}
    with (DOCS / "reproduction" / "noise" / "final.csv").open() as file:
        rows += [row for row in csv.DictReader(file) if "loss" in row["metric"]]
    for row in rows:
        value = float(row["median"])
        share = "loss" in row["metric"] or "coverage" in row["metric"]
        assert (f"{value * 100:.1f} % (" if share else f"{value:,.0f} (") in page

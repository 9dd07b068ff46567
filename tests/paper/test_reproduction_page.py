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
        rows = {row["metric"]: float(row["median"]) for row in csv.DictReader(file)}
    for metric in ("qd_score", "corrected_qd_score", "max_fitness", "corrected_max_fitness"):
        assert f"{rows[metric]:,.0f} (" in page
    for metric in ("qd_score_loss", "max_fitness_loss", "coverage_loss"):
        assert f"{rows[metric]:.1%} (".replace("%", " %") in page

"""The page of the reproduction has what its data say."""

import csv
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from elites.studies.results.reader import read_results
from elites.studies.results.runs import find_runs

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_the_verdicts_of_the_reports():
    table = runpy.run_path(str(DOCS / "reproduction" / "claims.py"))["table"]()
    assert len(table) == 2 + 12
    assert "\n".join(table) in (DOCS / "reproduction.md").read_text()


def test_the_page_has_the_final_values():
    page = (DOCS / "reproduction.md").read_text()
    rows = []
    compared = {
        "brax-walker2d": "map-elites",
        "brax-walker2d-250000": "map-elites",
        "brax-walker2d-p_evo": "p_evo 1",
        "brax-hopper-250000": "map-elites",
        "brax-deterministic-250000": "map-elites",
        "brax-ant-50000": "map-elites",
    }
    for study, other in compared.items():
        with (DOCS / "reproduction" / study / "final.csv").open() as file:
            new = list(csv.DictReader(file))
        assert other in {row["algorithm"] for row in new}
        rows += new
    with (DOCS / "reproduction" / "noise" / "final.csv").open() as file:
        rows += [row for row in csv.DictReader(file) if "loss" in row["metric"]]
    for row in rows:
        value = float(row["median"])
        share = "loss" in row["metric"] or "coverage" in row["metric"]
        assert (f"{value * 100:.1f} % (" if share else f"{value:,.0f} (") in page


def test_the_page_has_the_losses_to_rounding():
    page = (DOCS / "reproduction.md").read_text()
    losses = pd.read_csv(DOCS / "reproduction" / "rounding.csv")
    for (task, weights), rows in losses.groupby(["task", "weights"]):
        for loss in ("qd_score_loss", "max_fitness_loss", "coverage_loss"):
            assert f"{rows[loss].median() * 100:.1f} % (" in page, (task, weights)


@pytest.mark.parametrize(
    "study",
    [
        "brax-walker2d",
        "brax-walker2d-250000",
        "brax-walker2d-p_evo",
        "brax-hopper-250000",
        "brax-deterministic-250000",
        "brax-ant-50000",
    ],
)
def test_runs_are_restored_from_a_report(tmp_path, study):
    """With the same final values, so that runs can be added to them."""
    pytest.importorskip("brax")
    report, folder = DOCS / "reproduction" / study, tmp_path / "restored"
    runpy.run_path(str(DOCS / "reproduction" / "restore.py"))["main"](report, folder)
    results = read_results(find_runs(folder), tmp_path / "metrics.parquet")
    with (report / "final.csv").open() as file:
        for row in csv.DictReader(file):
            values = results.finals(row["task"], row["algorithm"], row["metric"])
            assert len(values) == int(row["runs"])
            assert np.isclose(np.median(values), float(row["median"]))

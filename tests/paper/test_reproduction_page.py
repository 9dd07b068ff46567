"""The page of the reproduction has what its data say."""

import csv
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from elites.results.study import StudyFolder
from elites.studies.results.reader import read_results
from elites.studies.results.runs import find_runs
from elites.studies.study import Study, read_study_file

DOCS = Path(__file__).parents[2] / "docs"
STUDIES = [
    "brax-walker2d",
    "brax-walker2d-250000",
    "brax-walker2d-p_evo",
    "brax-hopper-250000",
    "brax-deterministic-250000",
    "brax-ant-50000",
    "qdgym-100000",
]


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
        "qdgym-100000": "pga-map-elites",
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


@pytest.mark.parametrize(("script", "begins"), [("missing", "elites study run"), ("offset", "| task |")])
def test_the_page_has_what_scripts_print(script, begins):
    path = DOCS / "reproduction" / f"{script}.py"
    text = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout
    assert text.startswith(begins)
    assert text in (DOCS / "reproduction.md").read_text()


@pytest.mark.parametrize("study", STUDIES)
def test_a_report_is_part_of_its_study(study):
    """The study that the page names plans all runs of the report, with the same settings."""
    planned = Study(**read_study_file(DOCS / "reproduction" / f"{study}.toml"))
    reported = StudyFolder(DOCS / "reproduction" / study).read_record()
    for field in ("name", "evaluations", "log_every", "correct", "correct_replications", "snapshots"):
        assert getattr(planned, field) == getattr(reported, field), field
    for field in ("tasks", "algorithms"):
        own = {(choice.name, str(dict(choice.parameters))) for choice in getattr(planned, field)}
        assert own >= {(choice.name, str(choice.parameters)) for choice in getattr(reported, field)}
    with (DOCS / "reproduction" / study / "runs.csv").open() as file:
        seeds = {int(row["seed"]) for row in csv.DictReader(file)}
    assert seeds <= {*range(planned.first_seed, planned.first_seed + planned.seeds)}


def test_the_page_has_the_losses_to_rounding():
    page = (DOCS / "reproduction.md").read_text()
    losses = pd.read_csv(DOCS / "reproduction" / "rounding.csv")
    for (task, weights), rows in losses.groupby(["task", "weights"]):
        for loss in ("qd_score_loss", "max_fitness_loss", "coverage_loss"):
            assert f"{rows[loss].median() * 100:.1f} % (" in page, (task, weights)


@pytest.mark.parametrize("study", STUDIES)
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

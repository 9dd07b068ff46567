"""The results of runs whose outcome is known."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

import elites
from elites import read_table
from elites.metrics.metric import METRICS, Quantity
from elites.results.folder import RunFolder
from elites.studies.results.reader import read_corrections
from elites.studies.results.runs import _find_label
from tests.synthetic_runs import make_run, study_of


def test_runs_that_were_stopped_are_compared_at_their_ends_and_at_the_common_budget(tmp_path):
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=1000)
    make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=810, budget=1000)
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=400)
    study = study_of(tmp_path)
    assert study.budgets == {"qd-walker": 800, "qd-hopper": 400}  # the last generation ended at 800
    long = read_table(tmp_path / "map-elites-qd-walker-0-" / "metrics.csv")
    at = np.flatnonzero(long["evaluations"] == 800)[0]
    short = read_table(tmp_path / "map-elites-qd-walker-1-" / "metrics.csv")
    ends = [long["qd_score"][-1], short["qd_score"][-1]]
    assert study.finals("qd-walker", "map-elites", "qd_score").tolist() == ends
    common = study.at_common_budget.finals("qd-walker", "map-elites", "qd_score")
    assert common.tolist() == [long["qd_score"][at], ends[1]]
    assert study.tasks_without_common_budget == ["qd-walker"]
    assert study.limits == {"qd-walker": 1000, "qd-hopper": 400}
    known = [~np.isnan(curves.values["qd_score"]) for curves in study.replications("qd-walker", "map-elites")]
    assert [study.grid("qd-walker")[rows].max() for rows in known] == [
        1000,
        800,
    ]  # curves end with their runs
    message = "\n".join(study.notes)
    assert (
        "On qd-walker runs ended after 800 to 1,000 evaluations. Each is compared at its own end" in message
    )
    assert "and all of them at 800, the most that every one has reached" in message
    assert "seed 1 reached no more" in message
    assert "1 of 2 runs have not reached the end of their budget" in message
    assert "qd-hopper" not in message


def test_runs_with_a_smaller_budget_are_compared_at_their_end(tmp_path):
    """A smaller budget is no clock that ran out."""
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=1000)
    make_run(tmp_path, "td3", "qd-walker", 0, evaluations=400)
    make_run(tmp_path, "td3", "qd-walker", 1, evaluations=200, budget=400)
    study = study_of(tmp_path)
    assert [curves.end.evaluations for curves in study.runs] == [400, 400, 200]
    assert study.budgets == {"qd-walker": 200}
    assert study.limits == {"qd-walker": 400}


def test_a_label_belongs_only_to_its_own_parameters(tmp_path):
    for batch in (100, 50, 20):
        own = make_run(tmp_path, "map-elites", "qd-walker", 0, hyper_parameters={"batch": batch})
        own.rename(tmp_path / f"batch-{batch}")
    choices = [
        {"name": "map-elites", "parameters": {}, "label": "base"},
        {"name": "map-elites", "parameters": {"batch": 50, "keep_members": True}, "label": "small"},
    ]
    tasks = [{"name": "qd-walker", "parameters": {}, "label": "walker"}]
    (tmp_path / "study.json").write_text(json.dumps({"tasks": tasks, "algorithms": choices}))
    study = study_of(tmp_path)
    assert set(study.variants) == {"base", "small", "batch 20"}
    assert study.tasks == ["walker"]
    assert study.notes == ()


def test_the_best_matching_label_is_taken():
    """Where defaults are not known."""
    given = ({}, {"wind": 2}, {"wind": 2, "rain": 1})
    choices = [
        {"name": "gym:X", "parameters": one, "given": len(one), "label": str(len(one))} for one in given
    ]
    choices[2]["label"] = ""  # not called anything: named by its parameters
    assert _find_label("gym:X", {"wind": 2, "rain": 0}, choices) == "1"
    assert _find_label("gym:X", {"wind": 2, "rain": 1}, choices) == ""
    assert _find_label("gym:X", {"wind": 1, "rain": 1}, choices) == "0"
    assert _find_label("gym:Y", {"wind": 1}, choices) == ""


def test_all_metrics_are_in_one_table(tmp_path):
    runs = [
        make_run(tmp_path, "pga-map-elites", "qd-walker", 0, evaluations=200, loss=0.1, corrected_along=2),
        make_run(tmp_path, "td3", "qd-hopper", 3, evaluations=300, timings=False),
    ]
    study_of(tmp_path)
    table = parquet.read_table(tmp_path / "metrics.parquet").to_pydict()
    assert (
        table["algorithm"] == ["td3"] * 15 + ["pga-map-elites"] * 10
        or table["algorithm"] == ["pga-map-elites"] * 10 + ["td3"] * 15
    )
    first = slice(0, 10) if table["algorithm"][0] == "pga-map-elites" else slice(15, 25)
    log = read_table(runs[0] / "metrics.csv")
    np.testing.assert_array_equal(table["qd_score"][first], log["qd_score"])
    np.testing.assert_array_equal(table["made_pg"][first], log["made_pg"])
    assert table["made_actor"][first] == [None] * 10
    corrected = table["corrected_qd_score"][first]
    assert [value is not None for value in corrected] == [False] * 4 + [True] + [False] * 4 + [True]
    assert set(table["seed"]) == {0, 3}


def damage(own, name, old, new):
    text = (own / name).read_text()
    assert old in text
    (own / name).write_text(text.replace(old, new))


def test_only_damaged_files_are_left_out(tmp_path):
    runs = [
        make_run(tmp_path, "map-elites", "qd-walker", seed, loss=0.1, corrected_along=2, evaluations=400)
        for seed in range(8)
    ]
    damage(runs[1], "metrics.csv", "evaluations", "wings")
    damage(runs[2], "metrics.csv", "qd_score", "wings")
    damage(runs[3], "metrics.csv", "\n20,400,", "\n20,nan,")
    damage(runs[4], "metrics.csv", "improved_ga", "wings")
    damage(runs[5], "timings.csv", "\n3,", "\nthree,")
    damage(runs[6], "corrections.csv", "coverage_loss", "wings")
    record = {**json.loads((runs[7] / "config.json").read_text()), "hyper_parameters": None}
    (runs[7] / "config.json").write_text(json.dumps(record))
    other = make_run(tmp_path, "map-elites", "qd-hopper", 0, loss=0.1, evaluations=400)
    arrays = dict(np.load(other / "corrected.npz"))
    np.savez(other / "corrected.npz", **{**arrays, "about": np.array("{}")})
    study = study_of(tmp_path)
    assert [(c.run.task, c.run.seed) for c in study.runs] == [
        *(("qd-walker", seed) for seed in (0, 5, 6)),
        ("qd-hopper", 0),
    ]
    message = "\n".join(study.notes)
    assert "seed 1 is left out" in message
    assert "no column evaluations" in message
    assert "no column qd_score" in message
    assert "its last row has nan evaluations" in message
    assert "no column improved_ga" in message
    assert "Wall times of map-elites on qd-walker, seed 5 are left out" in message
    assert "Corrected values of map-elites on qd-walker, seed 6 are left out" in message
    assert "Expected `object`, got `null` - at `$.hyper_parameters`" in message
    assert "Corrected values of map-elites on qd-hopper, seed 0 are left out" in message
    assert len(study.notes) == 8
    assert np.isnan(study.runs[1].values["elapsed_s"]).all()
    assert not len(study.runs[3].corrections["evaluations"])


def test_a_run_that_is_left_out_sets_no_budget(tmp_path):
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=400)
    short = make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=200)
    damage(short, "metrics.csv", "\n2,40,", "\n2,forty,")  # its last row is whole
    study = study_of(tmp_path)
    assert study.budgets == {"qd-walker": 400}
    assert len(study.notes) == 1
    table = parquet.read_table(tmp_path / "metrics.parquet")
    assert set(table["seed"].to_pylist()) == {0}


def test_a_run_has_no_value_before_its_first_generation(tmp_path):
    """The fourth claim compares the ants at what both have reached."""
    for task, evaluations in (("qd-ant", 100), ("qd-deterministic-ant", 400)):
        make_run(tmp_path, "map-elites", task, 0, evaluations=evaluations)
    late = make_run(tmp_path, "td3", "qd-deterministic-ant", 0, evaluations=400)
    lines = (late / "metrics.csv").read_text().splitlines()
    (late / "metrics.csv").write_text("\n".join([lines[0], *lines[10:], ""]))  # from 200 on
    study = study_of(tmp_path)
    scores = {(c.run.algorithm, c.run.task): study.qd_score_across_tasks(c) for c in study.runs}
    assert scores["map-elites", "qd-ant"] > scores["map-elites", "qd-deterministic-ant"] > 0  # both at 100
    assert math.isnan(scores["td3", "qd-deterministic-ant"])


def test_unreadable_runs_are_left_out_and_reported(tmp_path):
    make_run(tmp_path, "map-elites", "qd-walker", 0)
    damaged = make_run(tmp_path, "map-elites", "qd-walker", 1)
    (damaged / "metrics.csv").write_text("generation,evaluations\n1,two\n")
    unbegun = make_run(tmp_path, "map-elites", "qd-walker", 2)
    (unbegun / "metrics.csv").unlink()
    half = make_run(tmp_path, "map-elites", "qd-walker", 3)
    with (half / "metrics.csv").open("a") as file:
        file.write("51,10")  # a row cut short by a crash
    broken = make_run(tmp_path, "map-elites", "qd-walker", 4)
    (broken / "config.json").write_text("{")
    study = study_of(tmp_path)
    assert [curves.run.seed for curves in study.runs] == [0, 3]
    message = "\n".join(study.notes)
    assert "seed 1 is left out" in message
    assert "seed 2 is left out" in message
    assert f"Left out: {broken / 'config.json'} is damaged" in message


def test_a_correction_of_the_archive_counts_even_if_the_log_is_longer(tmp_path):
    """A run that crashed: its archive is of its last checkpoint, and there is no later one to correct."""
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=1000, budget=900, loss=0.1)
    study = study_of(tmp_path)
    assert study.correction(study.runs[0])["evaluations"] == 900
    assert "again" not in "\n".join(study.notes)


def test_the_loss_of_a_metric_that_is_not_installed_is_that_of_the_log(tmp_path):
    """Its values are only in the log; those of the final correction are joined with them."""
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, loss=0.1, corrected_along=2, archive=True)
    header, *rows = (run / "corrections.csv").read_text().splitlines()
    table = [f"{header},spread,spread_loss", *(f"{row},0.25,0.5" for row in rows)]
    (run / "corrections.csv").write_text("\n".join([*table, ""]))
    corrections, errors = read_corrections(RunFolder(run), [*METRICS, Quantity("spread", "spread", ".3f")])
    assert errors == []
    assert corrections["evaluations"].tolist() == [500, 1000]
    assert corrections["corrected_spread"].tolist() == [0.25, 0.25]
    assert corrections["spread_loss"].tolist() == [0.5, 0.5]
    assert np.isfinite(corrections["qd_score_loss"]).all()


def test_a_run_is_not_replaced_by_a_folder_that_has_only_a_record(tmp_path):
    """A process that is killed before its run begins leaves such a folder. A group trained the seed later."""
    run = make_run(tmp_path / "seeds-0-to-1", "map-elites", "qd-walker", 0)
    unbegun = tmp_path / "seed-0"
    unbegun.mkdir()
    shutil.copy(run / "config.json", unbegun)
    study = study_of(tmp_path)
    assert [curves.run.folder.path for curves in study.runs] == [run]
    assert [note for note in study.notes if note.startswith("seed-0 repeats")]


@pytest.mark.slow
def test_a_metric_that_is_added_as_the_contributing_guide_says_leaves_earlier_folders_readable(tmp_path):
    run = make_run(tmp_path / "study", "map-elites", "qd-walker", 0, loss=0.1, archive=True)
    make_run(tmp_path / "study", "map-elites", "qd-walker", 1, loss=0.1, corrected_along=2)
    source = Path(elites.__file__).parent
    shutil.copytree(source, tmp_path / "elites", ignore=shutil.ignore_patterns("__pycache__"))
    module = tmp_path / "elites" / "metrics" / "metric.py"
    line = '    lowest: Annotated[float, "lowest fitness", ",.1f", lambda elites: elites.fitness.min()]\n'
    before, after = module.read_text().split("    coverage: Annotated", 1)
    module.write_text(f"{before}{line}    coverage: Annotated{after}")

    def command(*words):
        done = subprocess.run(
            [sys.executable, "-m", "elites", *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = command("show", str(run))
    # Once: in the table that compares both archives.
    assert len(re.findall(r"^ +lowest fitness +\S+ +\S+ +\S+%$", shown, re.MULTILINE)) == 1, shown
    command("study", "report", str(tmp_path / "study"))
    table = parquet.read_table(tmp_path / "study" / "report" / "metrics.parquet").to_pandas()
    corrected = table[table["corrected_lowest"].notna()]
    assert corrected["seed"].tolist() == [0]  # the log of the other one does not have it
    assert corrected["qd_score"].notna().all()
    assert table["lowest"].isna().all()

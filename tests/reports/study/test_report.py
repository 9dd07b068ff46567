"""What a report says of runs whose outcome is known."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as parquet
import pytest
from scipy.stats import mannwhitneyu

from elites import ElitesError, cli, read_table
from elites.reports.colours import ALGORITHMS
from elites.reports.study.archives import archives
from elites.reports.study.claims import judge
from elites.reports.study.comparisons import compare, finals, reference_of, seeds_needed, verdict_on_power
from elites.reports.study.data import read_study
from elites.reports.study.figures import losses
from elites.reports.study.page import settings
from elites.reports.study.report import _swap, study_report
from elites.reports.study.runs import _label, colour_of
from elites.reports.study.tables import Table, aligned_claims, latex
from elites.reports.study.verdicts import Check, Claim, Verdict
from tests.reports.study.made_up import make_run


def study_of(folder):
    return read_study(folder, folder / "metrics.parquet")


def verdicts(folder):
    return {claim.number: claim for claim in judge(study_of(folder))}


def test_runs_of_different_lengths_are_compared_at_the_largest_common_budget(tmp_path):
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=1000)
    make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=810, budget=1000)
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=400)
    study = study_of(tmp_path)
    assert study.budgets == {"qd-walker": 800, "qd-hopper": 400}  # the last generation ended at 800
    long = read_table(tmp_path / "map-elites-qd-walker-0-" / "metrics.csv")
    at = np.flatnonzero(long["evaluations"] == 800)[0]
    assert study.finals("qd-walker", "map-elites", "qd_score")[0] == long["qd_score"][at]
    told = "\n".join(study.notes)
    assert "On qd-walker runs ended after 800 to 1,000 evaluations. All are compared at 800" in told
    assert "seed 1 reached no more" in told
    assert "1 of 2 runs have not reached the end of their budget" in told
    assert "qd-hopper" not in told


def test_medians_and_p_values(tmp_path):
    rng = np.random.default_rng(0)
    values = {"pga-map-elites": rng.uniform(900, 1100, 5), "map-elites": rng.uniform(800, 1000, 4)}
    values["td3"] = rng.uniform(100, 200, 5)
    for algorithm, scores in values.items():
        for seed, score in enumerate(scores):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score)
    study = study_of(tmp_path)
    found = {(row.variant, row.metric): row for row in finals(study)}
    own = study.finals("qd-walker", "pga-map-elites", "qd_score")
    row = found["pga-map-elites", "qd_score"]
    assert (row.low, row.median, row.high) == pytest.approx(tuple(np.quantile(own, (0.25, 0.5, 0.75))))
    assert reference_of(study) == "pga-map-elites"
    comparisons = {row.other: row for row in compare(study) if row.metric == "qd_score"}
    assert set(comparisons) == {"map-elites", "td3"}
    for other, row in comparisons.items():
        expected = mannwhitneyu(own, study.finals("qd-walker", other, "qd_score"), method="exact").pvalue
        assert row.p == pytest.approx(expected)
        assert row.corrected == pytest.approx(min(1, 2 * expected))
        assert row.comparisons == 2
    assert comparisons["td3"].significant
    assert verdict_on_power(list(comparisons.values())) == ""


def test_so_few_replications_that_nothing_can_be_significant(tmp_path):
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 10), ("td3", 5)):
        for seed in range(3):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score + seed)
    rows = [row for row in compare(study_of(tmp_path)) if row.metric == "qd_score"]
    assert all(row.p == pytest.approx(0.1) and not row.possible for row in rows)
    told = verdict_on_power(rows)
    assert "none of them can be significant at 0.05" in told
    assert "can reach is 0.2" in told
    assert f"It takes {seeds_needed(2)} replications" in told
    assert 2 * 2 / math.comb(2 * seeds_needed(2), seeds_needed(2)) < 0.05


def test_claims_hold_are_contradicted_or_undecided(tmp_path):
    scores = {"pga-map-elites": 1000, "map-elites": 500, "td3": 1500}
    for algorithm, score in scores.items():
        for seed in range(6):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score + seed)
    found = verdicts(tmp_path)
    assert found["1"].verdict is Verdict.CONTRADICTED  # TD3 is better
    assert found["1"].scope == "2 of 20 comparisons: 1 hold, 1 contradicted"
    assert found["2"].verdict is Verdict.UNTESTED
    assert found["9"].verdict is Verdict.UNTESTED
    for path in list(tmp_path.glob("td3-*")):
        shutil.rmtree(path)
    found = verdicts(tmp_path)
    assert found["1"].verdict is Verdict.PARTLY  # on one task of four, against one algorithm of five
    assert found["3"].verdict is Verdict.PARTLY
    told = dict(zip(found, aligned_claims(list(found.values())), strict=True))
    assert told["1"] == "  claim 1   holds as far as tested (1 of 20 comparisons: 1 hold)"
    assert told["2"] == "  claim 2   not tested by these runs"
    for path in tmp_path.glob("*-[2-5]-*"):
        (path / "config.json").unlink()
    found = verdicts(tmp_path)
    assert found["1"].verdict is Verdict.UNDECIDED  # two replications of each
    assert not found["1"].possible


def test_a_tie_holds_only_where_a_difference_could_have_shown(tmp_path):
    """Coverage of PGA-MAP-Elites like that of MAP-Elites on the walker: the twelfth claim."""
    for seed in range(6):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, qd_score=1000 + seed)
        make_run(tmp_path, "map-elites", "qd-walker", seed, qd_score=1001 + seed)
    assert verdicts(tmp_path)["12"].verdict is Verdict.PARTLY
    for path in tmp_path.glob("*-[2-5]-*"):
        (path / "config.json").unlink()
    assert verdicts(tmp_path)["12"].verdict is Verdict.UNDECIDED


def test_losses_and_limits(tmp_path):
    """The sixth claim: max-fitness loss below 10 % on the walker."""
    for seed in range(8):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, loss=0.04, evaluations=200)
    assert verdicts(tmp_path)["6"].verdict is Verdict.PARTLY
    for seed in range(8):
        make_run(tmp_path, "pga-map-elites", "qd-hopper", seed, loss=0.3, evaluations=200)
    found = verdicts(tmp_path)
    assert found["6"].verdict is Verdict.CONTRADICTED
    assert found["6"].scope == "2 of 4 comparisons: 1 hold, 1 contradicted"


def test_operators_over_time(tmp_path):
    """The eleventh claim; the made-up PG adds only in the first third, the GA always."""
    for seed in range(8):
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed)
    claim = verdicts(tmp_path)["11"]
    assert claim.verdict is Verdict.PARTLY
    assert len(claim.tested) == 3


def test_a_claim_holds_where_all_of_it_was_tested():
    better, unknown = Check("a", 0.001, 0.001, (True, False)), Check("b", math.nan, 1.0, (False, False))
    assert Claim("1", "", (better, better)).verdict is Verdict.HOLDS
    assert Claim("1", "", (better, unknown)).verdict is Verdict.PARTLY
    assert Claim("1", "", (unknown,)).verdict is Verdict.UNTESTED


def test_changed_hyper_parameters_are_not_the_paper_s(tmp_path):
    for seed in range(6):
        make_run(tmp_path, "map-elites", "qd-walker", seed, qd_score=500 + seed)
        changed = {"batch": 50}
        make_run(tmp_path, "pga-map-elites", "qd-walker", seed, hyper_parameters=changed)
    assert all(claim.verdict is Verdict.UNTESTED for claim in verdicts(tmp_path).values())
    for path in tmp_path.glob("pga-*"):
        record = json.loads((path / "config.json").read_text())
        record["hyper_parameters"] |= {"batch": 100, "keep_members": True}  # stores more, finds the same
        (path / "config.json").write_text(json.dumps(record))
    assert verdicts(tmp_path)["1"].verdict is Verdict.PARTLY


def test_the_ablation_is_told_apart_by_its_shares(tmp_path):
    for share in (0.0, 0.5, 1.0):
        for seed in range(6):
            score = 1000 * (1 + (share == 0.5)) + seed
            make_run(
                tmp_path, "pga-map-elites", "qd-ant", seed, qd_score=score, hyper_parameters={"p_evo": share}
            )
    study = study_of(tmp_path)
    assert study.variants == ["p_evo 0", "p_evo 0.5", "p_evo 1"]
    assert reference_of(study) == "p_evo 0.5"
    found = {claim.number: claim for claim in judge(study)}
    assert "2 hold" in found["9"].scope
    assert found["9"].verdict is Verdict.CONTRADICTED  # here p_evo = 0 has another max-fitness than 0.5


def test_a_changed_task_is_not_the_paper_s(tmp_path):
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 10)):
        for seed in range(6):
            make_run(
                tmp_path,
                algorithm,
                "qd-walker",
                seed,
                qd_score=score + seed,
                task_parameters={"noise": 0.01},
            )
    assert all(claim.verdict is Verdict.UNTESTED for claim in verdicts(tmp_path).values())
    assert settings(study_of(tmp_path)) == ["qd-walker: noise 0.01 (else 0.1)"]


def test_a_label_is_of_its_own_parameters_alone(tmp_path):
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
    assert study.notes == []


def test_of_labels_that_fit_the_nearest_is_taken():
    """Where defaults are not known."""
    given = ({}, {"wind": 2}, {"wind": 2, "rain": 1})
    choices = [
        {"name": "gym:X", "parameters": one, "given": len(one), "label": str(len(one))} for one in given
    ]
    choices[2]["label"] = ""  # not called anything: named by its parameters
    assert _label("gym:X", {"wind": 2, "rain": 0}, choices) == "1"
    assert _label("gym:X", {"wind": 2, "rain": 1}, choices) == ""
    assert _label("gym:X", {"wind": 1, "rain": 1}, choices) == "0"
    assert _label("gym:Y", {"wind": 1}, choices) == ""


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


def test_damage_costs_no_more_than_what_is_damaged(tmp_path):
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
    told = "\n".join(study.notes)
    assert "seed 1 is left out" in told
    assert "no column evaluations" in told
    assert "no column qd_score" in told
    assert "its last row has nan evaluations" in told
    assert "no column improved_ga" in told
    assert "Wall times of map-elites on qd-walker, seed 5 are left out" in told
    assert "Corrections of map-elites on qd-walker, seed 6 are left out" in told
    assert "hyper_parameters is null" in told
    assert "Corrections of map-elites on qd-hopper, seed 0 are left out" in told
    assert len(study.notes) == 8
    assert np.isnan(study.runs[1].values["elapsed_s"]).all()
    assert not len(study.runs[3].corrections["evaluations"])
    assert study_report(tmp_path).startswith("4 runs")


def test_a_run_that_is_left_out_sets_no_budget(tmp_path):
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=400)
    short = make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=200)
    damage(short, "metrics.csv", "\n2,40,", "\n2,forty,")  # its last row is whole
    study = study_of(tmp_path)
    assert study.budgets == {"qd-walker": 400}
    assert len(study.notes) == 1
    table = parquet.read_table(tmp_path / "metrics.parquet")
    assert set(table["seed"].to_pylist()) == {0}


def test_before_its_first_generation_a_run_has_no_value(tmp_path):
    """The fourth claim compares the ants at what both have reached."""
    for task, evaluations in (("qd-ant", 100), ("qd-deterministic-ant", 400)):
        make_run(tmp_path, "map-elites", task, 0, evaluations=evaluations)
    late = make_run(tmp_path, "td3", "qd-deterministic-ant", 0, evaluations=400)
    lines = (late / "metrics.csv").read_text().splitlines()
    (late / "metrics.csv").write_text("\n".join([lines[0], *lines[10:], ""]))  # from 200 on
    also = {(c.run.algorithm, c.run.task): c.also[100] for c in study_of(tmp_path).runs}
    assert also["map-elites", "qd-ant"] > 0
    assert math.isnan(also["td3", "qd-deterministic-ant"])


def test_what_cannot_be_read_is_left_out_and_told(tmp_path):
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
    told = "\n".join(study.notes)
    assert "seed 1 is left out" in told
    assert "seed 2 is left out" in told
    assert "config.json is damaged and left out" in told
    (tmp_path / "empty").mkdir()
    with pytest.raises(ElitesError, match="holds no run with a logged generation"):
        study_report(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Everything that a report can show, small."""
    folder = tmp_path_factory.mktemp("study")
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 600), ("deep-grid", 500)):
        for seed in range(3):
            for task in ("qd-walker", "qd-hopper"):
                make_run(
                    folder,
                    algorithm,
                    task,
                    seed,
                    qd_score=score + 30 * seed,
                    evaluations=400 if (algorithm, task, seed) != ("deep-grid", "qd-hopper", 2) else 300,
                    budget=400,
                    loss=0.05 + 0.1 * (algorithm == "deep-grid") + 0.01 * seed,
                    corrected_along=4 if task == "qd-walker" else 0,
                    archive=seed == 1 and task == "qd-walker",
                )
    assert cli.main(["study", "report", str(folder)]) == 0
    return folder


def test_everything_is_there(reported):
    made = reported / "report"
    figures = {path.stem for path in (made / "figures").glob("*.png")}
    assert figures == {path.stem for path in (made / "figures").glob("*.pdf")}
    assert figures == {
        *("progress-evaluations", "progress-environment-steps", "progress-wall-time"),
        *("archives-qd-walker", "archives-qd-hopper", "corrected-qd-walker", "contribution-pga-map-elites"),
        *("losses", "losses-without-deep-grid"),
    }
    with (made / "tables" / "p-values.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["metric"] for row in rows} >= {"qd_score", "corrected_qd_score", "coverage_loss"}
    assert all(0 < float(row["p"]) <= float(row["p_bonferroni"]) <= 1 for row in rows)
    with (made / "tables" / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    assert {(row["evaluations"], row["compared_at"]) for row in rows if row["task"] == "qd-hopper"} == {
        ("400", "300"),
        ("300", "300"),
    }
    assert {path.stem for path in (made / "tables").glob("*.csv")} == {
        *("runs", "final", "p-values", "claims")
    }
    page = (made / "index.html").read_text()
    for heading in ("What was run", "Progress", "Final values", "Final archives", "Reproducibility"):
        assert f">{heading}</h2>" in page
    assert page.count("data:image/png;base64,") == len(figures)
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page) == []
    assert "On qd-hopper runs ended after 300 to 400 evaluations. All are compared at 300" in page
    assert "With 3 replications and 4 comparisons none of them can be significant at 0.05" in page
    assert "<td>impossible</td>" in page


def test_the_same_runs_give_the_same_files(tmp_path):
    for seed in range(2):
        make_run(tmp_path, "map-elites", "qd-hopper", seed, evaluations=200, loss=0.1)
    made = []
    for _ in range(2):
        study_report(tmp_path)
        made.append({path: path.read_bytes() for path in (tmp_path / "report").rglob("*") if path.is_file()})
    first, second = made
    assert first.keys() == second.keys()
    assert [str(path) for path in first if first[path] != second[path]] == []
    assert [path.suffix for path in first].count(".pdf") == 5


def test_what_is_called_report_but_is_none_is_left_alone(tmp_path, capsys):
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=200)
    run = make_run(tmp_path, "map-elites", "qd-hopper", 1, evaluations=200).rename(tmp_path / "report")
    before = {path: path.read_bytes() for path in run.rglob("*")}
    assert cli.main(["study", "report", str(tmp_path)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert f"{run} is not a report that was made here" in told
    assert {path: path.read_bytes() for path in run.rglob("*")} == before
    run.rename(tmp_path / "other")
    (tmp_path / "report").write_text("a file")
    with pytest.raises(ElitesError, match="is not a report"):
        study_report(tmp_path)
    assert (tmp_path / "report").read_text() == "a file"


def test_a_report_that_fails_leaves_the_last_one(tmp_path):
    run = make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=200)
    old = tmp_path / "report"
    old.mkdir()
    for name in ("index.html", "metrics.parquet"):
        (old / name).write_text("old")
    (run / "metrics.csv").unlink()
    with pytest.raises(ElitesError, match="holds no run"):
        study_report(tmp_path)
    assert (old / "index.html").read_text() == "old"
    made, gone = tmp_path / "made", tmp_path / "gone"  # nothing was made: the last rename fails
    with pytest.raises(FileNotFoundError):
        _swap(made, old, gone)
    assert (old / "index.html").read_text() == "old"
    made.mkdir()
    _swap(made, old, gone)
    assert list(old.iterdir()) == []
    assert not gone.exists()


def test_nothing_false_is_said_of_few_runs(tmp_path):
    """One run of one algorithm; then two algorithms that share no task, one of them one's own."""
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=200)
    assert study_report(tmp_path).startswith("1 run, 1 task, 1 algorithm\n")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "these runs are of one algorithm" in page
    assert "These runs are 1 replication of 200 evaluations" in page
    other = make_run(tmp_path, "td3", "qd-walker", 0, evaluations=200)
    record = json.loads((other / "config.json").read_text())
    record |= {"task": "gym:mine", "task_parameters": {"descriptor": "mine:feet", "patience": 7}}
    (other / "config.json").write_text(json.dumps(record))
    study_report(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    assert "one algorithm" not in page
    assert "no task has values of\nmap-elites and of another algorithm" in page
    assert "gym:mine: descriptor mine:feet, patience 7" in page


def test_a_first_generation_after_the_common_budget_is_told(tmp_path):
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=100)
    for seed in range(2):
        late = make_run(tmp_path, "td3", "qd-hopper", seed, evaluations=400)
        lines = (late / "metrics.csv").read_text().splitlines()
        (late / "metrics.csv").write_text("\n".join([lines[0], *lines[10:], ""]))  # from 200 on
    told = study_report(tmp_path)
    note = "2 runs of td3 had not ended their first generation after 100 evaluations"
    assert note in told
    page = (tmp_path / "report" / "index.html").read_text()
    assert note in page
    assert not re.search(r"\bnan\b", page)


def test_every_variant_of_a_long_sweep_has_a_colour_of_its_own(tmp_path):
    shares = [place / 11 for place in range(12)]
    for share in (*shares, 0.5):
        make_run(
            tmp_path,
            "pga-map-elites",
            "qd-ant",
            0,
            evaluations=200,
            hyper_parameters={"p_evo": share},
            loss=0.1,
            corrected_along=1,
        )
    study = study_of(tmp_path)
    chosen = colour_of([curves.run for curves in study.runs])
    assert len(set(chosen.values())) == len(chosen) == 13
    assert chosen["p_evo 0.5"] == ALGORITHMS["pga-map-elites"]
    (picture,) = losses(study)
    labels = [label.get_text() for label in picture.figure.axes[0].get_xticklabels()]
    assert labels == study.variants


def corrected_rows(folder):
    """Of final.csv: the metrics of corrections, and how many runs each is of."""
    with (folder / "report" / "tables" / "final.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {row["metric"]: int(row["runs"]) for row in rows if "corrected" in row["metric"]}


def test_a_correction_of_an_earlier_archive_is_not_shown_as_the_final_one(tmp_path):
    """Stopped at 100 evaluations, corrected, resumed to 3,000."""
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=3000, loss=0.1, corrected_at=100)
    study = study_of(tmp_path)
    assert not study.has("corrected_qd_score")
    assert study.runs[0].corrections["evaluations"].tolist() == [100]  # for curves
    (picture,) = archives(study)
    titles = [axes.get_title() for axes in picture.figure.axes]
    assert "map-elites\nseed 0, 3,000 evaluations" in titles
    assert "corrected" not in titles
    assert "corrected" not in picture.caption
    note = "seed 0 was corrected at 100 of 3,000 evaluations; run `elites correct` again"
    assert note in study_report(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count(note) == 1
    assert '<td class="number">0 of 1</td>' in page
    assert "Reproducibility" not in page
    assert corrected_rows(tmp_path) == {}
    make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=3000, loss=0.1)
    study_report(tmp_path)
    assert corrected_rows(tmp_path)["corrected_qd_score"] == 1  # of the other


def test_curves_of_corrections_stay_where_the_last_is_not_of_the_end(tmp_path):
    own = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=400, loss=0.1, corrected_along=4)
    lines = (own / "corrections.csv").read_text().splitlines()
    (own / "corrections.csv").write_text("\n".join([*lines[:-1], ""]))
    assert "corrected at 300 of 400 evaluations" in study_report(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    assert "original metrics above, corrected ones below" in page
    assert "Losses to re-evaluation" not in page
    assert corrected_rows(tmp_path) == {}


def test_corrections_count_where_runs_are_compared_before_their_end(tmp_path):
    """At 400 evaluations: corrected at its end, along the way, and later than that but not at its end."""
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=400, loss=0.1)
    make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=1000, loss=0.1)
    make_run(tmp_path, "map-elites", "qd-walker", 2, evaluations=1000, loss=0.1, corrected_along=4)
    make_run(tmp_path, "td3", "qd-walker", 0, evaluations=1000, loss=0.1, corrected_at=600)
    study = study_of(tmp_path)
    assert [study.corrected(curves)["evaluations"] for curves in study.runs] == [400, 1000, 250, 600]
    assert "again" not in "\n".join(study.notes)
    (picture,) = archives(study)
    assert [axes.get_title() for axes in picture.figure.axes].count("corrected") == 1
    assert "seed 0 is not shown: it was corrected at 600 evaluations" in study.notes[-1]


def test_a_correction_of_the_archive_counts_though_the_log_is_longer(tmp_path):
    """A run that crashed: its archive is of its last checkpoint, and there is no later one to correct."""
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=1000, budget=900, loss=0.1)
    study = study_of(tmp_path)
    assert study.corrected(study.runs[0])["evaluations"] == 900
    assert "again" not in "\n".join(study.notes)


@pytest.mark.parametrize(
    ("task", "cells", "told"),
    [
        ("qd-walker", "cvt", "Each cell has the colour of its elite's fitness; grey cells are empty."),
        ("qd-ant", "grid", "Each cell has the colour of its elite's fitness; grey cells are empty."),
        ("qd-ant", "cvt", "Squares are bins of descriptor space, each with its best elite; grey ones hold"),
    ],
)
def test_what_a_square_of_a_map_is(task, cells, told, tmp_path):
    make_run(tmp_path, "map-elites", task, 0, evaluations=100, archive=True, cells=cells)
    (picture,) = archives(study_of(tmp_path))
    assert told in picture.caption


def test_the_locale_changes_nothing(tmp_path):
    run = make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=200, loss=0.1)
    record = {**json.loads((run / "config.json").read_text()), "task": "gym:Läufer"}
    (run / "config.json").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    choices = {"tasks": [], "algorithms": [{"name": "map-elites", "label": "Größe \N{EN DASH} 1"}]}
    (tmp_path / "study.json").write_text(json.dumps(choices, ensure_ascii=False), encoding="utf-8")
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    command = [sys.executable, "-m", "elites", "study", "report", str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, **plain}, capture_output=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "Größe \N{EN DASH} 1" in page
    assert "gym:Läufer" in page
    assert "Größe" in (tmp_path / "report" / "tables" / "final.csv").read_text(encoding="utf-8")
    assert "Größe" in (tmp_path / "report" / "tables" / "runs.tex").read_text(encoding="utf-8")


def test_latex_is_escaped():
    table = Table("one", "50 % & more", ("p_evo", "value"), [("a_b", "1"), ("x" * 50, "2")], frozenset({1}))
    text = latex(table)
    assert r"50 \% \& more" in text
    assert r"a\_b & 1 \\" in text
    assert r"\begin{tabular}{p{0.3\linewidth}r}" in text

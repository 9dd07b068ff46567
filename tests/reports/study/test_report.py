"""What a report says of runs whose outcome is known."""

import csv
import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from elites import ElitesError, cli
from elites.paper.presets import make_study
from elites.reports.colours import ALGORITHMS
from elites.reports.study.comparisons import (
    choose_reference,
    compare,
    compute_finals,
    compute_required_seeds,
    describe_power,
)
from elites.reports.study.figures import draw_archives, draw_losses, read_panels
from elites.reports.study.line_styles import choose_colours
from elites.reports.study.page import list_changed_settings
from elites.reports.study.report import report_study
from elites.reports.study.tables import Table, format_latex
from elites.results.study import StudyFolder
from tests.synthetic_runs import make_run, study_of


def test_medians_and_p_values(tmp_path):
    rng = np.random.default_rng(0)
    values = {"pga-map-elites": rng.uniform(900, 1100, 5), "map-elites": rng.uniform(800, 1000, 4)}
    values["td3"] = rng.uniform(100, 200, 5)
    for algorithm, scores in values.items():
        for seed, score in enumerate(scores):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score)
    study = study_of(tmp_path)
    rows = {(row.variant, row.metric): row for row in compute_finals(study)}
    own = study.finals("qd-walker", "pga-map-elites", "qd_score")
    row = rows["pga-map-elites", "qd_score"]
    assert (row.low, row.median, row.high) == pytest.approx(tuple(np.quantile(own, (0.25, 0.5, 0.75))))
    assert choose_reference(study) == "pga-map-elites"
    comparisons = {row.other: row for row in compare(study) if row.metric == "qd_score"}
    assert set(comparisons) == {"map-elites", "td3"}
    for other, row in comparisons.items():
        expected = mannwhitneyu(own, study.finals("qd-walker", other, "qd_score"), method="exact").pvalue
        assert row.p == pytest.approx(expected)
        assert row.corrected_p == pytest.approx(min(1, 2 * expected))
        assert row.comparisons == 2
    assert comparisons["td3"].significant
    assert describe_power(list(comparisons.values())) == ""


def test_too_few_replications_for_significance_are_reported(tmp_path):
    for algorithm, score in (("pga-map-elites", 1000), ("map-elites", 10), ("td3", 5)):
        for seed in range(3):
            make_run(tmp_path, algorithm, "qd-walker", seed, qd_score=score + seed)
    rows = [row for row in compare(study_of(tmp_path)) if row.metric == "qd_score"]
    assert all(row.p == pytest.approx(0.1) and not row.possible for row in rows)
    message = describe_power(rows)
    assert "none of the comparisons can be significant at 0.05" in message
    assert "p-value is 0.2" in message
    assert f"At least {compute_required_seeds(2)} replications" in message
    assert 2 * 2 / math.comb(2 * compute_required_seeds(2), compute_required_seeds(2)) < 0.05


def test_settings_that_differ_from_the_defaults(tmp_path):
    make_run(tmp_path, "map-elites", "qd-walker", 0, task_parameters={"noise": 0.01})
    assert list_changed_settings(study_of(tmp_path)) == ["qd-walker: noise 0.01 (default 0.1)"]


def test_a_folder_without_runs_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ElitesError, match="holds no run with a logged generation"):
        report_study(tmp_path / "empty")
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


def test_a_report_has_all_its_files(reported):
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
        ("400", "400"),
        ("300", "300"),
    }
    assert {row["common_budget"] for row in rows if row["task"] == "qd-hopper"} == {"300"}
    assert {(row["environment_steps"], row["elapsed_s"]) for row in rows} == {
        ("8000", "10.0"),
        ("6000", "7.5"),
    }
    tex = (made / "tables" / "cost.tex").read_text()
    assert r"qd-walker & deep-grid & 3 & 8,000 & 10 s & 40.0 & 800 \\" in tex
    assert {path.stem for path in (made / "tables").glob("*.csv")} == {
        *("runs", "final", "p-values", "claims", "aggregate"),
        *("final-common-budget", "p-values-common-budget"),
    }
    with (made / "tables" / "final.csv").open() as file:
        at = {
            (row["algorithm"], row["evaluations"])
            for row in csv.DictReader(file)
            if row["task"] == "qd-hopper"
        }
    assert at == {("pga-map-elites", "400"), ("map-elites", "400"), ("deep-grid", "300")}
    page = (made / "index.html").read_text()
    for heading in ("Runs", "Progress", "Final values", "Final archives", "Reproducibility"):
        assert f">{heading}</h2>" in page
    assert page.count("data:image/png;base64,") == len(figures)
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page) == []
    assert (
        "On qd-hopper runs ended after 300 to 400 evaluations. Each is compared at its own end, and" in page
    )
    assert ">At the common budget</h3>" in page
    assert "<summary>Cost</summary>" in page
    assert ">All tasks together</h3>" in page
    assert "With 3 replications and 4 comparisons, none of the comparisons can be significant at 0.05" in page
    assert "<td>impossible</td>" in page


def test_the_same_runs_give_the_same_files(tmp_path):
    for seed in range(2):
        make_run(tmp_path, "map-elites", "qd-hopper", seed, evaluations=200, loss=0.1)
    made = []
    for _ in range(2):
        report_study(tmp_path)
        made.append({path: path.read_bytes() for path in (tmp_path / "report").rglob("*") if path.is_file()})
    first, second = made
    assert first.keys() == second.keys()
    assert [str(path) for path in first if first[path] != second[path]] == []
    assert [path.suffix for path in first].count(".pdf") == 5


def test_a_folder_report_that_is_not_a_report_is_left_alone(tmp_path, capsys):
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=200)
    run = make_run(tmp_path, "map-elites", "qd-hopper", 1, evaluations=200).rename(tmp_path / "report")
    before = {path: path.read_bytes() for path in run.rglob("*")}
    assert cli.main(["study", "report", str(tmp_path)]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert f"{run} is not a report that was made here" in message
    assert {path: path.read_bytes() for path in run.rglob("*")} == before
    run.rename(tmp_path / "other")
    (tmp_path / "report").write_text("a file")
    with pytest.raises(ElitesError, match="is not a report"):
        report_study(tmp_path)
    assert (tmp_path / "report").read_text() == "a file"


def test_a_failed_report_keeps_the_last_one(tmp_path):
    run = make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=200)
    old = tmp_path / "report"
    old.mkdir()
    for name in ("index.html", "metrics.parquet"):
        (old / name).write_text("old")
    (run / "metrics.csv").unlink()
    with pytest.raises(ElitesError, match="holds no run"):
        report_study(tmp_path)
    assert (old / "index.html").read_text() == "old"
    home = StudyFolder(tmp_path)
    with pytest.raises(FileNotFoundError):  # nothing was made: the last rename fails
        home.finish_report()
    assert (old / "index.html").read_text() == "old"
    home.begin_report()
    home.finish_report()
    assert {path.name for path in old.iterdir()} == {"figures", "tables"}
    assert {path.name for path in tmp_path.iterdir()} == {run.name, "report"}


@pytest.mark.usefixtures("undrawn")
def test_reports_of_few_runs_are_correct(tmp_path):
    """One run of one algorithm; then two algorithms that share no task, one of them one's own."""
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=200)
    assert report_study(tmp_path).startswith("1 run, 1 task, 1 algorithm\n")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "these runs are of one algorithm" in page
    assert "The paper" not in page  # no claim can be tested
    assert not (tmp_path / "report" / "tables" / "claims.csv").exists()
    other = make_run(tmp_path, "td3", "qd-walker", 0, evaluations=200)
    record = json.loads((other / "config.json").read_text())
    record |= {"task": "gym:mine", "task_parameters": {"descriptor": "mine:feet", "patience": 7}}
    (other / "config.json").write_text(json.dumps(record))
    report_study(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    assert "one algorithm" not in page
    assert "no task has values of\nmap-elites and of another algorithm" in page
    assert "gym:mine: descriptor mine:feet, patience 7" in page


@pytest.mark.usefixtures("undrawn")
def test_verdicts_state_the_suite(tmp_path):
    """A study of the paper on Brax: all counterparts are listed, and the page also has the claims."""
    for algorithm in ("pga-map-elites", "map-elites"):
        for seed in range(2):
            make_run(tmp_path, algorithm, "brax-hopper", seed, evaluations=200)
    record = make_study("performance", suite="brax", tasks=["brax-hopper"], seeds=2).record()
    (tmp_path / "study.json").write_text(json.dumps(record))
    lines = [line for line in report_study(tmp_path).splitlines() if line.startswith("  claim ")]
    assert len(lines) == 12
    assert all(" counterpart on Brax: " in line for line in lines)
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count("<td>counterpart on Brax</td>") == page.count("<td>QDGym</td>") == 12
    assert "runs on Brax do not decide them" in page
    with (tmp_path / "report" / "tables" / "claims.csv").open() as file:
        rows = [(row["claim"], row["suite"], row["verdict"]) for row in csv.DictReader(file)]
    assert ("1", "QDGym", "not tested by these runs") in rows
    assert ("1", "Brax", "not decidable with so few runs") in rows


@pytest.mark.usefixtures("undrawn")
def test_a_first_generation_after_the_common_budget_is_reported(tmp_path):
    make_run(tmp_path, "map-elites", "qd-hopper", 0, evaluations=100)
    for seed in range(2):
        late = make_run(tmp_path, "td3", "qd-hopper", seed, evaluations=400)
        lines = (late / "metrics.csv").read_text().splitlines()
        (late / "metrics.csv").write_text("\n".join([lines[0], *lines[10:], ""]))  # from 200 on
    message = report_study(tmp_path)
    note = "2 runs of td3 had not ended their first generation after 100 evaluations"
    assert note in message
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
    chosen = choose_colours([curves.run for curves in study.runs])
    assert len(set(chosen.values())) == len(chosen) == 13
    assert chosen["p_evo 0.5"] == ALGORITHMS["pga-map-elites"]
    (picture,) = draw_losses(study)
    labels = [label.get_text() for label in picture.figure.axes[0].get_xticklabels()]
    assert labels == study.variants


def corrected_rows(folder):
    """Of final.csv: the metrics of corrections, and how many runs each is of."""
    with (folder / "report" / "tables" / "final.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {row["metric"]: int(row["runs"]) for row in rows if "corrected" in row["metric"]}


@pytest.mark.usefixtures("undrawn")
def test_a_correction_of_an_earlier_archive_is_not_shown_as_the_final_one(tmp_path):
    """Stopped at 100 evaluations, corrected, resumed to 3,000."""
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=3000, loss=0.1, corrected_at=100)
    study = study_of(tmp_path)
    assert not study.has_corrections
    assert study.runs[0].corrections["evaluations"].tolist() == [100]  # for curves
    (picture,) = draw_archives(read_panels(study)[0])
    titles = [axes.get_title() for axes in picture.figure.axes]
    assert "map-elites\nseed 0, 3,000 evaluations" in titles
    assert "corrected" not in titles
    assert "corrected" not in picture.caption
    note = "seed 0 was corrected at 100 of 3,000 evaluations; run `elites correct` again"
    assert note in report_study(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count(note) == 1
    assert '<td class="number">0 of 1</td>' in page
    assert "Reproducibility" not in page
    assert corrected_rows(tmp_path) == {}
    make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=3000, loss=0.1)
    report_study(tmp_path)
    assert corrected_rows(tmp_path)["corrected_qd_score"] == 1  # of the other


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("noise", [0, 1])
def test_losses_by_rounding_are_noted(tmp_path, noise):
    for algorithm in ("map-elites", "pga-map-elites"):
        make_run(tmp_path, algorithm, "qd-walker", 0, evaluations=300, loss=0.1, noise=noise)
    note = "qd-walker has no noise: losses of pga-map-elites, map-elites come from rounding"
    assert (note in report_study(tmp_path)) == (noise == 0)


@pytest.mark.usefixtures("undrawn")
def test_correction_curves_are_drawn_without_a_correction_of_the_end(tmp_path):
    own = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=400, loss=0.1, corrected_along=4)
    lines = (own / "corrections.csv").read_text().splitlines()
    (own / "corrections.csv").write_text("\n".join([*lines[:-1], ""]))
    assert "corrected at 300 of 400 evaluations" in report_study(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    assert "original metrics above, corrected ones below" in page
    assert "Losses to re-evaluation" not in page
    assert corrected_rows(tmp_path) == {}


def test_corrections_are_used_where_runs_are_compared_before_their_end(tmp_path):
    """At 400 evaluations: corrected at its end, along the way, and later than that but not at its end."""
    make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=400, loss=0.1)
    make_run(tmp_path, "map-elites", "qd-walker", 1, evaluations=1000, loss=0.1)
    make_run(tmp_path, "map-elites", "qd-walker", 2, evaluations=1000, loss=0.1, corrected_along=4)
    make_run(tmp_path, "td3", "qd-walker", 0, evaluations=1000, loss=0.1, corrected_at=600)
    study = study_of(tmp_path)
    assert [study.correction(curves)["evaluations"] for curves in study.runs] == [400, 1000, 250, 600]
    assert "again" not in "\n".join(study.notes)
    panels, notes = read_panels(study)
    (picture,) = draw_archives(panels)
    assert [axes.get_title() for axes in picture.figure.axes].count("corrected") == 1
    assert "seed 0 is not shown: it was corrected at 600 evaluations" in notes[-1]


@pytest.mark.parametrize(
    ("task", "cells", "message"),
    [
        ("qd-walker", "cvt", "Each cell has the colour of its elite's fitness; grey cells are empty."),
        ("qd-ant", "grid", "Each cell has the colour of its elite's fitness; grey cells are empty."),
        ("qd-ant", "cvt", "Squares are bins of descriptor space, each with its best elite; grey ones hold"),
    ],
)
def test_captions_describe_the_squares_of_a_map(task, cells, message, tmp_path):
    make_run(tmp_path, "map-elites", task, 0, evaluations=100, archive=True, cells=cells)
    (picture,) = draw_archives(read_panels(study_of(tmp_path))[0])
    assert message in picture.caption


@pytest.fixture(scope="module")
def own_study(tmp_path_factory):
    """A study of one's own, with a reference."""
    folder = tmp_path_factory.mktemp("own") / "folder"
    for variant, score in ((50, 900), (20, 1000)):
        for seed in range(4):
            for task in ("qd-walker", "qd-hopper"):
                run = make_run(
                    folder / task / f"batch-{variant}",
                    "map-elites",
                    task,
                    seed,
                    qd_score=score + 40 * seed,
                    evaluations=200,
                    hyper_parameters={"batch": variant},
                )
                assert run.parent.name == f"batch-{variant}"
    tasks = [{"name": task, "parameters": {}} for task in ("qd-walker", "qd-hopper")]
    algorithms = [
        {"name": "map-elites", "parameters": {"batch": 50}, "label": "usual"},
        {"name": "map-elites", "parameters": {"batch": 20}, "label": "small"},
    ]
    record = {"name": "Batches", "tasks": tasks, "algorithms": algorithms, "reference": "usual"}
    (folder / "study.json").write_text(json.dumps(record))
    return folder


@pytest.mark.usefixtures("undrawn")
def test_a_custom_study_shows_its_results_and_has_its_name(own_study):
    text = report_study(own_study)
    assert "claim" not in text
    assert "QD-score: medians over replications, against usual with 95 % intervals" in text
    (line,) = re.findall(r"^  qd-walker  small +4 +1,041 .*$", text, re.MULTILINE)
    assert re.search(r" 98 \(.* to .*\) +0.94 \(0.75 to 1.00\)$", line)
    page = (own_study / "report" / "index.html").read_text()
    assert "<title>Batches</title>" in page
    assert "The paper" not in page
    with (own_study / "report" / "tables" / "p-values.csv").open() as file:
        rows = {
            (row["task"], row["other"]): row for row in csv.DictReader(file) if row["metric"] == "qd_score"
        }
    row = rows["qd-walker", "small"]
    assert row["reference"] == "usual"
    assert float(row["probability_above_reference"]) == 15 / 16  # 1000, 1040, … against 900, … 1020
    assert row["with_pooled_offset"] == "not known"  # there are no archives
    with (own_study / "report" / "tables" / "aggregate.csv").open() as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file) if row["metric"] == "qd_score"}
    # 0, 40, 80, 120 and 100, 140, 180, 220 of 220 on both tasks: the middle halves are 40, 80 and 140, 180
    assert float(rows["usual"]["scaled_interquartile_mean"]) == pytest.approx(60 / 220)
    assert float(rows["small"]["scaled_interquartile_mean"]) == pytest.approx(160 / 220)
    assert rows["small"]["tasks"] == "2"


@pytest.mark.usefixtures("undrawn")
def test_the_reference_is_chosen(own_study, capsys):
    for given in ("small", "batch-20"):  # its label, or the folder of its runs
        assert cli.main(["study", "report", str(own_study), "--reference", given]) == 0
        assert "against small with" in capsys.readouterr().out
    for given, message in (
        ("map-elites", "reference 'map-elites' names several algorithms; it must be one of"),
        ("wings", "reference 'wings' is none of the algorithms; it must be one of"),
    ):
        assert cli.main(["study", "report", str(own_study), "--reference", given]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    record = own_study / "study.json"
    before = record.read_text()
    record.write_text(before.replace('"reference": "usual"', '"reference": "large"'))  # not run yet
    assert "The study's reference 'large' is none of the algorithms" in report_study(own_study)
    record.write_text(before)


def test_any_name_is_text_on_the_page_and_in_figures(tmp_path):
    hostile = ["$\\frac{<b>alert</b>_^[red]\n", "x" * 300, "$y$", "_z", "\ud800"]
    choices = {"tasks": [], "algorithms": []}
    for place, label in enumerate(hostile):
        given = {"p_evo": place / 4}
        run = make_run(tmp_path, "pga-map-elites", "qd-hopper", 0, hyper_parameters=given, loss=0.1)
        record = {**json.loads((run / "config.json").read_text()), "task": f"gym:{hostile[0]}"}
        (run / "config.json").write_text(json.dumps(record))
        chosen = {"name": "pga-map-elites", "parameters": given, "label": label}
        choices["algorithms"].append(chosen)
    (tmp_path / "study.json").write_text(json.dumps(choices))
    summary = report_study(tmp_path)
    assert "5 runs, 1 task, 5 algorithms" in summary
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "<b>alert" not in page
    assert "&lt;b&gt;alert" in page
    assert "\\frac" not in (tmp_path / "report" / "tables" / "runs.tex").read_text(encoding="utf-8")


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
    text = format_latex(table)
    assert r"50 \% \& more" in text
    assert r"a\_b & 1 \\" in text
    assert r"\begin{tabular}{p{0.3\linewidth}r}" in text

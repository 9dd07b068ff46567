"""What is shown of a run, from nothing but its folder."""

import json
import re

import numpy as np
import pytest

from elites import ElitesError, cli, show
from elites.metrics.metric import Metric
from elites.reports.study.report import report_study
from tests.synthetic_runs import make_run

EVENNESS = Metric("evenness", "evenness of fitness", ".3f", lambda elites: 0.5)


def rewrite_about(path, **changes):
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"]))
    np.savez(path, **{**arrays, "about": np.array(json.dumps(about | changes))})


def rewrite_record(run, **changes):
    record = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(record | changes))


def add_metric(run, values):
    """A further column of the run's metrics."""
    lines = (run / "metrics.csv").read_text().splitlines()
    rows = [f"{line},{value!r}" for line, value in zip(lines[1:], values(len(lines) - 1), strict=True)]
    (run / "metrics.csv").write_text("\n".join([f"{lines[0]},evenness", *rows, ""]))


@pytest.mark.usefixtures("undrawn")
def test_a_run_is_shown_without_its_algorithm_and_task(tmp_path, capsys):
    name, task = "somebody:TheirAlgorithm", "somebody:TheirTask"
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=200, loss=0.1)
    rewrite_record(run, algorithm=name, task=task, hyper_parameters={"wings": 2})
    for file in ("archive.npz", "corrected.npz"):
        rewrite_about(run / file, algorithm=name)
    assert cli.main(["show", str(run)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{name} on {task}, seed 0\n")
    assert "corrected by 2 replications of each of" in text
    assert all((run / f"{figure}.png").exists() for figure in ("archive", "progress", "corrected", "spread"))
    make_run(tmp_path / "known", "map-elites", "qd-walker", 0, evaluations=200)
    text = report_study(tmp_path)
    assert text.startswith("2 runs, 2 tasks, 2 algorithms\n")
    assert "left out" not in text
    page = (tmp_path / "report" / "index.html").read_text()
    assert name in page
    assert task in page


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("installed", [True, False])
def test_a_further_metric_is_shown_and_reported(installed, tmp_path):
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=200, loss=0.1)
    make_run(tmp_path, "td3", "qd-walker", 0, evaluations=200)  # it does not have the metric
    add_metric(run, lambda count: np.linspace(0.1, 0.7654321, count).tolist())
    module = __name__ if installed else "nowhere"
    rewrite_record(run, metrics=[f"{module}:EVENNESS"])
    label, value = ("evenness of fitness", "0.765") if installed else ("evenness", "0.7654")
    assert re.search(rf"^  {label} +{re.escape(value)}$", show(run), re.MULTILINE)
    report_study(tmp_path)
    page = (tmp_path / "report" / "index.html").read_text()
    assert f'<th class="number">{label}</th>' in page
    assert f"{value} ({value} to {value})" in page
    assert f"coverage and {label} against evaluations" in page
    assert "coverage loss</th>" in page
    # The corrections do not have the metric: it is computed from their elites, if it is installed.
    assert (f"{label} loss</th>" in page) == installed
    final = (tmp_path / "report" / "tables" / "final.csv").read_text()
    assert "qd-walker,map-elites,evenness,1,200,0.7654321" in final
    assert "qd-walker,td3,evenness" not in final


def test_a_run_without_an_archive_is_reported(tmp_path):
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=200)
    with pytest.raises(ElitesError, match="has no archive yet"):
        show(run)
    with pytest.raises(ElitesError, match="holds no run"):
        show(tmp_path)


def test_figures_are_drawn_as_asked(tmp_path, capsys):
    run = make_run(tmp_path, "pga-map-elites", "qd-ant", 0, evaluations=200, loss=0.1)
    options = ["--colour", "loss", "--percentiles", "5", "95", "--cmap", "cividis", "--format", "pdf"]
    assert cli.main(["show", str(run), *options, "--size", "5", "4"]) == 0
    out = capsys.readouterr().out
    names = ("archive-loss", "parallel-loss", "profile", "progress", "corrected", "spread")
    for name in names:
        path = run / f"{name}.pdf"
        assert str(path) in out
        assert path.read_bytes().startswith(b"%PDF")
    assert not list(run.glob("*.png"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limits", "5", "1"], "limits is 5 1; it must be a lower and a higher number"),
        (["--limits", "1"], "--limits"),
        (["--percentiles", "0", "101"], "percentiles is 101.0; it must be from 0 to 100"),
        (["--limits", "0", "1", "--percentiles", "0", "1"], "limits and percentiles cannot be combined"),
        (["--cmap", "mud"], "cmap is 'mud'; it must be a colour map of matplotlib"),
        (["--colour", "luck"], "invalid choice 'luck' for argument '--colour'"),
        (["--format", "doc"], "invalid choice 'doc' for argument '--format'"),
        (["--size", "1", "1"], "size is 1.0; it must be from 3 to 40"),
        (
            ["--colour", "operator", "--limits", "0", "1"],
            "colour operator has no scale, so limits cannot be set",
        ),
        (["--colour", "spread"], "colour spread needs a corrected archive: `elites correct "),
    ],
)
def test_bad_options_get_one_line(options, message, tmp_path, capsys):
    run = make_run(tmp_path, "map-elites", "qd-walker", 0, evaluations=200, archive=True)
    assert cli.main(["show", str(run), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err
    assert not list(run.glob("*.p*"))

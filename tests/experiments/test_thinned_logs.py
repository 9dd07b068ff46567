"""Logs with a row for several generations: nothing else depends on them."""

import itertools
import json

import numpy as np
import pytest

from elites import Execution, RunConfig, read_table, report_study, resume, run, show, tasks
from elites.metrics.contribution import choose_window, count_added, count_rows, smooth
from elites.results.folder import RunFolder
from elites.results.schemas import is_sum
from elites.results.tables import metric_names
from elites.studies.calibration import _estimate_sizes
from tests.kills import copies_at_renames
from tests.toy import POINT

SMALL = {"initial": 10, "batch": 10, "hidden": [4]}


def quiet(_):
    pass


@pytest.fixture
def execution(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "point", POINT)
    return Execution(checkpoint_seconds=0, log=quiet)


def config(**changes):
    given = {"algorithm": "map-elites", "task": "point", "evaluations": 80, "hyper_parameters": SMALL}
    return RunConfig(**{**given, **changes})


def logged(folder):
    return read_table(folder / "metrics.csv")


@pytest.mark.parametrize(("every", "corrections"), [(3, 0), (3, 40), (100, 0)])
def test_rows_cover_the_generations_since_the_previous_row(every, corrections, execution, tmp_path):
    changes = {"correct_every": corrections, "correct_replications": 2}
    run(config(**changes), tmp_path / "whole", execution=execution)
    run(config(log_every=every, **changes), tmp_path / "thin", execution=execution)
    whole, thin = logged(tmp_path / "whole"), logged(tmp_path / "thin")
    expected = {(3, 0): [3, 6, 8], (3, 40): [3, 4, 6, 8], (100, 0): [8]}[every, corrections]
    assert thin["generation"].tolist() == expected  # the last, and what is corrected
    at = np.searchsorted(whole["generation"], thin["generation"])
    ends = np.concatenate([[-1], at])
    for name, column in thin.items():
        values = whole[name]
        if is_sum(name):
            values = np.array([values[a + 1 : b + 1].sum() for a, b in itertools.pairwise(ends)])
            np.testing.assert_array_equal(column, values)
        else:
            np.testing.assert_array_equal(column, values[at])
    assert sum(is_sum(name) for name in thin) == 7
    for name in ("archive.npz", "corrections.csv") if corrections else ("archive.npz",):
        one, other = ((tmp_path / kind / name).read_bytes() for kind in ("whole", "thin"))
        assert one == other
    timings, times = (
        read_table(tmp_path / "thin" / "timings.csv"),
        RunFolder(tmp_path / "thin").read_elapsed(),
    )
    assert timings["generation"].tolist() == expected
    assert (np.diff(times) > 0).all()
    spent = next(timings[name] for name in ("device_s", "rollouts_s") if name in timings)
    assert (spent > 0).all()
    assert (timings["steps_per_s"] > 0).all()
    assert json.loads((tmp_path / "thin" / "config.json").read_text())["log_every"] == every


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_log_is_the_same_after_resuming_at_any_checkpoint(seeds, execution, tmp_path):
    thin, whole = config(log_every=3), tmp_path / "whole"
    with copies_at_renames(whole, tmp_path) as copies:
        run(thin, whole, seeds, execution)
    logs = sorted(
        path.relative_to(whole) for name in ("metrics.csv", "lineage.bin") for path in whole.rglob(name)
    )
    assert len(logs) == 2 * seeds
    resumable = [copy for copy in copies if (copy / "checkpoints").is_dir()]
    assert len(resumable) > 7
    for folder in resumable:
        resume(folder, execution)
        for log in logs:
            assert (folder / log).read_bytes() == (whole / log).read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_summary_and_report_are_the_same_with_thinned_logs(execution, tmp_path):
    """Contributions are per generation whatever the rows; the summary and the report are made."""
    for seed in range(2):
        for every in (1, 4):
            own = tmp_path / f"every-{every}" / f"seed-{seed}"
            run(config(seed=seed, evaluations=800, log_every=every), own, execution=execution)
    whole, thin = (logged(tmp_path / f"every-{every}" / "seed-0") for every in (1, 4))
    first, second = ((tmp_path / f"every-{every}" / "seed-0" / "lineage.bin") for every in (1, 4))
    assert first.read_bytes() == second.read_bytes()  # lineages are never thinned
    assert (len(whole["generation"]), len(thin["generation"])) == (80, 20)
    total = {name: row.sum() for name, row in count_added(whole).items()}
    assert {name: 4 * row.sum() for name, row in count_added(thin).items()} == pytest.approx(total)
    assert count_rows(choose_window(80), whole["generation"]) == choose_window(80)
    assert count_rows(8, thin["generation"]) == 2
    assert smooth(count_added(thin)["ga"], 2).mean() == pytest.approx(
        count_added(whole)["ga"].mean(), rel=0.2
    )
    assert "QD-score" in show(tmp_path / "every-4" / "seed-0")
    texts = [report_study(tmp_path / f"every-{every}").replace(f"every-{every}", "") for every in (1, 4)]
    assert texts[0] == texts[1]
    one, other = (
        (tmp_path / f"every-{every}" / "report" / "tables" / "final.csv").read_bytes() for every in (1, 4)
    )
    assert one == other
    assert "qd_score" in metric_names(thin)


@pytest.mark.parametrize("every", [1, 5])
def test_the_files_of_a_run_take_no_more_than_predicted(every, execution, tmp_path):
    changes = {"snapshots": 2, "log_every": every, "hyper_parameters": {**SMALL, "hidden": [64, 64]}}
    one, most = config(evaluations=2000, **changes), []
    sizes = _estimate_sizes(one, one.make_algorithm())

    def measure(_):
        most.append(sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file()))

    measuring = Execution(checkpoint_seconds=0, log=quiet, on_generation=measure, keep_state=False)
    run(one, tmp_path / "run", execution=measuring)
    files = sizes["archive_bytes"] * 3 + sizes["log_bytes"]
    taken = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert files / 2 < taken <= files
    assert max(most) <= files + sizes["checkpoint_bytes"]
    logs = sum((tmp_path / "run" / name).stat().st_size for name in ("metrics.csv", "timings.csv"))
    assert logs < sizes["log_bytes"] - 30_000

"""Corrections during a run."""

import os
import signal
import subprocess
import sys
import time

import pytest

import elites
from elites import ElitesError, RunConfig, load_corrected, read_table
from elites.experiments import correct as correcting

SMALL = {"initial": 40, "batch": 20, "hidden": (8,)}
PGA = {
    **SMALL, "critic_hidden": (8,), "training_batch": 16, "buffer_size": 1000,
    "critic_steps": 2, "pg_steps": 2,
}  # fmt: skip
RESULTS = ("archive.npz", "metrics.csv", "corrections.csv", "corrected.npz")
MOMENTS = [100, 180, 260]  # the first generations that reach 90 and 180 evaluations, and the end


def quiet(_):
    pass


def config(algorithm="pga-map-elites", hyper_parameters=PGA, **changes):
    given = {"evaluations": 260, "correct_every": 90, "correct_replications": 4, "seed": 5}
    return RunConfig(
        algorithm=algorithm,
        task="qd-hopper",
        hyper_parameters=hyper_parameters,
        task_parameters={"episode_length": 25},
        **{**given, **changes},
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert elites.run(config(snapshots=13), folder, execution=elites.Execution(threads=2, log=quiet)).finished
    return folder


def contents(folder, names=RESULTS):
    return {name: (folder / name).read_bytes() for name in names}


def test_corrections_do_not_change_the_run(undisturbed, tmp_path):
    elites.run(
        config(snapshots=13, correct_every=0),
        tmp_path / "run",
        execution=elites.Execution(threads=2, log=quiet),
    )
    names = ["archive.npz", "metrics.csv"]
    names += [f"snapshots/{path.name}" for path in (undisturbed / "snapshots").iterdir()]
    assert len(names) == 15
    assert contents(tmp_path / "run", names) == contents(undisturbed, names)
    assert not (tmp_path / "run" / "corrections.csv").exists()


def test_rows_are_regular_and_equal_a_correction(undisturbed):
    rows = read_table(undisturbed / "corrections.csv")
    assert rows["evaluations"].tolist() == MOMENTS
    for index, moment in enumerate(MOMENTS):
        correction = elites.correct(undisturbed, replications=4, snapshot=moment, log=quiet)
        assert rows["elites"][index] == len(correction.cell)
        assert rows["invalid"][index] == 0
        for name, value in correction.metrics._asdict().items():
            assert rows[name][index] == value
        for name, value in correction.losses._asdict().items():
            assert rows[f"{name}_loss"][index] == value
    assert rows["qd_score"][-1] == load_corrected(undisturbed).metrics.qd_score


def test_the_last_correction_equals_one_made_afterwards(undisturbed, tmp_path):
    messages = []
    elites.correct(undisturbed, replications=4, log=messages.append)
    assert "already exists" in messages[0]
    during = (undisturbed / "corrected.npz").read_bytes()
    elites.correct(undisturbed, replications=5, log=quiet)
    elites.correct(undisturbed, replications=4, log=quiet)
    assert (undisturbed / "corrected.npz").read_bytes() == during


def test_correction_time_has_its_own_column(undisturbed):
    spent = read_table(undisturbed / "timings.csv")["corrections_s"]
    after = [
        index + 1
        for index, at in enumerate(read_table(undisturbed / "metrics.csv")["evaluations"])
        if at in MOMENTS
    ]
    assert [index for index, seconds in enumerate(spent) if seconds] == after[:-1]


def test_a_run_killed_during_a_correction_resumes_to_the_same_end(undisturbed, tmp_path):
    folder = tmp_path / "run"
    slow = (
        "import sys; from elites.experiments import correct, run; import elites; "
        "from tests.experiments.test_corrections import config, quiet; "
        "correct.FIRST_CHUNK, correct.CHUNK_SECONDS = 4, 0.001; "
        "execution = elites.Execution(checkpoint_seconds=0, log=quiet); "
        "elites.run(config(snapshots=13), sys.argv[1], execution=execution)"
    )
    process = subprocess.Popen([sys.executable, "-c", slow, folder])
    while process.poll() is None and not (folder / "corrected.unfinished.npz").exists():
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert (folder / "corrected.unfinished.npz").exists()
    assert elites.resume(folder, execution=elites.Execution(log=quiet)).finished
    assert contents(folder) == contents(undisturbed)
    assert not (folder / "corrected.unfinished.npz").exists()


@pytest.mark.parametrize("moment", [0, 2], ids=["the first", "the last"])
def test_a_run_stopped_during_a_correction_resumes_to_the_same_end(
    moment, undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr(correcting, "REPORT_SECONDS", 0.0)
    folder, begun = tmp_path / "run", []

    def interrupt(done, total):
        if done == 1:
            begun.append(done)
        if len(begun) == moment + 1 and done == 9:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = elites.run(
        config(snapshots=13), folder, execution=elites.Execution(on_correction=interrupt, log=quiet)
    )
    assert not outcome.finished
    assert outcome.evaluations == MOMENTS[moment]
    assert elites.resume(folder, execution=elites.Execution(log=quiet)).finished
    assert contents(folder) == contents(undisturbed)
    assert elites.resume(folder, execution=elites.Execution(log=quiet)).finished


def test_a_deep_grid_draws_the_same_from_memory_and_from_the_file(tmp_path):
    hyper_parameters = {**SMALL, "depth": 4, "keep_members": True}
    elites.run(
        config("deep-grid", hyper_parameters, correct_redraw=True),
        tmp_path / "run",
        execution=elites.Execution(log=quiet),
    )
    during = (tmp_path / "run" / "corrected.npz").read_bytes()
    (tmp_path / "run" / "corrected.npz").unlink()
    correction = elites.correct(tmp_path / "run", replications=4, redraw=True, log=quiet)
    assert correction.about["redraw"] is True
    assert (tmp_path / "run" / "corrected.npz").read_bytes() == during


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"correct_every": -1}, "correct_every is -1; it must be from 0 to"),
        ({"correct_replications": 0}, "correct_replications is 0; it must be from 1 to"),
        ({"correct_redraw": True}, r"redraw is for deep-grid, .* this is pga-map-elites"),
        ({"correct_redraw": 1}, "correct_redraw is 1; it must be true or false"),
    ],
)
def test_a_wrong_plan_is_refused(changes, message):
    with pytest.raises(ElitesError, match=message):
        config(**changes)

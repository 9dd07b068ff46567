import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import elites
from elites import ElitesError, RunConfig, ThreadEvaluator, cli, load_archive, make_task, read_table
from elites.archives.cells import make_cvt
from elites.experiments.config import load_config
from elites.experiments.generation import make_generation
from elites.results.checkpoints import Checkpoints, share_empty_rows

SMALL = {
    "initial": 40, "batch": 20, "hidden": (16,), "critic_hidden": (16,), "training_batch": 32,
    "buffer_size": 3000, "critic_steps": 10, "pg_steps": 4,
}  # fmt: skip
OPTIONS = [
    word
    for name, value in SMALL.items()
    for word in (
        f"--{name.replace('_', '-')}",
        *(map(str, value) if isinstance(value, tuple) else [str(value)]),
    )
]
BUDGET = 610  # the last generation is cut short


def config(**changes):
    given = {"algorithm": "pga-map-elites", "task": "qd-hopper", "evaluations": BUDGET, "seed": 3}
    return RunConfig(**{**given, "hyper_parameters": SMALL, **changes})


def command(*arguments):
    return [
        sys.executable,
        "-c",
        "import sys; from elites.cli import main; sys.exit(main())",
        *map(str, arguments),
    ]


def start(folder, **options):
    arguments = ["run", "pga-map-elites", "qd-hopper", "--evaluations", BUDGET, "--seed", 3, "--out", folder]
    return subprocess.Popen(
        command(*arguments, *OPTIONS, "--checkpoint-seconds", 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def assert_same_result(one, other):
    """Bit for bit."""
    for name in ("metrics.csv", "archive.npz", "lineage.bin"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    outcome = elites.run(config(), folder, execution=elites.Execution(threads=1, log=lambda _: None))
    assert outcome.finished
    return folder


def test_the_budget_is_spent_exactly(undisturbed):
    metrics = read_table(undisturbed / "metrics.csv")
    assert metrics["evaluations"][-1] == BUDGET
    assert len(metrics["generation"]) == 2 + 29  # two of random controllers, the last one cut to ten
    made = sum(metrics[f"made_{name}"] for name in ("random", "ga", "pg", "greedy"))
    np.testing.assert_array_equal(np.cumsum(made), metrics["evaluations"])
    assert metrics["made_random"].sum() == 40
    assert metrics["gradient_steps"][-1] == 10 * 29


def test_metrics_agree_with_the_archive(undisturbed):
    metrics, archive = read_table(undisturbed / "metrics.csv"), load_archive(undisturbed)
    for name, value in archive.metrics._asdict().items():
        assert metrics[name][-1] == value
    new = sum(metrics[f"new_{name}"] for name in ("random", "ga", "pg", "greedy"))
    np.testing.assert_allclose(np.cumsum(new), metrics["coverage"] * 1000)
    assert (np.diff(metrics["qd_score"]) >= 0).all()
    assert (np.diff(metrics["environment_steps"]) > 0).all()
    assert set(archive.operator) <= {"random", "ga", "pg", "greedy"}


def test_every_elite_replays_to_its_recorded_fitness_and_descriptor(undisturbed):
    archive = load_archive(undisturbed)
    with ThreadEvaluator(make_task("qd-hopper"), hidden=(16,), threads=2) as evaluator:
        again = evaluator.evaluate(archive.parameters, archive.seed)
    np.testing.assert_array_equal(again.fitness, archive.fitness)
    np.testing.assert_array_equal(again.descriptor, archive.descriptor)
    np.testing.assert_array_equal(archive.cells.assign(archive.descriptor), archive.cell)


def test_an_elites_policy_acts(undisturbed):
    archive = load_archive(undisturbed)
    with ThreadEvaluator(make_task("qd-hopper"), hidden=(16,), threads=1) as evaluator:
        record = evaluator.evaluate(archive.parameters[:1], archive.seed[:1], transitions=True)
    length = record.length[0]
    actions = archive.policy(0)(record.transitions.observations[0, :length])
    np.testing.assert_allclose(actions, record.transitions.actions[0, :length], atol=1e-5)
    assert archive.policy(0)(np.zeros(15)).shape == (3,)


def test_threads_change_nothing(undisturbed, tmp_path):
    elites.run(config(), tmp_path / "run", execution=elites.Execution(threads=2, log=lambda _: None))
    assert_same_result(tmp_path / "run", undisturbed)


def test_only_runs_of_equal_settings_share_programs():
    """What they share is traced and compiled once in a process."""

    def programs(**changes):
        return make_generation(config(**changes).make_algorithm(), 1, with_descriptors=False).compiled

    assert programs(seed=4) is programs()
    assert programs(evaluations=2 * BUDGET) is programs()
    for changes in ({"hyper_parameters": {**SMALL, "pg_steps": 5}}, {"task": "qd-deterministic-hopper"}):
        assert programs(**changes) is not programs()


def _rows(folder, name="metrics.csv"):
    path = folder / name
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
def test_ctrl_c_writes_a_checkpoint_and_resume_ends_the_same(read, undisturbed, tmp_path):
    """Also where Ctrl-C has ended whoever read what it prints, as `tee` in a pipe."""
    folder = tmp_path / "run"
    process = start(folder)
    while _rows(folder) < 8:
        assert process.poll() is None
        time.sleep(0.01)
    if not read:
        process.stdout.close()
        process.stderr.close()
    process.send_signal(signal.SIGINT)
    if read:
        out, err = process.communicate(timeout=60)
        assert "waiting for the running generation to end (Ctrl-C again stops at once)" in err
        assert f"elites resume {folder}" in out
    assert process.wait(60) == 0
    assert list((folder / "checkpoints").glob("*.npz"))
    assert load_archive(folder).about["evaluations"] < BUDGET
    assert elites.resume(folder, execution=elites.Execution(log=lambda _: None)).finished
    assert_same_result(folder, undisturbed)


def test_a_time_limit_ends_a_run_cleanly(undisturbed, tmp_path):
    folder, events = tmp_path / "run", []
    execution = elites.Execution(
        max_hours=1e-6, log=lambda _: None, on_phase=events.append, on_resume=events.append
    )
    outcome = elites.run(config(), folder, execution=execution)
    assert not outcome.finished
    assert outcome.evaluations == 20
    first = ["compiling", "first episodes", "compiling", "writing a checkpoint"]
    assert events == ["compiling", "generation 1", *first]
    events.clear()
    execution = dataclasses.replace(execution, max_hours=None)
    assert elites.resume(folder, execution=execution).finished
    assert_same_result(folder, undisturbed)
    assert events[0].metrics["evaluations"] == 20
    assert events[0].metrics["qd_score"] == read_table(folder / "metrics.csv")["qd_score"][0]
    assert events[1:4] == ["compiling", "reading the checkpoint", "generation 2"]
    assert events[-2:] == ["generation 31", "writing the archive"]
    events = []
    assert elites.resume(folder, execution=elites.Execution(log=events.append)).finished
    assert events == [f"{folder} is finished: {BUDGET} evaluations"]


def test_snapshots_are_the_archive_along_the_way(undisturbed, tmp_path):
    elites.run(config(snapshots=3), tmp_path / "run", execution=elites.Execution(log=lambda _: None))
    paths = sorted((tmp_path / "run" / "snapshots").iterdir())
    assert [path.name for path in paths] == ["0000000203.npz", "0000000406.npz", "0000000610.npz"]
    metrics = read_table(undisturbed / "metrics.csv")
    for path in paths:
        archive = load_archive(path)
        row = metrics["evaluations"].tolist().index(archive.about["evaluations"])
        assert archive.metrics.qd_score == metrics["qd_score"][row]
        assert archive.about["evaluations"] >= int(path.stem)


def test_tensorboard_reads_the_events(undisturbed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(undisturbed))
    events.Reload()
    scalars = [(event.step, event.value) for event in events.Scalars("qd_score")]
    metrics = read_table(undisturbed / "metrics.csv")
    assert [step for step, _ in scalars] == metrics["evaluations"].tolist()
    np.testing.assert_allclose([value for _, value in scalars], metrics["qd_score"], rtol=1e-6)


def test_the_record_is_enough_to_repeat_the_run(undisturbed, tmp_path):
    record = json.loads((undisturbed / "config.json").read_text())
    assert record["hyper_parameters"]["p_evo"] == 0.5
    assert record["versions"]["pybullet"] == "3.2.7"
    record.pop("versions")
    elites.run(RunConfig(**record), tmp_path / "again", execution=elites.Execution(log=lambda _: None))
    assert_same_result(tmp_path / "again", undisturbed)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    folder, seen = tmp_path_factory.mktemp("runs") / "stopped", []

    def stop(report):
        seen.append(report)
        if len(seen) == 6:
            raise KeyboardInterrupt

    execution = elites.Execution(checkpoint_seconds=0, on_generation=stop, log=lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        elites.run(config(), folder, execution=execution)
    assert len(Checkpoints(folder / "checkpoints").paths()) == 2
    return folder


@pytest.fixture
def interrupted(stopped, tmp_path):
    """The folder of a run with two checkpoints that is not finished."""
    return shutil.copytree(stopped, tmp_path / "run")


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(undisturbed, interrupted):
    folder, messages = interrupted, []
    newest = Checkpoints(folder / "checkpoints").paths()[0]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest.write_bytes(data)
    assert elites.resume(folder, execution=elites.Execution(log=messages.append)).finished
    assert len(messages) == 1
    assert f"checkpoint {newest} is damaged" in messages[0]
    assert_same_result(folder, undisturbed)


def test_without_a_readable_checkpoint_nothing_is_changed(interrupted, capsys):
    folder = interrupted
    for path in Checkpoints(folder / "checkpoints").paths():
        path.write_bytes(path.read_bytes()[:-100])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert cli.main(["resume", str(folder)]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "is damaged" in message
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_of_an_earlier_version_keeps_its_cells(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    record = json.loads(json.dumps(config().record()))
    assert load_config_of(folder, record).make_algorithm().config.cvt_version == 2
    del record["hyper_parameters"]["cvt_version"]
    old = load_config_of(folder, record).make_algorithm().cells.centroids
    np.testing.assert_array_equal(old, make_cvt(1000, [(0, 1)], version=1).centroids)


def load_config_of(folder, record):
    (folder / "config.json").write_text(json.dumps(record))
    return load_config(folder)[0]


@pytest.mark.parametrize("name", ["archive.npz", "metrics.csv"])
def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_written(interrupted, name):
    folder = interrupted
    (folder / name).unlink()
    (folder / name).mkdir()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ElitesError, match="is a folder, not a file of the run; nothing was changed"):
        elites.resume(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_nothing_is_lost_on_a_full_disk(undisturbed, interrupted):
    """A limit on file sizes stands in for a full disk: writing fails in the same place, in the same way."""
    folder = interrupted
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000));"
    arguments = command("resume", folder, "--checkpoint-seconds", "0")
    before = load_archive(folder).about["evaluations"]
    arguments[2] = limit + arguments[2]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "File too large" in done.stderr
    assert "last checkpoint" in done.stderr
    assert load_archive(folder).about["evaluations"] >= before
    assert not list(folder.rglob("*.partial"))
    assert elites.resume(folder, execution=elites.Execution(log=lambda _: None)).finished
    assert_same_result(folder, undisturbed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluations": 0}, "evaluations is 0; it must be from 1 to"),
        ({"evaluations": -3}, "evaluations is -3"),
        ({"seed": -1}, "seed is -1; it must be from 0 to"),
        ({"seed": 2**40}, "seed is 1099511627776; it must be from 0 to"),
        ({"snapshots": -1}, "snapshots is -1"),
        ({"algorithm": "luck"}, "unknown algorithm 'luck'"),
        ({"task": "qd-worm"}, "unknown task 'qd-worm'"),
        ({"task_parameters": {"noise": -1}}, "noise is -1"),
        ({"hyper_parameters": {"p_evo": 2}}, "p_evo is 2"),
        ({"hyper_parameters": {"luck": 2}}, "no parameter 'luck'"),
    ],
)
def test_a_wrong_plan_is_refused(changes, message):
    with pytest.raises(ElitesError, match=message):
        config(**changes)


def test_a_second_run_into_the_same_folder_is_refused(undisturbed):
    before = (undisturbed / "archive.npz").read_bytes()
    with pytest.raises(ElitesError, match="already holds a run: `elites resume"):
        elites.run(config(), undisturbed)
    assert (undisturbed / "archive.npz").read_bytes() == before


def test_folders_that_cannot_be_used_are_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ElitesError, match="is not empty"):
        elites.run(config(), tmp_path)
    with pytest.raises(ElitesError, match="cannot make the run's folder"):
        elites.run(config(), tmp_path / "file" / "run")
    with pytest.raises(ElitesError, match="holds no run"):
        elites.resume(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ElitesError, match=r"config\.json is damaged"):
        elites.resume(tmp_path)


def test_two_processes_do_not_share_a_run(tmp_path):
    folder = tmp_path / "run"
    process = start(folder)
    while _rows(folder) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(ElitesError, match="is being run by another process"):
        elites.resume(folder, execution=elites.Execution(log=lambda _: None))
    process.kill()
    process.communicate()


def test_a_run_changed_since_its_checkpoint_is_not_continued(interrupted):
    folder = interrupted
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**record, "seed": 4}))
    with pytest.raises(ElitesError, match=r"000000005\.npz .* other settings: seed was 3, is 4; use the"):
        elites.resume(folder, execution=elites.Execution(log=lambda _: None))
    (folder / "config.json").write_bytes(before[folder / "config.json"])
    (folder / "timings.csv").write_bytes(bytes(len(before[folder / "timings.csv"])))
    with pytest.raises(ElitesError, match=r"timings\.csv does not begin as its checkpoint says"):
        elites.resume(folder, execution=elites.Execution(log=lambda _: None))
    (folder / "timings.csv").write_bytes(before[folder / "timings.csv"])
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "metrics.csv").write_text("")
    with pytest.raises(ElitesError, match=r"metrics\.csv is shorter than its checkpoint says"):
        elites.resume(folder, execution=elites.Execution(log=lambda _: None))


def test_metrics_are_a_plain_table(undisturbed):
    with (undisturbed / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["generation"] == "1"
    assert rows[-1]["evaluations"] == str(BUDGET)
    assert None not in rows[-1].values()


def test_a_kill_at_the_very_end_does_not_restart_the_run(undisturbed, tmp_path):
    """The checkpoints are gone but not their folder: the archive says that it is finished."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    for path in Checkpoints(folder / "checkpoints").paths():
        path.unlink()
    assert elites.resume(folder, execution=elites.Execution(log=lambda _: None)).finished
    assert not (folder / "checkpoints").exists()
    assert_same_result(folder, undisturbed)


def test_a_run_without_its_checkpoints_is_not_restarted(interrupted):
    folder = interrupted
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "metrics.csv").read_bytes()
    with pytest.raises(ElitesError, match="has an archive but no checkpoint to continue from"):
        elites.resume(folder)
    assert (folder / "metrics.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads is 0; it must be from 1 to"),
        ({"max_hours": 0}, "max_hours is 0; it must be above 0"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds is nan; it must be from 0 to"),
    ],
)
def test_wrong_options_of_an_execution_are_named(options, message):
    with pytest.raises(ElitesError, match=message):
        elites.Execution(**options)


def test_a_plan_that_cannot_fit_is_refused_before_anything_is_written(tmp_path):
    huge = config(hyper_parameters={**SMALL, "buffer_size": 2 * 10**9})
    with pytest.raises(ElitesError, match=r"this run takes [\d,]+\.\d GB, but only \d+\.\d GB are free"):
        elites.run(huge, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_versions_are_reported(interrupted):
    folder, messages = interrupted, []
    record = json.loads((folder / "config.json").read_text())
    record["versions"]["jax"] = "0.0.1"
    (folder / "config.json").write_text(json.dumps(record))
    assert elites.resume(folder, execution=elites.Execution(log=messages.append)).finished
    assert len(messages) == 1
    assert messages[0].startswith(f"started with jax 0.0.1 (now {jax.__version__}): the result may differ")


def test_incomplete_files_of_a_killed_run_are_removed(interrupted):
    folder, messages = interrupted, []
    (folder / "checkpoints" / ".000000009.npz.partial").write_bytes(b"half")
    (folder / ".archive.npz.partial").write_bytes(b"half")
    (folder / "archive.npz").write_bytes(b"half")
    assert elites.resume(folder, execution=elites.Execution(log=messages.append)).finished
    assert not list(folder.rglob("*.partial"))
    assert len(messages) == 1
    assert "archive.npz is not an archive of elites, or is damaged" in messages[0]
    assert messages[0].endswith("; it is made again from the checkpoint")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a,b\n1,x\n"])
def test_a_damaged_table_is_reported(content, tmp_path):
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(ElitesError, match=r"metrics\.csv is damaged"):
        read_table(tmp_path / "metrics.csv")


def test_a_state_whose_empty_rows_are_shared_takes_little_memory():
    """What a checkpoint is loaded into holds no second replay buffer."""
    state = jax.jit(config().make_algorithm().init)(jax.random.key(0))
    shared = share_empty_rows(state)
    jax.tree.map(np.testing.assert_array_equal, shared, state)
    rows = shared.learning.buffer.rows
    assert rows.shape == state.learning.buffer.rows.shape
    assert rows.base.nbytes == rows[0].nbytes

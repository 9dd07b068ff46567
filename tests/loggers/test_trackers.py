"""Weights & Biases and MLflow, with their real clients: offline, and on a database in a file."""

import json
import struct
import time

import pytest

from elites import Execution, RunConfig, read_table, resume, run, tasks
from tests.loggers.recorder import Lines
from tests.toy import POINT

SMALL = {"initial": 10, "batch": 10, "hidden": [4]}
LIMITED = {"max_hours": 1e-9, "checkpoint_seconds": 0}


@pytest.fixture
def messages(monkeypatch, tmp_path):
    """Lines for the user, which there should be none of."""
    monkeypatch.setitem(tasks.TASKS, "point", POINT)
    monkeypatch.chdir(tmp_path)
    lines = Lines()
    yield lines
    assert lines == []


def config(**changes):
    given = {"algorithm": "map-elites", "task": "point", "evaluations": 80, "physics": "xla", "seed": 5}
    return RunConfig(**{**given, "hyper_parameters": SMALL, **changes})


def wandb_records(folder):
    """The records of an offline run of Weights & Biases, which another process may still be writing."""
    for _ in range(600):
        records = list(written_records(folder))
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        time.sleep(0.1)
    raise TimeoutError(f"{folder} has no record of the end of the run")


def written_records(folder):
    """The complete records so far: a log of LevelDB's format after seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("run-*.wandb")
    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        length, kind = struct.unpack_from("<HB", data, place + 4)
        if left < 7 or kind == 0:
            place += left
            continue
        if place + 7 + length > len(data):
            return
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(whole)
            whole = b""


def history(folder):
    """Numbers by step."""
    steps = {}
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            values = {
                ".".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            steps[int(values.pop("_step"))] = values
    return steps


def test_weights_and_biases(messages, monkeypatch, tmp_path):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged = Execution(loggers=("wandb",), log=messages, **LIMITED)
    assert not run(config(), tmp_path / "both", seeds=2, execution=logged).finished
    assert resume(tmp_path / "both", Execution(log=messages)).finished
    for seed in (5, 6):
        own = tmp_path / "both" / f"seed-{seed}"
        first, second = sorted((own / "wandb").glob("offline-run-*"), key=lambda path: path.stat().st_mtime)
        table = read_table(own / "metrics.csv")
        begun, continued = (
            next(record.run for record in wandb_records(part) if record.WhichOneof("record_type") == "run")
            for part in (first, second)
        )
        remembered = json.loads((own / "loggers.json").read_text())["wandb"]["remembered"]
        assert begun.run_id == continued.run_id == remembered["id"]
        assert (begun.run_group, begun.display_name, begun.project) == ("both", f"both/seed-{seed}", "elites")
        settings = {item.key: json.loads(item.value_json) for item in begun.config.update}
        assert settings["hyper_parameters"]["batch"] == 10
        assert settings["seed"] == seed
        steps = {**history(first), **history(second)}
        assert list(steps) == table["evaluations"].tolist()
        assert [values["qd_score"] for values in steps.values()] == table["qd_score"].tolist()
        assert [values["made/ga"] for values in steps.values()] == table["made_ga"].tolist()
        assert steps[80]["archive._type"] == "image-file"
        (picture,) = (second / "files" / "media" / "images").glob("archive_80_*.png")
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, about MLflow
def test_mlflow(messages, monkeypatch, tmp_path):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/tracked.db")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    logged = Execution(loggers=("mlflow",), log=messages, **LIMITED)
    assert not run(config(), tmp_path / "both", seeds=2, execution=logged).finished
    monkeypatch.delenv("MLFLOW_TRACKING_URI")  # the run remembers its database
    client = MlflowClient(f"sqlite:///{tmp_path}/tracked.db")
    experiment = client.get_experiment_by_name("elites").experiment_id
    assert {one.info.status for one in client.search_runs([experiment])} == {"KILLED"}
    assert resume(tmp_path / "both", Execution(log=messages)).finished
    for seed in (5, 6):
        own = tmp_path / "both" / f"seed-{seed}"
        table = read_table(own / "metrics.csv")
        (tracked,) = client.search_runs([experiment], f"params.seed = '{seed}'")
        remembered = json.loads((own / "loggers.json").read_text())["mlflow"]["remembered"]
        assert tracked.info.run_id == remembered["run_id"]
        assert (tracked.info.run_name, tracked.info.status) == (f"both/seed-{seed}", "FINISHED")
        assert tracked.data.tags["group"] == "both"
        assert (tracked.data.params["batch"], tracked.data.params["task.noise"]) == ("10", "0.1")
        for tag, column in (("qd_score", "qd_score"), ("made/ga", "made_ga")):
            metrics = client.get_metric_history(tracked.info.run_id, tag)
            assert [metric.step for metric in metrics] == table["evaluations"].tolist()
            assert [metric.value for metric in metrics] == table[column].tolist()
        assert "critic_loss" not in tracked.data.metrics
        images = [file.path for file in client.list_artifacts(tracked.info.run_id, "images")]
        assert any("archive" in path and path.endswith(".png") for path in images)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tracker_that_cannot_be_reached_does_not_end_the_run(monkeypatch, tmp_path):
    """No one is logged in, and the server refuses connections: one line of each."""
    wandb = pytest.importorskip("wandb")
    wandb.teardown()  # what other tests have set
    pytest.importorskip("mlflow")
    monkeypatch.setitem(tasks.TASKS, "point", POINT)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    lines = Lines()
    outcome = run(config(), tmp_path / "run", execution=Execution(loggers=("wandb", "mlflow"), log=lines))
    assert outcome.finished
    assert len(lines) == 2
    assert lines[0].startswith("logger wandb failed: not logged in: run `wandb login`")
    assert lines[1].startswith("logger mlflow failed: ")
    assert lines[1].endswith("; the run goes on without it")
    assert len(lines[1]) < 500

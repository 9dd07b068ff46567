"""Loggers of users: what they receive, and that they cannot harm a run."""

import functools
import json
import re
import struct
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from elites import ElitesError, Execution, RunConfig, cli, read_table, resume, run, tasks
from elites.experiments.pictures import Pictures
from elites.loggers.logger import select_numbers
from tests.loggers.recorder import Lines, Recorder
from tests.toy import POINT

SMALL = {"initial": 10, "batch": 10, "hidden": [4]}
RECORDER = "tests.loggers.recorder:Recorder"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "point", POINT)
    monkeypatch.setattr(Recorder, "calls", [])


def config(**changes):
    given = {"algorithm": "map-elites", "task": "point", "evaluations": 80, "physics": "xla", "seed": 5}
    return RunConfig(**{**given, "hyper_parameters": SMALL, **changes})


def quiet(_):
    pass


def calls(method):
    return [call[1:] for call in Recorder.calls if call[0] == method]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without loggers."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tasks.TASKS, "point", POINT)
        run(config(), folder, execution=Execution(log=quiet))
    return folder


def assert_same(folder, other):
    for name in ("metrics.csv", "archive.npz", "config.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes()


def test_a_logger_gets_all_rows_and_settings_and_the_last_picture(plain, tmp_path):
    run(config(), tmp_path / "run", execution=Execution(loggers=(RECORDER,), log=quiet))
    assert_same(tmp_path / "run", plain)
    assert [call[0] for call in Recorder.calls] == ["open", *["row"] * 8, "picture", "close"]
    ((_, opened),) = calls("open")
    assert (opened.name, opened.group, opened.evaluations, opened.remembered) == ("run", None, 0, {})
    assert opened.config == json.loads((tmp_path / "run" / "config.json").read_text())
    table = read_table(tmp_path / "run" / "metrics.csv")
    for index, (_, row) in enumerate(calls("row")):
        assert list(row) == list(table)
        assert {name: number for name, number in row.items() if number is not None} == {
            name: column[index] for name, column in table.items() if column[index] == column[index]
        }
    ((_, evaluations, png),) = calls("picture")
    assert evaluations == 80
    assert png.startswith(b"\x89PNG")
    assert calls("close") == [("run", True)]


def test_each_seed_has_a_logger_and_resuming_goes_on_with_them(tmp_path):
    limited = Execution(max_hours=1e-9, loggers=(RECORDER,), pictures=0, log=quiet)
    assert not run(config(), tmp_path / "both", seeds=2, execution=limited).finished
    names = ["both/seed-5", "both/seed-6"]
    assert [(name, opened.group, opened.evaluations) for name, opened in calls("open")] == [
        (name, "both", 0) for name in names
    ]
    assert calls("close") == [(name, False) for name in names]
    done, Recorder.calls = calls("row"), []
    assert resume(tmp_path / "both", Execution(log=quiet)).finished  # with those that it had
    assert [opened.remembered for _, opened in calls("open")] == [{"id": f"id of {name}"} for name in names]
    assert {opened.evaluations for _, opened in calls("open")} == {done[-1][1]["evaluations"]}
    assert [png.startswith(b"\x89PNG") for *_, png in calls("picture")] == [True, True]
    assert calls("close") == [(name, True) for name in names]
    for name in names:
        rows = [row["generation"] for own, row in (*done, *calls("row")) if own == name]
        assert rows == list(range(1, 9))


def test_loggers_given_as_objects_must_be_given_again(tmp_path):
    makers = (functools.partial(Recorder), Recorder, Recorder)
    limited = Execution(max_hours=1e-9, loggers=makers, pictures=0, log=quiet)
    run(config(), tmp_path / "run", execution=limited)
    assert len(calls("open")) == 2  # two that are different
    Recorder.calls = []
    assert not resume(tmp_path / "run", limited).finished
    assert [opened.remembered for _, opened in calls("open")] == [{"id": "id of run"}] * 2
    Recorder.calls = []
    assert resume(tmp_path / "run", Execution(log=quiet)).finished
    assert Recorder.calls == []


@pytest.mark.parametrize("method", ["open", "row", "picture", "close"])
def test_a_logger_that_fails_is_left_out_with_one_line(method, plain, monkeypatch, tmp_path):
    monkeypatch.setattr(Recorder, "fails_in", method)
    messages = Lines()
    outcome = run(config(), tmp_path / "run", seeds=2, execution=Execution(loggers=(RECORDER,), log=messages))
    assert outcome.finished
    assert messages == [
        f"logger {RECORDER} failed: ConnectionError: no network at all; the run goes on without it"
    ]
    assert_same(tmp_path / "run" / "seed-5", plain)
    assert len(calls(method)) == (1 if method != "close" else 3)  # closed again, whatever came of the first
    assert len(calls("close")) == {"open": 1, "close": 3}.get(method, 2)


def test_a_damaged_record_of_loggers_is_reported_and_the_run_continues(tmp_path):
    limited = Execution(max_hours=1e-9, loggers=(RECORDER,), pictures=0, log=quiet)
    run(config(), tmp_path / "run", execution=limited)
    (tmp_path / "run" / "loggers.json").write_text('{"wandb": 3}')
    messages = Lines()
    assert resume(tmp_path / "run", Execution(log=messages)).finished
    assert len(messages) == 1
    assert "loggers.json is damaged" in messages[0]
    assert messages[0].endswith("; loggers start new logs")


def test_a_logger_that_is_missing_on_resume_is_left_out(tmp_path):
    limited = Execution(max_hours=1e-9, loggers=(RECORDER,), pictures=0, log=quiet)
    run(config(), tmp_path / "run", execution=limited)
    record = (tmp_path / "run" / "loggers.json").read_text()
    (tmp_path / "run" / "loggers.json").write_text(record.replace("loggers.recorder", "loggers.gone"))
    messages = Lines()
    assert resume(tmp_path / "run", Execution(log=messages)).finished
    assert len(messages) == 1
    assert messages[0].startswith(
        "logger tests.loggers.gone:Recorder failed: logger 'tests.loggers.gone:Recorder'"
    )


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("tensor", "unknown logger 'tensor'; it must be wandb, mlflow or module:Class"),
        ("nowhere:Class", "logger 'nowhere:Class': No module named 'nowhere'"),
        ("tests.loggers.recorder:Tape", r"recorder\.py has no object 'Tape'"),
        (
            "tests.loggers.recorder:NOT_A_LOGGER",
            "is not a class of loggers; it must have the methods open, log_row",
        ),
        (dict, "logger <class 'dict'> is not a class of loggers"),
    ],
)
def test_objects_that_are_not_loggers_are_refused_before_anything_starts(choice, message):
    with pytest.raises(ElitesError, match=message):
        Execution(loggers=(choice,))


def test_a_tracker_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr("elites.loggers.package_version", lambda name: None)
    with pytest.raises(
        ElitesError, match=r"logger wandb is not installed: pip install 'elites\[wandb\]' adds it"
    ):
        Execution(loggers=("wandb",))


def test_tensorboard_has_operators_hyper_parameters_and_pictures(plain, tmp_path):
    folder = tmp_path / "run"
    run(config(), folder, execution=Execution(pictures=2, log=quiet))
    assert_same(folder, plain)
    events = EventAccumulator(str(folder))
    events.Reload()
    table = read_table(folder / "metrics.csv")
    for tag, column in (
        ("made/ga", "made_ga"),
        ("new/random", "new_random"),
        ("mean_fitness", "mean_fitness"),
    ):
        scalars = events.Scalars(tag)
        assert [event.step for event in scalars] == table["evaluations"].tolist()
        assert [event.value for event in scalars] == pytest.approx(table[column].tolist(), rel=1e-6)
    assert "critic_loss" not in events.Tags()["scalars"]  # nothing is trained
    ((_, content),) = events.PluginTagToContent("hparams").items()
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["batch"].number_value == 10
    assert hparams["hidden"].string_value == "[4]"
    assert hparams["algorithm"].string_value == "map-elites"
    assert hparams["task.noise"].number_value == pytest.approx(0.1)
    pictures = events.Images("archive")
    assert pictures[-1].step == 80
    assert 1 <= len(pictures) <= 2  # one dispatch may pass both places
    for picture in pictures:
        assert struct.unpack(">II", picture.encoded_image_string[16:24]) == (picture.width, picture.height)
        assert picture.width > 300


def test_a_figure_that_cannot_be_drawn_does_not_end_the_run(plain, monkeypatch, tmp_path):
    monkeypatch.setattr("elites.drawing.DRAW", "elites.reports.figures:draw_nothing")
    messages = Lines()
    assert run(config(), tmp_path / "run", execution=Execution(pictures=8, log=messages)).finished
    assert len(messages) == 1
    assert messages[0].startswith("the archive cannot be drawn for the loggers: ")
    assert "draw_nothing" in messages[0]
    assert_same(tmp_path / "run", plain)


def test_pictures_are_due_after_each_part_of_the_budget_while_they_are_cheap():
    def drawn(count, seconds, *, last=False, begun=0):
        due, places = Pictures(count, 1000, begun), []
        for evaluations in range(begun + 10, 1001, 10):
            if due.is_due(evaluations, evaluations / 10, last=last):  # 100 s in all
                due.record_drawing(evaluations, seconds)
                places.append(evaluations)
        return places

    assert drawn(None, 0.01) == [500, 600, 700, 800, 900, 1000]  # the first could take a second
    assert drawn(None, 0.8) == [500, 800]
    assert drawn(None, 5.0) == [500]
    assert drawn(None, 5.0, last=True) == [500, 1000]
    assert drawn(4, 5.0) == [250, 500, 750, 1000]
    assert drawn(4, 5.0, begun=600) == [750, 1000]
    assert drawn(0, 0.01, last=True) == []
    assert drawn(100, 0.0) == list(range(10, 1001, 10))


def test_numbers_of_operators_are_grouped_and_empty_cells_left_out():
    row = {
        "generation": 3,
        "evaluations": 30,
        "mean_q": None,
        "made_ga": 7,
        "new_two_lines": 1,
        "qd_score": 2.5,
    }
    assert select_numbers(row) == {"generation": 3, "made/ga": 7, "new/two_lines": 1, "qd_score": 2.5}


DOCUMENT = Path(__file__).parents[2] / "docs" / "logging.md"
LINES, IN_PYTHON = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def test_the_documented_logger_works_from_the_command_line(monkeypatch, tmp_path, capsys):
    (tmp_path / "lines.py").write_text(LINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = ["run", "map-elites", "tests.toy:POINT", "--evaluations", "80", "--physics", "xla"]
    sizes = ["--initial", "10", "--batch", "10", "--hidden", "4"]
    assert cli.main([*arguments, *sizes, "--log", "lines:Lines", RECORDER, "--out", "logged"]) == 0
    rows = [json.loads(line) for line in Path("logged/rows.jsonl").read_text().splitlines()]
    assert [row["evaluations"] for row in rows] == list(range(10, 81, 10))
    assert rows[0]["critic_loss"] is None
    assert Path("logged/archive-80.png").exists()
    assert len(calls("row")) == 8
    assert capsys.readouterr().err == ""


def test_the_documented_logger_works_in_python(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    code = IN_PYTHON.replace("evaluations=1000", f"evaluations=80, hyper_parameters={SMALL}")
    code = code.replace('"qd-hopper"', '"point", physics="xla"').replace(
        'printer, "mlflow"', f'printer, "{RECORDER}"'
    )
    exec(compile(code, "<document>", "exec"), {"__name__": "document"})
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "finished"
    assert "printed 10" in printed
    table = read_table(tmp_path / "runs" / "printed" / "metrics.csv")
    assert f"80 {table['coverage'][-1]}" in printed
    assert len(calls("row")) == 8

"""Killed at any of its renames, a command goes on when it is repeated and ends with the same bits.

Real kills of real commands are in `tests/torture`.
"""

import shutil

import pytest

from elites import Execution, RunConfig, correct, resume, run, tasks
from elites.errors import ElitesError
from elites.experiments import correct as correcting
from elites.files import is_partial
from elites.reports.study import report
from elites.results.folder import GroupFolder
from tests.kills import copies_at_renames
from tests.toy import POINT

SMALL = {"initial": 10, "batch": 10, "hidden": [4]}
KEPT = (
    *("config.json", "group.json", "study.json"),
    *("metrics.csv", "archive.npz", "lineage.bin", "corrected.npz"),
)


def quiet(_):
    pass


def files(folder):
    """What must be the same; and nothing incomplete may be left."""
    assert not [path for path in folder.rglob("*") if is_partial(path)]
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.name in KEPT
    }


@pytest.fixture
def execution(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "point", POINT)
    return Execution(checkpoint_seconds=0, log=quiet)


CONFIG = {"algorithm": "map-elites", "task": "point", "evaluations": 20, "hyper_parameters": SMALL}


@pytest.mark.parametrize("seeds", [1, 2])
def test_killed_runs_and_groups_continue(seeds, execution, tmp_path):
    """Records first: until they are complete the same command begins again, then it is resumed."""
    config, whole = RunConfig(**CONFIG), tmp_path / "whole"
    with copies_at_renames(whole, tmp_path) as copies:
        run(config, whole, seeds, execution)
    expected = files(whole)
    assert len(copies) == {1: 1 + 2 + 1, 2: 3 + 3 + 2}[seeds]
    for number, folder in enumerate(copies):
        begun = (folder / ("config.json" if seeds == 1 else "group.json")).exists()
        assert begun == (number >= (1 if seeds == 1 else 3))
        assert (GroupFolder(folder).is_incomplete() and seeds > 1) == (seeds > 1 and not begun)
        if seeds > 1 and 0 < number < 3:  # some of its records
            with pytest.raises(ElitesError, match="killed before it began; the same `elites run` command"):
                resume(folder, execution)
        outcome = resume(folder, execution) if begun else run(config, folder, seeds, execution)
        assert outcome.finished
        assert files(folder) == expected


def test_killed_corrections_continue(execution, tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    run(RunConfig(**CONFIG), begun, execution=execution)
    whole = shutil.copytree(begun, tmp_path / "whole")
    monkeypatch.setattr(correcting, "FIRST_CHUNK", 4)
    monkeypatch.setattr("elites.evaluation.device.DeviceEvaluator.controllers_per_call", lambda *_: 2)
    with copies_at_renames(whole, tmp_path) as copies:
        correct(whole, replications=2, log=quiet)
    expected = files(whole)
    assert len(copies) >= 2
    for folder in copies:
        assert not (folder / "corrected.npz").exists()
        correct(folder, replications=2, log=quiet)
        assert files(folder) == expected
        assert not list(folder.glob("*unfinished*"))


def test_killed_reports_are_made_again(tmp_path, monkeypatch):
    def make(home, made, x_axis, reference):
        made.page.write_text(x_axis)
        made.metrics.write_bytes(b"")
        return ""

    monkeypatch.setattr(report, "_make", make)
    study = tmp_path / "study"
    study.mkdir()
    report.report_study(study, x_axis="before")
    with copies_at_renames(study, tmp_path) as copies:
        report.report_study(study, x_axis="after")
    assert len(copies) == 2
    for folder in copies:
        report.report_study(folder, x_axis="after")
        assert (folder / "report" / "index.html").read_text() == "after"
        assert [path.name for path in folder.iterdir()] == ["report"]


def test_files_that_are_not_part_of_a_group_are_left_alone(execution, tmp_path):
    """Only records in folders of replications are written again."""
    for name in ("seed-0/notes.txt", "seed-0/checkpoints/1", "other/config.json", "config.json"):
        folder = tmp_path / name.replace("/", "-")
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        assert not GroupFolder(folder).is_incomplete()
        with pytest.raises(Exception, match=r"is not empty|already holds a run"):
            run(RunConfig(**CONFIG), folder, 2, execution)
        assert (folder / name).read_text() == "mine"

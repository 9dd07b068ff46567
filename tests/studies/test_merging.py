"""Folders of one study from several machines, joined."""

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites import ElitesError, cli, correct, load_archive, merge_studies, report_study, resume, show
from elites.experiments.execution import Execution
from elites.experiments.guards import folder_lock
from elites.experiments.run import start_runs
from elites.paper.presets import make_study
from elites.results.folder import GroupFolder, find_run_folders
from elites.studies import remaining
from elites.studies.execution import make_request
from elites.studies.resources import StudyExecution
from elites.studies.run import _write_record
from elites.studies.worker import execute
from tests.kills import copies_at_renames
from tests.synthetic_runs import make_run

TOML = """
evaluations = 200
seeds = {seeds}
first_seed = {first}
correct = {correct}
correct_replications = 2
tasks = ["{task}"]
algorithms = ["map-elites", "pga-map-elites"]
"""


def quiet(_):
    pass


def study_of(tmp_path, first, seeds, *, task="qd-hopper", correct=True):
    path = tmp_path / "mine.toml"
    path.write_text(TOML.format(first=first, seeds=seeds, task=task, correct=str(correct).lower()))
    return make_study(str(path))


def make_piece(tmp_path, name, first, seeds, *, task="qd-hopper", correct=True, **options):
    """A study whose runs are made up, with nothing left to do."""
    study, folder = study_of(tmp_path, first, seeds, task=task, correct=correct), tmp_path / name
    for job in study.jobs():
        for config, own in zip(job.configs, job.folders, strict=True):
            options = {"loss": 0.1 if correct else None, "evaluations": 200, "archive": True, **options}
            made = make_run(tmp_path / "made", config.algorithm, task, config.seed, **options)
            (folder / own).parent.mkdir(parents=True, exist_ok=True)
            made.rename(folder / own)
            (folder / own / "archive.png").write_text("drawn")
            record = {**config.record(), "evaluations": 200}
            (folder / own / "config.json").write_text(json.dumps(record))
        if job.group:
            seeds_of = [config.seed for config in job.configs]
            (folder / job.folder / "group.json").write_text(json.dumps({"seeds": seeds_of}))
    _write_record(folder, study, quiet)
    return folder


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_seeds_of_several_machines_are_one_study(tmp_path, capsys):
    pieces = [make_piece(tmp_path, name, first, 2) for name, first in (("a", 0), ("b", 2), ("c", 4))]
    before = [files(piece) for piece in pieces]
    assert cli.main(["study", "merge", *map(str, pieces), "--out", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/all has 12 runs, 6 seeds from 0 to 5\n"
    assert [files(piece) for piece in pieces] == before
    merged = files(tmp_path / "all")
    kept = {name: data for piece in before for name, data in piece.items() if not name.endswith(".png")}
    assert {name: data for name, data in merged.items() if name != "study.json"} == {
        name: data for name, data in kept.items() if name.startswith("runs/")
    }
    record = json.loads(merged["study.json"])
    assert (record["first_seed"], record["seeds"], record["name"]) == (0, 6, "mine")
    assert remaining.select_unfinished(tmp_path / "all", study_of(tmp_path, 0, 6).jobs()) == []
    left = remaining.select_unfinished(tmp_path / "all", study_of(tmp_path, 0, 7).jobs())
    assert {job.folder.rpartition("/")[2] for job in left} == {"seed-6"}
    again = merge_studies([tmp_path / "all", make_piece(tmp_path, "d", 8, 1)], tmp_path / "more")
    assert again.seeds == (0, 1, 2, 3, 4, 5, 8)


def test_tasks_and_algorithms_of_several_machines_are_one_study(tmp_path):
    whole = make_piece(tmp_path, "whole", 0, 2)
    pieces = []
    for kept, dropped in (("map-elites", "pga-map-elites"), ("pga-map-elites", "map-elites")):
        piece = shutil.copytree(whole, tmp_path / f"only-{kept}")
        shutil.rmtree(piece / "runs" / "qd-hopper" / dropped)
        edit(piece / "study.json", algorithms=[{"name": kept}])
        pieces.append(piece)
    pieces.append(make_piece(tmp_path, "ant", 2, 2, task="qd-ant"))
    merged = merge_studies(pieces, tmp_path / "all")
    assert (merged.runs, merged.seeds) == (8, (0, 1, 2, 3))
    record = json.loads((tmp_path / "all" / "study.json").read_text())
    assert [choice["name"] for choice in record["algorithms"]] == ["map-elites", "pga-map-elites"]
    assert [choice["name"] for choice in record["tasks"]] == ["qd-hopper", "qd-ant"]
    assert (record["first_seed"], record["seeds"]) == (0, 4)


@pytest.mark.slow
def test_the_report_of_the_merged_folder_is_that_of_its_runs(tmp_path):
    pieces = [make_piece(tmp_path, name, first, 2) for name, first in (("a", 0), ("b", 2))]
    whole = shutil.copytree(pieces[0], tmp_path / "whole")
    shutil.copytree(pieces[1], whole, dirs_exist_ok=True)
    merge_studies(pieces, tmp_path / "all")
    merge_studies(pieces, tmp_path / "light", parameters=False)
    tables = {}
    for name in ("whole", "all", "light"):
        report_study(tmp_path / name)
        made = files(tmp_path / name / "report")
        tables[name] = {path: data for path, data in made.items() if path != "index.html"}
    assert len(tables["whole"]) > 20
    assert tables["all"] == tables["whole"]
    assert tables["light"] == tables["whole"]


def merging_fails(pieces, out, message, **options):
    with pytest.raises(ElitesError, match=message) as error:
        merge_studies(pieces, out, **options)
    assert "\n" not in str(error.value)
    assert not out.exists()
    assert not list(out.parent.glob(f".{out.name}*"))


def test_folders_of_different_studies_are_refused(tmp_path):
    a, b = make_piece(tmp_path, "a", 0, 2), make_piece(tmp_path, "b", 2, 2)
    out = tmp_path / "out"
    before = files(a), files(b)
    with folder_lock(b):
        merging_fails([a, b], out, "b is being run by another process")
    merging_fails([], out, "no folder to merge")
    merging_fails([a, tmp_path / "nowhere"], out, "nowhere is not a folder")
    (tmp_path / "empty").mkdir()
    merging_fails([a, tmp_path / "empty"], out, r"empty is not the folder of a study: .*study\.json")
    merging_fails([a, b], a / "all", r"is in .*/a, which stays as it is")
    overlap = make_piece(tmp_path, "overlap", 1, 2)
    merging_fails([a, b, overlap], out, r"a/.*seed-1 and .*overlap/.*seed-1 are the same run")
    merging_fails([a, a], out, "are the same run; merged runs must differ in seeds, tasks or algorithms")
    for name, value, text in (
        ("evaluations", 300, "evaluations 200 and 300"),
        ("name", "other", '"mine" and "other"'),
        ("correct_replications", 3, "correct_replications 2 and 3"),
    ):
        other = shutil.copytree(b, tmp_path / "other")
        edit(other / "study.json", **{name: value})
        merging_fails(
            [a, other], out, f"are not the same study: .*{text}; only tasks, algorithms and seeds may differ"
        )
        shutil.rmtree(other)
    other = shutil.copytree(b, tmp_path / "other")
    record = other / "runs" / "qd-hopper" / "map-elites" / "seed-2" / "config.json"
    edit(record, hyper_parameters={**json.loads(record.read_text())["hyper_parameters"], "batch": 7})
    merging_fails([a, other], out, r'hyper_parameters {"batch": 100} and .*seed-2 {"batch": 7}; only their')
    labelled = [{"name": "map-elites", "label": "pga-map-elites"}]
    edit(other / "study.json", algorithms=labelled)
    shutil.copy(b / record.relative_to(other), record)
    merging_fails([a, other], out, "pga-map-elites is .* in one folder and .* in another")
    (out / "mine").mkdir(parents=True)
    with pytest.raises(ElitesError, match="out is not empty; choose an empty folder with --out"):
        merge_studies([a, b], out)
    assert (files(a), files(b)) == before


@pytest.mark.usefixtures("undrawn")
def test_versions_and_physics_differ_only_if_that_is_allowed(tmp_path, capsys):
    options = {"task": "brax-hopper"}
    a, b = make_piece(tmp_path, "a", 0, 2, **options), make_piece(tmp_path, "b", 2, 2, **options)
    out = tmp_path / "out"
    for run in find_run_folders(b):
        versions = run.read_record().versions
        edit(run.config, versions={**versions, "jax": "9.9", "ribs": None})
    now = versions["jax"]
    merging_fails([a, b], out, rf"made with different jax \({now} and 9\.9\); --mixed-versions allows it")
    for run in find_run_folders(b):
        edit(run.config, versions=versions, physics="native")
    merging_fails([a, b], out, r"different physics \(native and xla\)")
    assert cli.main(["study", "merge", str(a), str(b), "--out", str(out), "--mixed-versions"]) == 0
    assert "the merged runs were made with different physics (native and xla)" in capsys.readouterr().out
    assert "different physics (native and xla)" in report_study(out)


def test_only_finished_runs_are_merged(tmp_path, capsys):
    a, b = make_piece(tmp_path, "a", 0, 2), make_piece(tmp_path, "b", 0, 3)
    for run in find_run_folders(a):  # a machine that was lost: its seeds were run again
        edit(run.config, evaluations=1000)
    for name in ("map-elites", "pga-map-elites"):
        (b / "runs" / "qd-hopper" / name / "seed-2" / "corrected.npz").unlink()
    (b / "runs" / "qd-hopper" / "map-elites" / "seed-1" / "archive.npz").write_bytes(b"damaged")
    assert cli.main(["study", "merge", str(a), str(b), "--out", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/all has 5 runs, 3 seeds from 0 to 2",
        "left out: 5 unfinished runs",
        "2 of the merged runs are not corrected yet",
    ]
    left = remaining.select_unfinished(tmp_path / "all", study_of(tmp_path, 0, 3).jobs())
    assert sorted(job.name for job in left) == [
        "qd-hopper/map-elites/seed-1",
        "qd-hopper/map-elites/seed-2",
        "qd-hopper/pga-map-elites/seed-2",
    ]
    merging_fails([a], tmp_path / "none", "no run in .*/a is finished")


def test_a_killed_merge_leaves_no_folder_that_looks_finished(tmp_path):
    piece = make_piece(tmp_path, "a", 0, 1)
    place = tmp_path / "place"
    place.mkdir()
    with copies_at_renames(place, tmp_path / "copies") as copies:
        merge_studies([piece], place / "all")
    expected = files(place)
    assert len(copies) == 2 * 5 + 1 + 1  # the files of two runs, the study's record, and the folder
    for copy in copies:
        assert [path.name for path in copy.iterdir()] == [".all.partial"]
        merge_studies([piece], copy / "all")
        assert files(copy) == expected


def test_too_little_space_is_reported_before_anything_is_written(tmp_path, monkeypatch):
    piece = make_piece(tmp_path, "a", 0, 1)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    merging_fails([piece], tmp_path / "out", r"these runs take .*, but only 1 kB are free on the disk of")


def test_a_folder_without_parameters_is_small_and_reports_it(tmp_path, capsys):
    piece = make_piece(tmp_path, "a", 0, 2)
    own = piece / "runs" / "qd-hopper" / "map-elites" / "seed-0"
    archive = load_archive(own)
    wide = dataclasses.replace(
        archive,
        parameters=np.random.default_rng(0).normal(size=(len(archive.fitness), 499)).astype(np.float32),
        policy_sizes=np.array([498, 1]),
    )
    wide.save(own / "archive.npz")
    (own / "snapshots").mkdir()
    wide.save(own / "snapshots" / "0000000100.npz")
    (own / "members.npz").write_bytes(b"large")
    (own / "lineage.bin").write_bytes(b"long")
    (own / "corrected.npz").unlink()
    corrected = own.with_name("seed-1")
    merge_studies([piece], tmp_path / "light", parameters=False)
    light = tmp_path / "light" / own.relative_to(piece)
    assert (light / "archive.npz").stat().st_size < (own / "archive.npz").stat().st_size / 20
    assert not (light / "members.npz").exists()
    assert not (light / "lineage.bin").exists()
    for read in (load_archive(light), load_archive(light / "snapshots" / "0000000100.npz")):
        assert read.parameters.shape == (len(wide.fitness), 0)
        assert not read.has_parameters
        assert read.digest() == wide.digest()
        np.testing.assert_array_equal(read.fitness, wide.fitness)
        assert read.metrics == wide.metrics
        with pytest.raises(ElitesError, match="has no parameters of controllers: they were left out"):
            read.policy()
    for command in (["correct", light], ["correct", light, "--snapshot", "100"], ["replay", light]):
        assert cli.main([*map(str, command)]) == 2
        err = capsys.readouterr().err
        assert err == (
            f"elites: {light} has no parameters of controllers: they were left out when it was merged; "
            "the folder of the original run has them\n"
        )
    assert "QD-score" in show(light)
    text = show(tmp_path / "light" / corrected.relative_to(piece))
    assert "corrected.png" in text  # it is the correction of this archive, though that is not whole
    again = merge_studies([tmp_path / "light"], tmp_path / "lighter", parameters=False)
    assert again.runs == 4
    first, second = (files(tmp_path / name) for name in ("light", "lighter"))
    assert {name: data for name, data in first.items() if not name.endswith(".png")} == second


def test_damage_to_an_archive_without_parameters_is_reported(tmp_path):
    archive = load_archive(make_run(tmp_path, "map-elites", "qd-hopper", 0, archive=True))
    odd = dataclasses.replace(archive, about={**archive.about, "digest": "0"})
    odd.save(tmp_path / "odd.npz")
    with pytest.raises(ElitesError, match="about has a digest, as if parameters had been left out"):
        load_archive(tmp_path / "odd.npz")


class TestGroups:
    """Seeds of one program that came in several groups."""

    def jobs(self, tmp_path, first, seeds):
        study = study_of(tmp_path, first, seeds, task="brax-hopper")
        return [job for job in study.jobs() if "/map-elites" in job.folder]

    def test_finished_seeds_are_never_run_again(self, tmp_path):
        pieces = [make_piece(tmp_path, name, n, 3, task="brax-hopper") for name, n in (("a", 0), ("b", 3))]
        out = tmp_path / "all"
        assert merge_studies(pieces, out).runs == 12
        assert not list(out.rglob("group.json"))
        home = out / "runs" / "brax-hopper" / "map-elites"
        assert remaining.select_unfinished(out, self.jobs(tmp_path, 0, 6)) == []
        assert remaining.select_unfinished(out, self.jobs(tmp_path, 2, 2)) == []
        (new,) = remaining.select_unfinished(out, self.jobs(tmp_path, 0, 9))
        assert (new.folder, new.group) == ("runs/brax-hopper/map-elites/seeds-6-to-8", True)
        assert [config.seed for config in new.configs] == [6, 7, 8]
        (new,) = remaining.select_unfinished(out, self.jobs(tmp_path, 0, 7))
        assert (new.folder, new.group) == ("runs/brax-hopper/map-elites/seed-6", False)
        shutil.rmtree(home / "seed-1")
        (home / "seed-4" / "corrected.npz").unlink()
        left = remaining.select_unfinished(out, self.jobs(tmp_path, 0, 9))
        assert [(job.folder.rpartition("/")[2], job.group) for job in left] == [
            ("seed-4", False),
            ("seed-1", False),
            ("seeds-6-to-8", True),
        ]

    def test_an_added_group_stays_a_group(self, tmp_path):
        merge_studies([make_piece(tmp_path, "a", 0, 2, task="brax-hopper")], tmp_path / "all")
        home = tmp_path / "all" / "runs" / "brax-hopper" / "map-elites"
        (new,) = remaining.select_unfinished(tmp_path / "all", self.jobs(tmp_path, 0, 4))
        GroupFolder(home / "seeds-2-to-3").create([config.record() for config in new.configs])
        assert remaining.select_unfinished(tmp_path / "all", self.jobs(tmp_path, 0, 4)) == [new]
        both = remaining.select_unfinished(tmp_path / "all", self.jobs(tmp_path, 0, 6))
        assert [job.folder.rpartition("/")[2] for job in both] == ["seeds-2-to-3", "seeds-4-to-5"]
        with pytest.raises(ElitesError, match=r"trains seeds 2 and 3 together .* before they are finish"):
            remaining.select_unfinished(tmp_path / "all", self.jobs(tmp_path, 0, 3))

    def test_seeds_are_added_to_a_finished_group(self, tmp_path):
        folder = make_piece(tmp_path, "a", 0, 2, task="brax-hopper")
        (new,) = remaining.select_unfinished(folder, self.jobs(tmp_path, 0, 4))
        assert new.folder == "runs/brax-hopper/map-elites/seeds-2-to-3"
        (new,) = remaining.select_unfinished(folder, self.jobs(tmp_path, 5, 2))
        assert new.folder == "runs/brax-hopper/map-elites/seeds-5-to-6"
        assert remaining.select_unfinished(folder, self.jobs(tmp_path, 1, 1)) == []
        own = folder / "runs" / "brax-hopper" / "map-elites"
        (own / "seed-1" / "corrected.npz").unlink()
        (whole, new) = remaining.select_unfinished(folder, self.jobs(tmp_path, 0, 4))
        assert whole.folder == "runs/brax-hopper/map-elites"
        with pytest.raises(ElitesError, match="trains seeds 0 and 1 together and cannot change to seed 1"):
            remaining.select_unfinished(folder, self.jobs(tmp_path, 1, 1))


@settings(max_examples=25, deadline=None)
@given(present_seeds=st.sets(st.integers(0, 7)), first=st.integers(0, 5), seeds=st.integers(2, 5))
def test_each_planned_seed_is_in_one_job(present_seeds, first, seeds, synthetic_group):
    """Each planned seed is in one job, and those that are finished in none that is left to do."""
    with tempfile.TemporaryDirectory() as name:
        folder, planned = Path(name), set(range(first, first + seeds))
        home = folder / "runs" / "brax-hopper" / "map-elites"
        home.mkdir(parents=True)
        for seed in present_seeds:
            (home / f"seed-{seed}").symlink_to(synthetic_group / f"seed-{seed}")
        job = study_of(folder, first, seeds, task="brax-hopper").jobs()[0]
        parts = remaining.split_by_folder(folder, job)
        of_parts = [config.seed for part in parts for config in part.configs]
        assert sorted(of_parts) == sorted(planned)
        assert len({own for part in parts for own in part.folders}) == seeds
        left = remaining.select_unfinished(folder, [job])
        assert {config.seed for part in left for config in part.configs} == planned - present_seeds
        for part in left:
            numbers = [config.seed for config in part.configs]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert part.group == (len(numbers) > 1)


@pytest.fixture(scope="module")
def synthetic_group(tmp_path_factory):
    """Eight finished runs, as a merged folder has them."""
    home = tmp_path_factory.mktemp("group")
    piece = make_piece(home, "a", 0, 8, task="brax-hopper")
    merge_studies([piece], home / "all")
    return home / "all" / "runs" / "brax-hopper" / "map-elites"


@pytest.mark.usefixtures("undrawn")
def test_runs_of_merged_groups_continue_alone(tmp_path):
    """Real ones: what a group of each of two machines has made, in one folder."""
    small = '{algorithm = "map-elites", hyper_parameters = {initial = 10, batch = 10, hidden = [4]}}'
    path, studies, execution = tmp_path / "mine.toml", {}, Execution(checkpoint_seconds=0, log=quiet)
    for name, first, seeds in (("a", 0, 2), ("b", 2, 2), ("all", 0, 6)):
        text = TOML.format(first=first, seeds=seeds, task="tests.toy:POINT", correct="true")
        path.write_text(text.replace('"map-elites", "pga-map-elites"', small).replace("200", "20"))
        studies[name] = make_study(str(path))
    for name in ("a", "b"):
        (job,) = studies[name].jobs()
        start_runs(job.configs[0], 2, tmp_path / name / job.folder, execution, group=True)
        _write_record(tmp_path / name, studies[name], quiet)
    folder = tmp_path / "all"
    assert merge_studies([tmp_path / "a", tmp_path / "b"], folder).uncorrected == 4
    before = {run.path.name: run.archive.read_bytes() for run in find_run_folders(folder)}
    left = remaining.select_unfinished(folder, studies["all"].jobs())
    for job in left:
        request = make_request(job, folder / job.folder, StudyExecution(threads=1, checkpoint_seconds=0))
        assert execute(request, lambda kind, **content: None)
    assert [job.folder.rpartition("/")[2] for job in left] == [
        *(f"seed-{seed}" for seed in range(4)),
        "seeds-4-to-5",
    ]
    assert remaining.select_unfinished(folder, studies["all"].jobs()) == []
    runs = {run.path.name: run for run in find_run_folders(folder)}
    assert sorted(runs) == [f"seed-{seed}" for seed in range(6)]
    assert {name: runs[name].archive.read_bytes() for name in before} == before
    correct(next(find_run_folders(tmp_path / "a")).path, replications=2, log=quiet)
    original = next(find_run_folders(tmp_path / "a"))
    assert runs["seed-0"].corrected_path().read_bytes() == original.corrected_path().read_bytes()
    assert resume(runs["seed-3"].path, execution).finished
    assert resume(runs["seed-5"].path, execution).finished
    assert "6 runs, 1 task, 1 algorithm" in report_study(folder)
    assert runs["seed-5"].is_corrected
    assert merge_studies([folder], tmp_path / "again").runs == 6
    assert not list((tmp_path / "again").rglob("group.json"))

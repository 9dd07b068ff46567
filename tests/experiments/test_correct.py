import dataclasses
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import elites
from elites import ElitesError, RunConfig, ThreadEvaluator, load_archive, load_corrected
from elites.archives.deep_grid import selection_weights
from elites.experiments import correct as correcting
from elites.results.archive import save_archive
from elites.results.members import Members, load_members

SMALL = {"initial": 40, "batch": 20, "hidden": (8,)}
SHORT = {"episode_length": 25}
FOUR = correcting.Settings(replications=4)


def quiet(_):
    pass


def correct(folder, replications=4, **options):
    return elites.correct(folder, replications=replications, log=quiet, **options)


def begun(folder, algorithm="map-elites", task="qd-hopper", evaluations=200, snapshots=0, **hyper_parameters):
    config = RunConfig(
        algorithm=algorithm,
        task=task,
        evaluations=evaluations,
        snapshots=snapshots,
        hyper_parameters=hyper_parameters or SMALL,
        task_parameters=SHORT,
    )
    assert elites.run(config, folder, execution=elites.Execution(threads=2, log=quiet)).finished
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return begun(tmp_path_factory.mktemp("runs") / "run", snapshots=2)


@pytest.fixture
def run(made, tmp_path):
    """A run of its own for each test."""
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    hyper_parameters = {**SMALL, "depth": 5, "keep_members": True}
    return begun(tmp_path_factory.mktemp("runs") / "deep", "deep-grid", evaluations=400, **hyper_parameters)


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("qd-deterministic-hopper", "cvt"),
        ("qd-deterministic-ant", "grid"),
    ],
)
def test_a_deterministic_task_has_no_loss(task, kind, tmp_path):
    correction = correct(begun(tmp_path / "run", task=task, **SMALL, archive=kind))
    assert correction.losses == (0, 0, 0)
    assert (correction.fitness == correction.original_fitness[:, None]).all()
    assert (correction.descriptor == correction.original_descriptor[:, None]).all()
    assert correction.kept.all()
    assert correction.metrics == load_archive(tmp_path / "run").metrics
    assert (correction.compute_spread().own_cell == 1).all()


def test_an_uncertain_task_has_a_loss_and_the_run_does_not_change(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    correction, archive = correct(run), load_archive(run)
    assert 0 < correction.losses.qd_score < 1
    assert correction.losses.max_fitness != 0
    assert correction.fitness.shape == (len(archive.cell), 4)
    np.testing.assert_array_equal(correction.cell, archive.cell)
    assert correction.metrics.coverage == correction.kept.sum() / 1000
    assert len(set(correction.mean_cell[correction.kept])) == correction.kept.sum()
    assert {path: path.read_bytes() for path in before} == before


def test_the_file_holds_what_was_returned(run):
    correction, read = correct(run), load_corrected(run)
    assert read.about == correction.about
    assert read.metrics == correction.metrics
    assert read.losses == correction.losses
    np.testing.assert_array_equal(read.fitness, correction.fitness)
    with np.load(run / "corrected.npz") as plain:
        assert plain["qd_score"] == correction.metrics.qd_score
        assert plain["coverage_loss"] == correction.losses.coverage


def test_replications_use_seeds_that_the_run_never_used(run):
    correction, archive = correct(run), load_archive(run)
    seeds = correcting.derive_episode_seeds(archive, FOUR)
    assert len(np.unique(seeds)) == seeds.size
    assert not np.isin(seeds, archive.seed).any()
    task = elites.make_task("qd-hopper", **SHORT)
    with ThreadEvaluator(task, hidden=(8,), threads=1) as evaluator:
        again = evaluator.evaluate(archive.parameters, seeds)
    np.testing.assert_array_equal(again.fitness, correction.fitness)
    np.testing.assert_array_equal(again.descriptor, correction.descriptor)


def test_more_replications_begin_with_the_same(run):
    few, more = correct(run, 3), correct(run, 5)
    np.testing.assert_array_equal(more.fitness[:, :3], few.fitness)
    other = correct(run, 3, seed=1)
    assert not (other.fitness == few.fitness).all(1).any()


def test_the_file_does_not_depend_on_threads_or_repetition(run, monkeypatch):
    correct(run, threads=1)
    first = (run / "corrected.npz").read_bytes()
    (run / "corrected.npz").unlink()
    monkeypatch.setattr(correcting, "FIRST_CHUNK", 1)
    monkeypatch.setattr(correcting, "CHUNK_SECONDS", 0.01)
    correct(run, threads=2)
    assert (run / "corrected.npz").read_bytes() == first


def test_an_existing_correction_is_not_computed_again(run):
    messages, seen = [], []
    correct(run)
    leftover = run / "corrected.unfinished.npz"  # of a kill between two steps
    leftover.write_bytes(b"")
    elites.correct(
        run, replications=4, log=messages.append, on_progress=lambda *progress: seen.append(progress)
    )
    assert messages == [
        f"{run / 'corrected.npz'} already exists: 4 replications of {len(load_archive(run).cell)} elites"
    ]
    assert not leftover.exists()
    leftover.mkdir()  # not ours
    elites.correct(run, replications=4, log=messages.append)
    leftover.rmdir()
    assert not seen
    changed = load_archive(run)
    save_archive(run / "archive.npz", dataclasses.replace(changed, parameters=-changed.parameters))
    elites.correct(run, replications=4, log=quiet, on_progress=lambda *progress: seen.append(progress))
    assert seen[-1] == (4 * len(changed.cell), 4 * len(changed.cell))


@pytest.mark.usefixtures("undrawn")
def test_a_correction_of_an_earlier_archive_is_not_shown(run):
    correct(run)
    assert "the luckiest elites" in elites.show(run)
    changed = load_archive(run)
    save_archive(run / "archive.npz", dataclasses.replace(changed, fitness=changed.fitness + 1))
    summary = elites.show(run)
    assert f"only the archive after 200 evaluations; `elites correct {run}` corrects this" in summary
    assert "the luckiest elites" not in summary


def test_a_damaged_file_is_made_again(run):
    correct(run)
    whole = (run / "corrected.npz").read_bytes()
    (run / "corrected.npz").write_bytes(whole[:-200])
    messages = []
    elites.correct(run, replications=4, log=messages.append)
    assert (run / "corrected.npz").read_bytes() == whole
    assert len(messages) == 1
    assert messages[0].endswith("; it is computed again")
    about = {"about": np.array("{}"), "fitness": np.zeros((3, 4), np.float32)}
    np.savez(run / "corrected.unfinished.npz", descriptor=np.zeros((3, 4, 9), np.float32), **about)
    (run / "corrected.npz").unlink()
    correct(run)  # what cannot be continued is begun again
    assert (run / "corrected.npz").read_bytes() == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_correction_continues_where_it_stopped(run, number, monkeypatch):
    whole = {}
    for seed in (0, 9):
        correct(run, seed=seed)
        whole[seed] = (run / "corrected.npz").read_bytes()
        (run / "corrected.npz").unlink()
    for name, value in {"FIRST_CHUNK": 8, "CHUNK_SECONDS": 0.001, "REPORT_SECONDS": 0.0}.items():
        monkeypatch.setattr(correcting, name, value)
    saved, messages, asked, seen = run / "corrected.unfinished.npz", [], [], []

    def interrupt(done, total):
        if done > 20 and not asked:
            asked.append(done)
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        elites.correct(run, replications=4, log=messages.append, on_progress=interrupt)
    assert not (run / "corrected.npz").exists()
    assert "the same command continues" in messages[0]
    unfinished = saved.read_bytes()
    correct(run, seed=9)  # does not take it for its own
    assert (run / "corrected.npz").read_bytes() == whole[9]
    saved.write_bytes(unfinished)
    correct(run, on_progress=lambda done, total: seen.append(done))
    assert seen[0] > 8
    assert (run / "corrected.npz").read_bytes() == whole[0]
    assert not saved.exists()


def test_a_snapshot_is_corrected_into_a_file_of_its_own(run):
    correction = correct(run, snapshot=100)
    assert correction.about["evaluations"] == 100
    assert not (run / "corrected.npz").exists()
    snapshot = load_archive(run / "snapshots" / "0000000100.npz")
    np.testing.assert_array_equal(load_corrected(run / "corrected-0000000100.npz").cell, snapshot.cell)
    with pytest.raises(ElitesError, match="has no snapshot 7; it has 100, 200"):
        correct(run, snapshot=7)
    shutil.rmtree(run / "snapshots")
    with pytest.raises(ElitesError, match="has no snapshot 7; it kept none"):
        correct(run, snapshot=7)


def test_an_elite_that_gives_nan_is_left_out_and_counted(run):
    archive = load_archive(run)
    archive.parameters[2] = np.nan
    save_archive(run / "archive.npz", archive)
    correction = correct(run)
    assert correction.invalid == 1
    assert not correction.kept[2]
    assert np.isnan(correction.fitness[2]).all()
    assert np.isfinite(correction.mean_fitness[correction.kept]).all()


@pytest.mark.parametrize(
    ("algorithm", "hyper_parameters"),
    [
        ("map-elites-sampling", {**SMALL, "samples": 2}),
        ("map-elites-es", {"pairs": 4, "centre_samples": 3, "hidden": (8,), "normalise": True}),
    ],
)
def test_elites_that_are_means_already_are_corrected_too(algorithm, hyper_parameters, tmp_path):
    correction = correct(begun(tmp_path / "run", algorithm, **hyper_parameters))
    assert len(correction.cell) == len(load_archive(tmp_path / "run").cell) > 0
    assert np.isfinite(correction.losses).all()


def test_an_unfinished_run_is_corrected(run, tmp_path):
    config = RunConfig(
        algorithm="map-elites", task="qd-hopper", hyper_parameters=SMALL, task_parameters=SHORT
    )
    assert not elites.run(
        config, tmp_path / "begun", execution=elites.Execution(max_hours=1e-6, log=quiet)
    ).finished
    assert correct(tmp_path / "begun").about["evaluations"] == 20
    (tmp_path / "begun" / "archive.npz").unlink()
    with pytest.raises(ElitesError, match="has no archive yet"):
        correct(tmp_path / "begun")


def test_a_deep_grids_members_are_drawn_as_its_parents_are():
    """By fitness above the cell's worst, uniformly where all are as good, never from another cell."""
    cell, fitness = np.array([0, 0, 0, 2, 2, 5]), np.array([1.0, 3.0, 2.0, 7.0, 7.0, -4.0], np.float32)
    members = Members(cell, fitness, 0, lambda rows: rows)
    uniform_numbers = np.random.default_rng(0).random((3, 20_000))
    first, second, third = members.draw(np.array([5, 0, 2]), uniform_numbers)
    assert (first == 5).all()
    shares = np.bincount(second, minlength=6) / 20_000
    np.testing.assert_allclose(shares, [0, 2 / 3, 1 / 3, 0, 0, 0], atol=0.01)
    np.testing.assert_allclose(np.bincount(third, minlength=6)[3:5] / 20_000, 0.5, atol=0.02)
    chance = np.asarray(selection_weights(fitness[None, :3]))[0]
    np.testing.assert_allclose(shares[:3], chance / chance.sum(), atol=0.01)


def test_a_deep_grid_is_corrected_by_its_best_members_or_by_drawing(deep):
    members, archive = load_members(deep / "members.npz"), load_archive(deep)
    best = [members.fitness[members.cell == cell].max() for cell in archive.cell]
    np.testing.assert_array_equal(best, archive.fitness)
    plain = correct(deep)
    redrawn = correct(deep, redraw=True)
    alone = np.array([np.count_nonzero(members.cell == cell) == 1 for cell in archive.cell])
    assert 0 < alone.sum() < len(alone)
    np.testing.assert_array_equal(redrawn.fitness[alone], plain.fitness[alone])
    assert (redrawn.fitness[~alone] != plain.fitness[~alone]).any()
    drawn = members.draw(
        archive.cell,
        correcting.draw_uniform(archive, FOUR),
    )
    seeds = correcting.derive_episode_seeds(archive, FOUR)
    with ThreadEvaluator(elites.make_task("qd-hopper", **SHORT), hidden=(8,), threads=1) as evaluator:
        again = evaluator.evaluate(members.parameters(drawn[:, 3]), seeds[:, 3])
    np.testing.assert_array_equal(again.fitness, redrawn.fitness[:, 3])


def test_redrawing_without_members_is_refused(run, deep, tmp_path):
    with pytest.raises(ElitesError, match=r"redraw is for deep-grid, .* this is map-elites"):
        correct(run, redraw=True)
    folder = shutil.copytree(deep, tmp_path / "deep")
    (folder / "members.npz").unlink()
    (folder / "corrected.npz").unlink(missing_ok=True)
    with pytest.raises(ElitesError, match=r"members\.npz, which `elites run deep-grid … --keep-members`"):
        correct(folder, redraw=True)


def test_a_wrong_number_is_refused(run):
    with pytest.raises(ElitesError, match=r"replications is 2\.5; it must be a whole number"):
        correct(run, 2.5)
    assert correct(run, np.int64(2)).fitness.shape[1] == 2


def test_correcting_needs_neither_the_command_line_nor_bullet_to_be_imported():
    program = "import sys; from elites import correct; print({'tyro', 'pybullet', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

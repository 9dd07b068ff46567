"""Runs on somebody else's environment: every algorithm, resumed, corrected, shown."""

import json

import numpy as np
import pytest

import elites
from elites import ALGORITHMS, ElitesError, RunConfig, cli, gymnasium_task, load_archive
from elites.evaluation.environment import raise_failure
from tests import outside
from tests.algorithms.test_algorithms import assert_shapes_fit, chosen
from tests.experiments.test_run import assert_same_result

BUDGET = 75


def task(**changes):
    given = {"descriptor": outside.place, "descriptor_bounds": outside.BOUNDS, "qd_offset": -50.0}
    return gymnasium_task(
        outside.push,
        **{**given, "step_descriptor": outside.step_place, "episode_length": 12, "cells": 64, **changes},
    )


def config(name, **changes):
    given = {"task": task(), "evaluations": BUDGET, "hyper_parameters": chosen(name), "seed": 1}
    return RunConfig(algorithm=name, **{**given, **changes})


def quiet(_):
    pass


SPECIAL = {
    "pga-map-elites": "transitions",
    "map-elites-sampling": "several episodes of each",
    "qd-pg": "descriptors of steps",
    "td3": "an environment of its own",
}  # what they need of it that the others do not


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - set(SPECIAL)))
def test_shapes_of_all_algorithms_fit(name):
    assert_shapes_fit(config(name).make_algorithm())


@pytest.mark.parametrize("name", SPECIAL)
def test_a_resumed_run_ends_the_same(name, tmp_path):
    elites.run(config(name), tmp_path / "whole", execution=elites.Execution(threads=2, log=quiet))
    reports = []
    interrupted = elites.run(
        config(name),
        tmp_path / "parts",
        execution=elites.Execution(threads=1, max_hours=1e-9, on_generation=reports.append, log=quiet),
    )
    assert not interrupted.finished
    assert elites.resume(tmp_path / "parts", execution=elites.Execution(threads=1, log=quiet)).finished
    assert_same_result(tmp_path / "parts", tmp_path / "whole")
    archive = load_archive(tmp_path / "whole")
    assert archive.about["evaluations"] == BUDGET
    if archive.seed.ndim == 1:
        with elites.ProcessEvaluator(task(), hidden=(8,), processes=2) as evaluator:
            again = evaluator.evaluate(archive.parameters, archive.seed)
        np.testing.assert_array_equal(again.fitness, archive.fitness)
        np.testing.assert_array_equal(again.descriptor, archive.descriptor)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    elites.run(
        config("map-elites", correct_every=40, correct_replications=3),
        folder,
        execution=elites.Execution(log=quiet),
    )
    return folder


def test_a_run_is_corrected_and_shown_from_the_command_line(folder, capsys):
    assert (folder / "corrections.csv").read_text().count("\n") == 3
    assert cli.main(["correct", str(folder), "--replications", "4"]) == 0
    assert "corrected by 4 replications" in capsys.readouterr().out
    assert cli.main(["show", str(folder)]) == 0
    assert "dimension 1" in capsys.readouterr().out


def test_distances_are_measured_in_ranges_of_the_bounds(folder):
    """A map of the same descriptors in other units is the same map."""
    archive = load_archive(folder)
    cells = archive.cells
    stretched = cells._replace(
        centroids=cells.centroids * [1, 100], bounds=cells.bounds * np.array([[1], [100]])
    )
    descriptors = np.random.default_rng(0).uniform(-3, 3, (500, 2)).astype(np.float32)
    wide = descriptors * np.array([1, 100], np.float32)
    np.testing.assert_array_equal(cells.assign_in_parts(descriptors), stretched.assign_in_parts(wide))
    assert (archive.cells.assign_in_parts(archive.descriptor) == archive.cell).all()


def test_a_missing_module_is_reported_in_one_line(folder, tmp_path, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    record = json.loads((folder / "config.json").read_text())
    record["task_parameters"]["descriptor"] = "gone:place"
    (gone / "config.json").write_text(json.dumps(record))
    (gone / "archive.npz").write_bytes((folder / "archive.npz").read_bytes())
    (gone / "metrics.csv").write_bytes((folder / "metrics.csv").read_bytes())
    assert cli.main(["correct", str(gone)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("elites: descriptor 'gone:place': No module named 'gone'")
    assert message.count("\n") == 1
    assert cli.main(["show", str(gone)]) == 0  # needs neither it nor the environment


def test_an_environment_that_raises_ends_the_run_with_its_last_checkpoint(folder, tmp_path):
    own, marker = tmp_path / "run", tmp_path / "marker"
    troubled = task(environment_options={"trouble": "raise", "marker": str(marker)})
    limited = elites.Execution(max_hours=1e-9, log=quiet)
    elites.run(config("map-elites", task=troubled), own, execution=limited)
    (checkpoint,) = (own / "checkpoints").iterdir()
    before = checkpoint.read_bytes()
    marker.touch()
    with pytest.raises(ElitesError, match=r"the episode with seed \d+ failed: RuntimeError: out of paint$"):
        elites.resume(own, execution=elites.Execution(log=quiet))
    assert checkpoint.read_bytes() == before
    marker.unlink()
    elites.resume(own, execution=elites.Execution(log=quiet))
    assert (own / "metrics.csv").read_bytes() == (folder / "metrics.csv").read_bytes()


@pytest.mark.parametrize("environment", ["push", "blind"])
def test_missing_requirements_of_a_replay_are_reported_before_the_run(environment, tmp_path, capsys):
    options = "--descriptor tests.outside:up --episode-length 12 --cells 16 --qd-offset -50 --threads 1"
    small = f"--evaluations 20 --initial 10 --batch 10 --hidden 4 --out {tmp_path / 'run'}"
    words = f"run map-elites gym:tests.outside:{environment} {options} {small}".split()
    assert cli.main(words) == 0
    hints = [line for line in capsys.readouterr().out.splitlines() if line.startswith("`elites replay`")]
    assert len(hints) == (environment == "blind")
    assert all(
        "gym:tests.outside:blind cannot be drawn with render_mode='rgb_array'" in line for line in hints
    )


def test_an_error_in_the_training_environment_of_td3_is_reported(tmp_path):
    troubled = task(environment_options={"trouble": "raise"})
    algorithm = elites.make_algorithm("td3", troubled, **chosen("td3"))
    environment = algorithm.environment
    place = environment.begin(np.uint32(3))
    for _ in range(6):
        place, reward, _ = environment.step(place, np.zeros(2, np.float32))
    assert np.isnan(reward)  # nothing goes through JAX; the runner asks afterwards
    with pytest.raises(
        ElitesError, match="training episode with seed 3 failed: a step failed: RuntimeError: out of paint"
    ):
        raise_failure(environment)


def test_qd_pg_needs_a_descriptor_of_each_step(tmp_path):
    with pytest.raises(ElitesError, match="qd-pg needs a descriptor of each step, which gym"):
        elites.run(
            config("qd-pg", task=task(step_descriptor=None)),
            tmp_path / "run",
            execution=elites.Execution(log=quiet),
        )
    assert not (tmp_path / "run").exists()


def test_the_episode_descriptor_defaults_to_the_mean_of_step_descriptors(folder):
    plain = gymnasium_task(
        outside.push,
        step_descriptor=outside.step_place,
        descriptor_bounds=outside.BOUNDS,
        episode_length=12,
        qd_offset=0.0,
    )
    parameters = load_archive(folder).parameters[:3]
    with elites.ProcessEvaluator(plain, hidden=(8,), processes=1) as evaluator:
        evaluation = evaluator.evaluate(parameters, np.arange(3), transitions=True)
    means = [
        steps[:length].mean(0)
        for steps, length in zip(evaluation.transitions.step_descriptors, evaluation.length, strict=True)
    ]
    np.testing.assert_allclose(evaluation.descriptor, means, rtol=1e-5, atol=1e-6)

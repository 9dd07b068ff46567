"""Replications in one program: folders, resuming, budgets; on a toy task, so that it takes no time."""

import dataclasses
import functools
import json
import os
import signal
import threading

import numpy as np
import pytest

from elites import (
    ALGORITHMS,
    ElitesError,
    Execution,
    RunConfig,
    Status,
    correct,
    load_archive,
    load_lineage,
    read_table,
    resume,
    run,
    show,
    tasks,
)
from elites.evaluation.threads import ThreadEvaluator
from elites.experiments import episodes_outside, replications
from elites.learning import products
from elites.results.checkpoints import Checkpoints
from elites.results.folder import RunFolder
from tests.algorithms.test_algorithms import chosen
from tests.toy import POINT

OWN = {"deep-grid": {"keep_members": True}, "map-elites-sampling": {"samples": 2}}


@pytest.fixture(autouse=True)
def _point(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "point", POINT)


def small(name, **changes):
    hyper_parameters = {**chosen(name, **OWN.get(name, {})), **changes.pop("hyper_parameters", {})}
    return RunConfig(
        **{
            "algorithm": name,
            "task": "point",
            "evaluations": 155,
            "physics": None if changes.get("task", "point") != "point" else "xla",
            "hyper_parameters": hyper_parameters,
            **changes,
        }
    )


def quiet(_):
    pass


def files(folder):
    kept = ("metrics.csv", "archive.npz", "corrections.csv", "corrected.npz", "members.npz", "lineage.bin")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name in kept or path.parent.name == "snapshots"
    }


def cut(config, folder):
    """A group that is interrupted after its third generation."""

    def stop(report):
        if report.metrics["generation"] == 3:
            raise KeyboardInterrupt

    execution = Execution(checkpoint_seconds=0, on_generation=stop, log=quiet)
    with pytest.raises(KeyboardInterrupt):
        run(config, folder, seeds=2, execution=execution)


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Two replications of an algorithm in one program, made once for all tests."""

    @functools.cache
    def made(name):
        execution = Execution(checkpoint_seconds=0, log=quiet)
        folder = tmp_path_factory.mktemp("groups") / name
        return run(small(name, seed=3, snapshots=2), folder, seeds=2, execution=execution)

    return made


@pytest.mark.parametrize("name", ALGORITHMS)
def test_replications_in_one_program(name, group, tmp_path):
    """Each ends in an ordinary folder; stopped and resumed the group ends with the same bits."""
    config, whole, outcomes = small(name, seed=3, snapshots=2), group(name).folder, group(name).runs
    assert [outcome.folder.name for outcome in outcomes] == ["seed-3", "seed-4"]
    assert all(outcome.finished and outcome.evaluations == 155 for outcome in outcomes)
    assert len(Checkpoints(whole / "checkpoints").paths()) == 1  # to go on from

    cut(config, tmp_path / "cut")
    with (tmp_path / "cut" / "seed-4" / "metrics.csv").open("a") as file:
        file.write("cut short, 1, 2")
    with (tmp_path / "cut" / "seed-4" / "lineage.bin").open("ab") as file:
        file.write(b"of the generation that was cut short")
    again = resume(
        tmp_path / "cut" / "seed-4", execution=Execution(log=quiet)
    )  # any of them goes on with all
    assert again.finished
    assert again.folder.name == "seed-4"
    assert files(tmp_path / "cut") == files(whole)
    assert len(files(whole)) == 2 * (3 + 2 + (name == "deep-grid"))

    fitness = []
    for outcome in outcomes:
        table, archive = read_table(outcome.folder / "metrics.csv"), load_archive(outcome.folder)
        assert table["evaluations"][-1] == 155
        np.testing.assert_array_equal(table["generation"], np.arange(len(table["generation"])) + 1)
        made = sum(values for column, values in table.items() if column.startswith("made_"))
        assert made.sum() <= 155
        assert archive.metrics.qd_score == table["qd_score"][-1] == outcome.metrics["qd_score"]
        assert archive.about["seed"] == int(outcome.folder.name.removeprefix("seed-"))
        assert archive.evaluation.max() < 155
        fitness.append(archive.fitness)
    assert not np.array_equal(fitness[0], fitness[1])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_logs_have_what_the_algorithm_trains(name, group):
    """Critics have a loss and a value in the generations that train them, actors their fitness."""
    for outcome in group(name).runs:
        table, archive = read_table(outcome.folder / "metrics.csv"), load_archive(outcome.folder)
        trained = np.diff(table["gradient_steps"], prepend=0) > 0
        assert trained.any() == (name in ("pga-map-elites", "qd-pg", "td3"))
        assert not trained.all()  # the first controllers are random
        for column in ("critic_loss", "mean_q"):
            np.testing.assert_array_equal(np.isfinite(table[column]), trained)
        assert (table["critic_loss"][trained] > 0).all()
        made = {"pga-map-elites": "made_greedy", "td3": "made_actor"}.get(name)
        evaluated = table[made] > 0 if made else np.zeros(len(trained), bool)
        np.testing.assert_array_equal(np.isfinite(table["greedy_fitness"]), evaluated)
        assert table["mean_fitness"][-1] == pytest.approx(archive.fitness.astype(float).mean(), rel=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_log_of_lineages_leads_to_the_archive_and_back_to_random_ancestors(name, group):
    """Record after record it makes the archive; each elite's lines end without parents."""
    for outcome in group(name).runs:
        lineage, archive = load_lineage(outcome.folder), load_archive(outcome.folder)
        table = read_table(outcome.folder / "metrics.csv")
        entered = sum(values for column, values in table.items() if column.startswith(("new_", "improved_")))
        assert (lineage.status != Status.STORED).sum() == entered.sum()
        if name == "deep-grid":
            assert (lineage.status == Status.STORED).any()  # members that are not the best, which are evicted
            elites = lineage.select_rows(lineage.find_rows(archive.evaluation))
        else:
            assert len(lineage) > len(archive)  # replaced ones are there
            latest = {cell: row for row, cell in enumerate(lineage.cell.tolist())}
            assert sorted(latest) == sorted(archive.cell.tolist())
            elites = lineage.select_rows([latest[cell] for cell in archive.cell.tolist()])
        for field in ("evaluation", "cell", "fitness", "generation", "operator", "parents"):
            np.testing.assert_array_equal(getattr(elites, field), getattr(archive, field))
        for evaluation in archive.evaluation:
            line, ancestors = lineage.trace_first_parents(evaluation), lineage.find_ancestors(evaluation)
            assert (line.parents[-1] == -1).all()
            assert set(line.evaluation[1:]) <= set(ancestors.evaluation)
            known = {-1, *ancestors.evaluation}
            assert {*line.parents.ravel(), *ancestors.parents.ravel()} <= known
        if name not in ("cma-map-elites", "td3"):  # samples, and copies of one actor
            assert max(len(lineage.trace_first_parents(evaluation)) for evaluation in archive.evaluation) > 2


@pytest.mark.parametrize("gains", [True, False])
def test_training_in_bfloat16_resumes_and_warns_on_processors_without_bfloat16(gains, monkeypatch, tmp_path):
    monkeypatch.setattr(products, "gains_speed", lambda: gains)
    config = small("pga-map-elites", hyper_parameters={"training_precision": "bfloat16"})
    lines, expected = [], ["this processor has no bfloat16 products: training is not faster than in float32"]

    def note(line):
        if not line.startswith("physics"):
            lines.append(line)

    whole = run(config, tmp_path / "whole", seeds=2, execution=Execution(log=note))
    assert lines == expected * (not gains)
    assert whole.finished
    limited = Execution(max_hours=1e-9, checkpoint_seconds=0, log=quiet)
    assert not run(config, tmp_path / "cut", seeds=2, execution=limited).finished
    assert resume(tmp_path / "cut", execution=Execution(log=note)).finished
    assert lines == 2 * expected * (not gains)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_native_episodes_outside_the_program_give_the_same_rows_as_xla_inside(name, group, tmp_path):
    """The same generation, driven in two ways, row by row; and resumed, it ends with the same bits."""
    config = small(name, seed=3, physics="native")
    outside = run(config, tmp_path / "outside", seeds=2, execution=Execution(log=quiet))
    assert "rollouts_s" in read_table(outside.runs[0].folder / "timings.csv")
    assert "device_s" in read_table(group(name).runs[0].folder / "timings.csv")
    cut(config, tmp_path / "cut")
    assert resume(tmp_path / "cut", execution=Execution(log=quiet)).finished
    assert files(tmp_path / "cut") == files(tmp_path / "outside")
    for one, other in zip(group(name).runs, outside.runs, strict=True):
        expected, rows = (read_table(outcome.folder / "metrics.csv") for outcome in (one, other))
        assert list(rows) == list(expected)
        for column, values in rows.items():
            np.testing.assert_allclose(values, expected[column], rtol=1e-5, err_msg=column)
        logs = [load_lineage(outcome.folder) for outcome in (one, other)]
        for field in ("evaluation", "parents", "cell", "generation", "operator", "status"):
            np.testing.assert_array_equal(*(getattr(log, field) for log in logs))
        np.testing.assert_allclose(*(log.fitness for log in logs), rtol=1e-5, atol=1e-5)
        first, second = load_archive(one.folder), load_archive(other.folder)
        for field in ("cell", "evaluation", "seed", "generation", "operator", "parents"):
            ours, theirs = (getattr(one, field)[np.argsort(one.cell)] for one in (first, second))
            np.testing.assert_array_equal(ours, theirs)


def test_training_during_the_episodes_gives_the_same_bits(tmp_path, monkeypatch):
    """With an accelerator the episodes of each of two parts are a batch, and a thread passes on what is
    evaluated. It asks for the next generation before this one is logged, and again after a stop there."""
    config = small("pga-map-elites", seed=3, physics="native")
    split_into(2, monkeypatch)
    run(config, tmp_path / "one", seeds=4, execution=Execution(log=quiet))
    for module in (replications, episodes_outside):
        monkeypatch.setattr(module, "has_accelerator", lambda: True)
    threads = set()
    to_device = episodes_outside.to_device

    def noted(arrays):
        threads.add(threading.current_thread().name)
        return to_device(arrays)

    monkeypatch.setattr(episodes_outside, "to_device", noted)
    run(config, tmp_path / "two", seeds=4, execution=Execution(log=quiet))
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert threads
    assert all(name.startswith("training") for name in threads)
    limited = Execution(max_hours=1e-9, checkpoint_seconds=0, log=quiet)
    assert not run(config, tmp_path / "cut", seeds=4, execution=limited).finished
    assert resume(tmp_path / "cut", execution=Execution(log=quiet)).finished
    assert files(tmp_path / "cut") == files(tmp_path / "one")

    def fail(arrays):
        raise ElitesError("the accelerator is full")

    monkeypatch.setattr(episodes_outside, "to_device", fail)
    with pytest.raises(ElitesError, match="the accelerator is full"):
        run(config, tmp_path / "three", seeds=4, execution=Execution(log=quiet))


def split_into(parts, monkeypatch):
    monkeypatch.setattr(replications, "count_parts", lambda count, inside: parts)


def test_a_group_continues_with_another_number_of_parts(tmp_path, monkeypatch):
    """A checkpoint has the state of each replication: the number of parts depends on the machine."""
    config = small("pga-map-elites", seed=3, physics="native")
    for name, before, after in (("joined", 2, 1), ("split", 1, 2)):
        split_into(before, monkeypatch)
        cut(config, tmp_path / name)
        split_into(after, monkeypatch)
        assert resume(tmp_path / name, execution=Execution(log=quiet)).finished
    run(config, tmp_path / "whole", seeds=2, execution=Execution(log=quiet))
    for seed in ("seed-3", "seed-4"):
        archives = [load_archive(tmp_path / name / seed) for name in ("joined", "split", "whole")]
        for archive in archives[1:]:
            for field in ("evaluation", "seed", "generation", "operator"):
                np.testing.assert_array_equal(getattr(archive, field), getattr(archives[0], field))
            np.testing.assert_allclose(archive.fitness, archives[0].fitness, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "batches"),
    [
        ("map-elites", [40, 20, 40, 40, 40]),
        ("pga-map-elites", [40, 20, 40, 40, 40]),
        ("map-elites-sampling", [40, 20, 2]),  # the budget ends with one of three episodes of a controller
    ],
)
def test_the_episodes_of_all_seeds_are_one_batch_and_each_seed_has_the_bits_of_a_single_run(
    name, batches, tmp_path, monkeypatch
):
    """Also in the last generation, which the budget cuts."""
    config = RunConfig(
        algorithm=name,
        task="qd-hopper",
        evaluations=85,
        seed=5,
        hyper_parameters=chosen(name, initial=30),  # two generations of random ones, not equally large
        task_parameters={"episode_length": 30},
    )
    reports, sizes = [], []
    evaluate = ThreadEvaluator.evaluate

    def counted(self, parameters, seeds, **options):
        sizes.append(len(parameters))
        return evaluate(self, parameters, seeds, **options)

    monkeypatch.setattr(ThreadEvaluator, "evaluate", counted)
    execution = Execution(on_generation=reports.append, checkpoint_seconds=0, log=quiet)
    group = run(config, tmp_path / "group", seeds=2, execution=execution)
    assert sizes == batches
    assert group.finished
    assert group.evaluations == 85
    assert {report.seeds for report in reports} == {(5, 6)}
    for outcome in group.runs:
        seed = int(outcome.folder.name.removeprefix("seed-"))
        alone = run(
            dataclasses.replace(config, seed=seed), tmp_path / str(seed), execution=Execution(log=quiet)
        )
        assert files(outcome.folder) == files(alone.folder)


def test_a_seed_alone_gives_the_same_as_in_a_group(group, tmp_path):
    """On a task that is not chaotic the same numbers come out, but for the order of sums."""
    (_, among) = group("pga-map-elites").runs
    alone = run(small("pga-map-elites", seed=4), tmp_path / "one", execution=Execution(log=quiet))
    one, other = load_archive(alone.folder), load_archive(among.folder)
    for name in ("evaluation", "seed", "generation", "operator"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_allclose(one.fitness, other.fitness, atol=1e-3)


def test_one_seed_of_a_device_task_is_an_ordinary_run(group, tmp_path):
    outcome = run(small("map-elites"), tmp_path / "run", execution=Execution(log=quiet))
    assert outcome.folder == tmp_path / "run"
    assert {path.name for path in outcome.folder.iterdir()} >= {"config.json", "metrics.csv", "archive.npz"}
    text = show(outcome.folder)
    assert "155 of 155" in text
    assert "episode seed" in text
    assert ", the mean of 2 episodes\n" in show(group("map-elites-sampling").runs[0].folder)


@pytest.mark.parametrize("physics", ["xla", "native"])
def test_corrections_of_a_group(physics, tmp_path):
    changes = {"correct_every": 100, "correct_replications": 3, "correct_redraw": True, "physics": physics}
    config = small("deep-grid", **changes)
    run(config, tmp_path / "group", seeds=2, execution=Execution(log=quiet))
    for seed in (0, 1):
        folder = tmp_path / "group" / f"seed-{seed}"
        table = read_table(folder / "corrections.csv")
        np.testing.assert_array_equal(table["evaluations"], [100, 155])
        before = (folder / "corrected.npz").read_bytes()
        (folder / "corrected.npz").unlink()
        correct(folder, replications=3, redraw=True, log=quiet)
        assert (folder / "corrected.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "task", "changes"),
    [("cma-map-elites", "point", {"es": "separable"}), ("td3", "qd-hopper", {"random_steps": 0})],
)
def test_seeds_that_cannot_share_a_program_run_one_by_one(name, task, changes, tmp_path):
    given = {"task": task, "evaluations": 60, "task_parameters": {"episode_length": 12}}
    config = small(name, hyper_parameters=changes, **given)

    def interrupt(report):
        if report.metrics["evaluations"] == 40:
            os.kill(os.getpid(), signal.SIGINT)

    outcomes = run(
        config, tmp_path / "group", seeds=2, execution=Execution(on_generation=interrupt, log=quiet)
    ).runs
    assert [(outcome.finished, outcome.evaluations) for outcome in outcomes] == [(False, 40), (False, 0)]
    outcomes = resume(tmp_path / "group", execution=Execution(max_hours=1e-9, log=quiet)).runs
    assert [(outcome.finished, outcome.evaluations) for outcome in outcomes] == [(False, 40), (False, 0)]
    outcomes = resume(tmp_path / "group", execution=Execution(log=quiet)).runs
    assert all(outcome.finished for outcome in outcomes)
    alone = run(
        small(name, hyper_parameters=changes, seed=1, **given),
        tmp_path / "one",
        execution=Execution(log=quiet),
    )
    assert files(alone.folder) == files(outcomes[1].folder)


def test_a_group_killed_between_its_last_files_starts_again(group, tmp_path, monkeypatch):
    config, whole = small("map-elites", seed=3, snapshots=2), group("map-elites").folder
    save, saved = RunFolder.write_archive, []

    def save_one(folder, archive):
        if saved:
            raise KeyboardInterrupt
        saved.append(folder)
        save(folder, archive)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_archive", save_one)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "cut", seeds=2, execution=Execution(log=quiet))
    assert (tmp_path / "cut" / "seed-3" / "archive.npz").exists()
    assert not (tmp_path / "cut" / "seed-4" / "archive.npz").exists()
    monkeypatch.chdir(tmp_path / "cut" / "seed-3")
    assert resume(".", execution=Execution(log=quiet)).finished
    assert files(tmp_path / "cut") == files(whole)


def test_a_replication_is_locked_while_its_group_runs(tmp_path):
    refusals = []

    def meddle(report):
        with pytest.raises(ElitesError, match="is being run by another process") as refused:
            correct(tmp_path / "group" / "seed-1", log=quiet)
        refusals.append(refused)

    run(
        small("map-elites"), tmp_path / "group", seeds=2, execution=Execution(on_generation=meddle, log=quiet)
    )
    assert refusals
    with pytest.raises(ElitesError, match="holds no run"):
        resume(tmp_path / "group" / "seed-9", execution=Execution(log=quiet))


def test_td3_does_not_store_steps_that_gave_nan(tmp_path):
    """Some episodes start where the reward is NaN; the actor must not learn it."""
    changes = {"hyper_parameters": {"random_steps": 0}, "task_parameters": {"noise": 30.0}}
    config = small("td3", evaluations=100, **changes)
    outcome = run(config, tmp_path / "run", execution=Execution(log=quiet))
    table = read_table(outcome.folder / "metrics.csv")
    assert table["invalid"].sum() > 0
    assert table["invalid"][-1] < 20
    assert np.isfinite(load_archive(outcome.folder).parameters).all()


def test_the_memory_of_step_descriptors_is_counted():
    """They need not be as long as the descriptor of an episode, nor bytes."""
    algorithm = small("pga-map-elites").make_algorithm()
    before = replications.estimate_bytes(algorithm, "xla")

    class Described(type(algorithm.task)):
        step_descriptor_size, step_descriptor_dtype = 100, "float32"

    algorithm.task = Described(**vars(algorithm.task))
    steps = algorithm.generation[0].policies * algorithm.task.episode_length
    assert replications.estimate_bytes(algorithm, "xla") - before >= 100 * 4 * steps


def test_a_group_that_cannot_fit_is_refused_with_the_number_that_fits(tmp_path, monkeypatch):
    config = small("pga-map-elites")
    each = replications.estimate_bytes(config.make_algorithm(), "xla")
    monkeypatch.setattr("elites.memory.available_bytes", lambda: 5 * each + each // 2)
    with pytest.raises(ElitesError, match=r"20 seeds take .* GB, but only .* GB are free; 5 seeds fit"):
        run(config, tmp_path / "group", seeds=20, execution=Execution(log=quiet))
    assert not (tmp_path / "group").exists()


def test_user_errors_are_reported(tmp_path):
    config = small("map-elites")
    with pytest.raises(ElitesError, match="seeds is 0; it must be from 1 to"):
        run(config, tmp_path / "group", seeds=0)
    with pytest.raises(ElitesError, match="holds no run"):
        resume(tmp_path)
    run(config, tmp_path / "group", seeds=2, execution=Execution(log=quiet))
    with pytest.raises(ElitesError, match="is not empty"):
        run(config, tmp_path / "group", seeds=2, execution=Execution(log=quiet))
    with pytest.raises(ElitesError, match=r"holds a group of runs; name one, such as .*seed-0"):
        show(tmp_path / "group")
    messages = []
    resume(tmp_path / "group", execution=Execution(log=messages.append))
    assert "is finished: 155 evaluations" in messages[0]
    record = tmp_path / "group" / "group.json"
    assert json.loads(record.read_text()) == {"seeds": [0, 1]}
    record.write_text("{}")
    with pytest.raises(ElitesError, match=r"group\.json is damaged"):
        resume(tmp_path / "group")

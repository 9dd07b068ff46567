"""Runs that are resumed or extended, or that begin with the archive of another run."""

import json
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites import (
    ALGORITHMS,
    ElitesError,
    Execution,
    cli,
    load_archive,
    load_lineage,
    make_algorithm,
    read_table,
    resume,
    run,
    show,
    tasks,
)
from elites.algorithms.base import Round, random_rounds
from elites.experiments.generation import Generation
from elites.results.checkpoints import Checkpoints
from tests.experiments.test_group import files, quiet, small
from tests.kills import copies_at_renames
from tests.toy import POINT

DOCUMENT = Path(__file__).parents[2] / "docs" / "resuming.md"
CUT, WHOLE, MORE = 95, 100, 155  # evaluations: with batches of 20, a cut end, a whole one, and the extension
FEW = ("map-elites", "cma-map-elites")  # that compile fast


@pytest.fixture(autouse=True)
def _point(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "point", POINT)


@pytest.fixture
def execution():
    return Execution(checkpoint_seconds=0, log=quiet)


def plain(**changes):
    return small("map-elites", **{"evaluations": CUT, **changes})


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def record(folder):
    return json.loads((folder / "config.json").read_text())


# A larger budget


@given(
    initial=st.integers(0, 50), batch=st.integers(1, 20), rounds=st.integers(1, 3), budget=st.integers(1, 300)
)
def test_all_generations_before_the_last_are_whole(initial, batch, rounds, budget):
    generation = (Round("offspring", batch),) * rounds
    algorithm = SimpleNamespace(opening=random_rounds(initial, batch), generation=generation)
    functions = Generation(algorithm, 1)
    sizes = [sum(round.policies for round in functions.find_rounds(number)) for number in range(300)]
    ends = np.cumsum([0, *sizes])
    assert functions.count_evaluations_before_last(budget) == ends[ends < budget][-1]


@pytest.mark.parametrize(
    "name",
    [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHMS],
)
def test_an_extended_run_equals_one_that_was_planned_longer(name, execution, tmp_path):
    """Whole generations or not: the last one is computed again."""
    run(small(name, evaluations=MORE), tmp_path / "planned", execution=execution)
    run(small(name, evaluations=CUT), tmp_path / "run", execution=execution)
    (kept,) = Checkpoints(tmp_path / "run" / "checkpoints").paths()
    outcome = resume(tmp_path / "run", execution, evaluations=MORE)
    assert outcome.finished
    assert outcome.evaluations == MORE
    assert files(tmp_path / "run") == files(tmp_path / "planned")
    assert record(tmp_path / "run") == record(tmp_path / "planned")
    assert not kept.exists()  # the state is now that of the new end
    assert len(Checkpoints(tmp_path / "run" / "checkpoints").paths()) == 1


def test_pga_map_elites_on_bullet_is_extended(tmp_path):
    def config(evaluations):
        given = {"task": "qd-hopper", "task_parameters": {"episode_length": 30}}
        return small("pga-map-elites", evaluations=evaluations, **given)

    run(config(MORE), tmp_path / "planned", execution=Execution(log=quiet))
    run(config(WHOLE), tmp_path / "run", execution=Execution(log=quiet))
    assert resume(tmp_path / "run", Execution(log=quiet, threads=1), evaluations=MORE).finished
    assert files(tmp_path / "run") == files(tmp_path / "planned")


@pytest.mark.parametrize(("seeds", "end"), [(1, 20), (1, CUT), (2, WHOLE)])
def test_rows_added_at_the_first_end_are_removed(seeds, end, execution, tmp_path):
    """Rows of thinned logs and corrections that are there because of the end alone; from any end."""
    changes = {"log_every": 3, "correct_every": 70, "correct_replications": 2, "snapshots": 2}
    run(plain(evaluations=MORE, **changes), tmp_path / "planned", seeds, execution)
    run(plain(evaluations=end, **changes), tmp_path / "run", seeds, execution)
    before = files(tmp_path / "run")
    resume(tmp_path / "run", execution, evaluations=MORE)
    after, planned = files(tmp_path / "run"), files(tmp_path / "planned")
    along = {name for name in {*after, *planned} if "snapshots" in name}
    assert {name: after[name] for name in after if name not in along} == {
        name: planned[name] for name in planned if name not in along
    }
    assert all(after[name] == before.get(name, planned.get(name)) for name in along & set(after))
    made = {int(Path(name).stem) for name in along & set(after)}
    assert made == {20: {20, 77, 155}, CUT: {47, 95, 155}, WHOLE: {50, 100, 155}}[end]


@pytest.mark.slow
def test_any_run_of_a_group_extends_them_all(execution, tmp_path):
    """Also where they run one after the other."""
    changes = {"hyper_parameters": {"es": "separable"}, "task_parameters": {"episode_length": 6}}
    for evaluations, name in ((50, "planned"), (30, "run")):
        config = small("cma-map-elites", evaluations=evaluations, **changes)
        run(config, tmp_path / name, seeds=2, execution=execution)
    assert resume(tmp_path / "run" / "seed-1", execution, evaluations=50).folder.name == "seed-1"
    assert files(tmp_path / "run") == files(tmp_path / "planned")


def test_a_run_is_extended_before_its_end_and_after_it(execution, tmp_path):
    run(plain(evaluations=MORE), tmp_path / "planned", execution=execution)
    run(plain(), tmp_path / "run", execution=Execution(max_hours=1e-9, log=quiet))
    for evaluations in (WHOLE, MORE):
        assert resume(tmp_path / "run", execution, evaluations=evaluations).evaluations == evaluations
    assert files(tmp_path / "run") == files(tmp_path / "planned")


@pytest.mark.parametrize("keep", [True, False])
def test_a_run_stopped_in_its_last_correction_can_be_extended(keep, tmp_path):
    changes = {"correct_every": 70, "correct_replications": 2}
    messages, execution = [], Execution(checkpoint_seconds=0, log=quiet)

    def interrupt(report):
        if report.metrics["evaluations"] == CUT:
            os.kill(os.getpid(), signal.SIGINT)

    stopping = Execution(checkpoint_seconds=0, log=quiet, on_generation=interrupt, keep_state=keep)
    outcome = run(plain(**changes), tmp_path / "run", execution=stopping)
    assert (outcome.finished, outcome.evaluations) == (False, CUT)
    resume(tmp_path / "run", Execution(log=messages.append), evaluations=MORE)
    assert len(messages) == 1
    assert "cannot be used: it was written at the end of a run of 95 evaluations, so" in messages[0]
    run(plain(evaluations=MORE, **changes), tmp_path / "planned", execution=execution)
    assert files(tmp_path / "run") == files(tmp_path / "planned")


def test_without_a_kept_state_an_extension_is_refused(tmp_path):
    run(plain(), tmp_path / "run", execution=Execution(log=quiet, keep_state=False))
    before = everything(tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    with pytest.raises(ElitesError, match=r"no saved state to continue from .*; `elites run … --from .*run`"):
        resume(tmp_path / "run", evaluations=MORE)
    assert everything(tmp_path / "run") == before


def test_a_kept_state_can_be_removed(execution, tmp_path):
    run(plain(), tmp_path / "run", execution=execution)
    resume(tmp_path / "run", Execution(log=quiet))
    assert Checkpoints(tmp_path / "run" / "checkpoints").size() > 1000
    resume(tmp_path / "run", Execution(log=quiet, keep_state=False))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_budget_that_is_not_larger_is_reported_in_one_line(execution, tmp_path):
    run(plain(), tmp_path / "run", execution=execution)
    before, messages = everything(tmp_path / "run"), []
    with pytest.raises(ElitesError, match=r"evaluations is 94; it must be at least 95, the budget of .*run"):
        resume(tmp_path / "run", evaluations=CUT - 1)
    with pytest.raises(ElitesError, match="evaluations is 0; it must be from 1 to"):
        resume(tmp_path / "run", evaluations=0)
    assert resume(tmp_path / "run", Execution(log=messages.append), evaluations=CUT).finished
    assert messages == [f"{tmp_path / 'run'} is finished: 95 evaluations"]
    assert everything(tmp_path / "run") == before


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_killed_while_it_is_extended_continues(seeds, execution, tmp_path):
    """At every rename: of the records, of checkpoints, of archives."""
    run(plain(evaluations=MORE), tmp_path / "planned", seeds, execution)
    run(plain(), tmp_path / "run", seeds, execution)
    (tmp_path / "copies").mkdir()
    with copies_at_renames(tmp_path / "run", tmp_path / "copies") as copies:
        resume(tmp_path / "run", execution, evaluations=MORE)
    expected = files(tmp_path / "planned")
    assert len(copies) > 2 * seeds
    for number, folder in enumerate(copies):
        outcome = resume(folder, execution)
        assert outcome.finished
        assert outcome.evaluations == (MORE if number else CUT)  # before the first record nothing has changed
        if not number:
            resume(folder, execution, evaluations=MORE)
        assert files(folder) == expected
        assert {record(path.parent)["evaluations"] for path in folder.rglob("config.json")} == {MORE}


# From an archive


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run on a task without noise: an elite that is evaluated again has the same fitness."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tasks.TASKS, "point", POINT)
        folder = tmp_path_factory.mktemp("source") / "run"
        config = plain(evaluations=200, task_parameters={"noise": 0.0})
        run(config, folder, execution=Execution(log=quiet, keep_state=False))
    return folder


def started(name, source, **changes):
    """A run that begins with these elites, in several generations."""
    own = {"initial": 4} if "initial" in ALGORITHMS[name].Config.__dataclass_fields__ else {}
    own |= {"emitters": 1} if name == "cma-map-elites" else {}
    given = {"evaluations": 60, "task_parameters": {"noise": 0.0}, "start": str(source)}
    return small(name, **{**given, "hyper_parameters": own, **changes})


def test_a_run_begins_with_the_elites_of_another(source, tmp_path):
    before, messages = load_archive(source), []
    count = len(before.fitness)
    config = started("map-elites", source, evaluations=count, physics="xla", seed=7)
    run(config, tmp_path / "run", execution=Execution(log=messages.append))
    after = load_archive(tmp_path / "run")
    order, other = np.argsort(before.cell), np.argsort(after.cell)
    for name in ("cell", "fitness", "descriptor", "parameters"):
        np.testing.assert_array_equal(getattr(before, name)[order], getattr(after, name)[other])
    assert set(after.operator) == {"start"}
    assert (after.parents == -1).all()
    table = read_table(tmp_path / "run" / "metrics.csv")
    assert table["made_start"].sum() == count
    assert table["made_random"].sum() == 0
    assert record(tmp_path / "run")["start"] == {
        "archive": str(source),
        "elites": count,
        "digest": before.digest(),
    }
    assert f"{count} elites of " in show(tmp_path / "run")
    (line,) = (line for line in messages if "budget" in line)
    assert f"map-elites begins with {count} evaluations of {count} elites, and this run has {count}" in line


@pytest.mark.parametrize(
    ("name", "physics"),
    [
        ("map-elites", "native"),
        ("cma-map-elites", "xla"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (("pga-map-elites", "native"), ("pga-map-elites", "xla"), ("map-elites-es", "xla"))
        ),
    ],
)
def test_other_algorithms_can_start_from_the_archive(name, physics, source, tmp_path):
    """Stopped among its first elites, and resumed when their archive is gone, it ends with the same bits."""
    gone, each = shutil.copytree(source, tmp_path / "gone"), 3 if name == "map-elites-es" else 1
    config = started(name, gone, physics=physics, evaluations=60 * each)
    whole = run(config, tmp_path / "whole", seeds=2, execution=Execution(log=quiet))
    limited = Execution(max_hours=1e-9, log=quiet)
    stopped = run(config, tmp_path / "run", seeds=2, execution=limited)
    assert stopped.evaluations < each * config.start.elites
    shutil.rmtree(gone)
    assert resume(tmp_path / "run", Execution(log=quiet)).finished
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    for outcome in whole.runs:
        archive, table = load_archive(outcome.folder), read_table(outcome.folder / "metrics.csv")
        assert table["evaluations"][-1] == config.evaluations
        assert table["made_start"].sum() == config.start.elites
        assert table["made_start"][-1] == 0
        assert "start" in archive.operator
        lineage = load_lineage(outcome.folder)
        ends = {
            str(lineage.trace_first_parents(evaluation).operator[-1]) for evaluation in archive.evaluation
        }
        assert "start" in ends <= {"start", "cma", "greedy"}  # none is random


def test_elites_are_evaluated_on_another_task_with_its_own_seeds(tmp_path):
    def on(task, **changes):
        given = {"task": task, "task_parameters": {"episode_length": 30}, "evaluations": 60}
        return small("map-elites", **given, **changes)

    run(on("qd-deterministic-hopper"), tmp_path / "first", execution=Execution(log=quiet))
    run(on("qd-hopper", start=tmp_path / "first"), tmp_path / "second", execution=Execution(log=quiet))
    first, second = load_archive(tmp_path / "first"), load_archive(tmp_path / "second")
    assert len(set(first.fitness[:5]) & set(second.fitness)) == 0  # the joints begin elsewhere
    known = {row.tobytes() for row in first.parameters}
    same = [row.tobytes() in known for row in second.parameters]
    np.testing.assert_array_equal(same, second.operator == "start")
    assert any(same)


def test_an_archive_in_a_file_is_a_start_too_and_can_be_extended(source, execution, tmp_path):
    config = started("map-elites", source / "archive.npz")
    assert config.start.elites == len(load_archive(source).fitness)
    for evaluations, name in ((60, "planned"), (6, "run")):
        one = started("map-elites", source / "archive.npz", evaluations=evaluations)
        run(one, tmp_path / name, execution=execution)
    resume(tmp_path / "run", execution, evaluations=60)
    assert files(tmp_path / "run") == files(tmp_path / "planned")


def test_a_start_that_does_not_fit_is_refused_in_a_line(source, execution, tmp_path):
    def refuse(match, name="map-elites", **changes):
        with pytest.raises(ElitesError, match=match):
            run(started(name, source, **changes), tmp_path / "run", execution=execution)
        assert not (tmp_path / "run").exists()

    refuse(
        r"controllers of 3-8-2 units; the run on point has controllers of 3-8-8-2 units; --hidden 8 fits",
        hyper_parameters={"hidden": (8, 8)},
    )
    other = {"task": "qd-hopper", "task_parameters": {}}
    refuse("3-8-2 units; the run on qd-hopper has controllers of 15-8-3 units$", **other)
    refuse(r"td3 has no initial population that an archive could replace \(--from\)", name="td3")
    refuse("nowhere holds no run", start="nowhere")
    refuse("start is 3; it must be the folder of a run, or the file of an archive", start=3)
    refuse("start has no digest", start={"archive": "a", "elites": 3})
    run(plain(), tmp_path / "group", seeds=2, execution=execution)
    refuse("holds a group of runs; name one", start=tmp_path / "group")


def test_a_changed_start_archive_is_refused(source, execution, tmp_path):
    copy = shutil.copytree(source, tmp_path / "copy")
    config = started("map-elites", copy)
    other = plain(evaluations=60, seed=9, task_parameters={"noise": 0.0})
    run(other, tmp_path / "other", execution=execution)
    shutil.copy(tmp_path / "other" / "archive.npz", copy / "archive.npz")
    with pytest.raises(ElitesError, match="copy is not the archive that the run began with; it has changed"):
        run(config, tmp_path / "run", execution=execution)
    shutil.copy(source / "archive.npz", copy / "archive.npz")
    run(config, tmp_path / "run", execution=Execution(max_hours=1e-9, log=quiet))
    shutil.copy(tmp_path / "other" / "archive.npz", tmp_path / "run" / "start.npz")
    with pytest.raises(ElitesError, match=r"start\.npz is not the archive that the run began with"):
        resume(tmp_path / "run", execution)


def test_a_run_killed_before_the_copy_of_its_start_continues(source, execution, tmp_path):
    with copies_at_renames(tmp_path / "run", tmp_path) as copies:
        run(started("map-elites", source), tmp_path / "run", execution=execution)
    assert [(copies[1] / name).exists() for name in ("config.json", "start.npz")] == [True, False]
    resume(copies[1], execution)
    assert files(copies[1]) == files(tmp_path / "run")
    assert (copies[1] / "start.npz").read_bytes() == (tmp_path / "run" / "start.npz").read_bytes()


# Budgets that are too small


@pytest.mark.parametrize(
    ("name", "changes", "first"),
    [
        ("map-elites", {"initial": 30}, 30),
        ("map-elites-sampling", {"initial": 20, "samples": 3}, 60),
        ("map-elites-es", {"centre_samples": 3}, 3),
        ("cma-map-elites", {}, 0),
        ("td3", {"random_steps": 50, "evaluate_every": 2}, 25),
    ],
)
def test_an_algorithm_counts_its_opening_evaluations(name, changes, first):
    config = small(name, hyper_parameters=changes)
    assert make_algorithm(name, POINT, **config.hyper_parameters).opening_evaluations() == first


def test_a_budget_for_random_controllers_alone_is_reported(tmp_path):
    for evaluations in (20, 21):
        messages = []
        run(
            plain(evaluations=evaluations),
            tmp_path / str(evaluations),
            execution=Execution(log=messages.append),
        )
        assert [line for line in messages if "budget" in line] == [
            "the budget is spent before anything is varied or trained: map-elites begins with 20 evaluations "
            "of random controllers (--initial), and this run has 20"
        ] * (evaluations == 20)


# On the command line


@pytest.mark.usefixtures("undrawn")
def test_the_documented_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line.split()[1] for line in lines] == ["run", "resume", "run"]
    sizes = ["--initial", "20", "--batch", "20", "--hidden", "8", "--episode-length", "30"]
    learning = ["--critic-hidden", "8", "--training-batch", "8", "--critic-steps", "2", "--pg-steps", "2"]
    learning += ["--buffer-size", "3000"]
    for line in lines:
        _, *words = shlex.split(line.replace("2000", "40").replace("5000", "80"))
        more = [] if words[0] == "resume" else [*sizes, *(learning if "pga" in words[1] else [])]
        assert cli.main([*words, *more]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        folder = words[1] if words[0] == "resume" else words[-1]
        assert re.search(rf"`elites resume {folder} --evaluations N` continues .* takes [\d.]+ [kM]B", out)
    assert load_archive("runs/hopper").about["evaluations"] == 80
    assert "start" in load_archive("runs/more").operator
    assert cli.main(["resume", "runs/hopper", "--evaluations", "10"]) == 2
    assert "must be at least 80" in capsys.readouterr().err
    assert cli.main(["resume", "runs/hopper", "--no-keep-state"]) == 0
    assert "continues from here" not in capsys.readouterr().out

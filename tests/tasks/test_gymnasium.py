import math
import re
import subprocess
import sys

import numpy as np
import pytest

from elites import ElitesError, ProcessEvaluator, RunConfig, cli, gymnasium_task, make_task
from elites.evaluation.offset import with_measured_offset
from elites.tasks import list_parameters
from elites.tasks.gymnasium.simulator import GymnasiumSimulator
from tests import outside


def test_a_task_has_the_sizes_of_its_environment():
    task = make_task("gym:Pendulum-v1", descriptor="tests.outside:without_jax", descriptor_bounds=[(0, 1)])
    assert (task.observation_size, task.action_size, task.episode_length) == (3, 1, 200)
    assert (task.cells, task.grid, task.descriptor_bounds) == (1000, (1000,), ((0.0, 1.0),))
    assert math.isnan(task.qd_offset)  # until a run begins
    shorter = make_task("gym:Pendulum-v1", descriptor="tests.outside:without_jax", episode_length=50)
    assert shorter.episode_length == 50
    longer = make_task("gym:Pendulum-v1", descriptor="tests.outside:without_jax", episode_length=300)
    simulator = longer.make_simulator()
    outcome = simulator.run(np.zeros(4, np.float32), np.array([3, 1]), 0, np.zeros(1), None)
    simulator.close()
    assert outcome.length == 300


@pytest.mark.parametrize(("size", "cells"), [(1, 1000), (2, 1024), (3, 1000), (4, 1296), (8, 256)])
def test_the_default_archive_depends_on_the_number_of_dimensions(size, cells):
    made = make_task(
        "gym:x",
        descriptor="a:b",
        observation_size=3,
        action_size=2,
        descriptor_bounds=[(0, 1)] * size,
    )
    assert made.cells == cells
    assert len(made.grid) == made.descriptor_size == size


def _push(**changes):
    return gymnasium_task(
        outside.push, **{"descriptor": outside.place, "descriptor_bounds": outside.BOUNDS, **changes}
    )


def test_functions_are_known_by_their_import_path():
    task = _push()
    assert task.name == "gym:tests.outside:push"
    assert task.descriptor == "tests.outside:place"
    assert task.episode_length == 1000
    again = make_task(task.name, **list_parameters(task))
    assert {**list_parameters(again), "qd_offset": 0} == {**list_parameters(task), "qd_offset": 0}
    assert gymnasium_task(outside.Push, descriptor=outside.up).environment == "tests.outside:Push"


def test_equal_tasks_have_equal_hashes():
    """So that their runs share programs."""
    tasks = [_push(environment_options=options, qd_offset=-1.0) for options in ({}, {}, {"trouble": "raise"})]
    assert tasks[0] == tasks[1] != tasks[2]
    assert hash(tasks[0]) == hash(tasks[1])
    assert len(set(tasks)) == 2
    assert _push(qd_offset=-1.0, patience=5.0) not in tasks


def test_actions_are_mapped_to_the_environments_bounds():
    simulator = GymnasiumSimulator(_push())
    outputs = np.array([[-1, -1], [0, 0], [1, 1], [0.5, -0.5]], np.float32)
    actions = np.array([simulator._scaled(output) for output in outputs])
    np.testing.assert_allclose(actions, [[-1, 2], [1, 2.25], [3, 2.5], [2, 2.125]], rtol=1e-6)
    assert all(outside.push().action_space.contains(action) for action in actions)


def test_an_episode_can_be_stepped_through():
    """What TD3 acts in is the evaluators' episode."""
    simulator = GymnasiumSimulator(_push(environment_options={"trouble": "cut"}))
    environment = outside.push(trouble="cut")
    expected, _ = environment.reset(seed=9)
    np.testing.assert_array_equal(simulator.begin(9), expected.astype(np.float32))
    for step in range(7):
        output = np.array([0.3, -0.2], np.float32)
        expected, reward, terminated, truncated, _ = environment.step(simulator._scaled(output))
        observation, *rest = simulator.advance(output)
        np.testing.assert_array_equal(observation, expected.astype(np.float32))
        assert rest == [reward, terminated]
        assert simulator.truncated == truncated == (step == 6)


def test_the_worst_of_random_controllers_is_the_offset_unless_one_is_given():
    task = _push(episode_length=5)
    measured = with_measured_offset(task)
    assert measured.qd_offset == math.floor(measured.qd_offset)
    assert -5 * 3 <= measured.qd_offset < 0
    assert "the worst fitness of 50 random controllers" in measured.qd_offset_from
    given = _push(episode_length=5, qd_offset=-7)
    assert with_measured_offset(given) is given
    assert (given.qd_offset, given.qd_offset_from) == (-7, "given")


def test_a_task_can_be_given_to_a_run():
    config = RunConfig(algorithm="map-elites", task=_push(qd_offset=-3.0, episode_length=5))
    assert config.task == "gym:tests.outside:push"
    assert config.record()["task_parameters"]["descriptor"] == "tests.outside:place"
    assert config.make_task().qd_offset == -3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"descriptor": None}, "gym:tests.outside:push needs a descriptor: --descriptor module:function"),
        ({"descriptor": "tests.outside"}, "descriptor is 'tests.outside'; it must be module:function"),
        ({"descriptor": "tests.outsize:up"}, "No module named 'tests.outsize' (searched in sys.path and"),
        ({"descriptor": "tests.outside:upp"}, "has no function 'upp'; its functions are push, odd"),
        (
            {"descriptor": outside.beyond},
            "the descriptor is [0.5, 1.5]; without descriptor_bounds it must be",
        ),
        ({"descriptor": outside.vague}, "the descriptor is [0.5, nan]; without descriptor_bounds it must be"),
        ({"descriptor": outside.words}, "the descriptor is 'far to the left'; it must be numbers"),
        (
            {"descriptor": outside.beyond, "descriptor_bounds": outside.BOUNDS[:1]},
            "the descriptor is [0.5, 1.5]; it must be 1 number",
        ),
        (
            {"descriptor": outside.vague, "descriptor_bounds": outside.BOUNDS},
            "the descriptor is [0.5, nan]; its bounds are -3 to 3, -3 to 3 (descriptor_bounds)",
        ),
        ({"descriptor_bounds": [(1, 0)]}, "descriptor_bounds is (1.0, 0.0); it must be finite"),
        ({"descriptor_bounds": [(1, 0, 2)]}, "it must be pairs of a lowest and a highest value"),
        ({"descriptor_names": ["one", "two"]}, "it must be as many as there are bounds: 1"),
        ({"environment_options": {"trouble": outside.up}}, "it must be a dict that can be written as JSON"),
        ({"environment_options": {"wings": 2}}, "could not be made: TypeError: Push.__init__() got an"),
        ({"episode_length": 0}, "episode_length is 0; it must be from 1 to"),
        ({"patience": 0}, "patience is 0; it must be above 0"),
        ({"wings": 2}, "gym:tests.outside:push has no parameter 'wings'; it has"),
        ({"environment": "Pendulun-v1"}, "unknown environment 'Pendulun-v1'; did you mean Pendulum-v1 or "),
        ({"environment": "Maze-v0"}, "If a module of yours registers it, give gym:module:Maze-v0"),
        ({"environment": "tests.outside:Maze-v0"}, "unknown environment 'tests.outside:Maze-v0'; "),
        ({"environment": "CartPole-v1"}, "gym:CartPole-v1 takes actions Discrete(2); they must be a vector"),
        ({"environment": outside.nothing}, "tests.outside:nothing makes a int; it must make a gymnasium.Env"),
        ({"environment": "tests.outside:pull"}, "has no function 'pull'; its functions are push"),
        (
            {"environment": outside.odd, "environment_options": {"observes": "dict"}},
            "has observations Dict('a': Box(-1.0, 1.0, (2,), float32)); they must be a vector (gymnasium",
        ),
        (
            {"environment": outside.odd, "environment_options": {"observes": "image"}},
            "has observations Box(8, 8, 3) of uint8; they must be a vector",
        ),
        (
            {"environment": outside.odd, "environment_options": {"takes": "unbounded"}},
            "takes actions from [-inf -inf] to [inf inf]; the bounds must be finite",
        ),
        (
            {"environment": outside.odd, "environment_options": {"takes": "matrix"}},
            "takes actions Box(2, 2) of float32; they must be a vector of continuous numbers",
        ),
    ],
)
def test_invalid_tasks_are_refused_before_anything_runs(changes, message):
    given = {"environment": outside.push, "descriptor": outside.up, **changes}
    with pytest.raises(ElitesError) as error:
        gymnasium_task(given.pop("environment"), **given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_descriptor_that_leaves_its_bounds_later_ends_the_first_evaluation(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["--descriptor", "tests.outside:late", "--qd-offset", "0", "--initial", "10", "--batch", "10"]
    assert cli.main(["run", "map-elites", "gym:Pendulum-v1", *arguments, "--out", str(out)]) == 2
    message = capsys.readouterr().err.splitlines()
    assert len(message) == 1
    assert "gym:Pendulum-v1: the episode with seed" in message[0]
    assert "the descriptor is [2.0]; its bounds are 0 to 1 (descriptor_bounds)" in message[0]


def test_a_descriptor_is_probed_with_a_whole_episode():
    """What a descriptor finds in every whole episode, it finds in that one."""
    task = gymnasium_task(outside.push, descriptor=outside.end, episode_length=30, qd_offset=0.0)
    assert task.descriptor_size == 1


def test_an_id_can_name_the_module_that_registers_it():
    task = make_task("gym:tests.outside:outside/Push-v0", descriptor="tests.outside:up")
    assert task.episode_length == 12


MAZE = """
import gymnasium
from tests.outside import Push

gymnasium.register("PointMaze-v0", entry_point="maze:Push", max_episode_steps=6)

def final_position(episode):
    return abs(episode.observations[-1, 0]) % 1
"""


def test_the_module_of_the_descriptor_can_register_the_id(tmp_path, monkeypatch):
    (tmp_path / "maze.py").write_text(MAZE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    given = {"descriptor": "maze:final_position", "qd_offset": 0.0}
    task = make_task("gym:PointMaze-v0", **given)
    assert task.episode_length == 6
    with ProcessEvaluator(task, hidden=(), processes=1) as evaluator:
        evaluation = evaluator.evaluate(np.zeros((1, 8)), [0])
    assert evaluation.length == [6]
    simulator = task.make_stepper()
    np.testing.assert_allclose(simulator.begin(3), outside.push().reset(seed=3)[0], rtol=1e-6)
    simulator.close()
    assert make_task("gym:maze:PointMaze-v0", **given).episode_length == 6
    with pytest.raises(
        ElitesError, match=r"unknown environment 'maze:PointMaze-v7'; did you mean PointMaze-v0"
    ):
        make_task("gym:maze:PointMaze-v7", **given)


SCRIPT = """
import elites
import gymnasium

def make():
    return gymnasium.make("Pendulum-v1")

def describe(episode):
    return abs(episode.observations[:, 0]).mean()

{guard}
    task = elites.gymnasium_task(make, descriptor=describe, episode_length=10)
    import numpy as np
    with elites.ProcessEvaluator(task, hidden=(), processes=1) as evaluator:
        print(task.name, evaluator.evaluate(np.zeros((2, 4)), [0, 1]).length)
"""


@pytest.mark.parametrize(
    ("guarded", "how"), [(True, ["mine.py"]), (True, ["-m", "mine"]), (False, ["mine.py"])]
)
def test_one_script_can_define_everything_if_it_is_guarded(guarded, how, tmp_path):
    script = SCRIPT.format(guard='if __name__ == "__main__":' if guarded else "if True:")
    (tmp_path / "mine.py").write_text(script)
    done = subprocess.run([sys.executable, *how], capture_output=True, text=True, cwd=tmp_path)
    if guarded:
        assert done.stdout == "gym:mine:make [10 10]\n", done.stderr
    else:
        assert done.returncode == 1
        assert 'only below `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


def test_a_program_without_a_file_can_define_everything(tmp_path):
    script = SCRIPT.format(guard="if True:")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert re.fullmatch(r"gym:in-memory:make-[0-9a-f]{8} \[10 10\]\n", done.stdout), done.stderr

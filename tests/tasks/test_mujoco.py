"""Our MuJoCo tasks against Gymnasium's own environments, and the promises of the evaluator on them."""

import inspect
import re
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from elites import ElitesError, ThreadEvaluator, make_task
from elites.tasks.episode import Ending
from elites.tasks.mujoco import TASKS, interface, library
from elites.tasks.mujoco.simulator import MujocoSimulator
from tests.conftest import controllers

gymnasium = pytest.importorskip("gymnasium")
mujoco = pytest.importorskip("mujoco")
structs = pytest.importorskip("mujoco.introspect.structs")
ROBOTS = {
    "walker2d": "Walker2d-v5",
    "halfcheetah": "HalfCheetah-v5",
    "ant": "Ant-v5",
    "hopper": "Hopper-v5",
    "humanoid": "Humanoid-v5",
    "swimmer": "Swimmer-v5",
}
COMMON = {
    "frame_skip": 3,
    "forward_reward_weight": -2.0,
    "ctrl_cost_weight": 0.7,
    "reset_noise_scale": 0.02,
    "exclude_current_positions_from_observation": False,
}
OPTIONS = {
    "walker2d": {"healthy_reward": 3.0, "healthy_z_range": (1.235, 1.3)},
    "halfcheetah": {},
    "ant": {
        "healthy_reward": 3.0,
        "healthy_z_range": (0.3, 0.7),
        "contact_force_range": (-0.2, 0.3),
        "contact_cost_weight": 0.2,
        "main_body": "aux_1",
    },
    "hopper": {
        "healthy_reward": 3.0,
        "healthy_state_range": (-2.0, 2.0),
        "healthy_z_range": (1.235, 1.3),
    },
    "humanoid": {
        "healthy_reward": 3.0,
        "healthy_z_range": (1.2, 1.6),
        "contact_cost_weight": 1e-6,
        "contact_cost_range": (1e-4, 2e-4),
        "include_cinert_in_observation": False,
        "include_cfrc_ext_in_observation": False,
    },
    "swimmer": {},
}
FURTHER = {
    "walker2d": {"terminate_when_unhealthy": False, "healthy_angle_range": (-0.1, 0.1)},
    "halfcheetah": {},
    "ant": {
        "healthy_z_range": (0.6, 0.8),
        "terminate_when_unhealthy": False,
        "include_cfrc_ext_in_observation": False,
        "main_body": 4,
    },
    "hopper": {"terminate_when_unhealthy": False, "healthy_angle_range": (-0.1, 0.1)},
    "humanoid": {
        "terminate_when_unhealthy": False,
        "include_cvel_in_observation": False,
        "include_qfrc_actuator_in_observation": False,
    },
    "swimmer": {},
}  # with another model, each


def stock(robot, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's own
        return gymnasium.make(ROBOTS[robot], **options).unwrapped


def compare(theirs, ours, seed, steps=1000, past_the_end=False):
    """Compares a whole episode bit by bit. Returns its length."""
    actions = np.random.default_rng(seed)
    expected, _ = theirs.reset(seed=seed)
    np.testing.assert_array_equal(ours.reset(*ours.draw_initial_state(np.random.default_rng(seed))), expected)
    space, length = theirs.action_space, 0
    while length < steps:
        length += 1
        action = actions.uniform(space.low, space.high).astype(np.float32) * np.float32(0.7)
        expected, expected_reward, expected_end, _, _ = theirs.step(action)
        observation, reward, ended = ours.step(action)
        np.testing.assert_array_equal(observation, expected)
        assert reward == expected_reward
        assert ended == expected_end
        touching = {geom for pair in theirs.data.contact.geom if 0 in pair for geom in pair}
        feet = [theirs.model.geom(geom).id in touching for geom, _ in ours.task.robot.feet]
        np.testing.assert_array_equal(ours.contacts, feet)  # the floor is geom 0 of all models
        if ended and not past_the_end:
            break
    return length


@pytest.mark.parametrize("robot", ROBOTS)
def test_whole_episodes_have_the_bits_of_gymnasium(robot):
    theirs, ours = stock(robot), MujocoSimulator(make_task(f"mujoco-{robot}"))
    lengths = [compare(theirs, ours, seed) for seed in range(10)]
    assert sum(lengths) > 150
    assert compare(theirs, ours, 11, steps=200, past_the_end=True) == 200


@pytest.mark.parametrize("robot", ROBOTS)
def test_every_option_equals_that_of_gymnasium(robot, tmp_path):
    model = library.model_path(make_task(f"mujoco-{robot}").model).read_text()
    other = tmp_path / "other.xml"
    other.write_text(re.sub(r' timestep="[\d.]+"', ' timestep="0.004"', model))
    cases = COMMON | OPTIONS[robot], FURTHER[robot] | {"xml_file": str(other)}
    for options in cases:
        theirs, ours = stock(robot, **options), MujocoSimulator(make_task(f"mujoco-{robot}", **options))
        assert ours.task.observation_size == theirs.observation_space.shape[0]
        for seed in range(2):
            compare(theirs, ours, seed, steps=100, past_the_end=True)
    allowed = inspect.signature(type(theirs)).parameters
    tried = {name for options in cases for name, value in options.items() if value != allowed[name].default}
    assert allowed.keys() - tried == {"default_camera_config", "kwargs"}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_sizes_are_those_of_the_model(task):
    model = MujocoSimulator(task).model
    sizes = task.robot.sizes
    assert sizes == (model.nq, model.nv, model.nbody, model.nu)
    names = [model.geom(geom).name for geom, _ in task.robot.feet]
    assert len(names) == len(task.robot.feet)


def test_the_documentation_has_the_archives_and_offsets_of_the_tasks():
    page = (Path(__file__).parents[2] / "docs" / "mujoco.md").read_text()
    rows = [re.split(r" *\| *", line)[1:-1] for line in page.splitlines() if line.startswith("| `mujoco-")]
    documented = {row[0].strip("`"): (row[3], row[4], row[5].replace(",", "")) for row in rows}
    assert documented == {
        task.name: (str(task.cells), " x ".join(map(str, task.grid)), f"{task.qd_offset:.0f}")
        for task in TASKS
        if "deterministic" not in task.name
    }


def test_a_deterministic_task_starts_the_same_with_every_seed():
    simulator = MujocoSimulator(make_task("mujoco-deterministic-ant"))
    np.testing.assert_array_equal(simulator.begin(1), simulator.begin(2))
    uncertain = MujocoSimulator(make_task("mujoco-ant"))
    assert (uncertain.begin(1) != uncertain.begin(2)).any()


@pytest.mark.parametrize("robot", ["walker2d", "ant", "swimmer", "ant-trap"])
def test_any_number_of_threads_and_any_order_give_the_same_bits(robot):
    task = make_task(f"mujoco-{robot}", episode_length=100)
    parameters, seeds = controllers(task, 8), np.arange(8)
    with ThreadEvaluator(task, threads=1) as one, ThreadEvaluator(task, threads=3) as three:
        expected = one.evaluate(parameters, seeds, transitions=True)
        again = three.evaluate(parameters, seeds, transitions=True)
        back = three.evaluate(parameters[::-1], seeds[::-1])
    for name in ("fitness", "descriptor", "length", "ending"):
        np.testing.assert_array_equal(getattr(again, name), getattr(expected, name))
        np.testing.assert_array_equal(getattr(back, name)[::-1], getattr(expected, name))
    for first, second in zip(again.transitions, expected.transitions, strict=True):
        np.testing.assert_array_equal(first, second)
    assert expected.transitions.observations.any()


@pytest.mark.parametrize("descriptor", ["feet", "position", "velocity"])
def test_an_episode_is_the_steps_of_its_controller(descriptor):
    """The compiled loop against `step`, with the recorded actions."""
    task = make_task("mujoco-ant", descriptor=descriptor, episode_length=60)
    assert len(task.grid) == task.descriptor_size == (4 if descriptor == "feet" else 2)
    with ThreadEvaluator(task, threads=1) as evaluator:
        evaluation = evaluator.evaluate(controllers(task, 2), [3, 4], transitions=True)
    simulator = MujocoSimulator(task)
    for episode, seed in enumerate((3, 4)):
        record = type(evaluation.transitions)(*(array[episode] for array in evaluation.transitions))
        length = evaluation.length[episode]
        start = simulator.begin(seed)
        np.testing.assert_array_equal(record.observations[0], start)
        rewards, described, places = [], [], []
        for step in range(length):
            observation, reward, ended = simulator.advance(record.actions[step])
            np.testing.assert_array_equal(observation, record.observations[step + 1])
            assert ended == (step + 1 == length and evaluation.ending[episode] == Ending.TERMINATED)
            rewards.append(reward)
            described.append(simulator.step_descriptor)
            places.append(simulator.data.body("torso").xpos[:2].copy())
        assert np.float32(np.cumsum(rewards)[-1]) == evaluation.fitness[episode]
        expected = places[-1] if descriptor == "position" else np.mean(described, 0)
        np.testing.assert_allclose(evaluation.descriptor[episode], expected, rtol=1e-6)
        if descriptor == "velocity":
            np.testing.assert_allclose(described[-1], (places[-1] - places[-2]) / 0.05, rtol=1e-9)


def test_the_timers_of_mujoco_are_off():
    simulator = MujocoSimulator(make_task("mujoco-hopper"))
    simulator.begin(0)
    simulator.advance(np.zeros(3, np.float32))
    assert not any(timer.duration for timer in simulator.data.timer)


def test_controls_fill_the_range_of_the_actuators():
    simulator = MujocoSimulator(make_task("mujoco-humanoid"))
    simulator.begin(0)
    simulator.advance(np.full(17, -1, np.float32))
    np.testing.assert_allclose(simulator.data.ctrl, -0.4, rtol=1e-6)


def test_states_that_are_not_finite_are_counted_and_nothing_is_printed(tmp_path):
    """Also if the tasks are loaded while an environment is made, and after another one is made."""
    program = """
        import mujoco, numpy as np
        from elites import ThreadEvaluator, make_task
        from elites.tasks.gymnasium.simulator import inspect_environment
        from elites.tasks.mujoco.library import quiet_mujoco
        from elites.policies import parameter_count
        task = make_task("mujoco-humanoid", noise=1000.0)
        with quiet_mujoco():
            evaluator = ThreadEvaluator(task, threads=2)
        with evaluator:
            zeros = np.zeros((4, parameter_count(evaluator.sizes)))
            print(evaluator.evaluate(zeros, range(4)).invalid)
            inspect_environment("hopper", "Hopper-v5", {"descriptor": "builtins:callable"})
            print(evaluator.evaluate(zeros, range(4)).invalid)
        with ThreadEvaluator(make_task("mujoco-humanoid"), threads=1) as evaluator:
            print(evaluator.evaluate(zeros, range(4)).invalid)
            zeros[1] = np.nan
            print(evaluator.evaluate(zeros, range(4)).invalid)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.split() == ["4", "4", "0", "1"]
    assert not done.stderr
    assert not list(tmp_path.iterdir())  # MuJoCo writes MUJOCO_LOG.TXT


def test_warnings_are_handled_the_same_after_brax_has_made_an_environment():
    from elites.tasks.brax import simulation

    handler = mujoco.get_mju_user_warning()
    with simulation._quiet():
        assert mujoco.get_mju_user_warning() is not handler
    assert mujoco.get_mju_user_warning() is handler is interface._keep_quiet.ctypes


def test_the_trap_is_between_the_ant_and_the_goal():
    """Thrown towards the goal, it hits a wall; the rewards add up to the way that it has come closer."""
    task = make_task("mujoco-ant-trap", healthy_reward=0.0, contact_cost_weight=0.0)
    (rewards, trapped), (_, free) = _thrown(task), _thrown(make_task("mujoco-ant"))
    assert trapped[:, 0].max() < task.walls[0][0] < free[:, 0].max()
    x, y = trapped[-1]
    came = task.goal[0] - np.hypot(task.goal[0] - x, task.goal[1] - y)
    np.testing.assert_allclose(np.sum(rewards) * 0.05, came, atol=1e-9)


def _thrown(task):
    """The rewards and positions of an ant that is thrown forwards."""
    simulator = MujocoSimulator(task)
    simulator.reset(simulator.data.qpos.copy(), np.r_[30.0, np.zeros(13)])
    steps = [
        (simulator.step(np.zeros(8, np.float32))[1], simulator.data.body("torso").xpos[:2].copy())
        for _ in range(50)
    ]
    rewards, places = zip(*steps, strict=True)
    return rewards, np.array(places)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("mujoco-walker2d", {"healthy_reward": "much"}, "healthy_reward is 'much'; it must be a number"),
        ("mujoco-walker2d", {"main_body": "torso"}, "mujoco-walker2d has no parameter 'main_body'"),
        ("mujoco-walker2d", {"descriptor": "colour"}, "descriptor is 'colour'; it must be one of feet,"),
        ("mujoco-swimmer", {"descriptor": "feet"}, "this robot has none"),
        ("mujoco-ant", {"xml_file": "nowhere.xml"}, "nowhere.xml is not a file"),
        ("mujoco-ant", {"noise": -1.0}, "noise is -1.0; it must be from 0"),
        (
            "mujoco-ant",
            {"noise": 0.1, "environment_options": {"reset_noise_scale": 0.1}},
            "noise is given twice: reset_noise_scale is another name",
        ),
        ("mujoco-ant", {"main_body": 1.5}, "main_body is 1.5; it must be a whole number or text"),
        ("mujoco-ant", {"main_body": -1}, "main_body is -1; it must be from 0 to"),
        ("mujoco-hopper", {"healthy_z_range": (0.7, float("inf"))}, "healthy_z_range is inf"),
    ],
)
def test_wrong_parameters_are_refused(name, parameters, message):
    with pytest.raises(ElitesError, match=message):
        make_task(name, **parameters)


def test_another_model_has_other_sizes_and_must_have_the_feet(tmp_path):
    hopper = library.model_path("hopper.xml").read_text()
    other = tmp_path / "hopper.xml"
    other.write_text(hopper.replace("foot_geom", "heel"))
    task = make_task("mujoco-hopper", xml_file=str(other))
    with pytest.raises(ElitesError, match="the model of mujoco-hopper has no geom or body 'foot_geom'"):
        task.make_simulator()
    with pytest.raises(ElitesError, match="the model of mujoco-ant has no body 14; its bodies with names"):
        make_task("mujoco-ant", main_body=14).make_simulator()
    assert make_task("mujoco-hopper", xml_file="ant.xml").action_size == 8
    (tmp_path / "broken.xml").write_text("<mujoco><worldbody></mujoco>")
    with pytest.raises(ElitesError, match="MuJoCo cannot read"):
        make_task("mujoco-hopper", xml_file=str(tmp_path / "broken.xml"))


@pytest.fixture
def layout():
    library.read_checked_layout.cache_clear()
    right = library.read_layout()
    yield right
    library.read_checked_layout.cache_clear()
    assert library.read_checked_layout() == right


@pytest.mark.parametrize(
    ("field", "by", "message"),
    [
        ("time", 8, "time is"),
        ("contact_count", 4, "ncon is"),
        ("contacts", 8, "contacts are"),
        ("geom", 4, "contacts are"),
        ("other_geom", 4, "contacts are"),
        ("exclude", -4, "contacts are"),
        ("itemsize", 8, "contacts are"),
    ],
)
def test_a_version_with_other_structs_is_refused(field, by, message, layout, monkeypatch):
    if field in layout._fields:
        wrong = layout._replace(**{field: getattr(layout, field) + by})
    else:
        wrong = layout._replace(contact=_moved(layout.contact, field, by))
    monkeypatch.setattr(library, "read_layout", lambda: wrong)
    with pytest.raises(ElitesError, match=rf"mujoco [\d.]+ cannot be used: {message} at another place;"):
        library.read_checked_layout()


def _moved(contact, field, by):
    """The dtype of a contact with one field at another place, or with another size."""
    fields = contact.fields
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [offset + by * (name == field) for name, (_, offset) in fields.items()],
            "itemsize": contact.itemsize + by * (field == "itemsize"),
        }
    )


@pytest.mark.parametrize("lacks", ["module", "names", "struct", "field", "type"])
def test_structs_that_are_described_in_another_way_are_refused(lacks, layout, monkeypatch):
    contact = structs.STRUCTS["mjContact"]
    if lacks == "module":
        monkeypatch.setitem(sys.modules, structs.__name__, None)
    elif lacks == "names":
        monkeypatch.setattr(structs, "STRUCTS", list(structs.STRUCTS.values()))
    elif lacks == "struct":
        monkeypatch.delitem(structs.STRUCTS, "mjContact")
    else:
        others = [member for member in contact.fields if member.name != "geom"]
        others += [SimpleNamespace(name="geom", type=None)] * (lacks == "type")
        monkeypatch.setitem(structs.STRUCTS, "mjContact", SimpleNamespace(fields=others))
    with pytest.raises(ElitesError, match=r"cannot be used: its structs are described in another way \("):
        library.read_checked_layout()


def test_without_the_package_the_tasks_say_so(monkeypatch):
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    assert "install elites[mujoco]" in make_task("mujoco-ant").unavailable_reason()

"""Whatever an environment does, the process that asks for it goes on, and says in one line what happened."""

import os
import subprocess
import time

import numpy as np
import pytest

from elites import ElitesError, gymnasium_task
from elites.evaluation.environment import StatelessSimulator
from elites.tasks.gymnasium.simulator import GymnasiumSimulator
from tests import outside


def children():
    listed = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True)
    return {line for line in listed.stdout.splitlines() if not line.endswith(b" ps")}


@pytest.fixture(autouse=True)
def _leaves_no_children():
    """Those of tests before it, in the same process, do not count."""
    before = children()
    yield
    assert children() <= before


@pytest.mark.parametrize(
    ("where", "how", "message"),
    [
        ("constructor", "sleep", "its first episode made no progress for 0.5 s (patience)"),
        ("constructor", "exit", "tests.outside:troubled could not be made: SystemExit: 3"),
        ("constructor", "vanish", "its first episode failed: its process ended with status 0"),
        ("reset", "exit", "the episode with seed 0 failed: SystemExit: 3"),
        ("step", "sleep", "its first episode made no progress for 0.5 s (patience)"),
        ("step", "vanish", "its first episode failed: its process ended with status 0"),
        ("close", "raise", "its first episode failed: RuntimeError: bad luck"),
        ("close", "exit", "its first episode failed: SystemExit: 3"),
    ],
)
def test_a_first_episode_that_hangs_gets_one_line(where, how, message):
    options, started = {"where": where, "how": how}, time.monotonic()
    with pytest.raises(ElitesError) as error:
        gymnasium_task(outside.troubled, descriptor=outside.up, environment_options=options, patience=0.5)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (outside.sleeping, "made no progress for 0.5 s"),
        (outside.vanishing, "ended with status 0"),
        (outside.many, "descriptor_names is 200 values; it must be from 1 to 20 values"),
    ],
)
def test_a_descriptor_that_hangs_gets_one_line(descriptor, message):
    with pytest.raises(ElitesError, match=message):
        gymnasium_task(outside.push, descriptor=descriptor, patience=0.5, episode_length=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import time; time.sleep(600)", "made no progress for 0.5 s"),
        ("import os; os._exit(0)", "ended with status 0"),
        ("import sys; sys.exit(0)", "importing trouble failed: SystemExit: 0"),
    ],
)
def test_an_import_that_hangs_gets_one_line(text, message, tmp_path, monkeypatch):
    (tmp_path / "trouble.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ElitesError, match=message):
        gymnasium_task("trouble:make", descriptor="tests.outside:up", patience=0.5)


def test_steps_in_a_separate_process_are_the_same():
    task = gymnasium_task(outside.push, descriptor=outside.up, episode_length=20, qd_offset=0.0)
    far, near = StatelessSimulator(task.make_stepper), GymnasiumSimulator(task)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)
    np.testing.assert_array_equal(far.begin(7), near.begin(7))
    for count, action in enumerate(actions):
        observation, reward, terminated, _ = far.step(7, count, actions, action)
        same, same_reward, same_end = near.advance(action)
        np.testing.assert_array_equal(observation, same)
        assert (reward, terminated) == (np.float32(same_reward), same_end)
    far._simulator.close()

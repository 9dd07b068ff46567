"""Rollouts inside one program, on a toy task whose every step can be done by hand."""

import dataclasses

import jax
import numpy as np
import pytest

from elites import ElitesError
from elites.evaluation.device import LOOK_EVERY, DeviceEvaluator
from elites.policies import Policy
from elites.tasks.episode import Ending
from tests.toy import POINT

POLICY = Policy.of(POINT, (4,))


def controllers(count):
    return np.asarray(jax.vmap(POLICY.init)(jax.random.split(jax.random.key(1), count)))


def by_hand(task, parameters, seed):
    """(rewards, contacts, observations, ending) of an episode, step by step."""
    state, observation = task.reset(np.uint32(seed))
    rewards, contacts, observations = [], [], [np.asarray(observation)]
    for _ in range(task.episode_length):
        after = task.step(state, POLICY.apply(parameters, observation))
        state, observation = after.state, after.observation
        rewards.append(float(after.reward))
        contacts.append(np.asarray(after.contacts))
        observations.append(np.asarray(observation))
        if after.terminated:
            return rewards, contacts, observations, Ending.TERMINATED
    return rewards, contacts, observations, Ending.TRUNCATED


@pytest.mark.parametrize("steps", [1, 12, LOOK_EVERY, LOOK_EVERY + 13])
def test_episodes_are_those_done_step_by_step(steps):
    task = dataclasses.replace(POINT, episode_length=steps)
    parameters, seeds = controllers(6), np.arange(6)
    found = DeviceEvaluator(task, hidden=(4,)).evaluate(parameters, seeds, transitions=True)
    endings = set()
    for index in range(len(seeds)):
        rewards, contacts, observations, ending = by_hand(task, parameters[index], seeds[index])
        length = len(rewards)
        endings.add(ending)
        assert found.length[index] == length
        assert found.ending[index] == ending
        assert found.fitness[index] == pytest.approx(sum(rewards), abs=1e-4)
        np.testing.assert_allclose(found.descriptor[index], np.mean(contacts, axis=0), atol=1e-6)
        steps_of = found.transitions
        np.testing.assert_allclose(steps_of.rewards[index, :length], rewards, atol=1e-5)
        np.testing.assert_allclose(steps_of.observations[index, : length + 1], observations, atol=1e-5)
        np.testing.assert_array_equal(steps_of.contacts[index, :length], contacts)
        # Nothing of what a program computed after the end of the episode is there.
        assert not steps_of.rewards[index, length:].any()
        assert not steps_of.actions[index, length:].any()
        assert not steps_of.contacts[index, length:].any()
        assert not steps_of.observations[index, length + 1 :].any()
    if steps > 12:
        assert endings == {Ending.TERMINATED, Ending.TRUNCATED}


def test_chunks_and_several_episodes_change_nothing():
    parameters, seeds = controllers(5), np.arange(15).reshape(5, 3)
    whole = DeviceEvaluator(POINT, hidden=(4,)).evaluate(parameters, seeds, transitions=True)
    parts = DeviceEvaluator(POINT, hidden=(4,), chunk=2).evaluate(parameters, seeds, transitions=True)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), whole, parts)
    single = DeviceEvaluator(POINT, hidden=(4,)).evaluate(np.repeat(parameters, 3, 0), seeds.ravel())
    np.testing.assert_allclose(single.fitness.reshape(5, 3), whole.fitness, atol=1e-6)


def test_the_limit_skips_and_tells():
    told = []
    found = DeviceEvaluator(POINT, hidden=(4,), chunk=2).evaluate(
        controllers(5), np.arange(5), limit=3, on_episode=told.append
    )
    np.testing.assert_array_equal(found.ending == Ending.SKIPPED, [False, False, False, True, True])
    np.testing.assert_array_equal(np.isnan(found.fitness), found.ending == Ending.SKIPPED)
    assert told == found.length[:3].tolist()


def test_nan_is_told_and_ends_only_its_own_episode():
    task = dataclasses.replace(POINT, noise=30.0)  # some start where the reward is NaN
    found = DeviceEvaluator(task, hidden=(4,)).evaluate(controllers(1).repeat(40, 0), np.arange(40))
    invalid = found.ending == Ending.INVALID
    assert 0 < found.invalid == invalid.sum() < 40
    assert np.isnan(found.fitness[invalid]).all()
    assert np.isfinite(found.fitness[~invalid]).all()


def test_wrong_controllers_are_told():
    with pytest.raises(ElitesError, match=r"controllers are \[2, 3\]; they must be \[2, 26\]"):
        DeviceEvaluator(POINT, hidden=(4,)).evaluate(np.zeros((2, 3)), np.arange(2))

"""Rollouts inside one program, on a toy task whose every step can be done by hand."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import ElitesError
from elites.evaluation.device import CHECK_EVERY, DeviceEvaluator
from elites.evaluation.function import FunctionEvaluator
from elites.policies import Policy
from elites.tasks.episode import Ending
from elites.tasks.function import function_task
from tests.toy import POINT, PointTask

POLICY = Policy.for_task(POINT, (4,))
SPHERE = function_task(
    lambda vectors: (-(vectors**2).sum(1), vectors[:, :1]),
    "sphere",
    parameters=5,
    descriptor_bounds=[(-1, 1)],
)


def controllers(count):
    return np.asarray(jax.vmap(POLICY.init)(jax.random.split(jax.random.key(1), count)))


def by_hand(task, parameters, seed):
    """(rewards, described, observations, ending) of an episode, step by step."""
    state, observation = task.reset(np.uint32(seed))
    rewards, described, observations = [], [], [np.asarray(observation)]
    for _ in range(task.episode_length):
        after = task.step(state, POLICY.apply(parameters, observation))
        state, observation = after.state, after.observation
        rewards.append(float(after.reward))
        described.append(np.asarray(after.descriptor))
        observations.append(np.asarray(observation))
        if after.terminated:
            return rewards, described, observations, Ending.TERMINATED
    return rewards, described, observations, Ending.TRUNCATED


@pytest.mark.parametrize("steps", [1, 12, CHECK_EVERY, CHECK_EVERY + 13])
def test_episodes_are_those_done_step_by_step(steps):
    task = dataclasses.replace(POINT, episode_length=steps)
    parameters, seeds = controllers(6), np.arange(6)
    evaluation = DeviceEvaluator(task, hidden=(4,)).evaluate(parameters, seeds, transitions=True)
    endings = set()
    for index in range(len(seeds)):
        rewards, described, observations, ending = by_hand(task, parameters[index], seeds[index])
        length = len(rewards)
        endings.add(ending)
        assert evaluation.length[index] == length
        assert evaluation.ending[index] == ending
        assert evaluation.fitness[index] == pytest.approx(sum(rewards), abs=1e-4)
        np.testing.assert_allclose(evaluation.descriptor[index], np.mean(described, axis=0), atol=1e-6)
        steps_of = evaluation.transitions
        np.testing.assert_allclose(steps_of.rewards[index, :length], rewards, atol=1e-5)
        np.testing.assert_allclose(steps_of.observations[index, : length + 1], observations, atol=1e-5)
        np.testing.assert_array_equal(steps_of.step_descriptors[index, :length], described)
        # Nothing of what a program computed after the end of the episode is there.
        assert not steps_of.rewards[index, length:].any()
        assert not steps_of.actions[index, length:].any()
        assert not steps_of.step_descriptors[index, length:].any()
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


def test_episodes_beyond_the_limit_are_skipped_and_reported():
    lengths = []
    evaluation = DeviceEvaluator(POINT, hidden=(4,), chunk=2).evaluate(
        controllers(5), np.arange(5), limit=3, on_episode=lengths.append
    )
    np.testing.assert_array_equal(evaluation.ending == Ending.SKIPPED, [False, False, False, True, True])
    np.testing.assert_array_equal(np.isnan(evaluation.fitness), evaluation.ending == Ending.SKIPPED)
    assert lengths == evaluation.length[:3].tolist()


def test_nan_is_reported_and_ends_only_its_own_episode():
    task = dataclasses.replace(POINT, noise=30.0)  # some start where the reward is NaN
    evaluation = DeviceEvaluator(task, hidden=(4,)).evaluate(controllers(1).repeat(40, 0), np.arange(40))
    invalid = evaluation.ending == Ending.INVALID
    assert 0 < evaluation.invalid == invalid.sum() < 40
    assert np.isnan(evaluation.fitness[invalid]).all()
    assert np.isfinite(evaluation.fitness[~invalid]).all()


@pytest.mark.parametrize(
    ("made", "takes"),
    [
        (lambda: DeviceEvaluator(POINT, hidden=(4,)), r"point with layers \(3, 4, 2\) takes \(n, 26\)"),
        (lambda: FunctionEvaluator(SPHERE), r"sphere takes \(n, 5\)"),
    ],
    ids=["controllers", "vectors"],
)
def test_wrong_input_is_reported_and_an_empty_batch_is_allowed(made, takes):
    with made() as evaluator:
        with pytest.raises(ElitesError, match=rf"parameters have shape \(2, 3\); {takes}"):
            evaluator.evaluate(np.zeros((2, 3)), np.arange(2))
        size = evaluator.parameter_count
        with pytest.raises(
            ElitesError, match=r"seeds have shape \(1,\); with 2 rows of parameters it must be"
        ):
            evaluator.evaluate(np.zeros((2, size)), [0])
        with pytest.raises(ElitesError, match="must be whole numbers from 0"):
            evaluator.evaluate(np.zeros((1, size)), [-1])
        assert evaluator.evaluate(np.zeros((0, size)), np.zeros((0, 2), int)).fitness.shape == (0, 2)
    with pytest.raises(ElitesError, match="the evaluator is closed"):
        evaluator.evaluate(np.zeros((1, size)), [0])


@dataclass(frozen=True, kw_only=True)
class MeanTask(PointTask):
    """Described by the mean of numbers that are not flags; NaN to the far right."""

    def step(self, state, action):
        after = super().step(state, action)
        far = jnp.where(state[0] > self.episode_length / 20, jnp.nan, 1.0)
        return after._replace(descriptor=far * jnp.abs(after.state))


@dataclass(frozen=True, kw_only=True)
class FinalTask(PointTask):
    """Described by the place and the luck at the end of an episode, and by how often it was on the right."""

    step_descriptor_dtype: ClassVar[str] = "uint8"
    step_descriptor_size = 1

    def reset(self, seed):
        position, observation = super().reset(seed)
        return (position, {"luck": jax.random.key(seed)}), observation

    def step(self, state, action):
        position, held = state
        after = super().step(position, action)
        luck = {"luck": jax.random.split(held["luck"])[0]}
        return after._replace(state=(after.state, luck), descriptor=after.state[:1] > 0)

    def episode_descriptor(self, mean, state):
        position, held = state
        far = jnp.where(position[0] < -1, jnp.nan, position[0])
        return jnp.concatenate([mean, far[None], jax.random.uniform(held["luck"], (1,))])


def made(kind, **changes):
    return kind(**{field.name: getattr(POINT, field.name) for field in dataclasses.fields(POINT)} | changes)


def step_by_step(task, parameters, seed):
    """(step descriptors, descriptor) of an episode; None if one of them is not finite."""
    state, observation = task.reset(np.uint32(seed))
    described = []
    for _ in range(task.episode_length):
        after = task.step(state, POLICY.apply(parameters, observation))
        state, observation = after.state, after.observation
        described.append(np.asarray(after.descriptor))
        if not np.isfinite(described[-1]).all():
            return None
        if after.terminated:
            break
    descriptor = np.asarray(task.episode_descriptor(jnp.asarray(np.mean(described, axis=0)), state))
    return (described, descriptor) if np.isfinite(descriptor).all() else None


@pytest.mark.parametrize("kind", [MeanTask, FinalTask])
def test_descriptors_are_means_of_steps_or_functions_of_the_end(kind):
    more = {"descriptor_names": tuple("abc"), "descriptor_bounds": ((-9.0, 9.0),) * 3, "grid": (3, 3, 3)}
    task = made(kind, episode_length=40, **(more if kind is FinalTask else {}))
    parameters, seeds = controllers(12), np.arange(12)
    evaluation = DeviceEvaluator(task, hidden=(4,)).evaluate(parameters, seeds, transitions=True)
    recorded = evaluation.transitions.step_descriptors
    assert recorded.shape == (12, 40, task.step_descriptor_size)
    assert recorded.dtype == task.step_descriptor_dtype
    for index in range(12):
        expected = step_by_step(task, parameters[index], seeds[index])
        assert (evaluation.ending[index] == Ending.INVALID) == (expected is None)
        if expected is None:
            assert np.isnan([evaluation.fitness[index], *evaluation.descriptor[index]]).all()
            continue
        described, descriptor = expected
        np.testing.assert_allclose(evaluation.descriptor[index], descriptor, atol=1e-5)
        np.testing.assert_allclose(recorded[index, : len(described)], described, atol=1e-5)
        assert not recorded[index, len(described) :].any()
    assert set(evaluation.ending) == set(Ending) - {Ending.SKIPPED}  # some end before others


def test_a_task_without_step_descriptors_describes_only_episodes():
    class Last(PointTask):
        step_descriptor_size = 0

        def step(self, state, action):
            return super().step(state, action)._replace(descriptor=jnp.zeros(0))

        def episode_descriptor(self, mean, state):
            return state

    task = made(Last)
    assert not task.describes_steps
    evaluation = DeviceEvaluator(task, hidden=(4,)).evaluate(controllers(3), np.arange(3), transitions=True)
    steps = evaluation.transitions
    last = [steps.observations[index, length, :2] for index, length in enumerate(evaluation.length)]
    np.testing.assert_allclose(evaluation.descriptor, last, atol=1e-6)
    assert steps.step_descriptors.shape == (3, task.episode_length, 0)


def test_descriptors_of_a_wrong_shape_are_reported():
    class Cast(MeanTask):
        step_descriptor_dtype = "uint8"

    class Long(PointTask):
        def step(self, state, action):
            return super().step(state, action)._replace(descriptor=jnp.zeros(5))

    class Short(PointTask):
        def episode_descriptor(self, mean, state):
            return mean[:1]

    for kind, message in (
        (Cast, r"point: a step's descriptor is float32\[2\]; it must be uint8\[2\]"),
        (Long, r"point: a step's descriptor is float32\[5\]; it must be float32\[2\]"),
        (Short, r"point: the episode descriptor has the shape \[1\]; it must be \[2\]"),
    ):
        with pytest.raises(ElitesError, match=message):
            DeviceEvaluator(made(kind), hidden=(4,)).evaluate(controllers(1), [0])

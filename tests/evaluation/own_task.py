"""A task of somebody else's that is simulated outside JAX: what a user's module would hold."""

import time
from dataclasses import dataclass

import numpy as np

from elites.policies.numpy import NumpyPolicy
from elites.tasks.episode import Ending, EpisodeResult
from elites.tasks.task import HostTask


@dataclass(frozen=True, kw_only=True)
class Drift(HostTask):
    """A point on a line that each action moves."""

    delay: float = 0.0  # of each step, in s
    patience: float = 60.0

    def make_simulator(self):
        return DriftSimulator(self)

    @property
    def step_seconds(self):
        return self.patience


class DriftSimulator:
    """Exactly as `elites.tasks.task.Simulator` declares it."""

    truncated = False

    def __init__(self, task):
        self.task, self.place = task, np.zeros(1, np.float32)

    def run(self, parameters, sizes, seed, stop, transitions, action_noise=0.0):
        policy = NumpyPolicy(tuple(int(size) for size in sizes))
        policy.load(parameters)
        observation, fitness, steps = self.begin(seed), 0.0, self.task.episode_length
        for step in range(steps):
            if stop[0]:
                return EpisodeResult(np.nan, np.full(1, np.nan), step, Ending.SKIPPED)
            if transitions is not None:
                transitions.observations[step] = observation
            action = policy(observation)
            observation, reward, _ = self.advance(action)
            fitness += reward
            if transitions is not None:
                transitions.observations[step + 1] = observation
                transitions.actions[step], transitions.rewards[step] = action, reward
        return EpisodeResult(fitness, np.clip(self.place, -1, 1), steps, Ending.TRUNCATED)

    def begin(self, seed):
        self.place = np.random.default_rng(seed).uniform(-1, 1, 1).astype(np.float32)
        return self.place

    def advance(self, action):
        time.sleep(self.task.delay)
        self.place = self.place + np.float32(0.1) * action
        return self.place, float(self.place[0]), False

    def close(self):
        pass


DRIFT = Drift(
    name="tests.evaluation.own_task:DRIFT",
    observation_size=1,
    action_size=1,
    descriptor_names=("place",),
    descriptor_bounds=((-1, 1),),
    cells=10,
    grid=(10,),
    qd_offset=-10.0,
    episode_length=5,
)

"""Environments and descriptors of somebody else's: what a user's module would hold."""

import os
import signal
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np


class Push(gymnasium.Env):
    """A point that is pushed along two axes of different strength; the episode ends where it leaves ±3."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's own name

    def __init__(self, trouble="", marker="", render_mode=None, keeps=False):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = gymnasium.spaces.Box(
            np.array([-1, 2], np.float32), np.array([3, 2.5], np.float32)
        )
        self.trouble, self.marker, self.render_mode, self.keeps = trouble, marker, render_mode, keeps
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.unlucky = 0, seed % 5 == 3
        self.episodes += 1
        self.place = self.np_random.uniform(-1, 1, 2) + (0.01 * self.episodes if self.keeps else 0)
        return self._observation(), {"up": 0.5}

    def _observation(self):
        return np.array([*self.place, 1.0])

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        self.place = self.place + 0.1 * (action - [1, 2.25]) + 0.01 * self.np_random.normal(size=2)
        if self.steps == 4 and self.unlucky:
            self._misbehave()
        reward = float("nan") if self.trouble == "nan" and self.unlucky else self.place[0]
        beyond = bool(np.abs(self.place).max() > 3)
        cut = self.trouble == "cut" and self.steps == 7
        if self.trouble == "unseen" and self.unlucky:
            self.place = np.full(2, np.nan)
        if self.trouble == "shape" and self.unlucky:
            return np.ones(1), reward, beyond, cut, {}
        if self.trouble == "drawn" and self.render_mode:
            raise RuntimeError("no canvas")
        return self._observation(), reward, beyond, cut, {"up": float(self.place[1] > 0)}

    def _misbehave(self):
        if self.trouble == "raise":
            if self.marker and not Path(self.marker).exists():
                return
            raise RuntimeError("out of\npaint")
        if self.marker:  # once only
            if Path(self.marker).exists():
                return
            Path(self.marker).touch()
        if self.trouble == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trouble == "hang":
            time.sleep(600)

    def render(self):
        image = np.zeros((40, 60, 3), np.uint8)
        row, column = (np.clip(self.place * 6 + [20, 30], 0, [39, 59])).astype(int)
        image[row, column] = 255
        return image


gymnasium.register("outside/Push-v0", entry_point="tests.outside:Push", max_episode_steps=12)


def push(**options):
    return Push(**options)


class Odd(gymnasium.Env):
    """An environment with the given observations and actions."""

    def __init__(self, observes="vector", takes="vector"):
        spaces = gymnasium.spaces
        self.observation_space = {
            "vector": spaces.Box(-1, 1, (2,)),
            "dict": spaces.Dict({"a": spaces.Box(-1, 1, (2,))}),
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        }[observes]
        self.action_space = {
            "vector": spaces.Box(-1, 1, (2,)),
            "discrete": spaces.Discrete(3),
            "unbounded": spaces.Box(-np.inf, np.inf, (2,)),
            "matrix": spaces.Box(-1, 1, (2, 2)),
        }[takes]


def odd(**options):
    return Odd(**options)


def nothing():
    return 3


def place(episode):
    """Where the episode was on average: in units of its own."""
    assert len(episode.observations) == len(episode.actions) + 1 == len(episode.infos)
    assert len(episode.rewards) == len(episode.actions)
    assert episode.terminated != episode.truncated
    return np.clip(episode.observations[:, :2].mean(0), -3, 3)


def up(episode):
    return np.mean([info["up"] for info in episode.infos[1:]])


def step_place(observation, action, info):
    return np.clip(observation[:2], -3, 3)


def without_jax(episode):
    return float("jax" not in sys.modules)


def beyond(episode):
    return [0.5, 1.5]


def vague(episode):
    return [0.5, float("nan")]


def late(episode):
    """Fine in the episode that a task is looked at with, in which nothing is done, not in others."""
    return [2.0 if np.ptp(episode.actions) > 1.3 else 0.5]


def end(episode):
    """What the 30th step was like, which every whole episode has."""
    return [float(episode.observations[30, 0] > 0)]


def words(episode):
    return "far to the left"


BOUNDS = ((-3.0, 3.0), (-3.0, 3.0))


def blind(trouble=""):
    return Push(trouble)


def troubled(where="", how=""):
    """An environment, or a module, that misbehaves: `where` it does, and `how`."""
    return Troubled(where, how)


class Troubled(Push):
    """Misbehaves in its constructor, its episodes or its end."""

    def __init__(self, where, how):
        super().__init__()
        self.where, self.how = where, how
        self._act("constructor")

    def _act(self, where):
        if where == self.where:
            misbehave(self.how)

    def reset(self, *, seed=None, options=None):
        self._act("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self._act("step")
        return super().step(action)

    def close(self):
        self._act("close")


def misbehave(how):
    if how == "sleep":
        time.sleep(600)
    if how == "exit":
        sys.exit(3)
    if how == "vanish":
        os._exit(0)
    if how == "raise":
        raise RuntimeError("bad\nluck")


def sleeping(episode):
    misbehave("sleep")


def vanishing(episode):
    misbehave("vanish")


def many(episode):
    return np.full(200, 0.5)

"""TD3: S. Fujimoto, H. van Hoof and D. Meger, "Addressing function approximation error in actor-critic
methods", 2018.

One actor learns in one environment, which it first explores by random actions. As in the paper on
PGA-MAP-Elites, copies of it are evaluated without noise from the first steps on, and added to an archive.
Training does not use the archive, and only these evaluations count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from elites.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Batch,
    Progress,
    RandomStream,
    Round,
    advance,
    zero_progress,
)
from elites.archives.archive import Archive
from elites.errors import require
from elites.evaluation.environment import Environment, EpisodeState, make_training_environment
from elites.evaluation.evaluation import Evaluation
from elites.learning import critics, replay_buffer
from elites.options import Count, Spread, Steps
from elites.tasks.task import Task
from elites.variation.offspring import without_parents


@dataclass(frozen=True, kw_only=True)
class TD3Config(critics.CriticConfig, AlgorithmConfig):
    """One actor trained by reinforcement learning; its copies are collected in an archive."""

    batch: Count = 100
    """Copies of the actor per generation."""
    evaluate_every: Count = 2
    """Steps in the environment per evaluated copy; each is followed by a training step."""
    random_steps: Steps = 25_000
    """First steps, with random actions and without training; copies are evaluated during them, too."""
    repeat_transitions: bool = False
    """Whether the replay buffer stores each transition k times, where k is the size of an observation, as in
    the code of the paper's authors. It then holds fewer different transitions, and training begins earlier by
    that factor."""
    exploration_noise: Spread = 0.2
    """Standard deviation of the noise on the actor's actions (σ_a)."""

    def shortest_opening(self) -> dict[str, Any]:
        """See `AlgorithmConfig.shortest_opening`."""
        return {"random_steps": min(self.random_steps, self.batch)}


class Phase(NamedTuple):
    """A generation's number of steps with random actions, and of steps without training."""

    random_steps: int
    untrained_steps: int

    def __str__(self) -> str:
        return f"{self.random_steps} random steps, {self.untrained_steps} without training"


class State(NamedTuple):
    """The state of TD3."""

    archive: Archive
    buffer: replay_buffer.ReplayBuffer
    td3: critics.TD3State
    place: EpisodeState
    progress: Progress


class TD3(Algorithm):
    """A generation: steps in the environment, a training step after each, and evaluations of copies."""

    Config = TD3Config
    operators = ("actor",)
    greedy_operator = "actor"
    needs_policy = True
    environment: Environment

    def __init__(self, task: Task, config: TD3Config | None = None) -> None:
        super().__init__(task, config)
        self.environment = make_training_environment(task)
        config, repeats = self.config, task.observation_size if self.config.repeat_transitions else 1
        self.distinct_transitions = config.buffer_size // repeats  # in the buffer
        require(self.distinct_transitions > 0, "buffer_size", config.buffer_size, f"at least {repeats}")
        self.steps = config.batch * config.evaluate_every  # of a generation
        most = (2**31 - 1) // config.batch
        require(
            config.evaluate_every <= most,
            "evaluate_every",
            config.evaluate_every,
            f"at most {most:,} with batch {config.batch:,}",
        )
        waiting = config.random_steps // repeats

        def make_phase(generation: int) -> Phase:
            before = generation * self.steps
            return Phase(*(min(max(0, end - before), self.steps) for end in (config.random_steps, waiting)))

        opening = -(-config.random_steps // self.steps)  # generations with random steps
        phases = [make_phase(generation) for generation in range(opening + 1)]
        rounds = {kind: (Round(str(kind), config.batch),) for kind in phases}
        self.phases = {rounds[kind][0].name: kind for kind in rounds}
        self.opening = tuple(rounds[kind] for kind in phases[:-1])
        self.generation = rounds[phases[-1]]

    @classmethod
    def shares_program(cls, task: Task, config: TD3Config) -> bool:
        """Only if the environment is part of the program: other environments are simulators outside of it."""
        return task.is_jax

    def opening_evaluations(self) -> int:
        """Copies of the actor before its first training step."""
        waiting = sum(self.phases[rounds[0].name].untrained_steps for rounds in self.opening)
        return int(waiting // self.config.evaluate_every)

    def init(self, key: jax.Array) -> State:
        """An empty archive and buffer, random critics and actor, and the start of the first episode."""
        task, config = self.task, self.config
        seed = jax.random.bits(jax.random.fold_in(key, RandomStream.EPISODE))
        return State(
            self.empty_archive(),
            replay_buffer.empty_buffer(self.distinct_transitions, task.observation_size, task.action_size),
            critics.init(jax.random.fold_in(key, RandomStream.TRAINING), config, self.policy),
            self.environment.begin(seed),
            zero_progress(),
        )

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Acts and trains. Copies the actor after every `evaluate_every` steps."""
        phase, interval = self.phases[round.name], self.config.evaluate_every

        def step(state: State, inputs: tuple[jax.Array, jax.Array]) -> tuple[State, critics.TrainingSums]:
            key, number = inputs
            acting_key, training_key = jax.random.split(key)
            state = self._act(state, acting_key, at_random=number < phase.random_steps)
            td3, training = state.td3, critics.zero_training()
            if phase.untrained_steps == 0:
                td3, training = self._learn(state, training_key)
            elif phase.untrained_steps < self.steps:
                begun = number >= phase.untrained_steps
                td3, training = jax.lax.cond(
                    begun, self._learn, lambda state, _: (state.td3, training), state, training_key
                )
            return state._replace(td3=td3), training

        def copy(
            state: State, inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[State, tuple[jax.Array, critics.TrainingSums]]:
            key, first = inputs
            inputs = jax.random.split(key, interval), first + jnp.arange(interval)
            state, training = jax.lax.scan(step, state, inputs)
            return state, (self.policy.flatten(state.td3.actor), training)

        keys = jax.random.split(jax.random.fold_in(key, RandomStream.TRAINING), round.policies)
        state, (copies, training) = jax.lax.scan(copy, state, (keys, interval * jnp.arange(round.policies)))
        return state, self.make_batch(actor=without_parents(copies))._replace(
            training=jax.tree.map(jnp.sum, training)
        )

    def _learn(self, state: State, key: jax.Array) -> tuple[critics.TD3State, critics.TrainingSums]:
        """Critics and actor after one training step."""
        return critics.train(state.td3, self.config, self.policy, state.buffer, key, 1)

    def _act(self, state: State, key: jax.Array, *, at_random: jax.Array) -> State:
        """One step in the environment, added to the buffer. After an episode ends, the next one starts."""
        action_key, seed_key = jax.random.split(key)
        episode, size = state.place, (self.task.action_size,)
        noise = self.config.exploration_noise * jax.random.normal(action_key, size)
        action = jnp.where(
            at_random,
            jax.random.uniform(action_key, size, minval=-1, maxval=1),
            jnp.clip(self.policy.act(state.td3.actor, episode.observation) + noise, -1, 1),
        )
        moved, reward, terminated = self.environment.step(episode, action)
        finite = jnp.isfinite(action).all() & jnp.isfinite(reward) & jnp.isfinite(moved.observation).all()
        buffer = replay_buffer.add_one(
            state.buffer,
            episode.observation,
            action,
            reward,
            moved.observation,
            terminated.astype(jnp.float32),
            valid=finite,
        )
        over = terminated | (moved.steps >= self.task.episode_length) | ~finite
        seed = jax.random.bits(seed_key)
        episode = jax.lax.cond(over, lambda: self.environment.begin(seed), lambda: moved)
        progress = state.progress._replace(training_steps=state.progress.training_steps + 1)
        return state._replace(buffer=buffer, place=episode, progress=progress)

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[State, jax.Array]:
        """Adds the copies to the archive, which training does not use."""
        archive, status = self.insert(state.archive, batch, evaluation, state.progress)
        return state._replace(archive=archive, progress=advance(state.progress, evaluation)), status

    def gradient_steps(self, state: State) -> jax.Array:
        """Training steps so far."""
        return state.td3.steps

"""PGA-MAP-Elites: O. Nilsson and A. Cully, "Policy gradient assisted MAP-Elites", 2021.

This is Algorithm 1 of M. Flageat, F. Chalumeau and A. Cully, "Empirical analysis of PGA-MAP-Elites for
neuroevolution in uncertain domains", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.algorithms.base import (
    Algorithm,
    Batch,
    Progress,
    RandomStream,
    Round,
    advance,
    random_rounds,
    zero_progress,
)
from elites.algorithms.map_elites import MAPElitesConfig, make_ga
from elites.archives.archive import Archive
from elites.evaluation.evaluation import Evaluation
from elites.learning import critics, replay_buffer
from elites.options import Count, Rate, Share, Steps
from elites.tasks.task import Task
from elites.variation.offspring import without_parents
from elites.variation.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class PGAMAPElitesConfig(critics.CriticConfig, MAPElitesConfig):
    """MAP-Elites with a genetic operator (GA) and a policy-gradient operator (PG) that uses TD3 critics."""

    p_evo: Share = 0.5
    """Share of each generation's offspring made by the GA; 1 is MAP-Elites and trains nothing."""
    critic_steps: Count = 300
    """Training steps of the critics per generation (n_crit)."""
    pg_steps: Steps = 50
    """Gradient steps of a PG offspring (n_act)."""
    pg_learning_rate: Rate = 0.005
    """Learning rate of a PG offspring's Adam (lr_act)."""


class TrainingState(NamedTuple):
    """The state of training, if p_evo < 1."""

    buffer: replay_buffer.ReplayBuffer
    td3: critics.TD3State


class State(NamedTuple):
    """The state of PGA-MAP-Elites."""

    archive: Archive
    learning: TrainingState | None
    progress: Progress


class PGAMAPElites(Algorithm):
    """Algorithm 1, one `ask` and one `tell` per generation."""

    Config = PGAMAPElitesConfig
    operators = ("random", "ga", "pg", "greedy")
    greedy_operator = "greedy"
    needs_policy = True

    def __init__(self, task: Task, config: PGAMAPElitesConfig | None = None) -> None:
        super().__init__(task, config)
        config = self.config
        self.ga_count = int(Fraction(str(config.p_evo)) * config.batch)  # floor(p_evo b), exactly
        self.learns = self.ga_count < config.batch
        self.ga = make_ga(config, self.policy)
        self.pg = PolicyGradient.from_config(self.policy, config)
        self.opening = random_rounds(config.initial, config.batch, transitions=self.learns)
        self.generation = (Round("offspring", config.batch, transitions=self.learns),)

    def init(self, key: jax.Array) -> State:
        """An empty archive and an empty buffer; random critics and greedy actor."""
        task, config, learning = self.task, self.config, None
        if self.learns:
            learning = TrainingState(
                replay_buffer.empty_buffer(config.buffer_size, task.observation_size, task.action_size),
                critics.init(jax.random.fold_in(key, RandomStream.TRAINING), config, self.policy),
            )
        return State(self.empty_archive(), learning, zero_progress())

    def working_bytes(self) -> int:
        """Memory of the gradient steps."""
        return self.pg.working_bytes(self.config.batch - self.ga_count) if self.learns else 0

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Random controllers first; later, trains the critics and varies parents."""
        config, archive, learning, training = self.config, state.archive, state.learning, None

        if round.name == "random":
            return state, self.make_random_batch(key, round.policies)

        # Train critics and greedy actor.
        if learning is not None:
            training_key = jax.random.fold_in(key, RandomStream.TRAINING)
            td3, training = critics.train(
                learning.td3, config, self.policy, learning.buffer, training_key, config.critic_steps
            )
            learning = learning._replace(td3=td3)

        offspring = {}

        # Apply GA variation.
        if self.ga_count:
            offspring["ga"] = self.ga(archive, jax.random.fold_in(key, RandomStream.GA), self.ga_count)

        if learning is not None:
            # Apply PG variation.
            pg_count = round.policies - self.ga_count - 1
            if pg_count:
                pg_key = jax.random.fold_in(key, RandomStream.PG)
                offspring["pg"] = self.pg(archive, learning.td3, learning.buffer, pg_key, pg_count)

            # Return the greedy actor as offspring.
            offspring["greedy"] = without_parents(self.policy.flatten(learning.td3.actor)[None])

        return state._replace(learning=learning), self.make_batch(**offspring)._replace(training=training)

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[State, jax.Array]:
        """Updates the replay buffer and the archive."""
        learning = state.learning
        if learning is not None:
            learning = learning._replace(buffer=replay_buffer.add(learning.buffer, evaluation))
        archive, status = self.insert(state.archive, batch, evaluation, state.progress)
        return State(archive, learning, advance(state.progress, evaluation)), status

    def gradient_steps(self, state: State) -> jax.Array:
        """Training steps of the critics so far."""
        return jnp.int32(0) if state.learning is None else state.learning.td3.steps

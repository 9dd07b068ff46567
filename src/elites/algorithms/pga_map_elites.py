"""PGA-MAP-Elites: O. Nilsson and A. Cully, "Policy gradient assisted MAP-Elites", 2021.

This is Algorithm 1 of M. Flageat, F. Chalumeau and A. Cully, "Empirical analysis of PGA-MAP-Elites for
neuroevolution in uncertain domains", 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.algorithms.algorithm import (
    Batch,
    Progress,
    Round,
    Stream,
    advance,
    ga_offspring,
    join,
    random_controllers,
    rounds_of_random,
    skipped,
    solutions,
    start,
)
from elites.algorithms.map_elites import MAPElitesConfig
from elites.archives.archive import Archive, empty_archive, insert, select
from elites.archives.cells import make_cells
from elites.errors import require
from elites.evaluation.evaluation import Evaluation
from elites.learning import critics, replay_buffer
from elites.policies import Policy
from elites.tasks.task import Task
from elites.variation import policy_gradient


@dataclass(frozen=True, kw_only=True)
class PGAMAPElitesConfig(critics.TD3Config, MAPElitesConfig):
    """MAP-Elites with a GA and a policy-gradient variation, the latter driven by TD3 critics."""

    p_evo: float = 0.5
    """Share of each generation's offspring made by the GA; 1 is MAP-Elites and trains nothing."""
    critic_steps: int = 300
    """Training steps of the critics per generation (n_crit)."""
    pg_steps: int = 50
    """Gradient steps of a PG offspring (n_act)."""
    pg_learning_rate: float = 0.005
    """Of a PG offspring's Adam (lr_act)."""

    def __post_init__(self) -> None:
        critics.TD3Config.__post_init__(self)
        MAPElitesConfig.__post_init__(self)
        require(0 <= self.p_evo <= 1, "p_evo", self.p_evo, "from 0 to 1")
        require(self.critic_steps >= 1, "critic_steps", self.critic_steps, "at least 1")
        require(self.pg_steps >= 0, "pg_steps", self.pg_steps, "at least 0")
        require(self.pg_learning_rate > 0, "pg_learning_rate", self.pg_learning_rate, "above 0")


class Learning(NamedTuple):
    """What p_evo < 1 needs."""

    buffer: replay_buffer.ReplayBuffer
    td3: critics.TD3


class State(NamedTuple):
    """All that PGA-MAP-Elites knows."""

    archive: Archive
    learning: Learning | None
    progress: Progress


class PGAMAPElites:
    """Algorithm 1, one `ask` and one `tell` per generation."""

    operators = ("random", "ga", "pg", "greedy")

    def __init__(self, task: Task, config: PGAMAPElitesConfig | None = None) -> None:
        self.task = task
        self.config = config = config or PGAMAPElitesConfig()
        self.policy = Policy.of(task, config.hidden)
        self.cells = make_cells(task, config.archive)
        self.by_ga = int(Fraction(str(config.p_evo)) * config.batch)  # floor(p_evo b), exactly
        self.learns = self.by_ga < config.batch
        self.opening = rounds_of_random(config.initial, config.batch, transitions=self.learns)
        self.generation = (Round("offspring", config.batch, transitions=self.learns),)

    def init(self, key: jax.Array) -> State:
        """An empty archive and an empty buffer; random critics and greedy actor."""
        cells, task, config = len(self.cells.centroids), self.task, self.config
        return State(
            empty_archive(cells, self.policy.parameter_count, task.descriptor_size),
            Learning(
                replay_buffer.empty_buffer(config.buffer_size, task.observation_size, task.action_size),
                critics.init(jax.random.fold_in(key, Stream.TRAINING), config, self.policy),
            )
            if self.learns
            else None,
            start(),
        )

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Random solutions at first; later critics are trained, then parents varied."""
        config, archive, learning = self.config, state.archive, state.learning

        if round.name == "random":
            drawing = jax.random.fold_in(key, Stream.RANDOM)
            return state, random_controllers(self.policy, drawing, round.policies, operator=0)

        # Train critics and greedy actor.
        if learning is not None:
            training = jax.random.fold_in(key, Stream.TRAINING)
            td3 = critics.train(
                learning.td3, config, self.policy, learning.buffer, training, config.critic_steps
            )
            learning = learning._replace(td3=td3)

        offspring = []

        # Apply GA variation.
        if self.by_ga:
            varying = jax.random.fold_in(key, Stream.GA)
            offspring.append(ga_offspring(archive, varying, self.by_ga, 1, config.sigma1, config.sigma2))

        if learning is not None:
            # Apply PG variation.
            by_pg = round.policies - self.by_ga - 1
            if by_pg:
                selecting, climbing = jax.random.split(jax.random.fold_in(key, Stream.PG))
                parents = select(archive, selecting, by_pg)
                parameters = policy_gradient.vary(
                    climbing,
                    archive.elites.parameters[parents],
                    critics.first(learning.td3.critics),
                    learning.buffer,
                    self.policy,
                    steps=config.pg_steps,
                    batch=config.training_batch,
                    learning_rate=config.pg_learning_rate,
                )
                evaluations = archive.elites.origin.evaluation[parents]
                one_parent = jnp.stack([evaluations, jnp.full(by_pg, -1, jnp.int32)], axis=1)
                offspring.append(Batch(parameters, jnp.full(by_pg, 2, jnp.int32), one_parent))

            # Return the greedy actor as offspring.
            greedy = self.policy.flat(learning.td3.actor)
            offspring.append(Batch(greedy[None], jnp.array([3], jnp.int32), jnp.full((1, 2), -1, jnp.int32)))

        return state._replace(learning=learning), join(offspring)

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation
    ) -> tuple[State, jax.Array]:
        """Updates the replay buffer and the archive."""
        learning = state.learning
        if learning is not None:
            learning = learning._replace(buffer=replay_buffer.add(learning.buffer, evaluation))
        offspring = solutions(batch, evaluation, state.progress)
        archive, status = insert(state.archive, self.cells.of(offspring.descriptor), offspring)
        return State(archive, learning, advance(state.progress, evaluation)), skipped(evaluation, status)

    def archive(self, state: State) -> Archive:
        """The collection so far."""
        return state.archive

    def gradient_steps(self, state: State) -> jax.Array:
        """Training steps of the critics so far."""
        return jnp.int32(0) if state.learning is None else state.learning.td3.steps

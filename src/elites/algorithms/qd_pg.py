"""QD-PG: T. Pierrot, V. Macé, F. Chalumeau, A. Flajolet, G. Cideron, K. Beguir, A. Cully, O. Sigaud and
N. Perrin-Gilbert, "Diversity policy gradient for sample efficient quality-diversity optimization", 2022.

Half of the offspring ascend a critic of the task's reward, the other half a critic of novelty: the distance
of a state's descriptor from those visited before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Batch,
    Progress,
    RandomStream,
    Round,
    advance,
    random_rounds,
    zero_progress,
)
from elites.archives import state_descriptors
from elites.archives.archive import Archive, draw
from elites.archives.cells import spans
from elites.errors import ElitesError, require
from elites.evaluation.evaluation import Evaluation
from elites.learning import critics, replay_buffer
from elites.options import Count, Range, Rate, Spread, Steps
from elites.tasks.episode import Ending
from elites.tasks.task import Task
from elites.variation.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class QDPGConfig(critics.CriticConfig, AlgorithmConfig):
    """Quality and diversity policy gradients, half and half."""

    initial: Count = 500
    """Random controllers evaluated first."""
    batch: Annotated[int, Range(2, 1_000_000)] = 100
    """Offspring per generation."""
    critic_steps: Count = 300
    """Training steps of each pair of critics per generation."""
    pg_steps: Steps = 100
    """Gradient steps of an offspring."""
    pg_learning_rate: Rate = 0.001
    """Learning rate of an offspring's Adam."""
    state_descriptor: Literal["contacts", "mean"] = "contacts"
    """Descriptor of a state: the step descriptor (contacts), or its mean over the episode so far (mean)."""
    neighbours: Count = 5
    """Number of nearest state descriptors in the measure of novelty (k)."""
    stored_descriptors: Count = 10_000
    """Largest number of state descriptors in the archive."""
    least_distance: Spread = 0.1
    """Smallest distance between state descriptors in the archive."""
    candidates: Count = 1000
    """State descriptors per generation to add, sampled uniformly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stored = self.stored_descriptors
        most = f"at most the number of stored_descriptors, {stored:,}"
        require(self.neighbours <= stored, "neighbours", self.neighbours, most)

    def shortest_opening(self) -> dict[str, Any]:
        """See `AlgorithmConfig.shortest_opening`."""
        return {"initial": self.batch}


class State(NamedTuple):
    """The state of QD-PG."""

    archive: Archive
    buffer: replay_buffer.ReplayBuffer  # with each step's state descriptor
    quality: critics.TD3State
    diversity: critics.TD3State
    visited: state_descriptors.StateDescriptors
    progress: Progress


class QDPG(Algorithm):
    """Two policy-gradient operators on one replay buffer."""

    Config = QDPGConfig
    operators = ("random", "quality", "diversity")
    needs_policy = True

    def __init__(self, task: Task, config: QDPGConfig | None = None) -> None:
        super().__init__(task, config)
        if not task.describes_steps:
            raise ElitesError(
                f"qd-pg needs a descriptor of each step, which {task.name} does not have; "
                "a gym: task gets it by --step-descriptor module:function"
            )
        config = self.config
        self.pg = PolicyGradient.from_config(self.policy, config)
        self.opening = random_rounds(config.initial, config.batch, transitions=True)
        self.generation = (Round("offspring", config.batch, transitions=True),)

    def init(self, key: jax.Array) -> State:
        """Random critics and actors; everything else is empty."""
        task, config, dimensions = self.task, self.config, self.task.descriptor_size
        quality, diversity = jax.random.split(jax.random.fold_in(key, RandomStream.TRAINING))
        return State(
            self.empty_archive(),
            replay_buffer.empty_buffer(
                config.buffer_size, task.observation_size, task.action_size, dimensions
            ),
            critics.init(quality, config, self.policy),
            critics.init(diversity, config, self.policy),
            state_descriptors.empty_state_descriptors(config.stored_descriptors, dimensions),
            zero_progress(),
        )

    def working_bytes(self) -> int:
        """Memory of the gradient steps, and of the distances to all state descriptors."""
        distances: int = 4 * self.config.training_batch * self.config.stored_descriptors
        return max(distances, self.pg.working_bytes(self.config.batch // 2))

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """Random controllers first. Later, trains the critics of both kinds; each elite ascends one kind."""
        if round.name == "random":
            return state, self.make_random_batch(key, round.policies)

        def compute_novelty(batch: replay_buffer.Experience) -> jax.Array:
            return state_descriptors.compute_novelty(state.visited, batch.extra, self.config.neighbours)

        config, shared = self.config, (self.config, self.policy, state.buffer)
        training_key = jax.random.fold_in(key, RandomStream.TRAINING)
        quality, training = critics.train(state.quality, *shared, training_key, config.critic_steps)
        training_key = jax.random.fold_in(key, RandomStream.DIVERSITY_TRAINING)
        diversity, _ = critics.train(
            state.diversity, *shared, training_key, config.critic_steps, compute_novelty
        )
        state = state._replace(quality=quality, diversity=diversity)

        half = round.policies // 2
        quality_key, diversity_key = (
            jax.random.fold_in(key, s) for s in (RandomStream.PG, RandomStream.DIVERSITY)
        )
        batch = self.make_batch(
            quality=self.pg(state.archive, quality, state.buffer, quality_key, half),
            diversity=self.pg(state.archive, diversity, state.buffer, diversity_key, round.policies - half),
        )
        return state, batch._replace(training=training)

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[State, jax.Array]:
        """Updates the replay buffer, the state descriptors and the archive."""
        descriptors = self._state_descriptors(evaluation)
        candidates_key = jax.random.fold_in(key, RandomStream.STATE_DESCRIPTORS)
        candidates = self._candidates(candidates_key, descriptors, evaluation)
        archive, status = self.insert(state.archive, batch, evaluation, state.progress)
        return state._replace(
            archive=archive,
            buffer=replay_buffer.add(state.buffer, evaluation, descriptors),
            visited=state_descriptors.add(state.visited, candidates, self.config.least_distance),
            progress=advance(state.progress, evaluation),
        ), status

    def _state_descriptors(self, evaluation: Evaluation[jax.Array]) -> jax.Array:
        """The descriptor of the state after each step, `[n, T, d]`."""
        steps = jnp.asarray(evaluation.recorded.step_descriptors, jnp.float32)
        steps = (steps - self.cells.bounds[:, 0].astype(np.float32)) / spans(self.cells.bounds)
        if self.config.state_descriptor == "contacts":
            return steps
        return jnp.cumsum(steps, axis=1) / jnp.arange(1, steps.shape[1] + 1)[:, None]

    def _candidates(
        self, key: jax.Array, descriptors: jax.Array, evaluation: Evaluation[jax.Array]
    ) -> jax.Array:
        """State descriptors, sampled uniformly over all steps; NaN without any step."""
        happened = jnp.arange(descriptors.shape[1]) < evaluation.length[:, None]
        happened &= (evaluation.ending <= Ending.TRUNCATED)[:, None]
        steps = draw(happened.reshape(-1), key, self.config.candidates)
        rows = descriptors.reshape(-1, descriptors.shape[-1])[steps]
        return jnp.where(happened.any(), rows, jnp.nan)

    def gradient_steps(self, state: State) -> jax.Array:
        """Training steps of both pairs of critics so far."""
        return state.quality.steps + state.diversity.steps

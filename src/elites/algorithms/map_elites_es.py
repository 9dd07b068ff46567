"""MAP-Elites-ES: C. Colas, V. Madhavan, J. Huizinga and J. Clune, "Scaling MAP-Elites to deep
neuroevolution", 2020.

The centre of an evolution strategy starts at an elite and is moved for some steps, up the fitness (exploit)
or towards novelty (explore), the two taking turns from parent to parent. After each step it is evaluated many
times and its mean enters the archive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from elites.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Batch,
    Progress,
    Round,
    Stream,
    advance,
    mark_skipped,
    mean_of_episodes,
    start,
)
from elites.archives.archive import Archive, Status, select
from elites.archives.cells import spans
from elites.errors import require
from elites.evaluation.evaluation import Evaluation
from elites.tasks.episode import Ending
from elites.tasks.task import Task
from elites.variation import evolution_strategy as es
from elites.variation.offspring import children

MOST_NOVEL = 5  # cells that explore steps choose their parent from
CENTRES = 10_000  # descriptors of centres that novelty is measured against, the last ones


@dataclass(frozen=True, kw_only=True)
class MAPElitesESConfig(AlgorithmConfig):
    """MAP-Elites by evolution strategies that exploit and explore in turns."""

    pairs: int = 100
    """Mirrored pairs of perturbations per step (the original has 5000)."""
    chunk: int = 100
    """Pairs that are made and evaluated at once."""
    steps: int = 10
    """Consecutive steps from one parent."""
    centre_samples: int = 30
    """Evaluations of the new centre after each step."""
    sigma: float = 0.02
    """Standard deviation of the perturbations."""
    learning_rate: float = 0.01
    """Of Adam, begun afresh with each parent."""
    l2: float = 0.005
    """Weight decay."""
    neighbours: int = 10
    """Nearest centres that novelty is measured by (k)."""
    normalise: bool = False
    """Whether controllers see observations normalised by their running mean and deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pairs", "chunk", "steps", "centre_samples", "neighbours"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("sigma", "learning_rate"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        require(self.l2 >= 0, "l2", self.l2, "at least 0")
        require(
            self.pairs % min(self.chunk, self.pairs) == 0,
            "pairs",
            self.pairs,
            f"a multiple of chunk ({self.chunk})",
        )


class Search(NamedTuple):
    """The evolution strategy at work."""

    centre: jax.Array  # [P]
    optimiser: optax.OptState
    step: jax.Array  # since the parent was chosen
    exploring: jax.Array  # whether it goes for novelty
    parent: jax.Array  # its evaluation
    key: jax.Array  # of this step's perturbations, as plain numbers
    chunk: jax.Array  # the next one to evaluate
    scores: jax.Array  # [chunks, 2, pairs]


class Centres(NamedTuple):
    """A ring of the descriptors of evaluated centres."""

    descriptor: jax.Array  # [CENTRES, d]
    seen: jax.Array  # since the run began


class Moments(NamedTuple):
    """Running moments of all observations."""

    weight: jax.Array  # how many observations
    mean: jax.Array
    squares: jax.Array  # sum of squared deviations

    def deviation(self) -> jax.Array:
        """Standard deviation, 1 before anything was observed."""
        deviation = jnp.sqrt(self.squares / jnp.maximum(self.weight, 1) + 1e-8)
        return jnp.where(self.weight > 1, deviation, 1)


class State(NamedTuple):
    """All that MAP-Elites-ES knows."""

    archive: Archive
    search: Search
    centres: Centres
    moments: Moments
    progress: Progress


class MAPElitesES(Algorithm):
    """A generation is one step: rounds of perturbations, then one of the new centre."""

    Config = MAPElitesESConfig
    operators = ("random", "exploit", "explore")

    def __init__(self, task: Task, config: MAPElitesESConfig | None = None) -> None:
        super().__init__(task, config)
        config = self.config
        if config.normalise:
            self.policy  # noqa: B018 # refuses a task without observations
        self.pairs = min(config.chunk, config.pairs)
        self.chunks = config.pairs // self.pairs
        self.optimiser = optax.adam(config.learning_rate)
        self.opening = ((Round("random", 1, config.centre_samples),),)
        self.generation = (
            *[Round("perturbations", 2 * self.pairs, transitions=config.normalise)] * self.chunks,
            Round("centre", 1, config.centre_samples),
        )

    def init(self, key: jax.Array) -> State:
        """An empty archive; the search begins with the first generation."""
        size, dimensions = self.genome.parameter_count, self.task.descriptor_size
        centre, observation = jnp.zeros(size), jnp.zeros(self.task.observation_size)
        return State(
            self.empty_archive(self.config.centre_samples),
            Search(
                centre=centre,
                optimiser=self.optimiser.init(centre),
                step=jnp.int32(0),
                exploring=jnp.array(True),  # turned before the first parent: exploit comes first
                parent=jnp.int32(-1),
                key=jax.random.key_data(key),
                chunk=jnp.int32(0),
                scores=jnp.full((self.chunks, 2, self.pairs), jnp.nan),
            ),
            Centres(jnp.full((CENTRES, dimensions), jnp.inf), jnp.int32(0)),
            Moments(jnp.float32(0), observation, jnp.zeros_like(observation)),
            start(),
        )

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """One random controller; then perturbations of the centre, and the centre after its step."""
        if round.name == "random":
            return state, self.random(key, 1)
        search = state.search
        if round.name == "perturbations":
            search = jax.lax.cond(
                search.chunk == 0, lambda: self._begin_step(state, key), lambda: state.search
            )
            perturbations = es.noise(
                jax.random.wrap_key_data(search.key), search.chunk, self.pairs, len(search.centre)
            )
            parameters = es.mirrored(search.centre, perturbations, self.config.sigma)
        else:
            search = self._move(search)
            parameters = search.centre[None]
        parents = jnp.full(len(parameters), search.parent)
        made = children(self._seeing(parameters, state.moments), parents)
        exploit, explore = self.batch(exploit=made), self.batch(explore=made)
        operator = jnp.where(search.exploring, explore.operator, exploit.operator)
        return state._replace(search=search), exploit._replace(operator=operator)

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation
    ) -> tuple[State, jax.Array]:
        """Notes the perturbations' scores, or adds the centre to the archive."""
        if round.name == "perturbations":
            search = state.search
            novelty = self.novelty(state.centres, jnp.asarray(evaluation.descriptor))
            scores = jnp.where(search.exploring, novelty, evaluation.fitness).reshape(2, self.pairs)
            search = search._replace(
                scores=search.scores.at[search.chunk].set(scores), chunk=search.chunk + 1
            )
            progress = state.progress._replace(evaluations=advance(state.progress, evaluation).evaluations)
            state = state._replace(
                search=search, progress=progress, moments=self._observed(state, evaluation)
            )
            return state, mark_skipped(evaluation, jnp.full(round.policies, Status.REJECTED))
        archive, status = self.insert(state.archive, batch, evaluation, state.progress)
        _, descriptor = mean_of_episodes(evaluation)
        return state._replace(
            archive=archive,
            centres=_remember(state.centres, descriptor),
            progress=advance(state.progress, evaluation),
        ), status

    def novelty(self, centres: Centres, descriptors: jax.Array) -> jax.Array:
        """Mean squared distance to the nearest centres so far, of descriptors `[n, d]`."""
        apart = (descriptors[:, None] - centres.descriptor) / spans(self.cells.bounds)
        squared = (apart**2).sum(-1)  # inf where there is none yet
        nearest = -jax.lax.top_k(-squared, min(self.config.neighbours, CENTRES))[0]
        there = jnp.isfinite(nearest)
        mean = jnp.where(there, nearest, 0).sum(1) / jnp.maximum(there.sum(1), 1)
        return jnp.where(jnp.isfinite(descriptors).all(1), mean, jnp.nan)

    def _begin_step(self, state: State, key: jax.Array) -> Search:
        """New perturbations; and, when the last parent has had its steps, a new parent and the other goal."""
        search, archive = state.search, state.archive
        turning = search.step % self.config.steps == 0
        exploring = jnp.where(turning, ~search.exploring, search.exploring)
        cell = self._parent(state, jax.random.fold_in(key, Stream.PARENT), exploring)
        fresh = self.optimiser.init(search.centre)
        return search._replace(
            centre=jnp.where(
                turning, self._unseeing(archive.elites.parameters[cell], state.moments), search.centre
            ),
            optimiser=jax.tree.map(lambda new, old: jnp.where(turning, new, old), fresh, search.optimiser),
            exploring=exploring,
            parent=jnp.where(turning, archive.elites.origin.evaluation[cell], search.parent),
            key=jax.random.key_data(jax.random.fold_in(key, Stream.NOISE)),
        )

    def _parent(self, state: State, key: jax.Array, exploring: jax.Array) -> jax.Array:
        """Exploit: the fittest or a uniform elite, half and half. Explore: one of the most novel."""
        tossing, drawing, ranking = jax.random.split(key, 3)
        elites, filled = state.archive.elites, state.archive.filled
        uniform = select(state.archive, drawing, 1)[0]
        fit = jnp.where(jax.random.bernoulli(tossing), elites.fitness.argmax(), uniform)
        novelty = self.novelty(state.centres, jnp.where(filled[:, None], elites.descriptor, 0))
        most = min(MOST_NOVEL, len(filled))
        novel = jax.lax.top_k(jnp.where(filled, novelty, -jnp.inf), most)[1]
        place = jax.random.randint(ranking, (), 0, jnp.minimum(filled.sum(), most))
        return jnp.where(exploring, novel[place], fit)

    def _move(self, search: Search) -> Search:
        """A step of Adam along the estimated gradient, less the weight decay."""
        key = jax.random.wrap_key_data(search.key)
        upward = es.gradient(key, search.scores, len(search.centre), self.config.sigma)
        downward = self.config.l2 * search.centre - upward
        updates, optimiser = self.optimiser.update(downward, search.optimiser)
        return search._replace(
            centre=optax.apply_updates(search.centre, updates),
            optimiser=optimiser,
            step=search.step + 1,
            chunk=jnp.int32(0),
        )

    def _seeing(self, parameters: jax.Array, moments: Moments) -> jax.Array:
        """Controllers that see raw observations as these see normalised ones: their first layer is scaled.

        What is evaluated, stored and replayed is thus a plain controller.
        """
        if not self.config.normalise:
            return parameters
        deviation = moments.deviation()

        def fold(controller: jax.Array) -> jax.Array:
            (weights, biases), *others = self.policy.layers(controller)
            scaled = weights / deviation[:, None]
            return self.policy.flat(((scaled, biases - moments.mean @ scaled), *others))

        return jax.vmap(fold)(parameters)

    def _unseeing(self, controller: jax.Array, moments: Moments) -> jax.Array:
        """The other way: a plain controller, as one that sees normalised observations."""
        if not self.config.normalise:
            return controller
        (weights, biases), *others = self.policy.layers(controller)
        first = (weights * moments.deviation()[:, None], biases + moments.mean @ weights)
        return self.policy.flat((first, *others))

    def _observed(self, state: State, evaluation: Evaluation[jax.Array]) -> Moments:
        """The moments with all observations of these episodes."""
        if not self.config.normalise:
            return state.moments
        assert evaluation.transitions is not None
        seen = jnp.asarray(evaluation.transitions.observations)[:, :-1]
        happened = jnp.arange(seen.shape[1]) < evaluation.length[:, None]
        happened &= (evaluation.ending <= Ending.TRUNCATED)[:, None]
        count, mean, squares = state.moments
        more = happened.sum().astype(jnp.float32)
        its_mean = jnp.where(happened[..., None], seen, 0).sum((0, 1)) / jnp.maximum(more, 1)
        its_squares = jnp.where(happened[..., None], (seen - its_mean) ** 2, 0).sum((0, 1))
        total = jnp.maximum(count + more, 1)
        shift = its_mean - mean
        return Moments(
            count + more,
            mean + shift * more / total,
            squares + its_squares + shift**2 * count * more / total,
        )


def _remember(centres: Centres, descriptor: jax.Array) -> Centres:
    """With one more centre, unless it was never evaluated or gave NaN."""
    known = jnp.isfinite(descriptor).all()
    place = jnp.where(known, centres.seen % CENTRES, CENTRES)
    return Centres(
        centres.descriptor.at[place].set(descriptor[0], mode="drop"), centres.seen + known.astype(jnp.int32)
    )

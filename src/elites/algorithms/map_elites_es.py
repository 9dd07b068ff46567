"""MAP-Elites-ES: C. Colas, V. Madhavan, J. Huizinga and J. Clune, "Scaling MAP-Elites to deep
neuroevolution", 2020.

The centre of an evolution strategy starts at an elite and takes some steps towards fitness (exploit) or
novelty (explore), alternating from parent to parent. After each step the centre is evaluated many times, and
its mean is added to the archive.

Defaults are those of the authors' released code (uber-research/Map-Elites-Evolutionary), with three
exceptions: a step has 100 pairs instead of 5000, controllers are those of all algorithms here (128-128
rectified units; the authors have 256-256 with tanh), and observations are not normalised unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from elites.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Batch,
    Progress,
    RandomStream,
    Round,
    advance,
    average_episodes,
    mark_skipped,
    zero_progress,
)
from elites.archives.archive import Archive, Status
from elites.archives.cells import spans
from elites.errors import require
from elites.evaluation.evaluation import Evaluation
from elites.options import Count, Range, Rate, Spread
from elites.policies import Policy, normc_layers
from elites.tasks.episode import Ending
from elites.tasks.task import Task
from elites.variation import evolution_strategy as es
from elites.variation.exploit_explore import (
    CENTRES,
    Centres,
    Discoveries,
    ParentSelection,
    add_centre,
    empty_centres,
    empty_discoveries,
)
from elites.variation.offspring import with_one_parent, without_parents

NORM = 0.01  # of the initial weights into each unit
MAX_CHUNKS = 1000  # of a generation; each is a separate part of the program


@dataclass(frozen=True, kw_only=True)
class MAPElitesESConfig(AlgorithmConfig):
    """MAP-Elites with evolution strategies that alternate between exploiting and exploring."""

    pairs: Count = 100
    """Mirrored pairs of perturbations per step (the original has 5000)."""
    chunk: Count = 100
    """Pairs evaluated at once."""
    steps: Count = 10
    """Consecutive steps from one parent."""
    centre_samples: Count = 30
    """Evaluations of the new centre after each step."""
    sigma: Rate = 0.02
    """Standard deviation of the perturbations."""
    action_noise: Spread = 0.01
    """Standard deviation of Gaussian noise on the actions of perturbed episodes; there is none when a centre
    is evaluated. The sum is clipped to ±1."""
    learning_rate: Rate = 0.01
    """Learning rate of Adam, which is reset with each parent."""
    l2: Spread = 0.005
    """Weight decay, added to the gradient before Adam: only its size relative to the gradient counts."""
    gradient_scale: Literal["ranks", "sigma"] = "ranks"
    """Scale of the gradient: the mean over the pairs of (difference of ranks) x noise, as in the released
    code (ranks), or that divided by 2 sigma, which makes weight decay weaker by this factor (sigma)."""
    parents: Literal["recent", "uniform"] = "recent"
    """Choice of parents. recent, as in the released code: exploit steps start from the best cell or from one
    of the best two of the last five discovered, with equal chances, where best is by the perturbations around
    an elite; explore steps start from one of the five most novel cells, in proportion to novelty, or, with
    probability 0.1, from any. uniform: exploit steps start from the fittest cell or from any, with equal
    chances; explore steps from any of the five most novel."""
    initial_weights: Literal["normc", "xavier"] = "normc"
    """Weights of the first controller: Gaussian, with norm 0.01 into each unit and no biases, as in the
    released code (normc), or Xavier-uniform, as in all other algorithms here (xavier)."""
    neighbours: Annotated[int, Range(1, CENTRES)] = 10
    """Number of nearest centres in the measure of novelty (k)."""
    normalise: bool = False
    """Whether controllers see observations normalised by their running mean and deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.pairs % min(self.chunk, self.pairs) == 0,
            "pairs",
            self.pairs,
            f"a multiple of chunk ({self.chunk})",
        )
        most = MAX_CHUNKS * self.chunk
        require(self.pairs <= most, "pairs", self.pairs, f"at most {MAX_CHUNKS} times chunk, {most:,}")


class Search(NamedTuple):
    """The state of the evolution strategy."""

    centre: jax.Array  # [P]
    optimiser: optax.OptState
    step: jax.Array  # since the parent was chosen
    exploring: jax.Array  # whether it maximises novelty
    parent: jax.Array  # its evaluation
    key: jax.Array  # of this step's perturbations, as plain numbers
    chunk: jax.Array  # the next one to evaluate
    scores: jax.Array  # [chunks, 2, pairs]
    cell: jax.Array  # of the elite that the centre was before its step; the number of cells if none
    best: jax.Array  # highest fitness of this step's perturbations so far; -inf: none


class Moments(NamedTuple):
    """Running moments of all observations."""

    weight: jax.Array  # number of observations
    mean: jax.Array
    squares: jax.Array  # sum of squared deviations

    def deviation(self) -> jax.Array:
        """Standard deviation; 1 before the first observation."""
        deviation = jnp.sqrt(self.squares / jnp.maximum(self.weight, 1) + 1e-8)
        return jnp.where(self.weight > 1, deviation, 1)


class State(NamedTuple):
    """The state of MAP-Elites-ES."""

    archive: Archive
    search: Search
    discoveries: Discoveries
    centres: Centres
    moments: Moments
    progress: Progress


class MAPElitesES(Algorithm):
    """A generation is one step: rounds of perturbations, then a round of the new centre."""

    Config = MAPElitesESConfig
    operators = ("random", "exploit", "explore")

    def __init__(self, task: Task, config: MAPElitesESConfig | None = None) -> None:
        super().__init__(task, config)
        config = self.config
        observes = isinstance(self.genome, Policy)
        require(
            observes or not config.normalise, "normalise", True, f"false: {task.name} has no observations"
        )
        self.pairs = min(config.chunk, config.pairs)
        self.chunks = config.pairs // self.pairs
        self.select = ParentSelection(config.parents, config.neighbours, spans(self.cells.bounds))
        self.optimiser = optax.adam(config.learning_rate)
        self.divisor = 1.0 if config.gradient_scale == "ranks" else 2 * config.sigma
        self.opening = ((Round("random", 1, config.centre_samples),),)
        perturbations = Round(
            "perturbations",
            2 * self.pairs,
            transitions=config.normalise,
            action_noise=config.action_noise,
        )
        self.generation = (*[perturbations] * self.chunks, Round("centre", 1, config.centre_samples))

    def init(self, key: jax.Array) -> State:
        """An empty archive; the search starts with the first generation."""
        size, dimensions = self.genome.parameter_count, self.task.descriptor_size
        centre, observation = jnp.zeros(size), jnp.zeros(self.task.observation_size)
        cells = len(self.cells.centroids)
        return State(
            self.empty_archive(self.config.centre_samples),
            Search(
                centre=centre,
                optimiser=self.optimiser.init(centre),
                step=jnp.int32(0),
                exploring=jnp.array(True),  # negated before the first parent: exploit comes first
                parent=jnp.int32(-1),
                key=jax.random.key_data(key),
                chunk=jnp.int32(0),
                scores=jnp.full((self.chunks, 2, self.pairs), jnp.nan),
                cell=jnp.int32(cells),
                best=jnp.float32(-jnp.inf),
            ),
            empty_discoveries(cells),
            empty_centres(dimensions),
            Moments(jnp.float32(0), observation, jnp.zeros_like(observation)),
            zero_progress(),
        )

    def ask(self, state: State, key: jax.Array, round: Round) -> tuple[State, Batch]:
        """One random controller; then perturbations of the centre, and the centre after its step."""
        if round.name == "random":
            return state, self._first(key)
        search = state.search
        if round.name == "perturbations":
            search = jax.lax.cond(
                search.chunk == 0, lambda: self._begin_step(state, key), lambda: state.search
            )
            perturbations = es.draw_noise(
                jax.random.wrap_key_data(search.key), search.chunk, self.pairs, len(search.centre)
            )
            parameters = es.mirror(search.centre, perturbations, self.config.sigma)
        else:
            search = self._move(search)
            parameters = search.centre[None]
        parents = jnp.full(len(parameters), search.parent)
        offspring = with_one_parent(self._fold_normalisation(parameters, state.moments), parents)
        exploit, explore = self.make_batch(exploit=offspring), self.make_batch(explore=offspring)
        operator = jnp.where(search.exploring, explore.operator, exploit.operator)
        return state._replace(search=search), exploit._replace(operator=operator)

    def tell(
        self, state: State, key: jax.Array, round: Round, batch: Batch, evaluation: Evaluation[jax.Array]
    ) -> tuple[State, jax.Array]:
        """Stores the scores of the perturbations, or adds the centre to the archive."""
        if round.name == "perturbations":
            search = state.search
            novelty = self.select.compute_novelty(state.centres, jnp.asarray(evaluation.descriptor))
            fitness = jnp.asarray(evaluation.fitness)
            scores = jnp.where(search.exploring, novelty, fitness).reshape(2, self.pairs)
            search = search._replace(
                scores=search.scores.at[search.chunk].set(scores),
                chunk=search.chunk + 1,
                best=jnp.maximum(search.best, jnp.where(jnp.isnan(fitness), -jnp.inf, fitness).max()),
            )
            progress = state.progress._replace(evaluations=advance(state.progress, evaluation).evaluations)
            state = state._replace(
                search=search, progress=progress, moments=self._update_moments(state, evaluation)
            )
            return state, mark_skipped(evaluation, jnp.full(round.policies, Status.REJECTED))
        archive, status = self.insert(state.archive, batch, evaluation, state.progress)
        fitness, descriptor = average_episodes(evaluation)
        progress = advance(state.progress, evaluation)
        cell, none = self.cells.assign(descriptor)[0], len(self.cells.centroids)
        new = status[0] == Status.NEW
        entered = jnp.where(new | (status[0] == Status.IMPROVED), cell, none)
        return state._replace(
            archive=archive,
            search=state.search._replace(cell=entered.astype(jnp.int32), best=jnp.float32(-jnp.inf)),
            discoveries=Discoveries(
                state.discoveries.generation.at[jnp.where(new, cell, none)].set(
                    progress.generation, mode="drop"
                ),
                _update_best(state.discoveries.best, state.search, entered, fitness[0]),
            ),
            centres=add_centre(state.centres, descriptor),
            progress=progress,
        ), status

    def _first(self, key: jax.Array) -> Batch:
        """The first controller. For a function, it is a vector within the initial bounds of the task."""
        if self.config.initial_weights == "xavier" or not isinstance(self.genome, Policy):
            return self.make_random_batch(key, 1)
        layers = normc_layers(jax.random.fold_in(key, RandomStream.RANDOM), self.genome.sizes, NORM)
        return self.make_batch(random=without_parents(self.genome.flatten(layers)[None]))

    def _begin_step(self, state: State, key: jax.Array) -> Search:
        """New perturbations; after the last step of a parent also a new parent and the other goal."""
        search, archive = state.search, state.archive
        switching = search.step % self.config.steps == 0
        exploring = jnp.where(switching, ~search.exploring, search.exploring)
        parent_key = jax.random.fold_in(key, RandomStream.PARENT)
        cell = self.select(archive, state.discoveries, state.centres, parent_key, exploring)
        fresh = self.optimiser.init(search.centre)
        return search._replace(
            centre=jnp.where(
                switching,
                self._unfold_normalisation(archive.elites.parameters[cell], state.moments),
                search.centre,
            ),
            optimiser=jax.tree.map(lambda new, old: jnp.where(switching, new, old), fresh, search.optimiser),
            exploring=exploring,
            parent=jnp.where(switching, archive.elites.origin.evaluation[cell], search.parent),
            cell=jnp.where(switching, cell, search.cell).astype(jnp.int32),
            key=jax.random.key_data(jax.random.fold_in(key, RandomStream.NOISE)),
        )

    def _move(self, search: Search) -> Search:
        """A step of Adam along the estimated gradient, minus the weight decay."""
        key = jax.random.wrap_key_data(search.key)
        upward = es.estimate_gradient(key, search.scores, len(search.centre), self.divisor)
        downward = self.config.l2 * search.centre - upward
        updates, optimiser = self.optimiser.update(downward, search.optimiser)
        return search._replace(
            centre=optax.apply_updates(search.centre, updates),
            optimiser=optimiser,
            step=search.step + 1,
            chunk=jnp.int32(0),
        )

    def _fold_normalisation(self, parameters: jax.Array, moments: Moments) -> jax.Array:
        """Folds the normalisation of observations into the first layer of each controller.

        The result is a plain controller, to be evaluated, stored and replayed.
        """
        if not self.config.normalise:
            return parameters
        deviation = moments.deviation()

        def fold(controller: jax.Array) -> jax.Array:
            (weights, biases), *others = self.policy.unflatten(controller)
            scaled = weights / deviation[:, None]
            return self.policy.flatten(((scaled, biases - moments.mean @ scaled), *others))

        return jax.vmap(fold)(parameters)

    def _unfold_normalisation(self, controller: jax.Array, moments: Moments) -> jax.Array:
        """The inverse: turns a plain controller into one for normalised observations."""
        if not self.config.normalise:
            return controller
        (weights, biases), *others = self.policy.unflatten(controller)
        first = (weights * moments.deviation()[:, None], biases + moments.mean @ weights)
        return self.policy.flatten((first, *others))

    def _update_moments(self, state: State, evaluation: Evaluation[jax.Array]) -> Moments:
        """The moments, with the observations of these episodes included."""
        if not self.config.normalise:
            return state.moments
        observations = jnp.asarray(evaluation.recorded.observations)[:, :-1]
        happened = jnp.arange(observations.shape[1]) < evaluation.length[:, None]
        happened &= (evaluation.ending <= Ending.TRUNCATED)[:, None]
        count, mean, squares = state.moments
        added = happened.sum().astype(jnp.float32)
        batch_mean = jnp.where(happened[..., None], observations, 0).sum((0, 1)) / jnp.maximum(added, 1)
        batch_squares = jnp.where(happened[..., None], (observations - batch_mean) ** 2, 0).sum((0, 1))
        total = jnp.maximum(count + added, 1)
        shift = batch_mean - mean
        return Moments(
            count + added,
            mean + shift * added / total,
            squares + batch_squares + shift**2 * count * added / total,
        )


def _update_best(best: jax.Array, search: Search, entered: jax.Array, fitness: jax.Array) -> jax.Array:
    """`Discoveries.best` after a step: of the cell that it started from, and of the one that it entered.

    A cell that was entered without perturbations, or only with invalid ones, gets the centre's own fitness.
    """
    valid = search.best > -jnp.inf
    started = jnp.where(valid, search.cell, len(best))
    best = best.at[started].set(search.best, mode="drop")
    return best.at[entered].set(jnp.where(valid, search.best, fitness), mode="drop")

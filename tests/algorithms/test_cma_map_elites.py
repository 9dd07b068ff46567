"""CMA-MAP-Elites against pyribs' own, on the sphere of the CMA-ME paper."""

import functools
from operator import attrgetter

import jax
import numpy as np
import pytest
import scipy.stats
from ribs.archives import GridArchive
from ribs.emitters import EvolutionStrategyEmitter
from ribs.schedulers import Scheduler

from elites import ElitesError, RunConfig, Task, compute_archive_metrics, make_algorithm, make_task
from elites.algorithms import cma_map_elites
from elites.archives.archive import Solutions, empty_archive
from elites.evaluation.evaluation import blank_evaluation
from elites.tasks.episode import Ending
from elites.variation.covariance import PARTS, SEEDS, make_strategies, size_in_bytes
from elites.variation.improvement import compute_improvement
from elites.variation.isotropic import Ranking

RIBS = {"full": "cma_es", "separable": "sep_cma_es", "limited-memory": "lm_ma_es"}
GRID = (50, 50)
CENTRE, EDGE = 0.4 * 5.12, 5.12  # of the sphere, and of the parameters that count in its descriptor


def sphere(solutions):
    """Fitness from 0 to 100, and the descriptor: the sums of both halves of the (clipped) parameters."""
    dimensions = solutions.shape[1]
    worst = dimensions * (-EDGE - CENTRE) ** 2
    fitness = 100 * (1 - ((solutions - CENTRE) ** 2).sum(1) / worst)
    clipped = np.where(np.abs(solutions) <= EDGE, solutions, EDGE / solutions)
    halves = clipped[:, : dimensions // 2].sum(1), clipped[:, dimensions // 2 :].sum(1)
    return fitness, np.stack(halves, 1)


@functools.cache
def on_the_sphere(dimensions, es):
    """The algorithm, whose controllers have as many parameters as the sphere has dimensions."""
    reach = dimensions / 2 * EDGE
    task = Task(
        name="sphere",
        observation_size=dimensions - 1,
        action_size=1,
        descriptor_names=("first half", "second half"),
        descriptor_bounds=((-reach, reach),) * 2,
        cells=1,
        grid=GRID,
        qd_offset=0.0,
    )
    algorithm = make_algorithm("cma-map-elites", task, es=es, hidden=(), archive="grid")
    assert algorithm.policy.parameter_count == dimensions
    return algorithm, jax.jit(algorithm.ask, static_argnums=2), jax.jit(algorithm.tell, static_argnums=2)


def ours(dimensions, generations, seed, es="full"):
    algorithm, ask, tell = on_the_sphere(dimensions, es)
    state = algorithm.init(jax.random.key(seed))
    (round,) = algorithm.generation
    for generation in range(generations):
        asking, telling = jax.random.split(jax.random.fold_in(jax.random.key(seed), generation))
        state, batch = ask(state, asking, round)
        fitness, descriptor = sphere(np.asarray(batch.parameters, np.float64))
        blank = blank_evaluation(algorithm.task, np.zeros(round.policies, np.uint32), transitions=False)
        evaluation = blank._replace(
            fitness=fitness.astype(np.float32),
            descriptor=descriptor.astype(np.float32),
            ending=np.full(round.policies, Ending.TERMINATED, np.uint8),
        )
        state, _ = tell(state, telling, round, batch, evaluation)
    cells = np.asarray(state.archive.elites.fitness)
    return compute_archive_metrics(cells[cells > -np.inf], len(cells), 0.0)


def theirs(dimensions, generations, seed, es="full"):
    reach = dimensions / 2 * EDGE
    archive = GridArchive(solution_dim=dimensions, dims=GRID, ranges=[(-reach, reach)] * 2, seed=seed)
    emitters = [
        EvolutionStrategyEmitter(
            archive,
            x0=np.zeros(dimensions),
            sigma0=0.5,
            ranker="2imp",
            es=RIBS[es],
            batch_size=20,
            seed=number,
        )
        for number in np.random.SeedSequence(seed).spawn(5)
    ]
    scheduler = Scheduler(archive, emitters)
    for _ in range(generations):
        fitness, descriptor = sphere(np.asarray(scheduler.ask()))
        scheduler.tell(fitness, descriptor)
    elites = archive.data("objective")
    return compute_archive_metrics(elites, archive.cells, 0.0)


@pytest.mark.parametrize("es", ["isotropic", "full"])
def test_cma_map_elites_improves_on_a_sphere(es):
    before, after = (ours(20, generations, 0, es) for generations in (2, 60))
    assert after.qd_score > 5 * before.qd_score
    assert after.max_fitness > 97 > before.max_fitness


@pytest.mark.slow
@pytest.mark.parametrize(
    ("es", "dimensions", "other_es"),
    [(es, dimensions, es) for es in RIBS for dimensions in (20, 100)]
    + [("isotropic", dimensions, "full") for dimensions in (100, 300)],
)
def test_cma_map_elites_matches_pyribs_on_the_sphere(es, dimensions, other_es):
    """20 000 evaluations each, six seeds against six; limited-memory in 20 dimensions is barren in both.

    The isotropic one is compared with the full one, in dimensions whose covariance 20 samples hardly move.
    """
    mine = [ours(dimensions, 200, seed, es) for seed in range(6)]
    other = [theirs(dimensions, 200, seed, other_es) for seed in range(6)]
    for metric in ("qd_score", "max_fitness"):  # a wrong step size shows in the latter
        both = [np.array([getattr(run, metric) for run in runs]) for runs in (mine, other)]
        texts = [f"{values.mean():.5g} ± {values.std():.3g}" for values in both]
        print(f"{metric} in {dimensions} dimensions: {es} {texts[0]}, pyribs {other_es} {texts[1]}")
        assert abs(both[0].mean() / both[1].mean() - 1) < 0.1
        assert scipy.stats.mannwhitneyu(*both, method="exact").pvalue > 0.01


@pytest.mark.parametrize("es", RIBS)
def test_a_saved_and_restored_strategy_continues_unchanged(es):
    """The arrays are all that a strategy is: nothing of pyribs' object is forgotten between generations."""
    dimensions, batch = 30, 6
    strategies = make_strategies(es, 1, batch, dimensions, sigma=0.5)
    arrays = strategies.start()
    kept = strategies._type(sigma0=0.5, solution_dim=dimensions, batch_size=batch, dtype=np.float32)
    kept.reset(np.zeros(dimensions))
    rng = np.random.default_rng(0)
    for generation in range(60):
        arrays, samples = strategies.ask(arrays, jax.random.key(generation))
        kept._rng = np.random.default_rng(int(arrays[SEEDS][0]))
        theirs = kept.ask()
        np.testing.assert_array_equal(samples[0], theirs)
        fitness, _ = sphere(theirs)
        order = np.argsort(-fitness)
        parents = 0 if generation == 25 else int(rng.integers(1, batch))
        fresh = rng.normal(size=(1, dimensions)).astype(np.float32)
        values = fitness[:, None].astype(np.float32)
        ranking = Ranking(order[None], values[None], np.array([parents]), fresh)
        arrays = strategies.tell(arrays, samples, ranking)
        kept.tell(order, values, parents)
        if parents == 0:
            kept.reset(fresh[0])
        for part in PARTS[es]:  # the arrays are in single precision, and pyribs slips into double
            *path, name = part.attribute.split(".")
            owner = attrgetter(*path)(kept) if path else kept
            setattr(owner, name, part.type(np.float32(getattr(owner, name))))
        assert float(arrays["sigma"][0]) == kept.sigma


@pytest.mark.parametrize("es", ["isotropic", "separable"])
def test_a_converged_strategy_restarts(es):
    strategies = make_strategies(es, 2, 4, 10, sigma=0.5)
    arrays = strategies.start() | {"sigma": np.array([1e-12, 0.3], np.float32)}
    arrays, samples = strategies.ask(arrays, jax.random.key(0))
    order, values = np.tile(np.arange(4), (2, 1)), np.tile(np.arange(4.0, 0, -1)[:, None], (2, 1, 1))
    fresh = np.full((2, 10), 7, np.float32)
    ranking = Ranking(order, values.astype(np.float32), np.array([2, 2]), fresh)
    after = strategies.tell(arrays, samples, ranking)
    np.testing.assert_array_equal(after["mean"][0], fresh[0])
    assert after["sigma"][0] == 0.5
    assert np.abs(np.asarray(after["mean"][1])).max() < 7


def test_only_the_isotropic_variant_shares_a_program():
    for given, shares in (({}, True), *(({"es": es}, es == "isotropic") for es in PARTS)):
        config = RunConfig(algorithm="cma-map-elites", task="qd-hopper", hyper_parameters=given)
        assert config.shares_program == shares


def test_new_cells_rank_above_improvements_and_improvements_above_rejections():
    archive = empty_archive(4, 1, 1)
    archive = archive._replace(
        elites=archive.elites._replace(fitness=np.array([5.0, -np.inf, 0.0, -np.inf], np.float32))
    )
    fitness = np.array([6.0, -50.0, 3.0, 4.0, np.nan, 0.0], np.float32)
    cells = np.array([0, 1, 2, 0, 3, 2])
    offspring = Solutions(fitness[:, None], fitness, fitness[:, None], archive.elites.origin)
    rank, gain = compute_improvement(archive, cells, offspring)
    np.testing.assert_array_equal(rank, [1, 2, 1, 0, 0, 0])
    np.testing.assert_array_equal(gain[:4], [1, -50, 3, -1])
    assert np.isfinite(np.asarray(gain)).all()


def test_a_full_covariance_that_cannot_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(cma_map_elites, "available_bytes", lambda: 10**10)
    message = (
        r"es full takes 147\.3 GB for 5 emitters of 20230 parameters, but only 10\.0 GB are free; what fits: "
    )
    fitting = r"isotropic \(0\.0049 GB\), separable \(.* GB\), limited-memory \(.* GB\)"
    with pytest.raises(ElitesError, match=message + fitting):
        make_algorithm("cma-map-elites", make_task("qd-walker"), es="full")
    monkeypatch.setattr(cma_map_elites, "available_bytes", lambda: 10)
    with pytest.raises(ElitesError, match="what fits: none of the variants"):
        make_algorithm("cma-map-elites", make_task("qd-walker"))


@pytest.mark.parametrize("es", PARTS)
def test_the_predicted_size_of_every_variant_is_correct(es):
    arrays = make_strategies(es, 3, 4, 50, sigma=0.5).start()
    held = sum(array.nbytes for name, array in arrays.items() if name != SEEDS)
    assert size_in_bytes(es, 3, 4, 50) == held


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"es": "diagonal"}, "es is 'diagonal'; it must be one of isotropic, full, separable, limited"),
        ({"emitters": 0}, "emitters is 0; it must be from 1 to"),
        ({"emitter_batch": 1}, "emitter_batch is 1; it must be from 2 to"),
        ({"sigma0": 0.0}, "sigma0 is 0.0; it must be above 0"),
        (
            {"es": "limited-memory", "emitter_batch": 100, "hidden": (1,)},
            "emitter_batch is 100; it must be at most",
        ),
    ],
)
def test_wrong_hyper_parameters_are_reported(parameters, message):
    with pytest.raises(ElitesError, match=message):
        make_algorithm("cma-map-elites", make_task("qd-hopper"), **parameters)

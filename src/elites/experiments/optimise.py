"""Optimisation of a function, in one call or with an ask/tell loop."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from elites.algorithms import make_algorithm, make_config, refuse_other_cells
from elites.errors import ElitesError
from elites.evaluation.evaluation import blank_evaluation
from elites.experiments.config import RunConfig
from elites.experiments.display import show_progress
from elites.experiments.execution import Execution
from elites.experiments.generation import make_generation, make_keys, pack_archive
from elites.experiments.run import run, start_runs
from elites.options import Seed, convert_value
from elites.results.archive import SavedArchive
from elites.results.folder import RunFolder
from elites.tasks.episode import Ending
from elites.tasks.function import Function, FunctionTask, Problem, function_task, task
from elites.tasks.in_memory import forget_function


def optimise(
    function: Function,
    *,
    algorithm: str = "map-elites",
    evaluations: int = 100_000,
    seed: int = 0,
    folder: Path | str | None = None,
    execution: Execution | None = None,
    progress: bool | None = None,
    hyper_parameters: Mapping[str, Any] | None = None,
    metrics: tuple[str, ...] = (),
    **problem: Unpack[Problem],
) -> SavedArchive:
    """Optimises a function of a batch of vectors. Returns the archive.

    Args:
        function: maps vectors `[n, parameters]` to (fitness `[n]`, descriptors `[n, d]`), in NumPy or JAX; a
            noisy function takes the seeds `[n]` too.
        algorithm: name of an algorithm that does not need an environment.
        evaluations: budget.
        seed: seed of everything random.
        folder: folder of the run's files; by default they are not kept.
        execution: threads, limits and callbacks.
        progress: whether to show the progress, as in `run`.
        hyper_parameters: hyper-parameters of the algorithm.
        metrics: metrics of your own, each as module:metric.
        problem: length of a vector, bounds of the descriptor and more, as in `Problem`.
    """
    config = RunConfig(
        algorithm=algorithm,
        task=task(**problem)(function),
        evaluations=evaluations,
        seed=seed,
        hyper_parameters=dict(hyper_parameters or {}),
        metrics=metrics,
    )
    archive = make_config(algorithm, **config.hyper_parameters).archive
    refuse_other_cells(archive, problem.get("cells"), problem.get("grid"))
    if folder is not None:
        run(config, folder, execution=execution, progress=progress)
        return RunFolder(folder).read_archive()
    execution = dataclasses.replace(execution or Execution(), keep_state=False)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "run"
        try:
            with show_progress(f"{algorithm} on {config.task_name}", execution, progress) as execution:
                start_runs(config, 1, path, execution, group=False)
            return RunFolder(path).read_archive()
        finally:
            forget_function(path)


class Optimiser:
    """An algorithm for an ask/tell loop: `ask` returns vectors, `tell` takes their evaluation.

    optimiser = elites.Optimiser(parameters=12, descriptor_bounds=[(0, 1), (0, 1)])
    for _ in range(1000):
        vectors = optimiser.ask()
        optimiser.tell(*evaluate(vectors))
    optimiser.archive().save("archive.npz")
    """

    def __init__(
        self,
        *,
        algorithm: str = "map-elites",
        seed: int = 0,
        hyper_parameters: Mapping[str, Any] | None = None,
        **problem: Unpack[Problem],
    ) -> None:
        self.task: FunctionTask = function_task(_refuse_evaluation, "function:ask-tell", **problem)
        self.name, self.seed = algorithm, convert_value(Seed, "seed", seed)
        self.algorithm = make_algorithm(algorithm, self.task, **hyper_parameters or {})
        refuse_other_cells(self.algorithm.config.archive, problem.get("cells"), problem.get("grid"))
        generations = (*self.algorithm.opening, self.algorithm.generation)
        if any(round.episodes > 1 for rounds in generations for round in rounds):
            raise ElitesError(f"{algorithm} evaluates a vector several times: use elites.optimise")
        self.generation = self.evaluations = 0
        self._functions = make_generation(self.algorithm, 1, with_descriptors=False)
        self._compiled, self._keys = self._functions.compiled, make_keys([self.seed])
        self._state: Any = self._compiled.init(self._keys)
        self._round = 0
        self._batch: Any = None

    def ask(self) -> np.ndarray:
        """The next vectors, `[n, parameters]`."""
        if self._batch is not None:
            raise ElitesError("ask was called twice; tell must come in between")
        round = self._functions.find_rounds(self.generation)[self._round]
        place = np.int32(self.generation), np.int32(self._round)
        self._state, self._batch = jax.block_until_ready(
            self._compiled.ask(self._state, self._keys, *place, round)
        )
        return np.asarray(self._batch.parameters[0])

    def tell(self, fitness: ArrayLike, descriptor: ArrayLike) -> np.ndarray:
        """Takes fitness `[n]` and descriptors `[n, d]`. Returns the Status of each vector.

        Vectors with values that are not finite are rejected.
        """
        if self._batch is None:
            raise ElitesError("tell was called without ask")
        rounds = self._functions.find_rounds(self.generation)
        round = rounds[self._round]
        seeds = self._compiled.derive_episode_seeds(self._keys, np.int32(self.evaluations), round)
        blank = blank_evaluation(self.task, np.asarray(seeds[0]), False)
        given, places = np.asarray(fitness, np.float32), np.asarray(descriptor, np.float32)
        if given.shape != blank.fitness.shape or places.shape != blank.descriptor.shape:
            raise ElitesError(
                f"fitness is {list(given.shape)} and descriptors are {list(places.shape)}; they must be "
                f"{list(blank.fitness.shape)} and {list(blank.descriptor.shape)}"
            )
        valid = np.isfinite(given) & np.isfinite(places).all(-1)
        evaluation = blank._replace(
            fitness=np.where(valid, given, np.nan),
            descriptor=np.where(valid[:, None], places, np.nan),
            length=np.ones(round.policies, np.int32),
            ending=np.where(valid, Ending.TERMINATED, Ending.INVALID).astype(np.uint8),
        )
        whole = jax.tree.map(lambda array: jnp.asarray(array)[None], evaluation)
        place = np.int32(self.generation), np.int32(self._round)
        self._state, status, *_ = jax.block_until_ready(
            self._compiled.tell(
                self._state,
                self._keys,
                *place,
                self._batch,
                whole,
                self._functions.make_zero_counts(),
                round,
            )
        )
        self._batch = None
        self.evaluations += round.evaluations
        self._round = (self._round + 1) % len(rounds)
        self.generation += self._round == 0
        return np.asarray(status[0])

    def archive(self) -> SavedArchive:
        """The elites so far, best first."""
        archive = jax.tree.map(
            lambda array: np.asarray(array[0]), self._compiled.collect_archives(self._state)
        )
        return pack_archive(
            self.algorithm, archive, name=self.name, seed=self.seed, evaluations=self.evaluations
        )


def _refuse_evaluation(vectors: Any) -> tuple[Any, Any]:
    raise ElitesError("the vectors of an Optimiser are evaluated by its user")

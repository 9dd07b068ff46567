"""`elites random`."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from elites.cli.options import TaskOptions
from elites.errors import require
from elites.experiments.options import EpisodeOptions
from elites.options import Count, Seed
from elites.policies.layout import HIDDEN
from elites.text import shorten

if TYPE_CHECKING:
    from elites.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Random(EpisodeOptions, TaskOptions):
    """Evaluate random controllers and print their fitness, descriptors and speed."""

    tasks: tyro.conf.Positional[tuple[str, ...]] = ("qd-walker", "qd-halfcheetah", "qd-ant", "qd-hopper")
    """Tasks."""
    controllers: Count = 100
    """Number of random controllers per task."""
    seed: Seed = 0
    """Seed of the controllers and of their episodes."""

    def run(self) -> int:
        from elites.evaluation.physics import refuse_physics
        from elites.tasks import make_task

        last = 2**32 - self.controllers
        require(0 <= self.seed <= last, "seed", self.seed, f"from 0 to {last}")
        # All are checked first.
        tasks = [make_task(name, **self.make_task_parameters()) for name in self.tasks]
        for task in tasks:
            refuse_physics(task, self.physics)
        for task in tasks:
            self._evaluate(task)
        return 0

    def _evaluate(self, task: Task) -> None:
        import jax
        import numpy as np

        from elites.evaluation import make_evaluator
        from elites.evaluation.physics import choose_physics
        from elites.experiments.display import Bar
        from elites.genomes import make_genome
        from elites.memory import require_bytes

        done = itertools.count(1)
        with Bar(task.name) as bar:
            physics, line = choose_physics(task, self.physics, threads=self.threads)
            genome = make_genome(task, HIDDEN)
            require_bytes(
                self.controllers,
                2 * 4 * genome.parameter_count,
                f"{self.controllers:,} {task.genomes} take",
                "controllers",
            )
            keys = jax.random.split(jax.random.key(self.seed), self.controllers)
            parameters = jax.jit(jax.vmap(genome.init))(keys)
            seeds = self.seed + np.arange(self.controllers)
            with make_evaluator(task, HIDDEN, self.threads, physics=physics) as evaluator:
                started = time.perf_counter()
                evaluation = evaluator.evaluate(
                    parameters, seeds, on_episode=lambda _: bar(next(done), self.controllers)
                )
                seconds = time.perf_counter() - started
        low, middle, high = np.nanquantile(evaluation.fitness, (0, 0.5, 1))
        spread = ", ".join(
            f"{shorten(name)} {np.nanmin(touch):.2f} to {np.nanmax(touch):.2f}"
            for name, touch in zip(task.descriptor_names, evaluation.descriptor.T, strict=True)
        )
        steps, unit = int(evaluation.length.sum()), "steps" if task.action_size else "evaluations"
        print(
            f"{shorten(task.name)}: {self.controllers} {task.genomes}, "
            f"{steps} {unit}, {steps / seconds:.0f} {unit}/s"
        )
        print(f"  fitness     {low:.1f} to {high:.1f}, median {middle:.1f}")
        print(f"  descriptor  {spread}")
        if line:
            print(f"  {line}")
        if evaluation.invalid:
            print(f"  {evaluation.invalid} episodes gave NaN")

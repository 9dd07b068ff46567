"""MAP-Elites-sampling: MAP-Elites in uncertain domains, every offspring evaluated several times.

As in A. Cully and Y. Demiris, "Hierarchical behavioral repertoires with unsupervised descriptors", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from elites.algorithms.base import Round, random_rounds, zero_progress
from elites.algorithms.map_elites import MAPElites, MAPElitesConfig, State
from elites.options import Count
from elites.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class MAPElitesSamplingConfig(MAPElitesConfig):
    """MAP-Elites on the mean fitness and descriptor of several evaluations."""

    initial: Count = 100
    """Random controllers evaluated first: one batch, as the authors' count of 500 includes the samples."""
    samples: Count = 10
    """Evaluations per offspring, random controllers included (M); each counts towards the budget."""


class MAPElitesSampling(MAPElites):
    """MAP-Elites with several episodes per controller; `tell` averages them."""

    Config = MAPElitesSamplingConfig

    def __init__(self, task: Task, config: MAPElitesSamplingConfig | None = None) -> None:
        super().__init__(task, config)
        initial, batch, samples = self.config.initial, self.config.batch, self.config.samples
        self.opening = random_rounds(initial, batch, episodes=samples)
        self.generation = (Round("offspring", batch, samples),)

    def init(self, key: jax.Array) -> State:
        """An empty archive, with room for the seeds of all samples."""
        return State(self.empty_archive(self.config.samples), zero_progress())

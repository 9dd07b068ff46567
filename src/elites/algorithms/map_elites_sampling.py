"""MAP-Elites-sampling: MAP-Elites in uncertain domains, every offspring evaluated several times.

As in A. Cully and Y. Demiris, "Hierarchical behavioral repertoires with unsupervised descriptors", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from elites.algorithms.algorithm import Round, rounds_of_random, start
from elites.algorithms.map_elites import MAPElites, MAPElitesConfig, State
from elites.archives.archive import empty_archive
from elites.errors import require
from elites.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class MAPElitesSamplingConfig(MAPElitesConfig):
    """MAP-Elites on the mean fitness and descriptor of several evaluations."""

    samples: int = 10
    """Evaluations per offspring, random controllers included (M); every one counts in the budget."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.samples >= 1, "samples", self.samples, "at least 1")


class MAPElitesSampling(MAPElites):
    """MAP-Elites whose rounds have several episodes per controller; `tell` averages them."""

    def __init__(self, task: Task, config: MAPElitesSamplingConfig | None = None) -> None:
        self.sampling = config = config or MAPElitesSamplingConfig()
        super().__init__(task, config)
        self.opening = rounds_of_random(config.initial, config.batch, episodes=config.samples)
        self.generation = (Round("offspring", config.batch, config.samples),)

    def init(self, key: jax.Array) -> State:
        """An empty archive, with room for the seeds of all samples."""
        sizes = len(self.cells.centroids), self.policy.parameter_count, self.task.descriptor_size
        return State(empty_archive(*sizes, self.sampling.samples), start())

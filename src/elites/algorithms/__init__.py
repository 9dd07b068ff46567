"""Names become algorithms here, and nowhere else."""

from __future__ import annotations

from typing import Any, NamedTuple

from elites.algorithms.algorithm import Algorithm
from elites.algorithms.cma_map_elites import CMAMAPElites, CMAMAPElitesConfig
from elites.algorithms.deep_grid import DeepGrid, DeepGridConfig
from elites.algorithms.map_elites import MAPElites, MAPElitesConfig
from elites.algorithms.map_elites_es import MAPElitesES, MAPElitesESConfig
from elites.algorithms.map_elites_sampling import MAPElitesSampling, MAPElitesSamplingConfig
from elites.algorithms.pga_map_elites import PGAMAPElites, PGAMAPElitesConfig
from elites.algorithms.qd_pg import QDPG, QDPGConfig
from elites.algorithms.td3 import TD3, TD3Config
from elites.errors import ElitesError
from elites.options import checked
from elites.tasks.task import Task


class Entry(NamedTuple):
    """An algorithm and its hyper-parameters."""

    algorithm: Any
    config: Any


ALGORITHMS: dict[str, Entry] = {
    "pga-map-elites": Entry(PGAMAPElites, PGAMAPElitesConfig),
    "map-elites": Entry(MAPElites, MAPElitesConfig),
    "map-elites-sampling": Entry(MAPElitesSampling, MAPElitesSamplingConfig),
    "deep-grid": Entry(DeepGrid, DeepGridConfig),
    "map-elites-es": Entry(MAPElitesES, MAPElitesESConfig),
    "qd-pg": Entry(QDPG, QDPGConfig),
    "cma-map-elites": Entry(CMAMAPElites, CMAMAPElitesConfig),
    "td3": Entry(TD3, TD3Config),
}


def find(name: str) -> Entry:
    """The algorithm called `name`."""
    if name not in ALGORITHMS:
        raise ElitesError(f"unknown algorithm {name!r}; the algorithms are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def make_config(name: str, **hyper_parameters: Any) -> Any:
    """The hyper-parameters of the algorithm called `name`, checked; the paper's unless given."""
    config = find(name).config
    return config(**checked(config, hyper_parameters, name))


def make_algorithm(name: str, task: Task, **hyper_parameters: Any) -> Algorithm:
    """The algorithm called `name` on a task, the paper's hyper-parameters unless given."""
    return find(name).algorithm(task, make_config(name, **hyper_parameters))  # type: ignore[no-any-return]

"""The algorithms by name."""

from __future__ import annotations

import inspect
from typing import Any

from elites.algorithms.base import Algorithm, AlgorithmConfig
from elites.algorithms.cma_map_elites import CMAMAPElites
from elites.algorithms.deep_grid import DeepGrid
from elites.algorithms.map_elites import MAPElites
from elites.algorithms.map_elites_es import MAPElitesES
from elites.algorithms.map_elites_sampling import MAPElitesSampling
from elites.algorithms.pga_map_elites import PGAMAPElites
from elites.algorithms.qd_pg import QDPG
from elites.algorithms.td3 import TD3
from elites.errors import ElitesError
from elites.imports import load_object
from elites.options import check_parameters
from elites.tasks.task import Task

ALGORITHMS: dict[str, type[Algorithm]] = {
    "pga-map-elites": PGAMAPElites,
    "map-elites": MAPElites,
    "map-elites-sampling": MAPElitesSampling,
    "deep-grid": DeepGrid,
    "map-elites-es": MAPElitesES,
    "qd-pg": QDPG,
    "cma-map-elites": CMAMAPElites,
    "td3": TD3,
}


def find_algorithm(name: str) -> type[Algorithm]:
    """The algorithm called `name`, or the class at `module:Class`."""
    if not isinstance(name, str):
        raise ElitesError(f"algorithm is {name!r}; it must be a name, or module:Class for one of your own")
    if ":" in name:
        algorithm = load_object(name, "algorithm")
        if not inspect.isclass(algorithm) or not issubclass(algorithm, Algorithm):
            raise ElitesError(f"algorithm {name!r} is not a subclass of elites.Algorithm")
        if inspect.isabstract(algorithm):
            missing = ", ".join(sorted(algorithm.__abstractmethods__))
            raise ElitesError(f"algorithm {name!r} does not define {missing}")
        if not (inspect.isclass(algorithm.Config) and issubclass(algorithm.Config, AlgorithmConfig)):
            raise ElitesError(
                f"Config of {name!r} is {algorithm.Config!r}; it must be a subclass of elites.AlgorithmConfig"
            )
        return algorithm
    if name not in ALGORITHMS:
        raise ElitesError(
            f"unknown algorithm {name!r}; the algorithms are {', '.join(ALGORITHMS)}, "
            "or module:Class for one of your own"
        )
    return ALGORITHMS[name]


def refuse_other_cells(archive: str, cells: object, grid: object) -> None:
    """Raises an error if a number of cells is given for a grid archive, or a grid for a CVT."""
    if archive != "grid" and grid is not None:
        raise ElitesError(
            f"grid can only be set with archive=grid; archive is {archive}, so set cells instead"
        )
    if archive == "grid" and cells is not None:
        raise ElitesError("cells can only be set with archive=cvt; archive is grid, so set grid instead")


def make_config(name: str, **hyper_parameters: Any) -> Any:
    """The hyper-parameters of the algorithm called `name`, checked. The defaults are the paper's."""
    config = find_algorithm(name).Config
    return config(**check_parameters(config, hyper_parameters, name))


def make_algorithm(name: str, task: Task, **hyper_parameters: Any) -> Algorithm:
    """The algorithm called `name` on a task. The default hyper-parameters are the paper's."""
    algorithm = find_algorithm(name)(task, make_config(name, **hyper_parameters))
    for attribute in ("operators", "generation"):
        if not hasattr(algorithm, attribute):
            raise ElitesError(f"algorithm {name!r} does not define {attribute}")
    return algorithm

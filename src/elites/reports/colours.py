"""One colour per algorithm and per operator, distinct for colour-blind readers too (Okabe and Ito)."""

from collections.abc import Iterable
from itertools import cycle

ALGORITHMS = {
    "pga-map-elites": "#d55e00",
    "map-elites": "#0072b2",
    "map-elites-sampling": "#56b4e9",
    "deep-grid": "#cc79a7",
    "map-elites-es": "#009e73",
    "qd-pg": "#e69f00",
    "cma-map-elites": "#000000",
    "td3": "#8c8c8c",
}

OPERATORS = {  # those of one algorithm differ
    "random": "#999999",
    "start": "#cc79a7",
    "ga": "#0072b2",
    "pg": "#e69f00",
    "greedy": "#009e73",
    "quality": "#e69f00",
    "diversity": "#56b4e9",
    "exploit": "#d55e00",
    "explore": "#56b4e9",
    "actor": "#009e73",
    "cma": "#0072b2",
}
OTHERS = ("#cc79a7", "#d55e00", "#56b4e9", "#f0e442")  # for operators of other algorithms
VARIANTS = ("#332288", "#44aa99", "#999933", "#882255", "#88ccee", "#117733")  # of one algorithm (Tol)


def operator_colours(names: Iterable[str]) -> dict[str, str]:
    """The colour of each operator."""
    others = cycle((*OTHERS, *VARIANTS))
    return {name: OPERATORS.get(name) or next(others) for name in names}

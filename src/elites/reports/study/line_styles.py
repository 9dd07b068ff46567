"""The colour and line style of each variant, the same in all figures of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from elites.paper.presets import has_paper_share
from elites.reports import colours
from elites.studies.results.runs import Run
from elites.studies.results.study_results import StudyResults

STYLES = ("-", "--", "-.", (0, (3, 1, 1, 1, 1, 1)))


class LineStyle(NamedTuple):
    """The colour and line style of a variant."""

    colour: str
    line: Any


def choose_line_styles(study: StudyResults) -> dict[str, LineStyle]:
    """A colour for each algorithm; several variants of one differ in their lines too."""
    by_variant = choose_colours([curves.run for curves in study.runs])
    algorithms = {curves.run.variant: curves.run.algorithm for curves in study.runs}
    styles, counts = {}, dict.fromkeys(algorithms.values(), 0)
    for variant in study.variants:
        count = counts[algorithms[variant]]
        counts[algorithms[variant]] += 1
        styles[variant] = LineStyle(by_variant[variant], STYLES[count % len(STYLES)])
    return styles


def choose_colours(runs: Sequence[Run]) -> dict[str, str]:
    """A colour for each variant: the algorithm's own, unless there are several variants of it.

    More variants than there are distinct colours are a sweep, and go from dark to light in their order.
    """
    chosen: dict[str, str] = {}
    others: list[str] = []
    by_order = sorted({(run.order, run.variant, run.algorithm) for run in runs})
    for _, variant, algorithm in by_order:
        several = sum(other == algorithm for _, _, other in by_order) > 1
        first = next(run for run in runs if run.variant == variant)
        is_default = has_paper_share(first.record.hyper_parameters)
        usual = colours.ALGORITHMS.get(algorithm)
        if usual is not None and usual not in chosen.values() and (not several or is_default):
            chosen[variant] = usual
        else:
            others.append(variant)
    return {**chosen, **dict(zip(others, _choose_distinct(len(others)), strict=True))}


def is_sweep(variants: int) -> bool:
    """Whether there are more variants than distinct colours."""
    return variants > len(colours.VARIANTS)


def _choose_distinct(count: int) -> list[str]:
    if not is_sweep(count):
        return list(colours.VARIANTS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](0.92 * place / (count - 1))) for place in range(count)]

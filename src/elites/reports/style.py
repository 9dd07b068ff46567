"""The style of an archive's picture: options of `elites show` and of the drawing functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elites.errors import ElitesError, require
from elites.options import Finite, Inches, Percentile, check_fields
from elites.text import shorten

Colour = Literal["fitness", "operator", "generation", "spread", "loss", "own-cell"]
CORRECTION_COLOURS = ("spread", "loss", "own-cell")  # colours that need replications
Format = Literal["png", "pdf", "svg"]


@dataclass(frozen=True, kw_only=True)
class Style:
    """The colours and the size of an archive's picture."""

    colour: Colour = "fitness"
    """Quantity that the colours show: the fitness of an elite, or the operator or generation that found it;
    once it is corrected, also the spread (standard deviation) of its fitness, its loss of fitness, or the
    share of its replications in its own cell."""
    limits: tuple[Finite, Finite] | None = None
    """Lowest and highest value of the colour scale. Default: those of the archive; if it has outliers,
    percentiles 2 and 98."""
    percentiles: tuple[Percentile, Percentile] | None = None
    """Lowest and highest value of the colour scale as percentiles; 0 100 spans all values."""
    cmap: str | None = None
    """Colour map of matplotlib, such as cividis or magma. Default: viridis."""
    size: tuple[Inches, Inches] | None = None
    """Width and height of the archive's picture in inches."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.limits is not None and self.percentiles is not None:
            raise ElitesError("limits and percentiles cannot be combined")
        for name in ("limits", "percentiles"):
            ends = getattr(self, name)
            if ends is not None:
                low, high = ends
                require(low < high, name, f"{low:g} {high:g}", "a lower and a higher number")
        scaled = {"limits": self.limits, "percentiles": self.percentiles, "cmap": self.cmap}
        given = [name for name, value in scaled.items() if value is not None]
        if self.colour == "operator" and given:
            raise ElitesError(f"colour operator has no scale, so {given[0]} cannot be set")
        if self.cmap is not None:
            _require_colour_map(self.cmap)


def _require_colour_map(name: str) -> None:
    from matplotlib import colormaps

    require(
        name in colormaps,
        "cmap",
        repr(shorten(name)),
        "a colour map of matplotlib, such as viridis or magma",
    )

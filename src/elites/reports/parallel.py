"""Elites as lines across parallel axes, one for each dimension of the descriptor."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection

from elites.reports.maps import Map
from elites.reports.scales import Scale, format_number

MAX_LINES = 2000
MAX_NAME_WIDTH = 16  # characters in a line of a name
MAX_HORIZONTAL_NAMES = 8  # axes; names of more are turned


def select_shown_elites(count: int) -> np.ndarray:
    """The elites that have a line: all, or if there are many, a selection from the best to the worst."""
    return np.unique(np.linspace(0, count - 1, min(count, MAX_LINES)).round().astype(int))


def draw_lines(axes: Axes, content: Map, scale: Scale, fitness: np.ndarray, heights: Scale) -> None:
    """A line for each elite, the best on top. The last axis is `fitness` `[n]` on the scale `heights`."""
    shown = select_shown_elites(len(content.values))[::-1]
    low, high = content.archive.bounds.T
    levels = heights.norm(np.asarray(fitness, np.float64))
    places = np.column_stack([(content.descriptor - low) / (high - low), levels])[shown]
    lines = np.stack([np.broadcast_to(np.arange(places.shape[1]), places.shape), places.clip(0, 1)], axis=-1)
    colours = ScalarMappable(scale.norm, content.cmap).to_rgba(content.values[shown].astype(np.float64))
    axes.add_collection(
        LineCollection(list(lines), colors=colours, linewidths=0.7, alpha=0.6, rasterized=True)
    )
    ends = [*content.archive.bounds, heights.ends]
    names = [*(content.label(dimension) for dimension in range(content.dimensions)), "fitness"]
    style: dict[str, Any] = {
        "ha": "center",
        "fontsize": 8,
        "annotation_clip": False,
        "textcoords": "offset points",
    }
    for place, (bottom, top) in enumerate(ends):
        axes.axvline(place, color="#222222", linewidth=1)
        axes.annotate(format_number(top), (place, 1), (0, 3), va="bottom", **style)
        axes.annotate(format_number(bottom), (place, 0), (0, -3), va="top", **style)
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(names) > MAX_HORIZONTAL_NAMES else {}
    axes.set_xticks(
        range(len(names)), [textwrap.fill(name, MAX_NAME_WIDTH) for name in names], fontsize=9, **turned
    )
    axes.tick_params(axis="x", length=0, pad=16)
    axes.set(xlim=(-0.15, len(names) - 0.85), ylim=(0, 1), yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)

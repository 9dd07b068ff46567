"""Scales of values: where colours and axes end, and what lies beyond."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.colors import Normalize

from elites.reports.style import Style

ROBUST = (2, 98)  # percentiles
MIN_ROBUST_VALUES = 10  # if there are fewer, all are within the limits
ROBUST_MARGIN = 0.25  # extremes this near to the percentiles, relative to their distance, are within too

Sides = Literal["neither", "min", "max", "both"]
Fixed = tuple[float | None, float | None]  # ends that a quantity has by nature, such as 0 and 1


class OutOfRange(NamedTuple):
    """Values that lie beyond a scale."""

    sides: Sides
    note: str  # on them; empty if there are none


class Scale(NamedTuple):
    """A scale of values."""

    norm: Normalize
    percentiles: tuple[float, float] | None = None  # at its ends, unless others were given

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value on it."""
        assert self.norm.vmin is not None
        assert self.norm.vmax is not None
        return self.norm.vmin, self.norm.vmax

    def out_of_range(self, *values: np.ndarray) -> OutOfRange:
        """The sides on which values lie beyond the scale, and a note."""
        finite = _select_finite(*values)
        low, high = self.ends
        if not finite.size or (finite.min() >= low and finite.max() <= high):
            return OutOfRange("neither", "")
        lowest, highest = format_number(finite.min()), format_number(finite.max())
        first, last = (f"{percentile:g}" for percentile in self.percentiles or ROBUST)
        sides: Sides
        if finite.max() <= high:
            sides, ends, note = "min", f"from percentile {first}", f"lowest value {lowest}"
        elif finite.min() >= low:
            sides, ends, note = "max", f"up to percentile {last}", f"highest value {highest}"
        else:
            sides, ends, note = "both", f"percentiles {first} to {last}", f"values from {lowest} to {highest}"
        return OutOfRange(sides, f"{ends}; {note}" if self.percentiles else note)


def choose_robust_limits(values: np.ndarray) -> tuple[float, float]:
    """The lowest and the highest finite value; where single ones lie far beyond the others, percentiles.

    If there is no finite value, 0 and 1.
    """
    finite = np.sort(_select_finite(values))
    if not len(finite):
        return 0.0, 1.0
    lowest, highest = float(finite[0]), float(finite[-1])
    last = len(finite) - 1
    # Values themselves, not points between two of them: one of the two may be the outlier.
    low = float(finite[math.ceil(ROBUST[0] / 100 * last)])
    high = float(finite[math.floor(ROBUST[1] / 100 * last)])
    if len(finite) < MIN_ROBUST_VALUES or not low < high:
        return lowest, highest
    near = ROBUST_MARGIN * (high - low)
    return (lowest if low - lowest <= near else low), (highest if highest - high <= near else high)


def make_scale(
    values: Sequence[np.ndarray], style: Style | None = None, fixed: Fixed = (None, None)
) -> Scale:
    """One scale for the values of several pictures. The limits of the style override `fixed` ends."""
    style = style or Style()
    percentiles: tuple[float, float] | None = style.percentiles or ROBUST
    finite = _select_finite(*values)
    if style.limits is not None:
        (low, high), percentiles = style.limits, None
    elif not finite.size:
        low, high = 0.0, 1.0
    elif style.percentiles is not None:
        low, high = map(float, np.percentile(finite, style.percentiles))
    else:
        within = [choose_robust_limits(part) for part in values if np.isfinite(part).any()]
        low = min(low for low, _ in within) if fixed[0] is None else fixed[0]
        high = max(high for _, high in within) if fixed[1] is None else fixed[1]
    if not low < high:
        high = low + max(1e-6 * abs(low), 1e-9)
    return Scale(Normalize(low, high), percentiles)


def format_number(value: float) -> str:
    """A value as short text."""
    size = abs(value)
    if size and not 0.01 <= size < 1e7:
        return f"{value:.3g}"
    return f"{value:,.0f}" if size >= 100 else f"{value:.3g}"


def _select_finite(*values: np.ndarray) -> np.ndarray:
    joined = np.concatenate([np.ravel(part).astype(np.float64) for part in values])
    finite: np.ndarray = joined[np.isfinite(joined)]
    return finite

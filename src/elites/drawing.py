"""The functions that draw archives, for packages that `reports` imports and that therefore cannot import it.

They are declared by their import paths and imported when they are first called.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAW = "elites.reports.figures:draw_archive"
PLOT = "elites.reports.notebook:plot_archive"


def draw_archive(archive: Any, *arguments: Any) -> Figure:
    """See `elites.draw_archive`."""
    return pkgutil.resolve_name(DRAW)(archive, *arguments)  # type: ignore[no-any-return]


def plot_archive(archive: Any, ax: Axes | None, **options: Any) -> Axes:
    """See `elites.plot_archive`."""
    return pkgutil.resolve_name(PLOT)(archive, ax, **options)  # type: ignore[no-any-return]

"""Archives in a notebook: as a picture, and as a table of pandas."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elites.drawing import draw_archive, plot_archive
from elites.metrics.metric import ArchiveMetrics
from elites.text import shorten

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

WIDTH, DPI = 560, 150  # of a picture: displayed width in pixels, and a higher resolution for good screens
Columns = Mapping[str, np.ndarray]


class DrawableArchive:
    """An archive that draws itself."""

    centroids: np.ndarray
    about: dict[str, Any]

    @property
    def title(self) -> str:
        """A title that names the run."""
        algorithm, task = shorten(self.about["algorithm"]), shorten(self.about["task"]["name"])
        return f"{algorithm} on {task}, {self.about['evaluations']:,} evaluations"

    @property
    def metrics(self) -> ArchiveMetrics:
        raise NotImplementedError

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draws the elites over descriptor space, into `ax` if given. See `elites.plot_archive`."""
        return plot_archive(self, ax, **options)

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]] | None:
        if self.metrics.coverage == 0:
            return None
        picture = io.BytesIO()
        draw_archive(self).savefig(picture, dpi=DPI)
        return picture.getvalue(), {"width": WIDTH}


def make_columns(name: str, array: np.ndarray) -> Columns:
    """A column `name`; of an array `[n, k]` the columns `name_1`, `name_2`, …"""
    if array.ndim == 1:
        return {name: array}
    return {f"{name}_{index + 1}": column for index, column in enumerate(array.T)}


def make_table(
    before: Columns, names: Sequence[str], descriptor: np.ndarray, after: Columns
) -> pandas.DataFrame:
    """A row for each elite. Each dimension has its name, with its number if another column has that name."""
    import pandas

    dimensions: dict[str, np.ndarray] = {}
    for number, (name, values) in enumerate(zip(names, descriptor.T, strict=True), start=1):
        while name in {*before, *dimensions, *after}:
            name = f"{name} {number}"
        dimensions[name] = values
    return pandas.DataFrame({**before, **dimensions, **after}).rename_axis("elite")

"""A film of an archive as it fills, from its snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from elites.errors import ElitesError
from elites.memory import require_bytes
from elites.replays.clip import FORMATS, Clip
from elites.reports.contents import list_operators, select_content
from elites.reports.figures import add_key, choose_size, draw_content
from elites.reports.maps import Map, make_common_scale
from elites.reports.plain import plain_text
from elites.reports.style import CORRECTION_COLOURS, Colour, Style
from elites.results.archive import SavedArchive, load_archive
from elites.results.folder import RunFolder

DPI = 100
SECONDS = 8.0  # of a film, unless its pictures are too few or too many
MIN_RATE, MAX_RATE = 2.0, 25.0  # pictures per second
LAST_PICTURE_SECONDS = 1.5  # seconds of the last picture
MAX_PICTURES = 1000


@plain_text()
def draw_film(
    folder: Path | str,
    out: Path | str,
    *,
    colour: Colour = "fitness",
    limits: tuple[float, float] | None = None,
    percentiles: tuple[float, float] | None = None,
    cmap: str | None = None,
    size: tuple[float, float] | None = None,
    on_frame: Callable[[int, int], None] | None = None,
) -> Path:
    """Draws the snapshots of a run one after the other, on one scale. Returns the path of the film.

    Args:
        folder: folder of the run.
        out: output file, .mp4 or .gif.
        colour: "fitness", or "operator" or "generation" that found an elite.
        limits: values at the ends of the colours; by default as in `draw_archive`, for all pictures together.
        percentiles: percentiles at the ends of the colours, instead of limits.
        cmap: colour map of matplotlib.
        size: width and height of the film in inches, each of 100 pixels.
        on_frame: function that is called with the number of pictures done and their total.
    """
    out = Path(out)
    if out.suffix not in FORMATS:
        raise ElitesError(f"film is {out}; it must end in {' or '.join(FORMATS)}")
    style = Style(colour=colour, limits=limits, percentiles=percentiles, cmap=cmap, size=size)
    if colour in CORRECTION_COLOURS:
        raise ElitesError(f"colour is {colour}; that of a film must be fitness, operator or generation")
    archives = read_snapshots(RunFolder(folder))
    operators = list_operators(archives) if colour == "operator" else None
    _draw(
        out,
        archives,
        [select_content(archive, style, operators=operators) for archive in archives],
        style,
        on_frame,
    )
    return out


def read_snapshots(run: RunFolder) -> list[SavedArchive]:
    """The snapshots in order, without parameters, and the archive if it is a later one."""
    run.read_record()
    at = run.snapshots()
    paths = [run.snapshot_path(evaluations) for evaluations in at]
    if run.has_archive and at and run.evaluations() > at[-1]:
        paths.append(run.archive)
    if len(paths) < 2:
        raise ElitesError(
            f"a film takes two snapshots or more; {run} has {len(at)}: see `elites run … --snapshots`"
        )
    chosen = np.unique(np.linspace(0, len(paths) - 1, min(len(paths), MAX_PICTURES)).round().astype(int))
    archives = [load_archive(paths[index], parameters=False) for index in chosen]
    for path, archive in zip([paths[index] for index in chosen], archives, strict=True):
        if not np.array_equal(archive.centroids, archives[-1].centroids):
            raise ElitesError(f"{path} has other cells than {paths[-1]}; they are not of one run")
    if not len(archives[-1].fitness):
        raise ElitesError("the archive is empty: there is nothing to draw")
    return archives


def _draw(
    out: Path,
    archives: Sequence[SavedArchive],
    contents: Sequence[Map],
    style: Style,
    on_frame: Callable[[int, int], None] | None,
) -> None:
    scale, last = make_common_scale(contents, style), len(archives) - 1
    figure = Figure(figsize=style.size or choose_size(contents[-1]), dpi=DPI, layout="constrained")
    canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()

    def picture(index: int) -> np.ndarray:
        axes.clear()
        draw_content(axes, archives[index], contents[index], scale, legend="upper right")
        canvas.draw()
        whole = np.asarray(canvas.buffer_rgba())[..., :3]
        height, width = whole.shape[0] // 2 * 2, whole.shape[1] // 2 * 2  # encoders need even numbers
        return whole[:height, :width].copy()

    add_key(axes, contents, scale)
    picture(last)
    figure.set_layout_engine("none")  # from here on, nothing moves
    end = picture(last)
    rate = float(np.clip(len(archives) / SECONDS, MIN_RATE, MAX_RATE))
    still = max(1, round(LAST_PICTURE_SECONDS * rate))
    buffered_pictures = last + still if out.suffix == ".gif" else 0  # all of a GIF, a byte per pixel
    require_bytes(1, end.shape[0] * end.shape[1] * (4 * 3 + buffered_pictures), "this film takes", "films")
    with Clip(out, rate, palette=end) as clip:
        for index in range(last):
            clip.add(picture(index))
            if on_frame is not None:
                on_frame(index + 1, last + 1)
        for _ in range(still):
            clip.add(end)
    if on_frame is not None:
        on_frame(last + 1, last + 1)

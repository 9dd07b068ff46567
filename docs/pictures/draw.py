"""Draws the pictures of docs/concepts: python docs/pictures/draw.py [FOLDER]

They explain, with made-up numbers; the figures of docs/results.md are measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from scipy.spatial import Voronoi

from elites.reports.colours import OPERATORS

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
COLOURS = matplotlib.colormaps["viridis"]
EMPTY, DARK, ACCENT = "#eeeeee", "#333333", OPERATORS["exploit"]
matplotlib.rcParams |= {"svg.hashsalt": "elites", "font.size": 10, "axes.edgecolor": DARK}


def save(figure: Figure, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None, "Creator": None})


def bare(axes: Axes, title: str = "") -> None:
    """Axes without ticks."""
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10)


def cells(count: int, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The centroids and the outlines of a CVT of the unit square, by Lloyd's iteration."""
    rng = np.random.default_rng(seed)
    samples, centroids = rng.random((20_000, 2)), rng.random((count, 2))
    for _ in range(40):
        nearest = np.linalg.norm(samples[:, None] - centroids, axis=2).argmin(1)
        centroids = np.array([samples[nearest == cell].mean(0) for cell in range(count)])
    mirrored = [centroids]  # across each side, so that all cells are bounded
    for axis, side in ((0, 0), (0, 1), (1, 0), (1, 1)):
        image = centroids.copy()
        image[:, axis] = 2 * side - image[:, axis]
        mirrored.append(image)
    diagram = Voronoi(np.concatenate(mirrored))
    return centroids, [diagram.vertices[diagram.regions[region]] for region in diagram.point_region[:count]]


def draw_cells(axes: Axes, outlines: list[np.ndarray], fitness: np.ndarray) -> None:
    """A map: the fitness of each cell, NaN where it is empty."""
    colours = [EMPTY if np.isnan(value) else COLOURS(value) for value in fitness]
    axes.add_collection(PolyCollection(outlines, facecolors=colours, edgecolors="white", linewidths=0.8))
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    bare(axes)


def made_up_fitness(places: np.ndarray) -> np.ndarray:
    x, y = places.T
    return np.clip(
        0.85 - 1.3 * (x - 0.35) ** 2 - 0.9 * (y - 0.4) ** 2 + 0.08 * np.sin(9 * x + 5 * y), 0.02, 1
    )


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = DARK) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6})


def box(axes: Axes, centre: tuple[float, float], size: tuple[float, float], text: str, colour: str) -> None:
    corner = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0.02", facecolor=colour, edgecolor=DARK))
    axes.text(*centre, text, ha="center", va="center")


def loop() -> None:
    figure = Figure(figsize=(8, 2.6))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 8), ylim=(0, 2.6))
    axes.axis("off")
    box(axes, (1.4, 1.3), (2.0, 1.5), "algorithm\n\narchive, operators,\ncritics", "#dbe9f6")
    box(axes, (6.6, 1.3), (2.0, 1.5), "evaluator\n\nruns episodes\nof the task", "#fde8d0")
    arrow(axes, (2.5, 1.8), (5.5, 1.8))
    arrow(axes, (5.5, 0.8), (2.5, 0.8))
    axes.text(4, 1.93, "ask: new genomes", ha="center", va="bottom", weight="bold")
    axes.text(4, 1.7, "100 a generation, with a seed for each episode", ha="center", va="top", fontsize=8.5)
    axes.text(4, 0.93, "tell: fitness and descriptor of each", ha="center", va="bottom", weight="bold")
    axes.text(4, 0.7, "and every transition, for algorithms that learn", ha="center", va="top", fontsize=8.5)
    save(figure, "loop")


def archive() -> None:
    centroids, outlines = cells(48, seed=1)
    rng = np.random.default_rng(4)
    fitness = made_up_fitness(centroids) - 0.15 * rng.random(48)
    fitness[rng.permutation(48)[:16]] = np.nan
    empty, full = np.flatnonzero(np.isnan(fitness)), np.flatnonzero(~np.isnan(fitness))
    upper = empty[np.argmin(np.linalg.norm(centroids[empty] - (0.25, 0.85), axis=1))]
    right = full[np.argmin(np.linalg.norm(centroids[full] - (0.75, 0.3), axis=1))]
    lower = full[np.argmin(np.linalg.norm(centroids[full] - (0.3, 0.15), axis=1))]
    after = fitness.copy()
    after[upper], after[right] = 0.45, 0.95
    figure = Figure(figsize=(8, 3.9), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, values, title in zip(
        panels, (fitness, after), ("three offspring arrive", "after"), strict=True
    ):
        draw_cells(axes, outlines, values)
        axes.set(title=title, xlabel="descriptor, dimension 1", ylabel="descriptor, dimension 2")
    offspring = ((upper, 0.45, "new"), (right, 0.95, "improved"), (lower, 0.1, "rejected"))
    for cell, value, text in offspring:
        place = centroids[cell]
        panels[0].plot(*place, "o", ms=11, mfc=COLOURS(value), mec=ACCENT, mew=2)
        panels[0].annotate(
            text, place, (0, 13), textcoords="offset points", ha="center", weight="bold", color=ACCENT,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
        )  # fmt: skip
        if text != "rejected":
            panels[1].plot(*place, "o", ms=11, mfc="none", mec=ACCENT, mew=2)
    figure.colorbar(
        ScalarMappable(Normalize(0, 1), COLOURS), ax=panels, label="fitness", ticks=[], shrink=0.8
    )
    save(figure, "archive")


def descriptor() -> None:
    time = np.arange(300)
    gait = 2 * np.pi * time / 75
    contacts = [np.sin(gait) > 0.35, np.sin(gait + np.pi) > -0.5]
    shares = [float(foot.mean()) for foot in contacts]
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    for row, (foot, share) in enumerate(zip(contacts, shares, strict=True)):
        starts = np.flatnonzero(np.diff(foot.astype(int), prepend=0) == 1)
        ends = np.flatnonzero(np.diff(foot.astype(int), append=0) == -1) + 1
        pieces = list(zip(starts, ends - starts, strict=True))
        left.broken_barh(pieces, (1 - row - 0.3, 0.6), facecolors=OPERATORS["ga"])
        left.text(308, 1 - row, f"{share:.0%}", va="center", weight="bold")
    left.set(xlim=(0, 345), ylim=(-0.7, 1.7), xlabel="steps of an episode", title="contact with the ground")
    left.set_yticks([1, 0], ["right foot", "left foot"])
    left.set_xticks(range(0, 301, 100))
    left.spines[["top", "right", "left"]].set_visible(False)
    left.tick_params(left=False)
    centroids, outlines = cells(120, seed=2)
    draw_cells(right, outlines, np.where(np.arange(120) % 7 == 3, np.nan, made_up_fitness(centroids)))
    right.plot(*shares, "o", ms=10, mfc="white", mec=ACCENT, mew=2.5)
    right.set(title="its place in the archive", xlabel="contact of right foot", ylabel="contact of left foot")
    right.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    save(figure, "descriptor")


def operators() -> None:
    rng = np.random.default_rng(0)
    figure = Figure(figsize=(8, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    first, second = np.array([0.35, 0.4]), np.array([0.75, 0.65])
    count = 250
    offspring = (
        first + 0.03 * rng.normal(size=(count, 2)) + 0.3 * (second - first) * rng.normal(size=(count, 1))
    )
    left.axline(first, second, color="#bbbbbb", lw=1, zorder=0)
    left.plot(*offspring.T, ".", color=OPERATORS["ga"], alpha=0.5, ms=5, label="offspring")
    for place, name in ((first, "x"), (second, "y")):
        left.plot(*place, "o", ms=11, mfc="white", mec=DARK, mew=2)
        left.annotate(
            name, place, (0, 10), textcoords="offset points", ha="center", style="italic", fontsize=12
        )
    left.set(xlim=(0, 1), ylim=(0, 1), xlabel="a parameter", ylabel="another parameter")
    bare(left, "ga: around x, and along the line through y")

    axis = np.linspace(0, 1, 80)
    x, y = np.meshgrid(axis, axis)

    def value(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-6 * ((x - 0.7) ** 2 + (y - 0.68) ** 2)) + 0.55 * np.exp(
            -9 * ((x - 0.2) ** 2 + (y - 0.3) ** 2)
        )

    right.contourf(x, y, value(x, y), 12, cmap="Greens", alpha=0.7)
    for start in ((0.45, 0.15), (0.85, 0.2), (0.15, 0.75), (0.42, 0.45), (0.95, 0.9)):
        path = [np.array(start)]
        for _ in range(50):
            here, step = path[-1], 1e-4
            slope = [
                (value(here[0] + step, here[1]) - value(here[0] - step, here[1])) / (2 * step),
                (value(here[0], here[1] + step) - value(here[0], here[1] - step)) / (2 * step),
            ]
            path.append(here + 0.006 * np.array(slope))
        climbed = np.array(path)
        right.plot(*climbed.T, color=OPERATORS["pg"], lw=2)
        right.plot(*climbed[0], "o", ms=9, mfc="white", mec=DARK, mew=2)
        right.plot(*climbed[-1], "o", ms=7, color=OPERATORS["pg"], mec=DARK)
    right.plot(0.69, 0.67, "*", ms=18, color=OPERATORS["greedy"], mec="white")
    right.annotate("greedy", (0.69, 0.67), (10, 8), textcoords="offset points", weight="bold")
    right.set(xlim=(0, 1), ylim=(0, 1), xlabel="a parameter")
    bare(right, "pg: parents climb what the critic has learned")
    save(figure, "operators")


def uncertainty() -> None:
    rng = np.random.default_rng(3)
    truth, spread = 600.0, 120.0
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    episodes = rng.normal(truth, spread, 400)
    left.hist(episodes, 24, color="#9ecae1", edgecolor="white")
    left.axvline(truth, color=DARK, lw=2)
    left.axvline(episodes.max(), color=ACCENT, lw=2)
    top = left.get_ylim()[1]
    left.text(truth - 12, top * 1.02, "its mean", ha="right", weight="bold", color=DARK)
    left.text(
        episodes.max() - 12,
        top * 0.55,
        "what an archive\nwould keep",
        ha="right",
        weight="bold",
        color=ACCENT,
    )
    left.set(
        title="fitness of one controller, 400 episodes", xlabel="fitness", yticks=[], ylim=(0, 1.15 * top)
    )

    counts = np.unique(np.logspace(0, 3, 40).astype(int))
    best = np.array([rng.normal(truth, spread, (800, count)).max(1) for count in counts])
    right.fill_between(counts, *np.percentile(best, (25, 75), axis=1), color=ACCENT, alpha=0.25, lw=0)
    right.plot(counts, np.median(best, axis=1), color=ACCENT, lw=2)
    right.axhline(truth, color=DARK, lw=2)
    right.text(1.1, truth + 14, "the truth", weight="bold", color=DARK, va="bottom")
    right.text(14, 900, "recorded", weight="bold", color=ACCENT)
    right.set(
        xscale="log",
        title="the best of n equally good ones",
        xlabel="n offspring of a cell",
        ylabel="fitness",
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "uncertainty")


def correction() -> None:
    centroids, outlines = cells(48, seed=1)
    rng = np.random.default_rng(7)
    fitness = made_up_fitness(centroids) + 0.12
    fitness[rng.permutation(48)[:6]] = np.nan
    corrected = fitness - 0.28 * rng.random(48) - 0.05
    lost = rng.permutation(48)[:14]
    corrected[lost] = np.nan
    figure = Figure(figsize=(8, 3.2))
    before = figure.add_axes((0.02, 0.08, 0.3, 0.78))
    middle = figure.add_axes((0.33, 0.08, 0.34, 0.78), xlim=(0, 1), ylim=(0, 1))
    after = figure.add_axes((0.68, 0.08, 0.3, 0.78))
    draw_cells(before, outlines, np.clip(fitness, 0, 1))
    draw_cells(after, outlines, np.clip(corrected, 0.02, 1))
    before.set_title("archive: one episode each")
    after.set_title("corrected archive: means")
    middle.axis("off")
    chosen = next(cell for cell in lost if centroids[cell][0] > 0.55 and not np.isnan(fitness[cell]))
    before.plot(*centroids[chosen], "o", ms=11, mfc="none", mec=ACCENT, mew=2.5)
    cloud = np.array([0.5, 0.5]) + 0.09 * rng.normal(size=(50, 2)) * (1, 1.2)
    middle.plot(*cloud.T, ".", color="#9ecae1", ms=7)
    middle.plot(*cloud.mean(0), "o", ms=11, color=ACCENT)
    middle.text(0.5, 0.83, "50 more episodes", ha="center", weight="bold")
    middle.text(
        0.5, 0.12, "mean fitness,\nmean descriptor", ha="center", va="center", weight="bold", color=ACCENT
    )
    arrow(middle, (0.04, 0.5), (0.22, 0.5))
    arrow(middle, (0.78, 0.5), (0.96, 0.5))
    save(figure, "correction")


for draw in (loop, archive, descriptor, operators, uncertainty, correction):
    draw()

"""The cells of descriptor space: a CVT or a regular grid.

A descriptor belongs to the cell with the nearest centroid. In a grid this cell is faster to compute.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from importlib.resources import as_file, files
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from elites.cache import make_cache_folder
from elites.errors import ElitesError, require
from elites.files import ArraySpec, read_arrays, write_arrays
from elites.tasks.task import Task

SAMPLES = 100_000
MAX_GRID_CELLS = 1_000_000
MIN_BINNED_DESCRIPTORS = 64  # for fewer, bins would save less time than compiling them takes
MAX_COMPARED_PAIRS = 2**23  # pairs of a bin and a centroid, when the bins of a CVT are made
MIN_CANDIDATE_REDUCTION = 8  # times fewer candidates than centroids: otherwise bins are not worth it
DESCRIPTORS_PER_CALL = 2048  # so that memory does not grow with their number
CVT_SEED = 0  # the same for all runs, which share their cells
CVT_VERSION = 2  # of the algorithm that computes centroids


class Cells(NamedTuple):
    """`centroids` [cells, d] within `bounds` [d, 2]; `grid` is empty for CVT, else cells per dimension."""

    centroids: np.ndarray
    bounds: np.ndarray
    grid: tuple[int, ...]

    def assign(self, descriptors: jax.Array) -> jax.Array:
        """The cell of each descriptor `[n, d]`; those beyond the bounds belong to the nearest cell."""
        if not self.grid:
            traced = not isinstance(self.centroids, np.ndarray)
            binned = len(descriptors) >= MIN_BINNED_DESCRIPTORS and not traced
            bins = make_bins(self.centroids, self.bounds) if binned else None
            cell: jax.Array = find_nearest_centroids(
                descriptors, self.centroids.astype(np.float32), spans(self.bounds), bins=bins
            )
            return cell
        low, high = self.bounds.T.astype(np.float32)
        shape = np.array(self.grid)
        places = jnp.floor((descriptors - low) / (high - low) * shape).astype(jnp.int32)
        places = jnp.clip(places, 0, shape - 1)
        return (places * np.array([math.prod(self.grid[i + 1 :]) for i in range(len(shape))])).sum(-1)

    def assign_in_parts(self, descriptors: np.ndarray) -> np.ndarray:
        """As `assign`, but outside of `jit` and for any number of descriptors; int32 `[n]`."""
        parts = [np.zeros(0, np.int32)]
        for start in range(0, len(descriptors), DESCRIPTORS_PER_CALL):
            part = descriptors[start : start + DESCRIPTORS_PER_CALL].astype(np.float32)
            padded = np.pad(part, ((0, DESCRIPTORS_PER_CALL - len(part)), (0, 0)))  # one shape, compiled once
            cells = np.asarray(_assign_cells(padded, self.centroids, self.bounds, self.grid), np.int32)
            parts.append(cells[: len(part)])
        return np.concatenate(parts)


def spans(bounds: np.ndarray) -> np.ndarray:
    """The range of each dimension. Distances are relative to it, so that units do not matter."""
    low, high = bounds.T.astype(np.float32)
    return high - low  # type: ignore[no-any-return]


@partial(jax.jit, static_argnames="bins")
def find_nearest_centroids(
    descriptors: ArrayLike, centroids: ArrayLike, spans: ArrayLike, *, bins: Bins | None = None
) -> jax.Array:
    """The index of the centroid nearest to each descriptor `[n, d]`; the first one in case of a tie."""
    search_all: Search = partial(_search_in_slices, _search_one_by_one, 1024)  # fits into the cache of a core
    cell: jax.Array = jax.lax.platform_dependent(
        jnp.asarray(descriptors),
        jnp.asarray(centroids),
        jnp.asarray(spans),
        cpu=search_all if bins is None else partial(_search_bins, bins, search_all),
        default=partial(_search_in_slices, _search_all_at_once, 16_384),
    )
    return cell


Search = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True, eq=False)
class Bins:
    """A regular grid of bins, and the centroids that can be nearest to a descriptor in each."""

    low: np.ndarray
    span: np.ndarray
    shape: tuple[int, ...]
    candidates: np.ndarray  # int32 [most, bins], in the order of centroids; short lists repeat the first


def make_bins(centroids: np.ndarray, bounds: np.ndarray) -> Bins | None:
    """The bins of a CVT; None if most of its centroids would be candidates, as in many dimensions."""
    return _bins(centroids.astype(np.float32).tobytes(), bounds.astype(np.float32).tobytes(), len(bounds))


@lru_cache(maxsize=16)
def _bins(centroid_bytes: bytes, bound_bytes: bytes, dimensions: int) -> Bins | None:
    low, high = np.frombuffer(bound_bytes, np.float32).reshape(dimensions, 2).T
    centroids = np.frombuffer(centroid_bytes, np.float32).reshape(-1, dimensions)
    unit = (centroids.astype(float) - low) / (high.astype(float) - low)
    per_dimension = int(min(4 * len(unit), MAX_COMPARED_PAIRS / len(unit)) ** (1 / dimensions))
    if per_dimension < 2:
        return None
    shape = (per_dimension,) * dimensions
    lists = [_candidates(np.array(place), per_dimension, unit) for place in np.ndindex(shape)]
    most = max(map(len, lists))
    if most * MIN_CANDIDATE_REDUCTION > len(unit):
        return None
    table = np.stack([np.append(own, np.full(most - len(own), own[0])) for own in lists], axis=1)
    return Bins(low, high - low, shape, table.astype(np.int32))


def _candidates(place: np.ndarray, per_dimension: int, centroids: np.ndarray) -> np.ndarray:
    """The centroids in the unit cube that can be nearest to a point of the bin at `place`.

    A centroid is left out if its smallest distance to the bin is larger than the largest one of another
    centroid. The tolerance is larger than the rounding errors of distances in float32.
    """
    before, after = place / per_dimension - centroids, centroids - (place + 1) / per_dimension
    closest = (np.maximum(np.maximum(before, after), 0) ** 2).sum(1)
    farthest = (np.maximum(np.abs(before), np.abs(after)) ** 2).sum(1)
    return np.flatnonzero(closest <= farthest.min() * (1 + 1e-4) + 1e-9)


def _search_bins(
    bins: Bins, otherwise: Search, descriptors: jax.Array, centroids: jax.Array, spans: jax.Array
) -> jax.Array:
    """Searches the candidates of the bin of each descriptor; all centroids if one is beyond the bounds."""
    low, high = bins.low, bins.low + bins.span
    inside = ((descriptors >= low) & (descriptors <= high)).all()
    search = partial(_search_in_slices, partial(_search_candidates, bins), 4096)
    cell: jax.Array = jax.lax.cond(inside, search, otherwise, descriptors, centroids, spans)
    return cell


def _search_candidates(
    bins: Bins, descriptors: jax.Array, centroids: jax.Array, spans: jax.Array
) -> jax.Array:
    """A step takes one candidate of each descriptor."""
    shape = np.array(bins.shape)
    places = jnp.clip(((descriptors - bins.low) / bins.span * shape).astype(jnp.int32), 0, shape - 1)
    bin = jnp.ravel_multi_index(tuple(places.T), bins.shape, mode="clip")
    compare, start = _comparison(descriptors, spans)

    def step(best: Best, candidates: jax.Array) -> tuple[Best, None]:
        numbers = candidates[bin]
        return compare(best, numbers, tuple(centroids[numbers].T)), None

    return jax.lax.scan(step, start, jnp.asarray(bins.candidates))[0].cell


def _search_in_slices(
    search: Search, size: int, descriptors: jax.Array, centroids: jax.Array, spans: jax.Array
) -> jax.Array:
    """Searches for `size` descriptors at a time, so that memory does not grow with their number."""
    count = len(descriptors)
    if count <= size:
        return search(descriptors, centroids, spans)
    padded = jnp.pad(descriptors, ((0, -count % size), (0, 0))).reshape(-1, size, descriptors.shape[1])
    cells: jax.Array = jax.lax.map(lambda part: search(part, centroids, spans), padded)
    return cells.reshape(-1)[:count]


def _search_one_by_one(descriptors: jax.Array, centroids: jax.Array, spans: jax.Array) -> jax.Array:
    """For CPUs: a step takes one centroid and all descriptors. This is vectorised, unlike `argmin`."""
    compare, start = _comparison(descriptors, spans)

    def step(best: Best, centroid: tuple[jax.Array, jax.Array]) -> tuple[Best, None]:
        number, place = centroid
        return compare(best, number, tuple(place)), None

    numbers = jnp.arange(len(centroids), dtype=jnp.int32)
    return jax.lax.scan(step, start, (numbers, centroids))[0].cell


class Best(NamedTuple):
    """The nearest centroid so far of each descriptor, `[n]`."""

    distance: jax.Array
    cell: jax.Array


def _comparison(
    descriptors: jax.Array, spans: jax.Array
) -> tuple[Callable[[Best, jax.Array, tuple[jax.Array, ...]], Best], Best]:
    """A function that compares the best centroids with others, given their numbers and coordinates, and the
    best before the first comparison.

    Distances in 1, 2 and 4 dimensions have the same bits as those of `_search_all_at_once` on a CPU, so
    that earlier results can be repeated.
    """
    coordinates = tuple(descriptors.T)  # separate: a sum over a short axis is slow
    scales = 1 / spans

    def compare(best: Best, numbers: jax.Array, places: tuple[jax.Array, ...]) -> Best:
        squares = [
            # The maximum changes no value. It prevents a fused multiply-add, which rounds only once.
            jax.lax.max(((coordinate - at) * scale) ** 2, jnp.zeros_like(coordinate))
            for coordinate, at, scale in zip(coordinates, places, scales, strict=True)
        ]
        while len(squares) > 1 and len(squares) % 2 == 0:
            half = len(squares) // 2
            squares = [one + other for one, other in zip(squares[:half], squares[half:], strict=True)]
        distance = reduce(jnp.add, squares)
        nearer = distance < best.distance
        return Best(jnp.where(nearer, distance, best.distance), jnp.where(nearer, numbers, best.cell))

    count = len(descriptors)
    return compare, Best(jnp.full(count, jnp.inf, descriptors.dtype), jnp.zeros(count, jnp.int32))


def _search_all_at_once(descriptors: jax.Array, centroids: jax.Array, spans: jax.Array) -> jax.Array:
    """For GPUs: one reduction, since each step of a loop would launch a kernel."""
    differences = (descriptors[:, None] - centroids) / spans
    return jnp.argmin((differences**2).sum(-1), axis=1).astype(jnp.int32)


@partial(jax.jit, static_argnums=3)
def _assign_cells(
    descriptors: jax.Array, centroids: jax.Array, bounds: jax.Array, grid: tuple[int, ...]
) -> jax.Array:
    return Cells(centroids, bounds, grid).assign(descriptors)  # type: ignore[arg-type] # traced


def make_cells(task: Task, kind: Literal["cvt", "grid"] = "cvt", version: int = CVT_VERSION) -> Cells:
    """The cells that every run of this task shares. For `version` see `compute_centroids`."""
    if kind == "cvt":
        return make_cvt(task.cells, task.descriptor_bounds, version)
    if kind == "grid":
        return make_grid(task.grid, task.descriptor_bounds)
    raise ElitesError(f"archive is {kind!r}; it must be cvt or grid")


def make_grid(shape: Sequence[int], bounds: Sequence[tuple[float, float]]) -> Cells:
    """A regular grid, cells numbered with the last dimension fastest."""
    require(
        math.prod(shape) <= MAX_GRID_CELLS,
        "grid",
        tuple(shape),
        f"of at most {MAX_GRID_CELLS:,} cells in all",
    )
    axes = [
        low + (high - low) * (np.arange(count) + 0.5) / count
        for count, (low, high) in zip(shape, bounds, strict=True)
    ]
    centroids = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))
    return Cells(centroids, np.array(bounds, float), tuple(shape))


def make_cvt(count: int, bounds: Sequence[tuple[float, float]], version: int = CVT_VERSION) -> Cells:
    """A centroidal Voronoi tessellation: shipped for common sizes, otherwise computed once and cached."""
    require(count <= SAMPLES, "cells", count, f"at most {SAMPLES}")
    low, high = np.array(bounds, float).T
    unit = _load_shipped(count, len(bounds), version)
    if unit is None:
        unit = _load_or_compute(count, len(bounds), version)
    return Cells(low + (high - low) * unit, np.array(bounds, float), ())


def compute_centroids(count: int, dimensions: int, version: int = CVT_VERSION) -> np.ndarray:
    """The centroids of a CVT of the unit cube, sorted by the first dimension, then the next.

    Version 2 is Lloyd's iteration from k-means++ until it converges; in one dimension that is a uniform grid.
    Version 1, of runs of an older format, begins with random samples and takes at most 200 iterations.
    """
    if version > 1 and dimensions == 1:
        return ((np.arange(count) + 0.5) / count)[:, None]
    generator = np.random.default_rng(CVT_SEED)
    points = generator.random((SAMPLES, dimensions))
    if version == 1:
        centroids = lloyd(points, points[:count], iterations=200)
    else:
        centroids = lloyd(points, kmeans_plus_plus(points, count, generator))
    return centroids[np.lexsort(centroids.T[::-1])]


def kmeans_plus_plus(points: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """k-means++: points drawn one by one, in proportion to their squared distance from those drawn before."""
    axes = [np.ascontiguousarray(axis) for axis in points.T]
    drawn = np.empty(count, np.int64)
    drawn[0] = generator.integers(len(points))
    distance = np.full(len(points), np.inf)
    for place in range(count):
        if place:
            total = np.cumsum(distance)
            drawn[place] = np.searchsorted(total[:-1], generator.random() * total[-1], side="right")
        last = drawn[place]
        np.minimum(distance, sum((axis - axis[last]) ** 2 for axis in axes), out=distance)
    return points[drawn]


def lloyd(points: np.ndarray, centroids: np.ndarray, iterations: int | None = None) -> np.ndarray:
    """k-means centroids of points, by Lloyd's iteration until no centroid moves, or at most `iterations`.

    A k-d tree finds the nearest centroids. In few dimensions, this is many times faster than scipy's
    `kmeans2`. The tree is searched again only for points whose nearest centroid may have changed (Hamerly
    2010, "Making k-means even faster"): `own` is an upper bound of the distance of a point to its centroid,
    `other` a lower bound of the distance to all other centroids.
    """
    count, nearest = len(centroids), np.zeros(len(points), np.intp)
    own, other = np.full(len(points), np.inf), np.zeros(len(points))
    for _ in itertools.count() if iterations is None else range(iterations):
        unsure = np.flatnonzero(own >= other)
        nearest[unsure], own[unsure], other[unsure] = _two_nearest(points[unsure], centroids)
        sizes = np.bincount(nearest, minlength=count)
        sums = np.stack([np.bincount(nearest, axis, minlength=count) for axis in points.T], axis=1)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centroids)
        if np.abs(moved - centroids).max() < 1e-6:
            break
        moves = np.sqrt(((moved - centroids) ** 2).sum(1)) * (1 + 1e-9)  # an upper bound, with rounding error
        own += moves[nearest]
        other -= moves.max()
        centroids = moved
    return centroids


def _two_nearest(points: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest centroid of each point, an upper bound of the distance to it, and a lower bound of the
    distance to the second nearest. The margin is larger than the rounding error."""
    from scipy.spatial import cKDTree

    distances, nearest = cKDTree(centroids).query(points, k=[1, 2], workers=-1)
    return nearest[:, 0], distances[:, 0] * (1 + 1e-9), distances[:, 1] * (1 - 1e-9)


def _load_shipped(count: int, dimensions: int, version: int) -> np.ndarray | None:
    resource = files("elites.archives") / "centroids" / f"{count}x{dimensions}-{version}.npy"
    if not resource.is_file():
        return None
    with as_file(resource) as path:
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]


def _load_or_compute(count: int, dimensions: int, version: int) -> np.ndarray:
    folder = make_cache_folder("centroids")
    path = None if folder is None else folder / f"{count}x{dimensions}-{SAMPLES}-{version}.npz"
    if path is not None and path.exists():
        with contextlib.suppress(ElitesError):  # damaged: computed again
            unit = read_arrays(
                path, {"centroids": ArraySpec("f", (count, dimensions))}, "a file of centroids"
            )
            return unit["centroids"]
    centroids = compute_centroids(count, dimensions, version)
    if path is not None:
        with contextlib.suppress(OSError):  # computed again next time
            write_arrays(path, {"centroids": centroids})
    return centroids

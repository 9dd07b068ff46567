"""A small software renderer: limbs and solids on a chequered floor, one ray per pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from elites.replays.solids import Solid, intersect

SKY, LIGHT, DARK = (250, 250, 252), (238, 238, 238), (160, 184, 226)
SHADE = 0.62  # factor on the floor below a limb
SUN = np.array([0.35, -0.5, 0.79])  # towards the light; its length is 1, nearly
FIELD_OF_VIEW = 50.0  # vertical, in degrees
OPACITY = 0.5  # of translucent solids


class Shapes(NamedTuple):
    """Capsules `[n, …]` from end to end; a sphere's ends are one point."""

    start: np.ndarray
    end: np.ndarray
    radius: np.ndarray
    colour: np.ndarray  # [n, 3], from 0 to 255


class Camera:
    """Looks at a target from a direction."""

    def __init__(self, size: tuple[int, int], yaw: float, pitch: float, distance: float) -> None:
        width, height = size
        yaw, pitch = np.radians(yaw), np.radians(pitch)
        forward = np.array([-np.sin(yaw) * np.cos(pitch), np.cos(yaw) * np.cos(pitch), np.sin(pitch)])
        right = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        self._axes = np.stack([right, np.cross(right, forward), forward])
        self._focus = height / 2 / np.tan(np.radians(FIELD_OF_VIEW) / 2)  # pixels
        self._size, self._back = size, distance * forward
        self._shaded = max(2.0, distance / 3)  # m from the target in which there are shadows
        x = (np.arange(width) + 0.5 - width / 2) / self._focus
        y = (height / 2 - np.arange(height) - 0.5) / self._focus
        rays = x[None, :, None] * self._axes[0] + y[:, None, None] * self._axes[1] + forward
        self._rays = rays / np.linalg.norm(rays, axis=-1, keepdims=True)

    def take_picture(self, shapes: Shapes, target: np.ndarray, solids: Sequence[Solid] = ()) -> np.ndarray:
        """A picture `[height, width, 3]`. Translucent solids cast no shadow."""
        origin = target - self._back
        opaque = [solid for solid in solids if not solid.translucent]
        picture, depth = self._floor(origin, shapes, opaque, target)

        def paint(
            start: np.ndarray, end: np.ndarray, radius: float, colour: np.ndarray, solid: Solid | None = None
        ) -> None:
            rows, columns = self._box(origin, start, end, radius)
            rays = self._rays[rows, columns]
            if not rays.size:
                return
            far, normal = (
                _intersect_capsule(origin, rays, start, end, radius)
                if solid is None
                else intersect(solid, origin, rays)
            )
            seen = far < depth[rows, columns]
            light = 0.45 + 0.55 * np.clip(normal @ SUN, 0, 1)
            painted = (light[..., None] * colour)[seen]
            if solid is not None and solid.translucent:
                painted = OPACITY * painted + (1 - OPACITY) * picture[rows, columns][seen]
            else:
                depth[rows, columns][seen] = far[seen]
            picture[rows, columns][seen] = painted

        for start, end, radius, colour in zip(*shapes, strict=True):
            paint(start, end, radius, colour)
        for solid in sorted(solids, key=lambda solid: solid.translucent):
            paint(solid.centre, solid.centre, solid.radius, solid.colour, solid)
        return picture.astype(np.uint8)

    def _floor(
        self, origin: np.ndarray, shapes: Shapes, solids: Sequence[Solid], target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        down = self._rays[..., 2] < -1e-3
        depth = np.where(down, -origin[2] / np.where(down, self._rays[..., 2], -1), np.inf)
        place = origin[:2] + np.where(down, depth, 0)[..., None] * self._rays[..., :2]
        odd = np.floor(place).astype(int).sum(-1) % 2 == 1
        picture = np.where(odd[..., None], DARK, LIGHT).astype(float)
        near = down & (np.abs(place - target[:2]).max(-1) < self._shaded)
        points = place[near]
        below = np.zeros(len(points), bool)
        for start, end, radius, _ in zip(*shapes, strict=True):
            along = end[:2] - start[:2]
            share = np.clip((points - start[:2]) @ along / max(along @ along, 1e-12), 0, 1)
            below |= ((points - start[:2] - share[:, None] * along) ** 2).sum(-1) < radius**2
        for solid in solids:
            close = np.flatnonzero(((points - solid.centre[:2]) ** 2).sum(-1) < solid.radius**2)
            places = np.column_stack([points[close], np.zeros(len(close))])
            far, _ = intersect(solid, places - [0, 0, 1e3], np.broadcast_to([0.0, 0.0, 1.0], places.shape))
            below[close] |= np.isfinite(far)
        picture[near] *= np.where(below, SHADE, 1)[:, None]
        haze = np.clip(depth / 40, 0, 1)[..., None]
        picture = (1 - haze) * picture + haze * SKY
        return picture, depth

    def _box(
        self, origin: np.ndarray, start: np.ndarray, end: np.ndarray, radius: float
    ) -> tuple[slice, slice]:
        """The part of the picture that may show a capsule."""
        width, height = self._size
        x, y, z = self._axes @ (np.stack([start, end], axis=1) - origin[:, None])
        if z.min() <= 2 * radius:  # behind the camera, or around it
            return slice(0, 0 if z.max() <= 0 else height), slice(0, width)
        margin = 1.3 * radius
        columns = width / 2 + self._focus * np.concatenate([x - margin, x + margin]) / np.tile(z, 2)
        rows = height / 2 - self._focus * np.concatenate([y - margin, y + margin]) / np.tile(z, 2)

        def within(places: np.ndarray, most: int) -> slice:
            low, high = int(np.floor(places.min())) - 1, int(np.ceil(places.max())) + 2
            return slice(min(max(low, 0), most), min(max(high, 0), most))

        return within(rows, height), within(columns, width)


def _intersect_capsule(
    origin: np.ndarray, rays: np.ndarray, start: np.ndarray, end: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """The distance of a capsule along each ray, inf where the ray misses it, and the surface's normal."""
    axis = end - start
    length = float(np.linalg.norm(axis))
    far = np.full(rays.shape[:-1], np.inf)
    if length > 1e-9:
        axis = axis / length
        from_start = origin - start
        across = rays - (rays @ axis)[..., None] * axis
        beside = from_start - (from_start @ axis) * axis
        far = _nearest((across**2).sum(-1), across @ beside, beside @ beside - radius**2)
        height = from_start @ axis + np.where(np.isinf(far), 0, far) * (rays @ axis)
        far = np.where((height >= 0) & (height <= length), far, np.inf)
    for centre in (start, end):
        offset = origin - centre
        far = np.minimum(far, _nearest(np.ones(far.shape), rays @ offset, offset @ offset - radius**2))
    points = origin + np.where(np.isinf(far), 0, far)[..., None] * rays
    share = np.clip((points - start) @ axis, 0, length)[..., None] if length > 1e-9 else 0.0
    return far, (points - start - share * axis) / radius


def _nearest(a: np.ndarray, half_b: np.ndarray, c: float) -> np.ndarray:
    """The smaller root of a t² + 2 half_b t + c if it is positive, else inf."""
    inside = half_b**2 - a * c
    root = (-half_b - np.sqrt(np.maximum(inside, 0))) / np.maximum(a, 1e-12)
    return np.where((inside > 0) & (root > 0), root, np.inf)

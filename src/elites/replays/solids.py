"""Boxes, cylinders, ellipsoids and convex outlines, as rays hit them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SIDES = np.concatenate([np.eye(3), -np.eye(3)])  # normals of a cube
NONE, DISC, BALL = 0, 2, 3  # axes along which a form is round


class Form(NamedTuple):
    """The points of a frame that lie within planes, and within 1 of the origin along the round axes."""

    normals: np.ndarray  # [n, 3], outwards
    offsets: np.ndarray  # [n], of the planes from the origin
    round: int  # NONE, DISC: the first two axes, or BALL: all


BOX = Form(SIDES, np.ones(6), NONE)
CYLINDER = Form(SIDES[[2, 5]], np.ones(2), DISC)
ELLIPSOID = Form(SIDES[:0], np.ones(0), BALL)


class Solid(NamedTuple):
    """A form in the world."""

    form: Form
    size: np.ndarray  # [3], factors on the form's axes
    centre: np.ndarray
    axes: np.ndarray  # [3, 3], the form's axes as columns
    radius: float  # of a ball around the centre that holds the solid
    colour: np.ndarray
    translucent: bool


def fit_outline(points: np.ndarray) -> Form:
    """A convex form around points `[n, 3]`, as tight as planes in 66 directions can make it."""
    grid = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 3), -1).reshape(-1, 3)
    turn = np.arange(40) * np.pi * (3 - np.sqrt(5))  # a Fibonacci lattice
    height = 1 - (np.arange(40) + 0.5) / 20
    level = np.sqrt(1 - height**2)
    lattice = np.stack([level * np.cos(turn), level * np.sin(turn), height], -1)
    normals = np.concatenate([grid[grid.any(-1)], lattice])
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    return Form(normals, (points @ normals.T).max(0), NONE)


def intersect(solid: Solid, origin: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distance of a solid along each ray, inf where the ray misses it, and the surface's normal."""
    at = (origin - solid.centre) @ solid.axes / solid.size
    along = rays @ solid.axes / solid.size
    entry, leave = np.full(rays.shape[:-1], -np.inf), np.full(rays.shape[:-1], np.inf)
    normal = np.zeros(rays.shape)
    for face, offset in zip(solid.form.normals, solid.form.offsets, strict=True):
        speed = along @ face
        speed = np.where(np.abs(speed) < 1e-12, 1e-12, speed)
        place = (offset - at @ face) / speed
        later = (speed < 0) & (place > entry)
        entry = np.where(later, place, entry)
        normal[later] = face
        leave = np.where(speed > 0, np.minimum(leave, place), leave)
    if solid.form.round:
        curved = np.arange(3) < solid.form.round
        a = ((along * curved) ** 2).sum(-1) + 1e-12
        half_b = (at * along * curved).sum(-1)
        inside = half_b**2 - a * (((at * curved) ** 2).sum(-1) - 1)
        root = np.sqrt(np.maximum(inside, 0))
        first = np.where(inside > 0, (-half_b - root) / a, np.inf)
        later = first > entry
        entry = np.where(later, first, entry)
        leave = np.minimum(leave, (-half_b + root) / a)
        place = at + np.where(np.isfinite(entry), entry, 0)[..., None] * along
        normal = np.where(later[..., None], place * curved, normal)
    normal = (normal / solid.size) @ solid.axes.T
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
    return np.where((entry < leave) & (entry > 0), entry, np.inf), normal

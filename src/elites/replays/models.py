"""The geoms of MuJoCo models as shapes: for pictures, and for the page, which draws only capsules.

Meshes become convex outlines. Height fields are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from elites.replays.poses import Limb
from elites.replays.rays import Camera, Shapes
from elites.replays.scene import SmoothTarget
from elites.replays.solids import BOX, CYLINDER, ELLIPSOID, Form, Solid, fit_outline

PLANE, HEIGHT_FIELD, SPHERE, CAPSULE = 0, 1, 2, 3  # MuJoCo's numbers for these shapes
FORMS = {0: BOX, 4: ELLIPSOID, 5: CYLINDER, 6: BOX}  # others are meshes
SHOWN_GROUPS = 3  # MuJoCo itself shows the first ones
COLOUR, FOOT_COLOUR, OBSTACLE_COLOUR = (225, 115, 40), (45, 70, 120), (150, 150, 158)
PACE = 0.1  # of the camera: share of the distance per step
SLOPE = (20.0, 20.0, 0.01)  # half the sides of a plane that is not the floor, unless the model has them
MAX_BOX_CAPSULES = 12  # capsules that fill a box, at most

View = tuple[float, float, float, float]
"""Yaw and pitch in degrees, distance, height of the target."""


class _Block(NamedTuple):
    """A geom that is not a capsule, in the frame of its body."""

    body: int
    position: np.ndarray
    axes: np.ndarray
    form: Form
    size: np.ndarray
    radius: float
    foot: int
    obstacle: bool
    middle: np.ndarray  # of the box around it, in its own frame
    half: np.ndarray


class ModelShapes:
    """The visible shapes of a model.

    `bodies` are the numbers of its bodies in the order of their poses. Geoms of other bodies are not drawn.
    `feet` has the number of the foot to which a geom belongs.
    """

    def __init__(self, model: Any, bodies: Sequence[int], feet: Mapping[int, int]) -> None:
        self._feet = feet
        place = {body: index for index, body in enumerate(bodies)}
        shown = [geom for geom in find_visible_geoms(model, feet) if int(model.geom_bodyid[geom]) in place]
        thin = [geom for geom in shown if model.geom_type[geom] in (SPHERE, CAPSULE)]
        self._capsules = np.array(thin, int)
        self._bodies = np.array([place[int(model.geom_bodyid[geom])] for geom in thin], int)
        self._middle = model.geom_pos[self._capsules]
        long = np.where(model.geom_type[self._capsules] == CAPSULE, model.geom_size[self._capsules, 1], 0)
        up = np.array([0.0, 0.0, 1.0])
        self._half = long[:, None] * rotate(model.geom_quat[self._capsules], up)
        self._radius = model.geom_size[self._capsules, 0]
        colours = [_colour(geom in feet, _is_fixed(model, geom)) for geom in thin]
        self._colour = np.array(colours).reshape(-1, 3)
        self._blocks = [
            _block(model, geom, place[int(model.geom_bodyid[geom])], feet.get(geom, -1))
            for geom in shown
            if geom not in thin
        ]

    def at(self, positions: np.ndarray, rotations: np.ndarray) -> tuple[Shapes, list[Solid]]:
        """The shapes with these poses of the bodies, `[bodies, …]`."""
        position, rotation = positions[self._bodies], rotations[self._bodies]
        middle = position + rotate(rotation, self._middle)
        half = rotate(rotation, self._half)
        solids = [
            Solid(
                block.form,
                block.size,
                positions[block.body] + rotate(rotations[block.body], block.position),
                rotate(rotations[block.body], block.axes.T).T,
                block.radius,
                np.array(_colour(block.foot >= 0, block.obstacle)),
                block.obstacle,
            )
            for block in self._blocks
        ]
        return Shapes(middle - half, middle + half, self._radius, self._colour), solids

    def limbs(self) -> list[Limb]:
        """The shapes as capsules: boxes and others are filled with them, obstacles have their edges."""
        limbs = [
            Limb(int(body), middle - half, middle + half, float(radius), self._feet.get(int(geom), -1))
            for geom, body, middle, half, radius in zip(
                self._capsules, self._bodies, self._middle, self._half, self._radius, strict=True
            )
        ]
        for block in self._blocks:
            curved = block.form.round > 0
            for start, end, radius in (
                _edges(block.half) if block.obstacle else _capsules_of_box(block.half, curved)
            ):
                first, last = (block.position + block.axes @ (block.middle + end) for end in (start, end))
                limbs.append(Limb(block.body, first, last, radius, block.foot))
        return limbs


def find_visible_geoms(model: Any, feet: Mapping[int, int]) -> list[int]:
    """The geoms to draw: those of the groups that MuJoCo shows, and feet, but not the floor."""
    drawable = (model.geom_type != HEIGHT_FIELD) & ~_is_floor(model)
    shown = (model.geom_group < SHOWN_GROUPS) & (model.geom_rgba[:, 3] > 0)
    shown[list(feet)] = True
    if not (drawable & shown & (model.body_weldid[model.geom_bodyid] > 0)).any():
        shown[:] = True
    return np.flatnonzero(drawable & shown).tolist()


def find_floor(model: Any) -> float | None:
    """The height of the floor; None if the model has no horizontal plane."""
    floors = np.flatnonzero(_is_floor(model))
    return float(model.geom_pos[floors[0], 2]) if len(floors) else None


def _is_floor(model: Any) -> np.ndarray:
    upright = np.abs(model.geom_quat[:, 1:3]).max(-1) < 1e-3  # turned about z alone
    floor: np.ndarray = (model.geom_type == PLANE) & (model.geom_bodyid == 0) & upright
    return floor


def _is_fixed(model: Any, geom: int) -> bool:
    """Whether a geom never moves."""
    return bool(model.body_weldid[model.geom_bodyid[geom]] == 0)


def _colour(is_foot: bool, is_obstacle: bool) -> tuple[int, int, int]:
    return OBSTACLE_COLOUR if is_obstacle else FOOT_COLOUR if is_foot else COLOUR


def _block(model: Any, geom: int, body: int, foot: int) -> _Block:
    kind, size, radius = int(model.geom_type[geom]), model.geom_size[geom].copy(), model.geom_rbound[geom]
    middle, half = model.geom_aabb[geom, :3].copy(), model.geom_aabb[geom, 3:].copy()
    form = FORMS[kind] if kind in FORMS else _mesh_outline(model, int(model.geom_dataid[geom]))
    if kind == PLANE:
        size = half = np.where((size > 0) & (np.arange(3) < 2), size, SLOPE)
        middle, radius = np.zeros(3), np.linalg.norm(size)
    elif form is CYLINDER:
        size = size[[0, 0, 1]]
    elif kind not in FORMS:
        size = np.ones(3)
    return _Block(
        body,
        model.geom_pos[geom].copy(),
        rotate(model.geom_quat[geom], np.eye(3)).T,
        form,
        size,
        float(radius),
        foot,
        _is_fixed(model, geom),
        middle,
        half,
    )


def _mesh_outline(model: Any, mesh: int) -> Form:
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    return fit_outline(model.mesh_vert[first : first + count].astype(float))


Capsule = tuple[np.ndarray, np.ndarray, float]


def _capsules_of_box(half: np.ndarray, curved: bool) -> list[Capsule]:
    """Capsules side by side that fill a box, given half its sides; or the round shape in it if `curved`."""
    thin, wide, long = np.argsort(half, kind="stable")
    radius = max(float(half[thin]), 0.1 * float(half[wide]), 1e-3)
    aside = max(float(half[wide]) - radius, 0.0)
    count = min(MAX_BOX_CAPSULES, 1 + int(np.ceil(aside / (0.75 * radius))))
    rolls = []
    for place in np.linspace(-aside, aside, count) if count > 1 else [0.0]:
        share = np.sqrt(1 - (place / half[wide]) ** 2) if curved else 1.0
        ends = max(share * half[long] - radius, 0.0) * np.eye(3)[long]
        rolls.append((place * np.eye(3)[wide] - ends, place * np.eye(3)[wide] + ends, radius))
    return rolls


def _edges(half: np.ndarray) -> list[Capsule]:
    """The edges of a box."""
    radius = max(0.05 * float(half.min()), 0.01)
    edges = []
    for axis in range(3):
        others = [other for other in range(3) if other != axis]
        for signs in product((-1.0, 1.0), repeat=2):
            start = np.zeros(3)
            start[others] = half[others] * signs
            end = start.copy()
            start[axis], end[axis] = -half[axis], half[axis]
            edges.append((start, end, radius))
    return edges


class PosedScene:
    """An episode as the poses of a model's bodies, `[T + 1, bodies, …]`; the camera follows the first."""

    threaded = True

    def __init__(
        self,
        shapes: ModelShapes,
        positions: np.ndarray,
        rotations: np.ndarray,
        seconds: float,
        view: View,
        size: tuple[int, int],
    ) -> None:
        self.positions, self.rotations, self.seconds = positions, rotations, seconds
        self.steps = len(positions) - 1
        self._shapes = shapes
        yaw, pitch, distance, self._height = view
        self._camera = Camera(size, yaw, pitch, distance)

    def frames(self, steps: Sequence[int]) -> Iterator[np.ndarray]:
        """See `Scene.frames`."""
        follow, wanted_steps = SmoothTarget(PACE), set(steps)
        for step in range(max(wanted_steps, default=-1) + 1):
            x, y, _ = self.positions[step, 0]
            target = follow(np.array([x, y, self._height]))
            if step in wanted_steps:
                yield self.picture(step, target)

    def picture(self, step: int, target: np.ndarray) -> np.ndarray:
        """A picture of the state after this number of steps."""
        shapes, solids = self._shapes.at(self.positions[step], self.rotations[step])
        return self._camera.take_picture(shapes, target, solids)


def rotate(quaternions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors rotated by quaternions (w, x, y, z)."""
    w, u = quaternions[..., :1], quaternions[..., 1:]
    across = np.cross(u, vectors)
    turned: np.ndarray = vectors + 2 * (w * across + np.cross(u, across))
    return turned

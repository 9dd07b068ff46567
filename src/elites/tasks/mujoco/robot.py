"""Your own robots: any MJCF file as a task, on the same compiled loop as Gymnasium's robots."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self
from xml.etree import ElementTree

import numpy as np

from elites.errors import ElitesError, require
from elites.imports import make_function_path, require_function
from elites.options import Finite, Range, Spread, check_parameters
from elites.tasks.mujoco import MujocoTask, Robot, dimension_names, with_options
from elites.tasks.mujoco.library import (
    Sizes,
    find_geoms,
    identify,
    list_names,
    modification_time,
    read_model,
    read_sizes,
    require_mujoco,
)
from elites.tasks.task import Task, default_cells, default_grid
from elites.text import shorten

if TYPE_CHECKING:
    from elites.tasks.mujoco.robot_state import RobotState
    from elites.tasks.mujoco.simulator import MujocoSimulator

PREFIX = "mujoco:"
BOUNDS = {"feet": (0.0, 1.0), "position": (-30.0, 30.0), "velocity": (-5.0, 5.0)}  # of each dimension
FOLDERS = ("meshdir", "texturedir", "assetdir")  # attributes of a model's compiler
BUILT_IN = {"forward_reward_weight": 1.0, "ctrl_cost_weight": 0.0}  # defaults of the built-in reward

Function = Callable[["RobotState"], float | bool]


@dataclass(frozen=True, kw_only=True)
class RobotTask(MujocoTask):
    """Your own robot. `mujoco_task` makes it, and reads from the model what is not given."""

    fixed: ClassVar[tuple[str, ...]] = (
        *("name", "robot", "xml_file", "walls", "goal", "reach", "top_speed"),
        *("observation_size", "action_size", "descriptor_names"),
        "exclude_current_positions_from_observation",
    )
    function_fields: ClassVar[tuple[str, ...]] = ("reward", "ends")
    measures_offset: ClassVar[bool] = True
    place = "body"
    double_control = True

    feet: tuple[tuple[str, str], ...] = ()  # geoms or bodies of the model, and their display names
    # Path of a function of the robot's state; by default, velocity forwards minus a cost of control.
    reward: str = ""
    ends: str = ""  # path of a function of the robot's state; by default, nothing ends an episode early
    body: str = ""  # the one whose position and velocity count
    dimensions: Literal[1, 2] = 2  # in which it moves over the ground: along x, or along x and y
    hidden_positions: Annotated[int, Range(0, 100_000)] = 0  # first coordinates, which are not observed
    keyframe: str = ""  # of the model, for the initial coordinates; by default, those of the model itself
    noise: Spread = 0.01
    forward_reward_weight: Finite = BUILT_IN["forward_reward_weight"]
    ctrl_cost_weight: Finite = BUILT_IN["ctrl_cost_weight"]
    model_digest: str = ""  # of the model's files: a run goes on with the robot that it began with
    qd_offset_from: str = "given"  # or a description of how it was measured

    def __post_init__(self) -> None:
        object.__setattr__(self, "model_digest", self._check_digest())
        model = read_model(Path(self.xml_file))
        object.__setattr__(self, "robot", Robot(self.xml_file, read_sizes(model), self.dimensions, self.feet))
        super().__post_init__()
        self._check(model)

    def _check_digest(self) -> str:
        """The digest of the model's files; an error if it is not the one of the task."""
        digest = compute_digest(Path(self.xml_file))
        if self.model_digest not in ("", digest):
            raise ElitesError(
                f"{self.xml_file} has changed since this task was recorded: the digest of its files is "
                f"{digest}, not {self.model_digest}; bring the files back, or begin a new run"
            )
        return digest

    def _check(self, model: Any) -> None:
        identify(model, "body", self.body, self.name)
        for foot, _ in self.feet:
            geoms = find_geoms(model, foot, self.name)
            of_robot = model.body_weldid[model.geom_bodyid[geoms]].all()
            require(bool(of_robot), "feet", repr(foot), "part of the robot, not of the ground")
        if self.keyframe:
            identify(model, "key", self.keyframe, self.name)
        require(
            self.hidden_positions <= model.nq,
            "hidden_positions",
            self.hidden_positions,
            f"at most the {model.nq} coordinates",
        )
        size = len(self.descriptor_names)
        require(
            len(self.descriptor_bounds) == size,
            "descriptor_bounds",
            self.descriptor_bounds,
            f"a pair for each of {size} dimensions",
        )
        for name in self.function_fields:
            path = getattr(self, name)
            require(not path or ":" in path, name, repr(path), "module:function")
            require_function(path, name)
        for name, default in BUILT_IN.items():
            given = getattr(self, name)
            if self.reward and given != default:
                raise ElitesError(f"{name} is {given}; it cannot be combined with your own reward")
        low, high = model.actuator_ctrlrange.T
        unlimited = [model.actuator(number).name or str(number) for number in np.flatnonzero(low >= high)]
        if unlimited:
            names = shorten(", ".join(unlimited))
            raise ElitesError(
                f"the model of {self.name} has no ctrlrange for the actuators {names}; actions of ±1 are "
                "mapped to that range, so each needs one"
            )

    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.descriptor_bounds

    @property
    def main_body(self) -> str:  # type: ignore[override]
        return self.body

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """The task with other parameters. Another descriptor has another default archive."""
        fields = check_parameters(type(self), _plain(parameters), self.name, self.fixed)
        kind = {name: fields.get(name, getattr(self, name)) for name in ("feet", "descriptor", "dimensions")}
        if any(kind[name] != getattr(self, name) for name in kind):
            fields = _archive(**kind) | fields
        return Task.with_parameters(self, fields)

    def make_simulator(self) -> MujocoSimulator:
        self._check_digest()  # the files may differ on another machine
        return super().make_simulator()


def mujoco_task(
    file: str | Path,
    *,
    feet: Sequence[str] | Mapping[str, str] = (),
    reward: str | Function | None = None,
    ends: str | Function | None = None,
    body: str | None = None,
    **parameters: Any,
) -> RobotTask:
    """Your own robot in MuJoCo as a task, for `RunConfig` and the evaluators.

    Controllers observe the coordinates, without the first `hidden_positions`, and the velocities. They give
    ±1 for each actuator, which is mapped to its `ctrlrange`.

    `reward` and `ends` are plain functions of an `elites.RobotState`, which Numba compiles. They may use
    numbers, arrays, NumPy's functions, and other functions of yours that are decorated with `numba.njit`.
    They must depend on nothing but that state. A reward that is not finite, or an index out of range, makes
    the episode invalid.

    Args:
        file: the model, an MJCF file. A run records a digest of it and of the files that it names.
        feet: names of geoms or bodies, or a table from these to display names.
        reward: of a control step; by default `forward_reward_weight` (1) times the velocity along x minus
            `ctrl_cost_weight` (0) times the sum of the squared controls.
        ends: whether the episode ends after a control step; by default it does not.
        body: the body whose position and velocity count; by default the first one with a joint.
        parameters: other fields of the task. `descriptor`: "feet" (the share of steps after which each
            foot touches the ground; the default if there are feet), "position" (the final position of the
            body) or "velocity" (its mean). `descriptor_bounds`, a lowest and a highest value of each
            dimension: 0 and 1, ±30 m, or ±5 m/s by default. `dimensions`: 1 (it moves along x) or 2.
            `hidden_positions`. `keyframe`, which has the initial coordinates. `noise` (0.01), half the width
            of the uniform noise on the initial coordinates and velocities. `frame_skip` (5), physics steps of
            a control step. `episode_length`, `cells`, `grid`, `qd_offset` (by default measured at the start
            of a run).
    """
    arguments = {"reward": reward, "ends": ends, "body": body}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    return make(f"{PREFIX}{file}", {"feet": feet, **arguments, **parameters})


def make(name: str, parameters: dict[str, Any]) -> RobotTask:
    """The task with the name `mujoco:FILE`. Parameters that are not given are read from the model."""
    require_mujoco()
    path = Path(name.removeprefix(PREFIX)).expanduser().absolute()
    if not path.is_file():
        raise ElitesError(f"{path} is not a file; {PREFIX}FILE names a model in MuJoCo's XML")
    fields = check_parameters(RobotTask, _plain(parameters), name, RobotTask.fixed)
    model = read_model(path)
    if model.nu == 0:
        raise ElitesError(f"the model {path} has no actuators; it needs at least one")
    body = fields.setdefault("body", _first_body(model, name))
    directions, hidden = _inspect_root(model, identify(model, "body", body, name))
    fields.setdefault("dimensions", 2 if directions > 1 else 1)
    fields.setdefault("hidden_positions", min(hidden, fields["dimensions"]))
    fields.setdefault("feet", ())
    fields.setdefault("descriptor", "feet" if fields["feet"] else "position")
    archive = _archive(fields["feet"], fields["descriptor"], fields["dimensions"])
    return RobotTask(
        name=name,
        xml_file=str(path),
        robot=Robot(str(path), read_sizes(model), fields["dimensions"], fields["feet"]),
        observation_size=0,
        action_size=0,
        descriptor_names=(),
        **{"qd_offset": math.nan, **archive, **fields},
    )


def compute_digest(path: Path) -> str:
    """A digest of the content of a model's file and of all files that it names."""
    if not path.is_file():
        raise ElitesError(f"{path} is not a file; it must be the robot's model")
    return _digest(str(path), modification_time(path))


@functools.cache
def _digest(path: str, modified: int) -> str:
    documents, folders = [Path(path)], {Path(path).parent}
    others: set[str] = set()
    content = hashlib.sha256()
    for document in documents:  # the list grows in the loop
        text = document.read_bytes()
        content.update(hashlib.sha256(text).digest())
        folders.add(document.parent)
        try:
            elements = list(ElementTree.fromstring(text).iter())
        except ElementTree.ParseError as error:
            raise ElitesError(f"{document} is not XML: {error}") from None
        for element in elements:
            folders |= {Path(path).parent / element.attrib[key] for key in FOLDERS if key in element.attrib}
            files = [value for key, value in element.attrib.items() if key.startswith("file")]
            if element.tag == "include":
                included = {
                    folder / file for folder in folders for file in files if (folder / file).is_file()
                }
                documents += sorted(included - set(documents))
            else:
                others |= set(files)
    assets = {(file, folder / file) for folder in folders for file in others if (folder / file).is_file()}
    for _, asset in sorted(assets):
        content.update(hashlib.sha256(asset.read_bytes()).digest())
    return content.hexdigest()[:16]


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as a record has them: paths of functions, and pairs of a foot and its display name."""
    fields = with_options(parameters)
    for name in RobotTask.function_fields:
        if callable(fields.get(name)):
            fields[name] = make_function_path(fields[name])
    if "feet" in fields:
        fields["feet"] = _named_feet(fields["feet"])
    if "descriptor_bounds" in fields:
        bounds = fields["descriptor_bounds"]
        listed = isinstance(bounds, list | tuple | np.ndarray)
        pairs = listed and all(np.shape(pair) == (2,) for pair in bounds)
        require(pairs, "descriptor_bounds", bounds, "pairs of a lowest and a highest value")
        fields["descriptor_bounds"] = tuple(map(tuple, bounds))
    return fields


def _named_feet(feet: Any) -> tuple[tuple[str, str], ...]:
    allowed = "names of geoms or bodies, or a table from these to display names"
    require(isinstance(feet, list | tuple | Mapping), "feet", repr(feet), allowed)
    entries = [*feet.items()] if isinstance(feet, Mapping) else feet
    pairs = [(foot, foot.replace("_", " ")) if isinstance(foot, str) else foot for foot in entries]
    for pair in pairs:
        named = (
            isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(one, str) for one in pair)
        )
        require(named, "feet", repr(feet), allowed)
    names = [foot for foot, _ in pairs]
    require(len(set(names)) == len(names), "feet", names, "a list of unique names")
    return tuple((foot, label) for foot, label in pairs)


def _archive(feet: tuple[tuple[str, str], ...], descriptor: str, dimensions: int) -> dict[str, Any]:
    """The default bounds, grid and cells."""
    robot = Robot("", Sizes(0, 0, 0, 0), dimensions, feet)
    size = len(dimension_names(robot, descriptor))
    grid, bounds = default_grid(size), (BOUNDS.get(descriptor, (0, 1)),) * size
    return {"descriptor_bounds": bounds, "grid": grid, "cells": default_cells(grid)}


def _first_body(model: Any, owner: str) -> str:
    """The name of the first body with a joint."""
    with_joints = np.flatnonzero(model.body_jntnum > 0)
    name = model.body(with_joints[0]).name if len(with_joints) else ""
    if not name:
        raise ElitesError(
            f"the model of {owner} has no name for its first body with a joint; give it one, or choose "
            f"another one as body: {list_names(model, 'body')}"
        )
    return str(name)


def _inspect_root(model: Any, body: int) -> tuple[int, int]:
    """The number of directions in which the root of a body moves over the ground, and the number of the
    model's first coordinates that are its position."""
    root, kinds = model.body_rootid[body], require_mujoco().mjtJoint
    joints = range(model.body_jntadr[root], model.body_jntadr[root] + model.body_jntnum[root])
    if any(model.jnt_type[joint] == kinds.mjJNT_FREE for joint in joints):
        over_ground = [True, True]
    else:
        slides = [model.jnt_type[joint] == kinds.mjJNT_SLIDE for joint in joints]
        level = [abs(model.jnt_axis[joint][2]) < 0.5 for joint in joints]
        over_ground = [slide and flat for slide, flat in zip(slides, level, strict=True)]
    leading = (*over_ground, False).index(False)
    return sum(over_ground), leading if joints and model.jnt_qposadr[joints[0]] == 0 else 0

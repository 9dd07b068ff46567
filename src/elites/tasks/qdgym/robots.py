"""The four QDGym robots: facts that their model files do not hold. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True)
class Robot:
    """A PyBullet locomotion robot. `contacts` are the links whose contact with the floor is observed."""

    model: str
    motors: int
    power: float
    contacts: tuple[str, ...]
    feet: tuple[str, ...]  # contacts that make up the descriptor, in its order
    foot_names: tuple[str, ...]  # display names of the feet
    strength: dict[str, float] = field(default_factory=dict, hash=False)  # by joint; 100 by default
    min_height: float = -inf  # of the torso, to count as upright
    max_pitch: float = inf
    fatal: tuple[str, ...] = ()  # contacts that must not happen, to count as upright
    ends_on_fall: bool = True

    @property
    def observation_size(self) -> int:
        return 8 + 2 * self.motors + len(self.contacts)


WALKER = Robot(
    model="walker2d.xml",
    motors=6,
    power=0.40,
    contacts=("foot", "foot_left"),
    feet=("foot", "foot_left"),
    foot_names=("right foot", "left foot"),
    strength={"foot_joint": 30.0, "foot_left_joint": 30.0},
    min_height=0.8,
    max_pitch=1.0,
)

HALF_CHEETAH = Robot(
    model="half_cheetah.xml",
    motors=6,
    power=0.90,
    contacts=("ffoot", "fshin", "fthigh", "bfoot", "bshin", "bthigh"),
    feet=("ffoot", "bfoot"),
    foot_names=("front foot", "back foot"),
    strength={"bthigh": 120.0, "bshin": 90.0, "bfoot": 60.0, "fthigh": 140.0, "fshin": 60.0, "ffoot": 30.0},
    max_pitch=1.0,
    fatal=("fshin", "fthigh", "bshin", "bthigh"),
    ends_on_fall=False,
)

ANT = Robot(
    model="ant.xml",
    motors=8,
    power=2.5,
    contacts=("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot"),
    feet=("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot"),
    foot_names=("front left foot", "front right foot", "back left foot", "back right foot"),
    min_height=0.26,
)

HOPPER = Robot(
    model="hopper.xml",
    motors=3,
    power=0.75,
    contacts=("foot",),
    feet=("foot",),
    foot_names=("foot",),
    min_height=0.8,
    max_pitch=1.0,
)

ROBOTS = (WALKER, HALF_CHEETAH, ANT, HOPPER)
FLOOR = (
    "plane_stadium.sdf",
    "plane100.obj",
    "plane.mtl",
    "checker_blue.png",
)  # its model, and the files that the model refers to

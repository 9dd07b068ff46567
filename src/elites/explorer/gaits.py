"""Movements in a page: exact replays of elites' episodes, quantised and compressed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from elites.explorer.blocks import Blocks
from elites.explorer.content import Content
from elites.options import Physics
from elites.replays.choice import select_best_per_region
from elites.replays.poses import Movement, Robot, no_poses_reason, read_robot, record

Gaits = Literal["none", "best", "all"]
"""The elites with movements in the page: none, the best elite of each region, or all."""

SECONDS = 5.0
RATE = 30.0  # pictures per second, about
REGIONS = (8, 8)  # of descriptor space, each with its best elite
GHOSTS = 3  # replications of an elite, if the archive was corrected
COARSER = 2  # pictures of an elite's own episode per picture of a replication
MAX_SECONDS = 11_000.0  # limit for all movements: beyond it, no more replications are added


def describe_gaits(
    content: Content,
    task: Any,
    physics: Physics | None,
    gaits: Gaits,
    blocks: Blocks,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The header's entries: `gaits`, and `no_movement_reason`, the reason why there are none."""
    archive = content.archive
    reason = "This page was made without movements." if gaits == "none" else no_poses_reason(task)
    if not archive.has_parameters:
        reason = "The parameters of the controllers were left out of this archive, so nothing can move."
    if reason:
        return {"gaits": None, "no_movement_reason": reason}
    robot = read_robot(task)
    steps, every = _choose_pace(robot)
    own, ghosts = select_episodes(content, gaits)
    hidden = tuple(int(width) for width in archive.policy_sizes[1:-1])
    elites: dict[str, list[dict[str, Any]]] = {}
    seconds, done = 0.0, 0
    for shown, coarser in ((own, 1), (ghosts, COARSER)):
        movements = record(
            task,
            hidden,
            archive.parameters[[elite for elite, _ in shown]],
            [seed for _, seed in shown],
            steps=steps,
            every=coarser * every,
            physics=physics,
        )
        for (elite, _), movement in zip(shown, movements, strict=True):
            entry = {**describe_movement(movement, steps, blocks), "coarser": coarser}
            elites.setdefault(str(elite), []).append(entry)
            seconds, done = seconds + movement.length * robot.seconds, done + 1
            if on_progress is not None:
                on_progress(done, len(own) + len(ghosts))
            if shown is ghosts and seconds > MAX_SECONDS:
                break
    yaw, pitch, distance, height = robot.view
    limbs = [
        {
            "body": limb.body,
            "start": np.round(limb.start, 5).tolist(),
            "end": np.round(limb.end, 5).tolist(),
            "radius": limb.radius,
            "foot": limb.foot,
        }
        for limb in robot.limbs
    ]
    return {
        "gaits": {
            "rate": 1 / (robot.seconds * every),
            "seconds": steps * robot.seconds,
            "bodies": robot.bodies,
            "limbs": limbs,
            "camera": [math.radians(yaw), math.radians(pitch), distance, height],
            "elites": elites,
        },
        "no_movement_reason": "",
    }


def describe_new_episode(
    content: Content, task: Any, elite: int, seed: int, blocks: Blocks
) -> dict[str, Any] | None:
    """The header's entry of an elite's movement in another episode; None if its task has no robot."""
    if no_poses_reason(task) or content.record is None:
        return None
    steps, every = _choose_pace(read_robot(task))
    hidden = tuple(int(width) for width in content.archive.policy_sizes[1:-1])
    parameters, physics = content.archive.parameters[elite : elite + 1], content.record.physics
    (movement,) = record(task, hidden, parameters, [seed], steps=steps, every=every, physics=physics)
    return describe_movement(movement, steps, blocks)


def _choose_pace(robot: Robot) -> tuple[int, int]:
    """The number of steps that are shown, and the number of steps from one picture to the next."""
    return math.ceil(SECONDS / robot.seconds), max(1, round(1 / (RATE * robot.seconds)))


class Episodes(NamedTuple):
    """(elite, seed) of the episodes in which elites were found, and of replications (ghosts)."""

    own: list[tuple[int, int]]
    ghosts: list[tuple[int, int]]


def select_episodes(content: Content, gaits: Gaits) -> Episodes:
    """The episodes to show. If there is no room for all replications, one of each elite comes first, then the
    others of the best elites of all regions."""
    archive = content.archive
    best = sorted({elite for elite in select_best_per_region(archive, REGIONS) if elite is not None})
    others = [] if gaits == "best" else sorted(set(range(len(archive.fitness))) - set(best))
    own = [(elite, int(archive.seed[elite].flat[0])) for elite in sorted(best + others)]
    seeds = _replications(content)
    if seeds is None:
        return Episodes(own, [])
    first, *further = range(min(GHOSTS, seeds.shape[1]))
    order = [(elite, first) for elite in best + others]
    order += [(elite, number) for group in (best, others) for number in further for elite in group]
    return Episodes(own, [(elite, int(seeds[elite, number])) for elite, number in order])


def _replications(content: Content) -> np.ndarray | None:
    """The seeds of the replications of each elite; None if they are not of these controllers."""
    if content.corrected is None or content.corrected.about["redraw"]:
        return None
    from elites.experiments.correct import Settings, derive_episode_seeds

    about = content.corrected.about
    settings = Settings(replications=about["replications"], seed=about["seed"])
    return derive_episode_seeds(content.archive, settings)


def describe_movement(movement: Movement, steps: int, blocks: Blocks) -> dict[str, Any]:
    """The header's entry of a movement. Its poses are added as a block.

    Positions have 16 bits within the movement's own range, rotations 16 bits from -1 to 1. Each number is
    stored as the change of its change from picture to picture, which is small; first all high bytes, then
    all low ones, then a byte per picture with a bit per foot.
    """
    positions, rotations = movement.positions, _align_signs(movement.rotations)
    low, high = positions.min((0, 1)), positions.max((0, 1))
    span = np.maximum(high - low, 1e-6)
    codes = np.concatenate(
        [np.rint((positions - low) / span * 65535), np.rint(rotations * 32767)], axis=-1
    ).astype(np.int64)
    channels = codes.reshape(len(codes), -1).T  # [7 bodies, frames]
    changes = np.diff(channels, prepend=0)
    changes = np.diff(changes, prepend=0) & 0xFFFF
    bits = (movement.contacts.astype(np.uint8) << np.arange(movement.contacts.shape[1])).sum(1)
    raw = (changes >> 8).astype(np.uint8).tobytes() + (changes & 255).astype(np.uint8).tobytes()
    return {
        "at": blocks.add_bytes(raw + bits.astype(np.uint8).tobytes()),
        "frames": len(codes),
        "low": np.round(low, 6).tolist(),
        "span": np.round(span, 6).tolist(),
        "fell": movement.length < steps,
    }


def _align_signs(rotations: np.ndarray) -> np.ndarray:
    """Quaternions with signs that do not jump from picture to picture: q and -q are one rotation."""
    turns = (rotations[1:] * rotations[:-1]).sum(-1) < 0
    signs = np.concatenate([np.zeros((1, rotations.shape[1]), bool), np.cumsum(turns, axis=0) % 2 > 0])
    return np.where(signs[..., None], -rotations, rotations)

"""A page with a robot that needs no simulator."""

import numpy as np

from elites.explorer.blocks import Blocks
from elites.explorer.content import Content, assign_colours, describe_run, list_operators
from elites.explorer.gaits import describe_movement
from elites.explorer.page import make_page
from elites.replays.poses import Movement
from tests.explorer.archives import synthetic_archive


def moving_page(folder):
    """A robot of a leg and a foot that glides forwards; the foot always touches the floor."""
    archive, blocks, frames = synthetic_archive(cells=32), Blocks(), 60
    positions = np.zeros((frames, 2, 3))
    positions[:, :, 0] = np.linspace(0, 2, frames)[:, None]
    positions[:, 0, 2], positions[:, 1, 2] = 0.9, 0.15
    rotations = np.tile([1.0, 0, 0, 0], (frames, 2, 1))
    movement = Movement(positions, rotations, np.ones((frames, 1), bool), frames - 1, 0.0)
    limbs = [
        {"body": 0, "start": [0, 0, -0.6], "end": [0, 0, 0.4], "radius": 0.12, "foot": -1},
        {"body": 1, "start": [-0.2, 0, 0], "end": [0.3, 0, 0], "radius": 0.12, "foot": 0},
    ]
    gaits = {
        **{"rate": 30.0, "seconds": 2.0, "bodies": 2, "limbs": limbs, "camera": [0.0, -0.2, 3.0, 0.6]},
        "elites": {"0": [describe_movement(movement, 59, blocks)]},
    }
    content = Content(folder, archive)
    operators = list_operators([content])
    run = {**describe_run(content, operators, blocks), "gaits": gaits, "no_movement_reason": ""}
    header = {"version": 1, "operators": assign_colours(operators), "runs": [run]}
    page = folder / "moving.html"
    page.write_text(make_page("moving", header, blocks.text()))
    return page

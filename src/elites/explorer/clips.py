"""Clips in a page: environments of Gymnasium, drawn by themselves in an exact replay, as small animations."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from elites.errors import ElitesError
from elites.explorer.blocks import Blocks
from elites.explorer.content import Content
from elites.replays.choice import select_best_per_region

REGIONS = (4, 4)  # of descriptor space, each with its best elite
SIZE = (240, 180)  # pixels at most
RATE = 15.0  # pictures per second at most
SECONDS = 6.0
QUALITY = 60  # of WebP


def describe_clips(
    content: Content, task: Any, blocks: Blocks, on_progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """The header's entries: `clips`, by elite, and `no_movement_reason`, the reason why there are none."""
    from elites.evaluation import make_evaluator
    from elites.replays.gymnasium import GymnasiumScene

    archive = content.archive
    best = sorted({elite for elite in select_best_per_region(archive, REGIONS) if elite is not None})
    seeds = [int(archive.seed[elite].flat[0]) for elite in best]
    hidden = tuple(int(width) for width in archive.policy_sizes[1:-1])
    with make_evaluator(task, hidden, None) as evaluator:
        evaluation = evaluator.evaluate(archive.parameters[best], np.array(seeds), transitions=True)
    clips = {}
    try:
        for done, elite in enumerate(best):
            actions = evaluation.recorded.actions[done, : evaluation.length[done]]
            clips[str(elite)] = _describe_clip(GymnasiumScene(task, seeds[done], actions, SIZE), blocks)
            if on_progress is not None:
                on_progress(done + 1, len(best))
    except ElitesError as error:
        return {"no_movement_reason": str(error)}
    return {"clips": clips, "no_movement_reason": ""}


def _describe_clip(scene: Any, blocks: Blocks) -> list[int]:
    """An animation, as a block."""
    every = max(1, round(1 / (RATE * scene.seconds)))
    steps = range(0, min(scene.steps, int(SECONDS / scene.seconds)) + 1, every)
    pictures = [Image.fromarray(frame) for frame in scene.frames(steps)]
    for picture in pictures:
        picture.thumbnail(SIZE)
    file = io.BytesIO()
    pictures[0].save(
        file,
        "WEBP",
        save_all=True,
        append_images=pictures[1:],
        duration=max(1, round(1000 * scene.seconds * every)),
        loop=0,
        quality=QUALITY,
    )
    return blocks.add_bytes(file.getvalue())

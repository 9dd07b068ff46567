"""Runs the episodes of elites again, draws them, and compares them with the recorded results."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from elites.errors import ElitesError
from elites.files import format_bytes
from elites.memory import require_bytes
from elites.options import EpisodeLength, Physics, Pixels, Seed, convert_value
from elites.replays.choice import parse_grid, select_best_per_region
from elites.replays.clip import FORMATS, Clip, add_caption, blank_tile, tile_pictures
from elites.results.archive import SavedArchive
from elites.results.folder import RunFolder
from elites.text import shorten

if TYPE_CHECKING:
    from elites.replays.scene import Scene
    from elites.tasks.task import Task

SIZE, TILE = (480, 360), (240, 180)  # pixels of a single elite, and of one of several
RATES = {".mp4": 30.0, ".gif": 15.0}  # pictures per second at most
MAX_INLINE_BYTES = 20_000_000  # bytes of a clip that a notebook shows; its file grows by a third more


@dataclass(frozen=True)
class ReplayResult:
    """The recorded results of an elite's episode, and those of running it again."""

    elite: int  # index in the archive, best first
    cell: int
    seed: int
    recorded_fitness: float
    fitness: float
    recorded_descriptor: np.ndarray
    descriptor: np.ndarray
    length: int
    episodes: int  # of the recorded mean; this is the first of them


class Replay(NamedTuple):
    """A clip, and the results of its episodes. A notebook shows both."""

    path: Path
    replayed: list[ReplayResult]

    def __repr__(self) -> str:
        return f"{format_results(self.replayed)}\n{self.path}"

    def _repr_html_(self) -> str:
        return f"{self._clip()}<pre>{html.escape(repr(self))}</pre>"

    def _clip(self) -> str:
        """The clip itself, embedded; a line if it is too large for that."""
        try:
            size = self.path.stat().st_size
            if size > MAX_INLINE_BYTES:
                most = format_bytes(MAX_INLINE_BYTES)
                return (
                    f"<p>The clip takes {format_bytes(size)}; a notebook shows clips of up to {most}. "
                    "Use fewer steps or a smaller size.</p>"
                )
            data = base64.b64encode(self.path.read_bytes()).decode()
        except OSError as error:
            return f"<p>{html.escape(f'{self.path}: {error.strerror}')}</p>"
        if self.path.suffix == ".gif":
            return f'<img src="data:image/gif;base64,{data}">'
        return f'<video controls autoplay loop muted src="data:video/mp4;base64,{data}"></video>'


def replay(
    folder: Path | str,
    *,
    cell: int | None = None,
    descriptor: tuple[float, ...] | None = None,
    grid: str | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    steps: int | None = None,
    size: tuple[int, int] | None = None,
    physics: Physics | None = None,
    task: Task | None = None,
    on_frame: Callable[[int, int], None] | None = None,
) -> Replay:
    """Draws elites of a run as MP4 or GIF. Returns the path of the file and the results of each episode.

    A notebook shows the clip.

    Args:
        folder: folder of the run.
        cell: cell of the elite. Without this, `descriptor` and `grid`, the best elite is shown.
        descriptor: descriptor; the elite nearest to it is shown.
        grid: rows x columns of elites side by side, such as "3x3": the best of each region of descriptor
            space; the first dimension runs to the right and the second upwards.
        seed: seed of the episode; by default, that of the episode in which the elite was found.
        out: output file, .mp4 or .gif; by default `best.mp4`, `cell-I.mp4` or `grid-RxC.mp4` in the run's
            folder.
        steps: largest number of steps to show.
        size: width and height of each elite's picture in pixels.
        physics: what computes the episodes of a task in JAX, "xla", "native" or "cuda"; by default the run's.
        task: the run's task again, as for `elites.resume`.
        on_frame: function that is called with the number of pictures done and their total.
    """
    folder = Path(folder)
    choices = {"cell": cell, "descriptor": descriptor, "grid": grid}
    chosen = [name for name, given in choices.items() if given is not None]
    if len(chosen) > 1:
        raise ElitesError(f"{' and '.join(chosen)} cannot be combined")
    convert_value(Seed | None, "seed", seed)
    convert_value(EpisodeLength | None, "steps", steps)
    convert_value(tuple[Pixels, Pixels] | None, "size", size)
    convert_value(Physics | None, "physics", physics)
    from elites.tasks.function import FunctionTask
    from elites.tasks.in_memory import make_recorded_task, provide_functions

    shape = None if grid is None else parse_grid(grid)
    run = RunFolder(folder)
    record = run.read_record()
    if task is not None:
        provide_functions(run.path, record.task, record.task_parameters, task)
    archive = run.read_archive()
    archive.require_parameters(run)
    if not len(archive.fitness):
        raise ElitesError(f"{folder}: the archive is empty; it must have an elite")
    if shape is not None:
        elites, usual = select_best_per_region(archive, shape), run.clip_path(grid=shape)
    elif cell is not None:
        elites, usual = [archive.at(cell=cell).index], run.clip_path(cell)
    elif descriptor is not None:
        nearest = archive.at(descriptor=descriptor)
        elites, usual = [nearest.index], run.clip_path(nearest.cell)
    else:
        elites, usual = [0], run.clip_path()
    path = usual if out is None else Path(out)
    if path.suffix not in FORMATS:
        raise ElitesError(f"out is {path}; it must end in {' or '.join(FORMATS)}")
    width, height = size or (SIZE if shape is None else TILE)
    size = width // 2 * 2, height // 2 * 2  # encoders need even numbers
    present = [elite for elite in elites if elite is not None]
    seeds = [int(np.atleast_1d(archive.seed[elite])[0]) if seed is None else seed for elite in present]
    run_task = make_recorded_task(run.path, record.task, record.task_parameters)
    if isinstance(run_task, FunctionTask):
        raise ElitesError(f"{run_task.name} is a function without an environment; there is nothing to draw")
    scenes, replayed = _run(run_task, archive, present, seeds, size, physics or record.physics)
    shown = iter([(_caption(archive, one), scene) for one, scene in zip(replayed, scenes, strict=True)])
    tiles = [None if elite is None else next(shown) for elite in elites]
    _draw(path, tiles, shape or (1, 1), size, steps, on_frame)
    return Replay(path, replayed)


def _caption(archive: SavedArchive, one: ReplayResult) -> str:
    """The text in the corner of a picture."""
    names = archive.about["task"]["descriptor_names"]
    if len(names) > 2:
        described = "descriptor " + " ".join(f"{value:.2f}" for value in one.descriptor)
    else:
        described = ", ".join(
            f"{shorten(str(name).replace('_', ' '), 30)}: {value:.2f}"
            for name, value in zip(names, one.descriptor, strict=True)
        )
    return f"fitness {one.fitness:.1f}\n{described}"


def _run(
    task: Any,
    archive: SavedArchive,
    elites: list[int],
    seeds: list[int],
    size: tuple[int, int],
    physics: Physics | None,
) -> tuple[list[Scene], list[ReplayResult]]:
    """Runs the episodes again."""
    from elites.evaluation import make_evaluator
    from elites.tasks.mujoco import MujocoTask
    from elites.tasks.qdgym import QDGymTask
    from elites.tasks.task import DeviceTask

    hidden = tuple(int(width) for width in archive.policy_sizes[1:-1])
    parameters = archive.parameters[elites]
    scenes: list[Scene]
    if isinstance(task, DeviceTask):
        from elites.replays.brax import make_scenes

        scenes, fitness, descriptor, length = make_scenes(task, hidden, parameters, seeds, size, physics)
    elif isinstance(task, MujocoTask):
        from elites.replays import mujoco

        scenes, fitness, descriptor, length = mujoco.make_scenes(
            task, hidden, parameters, seeds, size, physics
        )
    else:
        with make_evaluator(task, hidden, None, physics=physics) as evaluator:
            evaluation = evaluator.evaluate(parameters, np.array(seeds), transitions=True)
        fitness, descriptor, length = evaluation.fitness, evaluation.descriptor, evaluation.length
        scene_class: Callable[..., Scene]
        if isinstance(task, QDGymTask):
            from elites.replays.bullet import BulletScene

            scene_class = BulletScene
        else:
            from elites.replays.gymnasium import GymnasiumScene

            scene_class = GymnasiumScene
        actions = evaluation.recorded.actions
        scenes = [
            scene_class(task, seed, actions[index, : length[index]], size) for index, seed in enumerate(seeds)
        ]
    return scenes, [
        ReplayResult(
            elite,
            int(archive.cell[elite]),
            seeds[index],
            float(archive.fitness[elite]),
            float(fitness[index]),
            archive.descriptor[elite],
            np.asarray(descriptor[index]),
            int(length[index]),
            archive.seed[elite].size,
        )
        for index, elite in enumerate(elites)
    ]


def _draw(
    path: Path,
    tiles: list[tuple[str, Scene] | None],
    shape: tuple[int, int],
    size: tuple[int, int],
    steps: int | None,
    on_frame: Callable[[int, int], None] | None,
) -> None:
    """Draws all tiles, with one picture per core at a time."""
    scenes = [tile[1] for tile in tiles if tile is not None]
    texts = [tile[0] for tile in tiles if tile is not None]
    seconds = scenes[0].seconds
    every = max(1, round(1 / (RATES[path.suffix] * seconds)))
    last = max(scene.steps for scene in scenes)
    shown_steps = range(0, (last if steps is None else min(last, steps)) + 1, every)
    pixels = shape[0] * shape[1] * size[0] * size[1]
    buffered_pictures = len(shown_steps) if path.suffix == ".gif" else 0  # all of a GIF, a byte per pixel
    require_bytes(1, pixels * (4 * 3 + buffered_pictures), "this clip takes", "clips")
    cores = len(os.sched_getaffinity(0))
    empty = blank_tile(size)
    with ThreadPoolExecutor(cores) as pool, Clip(path, 1 / (seconds * every)) as clip:
        ahead = [
            _PicturesAhead(scene, shown_steps, cores if len(scenes) == 1 else 1, pool) for scene in scenes
        ]
        last_pictures = [empty] * len(scenes)
        for number, step in enumerate(shown_steps):
            for index, (scene, pictures) in enumerate(zip(scenes, ahead, strict=True)):
                if step <= scene.steps or number == 0:
                    last_pictures[index] = add_caption(pictures.next(), texts[index], size, at_end=False)
                elif step - every <= scene.steps:
                    last_pictures[index] = add_caption(last_pictures[index], "", size, at_end=True)
            drawn = iter(last_pictures)
            clip.add(tile_pictures([empty if tile is None else next(drawn) for tile in tiles], shape))
            if on_frame is not None:
                on_frame(number + 1, len(shown_steps))


class _PicturesAhead:
    """The pictures of one scene, drawn ahead: each part steps through the episode and draws its share."""

    def __init__(self, scene: Scene, steps: range, count: int, pool: ThreadPoolExecutor) -> None:
        own = [step for step in steps if step <= scene.steps]
        self.threaded = scene.threaded
        count = count if self.threaded else 1
        self._parts = [scene.frames(own[first::count]) for first in range(count)]
        self._pool, self._turn = pool, 0
        self._drawn = [pool.submit(next, part, None) for part in self._parts] if self.threaded else []

    def next(self) -> np.ndarray:
        """The next picture."""
        turn = self._turn % len(self._parts)
        self._turn += 1
        if not self.threaded:
            return next(self._parts[turn])
        frame = self._drawn[turn].result()
        self._drawn[turn] = self._pool.submit(next, self._parts[turn], None)
        assert frame is not None
        return frame


def format_results(replayed: list[ReplayResult]) -> str:
    """A table of the recorded and the replayed results of each episode."""
    from elites.reports.tables import align_rows

    def described(values: np.ndarray) -> str:
        return " ".join(f"{value:.3f}" for value in values)

    rows = [("cell", "episode seed", "steps", "fitness", "replayed", "descriptor", "replayed")]
    rows += [
        (
            str(one.cell),
            f"{one.seed}" + "*" * (one.episodes > 1),
            str(one.length),
            f"{one.recorded_fitness:.2f}",
            f"{one.fitness:.2f}",
            described(one.recorded_descriptor),
            described(one.descriptor),
        )
        for one in replayed
    ]
    several = max(one.episodes for one in replayed)
    note = [f"  * the first of {several} episodes, whose mean was recorded"] if several > 1 else []
    return "\n".join([*align_rows(rows), *note])

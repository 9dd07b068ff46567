"""`elites replay`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from elites.errors import ElitesError


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Render elites of a run as MP4 or GIF, and run their episodes again.

    Prints the fitness and the descriptor of each episode beside those that were recorded.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's folder."""
    best: bool = False
    """The elite of the highest fitness; so it is unless one of the next three is given."""
    cell: int | None = None
    """The elite of this cell."""
    descriptor: tuple[float, ...] | None = None
    """The elite nearest to this descriptor."""
    grid: str | None = None
    """Rows x columns, such as 3x3: as many elites side by side, the best of each part of descriptor space."""
    seed: int | None = None
    """Of the episode; unless given, that of the one in which the elite was found."""
    out: Path | None = None
    """FILE.mp4 or FILE.gif; best.mp4, cell-I.mp4 or grid-RxC.mp4 in the run's folder unless given."""
    steps: int | None = None
    """How many are shown at most; the whole episode unless given."""
    size: tuple[int, int] | None = None
    """Width and height of an elite's picture in pixels; 480 360 unless given, of several 240 180."""

    def run(self) -> int:
        from elites.experiments.display import Bar
        from elites.replays.replay import replay, table

        if self.best and (self.cell, self.descriptor, self.grid) != (None, None, None):
            raise ElitesError("best excludes cell, descriptor and grid")
        with Bar(f"drawing {self.folder}", unit="pictures") as bar:
            path, replayed = replay(
                self.folder,
                cell=self.cell,
                descriptor=self.descriptor,
                grid=self.grid,
                seed=self.seed,
                out=self.out,
                steps=self.steps,
                size=self.size,
                on_frame=bar,
            )
        print(table(replayed))
        print(path)
        return 0

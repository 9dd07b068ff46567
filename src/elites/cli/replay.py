"""`elites replay`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elites.cli.command import Flag, Folder
from elites.errors import ElitesError
from elites.experiments.options import PhysicsOptions
from elites.options import EpisodeLength, Finite, Index, Pixels, Seed


@dataclass(frozen=True, kw_only=True)
class Replay(PhysicsOptions):
    """Run the episodes of elites again and render them as MP4 or GIF.

    Prints the fitness and the descriptor of each episode and the recorded ones.
    """

    folder: Folder
    """Folder of the run."""
    best: Flag = False
    """The fittest elite. It is also shown if no elite is chosen."""
    cell: Index | None = None
    """Number of the elite's cell."""
    descriptor: tuple[Finite, ...] | None = None
    """Descriptor. The elite nearest to it is shown."""
    grid: str | None = None
    """Rows x columns of elites, such as 3x3: the best elite of each region of descriptor space."""
    seed: Seed | None = None
    """Seed of the episode. Default: the seed of the elite's evaluation."""
    out: Path | None = None
    """Output file, .mp4 or .gif. Default: best.mp4, cell-I.mp4 or grid-RxC.mp4 in the run's folder."""
    steps: EpisodeLength | None = None
    """Maximum number of steps to show. Default: the whole episode."""
    size: tuple[Pixels, Pixels] | None = None
    """Width and height of each elite's picture in pixels. Default: 480 360, with --grid 240 180."""

    def run(self) -> int:
        from elites.experiments.display import Bar

        if self.best and (self.cell, self.descriptor, self.grid) != (None, None, None):
            raise ElitesError("--best cannot be combined with --cell, --descriptor or --grid")
        with Bar(f"drawing {self.folder}", unit="pictures", activity="running the episodes") as bar:
            from elites.replays.replay import format_results, replay

            path, replayed = replay(
                self.folder,
                cell=self.cell,
                descriptor=self.descriptor,
                grid=self.grid,
                seed=self.seed,
                out=self.out,
                steps=self.steps,
                size=self.size,
                physics=self.physics,
                on_frame=bar,
            )
        print(format_results(replayed))
        print(path)
        return 0

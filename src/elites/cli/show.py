"""`elites show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elites.cli.command import Folder
from elites.reports.style import Format, Style


@dataclass(frozen=True, kw_only=True)
class Show(Style):
    """Print the summary of a run and draw its archive and its progress."""

    folder: Folder
    """Folder of the run."""
    format: Format = "png"
    """Format of all figures."""
    film: Path | None = None
    """Output file for a video of the snapshots (`elites run … --snapshots`), .mp4 or .gif."""

    def run(self) -> int:
        from elites.experiments.display import Bar

        style = {field: getattr(self, field) for field in Style.__dataclass_fields__}
        if self.film is not None:
            from elites.replays.film import draw_film

            with Bar(f"filming {self.folder}", unit="pictures") as bar:
                draw_film(self.folder, self.film, **style, on_frame=bar)
        with Bar(f"{self.folder}", activity="drawing figures"):
            from elites.reports.show import show

            text = show(self.folder, **style, format=self.format)
        print(text)
        if self.film is not None:
            print(self.film)
        return 0

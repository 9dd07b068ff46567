"""`elites explore`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from elites.cli.command import Flag
from elites.errors import ElitesError
from elites.options import Range

Port = Annotated[int, Range(0, 65535)]


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Write a page that shows the archives of runs, for any browser, offline."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR …")]
    """Folders of runs. Several are shown side by side on one scale."""
    out: Path | None = None
    """Output file. Default: explorer.html in the first folder."""
    gaits: Literal["none", "best", "all"] = "best"
    """Elites with a recorded movement: none, the best one of each region, or all."""
    serve: Flag = False
    """Local server instead of a file; it can evaluate elites again."""
    port: Port = 0
    """Port of the server; 0 means any free port."""

    def run(self) -> int:
        from elites.experiments.display import Bar
        from elites.explorer.explore import explore, serve

        if self.serve and self.out is not None:
            raise ElitesError("--serve and --out cannot be combined")
        with contextlib.ExitStack() as shown:
            title = f"replaying {self.folders[0] if self.folders else ''}"
            bar = shown.enter_context(Bar(title, unit="movements"))

            def ready(address: str) -> None:
                shown.close()
                print(f"{address}\nCtrl-C ends the server.", flush=True)

            if self.serve:
                serve(*self.folders, gaits=self.gaits, port=self.port, on_progress=bar, on_ready=ready)
                return 0
            page = explore(*self.folders, out=self.out, gaits=self.gaits, on_progress=bar)
        print(page)
        return 0

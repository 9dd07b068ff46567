"""`elites explore`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Write a page that shows the archives of runs, for any browser, offline."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR …")]
    """Folders of runs. Several are shown side by side on one scale."""
    out: Path | None = None
    """The page. Default: explorer.html in the first folder."""
    gaits: Literal["none", "best", "all"] = "best"
    """Whose movements are in the page: nobody's, those of the best elites of each region, or all elites'."""

    def run(self) -> int:
        from elites.experiments.display import Bar
        from elites.explorer.explore import explore

        with Bar(f"replaying {self.folders[0] if self.folders else ''}", unit="movements") as bar:
            page = explore(*self.folders, out=self.out, gaits=self.gaits, on_progress=bar)
        print(page)
        return 0

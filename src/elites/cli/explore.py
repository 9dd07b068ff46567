"""`elites explore`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Write a page that shows the archives of runs, for any browser, offline."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR …")]
    """Folders of runs. Several are shown side by side on one scale."""
    out: Path | None = None
    """The page. Default: explorer.html in the first folder."""

    def run(self) -> int:
        from elites.explorer.explore import explore

        print(explore(*self.folders, out=self.out))
        return 0

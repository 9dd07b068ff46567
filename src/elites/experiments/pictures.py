"""Pictures of the archives along a run, for its loggers."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from elites.drawing import draw_archive
from elites.results.archive import SavedArchive
from elites.results.folder import RunFolder

DEFAULT_PICTURES = 10  # pictures of a run
SHARE = 0.02  # largest share of the time for them, unless their number is given
FIRST_SECONDS = 1.0  # of a picture, before one has been drawn


class Pictures:
    """The schedule of pictures: after equal parts of the budget, or as soon as they are cheap enough."""

    def __init__(self, count: int | None, budget: int, evaluations: int) -> None:
        """`count` is the number of pictures, None for the default; `evaluations` are those so far."""
        self.has_fixed_count, self.budget = count is not None, budget
        self.count = DEFAULT_PICTURES if count is None else count
        self.seconds, self.last_seconds = 0.0, FIRST_SECONDS  # of all pictures, and of the last one
        self.done = self._count_parts(evaluations)

    def _count_parts(self, evaluations: int) -> int:
        return self.count * evaluations // self.budget

    def is_due(self, evaluations: int, elapsed: float, *, last: bool) -> bool:
        """Whether to draw now. `last` also allows the last picture of the run, however long it takes."""
        if self._count_parts(evaluations) <= self.done:
            return False
        cheap = self.seconds + self.last_seconds <= SHARE * elapsed
        return self.has_fixed_count or cheap or (last and evaluations >= self.budget)

    def record_drawing(self, evaluations: int, seconds: float) -> None:
        """Records that a picture of each archive was drawn in this time."""
        self.done, self.last_seconds = self._count_parts(evaluations), seconds
        self.seconds += seconds


def draw(archives: Sequence[SavedArchive]) -> list[bytes]:
    """The figure of `elites show` of each archive, as PNG."""
    pictures = []
    with tempfile.TemporaryDirectory() as scratch:
        path = RunFolder(scratch).figure_paths()["archive"]
        for archive in archives:
            draw_archive(archive, path)
            pictures.append(path.read_bytes())
    return pictures

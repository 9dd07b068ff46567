"""A process of its own for each run of a study: what it is to do comes in, how far it is goes out.

One line of JSON comes in on standard input, which then stays open for as long as whoever asked is there:
when it closes, the process ends at once, and what it was doing can be resumed. Lines of JSON go out on
standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elites.errors import ElitesError

if TYPE_CHECKING:
    from elites.experiments.execution import Report

APART_SECONDS = 0.5  # between lines on progress
Tell = Callable[..., None]


def main() -> int:
    """What `python -m elites.studies.worker` does. The exit status is 0 whenever the end was told."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print does not mix with what is told
    asked = json.loads(sys.stdin.readline())
    passing = Path(asked["folder"]).parent if asked.get("temporary") else None
    threading.Thread(target=_end_with_parent, args=(passing,), daemon=True).start()

    def tell(kind: str, **about: Any) -> None:
        out.write(json.dumps({"kind": kind, **about}) + "\n")

    try:
        if asked["what"] == "measure":
            from elites.studies.calibration import measure

            tell("measured", **measure(asked, lambda text: tell("told", text=text)))
        else:
            tell("done", finished=execute(asked, tell))
    except KeyboardInterrupt:
        tell("done", finished=False)
    except ElitesError as error:
        tell("failed", error=str(error))
    except Exception as error:
        traceback.print_exc()
        tell("failed", error=f"{type(error).__name__}: {error}".splitlines()[0])
    return 0


def _end_with_parent(passing: Path | None) -> None:
    """Whoever asked is gone: so is what was only on its way there."""
    while sys.stdin.read(4096):
        pass
    if passing is not None:
        shutil.rmtree(passing, ignore_errors=True)
    os._exit(1)


def execute(asked: dict[str, Any], tell: Tell) -> bool:
    """Runs, or goes on with a run, to its end, and corrects what it leaves. False if it was told to stop."""
    from elites.experiments.config import RunConfig
    from elites.experiments.correct import correct
    from elites.experiments.execution import Execution
    from elites.experiments.run import resume, run
    from elites.results.folder import GroupFolder, RunFolder

    folder, seeds, threads = Path(asked["folder"]), asked["seeds"], asked["threads"]
    config = RunConfig(**asked["config"])
    progress = _Progress(tell)
    execution = Execution(
        threads=threads,
        checkpoint_seconds=asked["checkpoint_seconds"],
        on_generation=progress.generation,
        on_correction=progress.correction,
        log=lambda text: tell("told", text=text),
    )
    if asked["group"]:
        _clear_unbegun(folder)
    begun = GroupFolder(folder).exists if asked["group"] else RunFolder(folder).exists
    outcome = resume(folder, execution) if begun else run(config, folder, len(seeds), execution)
    if not outcome.finished:
        return False
    if asked["correct"]:
        for one in outcome.runs or (outcome,):
            correct(
                one.folder,
                replications=config.correct_replications,
                redraw=asked["redraw"],
                threads=threads,
                on_progress=progress.correction,
                log=lambda text: None,
            )
    return True


def _clear_unbegun(folder: Path) -> None:
    """A group that was killed before its record was written has nothing but its runs' records."""
    from elites.results.folder import GroupFolder

    if GroupFolder(folder).is_incomplete():
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


class _Progress:
    """Tells of the last of those that come too fast."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self._told = tell, 0.0

    def generation(self, report: Report) -> None:
        metrics = report.metrics
        if self._due() or metrics["evaluations"] >= report.evaluations:
            named = {name: metrics[name] for name in ("qd_score", "max_fitness", "coverage")}
            self.tell("progress", done=metrics["evaluations"], total=report.evaluations, metrics=named)

    def correction(self, done: int, total: int) -> None:
        if self._due() or done >= total:
            self.tell("correcting", done=done, total=total)

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._told < APART_SECONDS:
            return False
        self._told = now
        return True


if __name__ == "__main__":
    sys.exit(main())

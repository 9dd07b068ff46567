"""A worker process for a run of a study: it receives a request and sends its progress.

The request is one line of JSON on standard input, which then stays open for as long as the parent process
lives. When it closes, the worker ends at once, and its run can be resumed. Messages are lines of JSON on
standard output.
"""

from __future__ import annotations

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

from elites.cache import collect_garbage_rarely
from elites.errors import ElitesError
from elites.results.folder import GroupFolder, RunFolder
from elites.results.tables import metric_names

if TYPE_CHECKING:
    from elites.experiments.execution import Report

PROGRESS_SECONDS = 0.5  # least time between messages on progress
Send = Callable[..., None]  # sends a message: its kind and its content


def main() -> int:
    """The command `python -m elites.studies.worker`. The exit status is 0 if a last message was sent."""
    collect_garbage_rarely()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # so that the output of libraries does not mix with the messages
    request = json.loads(sys.stdin.readline())
    temporary = Path(request["folder"]).parent if request.get("temporary") else None
    threading.Thread(target=_end_with_parent, args=(temporary,), daemon=True).start()

    def send(kind: str, **content: Any) -> None:
        out.write(json.dumps({"kind": kind, **content}) + "\n")

    try:
        if request["what"] == "measure":
            from elites.studies.calibration import measure

            send("measured", **measure(request, lambda text: send("text", text=text)))
        else:
            send("done", finished=execute(request, send))
    except KeyboardInterrupt:
        send("done", finished=False)
    except ElitesError as error:
        send("failed", error=str(error))
    except Exception as error:
        traceback.print_exc()
        send("failed", error=f"{type(error).__name__}: {error}".splitlines()[0])
    return 0


def _end_with_parent(temporary: Path | None) -> None:
    """Ends the process when its parent has ended, and removes a temporary folder."""
    while sys.stdin.read(4096):
        pass
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
    os._exit(1)


def execute(request: dict[str, Any], send: Send) -> bool:
    """Runs or resumes a job to its end, and corrects the archives. False if it was stopped before."""
    from elites.experiments.config import RunConfig
    from elites.experiments.correct import correct
    from elites.experiments.execution import Execution
    from elites.experiments.run import resume, start_runs

    folder, seeds = Path(request["folder"]), request["seeds"]
    config = RunConfig(**request["config"])
    progress = _Progress(send)
    execution = Execution(
        **request["resources"],
        pictures=0,
        on_generation=progress.send_generation,
        on_correction=progress.send_correction,
        on_phase=progress.send_phase,
        on_resume=progress.send_generation,
        log=lambda text: send("text", text=text),
    )
    if GroupFolder(folder).exists or RunFolder(folder).exists:
        outcome = resume(folder, execution)
    else:
        outcome = start_runs(config, len(seeds), folder, execution, group=request["group"])
    if not outcome.finished:
        return False
    if request["correct"]:
        for one in outcome.runs or (outcome,):
            correct(
                one.folder,
                replications=config.correct_replications,
                redraw=request["redraw"],
                threads=execution.threads,
                on_progress=progress.send_correction,
                log=lambda text: None,
            )
    return True


class _Progress:
    """Sends progress regularly, but not too often; the last message is always sent."""

    def __init__(self, send: Send) -> None:
        self.send, self._sent = send, 0.0

    def send_generation(self, report: Report) -> None:
        metrics = report.metrics
        if self._is_due() or metrics["evaluations"] >= report.budget:
            values = {name: metrics[name] for name in metric_names(metrics)}
            self.send("progress", done=metrics["evaluations"], total=report.budget, metrics=values)

    def send_phase(self, doing: str) -> None:
        if not self._sent:
            self.send("phase", phase=doing)

    def send_correction(self, done: int, total: int) -> None:
        if self._is_due() or done >= total:
            self.send("correcting", done=done, total=total)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._sent < PROGRESS_SECONDS:
            return False
        self._sent = now
        return True


if __name__ == "__main__":
    sys.exit(main())

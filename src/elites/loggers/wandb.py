"""Weights & Biases."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

from elites.errors import ElitesError
from elites.loggers.logger import LoggedRun, select_numbers

FINISH_SECONDS = 120.0  # longest time for uploads at the end; `wandb sync` sends what is left
WITHOUT_NETWORK = ("offline", "dryrun", "disabled")  # modes


class WandB:
    """A run of Weights & Biases. Its own variables, such as WANDB_MODE and WANDB_PROJECT, configure it.

    It keeps its files in the run's folder.
    """

    _run: Any

    def open(self, run: LoggedRun) -> dict[str, str]:
        """Begins a run, or continues the one with the remembered id."""
        import wandb

        online = wandb.setup().settings.mode not in WITHOUT_NETWORK
        if online and wandb.run is None and not wandb.login(verify=False, prompt=False):
            raise ElitesError("not logged in: run `wandb login`, or set WANDB_MODE=offline")
        run_id = run.remembered.get("id")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "elites"),
            id=run_id,
            resume="allow" if run_id else None,
            name=run.name,
            group=run.group,
            config=dict(run.config),
            dir=os.environ.get("WANDB_DIR", run.folder),
            settings=wandb.Settings(
                reinit="create_new", console="off", silent=True, finish_timeout=FINISH_SECONDS
            ),
        )
        return {"id": self._run.id, **({"url": self._run.url} if online else {})}

    def log_row(self, row: Mapping[str, float | None]) -> None:
        """Logs a step for each row; its number is that of the evaluations."""
        step = int(row["evaluations"] or 0)
        if step >= self._run.starting_step:  # earlier ones were logged before the run was resumed
            self._run.log(select_numbers(row), step=step)

    def log_picture(self, evaluations: int, png: bytes) -> None:
        """Logs an image `archive`."""
        import wandb
        from PIL import Image

        if evaluations >= self._run.starting_step:
            self._run.log({"archive": wandb.Image(Image.open(io.BytesIO(png)))}, step=evaluations)

    def close(self, finished: bool) -> None:
        """Ends the run; one that is not finished counts as failed until it is resumed."""
        self._run.finish(exit_code=0 if finished else 1)

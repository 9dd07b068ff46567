"""MLflow."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from elites.loggers.logger import LoggedRun, flatten_config, select_numbers

FLUSH_SECONDS = 1.0  # rows are sent together
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}  # if not set


class MLflow:
    """A run of MLflow. MLflow's own variables, such as MLFLOW_TRACKING_URI, configure the server."""

    _client: Any
    _run_id: str

    def __init__(self) -> None:
        self._waiting: list[Any] = []  # metrics to send
        self._sent = time.monotonic()
        self._last = -1  # evaluations of the last row that was sent before

    def open(self, run: LoggedRun) -> dict[str, str]:
        """Begins a run, or continues the one with the remembered id."""
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = client = MlflowClient(run.remembered.get("tracking_uri"))
        if (run_id := run.remembered.get("run_id")) is not None:
            self._run_id = run_id
            client.update_run(run_id, "RUNNING")
            self._last = max(
                (one.step for one in client.get_metric_history(run_id, "generation")), default=-1
            )
        else:
            group = {} if run.group is None else {"group": run.group}
            began = client.create_run(_experiment(client), run_name=run.name, tags=group)
            self._run_id = began.info.run_id
            settings = flatten_config(run.config)
            params = [Param(name, str(value)) for name, value in settings.items()]
            client.log_batch(self._run_id, params=params)
        uri = client.tracking_uri
        local = {"tracking_uri": uri} if uri.startswith("sqlite:") else {}  # others may contain a password
        return {"run_id": self._run_id, **local}

    def log_row(self, row: Mapping[str, float | None]) -> None:
        """Logs a step for each row; its number is that of the evaluations."""
        from mlflow.entities import Metric

        step, now = int(row["evaluations"] or 0), int(1000 * time.time())
        if step > self._last:
            self._waiting += [
                Metric(_name(tag), number, now, step) for tag, number in select_numbers(row).items()
            ]
        if time.monotonic() - self._sent > FLUSH_SECONDS:
            self._flush()

    def log_picture(self, evaluations: int, png: bytes) -> None:
        """Logs an image `archive`."""
        from PIL import Image

        self._flush()
        image = Image.open(io.BytesIO(png))
        self._client.log_image(self._run_id, image, key="archive", step=evaluations)

    def close(self, finished: bool) -> None:
        """Ends the run; one that is not finished counts as killed until it is resumed."""
        self._flush()
        self._client.set_terminated(self._run_id, "FINISHED" if finished else "KILLED")

    def _flush(self) -> None:
        waiting, self._waiting, self._sent = self._waiting, [], time.monotonic()
        self._client.log_batch(self._run_id, metrics=waiting, synchronous=True)


def _experiment(client: Any) -> str:
    """The id of the experiment, which is created if it does not exist."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "elites")
    experiment = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if experiment is None else experiment.experiment_id)


def _name(tag: str) -> str:
    """A tag with the characters that MLflow allows."""
    return re.sub(r"[^\w./ -]", "_", tag)

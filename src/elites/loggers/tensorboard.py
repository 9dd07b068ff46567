"""TensorBoard's events: scalars, hyper-parameters and pictures, written without TensorFlow."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

from elites.loggers.logger import LoggedRun, flatten_config, select_numbers
from elites.results.tables import AppendOnlyFile


class TensorBoard:
    """The events of a run. Resuming cuts their file back to the checkpoint, as it does with the tables."""

    def __init__(self, file: AppendOnlyFile) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._file, self._event, self._records = file, Event, RecordWriter(file)

    def open(self, run: LoggedRun) -> dict[str, str]:
        """Writes the hyper-parameters, if nothing has been written."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        if self._file.size() == 0:
            self._write(file_version="brain.Event:2")
            plain = {name: _plain(value) for name, value in flatten_config(run.config).items()}
            self._write(step=0, summary=hparams_pb(plain))
        return {}

    def log_row(self, row: Mapping[str, float | None]) -> None:
        """Writes a scalar for each number."""
        event = self._event(wall_time=time.time(), step=row["evaluations"])
        for tag, number in select_numbers(row).items():
            event.summary.value.add(tag=tag, simple_value=number)
        self._append(event)

    def log_picture(self, evaluations: int, png: bytes) -> None:
        """Writes an image `archive`."""
        event = self._event(wall_time=time.time(), step=evaluations)
        image = event.summary.value.add(tag="archive").image
        image.width, image.height = struct.unpack(">II", png[16:24])  # of the PNG's header
        image.colorspace, image.encoded_image_string = 4, png
        self._append(event)

    def close(self, finished: bool) -> None:
        """Does nothing: the run's tables close the file."""

    def _write(self, **fields: Any) -> None:
        self._append(self._event(wall_time=time.time(), **fields))

    def _append(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._file.size()  # hands it to the operating system


def _plain(value: Any) -> bool | float | str:
    """A value as the HParams plugin takes it."""
    return value if isinstance(value, bool | int | float | str) else str(value)

"""Logs that grow by a row per generation and can be cut back to a checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from elites.errors import ElitesError
from elites.results import names

COUNTS = ("generation", "evaluations", "environment_steps", "gradient_steps", "invalid")
BY_OPERATOR = ("made_", "new_", "improved_")  # begin the names of an operator's columns


def is_count(column: str) -> bool:
    """Whether a column of `metrics.csv` counts something; the others are metrics."""
    return column in COUNTS or column.startswith(BY_OPERATOR)


def metric_names(columns: Iterable[str]) -> list[str]:
    """The columns of `metrics.csv` that are metrics of the archive."""
    return [column for column in columns if not is_count(column)]


class Appended:
    """A file that is only ever appended to."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Cuts the file to `size` bytes and goes on from there."""
        path.touch()
        if path.stat().st_size < size:
            raise ElitesError(f"{path} is shorter than its checkpoint says; it was changed since")
        os.truncate(path, size)
        self._file = path.open("ab")

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def size(self) -> int:
        """Bytes so far, all handed to the operating system."""
        self._file.flush()
        return self._file.tell()

    def sync(self) -> int:
        """Bytes so far, all on the disk."""
        size = self.size()
        os.fsync(self._file.fileno())
        return size

    def close(self) -> None:
        self._file.close()


class Table:
    """A CSV file with fixed columns."""

    def __init__(self, path: Path, columns: Iterable[str], size: int = 0) -> None:
        self.columns = tuple(columns)
        self.file = Appended(path, size)
        if size == 0:
            self.file.write((",".join(self.columns) + "\n").encode())

    def append(self, row: Mapping[str, object]) -> None:
        """Writes numbers so that they are read back exactly."""
        self.file.write((",".join(repr(row[column]) for column in self.columns) + "\n").encode())
        self.file.size()


class TensorBoard:
    """Scalars as TensorBoard reads them, in one file that resuming can cut back."""

    def __init__(self, folder: Path, size: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.file = Appended(folder / names.EVENTS, size)
        self._event, self._records = Event, RecordWriter(self.file)
        if size == 0:
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def append(self, step: int, scalars: Mapping[str, float]) -> None:
        event = self._event(wall_time=time.time(), step=step)
        for name, number in scalars.items():
            event.summary.value.add(tag=name, simple_value=number)
        self._write(event)
        self.file.size()

    def _write(self, event: object) -> None:
        self._records.write(event.SerializeToString())  # type: ignore[attr-defined]


class Logs:
    """All logs of a run."""

    def __init__(
        self,
        folder: Path,
        metrics: Iterable[str],
        timings: Iterable[str],
        corrections: Iterable[str],
        sizes: Mapping[str, int],
    ) -> None:
        """Tables with these columns; without any, a run that is not corrected has no table of corrections.

        `sizes` are the bytes to keep of each file, as `sync` returned them.
        """
        self.metrics = Table(folder / names.METRICS, metrics, sizes.get(names.METRICS, 0))
        self.timings = Table(folder / names.TIMINGS, timings, sizes.get(names.TIMINGS, 0))
        self.tensorboard = TensorBoard(folder, sizes.get(names.EVENTS, 0))
        self._files = {
            names.METRICS: self.metrics.file,
            names.TIMINGS: self.timings.file,
            names.EVENTS: self.tensorboard.file,
        }
        if columns := tuple(corrections):
            path = folder / names.CORRECTIONS
            self.corrections = Table(path, columns, sizes.get(names.CORRECTIONS, 0))
            self._files[names.CORRECTIONS] = self.corrections.file

    def append(self, metrics: Mapping[str, Any], timings: Mapping[str, Any]) -> None:
        """A row of each table, and the metrics for TensorBoard."""
        self.metrics.append(metrics)
        scalars = {name: metrics[name] for name in metric_names(metrics)}
        self.tensorboard.append(metrics["evaluations"], scalars)
        self.timings.append(timings)

    def sync(self) -> dict[str, int]:
        """Puts everything on the disk. Returns the size of each file."""
        return {name: file.sync() for name, file in self._files.items()}

    def __enter__(self) -> Logs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            try:
                file.close()
            except OSError:
                if error is None:
                    raise


def read_table(path: Path | str) -> dict[str, np.ndarray]:
    """A CSV file of numbers as columns; a last row that was cut short is left out."""
    path = Path(path)
    try:
        header, *rows = path.read_text().splitlines(keepends=True)
        columns = header.strip().split(",")
        whole = [row.strip().split(",") for row in rows if row.endswith("\n")]
        numbers = np.array(whole, float).reshape(-1, len(columns))
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is damaged: {error}") from None
    return dict(zip(columns, numbers.T, strict=True))

"""Logs that grow by a row per generation and can be cut back to a checkpoint."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from elites.errors import ElitesError
from elites.files import make_one_line, open_file
from elites.results import names
from elites.results.lineage import encode_header, encode_records
from elites.results.schemas import OPTIONAL, LogMark, check_columns, is_count

EDGE = 4096  # bytes at the beginning and at the end of a log, which its digest covers


def metric_names(columns: Iterable[str]) -> list[str]:
    """The columns of `metrics.csv` that are metrics of the archive, or a user's own."""
    return [column for column in columns if not is_count(column) and column not in OPTIONAL]


class AppendOnlyFile:
    """A file that is only ever appended to."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Cuts the file to `size` bytes and appends after them."""
        self._file = path.open("a+b")
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def size(self) -> int:
        """Bytes so far, all handed to the operating system."""
        self._file.flush()
        return self._file.tell()

    def sync(self) -> LogMark:
        """Writes everything to disk. Returns the mark from which a checkpoint can continue."""
        size = self.size()
        os.fsync(self._file.fileno())
        return LogMark(size=size, digest=_digest(self._file.fileno(), size))

    def close(self) -> None:
        self._file.close()


def _digest(file: int, size: int) -> str:
    """A digest of the first and the last bytes before `size`."""
    last = max(0, size - EDGE)
    edges = os.pread(file, min(size, EDGE), 0) + os.pread(file, size - last, last)
    return hashlib.sha256(edges).hexdigest()


def check_logs(folder: Path, marks: Mapping[str, LogMark]) -> None:
    """Raises an error if a log is not the one that a checkpoint was written with. Changes nothing."""
    for name, mark in marks.items():
        path = folder / name
        if name not in names.LOGS:
            raise ElitesError(
                f"the checkpoint of {folder} has a log {name!r}; a run has {', '.join(names.LOGS)}"
            )
        try:
            with open_file(path) as file:
                if os.fstat(file.fileno()).st_size < mark.size:
                    raise ElitesError(
                        f"{path} is shorter than its checkpoint says; it has changed since then"
                    )
                if _digest(file.fileno(), mark.size) != mark.digest:
                    raise ElitesError(
                        f"{path} does not begin as its checkpoint says; it has changed since then"
                    )
        except (OSError, ValueError) as error:
            raise ElitesError(f"{path} cannot be continued: {make_one_line(error)}") from None


class Table:
    """A CSV file with fixed columns."""

    def __init__(self, path: Path, columns: Iterable[str], size: int = 0) -> None:
        """A log that is continued keeps its columns: one of an older format has fewer."""
        self.columns = _read_columns(path, tuple(columns)) if size else tuple(columns)
        self.file = AppendOnlyFile(path, size)
        if size == 0:
            self.file.write((",".join(self.columns) + "\n").encode())

    def append(self, row: Mapping[str, object]) -> None:
        """Writes numbers so that they are read back exactly."""
        cells = (_cell(column, row[column]) for column in self.columns)
        self.file.write((",".join(cells) + "\n").encode())
        self.file.size()


def _cell(column: str, value: object) -> str:
    """The text of a cell. None is empty, and NaN in a user's column: an empty cell elsewhere is damage."""
    if value is None:
        return "" if column in OPTIONAL else "nan"
    return repr(value)


def _read_columns(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a log that is continued; an error if one of them is not in `columns`."""
    with open_file(path) as file:
        present = tuple(file.readline().decode().strip().split(","))
    if unknown := [name for name in present if name not in columns]:
        raise ElitesError(f"{path} has a column {make_one_line(unknown[0])}; this version does not write it")
    return present


class Logs:
    """All logs of a run."""

    def __init__(
        self,
        folder: Path,
        metrics: Iterable[str],
        timings: Iterable[str],
        corrections: Iterable[str],
        operators: Sequence[str],
        marks: Mapping[str, LogMark],
    ) -> None:
        """Opens tables with these columns. Without columns for corrections, there is no such table.

        `marks`, returned by `sync`, say how much of each file to keep. A run that began without a log of
        lineages does not get one later: its first part would be missing.
        """
        sizes = {name: mark.size for name, mark in marks.items()}
        self.metrics = Table(folder / names.METRICS, metrics, sizes.get(names.METRICS, 0))
        self.timings = Table(folder / names.TIMINGS, timings, sizes.get(names.TIMINGS, 0))
        self.events = AppendOnlyFile(folder / names.EVENTS, sizes.get(names.EVENTS, 0))  # TensorBoard's
        self._files = {
            names.METRICS: self.metrics.file,
            names.TIMINGS: self.timings.file,
            names.EVENTS: self.events,
        }
        self.lineage: AppendOnlyFile | None = None
        if not marks or names.LINEAGE in marks:
            self.lineage = AppendOnlyFile(folder / names.LINEAGE, sizes.get(names.LINEAGE, 0))
            self._files[names.LINEAGE] = self.lineage
            if not self.lineage.size():
                self.lineage.write(encode_header(operators))
        if columns := tuple(corrections):
            path = folder / names.CORRECTIONS
            self.corrections = Table(path, columns, sizes.get(names.CORRECTIONS, 0))
            self._files[names.CORRECTIONS] = self.corrections.file

    def add_offspring(self, words: np.ndarray) -> None:
        """Appends a record of each offspring that entered the archive: see `encode_records`."""
        if self.lineage is not None:
            self.lineage.write(encode_records(words))
            self.lineage.size()

    def sync(self) -> dict[str, LogMark]:
        """Writes everything to disk. Returns the mark of each file, for a checkpoint."""
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
    """A CSV file of numbers, or the `metrics.csv` in a run's folder, as columns. An empty cell is NaN.

    A last row that was cut short is left out.
    """
    import pyarrow as pa
    import pyarrow.csv as csv

    path = Path(path)
    if path.is_dir():
        path /= names.METRICS
    try:
        with open_file(path) as file:
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        header, _, rows = data.partition(b"\n")
        columns = header.decode().strip().split(",")
        if not all(columns):
            raise ValueError("its first line must name each column")
        check_columns(path, columns, ())
        if not rows:
            return {name: np.empty(0) for name in columns}
        table = csv.read_csv(
            io.BytesIO(data),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=1 << 24, column_names=columns, skip_rows=1
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.float64()), null_values=[""]
            ),
        )
        if empty := [name for name in columns if table.column(name).null_count and name not in OPTIONAL]:
            raise ValueError(f"{empty[0]} has an empty cell")
        return {name: table.column(name).to_numpy().copy() for name in columns}
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ElitesError(f"{path} is damaged: {make_one_line(error)}") from None

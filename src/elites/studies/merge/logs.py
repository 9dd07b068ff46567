"""Reading the logs of many runs quickly, and writing them as one Parquet table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from elites.errors import ElitesError
from elites.files import one_line, open_file
from elites.metrics.metric import Quantity
from elites.results.corrected import load_corrected_metrics
from elites.results.folder import RunFolder
from elites.results.schemas import COUNTS, MAX_COUNT, OPTIONAL, check_columns, is_count
from elites.studies.merge.runs import Run

TAIL = 4096


def read_log(folder: RunFolder) -> dict[str, np.ndarray]:
    """The columns of a run's metrics; an error if one that a report needs is missing."""
    log = folder.read_metrics()
    if not len(log["evaluations"]):
        raise ElitesError(f"{folder.metrics} is damaged: it has no row")
    return log


def read_last_row(path: Path) -> tuple[list[str], dict[str, float]]:
    """The columns of a log and its last complete row, {} if it has none. Rows in between are not read."""
    try:
        with open_file(path) as file:
            header = file.readline()
            start = file.tell()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - TAIL))
            rows = file.read().rpartition(b"\n")[0].split(b"\n")
        columns = header.decode().strip().split(",")
        if not rows[-1]:
            return columns, {}
        cells = dict(zip(columns, rows[-1].split(b","), strict=True))
        last = {name: float(text) for name, text in cells.items() if text or name not in OPTIONAL}
        check_columns(path, columns)
        if not 0 <= last["evaluations"] <= MAX_COUNT:
            raise ValueError(f"its last row has {last['evaluations']} evaluations")
        return columns, last
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is damaged: {one_line(error)}") from None


def read_corrections(
    folder: RunFolder, metrics: Iterable[Quantity]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Evaluations, corrected metrics and losses of every correction of a run, the final one too.

    A file that is damaged is left out; the second result says why.
    """
    metrics = list(metrics)
    rows: dict[int, dict[str, float]] = {}
    errors = []
    for path, read in ((folder.corrections, _read_during), (folder.corrected(), _read_final)):
        if path.exists():
            try:
                rows |= read(folder, metrics)
            except ElitesError as error:
                errors.append(str(error))
    evaluations = sorted(rows)
    columns = [column.name for metric in metrics for column in (metric.corrected, metric.loss)]
    values = {name: np.array([rows[at].get(name, np.nan) for at in evaluations]) for name in columns}
    return {"evaluations": np.array(evaluations, float), **values}, errors


def _read_during(folder: RunFolder, metrics: Sequence[Quantity]) -> dict[int, dict[str, float]]:
    """The corrections during a run. Only the metrics that every run has are required."""
    table = folder.read_corrections() or {}
    columns = {}
    for metric in metrics:
        if metric.name in table and metric.loss.name in table:
            columns[metric.corrected.name] = table[metric.name]
            columns[metric.loss.name] = table[metric.loss.name]
    return {
        int(evaluations): {name: float(column[row]) for name, column in columns.items()}
        for row, evaluations in enumerate(table["evaluations"])
    }


def _read_final(folder: RunFolder, metrics: Sequence[Quantity]) -> dict[int, dict[str, float]]:
    """The correction of the archive."""
    evaluations, values = load_corrected_metrics(folder.corrected())
    return {
        evaluations: {
            **{metric.corrected.name: values[metric.name] for metric in metrics if metric.name in values},
            **{metric.loss.name: values[metric.loss.name] for metric in metrics if metric.name in values},
        }
    }


class MetricsTable:
    """One tidy Parquet file: a row for each generation of each run, null where a run has no such number."""

    def __init__(self, path: Path, columns: Iterable[str], metrics: Iterable[Quantity]) -> None:
        """`columns` are those of all logs together, `metrics` those that are metrics."""
        metrics = list(metrics)
        names = list(dict.fromkeys([*COUNTS[:4], "elapsed_s", *(m.name for m in metrics), *columns]))
        text = pa.dictionary(pa.int32(), pa.string())
        fields = [("task", text), ("algorithm", text), ("variant", text), ("seed", pa.int64())]
        fields += [(name, pa.int64() if is_count(name) else pa.float64()) for name in names]
        fields += [(metric.corrected.name, pa.float64()) for metric in metrics]
        fields += [(metric.loss.name, pa.float64()) for metric in metrics]
        self.schema = pa.schema(fields)
        self._writer = parquet.ParquetWriter(path, self.schema, compression="zstd", compression_level=1)

    def add(self, run: Run, log: Mapping[str, np.ndarray], corrections: Mapping[str, np.ndarray]) -> None:
        """Adds the rows of a run."""
        count = len(log["generation"])
        arrays: list[Any] = []
        at = np.searchsorted(log["evaluations"], corrections["evaluations"])
        for field in self.schema:
            if pa.types.is_dictionary(field.type):
                value = {"task": run.task, "algorithm": run.algorithm, "variant": run.variant}[field.name]
                arrays.append(
                    pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))
                )
            elif field.name == "seed":
                arrays.append(pa.array(np.full(count, run.seed)))
            elif field.name in corrections and field.name != "evaluations":
                values = np.full(count, np.nan)
                logged = at < count
                values[at[logged]] = corrections[field.name][logged]
                missing = np.ones(count, bool)
                missing[at[logged]] = False
                arrays.append(pa.array(values, mask=missing))
            elif field.name in log:
                values = log[field.name]
                arrays.append(pa.array(values.astype(np.int64) if is_count(field.name) else values))
            else:
                arrays.append(pa.nulls(count, field.type))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema), row_group_size=count or 1)

    def __enter__(self) -> MetricsTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

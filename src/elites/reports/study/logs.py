"""Reading the logs of many runs quickly, and writing them as one Parquet table."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from elites.errors import ElitesError
from elites.files import read_arrays
from elites.reports.study.runs import Run

METRICS = ("qd_score", "max_fitness", "coverage")
LOSSES = tuple(f"{name}_loss" for name in METRICS)
CORRECTED = tuple(f"corrected_{name}" for name in METRICS)
WHOLE = ("generation", "evaluations", "environment_steps", "gradient_steps", "invalid")
NEEDED = ("generation", "evaluations", "environment_steps", *METRICS)  # columns of a log
TAIL = 4096


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV file of numbers; a last row that was cut short is left out."""
    try:
        data = path.read_bytes()
        data = data[: data.rfind(b"\n") + 1]
        if data.count(b"\n", 0, TAIL) < 2:  # a header alone
            return {name: np.empty(0) for name in data.decode().strip().split(",") if name}
        names = data[: data.index(b"\n")].decode().strip().split(",")
        table = csv.read_csv(
            io.BytesIO(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=1 << 24),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float64())),
        )
        return {name: table.column(name).to_numpy() for name in names}
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ElitesError(f"{path} is damaged: {str(error).splitlines()[0]}") from None


def read_log(folder: Path) -> dict[str, np.ndarray]:
    """The columns of a run's metrics, all that a report needs among them."""
    path = folder / "metrics.csv"
    log = read_columns(path)
    _require_columns(path, log)
    for name in [name for name in log if _whole(name)]:
        if not np.isfinite(log[name]).all():
            raise ElitesError(f"{path} is damaged: {name} is not a number in every row")
    if not len(log["evaluations"]) or (np.diff(log["evaluations"]) < 0).any():
        raise ElitesError(f"{path} is damaged: evaluations do not rise")
    return log


def _require_columns(path: Path, there: Iterable[str]) -> None:
    there = list(there)
    made = [name.removeprefix("made_") for name in there if name.startswith("made_")]
    needed = [*NEEDED, *(f"{what}_{name}" for name in made for what in ("new", "improved"))]
    missing = [name for name in needed if name not in there]
    if missing:
        raise ElitesError(f"{path} is damaged: it has no column {missing[0]}")


def ends_of(path: Path) -> tuple[list[str], dict[str, float]]:
    """The columns of a log and its last whole row, {} if it has none, without reading what is between."""
    try:
        with path.open("rb") as file:
            header = file.readline()
            start = file.tell()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - TAIL))
            rows = file.read().rpartition(b"\n")[0].split(b"\n")
        columns = header.decode().strip().split(",")
        if not rows[-1]:
            return columns, {}
        numbers = [float(text) for text in rows[-1].split(b",")]
        last = dict(zip(columns, numbers, strict=True))
        _require_columns(path, columns)
        if not math.isfinite(last["evaluations"]):
            raise ValueError(f"its last row has {last['evaluations']} evaluations")
        return columns, last
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is damaged: {error}") from None


def read_corrections(folder: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """Evaluations, corrected metrics and losses of every correction of a run, the final one too.

    And what is wrong with a file that is there: what is in it is left out.
    """
    rows: dict[int, list[float]] = {}
    wrong = []
    for name, read in (("corrections.csv", _along), ("corrected.npz", _last)):
        path = folder / name
        if path.exists():
            try:
                rows |= read(path)
            except ElitesError as error:
                wrong.append(str(error))
            except (ValueError, TypeError, KeyError) as error:
                why = f"it has no {error}" if isinstance(error, KeyError) else error
                wrong.append(f"{path} is damaged: {why}")
    at, names = sorted(rows), (*CORRECTED, *LOSSES)
    values = np.array([rows[evaluations] for evaluations in at]).reshape(-1, len(names))
    return {"evaluations": np.array(at, float), **dict(zip(names, values.T, strict=True))}, wrong


def _along(path: Path) -> dict[int, list[float]]:
    table = read_columns(path)
    columns = [table[name] for name in (*METRICS, *LOSSES)]
    return {
        int(evaluations): [float(column[index]) for column in columns]
        for index, evaluations in enumerate(table["evaluations"])
    }


def _last(path: Path) -> dict[int, list[float]]:
    found = read_arrays(path, (*METRICS, *LOSSES, "about"), "a corrected archive")
    evaluations = int(json.loads(str(found["about"]))["evaluations"])
    return {evaluations: [float(found[name]) for name in (*METRICS, *LOSSES)]}


def read_archived(folder: Path, unless: int) -> int:
    """The evaluations of a run's archive; `unless` there is one that can be read."""
    with contextlib.suppress(ElitesError, ValueError, TypeError, KeyError):
        found = read_arrays(folder / "archive.npz", ("about",), "an archive")
        return int(json.loads(str(found["about"]))["evaluations"])
    return unless


class MetricsTable:
    """One tidy Parquet file: a row for each generation of each run. Where a run has no such number: null."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        """`columns` are those of all logs together."""
        names = list(dict.fromkeys([*WHOLE[:4], "elapsed_s", *METRICS, *columns]))
        text = pa.dictionary(pa.int32(), pa.string())
        fields = [("task", text), ("algorithm", text), ("variant", text), ("seed", pa.int64())]
        fields += [(name, pa.int64() if _whole(name) else pa.float64()) for name in names]
        fields += [(name, pa.float64()) for name in (*CORRECTED, *LOSSES)]
        self.schema = pa.schema(fields)
        self._writer = parquet.ParquetWriter(path, self.schema, compression="zstd", compression_level=1)

    def add(self, run: Run, log: Mapping[str, np.ndarray], corrections: Mapping[str, np.ndarray]) -> None:
        """A run's rows."""
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
                there = at < count
                values[at[there]] = corrections[field.name][there]
                missing = np.ones(count, bool)
                missing[at[there]] = False
                arrays.append(pa.array(values, mask=missing))
            elif field.name in log:
                values = log[field.name]
                arrays.append(pa.array(values.astype(np.int64) if _whole(field.name) else values))
            else:
                arrays.append(pa.nulls(count, field.type))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema), row_group_size=count or 1)

    def __enter__(self) -> MetricsTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()


def _whole(name: str) -> bool:
    return name in WHOLE or name.startswith(("made_", "new_", "improved_"))

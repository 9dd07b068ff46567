"""The metrics of all runs of a study as one Parquet table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from elites.metrics.metric import Quantity
from elites.results.schemas import COUNTS, is_count
from elites.studies.results.runs import Run


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

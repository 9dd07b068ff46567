"""The log of all offspring that entered an archive, from which lineages are read.

The file is a line of JSON (format and names of the operators), then a record of fixed size for each offspring
that entered, in the order of their evaluations. It is only ever appended to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from elites.archives.archive import Status
from elites.errors import ElitesError
from elites.files import make_one_line, open_file
from elites.options import convert_value
from elites.results.names import LINEAGE
from elites.results.schemas import convert, parse

VERSION = 1
MAX_HEADER_BYTES = 2**16
RECORD = np.dtype(
    [
        ("evaluation", "<i4"),
        ("parents", "<i4", (2,)),
        ("cell", "<i4"),
        ("fitness", "<f4"),
        ("generation", "<i4"),
        ("operator", "u1"),
        ("status", "u1"),
        ("unused", "<u2"),
    ]
)
WORDS = RECORD.itemsize // 4  # int32 numbers per record; programs return records as such numbers
_ENTERS = np.isin(np.arange(256), (Status.NEW, Status.IMPROVED, Status.STORED))  # by status


class LineageHeader(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of the file."""

    lineage: int  # the format
    operators: Annotated[list[str], Meta(min_length=1, max_length=256)]


@dataclass(frozen=True)
class Lineage:
    """Offspring that entered an archive, `[n, …]`, in the order of their evaluations.

    Elites that were replaced later are included.
    """

    evaluation: np.ndarray  # the numbers by which elites and parents are identified
    parents: np.ndarray  # [n, 2], evaluations of the parents; -1: none
    cell: np.ndarray
    fitness: np.ndarray
    generation: np.ndarray
    operator: np.ndarray  # names
    status: np.ndarray  # NEW or IMPROVED, as `elites.Status`; STORED is in addition to the elite of the cell

    def __len__(self) -> int:
        return len(self.evaluation)

    def find_rows(self, evaluations: np.ndarray | Sequence[int]) -> np.ndarray:
        """The row of each evaluation; -1 for those that are not in the log."""
        numbers = np.asarray(evaluations, np.int64)
        if not len(self):
            return np.full(numbers.shape, -1)
        rows = np.minimum(np.searchsorted(self.evaluation, numbers), len(self) - 1)
        return np.where(self.evaluation[rows] == numbers, rows, -1)

    def select_rows(self, rows: np.ndarray | Sequence[int]) -> Lineage:
        """These rows, in this order."""
        chosen = np.asarray(rows, np.int64)
        return Lineage(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def find_ancestors(self, evaluation: int) -> Lineage:
        """All ancestors of the solution of an evaluation, the newest first, back to those without parents."""
        ancestors: set[int] = set()
        pending = [self._row(evaluation)]
        while pending:
            rows = self.find_rows(self.parents[pending].ravel())
            pending = [row for row in np.unique(rows[rows >= 0]).tolist() if row not in ancestors]
            ancestors.update(pending)
        return self.select_rows(sorted(ancestors, reverse=True))

    def trace_first_parents(self, evaluation: int) -> Lineage:
        """The solution of an evaluation, its first parent, the first parent of that, and so on."""
        rows = [self._row(evaluation)]
        while (parent := int(self.find_rows(self.parents[rows[-1], :1])[0])) >= 0:
            rows.append(parent)
        return self.select_rows(rows)

    def _row(self, evaluation: int) -> int:
        number = convert_value(int, "evaluation", evaluation)
        row = int(self.find_rows([number])[0])
        if row < 0:
            raise ElitesError(
                f"evaluation is {number}; it must be the number of a solution that entered the archive"
            )
        return row


def encode_header(operators: Sequence[str]) -> bytes:
    """The beginning of a file."""
    return (json.dumps({"lineage": VERSION, "operators": list(operators)}) + "\n").encode()


def encode_records(words: np.ndarray) -> bytes:
    """The records of the offspring that entered. `words` `[n, WORDS]`, int32, has all of a batch."""
    entered: np.ndarray = words[_ENTERS[words[:, -1] >> 8 & 0xFF]]
    return entered.astype("<i4", copy=False).tobytes()


def load_lineage(path: Path | str) -> Lineage:
    """Reads a `lineage.bin`, or the one in a run's folder. A last record that was cut short is left out."""
    path = Path(path)
    if path.is_dir():
        path /= LINEAGE
    try:
        with open_file(path) as file:
            operators = _read_header(path, file.readline(MAX_HEADER_BYTES))
            whole = (os.fstat(file.fileno()).st_size - file.tell()) // RECORD.itemsize
            records = np.frombuffer(file.read(whole * RECORD.itemsize), RECORD)
        _check(records, operators)
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist: runs of an older format have no such log") from None
    except (OSError, ValueError) as error:
        raise ElitesError(f"{path} is damaged: {make_one_line(error)}") from None
    columns = {name: np.ascontiguousarray(records[name]) for name in RECORD.names or () if name != "unused"}
    return Lineage(**{**columns, "operator": np.array(operators)[records["operator"]]})


def _read_header(path: Path, line: bytes) -> list[str]:
    """The names of the operators."""
    try:
        given = parse(line)
        if isinstance(given, dict) and isinstance(given.get("lineage"), int) and given["lineage"] != VERSION:
            raise ElitesError(f"{path} has format {given['lineage']}; this version reads format {VERSION}")
        return convert(given, LineageHeader).operators
    except ValueError:
        raise ValueError("its first line is not the header of a log of lineages") from None


def _check(records: np.ndarray, operators: Sequence[str]) -> None:
    """Raises ValueError if records are not what a run writes."""
    evaluation, parents = records["evaluation"], records["parents"]
    if len(records) and (evaluation[0] < 0 or (np.diff(evaluation.astype(np.int64)) <= 0).any()):
        raise ValueError("evaluations do not increase")
    if (parents < -1).any() or (parents >= evaluation[:, None]).any():
        raise ValueError("a parent is not an earlier evaluation")
    if (records["cell"] < 0).any() or (records["generation"] < 0).any():
        raise ValueError("a cell or a generation is negative")
    if (records["operator"] >= len(operators)).any():
        raise ValueError(f"an operator is none of {', '.join(operators)}")
    if not _ENTERS[records["status"]].all() or not np.isfinite(records["fitness"]).all():
        raise ValueError("a record is not of an offspring that entered the archive")

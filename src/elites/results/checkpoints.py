"""Checkpoints: the whole state of a run in one file, written atomically, the last two kept.

The file is a plain npz: the arrays of each replication's state by their path in it, and a header in JSON. Of
archives and replay buffers only the filled rows are stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import msgspec
import numpy as np

from elites.archives.archive import Solutions
from elites.errors import ElitesError
from elites.files import ArrayFile, ArraySpec, make_one_line, remove_partials, write_atomically
from elites.learning.replay_buffer import ReplayBuffer
from elites.results.schemas import CheckpointHeader, RunRecord, convert, parse

VERSION = 6  # of the format; the older 5 is the same for a single run, and has other shapes for a group
KEPT = 2
DAMAGED = ".damaged"  # suffix of a checkpoint that could not be read
HEADER = ArraySpec("U")


class _CheckedArrays:
    """The arrays of a checkpoint, each compared with its checksum in the header."""

    def __init__(self, file: ArrayFile, checksums: Mapping[str, int]) -> None:
        self.file, self.checksums = file, checksums

    def __getitem__(self, name: str) -> np.ndarray:
        array = self.file[name]
        if self.checksums.get(name) != _checksum(array):
            raise ValueError(f"{name} does not have its checksum")
        return array


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data)


Packed = Mapping[str, np.ndarray] | _CheckedArrays


def _has_empty_rows(node: Any) -> bool:
    return isinstance(node, Solutions | ReplayBuffer)


def _filled(node: Any) -> np.ndarray:
    """A mask of the filled rows of a node; its arrays begin with this shape, replications first."""
    if isinstance(node, ReplayBuffer):
        return np.arange(node.rows.shape[-2]) < np.asarray(node.size)[..., None]
    return np.asarray(node.fitness) > -np.inf


def _as_rows(array: np.ndarray, filled: np.ndarray) -> np.ndarray | None:
    """An array as rows, one for each entry of `filled`; None if it has another shape."""
    if array.shape[: filled.ndim] != filled.shape:
        return None
    return array.reshape(filled.size, *array.shape[filled.ndim :])


def pack(state: Any) -> dict[str, np.ndarray]:
    """The state's arrays by path."""
    packed: dict[str, np.ndarray] = {}
    for path, node in jax.tree_util.tree_flatten_with_path(state, is_leaf=_has_empty_rows)[0]:
        name = jax.tree_util.keystr(path)
        if not _has_empty_rows(node):
            packed[name] = np.asarray(node)
            continue
        filled = _filled(node)
        places = np.flatnonzero(filled)
        first = len(places) == 0 or places[-1] == len(places) - 1  # a slice is a view: nothing is copied
        packed[f"{name}#rows"] = places
        for index, leaf in enumerate(jax.tree.leaves(node)):
            array = np.asarray(leaf)
            rows = _as_rows(array, filled)
            stored = array if rows is None else rows[: len(places)] if first else rows[places]
            packed[f"{name}#{index}"] = stored
    return packed


def share_empty_rows(empty: Any) -> Any:
    """An initial state that takes little memory: one row stands for all rows of archives and buffers."""

    def share_rows(node: Any) -> Any:
        if not _has_empty_rows(node):
            return np.array(node)
        filled = _filled(node)

        def one_row(leaf: Any) -> np.ndarray:
            if leaf.shape[: filled.ndim] != filled.shape:
                return np.array(leaf)
            return np.broadcast_to(np.array(leaf[(0,) * filled.ndim]), leaf.shape)

        return jax.tree.map(one_row, node)

    return jax.tree.map(share_rows, empty, is_leaf=_has_empty_rows)


def unpack(empty: Any, packed: Packed) -> Any:
    """Restores a state, as arrays of the host. `empty`, an initial state, has the shapes and the rows that
    are not stored."""
    nodes, structure = jax.tree_util.tree_flatten_with_path(empty, is_leaf=_has_empty_rows)
    restored = []
    for path, node in nodes:
        name = jax.tree_util.keystr(path)
        if not _has_empty_rows(node):
            restored.append(_read_matching(packed, name, node))
            continue
        arrays, filled = [], _filled(node)
        places = _places(packed[f"{name}#rows"], name, filled.size)
        for index, leaf in enumerate(jax.tree.leaves(node)):
            whole = _as_rows(np.array(leaf), filled)
            if whole is None:
                arrays.append(_read_matching(packed, f"{name}#{index}", leaf))
                continue
            stored = packed[f"{name}#{index}"]
            if stored.dtype != whole.dtype or stored.shape != (len(places), *whole.shape[1:]):
                raise ValueError(
                    f"{name} holds {stored.dtype}{stored.shape}, not {len(places)} rows of {whole.shape[1:]}"
                )
            whole[places] = stored
            del stored  # a buffer is large: keep few copies
            arrays.append(whole.reshape(leaf.shape))
        restored.append(jax.tree.unflatten(jax.tree.structure(node), arrays))
    return jax.tree.unflatten(structure, restored)


def _places(places: np.ndarray, name: str, size: int) -> np.ndarray:
    if places.dtype.kind != "i" or places.ndim != 1 or (np.diff(places, prepend=-1) < 1).any():
        raise ValueError(f"{name} has row numbers that do not increase")
    if len(places) and places[-1] >= size:
        raise ValueError(f"{name} has row {places[-1]}; it must be below {size}")
    return places


def _read_matching(packed: Packed, name: str, like: np.ndarray) -> np.ndarray:
    stored = packed[name]
    if stored.shape != like.shape or stored.dtype != like.dtype:
        raise ValueError(f"{name} is {stored.dtype}{stored.shape}, not {like.dtype}{like.shape}")
    return stored


class _UnusableError(ValueError):
    """A checkpoint of another version, or of the end of a smaller budget."""


class RunIdentity:
    """The identity of the runs of a checkpoint: their settings, which differ only in the seed."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        first: dict[str, Any] = json.loads(json.dumps(records[0].settings()))
        self.seeds = [record.seed for record in records]
        self.record = {name: value for name, value in first.items() if name != "seed"}
        self.digest = hashlib.sha256(
            json.dumps([self.record, self.seeds], sort_keys=True).encode()
        ).hexdigest()

    def make_header(self, **progress: Any) -> CheckpointHeader:
        """The header of a checkpoint of these runs; `progress` are its other fields."""
        return CheckpointHeader(
            format=VERSION, record=self.record, seeds=self.seeds, digest=self.digest, **progress
        )

    def refuse_other_settings(self, path: Path, header: CheckpointHeader) -> None:
        """Raises an error that names the settings that have changed since the checkpoint was written.

        The budget may be larger now, if the checkpoint was written before the end of the earlier budget.
        """
        if header.digest == self.digest:
            return
        was, now = header.record, self.record
        if was["evaluations"] < now["evaluations"]:
            if not is_before_end(header):
                raise _UnusableError(
                    f"it was written at the end of a run of {was['evaluations']:,} evaluations, "
                    "so a larger budget cannot continue from it"
                )
            was = {**was, "evaluations": now["evaluations"]}
        for name in ("algorithm", "task"):
            if was.get(name) != now[name]:
                raise ElitesError(
                    f"{path} is a checkpoint of {was.get('algorithm')} on {was.get('task')}; this is "
                    f"{now['algorithm']} on {now['task']}"
                )
        changes = [*_changes(was, now), *_changes({"seed": header.seeds}, {"seed": self.seeds})]
        if changes:
            raise ElitesError(
                f"{path} was written with other settings: {', '.join(changes)}; "
                "use the earlier settings to continue the run"
            )


def is_before_end(header: CheckpointHeader) -> bool:
    """Whether a checkpoint was written before the last generation of its run, which the budget may cut."""
    return bool(header.evaluations < header.record["evaluations"])


def _changes(was: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The differences, field by field. A field that only one record has was added in another version."""
    for name in was.keys() & now.keys() if not prefix else was.keys() | now.keys():
        before, after = was.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changes(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name} was {_short(before)}, is {_short(after)}"


def _short(value: Any) -> str:
    return make_one_line(json.dumps(value[0] if isinstance(value, list) and len(value) == 1 else value))


class Checkpoints:
    """The checkpoints of one run, or of a group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, state: Any, header: CheckpointHeader) -> None:
        """Writes a checkpoint, with its arrays' checksums, and removes all but the last two."""
        self.folder.mkdir(exist_ok=True)
        arrays = pack(state)
        header = msgspec.structs.replace(
            header, checksums={name: _checksum(array) for name, array in arrays.items()}
        )
        arrays["header"] = np.array(json.dumps(msgspec.to_builtins(header)))

        def write(file: IO[bytes]) -> None:
            np.savez(file, **arrays)  # type: ignore[arg-type]

        write_atomically(self.folder / f"{header.generation:09d}.npz", write)
        for old in self.paths()[KEPT:]:
            old.unlink()

    def paths(self) -> list[Path]:
        """The files of the checkpoints, the newest first."""
        return sorted(self.folder.glob("[0-9]*.npz"), reverse=True)

    def load(self, empty: Any, identity: RunIdentity) -> tuple[Any, CheckpointHeader, list[str]]:
        """The newest readable checkpoint, its header, and messages about newer ones that cannot be read.

        A checkpoint of other settings is an error.
        """
        wrong: list[str] = []
        for path in self.paths():
            try:
                with ArrayFile(path) as file:
                    header = _read_header(file)
                    identity.refuse_other_settings(path, header)
                    state = unpack(empty, _CheckedArrays(file, header.checksums))  # array by array
            except ElitesError:
                raise
            except Exception as error:  # damage takes many forms
                what = "cannot be used" if isinstance(error, _UnusableError) else "is damaged"
                wrong.append(f"checkpoint {path} {what}: {make_one_line(error)}")
                continue
            for damaged in self.paths()[: len(wrong)]:  # renamed, so that new ones can be written
                damaged.rename(damaged.with_suffix(DAMAGED))
            return state, header, wrong
        raise ElitesError(f"{wrong[0]}; no other checkpoint can be read, and nothing was changed")

    def find_extensible(self) -> Path | None:
        """The newest checkpoint from before the end of its run: any larger budget can continue from it."""
        for path in self.paths():
            with contextlib.suppress(Exception), ArrayFile(path) as file:  # damage takes many forms
                if is_before_end(_read_header(file)):
                    return path
        return None

    def size(self) -> int:
        """Bytes on the disk."""
        return sum(path.stat().st_size for path in self.paths())

    def clear(self, keep: Path | None = None) -> None:
        """Removes all, or all but one. Files that are not checkpoints stay."""
        if self.folder.is_dir():
            remove_partials(self.folder)
            for path in (*self.paths(), *self.folder.glob(f"[0-9]*{DAMAGED}")):
                if path != keep and not path.is_dir():
                    path.unlink()
            with contextlib.suppress(OSError):
                self.folder.rmdir()


def _read_header(file: ArrayFile) -> CheckpointHeader:
    text = file["header"]
    HEADER.check("header", text.dtype, text.shape, {})
    HEADER.check_values("header", text)
    header = parse(str(text))
    version = header.get("format") if isinstance(header, dict) else None
    single = isinstance(header, dict) and version == 5 and len(header.get("seeds", ())) == 1
    if isinstance(version, int) and version != VERSION and not single:
        raise _UnusableError(f"it has format {version}; this version reads format {VERSION}")
    return convert(header, CheckpointHeader)

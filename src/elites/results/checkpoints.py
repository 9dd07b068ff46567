"""Checkpoints: the whole state of a run in one file, written atomically, the last two kept.

The file is a plain npz: the state's arrays by their path in it, and a header in JSON. Of archives and replay
buffers only the filled rows are stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.archives.archive import Solutions
from elites.errors import ElitesError
from elites.files import write_atomically
from elites.learning.replay_buffer import ReplayBuffer

VERSION = 2
KEPT = 2


def _partly_filled(node: Any) -> bool:
    return isinstance(node, Solutions | ReplayBuffer)


def _filled(node: Any) -> np.ndarray:
    """Where a partly filled node holds something; its arrays begin with this shape, replications first."""
    if isinstance(node, ReplayBuffer):
        return np.arange(node.rows.shape[-2]) < np.asarray(node.size)[..., None]
    return np.asarray(node.fitness) > -np.inf


def _as_rows(array: np.ndarray, filled: np.ndarray) -> np.ndarray | None:
    """An array as rows, one for each place that may be filled; None if it is something else."""
    if array.shape[: filled.ndim] != filled.shape:
        return None
    return array.reshape(filled.size, *array.shape[filled.ndim :])


def pack(state: Any) -> dict[str, np.ndarray]:
    """The state's arrays by path."""
    packed: dict[str, np.ndarray] = {}
    for path, node in jax.tree_util.tree_flatten_with_path(state, is_leaf=_partly_filled)[0]:
        name = jax.tree_util.keystr(path)
        if not _partly_filled(node):
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


def outline(empty: Any) -> Any:
    """A state at its beginning without the memory: of what is partly filled, one row that stands for all."""

    def outlined(node: Any) -> Any:
        if not _partly_filled(node):
            return np.array(node)
        filled = _filled(node)

        def one_row(leaf: Any) -> np.ndarray:
            if leaf.shape[: filled.ndim] != filled.shape:
                return np.array(leaf)
            return np.broadcast_to(np.array(leaf[(0,) * filled.ndim]), leaf.shape)

        return jax.tree.map(one_row, node)

    return jax.tree.map(outlined, empty, is_leaf=_partly_filled)


def unpack(empty: Any, packed: Mapping[str, np.ndarray]) -> Any:
    """The state again. `empty`, a state at its beginning, gives the shapes and the rows not stored."""
    nodes, structure = jax.tree_util.tree_flatten_with_path(empty, is_leaf=_partly_filled)
    restored = []
    for path, node in nodes:
        name = jax.tree_util.keystr(path)
        if not _partly_filled(node):
            restored.append(_fitting(packed, name, node))
            continue
        arrays, filled, places = [], _filled(node), packed[f"{name}#rows"]
        for index, leaf in enumerate(jax.tree.leaves(node)):
            whole = _as_rows(np.array(leaf), filled)
            if whole is None:
                arrays.append(_fitting(packed, f"{name}#{index}", leaf))
                continue
            stored = packed[f"{name}#{index}"]
            if stored.dtype != whole.dtype or stored.shape[1:] != whole.shape[1:]:
                raise ValueError(f"{name} holds {stored.dtype}{stored.shape}, not rows of {whole.shape[1:]}")
            whole[places] = stored
            del stored  # a buffer is large: no more copies than need be
            arrays.append(jnp.array(whole.reshape(leaf.shape)))
            del whole
        restored.append(jax.tree.unflatten(jax.tree.structure(node), arrays))
    return jax.tree.unflatten(structure, restored)


def _fitting(packed: Mapping[str, np.ndarray], name: str, like: jax.Array) -> jax.Array:
    stored = packed[name]
    if stored.shape != like.shape or stored.dtype != like.dtype:
        raise ValueError(f"{name} is {stored.dtype}{stored.shape}, not {like.dtype}{like.shape}")
    return jnp.array(stored)


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, state: Any, header: dict[str, Any]) -> None:
        """Writes a checkpoint and forgets all but the last two."""
        self.folder.mkdir(exist_ok=True)
        arrays = pack(state)
        arrays["header"] = np.array(json.dumps({"format": VERSION, **header}))

        def write(file: IO[bytes]) -> None:
            np.savez(file, **arrays)  # type: ignore[arg-type]

        write_atomically(self.folder / f"{header['generation']:09d}.npz", write)
        for old in self.paths()[KEPT:]:
            old.unlink()

    def paths(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob("[0-9]*.npz"), reverse=True)

    def load(self, empty: Any) -> tuple[Any, dict[str, Any], list[str]]:
        """The newest checkpoint that can be read, its header, and what was wrong with newer ones."""
        wrong: list[str] = []
        for path in self.paths():
            try:
                with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                    header = json.loads(str(file["header"]))
                    if header["format"] != VERSION:
                        raise ValueError(f"format {header['format']}, this version reads {VERSION}")
                    state = unpack(empty, file)  # array by array
            except Exception as error:  # damage takes many forms
                wrong.append(f"checkpoint {path} is damaged: {error}")
                continue
            for damaged in self.paths()[: len(wrong)]:  # out of the way of those to come
                damaged.rename(damaged.with_suffix(".damaged"))
            return state, header, wrong
        raise ElitesError(f"{wrong[0]}; no other checkpoint can be read, and nothing was changed")

    def clear(self) -> None:
        """A finished run needs none."""
        if self.folder.exists():
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()

"""Checkpoints: the whole state of a run in one file, written atomically, the last two kept.

The file is a plain npz: the state's arrays by their path in it, and a header in JSON. Of archives and replay
buffers only the filled rows are stored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.archives.archive import Solutions
from elites.errors import ElitesError
from elites.files import write_atomically
from elites.learning.replay_buffer import ReplayBuffer

VERSION = 1
KEPT = 2


def _partly_filled(node: Any) -> bool:
    return isinstance(node, Solutions | ReplayBuffer)


def _as_rows(node: Any) -> tuple[Any, list[np.ndarray]]:
    """Which rows of a partly filled node hold something, and its arrays as rows; numbers stay as they are."""
    arrays = [np.asarray(array) for array in jax.tree.leaves(node)]
    if isinstance(node, ReplayBuffer):
        return slice(int(node.size)), arrays
    fitness = np.asarray(node.fitness)  # [cells] or, in a deep grid, [cells, depth]
    rows = np.flatnonzero(fitness > -np.inf)
    flat = [array.reshape(fitness.size, *array.shape[fitness.ndim :]) for array in arrays]
    return slice(None) if len(rows) == fitness.size else rows, flat  # a slice is a view: nothing is copied


def pack(state: Any) -> dict[str, np.ndarray]:
    """The state's arrays by path."""
    packed: dict[str, np.ndarray] = {}
    for path, node in jax.tree_util.tree_flatten_with_path(state, is_leaf=_partly_filled)[0]:
        name = jax.tree_util.keystr(path)
        if not _partly_filled(node):
            packed[name] = np.asarray(node)
            continue
        rows, arrays = _as_rows(node)
        if not isinstance(node, ReplayBuffer):
            packed[f"{name}#rows"] = np.arange(len(arrays[0]))[rows]
        for index, array in enumerate(arrays):
            packed[f"{name}#{index}"] = array[rows] if array.ndim else array
    return packed


def unpack(empty: Any, packed: dict[str, np.ndarray]) -> Any:
    """The state again. `empty`, a state at its beginning, gives the shapes and the rows not stored."""
    nodes, structure = jax.tree_util.tree_flatten_with_path(empty, is_leaf=_partly_filled)
    restored = []
    for path, node in nodes:
        name = jax.tree_util.keystr(path)
        if not _partly_filled(node):
            restored.append(_fitting(packed, name, node))
            continue
        leaves, arrays = jax.tree.leaves(node), []
        for index, (leaf, array) in enumerate(zip(leaves, _as_rows(node)[1], strict=True)):
            stored = packed[f"{name}#{index}"]
            if not leaf.ndim:
                arrays.append(_fitting(packed, f"{name}#{index}", leaf))
                continue
            whole = np.array(array)
            if stored.dtype != whole.dtype or stored.shape[1:] != whole.shape[1:]:
                raise ValueError(f"{name} holds {stored.dtype}{stored.shape}, not rows of {whole.shape[1:]}")
            whole[packed.get(f"{name}#rows", slice(len(stored)))] = stored
            packed[f"{name}#{index}"] = stored = np.empty(0)  # a buffer is large: no more copies than need be
            arrays.append(jnp.array(whole.reshape(leaf.shape)))
        restored.append(jax.tree.unflatten(jax.tree.structure(node), arrays))
    return jax.tree.unflatten(structure, restored)


def _fitting(packed: dict[str, np.ndarray], name: str, like: jax.Array) -> jax.Array:
    stored = packed[name]
    if stored.shape != like.shape or stored.dtype != like.dtype:
        raise ValueError(f"{name} is {stored.dtype}{stored.shape}, not {like.dtype}{like.shape}")
    return jnp.array(stored)


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"

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

    def load(self, empty: Any) -> tuple[Any, dict[str, Any], list[str]] | None:
        """The newest checkpoint that can be read, its header, and what was wrong with newer ones.

        None if there is none at all; an error if there are some and none can be read.
        """
        wrong: list[str] = []
        for path in self.paths():
            try:
                with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                    packed = {name: file[name] for name in file.files}
                header = json.loads(str(packed["header"]))
                if header["format"] != VERSION:
                    raise ValueError(f"format {header['format']}, this version reads {VERSION}")
                state = unpack(empty, packed)
            except Exception as error:  # damage takes many forms
                wrong.append(f"checkpoint {path} is damaged: {error}")
                continue
            for damaged in self.paths()[: len(wrong)]:  # out of the way of those to come
                damaged.rename(damaged.with_suffix(".damaged"))
            return state, header, wrong
        if wrong:
            raise ElitesError(f"{wrong[0]}; no other checkpoint can be read, and nothing was changed")
        return None

    def clear(self) -> None:
        """A finished run needs none."""
        if self.folder.exists():
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()

"""Checkpoints: the whole state of a run in one file, written atomically, the last two kept.

The file is a plain npz: the state's arrays by their path in it, and a header in JSON. Of archives and replay
buffers only the filled rows are stored.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.archives.archive import Archive
from elites.errors import ElitesError
from elites.files import write_atomically
from elites.learning.replay_buffer import ReplayBuffer

VERSION = 1
KEPT = 2


def _partly_filled(node: Any) -> bool:
    return isinstance(node, Archive | ReplayBuffer)


def _rows(node: Any, arrays: list[np.ndarray]) -> np.ndarray | None:
    """Which rows of a partly filled node hold something, given its arrays in order."""
    if isinstance(node, Archive):
        fitness = jax.tree.unflatten(jax.tree.structure(node), arrays).elites.fitness
        return np.flatnonzero(fitness > -np.inf)
    if isinstance(node, ReplayBuffer):
        return np.arange(int(jax.tree.unflatten(jax.tree.structure(node), arrays).size))
    return None


def pack(state: Any) -> dict[str, np.ndarray]:
    """The state's arrays by path."""
    packed: dict[str, np.ndarray] = {}
    for path, node in jax.tree_util.tree_flatten_with_path(state, is_leaf=_partly_filled)[0]:
        name = jax.tree_util.keystr(path)
        arrays = [np.asarray(array) for array in jax.tree.leaves(node)]
        rows = _rows(node, arrays)
        if rows is None:
            packed[name] = arrays[0]
            continue
        if isinstance(node, Archive):
            packed[f"{name}#rows"] = rows
        for index, array in enumerate(arrays):
            cut = array.ndim > 0
            # A buffer's rows are its first ones: a view, where an archive's are copied out.
            packed[f"{name}#{index}"] = (
                (array[: len(rows)] if isinstance(node, ReplayBuffer) else array[rows]) if cut else array
            )
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
        arrays = []
        rows = packed.get(f"{name}#rows")
        for index, array in enumerate(jax.tree.leaves(node)):
            key = f"{name}#{index}"
            if array.ndim == 0:
                arrays.append(_fitting(packed, key, array))
                continue
            whole = np.array(array)
            stored = packed[key]
            whole[rows if rows is not None else slice(len(stored))] = stored
            arrays.append(jnp.array(whole))
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
                return unpack(empty, packed), header, wrong
            except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
                wrong.append(f"checkpoint {path} is damaged: {error}")
        if wrong:
            raise ElitesError(f"{wrong[0]}; no other checkpoint can be read, and nothing was changed")
        return None

    def clear(self) -> None:
        """A finished run needs none."""
        for path in self.paths():
            path.unlink()
        if self.folder.exists():
            for partial in self.folder.glob(".*.partial"):
                partial.unlink()
            self.folder.rmdir()

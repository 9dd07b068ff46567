"""Atomic writes: neither a reader nor a crash leaves half a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from elites.errors import ElitesError

PARTIAL = ".partial"  # suffix of a file that is being written


def is_partial(path: Path) -> bool:
    """Whether a path is a file that is being written, or that a killed process left incomplete."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def remove_partials(folder: Path) -> None:
    """Removes incomplete files of killed processes."""
    for path in folder.rglob(f".*{PARTIAL}"):
        path.unlink()


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Writes a file so that `path` always has either its old or its complete new content, also on disk."""
    partial = path.with_name(f".{path.name}-{os.getpid()}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an npz file atomically. The same arrays give the same bytes."""
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def read_arrays(path: Path, names: Iterable[str], what: str) -> dict[str, np.ndarray]:
    """Arrays of an npz file. `what` describes the file in error messages."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except Exception as error:  # damage takes many forms
        raise ElitesError(f"{path} is not {what}, or is damaged: {error}") from None


def sync_folder(folder: Path) -> None:
    """Writes renames in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def error_in_one_line(doing: str) -> Iterator[None]:
    """Turns an error of the file system into an ElitesError. `doing` says what failed."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ElitesError(f"{doing}: {error.strerror or error}{where}") from error

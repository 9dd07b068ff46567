"""Files: atomic writes, and arrays that are read only after their declared sizes were checked.

Readers never see half a file, and a crash never leaves one.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

import numpy as np

from elites.errors import ElitesError

PARTIAL = ".partial"  # suffix of a file that is being written
MAX_DECLARED_BYTES = 4 * 2**30  # bytes that a compressed file may declare
ALWAYS_ALLOWED = 64 * 2**20  # bytes that it may declare however small it is
MAX_COMPRESSION_RATIO = 100  # of further declared bytes to the bytes of the file
COPY_CHUNK_BYTES = 2**20  # bytes of a file at a time
MAX_EMPTY_LENGTH = 10**6  # length of an array without elements
MAX_ERROR_LENGTH = 300  # characters of an error of a library
MAX_FLOAT32 = float(np.finfo(np.float32).max)


def partial_path(path: Path, process: int | None = None) -> Path:
    """The path under which a file or folder is written before it is renamed to `path`.

    With `process`, several processes may write at the same time; the last one to finish wins.
    """
    writer = "" if process is None else f"-{process}"
    return path.with_name(f".{path.name}{writer}{PARTIAL}")


def is_partial(path: Path) -> bool:
    """Whether a path is a file that is being written, or that a killed process left incomplete."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def remove_partials(folder: Path, *, below: bool = True) -> None:
    """Removes incomplete files of killed processes, in folders below this one too."""
    for path in folder.rglob(f".*{PARTIAL}") if below else folder.glob(f".*{PARTIAL}"):
        if not path.is_dir():
            path.unlink(missing_ok=True)


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Writes a file so that `path` always has either its old or its complete new content, also on disk."""
    partial = partial_path(path, os.getpid())
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


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], *, compressed: bool = False) -> None:
    """Writes an npz file atomically. The same arrays give the same bytes."""
    save = np.savez_compressed if compressed else np.savez
    write_atomically(path, lambda file: save(file, **arrays))  # type: ignore[arg-type]


def copy_file(source: Path, target: Path) -> None:
    """Copies the content of a file, atomically."""
    with open_file(source) as file:
        write_atomically(target, lambda copy: shutil.copyfileobj(file, copy, COPY_CHUNK_BYTES))


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raises an error if `needed` bytes do not fit on the disk of a folder, which may not exist yet."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise ElitesError(
            f"{what} {format_bytes(needed)}, but only {format_bytes(free)} are free on the disk of {folder}; "
            "free some space, or choose another folder"
        )


def format_bytes(count: int) -> str:
    """A number of bytes as text, with a unit."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def open_file(path: Path) -> IO[bytes]:
    """Opens a file to read. Anything else with that name is an error: opening a pipe would block."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a file" if not path.is_dir() else "it is a folder, not a file")
    return path.open("rb")


@dataclass(frozen=True)
class ArraySpec:
    """The required type, shape and values of an array in a file.

    `kinds` are those of its dtype: b, i, f or U. `shape` names its lengths: equal names are equal lengths in
    all arrays of a file, numbers are exact, and "*" at the end stands for any further ones.
    """

    kinds: str
    shape: tuple[str | int, ...] = ()
    allowed: Literal["finite", "missing", "any"] = "finite"
    """Numbers in the range of float32, those and NaN or infinity for what is missing, or any."""

    def check(self, name: str, dtype: np.dtype, shape: tuple[int, ...], lengths: dict[str, int]) -> None:
        """Raises ValueError if the type or shape of an array is not allowed.

        `lengths` holds the lengths of earlier arrays.
        """
        if dtype.kind.replace("u", "i") not in self.kinds or (dtype.kind == "f" and dtype.itemsize > 8):
            raise ValueError(
                f"{name} is {dtype}; it must be {' or '.join(KINDS[kind] for kind in self.kinds)}"
            )
        exact = [length for length in self.shape if length != "*"]
        fits = len(shape) == len(exact) or (exact != list(self.shape) and len(shape) > len(exact))
        expected = [lengths.get(length, length) if isinstance(length, str) else length for length in exact]
        if not fits or any(
            isinstance(length, int) and length != given
            for length, given in zip(expected, shape, strict=False)
        ):
            raise ValueError(f"{name} has shape {list(shape)}; it must be {_shape(expected)}")
        lengths.update(
            (length, given) for length, given in zip(exact, shape, strict=False) if isinstance(length, str)
        )

    def check_values(self, name: str, array: np.ndarray) -> None:
        """Raises ValueError for numbers that are not finite, or text that is not Unicode."""
        if array.dtype.kind == "f" and self.allowed != "any":
            numbers = array if self.allowed == "finite" else array[np.isfinite(array)]
            if not (np.abs(numbers) <= MAX_FLOAT32).all():
                raise ValueError(f"{name} holds a number that is not finite, or too large")
        if array.dtype.kind == "U":
            codes = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
            if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
                raise ValueError(f"{name} holds text that is not Unicode")


KINDS = {"b": "bool", "i": "whole numbers", "f": "floating-point numbers", "U": "text"}


def _shape(lengths: list[str | int]) -> str:
    return f"[{', '.join(map(str, lengths))}]"


class ArrayFile:
    """The arrays of an npz file, read one by one.

    The sizes that arrays declare are compared with the file before anything is allocated. ValueError says
    what is wrong. Only plain arrays are read.
    """

    def __init__(self, path: Path) -> None:
        self._raw = open_file(path)
        try:
            self._zip = zipfile.ZipFile(self._raw)
            self._check_sizes(os.fstat(self._raw.fileno()).st_size)
        except BaseException:
            self._raw.close()
            raise

    def _check_sizes(self, size: int) -> None:
        compressed = 0
        for entry in self._zip.infolist():
            if entry.compress_type == zipfile.ZIP_DEFLATED:
                compressed += entry.file_size
            elif entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise ValueError(f"{entry.filename} is compressed in a way that arrays are not")
            elif entry.file_size > size:
                raise ValueError(
                    f"{entry.filename} declares {entry.file_size:,} bytes; the file has {size:,}"
                )
        if compressed > min(MAX_DECLARED_BYTES, max(ALWAYS_ALLOWED, MAX_COMPRESSION_RATIO * size)):
            raise ValueError(f"it declares {compressed:,} bytes; the file has {size:,}")

    def declared(self, name: str) -> tuple[np.dtype, tuple[int, ...]]:
        """The type and shape of an array, from its header."""
        entry = self._entry(name)
        with self._zip.open(entry) as stream:
            try:
                version = np.lib.format.read_magic(stream)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    shape, _, dtype = read[version](stream)
            except Exception:  # its text may advise to trust the file
                raise ValueError(f"{name} has no header of an array") from None
            begin = stream.tell()
        if dtype.hasobject or dtype.kind not in "biufU":
            raise ValueError(f"{name} holds {dtype}; only numbers and text are read")
        elements = math.prod(shape)
        if min(shape, default=0) < 0 or begin + elements * dtype.itemsize != entry.file_size:
            raise ValueError(
                f"{name} declares {elements * dtype.itemsize:,} bytes; it has {entry.file_size - begin:,}"
            )
        if elements * dtype.itemsize == 0 and max((elements, *shape)) > MAX_EMPTY_LENGTH:
            raise ValueError(f"{name} declares shape {list(shape)} without any data")
        return dtype, shape

    def __getitem__(self, name: str) -> np.ndarray:
        dtype, _ = self.declared(name)
        with self._zip.open(self._entry(name)) as stream:
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        return array.astype(dtype.newbyteorder("="), copy=False)

    def _entry(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._zip.getinfo(f"{name}.npy")
        except KeyError:
            raise ValueError(f"it has no {name}") from None

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()
        self._raw.close()


def read_arrays(path: Path, arrays: Mapping[str, ArraySpec], what: str) -> dict[str, np.ndarray]:
    """Arrays of an npz file, checked. `what` describes the file in error messages."""
    try:
        with ArrayFile(path) as file:
            lengths: dict[str, int] = {}
            for name, array in arrays.items():
                array.check(name, *file.declared(name), lengths)
            loaded = {name: file[name] for name in arrays}
        for name, array in arrays.items():
            array.check_values(name, loaded[name])
        return loaded
    except FileNotFoundError:
        raise ElitesError(f"{path} does not exist") from None
    except Exception as error:  # damage takes many forms
        raise ElitesError(f"{path} is not {what}, or is damaged: {make_one_line(error)}") from None


def make_one_line(error: object) -> str:
    """The text of an error in one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}…"


def sync_folder(folder: Path) -> None:
    """Writes renames in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def convert_os_errors(doing: str) -> Iterator[None]:
    """Turns an error of the file system into an ElitesError. `doing` says what failed."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ElitesError(f"{doing}: {error.strerror or error}{where}") from error

"""Numba functions whose machine code is kept between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba

from elites.cache import make_cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])


class Compiler:
    """A decorator that compiles for threads, with NumPy's division, and caches the machine code.

    `sources` are all files with code of the compiled functions and of those that they call. The cache has a
    folder per content of these files: Numba itself checks only the file of the function, and would miss a
    change in another one.
    """

    def __init__(self, *sources: str | None) -> None:
        self.folder = None if numba.config.DISABLE_JIT else _folder(sources)

    def __call__(self, function: Function, **options: Any) -> Function:
        with _numba_cache_in(self.folder):
            compiled: Function = numba.njit(
                nogil=True, cache=self.folder is not None, error_model="numpy", **options
            )(function)
        return compiled


def _folder(sources: tuple[str | None, ...]) -> str | None:
    files = [__file__, *(source for source in sources if source is not None)]
    content = b"".join(Path(file).read_bytes() for file in files)
    modes = f"{numba.__version__} boundscheck={numba.config.BOUNDSCHECK}"
    folder = make_cache_folder(f"numba-{hashlib.sha256(content + modes.encode()).hexdigest()[:16]}")
    return None if folder is None else str(folder)


@contextmanager
def _numba_cache_in(folder: str | None) -> Iterator[None]:
    """Numba reads this setting when a function is decorated; functions of other packages keep theirs."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder or ""
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before

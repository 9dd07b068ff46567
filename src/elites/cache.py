"""Caches of compiled code and centroids on disk, of results in a process; fewer garbage collections."""

import functools
import gc
import hashlib
import importlib.util
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

_STARTED = time.time_ns()
P = ParamSpec("P")
R = TypeVar("R")


def find_cache_root() -> Path:
    """`$ELITES_CACHE`, or `elites` in the user's cache folder; RuntimeError if the user has no home."""
    chosen = os.environ.get("ELITES_CACHE")
    return Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "elites").expanduser()


def make_cache_folder(name: str) -> Path | None:
    """A writable folder for `name` in the cache.

    None, with a warning, if it is not writable: the caller then works without a cache.
    """
    try:
        folder = find_cache_root() / name
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:
        warnings.warn(
            f"nothing is cached for the next start: {error}; set ELITES_CACHE to a writable folder",
            stacklevel=2,
        )
        return None
    return folder


def keep_compiled_programs() -> None:
    """Enables JAX's compilation cache, in the package's cache folder by default."""
    import jax

    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    folder = make_cache_folder("jax")
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@functools.cache
def fingerprint_files(*packages: str) -> str | None:
    """A string that changes with any file of these packages: their names, sizes and times.

    None if a file has changed since this process began, because it may have imported an earlier version.
    """
    digest = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path, _, names in sorted(os.walk(folder)):
                for name in sorted(names):
                    if not name.endswith(".pyc"):
                        file = os.stat(os.path.join(path, name))
                        if file.st_mtime_ns >= _STARTED:
                            return None
                        digest.update(f"{path}/{name} {file.st_size} {file.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def keep_in_process(max_results: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: keeps the last `max_results` results, unless the arguments cannot be hashed."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = functools.lru_cache(maxsize=max_results)(function)

        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            try:
                hash((arguments, tuple(named.items())))
            except TypeError:
                return function(*arguments, **named)
            return cached(*arguments, **named)  # type: ignore[arg-type]

        return call

    return decorate


def collect_garbage_rarely() -> None:
    """Makes Python collect garbage less often. Call it only in the command and in worker processes.

    JAX's tracing makes many objects that stay, and little garbage. With Python's defaults, a quarter of the
    time of tracing is spent on collecting garbage.
    """
    gc.set_threshold(200_000, 50, 1000)

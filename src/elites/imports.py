"""Objects by their import path, `module:name`, which runs' records and worker processes use.

A function that no other process can import, such as one of a notebook's cell, is pickled. Its path begins
with `in-memory:`. Only this process and those that receive the pickle have it; it is not saved in a file.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from elites.errors import ElitesError, describe_error

IN_MEMORY = "in-memory:"  # no module has such a name
_pickles: dict[str, bytes] = {}  # of functions in memory, by their paths


def find_import_path(function: Callable[..., Any]) -> str | None:
    """The import path of a function; None if no other process can import it."""
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    is_bound_method = inspect.ismethod(function) and not inspect.isclass(function.__self__)
    if name is None or is_bound_method or "<" in name:  # a lambda, or inside another function
        return None
    if module == "__main__":
        module = _script()
    return f"{module}:{name}" if module else None


def make_function_path(function: Callable[..., Any]) -> str:
    """The import path of a function; if it has none, the function is pickled and gets a path in memory."""
    if (path := find_import_path(function)) is not None:
        return path
    pickle = _pickle(function)
    path = f"{IN_MEMORY}{_name(function)}-{hashlib.sha256(pickle).hexdigest()[:8]}"
    _pickles[path] = pickle
    return path


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")


def _pickle(function: Callable[..., Any]) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(function)  # type: ignore[no-any-return]
    except Exception as error:
        raise ElitesError(
            f"{_name(function)} cannot be sent to other processes: {describe_error(error)}; "
            "define it in a module"
        ) from error


def is_in_memory(path: str) -> bool:
    """Whether a path is that of a function without an import path."""
    return path.startswith(IN_MEMORY)


def require_function(path: str, what: str) -> None:
    """Raises an error if `path` is that of a function in memory which this process does not have."""
    if is_in_memory(path) and path not in _pickles:
        raise ElitesError(
            f"{what} {path!r} was defined in a notebook, or inside a function, and no file has it; "
            "pass the task with that function again: elites.resume(folder, task=…)"
        )


def select_pickles(paths: Iterable[str | None]) -> dict[str, str]:
    """The functions in memory among these paths, for `add_pickled` in another process."""
    return {path: base64.b64encode(_pickles[path]).decode() for path in paths if path and is_in_memory(path)}


def add_pickled(functions: Mapping[str, str]) -> None:
    """Registers functions that another process has sent."""
    _pickles.update({path: base64.b64decode(text) for path, text in functions.items()})


def put_in_memory(path: str, function: Callable[..., Any]) -> None:
    """Registers a function under a path in memory."""
    _pickles[path] = _pickle(function)


def _script() -> str | None:
    """The module name of this process's script; with `python -m`, the name that was given."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if file and Path(file).suffix == ".py" else None


def search_current_folder() -> None:
    """Adds the current folder to the search path, as `python -m` does, but at its end."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def import_module(name: str, what: str) -> ModuleType:
    """A user's module; `what` names it in the error, of one line, if it cannot be imported."""
    if name == _script():
        return sys.modules["__main__"]
    search_current_folder()
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ElitesError(f"{what}: {error} (searched in sys.path and {Path.cwd()})") from error
    except ElitesError:
        raise
    except (Exception, SystemExit) as error:
        raise ElitesError(f"{what}: importing {name} failed: {describe_error(error)}") from error


def load_object(path: str, what: str, kind: str = "object") -> Any:
    """The object at `module:name`. For messages, `what` is its purpose and `kind` what it should be."""
    module_name, colon, name = path.partition(":")
    if not (colon and module_name and name):
        raise ElitesError(f"{what} is {path!r}; it must be module:{kind}")
    module = import_module(module_name, f"{what} {path!r}")
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None or (kind == "function" and not callable(value)):
        own = ((key, member) for key, member in vars(module).items() if _is_defined_in(module, key, member))
        names = [key for key, member in own if kind != "function" or inspect.isfunction(member)]
        where = getattr(module, "__file__", module_name)
        raise ElitesError(
            f"{what} {path!r}: {where} has no {kind} {name!r}; its {kind}s are {', '.join(names) or 'none'}"
        )
    return value


def _is_defined_in(module: ModuleType, name: str, member: object) -> bool:
    """Whether a public member of a module was defined there, not imported."""
    if name.startswith("_") or inspect.ismodule(member):
        return False
    imported = (
        inspect.isclass(member) or inspect.isfunction(member)
    ) and member.__module__ != module.__name__
    return not imported


def load_function(path: str, what: str) -> Callable[..., Any]:
    """The function at `module:function`, or in memory."""
    if not is_in_memory(path):
        return load_object(path, what, "function")  # type: ignore[no-any-return]
    require_function(path, what)
    try:
        return _unpickle(_pickles[path])
    except (Exception, SystemExit) as error:  # modules that it refers to are imported
        raise ElitesError(f"{what} {path!r} could not be unpickled: {describe_error(error)}") from error


@functools.cache
def _unpickle(pickle: bytes) -> Callable[..., Any]:
    import cloudpickle

    return cloudpickle.loads(pickle)  # type: ignore[no-any-return]

"""Objects by their import path, `module:name`: what a run's record and a worker process know them by."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from elites.errors import ElitesError, describe


def path_of(function: Callable[..., Any]) -> str:
    """The import path of a function; an error if another process cannot import it."""
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if name is None or module is None:
        raise ElitesError(f"{function!r} has no import path; give a function or class of a module")
    if inspect.ismethod(function) and not inspect.isclass(function.__self__):
        raise ElitesError(f"{module}:{name} is a method of an object: no other process has that object")
    if "<" in name:
        kind = "a lambda" if "<lambda>" in name else "inside another function"
        raise ElitesError(f"{module}:{name} is {kind}: no other process can import it; define it in a module")
    if module == "__main__":
        module = _script()
        if module is None:
            raise ElitesError(f"{name} is in no file: no other process can import it; define it in a module")
    return f"{module}:{name}"


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
        raise ElitesError(f"{what}: importing {name} failed: {describe(error)}") from error


def object_at(path: str, what: str, kind: str = "object") -> Any:
    """What `module:name` names; `what` is what it is for, `kind` what it should be."""
    module_name, colon, name = path.partition(":")
    if not (colon and module_name and name):
        raise ElitesError(f"{what} is {path!r}; it must be module:{kind}")
    module = import_module(module_name, f"{what} {path!r}")
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None or (kind == "function" and not callable(value)):
        public = ((key, each) for key, each in vars(module).items() if not key.startswith("_"))
        names = [key for key, each in public if kind != "function" or inspect.isfunction(each)]
        where = getattr(module, "__file__", module_name)
        raise ElitesError(
            f"{what} {path!r}: {where} has no {kind} {name!r}; its {kind}s are {', '.join(names) or 'none'}"
        )
    return value


def function_at(path: str, what: str) -> Callable[..., Any]:
    """The function at `module:function`."""
    return object_at(path, what, "function")  # type: ignore[no-any-return]

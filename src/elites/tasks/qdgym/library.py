"""Finds Bullet's library and models.

The library is loaded, never imported, so the one in the wheel for Python 3.11 serves every later Python too.
It comes from an installed pybullet, or from a folder that `elites install-bullet` has filled.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

from elites.cache import find_cache_root
from elites.errors import ElitesError
from elites.tasks.qdgym.robots import FLOOR, ROBOTS

VERSION = "3.2.7"  # C structs are read with the layout of this version
VARIABLE = "ELITES_BULLET"
LIBRARY, DATA = "pybullet.so", "pybullet_data"
MODELS = (*(f"mjcf/{robot.model}" for robot in ROBOTS), *FLOOR)


class Bullet(NamedTuple):
    """Bullet's files."""

    version: str
    library: Path
    models: Path


def require_bullet() -> Bullet:
    """Bullet's files, or an error that says how to get them."""
    bullet = find_bullet()
    if bullet is None:
        raise ElitesError(
            f"QDGym tasks need Bullet from pybullet {VERSION}, which is not installed; "
            "`elites install-bullet` fetches it"
        )
    if bullet.version != VERSION:
        raise ElitesError(
            f"QDGym tasks need pybullet {VERSION}, but {bullet.version} is installed; "
            f"install pybullet=={VERSION}"
        )
    return bullet


def find_bullet() -> Bullet | None:
    """Bullet's files in `$ELITES_BULLET`, else of the installed pybullet, else those in the cache folder."""
    if chosen := os.environ.get(VARIABLE):
        bullet = find_bullet_in(Path(chosen).expanduser())
        if bullet is None:
            raise ElitesError(
                f"{VARIABLE} is {chosen}, which holds no Bullet; "
                f"`elites install-bullet --folder {chosen}` puts it there"
            )
        return bullet
    installed = _installed()
    if installed is not None:
        return installed
    try:
        return find_bullet_in(default_folder())
    except RuntimeError:  # the user has no home, so no cache folder either
        return None


def bullet_version() -> str | None:
    """The version of pybullet that Bullet's files come from; None without them."""
    bullet = find_bullet()
    return None if bullet is None else bullet.version


def default_folder() -> Path:
    """The folder of `elites install-bullet`."""
    return find_cache_root() / "bullet" / VERSION


def find_bullet_in(folder: Path) -> Bullet | None:
    """The files in a folder that `elites install-bullet` has filled; None if one is missing."""
    library, models = folder / LIBRARY, folder / DATA
    if not library.is_file() or not all((models / model).is_file() for model in MODELS):
        return None
    for distribution in importlib.metadata.distributions(name="pybullet", path=[str(folder)]):
        return Bullet(distribution.version, library, models)
    return None


def _installed() -> Bullet | None:
    try:
        library, data = (importlib.util.find_spec(name) for name in ("pybullet", "pybullet_data"))
    except ValueError:  # hidden in sys.modules
        return None
    if library is None or library.origin is None or data is None or data.origin is None:
        return None
    return Bullet(importlib.metadata.version("pybullet"), Path(library.origin), Path(data.origin).parent)

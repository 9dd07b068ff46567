"""Versions of the packages that results depend on."""

from __future__ import annotations

import functools
import importlib.metadata


def package_version(name: str) -> str | None:
    """The installed version; None if the package is not there."""
    if name == "pybullet":  # may be installed as files only
        from elites.tasks.qdgym.library import bullet_version

        return bullet_version()
    return _metadata_version(name)


@functools.cache
def _metadata_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

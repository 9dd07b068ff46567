"""Where compiled code is kept between processes."""

import os
import tempfile
import warnings
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """A writable folder for `name`, made if need be: below `$ELITES_CACHE`, else the user's cache folder.

    None, with a warning, where nothing can be written: the caller then works without a cache.
    """
    root = os.environ.get("ELITES_CACHE")
    if root is None:
        root = str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "elites")
    try:
        folder = Path(root).expanduser() / name
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home to expand ~ to
        warnings.warn(
            f"compiled code is not kept for the next start: {error}; set ELITES_CACHE to a writable folder",
            stacklevel=2,
        )
        return None
    return folder

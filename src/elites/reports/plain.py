"""Text of users in figures, drawn exactly as it is."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import matplotlib

from elites.text import shorten


@contextlib.contextmanager
def plain_text() -> Iterator[None]:
    """In this context, matplotlib draws `$` and `_` as they are. Glyphs that its font lacks are boxes."""
    with matplotlib.rc_context({"text.parse_math": False, "text.usetex": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def legend_label(name: str) -> str:
    """A name for a legend, where matplotlib leaves out names that begin with an underscore."""
    label = shorten(name)
    return f" {label}" if label.startswith("_") else label

"""Arrays in memory that processes share. It has no name: it goes with the last process that holds it."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

ALIGNED = 64
Layout = dict[str, tuple[str, list[int], int]]
"""Of each array: its type, its shape and where it begins. Plain JSON."""


def layout_of(arrays: Mapping[str, tuple[Any, tuple[int, ...]]]) -> tuple[Layout, int]:
    """Where arrays of these types and shapes go, and how many bytes they take."""
    layout: Layout = {}
    end = 0
    for name, (kind, shape) in arrays.items():
        kind = np.dtype(kind)
        layout[name] = (kind.str, list(shape), end)
        size = kind.itemsize * int(np.prod(shape, dtype=np.int64))
        end = -(-(end + size) // ALIGNED) * ALIGNED
    return layout, max(end, ALIGNED)


def allocate(size: int) -> int:
    """A file of zeros that lives in memory; pages that nobody touches take none."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("elites", os.MFD_CLOEXEC)
    else:  # systems without: a file that is deleted already
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def arrays_in(descriptor: int, layout: Layout) -> dict[str, np.ndarray]:
    """The arrays. The descriptor may be closed then: they keep the memory."""
    memory = mmap.mmap(descriptor, 0)
    return {
        name: np.ndarray(shape, np.dtype(kind), memory, offset)
        for name, (kind, shape, offset) in layout.items()
    }

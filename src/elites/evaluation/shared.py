"""Arrays in memory that processes share.

The memory has no name and is freed when the last process that holds it ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping

import numpy as np

ALIGNMENT = 64
Layout = dict[str, tuple[str, list[int], int]]
"""(dtype, shape, offset) of each array, as plain JSON."""


def plan_layout(arrays: Mapping[str, np.ndarray]) -> tuple[Layout, int]:
    """The layout of arrays with the dtypes and shapes of these, and its size in bytes."""
    layout: Layout = {}
    end = 0
    for name, array in arrays.items():
        layout[name] = (array.dtype.str, list(array.shape), end)
        end = -(-(end + array.nbytes) // ALIGNMENT) * ALIGNMENT
    return layout, max(end, ALIGNMENT)


def allocate(size: int) -> int:
    """A file of zeros in memory; pages that are never written take no memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("elites", os.MFD_CLOEXEC)
    else:  # other systems: a file that is already deleted
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def map_arrays(descriptor: int, layout: Layout) -> dict[str, np.ndarray]:
    """The arrays in a shared file. The file descriptor may be closed afterwards: they keep the memory."""
    memory = mmap.mmap(descriptor, 0)
    return {
        name: np.ndarray(shape, np.dtype(dtype), memory, offset)
        for name, (dtype, shape, offset) in layout.items()
    }

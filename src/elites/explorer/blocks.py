"""Arrays in a page: deflated, as base64. The page decodes a block when it is first used."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

TYPES = ("f4", "u1", "u2", "u4", "i4")
MISSING = {"u1": 2**8 - 1, "u2": 2**16 - 1}  # stands for NaN in quantised arrays


class Blocks:
    """Blocks one after the other in one text."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0

    def add(self, array: np.ndarray, kind: str) -> dict[str, Any]:
        """Adds an array as one of `TYPES`, little-endian. Returns its entry in the header.

        The first bytes of all numbers come first, then the second bytes, and so on: this deflates better.
        """
        if kind not in TYPES:
            raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(TYPES)}")
        values = np.ascontiguousarray(array, f"<{kind}")
        planes = values.reshape(-1, 1).view(np.uint8).T
        return {"at": self.add_bytes(planes.tobytes()), "type": kind, "shape": list(values.shape)}

    def add_rising(self, array: np.ndarray) -> dict[str, Any]:
        """Adds increasing integers, as their differences."""
        return {**self.add(np.diff(array, prepend=0), "i4"), "rising": True}

    def add_quantised(self, array: np.ndarray) -> dict[str, Any]:
        """Adds rows of numbers as 16 bits each, from the least to the greatest number of their column."""
        values = np.asarray(array, np.float64)
        finite = np.where(np.isfinite(values), values, np.nan)
        known = np.isfinite(finite).any(0)
        low, high = np.zeros(values.shape[1]), np.ones(values.shape[1])
        if known.any():
            low[known], high[known] = np.nanmin(finite[:, known], 0), np.nanmax(finite[:, known], 0)
        codes = quantise((finite - low) / np.where(high > low, high - low, 1.0), "u2")
        return {**self.add(codes, "u2"), "low": low.tolist(), "high": high.tolist()}

    def add_bytes(self, raw: bytes) -> list[int]:
        """Adds bytes. Returns the first character of their text, and its length."""
        compress = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        text = base64.b64encode(compress.compress(raw) + compress.flush()).decode()
        at = [self._length, len(text)]
        self._texts.append(text)
        self._length += len(text)
        return at

    def text(self) -> str:
        """All blocks."""
        return "".join(self._texts)


def quantise(unit: np.ndarray, kind: str) -> np.ndarray:
    """Numbers from 0 to 1 as unsigned integers. Others are clipped to that range; NaN is the largest one."""
    codes = np.rint(np.clip(np.nan_to_num(unit), 0, 1) * (MISSING[kind] - 1))
    return np.where(np.isfinite(unit), codes, MISSING[kind]).astype(kind)

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
        """Adds an array as one of `TYPES`, little-endian. Returns its entry in the header."""
        if kind not in TYPES:
            raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(TYPES)}")
        values = np.ascontiguousarray(array, f"<{kind}")
        return {"at": self.add_bytes(values.tobytes()), "type": kind, "shape": list(values.shape)}

    def add_rising(self, array: np.ndarray) -> dict[str, Any]:
        """Adds whole numbers that rise, as their differences."""
        return {**self.add(np.diff(array, prepend=0), "i4"), "rising": True}

    def add_quantised(self, array: np.ndarray, kind: str, low: float, high: float) -> dict[str, Any]:
        """Adds numbers from `low` to `high` as unsigned whole ones; NaN is the largest of these."""
        steps = MISSING[kind] - 1
        unit = (np.asarray(array, np.float64) - low) / (high - low or 1.0)
        codes = np.where(np.isfinite(unit), np.clip(np.nan_to_num(unit), 0, 1) * steps, MISSING[kind])
        return {**self.add(np.rint(codes), kind), "low": low, "high": high}

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

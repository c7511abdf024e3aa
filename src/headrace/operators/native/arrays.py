"""Arrays that a call of a kernel reads and writes, as pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np


class Arrays:
    """Arrays that a call holds: each as a pointer, alive as long as this is."""

    def __init__(self) -> None:
        self._held: list[object] = []

    def pointer(self, array: np.ndarray | None, kind: type[np.generic]) -> int | None:
        """The address of an array of this kind, of a copy if it has another or is not contiguous."""
        if array is None:
            return None
        ready = np.ascontiguousarray(array, kind)
        self._held.append(ready)
        return ready.ctypes.data

    def structures(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> int:
        """The address of an array of structures."""
        ready = (kind * max(len(items), 1))(*items)
        self._held.append(ready)
        return ctypes.addressof(ready)

"""The interface of sketches that are strings of bytes, one per cell: made of rows, merged; the empty string is the
empty sketch. Also helpers that merging shares.

Synopses of many cells are one numpy column of objects, `b""` for a cell without rows. Merging is associative and commutative up to
the bound of the synopsis; the same batches in the same order give the same bytes.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.synopses.arrays import Ints

Blobs: TypeAlias = npt.NDArray[Any]
"""One string of bytes per cell."""


class Kind(Protocol):
    """A kind of synopsis with its accuracy. Each one has property tests."""

    @property
    def full_bytes(self) -> int:
        """The approximate number of bytes for very many different rows."""
        ...

    @property
    def kept_bytes(self) -> int:
        """About the size up to which a synopsis with a smaller error stays as it is when it is `fitted`."""
        ...

    def coarser(self, doubled: int) -> Kind:
        """The kind whose error is doubled so often."""
        ...

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Synopses of `count` cells; `cells[row]` is the cell of a row."""
        ...

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """Synopses with equal codes as one: of the accuracy of the kind, or of the least accurate of them."""
        ...

    def fitted(self, blobs: Blobs) -> Blobs:
        """Synopses of the same rows of at most the accuracy of the kind, where they were made with a smaller error."""
        ...


def empty(shape: int | tuple[int, ...]) -> Blobs:
    """The empty synopsis in every cell."""
    blobs = np.empty(shape, object)
    blobs.fill(b"")
    return blobs


def gathered(blobs: Blobs, codes: Ints, count: int) -> tuple[Blobs, list[list[bytes]]]:
    """The results of codes with at most one synopsis, and by code the synopses of those with several (else empty)."""
    there = np.fromiter(map(len, blobs), np.int64, len(blobs)) > 0
    alone = np.bincount(codes[there], minlength=count) == 1
    merged = empty(count)
    several: list[list[bytes]] = [[] for _ in range(count)]
    one = np.flatnonzero(there & alone[codes])
    merged[codes[one]] = blobs[one]
    for index in np.flatnonzero(there & ~alone[codes]).tolist():
        several[codes[index]].append(blobs[index])
    return merged, several

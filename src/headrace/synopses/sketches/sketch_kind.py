"""What can be done with a synopsis that is a string of bytes, whatever is in it? Made of rows, merged, and nothing of it is nothing.

Synopses of many cells lie in one numpy column of objects, `b""` where no row came. Merging is associative and commutative up to
the bound that a synopsis states of itself; the same batches in the same order give the same bytes.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.synopses.rows.arrays import Ints

Blobs: TypeAlias = npt.NDArray[Any]
"""One string of bytes a cell."""


class Kind(Protocol):
    """A sort of synopsis with its accuracy. Asserted by property tests for each one."""

    @property
    def full_bytes(self) -> int:
        """About as many bytes as one of very many different rows takes."""
        ...

    def made(
        self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None, cells: Ints, count: int
    ) -> Blobs:
        """Synopses of `count` cells; `cells[row]` says whose a row is."""
        ...

    def merged(self, blobs: Blobs, codes: Ints, count: int) -> Blobs:
        """Those of equal code as one."""
        ...


def empty(shape: int | tuple[int, ...]) -> Blobs:
    """Nothing, in every cell."""
    found = np.empty(shape, object)
    found.fill(b"")
    return found


def members(blobs: Blobs, codes: Ints, count: int) -> tuple[Blobs, list[list[bytes]]]:
    """Codes with one synopsis or none as they will be, and the synopses of those with several, by code (else empty)."""
    there = np.fromiter(map(len, blobs), np.int64, len(blobs)) > 0
    alone = np.bincount(codes[there], minlength=count) == 1
    found = empty(count)
    several: list[list[bytes]] = [[] for _ in range(count)]
    one = np.flatnonzero(there & alone[codes])
    found[codes[one]] = blobs[one]
    for place in np.flatnonzero(there & ~alone[codes]).tolist():
        several[codes[place]].append(blobs[place])
    return found, several

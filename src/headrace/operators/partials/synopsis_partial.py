"""Partial whose cells are sketches, as byte strings: lifted, combined and reduced like any other partial."""

from __future__ import annotations

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.partial import Argument, Cells
from headrace.synopses.sketches.sketch_kind import Kind, empty


@dataclass(frozen=True, slots=True)
class Synopsis:
    """One kind of synopsis. Combining is associative up to the error bound of the synopsis."""

    kind: Kind
    width: int = 1
    subtracts: bool = False

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """Synopses of the rows that count."""
        values, weights, chosen = argument.values, argument.weights, cells
        if argument.valid is not None:
            values, chosen = values[argument.valid], cells[argument.valid]
            weights = None if weights is None else weights[argument.valid]
        return (self.kind.made(values, weights, chosen, count),)

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """Empty cells."""
        return (empty(shape),)

    def combine(self, left: Cells, right: Cells) -> Cells:
        """Cell by cell; if one side is empty, the other unchanged."""
        first, second = np.broadcast_arrays(left[0], right[0])
        shape, first, second = first.shape, first.reshape(-1), second.reshape(-1)
        merged = np.where(first == b"", second, first)
        both = np.flatnonzero((first != b"") & (second != b""))
        if len(both):
            codes = np.r_[np.arange(len(both)), np.arange(len(both))]
            merged[both] = self.kind.merged(np.concatenate([first[both], second[both]]), codes, len(both))
        return (merged.reshape(shape),)

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """All synopses of a code merged; a single one unchanged."""
        there = np.flatnonzero(cells[0] != b"")
        blobs, owner = cells[0][there], codes[there]
        several = np.bincount(owner, minlength=count) > 1
        merged = empty(count)
        is_single = ~several[owner]
        merged[owner[is_single]] = blobs[is_single]
        chosen = np.flatnonzero(several)
        if len(chosen):
            rank = np.cumsum(several) - 1
            merged[chosen] = self.kind.merged(blobs[~is_single], rank[owner[~is_single]], len(chosen))
        return (merged,)

    def accumulate(self, cells: Cells) -> Cells:
        """Row by row along axis 0."""
        out = cells[0].copy()
        for row in range(1, len(out)):
            out[row] = self.combine((out[row - 1],), (cells[0][row],))[0]
        return (out,)

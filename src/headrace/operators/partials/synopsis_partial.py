"""Partials that are synopses: strings of bytes in cells, combined like any other partial."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.partial import Argument, Cells
from headrace.synopses.sketches.sketch_kind import Kind, empty


@dataclass(frozen=True, slots=True)
class Synopsis:
    """One kind of synopsis. Combining is associative up to the bound that the synopsis states of itself."""

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
        """Nothing."""
        return (empty(shape),)

    def combine(self, left: Cells, right: Cells) -> Cells:
        """Cell by cell; where one side is nothing, the other as it is."""
        one, other = np.broadcast_arrays(left[0], right[0])
        shape, one, other = one.shape, one.reshape(-1), other.reshape(-1)
        found = np.where(one == b"", other, one)
        both = np.flatnonzero((one != b"") & (other != b""))
        if len(both):
            codes = np.r_[np.arange(len(both)), np.arange(len(both))]
            found[both] = self.kind.merged(np.concatenate([one[both], other[both]]), codes, len(both))
        return (found.reshape(shape),)

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """All synopses of a code as one; what is alone stays as it is."""
        there = np.flatnonzero(cells[0] != b"")
        blobs, owner = cells[0][there], codes[there]
        several = np.bincount(owner, minlength=count) > 1
        found = empty(count)
        alone = ~several[owner]
        found[owner[alone]] = blobs[alone]
        chosen = np.flatnonzero(several)
        if len(chosen):
            rank = np.cumsum(several) - 1
            found[chosen] = self.kind.merged(blobs[~alone], rank[owner[~alone]], len(chosen))
        return (found,)

    def accumulate(self, cells: Cells) -> Cells:
        """Row by row along axis 0."""
        out = cells[0].copy()
        for row in range(1, len(out)):
            out[row] = self.combine((out[row - 1],), (cells[0][row],))[0]
        return (out,)

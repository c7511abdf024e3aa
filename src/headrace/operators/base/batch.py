"""A batch of rows on its way through the row-wise part of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.series import AT, POSITION
from headrace.operators.base.group_codes import Ints, flat


@dataclass(frozen=True, slots=True)
class Batch:
    """Columns by internal name, each row's event time (microseconds) and position.

    A stream's own columns carry their plain names, those of joined relations `alias.column`.
    """

    columns: Mapping[str, pa.Array]
    at: Ints
    position: Ints

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.at)

    @property
    def readable(self) -> Mapping[str, pa.Array]:
        """The columns, and the places of the rows as columns too."""
        return {**self.columns, AT: pa.array(self.at), POSITION: pa.array(self.position)}

    def where(self, keep: np.ndarray) -> Batch:
        """The rows where `keep` is true; the batch itself when that is all of them."""
        if keep.all():
            return self
        mask = pa.array(keep)
        return Batch({n: c.filter(mask) for n, c in self.columns.items()}, self.at[keep], self.position[keep])

    def take(self, rows: Ints) -> Batch:
        """Rows by number, in that order, possibly repeated."""
        picked = pa.array(rows)
        return Batch({n: c.take(picked) for n, c in self.columns.items()}, self.at[rows], self.position[rows])

    def parts(self, rows: int) -> Iterator[Batch]:
        """The batch in parts of at most so many rows."""
        for low in range(0, self.rows, rows):
            columns = {name: column.slice(low, rows) for name, column in self.columns.items()}
            yield Batch(columns, self.at[low : low + rows], self.position[low : low + rows])

    def retractions(self, change: str) -> Ints:
        """The places of the rows that go, as that column says."""
        goes = pc.less(self.columns[change], 0).fill_null(False)
        found: Ints = self.position[flat(goes).to_numpy(zero_copy_only=False)]
        return found

    def only(self, names: frozenset[str]) -> Batch:
        """The same rows with fewer columns."""
        return Batch(
            {name: column for name, column in self.columns.items() if name in names}, self.at, self.position
        )


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows on which an expression of one query failed: where they stand, and the first reason of each."""

    at: Ints
    position: Ints
    reasons: tuple[str, ...]

    def without(self, positions: Ints) -> Rejected:
        """Those that do not stand in these places."""
        keep = ~np.isin(self.position, positions)
        return Rejected(self.at[keep], self.position[keep], tuple(compress(self.reasons, keep)))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.at)


def insertion_failures(rejected: Sequence[Rejected], retractions: Sequence[Ints]) -> tuple[Rejected, ...]:
    """Failures of rows that come: one that failed as it came was never there, and does not fail again where it goes."""
    if not retractions:
        return tuple(rejected)
    places = np.concatenate(retractions)
    return tuple(left for each in rejected if (left := each.without(places)).rows)

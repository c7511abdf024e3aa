"""Batch of rows in the row-wise part of a query (columns, event times, positions); and the record of rows on which an
expression of the query failed.
"""

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
        """The columns, plus event time and position as columns."""
        return {**self.columns, AT: pa.array(self.at), POSITION: pa.array(self.position)}

    def where(self, keep: np.ndarray) -> Batch:
        """The rows where `keep` is true; the batch itself when that is all of them."""
        if keep.all():
            return self
        mask, rows = pa.array(keep), int(np.count_nonzero(keep))
        columns = {n: c.filter(mask) for n, c in self.columns.items()}
        return Batch(columns, _kept(self.at, keep, rows), _kept(self.position, keep, rows))

    def take(self, rows: Ints) -> Batch:
        """Rows by index, in that order, possibly repeated."""
        picked = pa.array(rows)
        return Batch({n: c.take(picked) for n, c in self.columns.items()}, self.at[rows], self.position[rows])

    def parts(self, rows: int) -> Iterator[Batch]:
        """The batch in parts of at most so many rows."""
        for low in range(0, self.rows, rows):
            columns = {name: column.slice(low, rows) for name, column in self.columns.items()}
            yield Batch(columns, self.at[low : low + rows], self.position[low : low + rows])

    def retractions(self, change: str) -> Ints:
        """Positions of the rows whose `change` column is negative."""
        negative = pc.less(self.columns[change], 0).fill_null(False)
        positions: Ints = self.position[flat(negative).to_numpy(zero_copy_only=False)]
        return positions

    def only(self, names: frozenset[str]) -> Batch:
        """The same rows with fewer columns."""
        return Batch(
            {name: column for name, column in self.columns.items() if name in names}, self.at, self.position
        )


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows on which an expression of one query failed: event time, position and first reason of each."""

    at: Ints
    position: Ints
    reasons: tuple[str, ...]

    def without(self, positions: Ints) -> Rejected:
        """Without the rows at these positions."""
        keep = ~np.isin(self.position, positions)
        return Rejected(self.at[keep], self.position[keep], tuple(compress(self.reasons, keep)))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.at)


def insertion_failures(rejected: Sequence[Rejected], retractions: Sequence[Ints]) -> tuple[Rejected, ...]:
    """Failures of inserted rows. A row that failed on insertion has no effect, and its retraction does not fail again."""
    if not retractions:
        return tuple(rejected)
    retracted = np.concatenate(retractions)
    return tuple(remaining for failures in rejected if (remaining := failures.without(retracted)).rows)


def _kept(values: Ints, keep: np.ndarray, rows: int) -> Ints:
    """The values where `keep` is true, of which there are `rows`; one value that is repeated costs nothing."""
    return np.broadcast_to(values[:1], rows) if values.strides == (0,) else values[keep]

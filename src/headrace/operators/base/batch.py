"""Batch of rows in the row-wise part of a query (columns, event times, positions); event times that are read only if they are
asked for; and the record of rows on which an expression of the query failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.series import AT, POSITION
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat
from headrace.time import Instant


class EventTimes:
    """The event times of some rows, in microseconds, each or only between which instants they are.

    No row is below `low` or above `high`. `instants` reads the rows' own where that was put off.
    """

    __slots__ = ("_bounds", "_instants", "_read", "rows")

    def __init__(
        self, rows: int, bounds: tuple[Instant, Instant] | None, read: Callable[[], Ints] | None = None
    ) -> None:
        """`bounds` may be None only if `read` costs little; `read` gives `rows` instants, and is called once."""
        self.rows, self._bounds, self._read = rows, bounds, read
        self._instants: Ints | None = None

    @staticmethod
    def of(instants: Ints, bounds: tuple[Instant, Instant] | None = None) -> EventTimes:
        """Those of an array."""
        times = EventTimes(len(instants), bounds)
        times._instants = instants
        return times

    @staticmethod
    def joined(parts: Sequence[EventTimes]) -> EventTimes:
        """Those of several batches, one after the other; each has rows."""
        if len(parts) == 1:
            return parts[0]
        bounds = min(part.bounds[0] for part in parts), max(part.bounds[1] for part in parts)
        read = lambda: np.concatenate([part.instants for part in parts])  # noqa: E731
        return EventTimes(sum(part.rows for part in parts), bounds, read)

    @property
    def instants(self) -> Ints:
        """The event time of each row."""
        if self._instants is None:
            assert self._read is not None
            self._instants, self._read = self._read(), None
        return self._instants

    @property
    def bounds(self) -> tuple[Instant, Instant]:
        """Two instants that no row is before or after: of a batch that was read, the least and the greatest. There must be rows."""
        if self._bounds is None:
            self._bounds = int(self.instants.min()), int(self.instants.max())
        return self._bounds

    def some(self, rows: int, choose: Callable[[Ints], Ints]) -> EventTimes:
        """Those of `rows` of the rows, which `choose` takes from the array of all; what is not read yet is not read by it."""
        if self._instants is not None:
            return EventTimes.of(choose(self._instants), self._bounds)
        return EventTimes(rows, self._bounds, lambda: choose(self.instants))


@dataclass(frozen=True, slots=True, init=False)
class Batch:
    """Columns by internal name, each row's event time and position.

    A stream's own columns carry their plain names, those of joined relations `alias.column`.
    """

    columns: Mapping[str, pa.Array]
    times: EventTimes
    position: Ints

    def __init__(self, columns: Mapping[str, pa.Array], times: Ints | EventTimes, position: Ints) -> None:
        object.__setattr__(self, "columns", columns)
        read = times if isinstance(times, EventTimes) else EventTimes.of(times)
        object.__setattr__(self, "times", read)
        object.__setattr__(self, "position", position)

    @property
    def at(self) -> Ints:
        """The event time of each row, in microseconds."""
        return self.times.instants

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.times.rows

    @property
    def readable(self) -> Mapping[str, pa.Array]:
        """The columns, plus event time and position as columns."""
        return _Readable(self)

    def where(self, keep: np.ndarray) -> Batch:
        """The rows where `keep` is true; the batch itself when that is all of them."""
        if keep.all():
            return self
        mask, rows = pa.array(keep), int(np.count_nonzero(keep))
        columns = {n: c.filter(mask) for n, c in self.columns.items()}
        times = self.times.some(rows, lambda instants: _kept(instants, keep, rows))
        return Batch(columns, times, _kept(self.position, keep, rows))

    def take(self, rows: Ints) -> Batch:
        """Rows by index, in that order, possibly repeated."""
        picked = pa.array(rows)
        columns = {n: c.take(picked) for n, c in self.columns.items()}
        times = self.times.some(len(rows), lambda instants: instants[rows])
        return Batch(columns, times, self.position[rows])

    def parts(self, rows: int) -> Iterator[Batch]:
        """The batch in parts of at most so many rows."""
        for low in range(0, self.rows, rows):
            columns = {name: column.slice(low, rows) for name, column in self.columns.items()}
            part = slice(low, low + rows)
            position = self.position[part]
            times = self.times.some(len(position), itemgetter(part))
            yield Batch(columns, times, position)

    def with_columns(self, added: Mapping[str, pa.Array]) -> Batch:
        """The same rows with more columns, or other ones of the same names."""
        return Batch({**self.columns, **added}, self.times, self.position)

    def retractions(self, change: str) -> Ints:
        """Positions of the rows whose `change` column is negative."""
        negative = pc.less(self.columns[change], 0).fill_null(False)
        positions: Ints = self.position[flat(negative).to_numpy(zero_copy_only=False)]
        return positions

    def only(self, names: frozenset[str]) -> Batch:
        """The same rows with fewer columns."""
        columns = {name: column for name, column in self.columns.items() if name in names}
        return Batch(columns, self.times, self.position)


class _Readable(Mapping[str, pa.Array]):
    """The columns of a batch, its event times and positions: these are read when an expression does."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __getitem__(self, name: str) -> pa.Array:
        if name == AT:
            return pa.array(self._batch.at)
        return pa.array(self._batch.position) if name == POSITION else self._batch.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._batch.columns, AT, POSITION))

    def __len__(self) -> int:
        return len(self._batch.columns) + 2


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

"""Numbers of occurrences and pairs of each row of a join side, as state: the rows without a pair (or with one) by
instant, for outer joins, antijoins and semijoins.

A change adds or removes occurrences of a row, or pairs of it. At an instant a row that occurs n times and has m pairs is
shown n times if m = 0 (of rows with a pair: if m > 0). Equal rows have equal pairs, so a row is identified by its values.
State: the changes, sorted by (hash of the row, instant), one for each row and instant. Those below the emitted instants
are summed per row, and a row that occurs no more is dropped: what is stored is bounded by the rows that the side holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import SLOT
from headrace.operators.joins.changelog_join import WEIGHT
from headrace.operators.output.changelog import Span
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import HASH, key_hashes, of_one_hash
from headrace.time import BEGINNING, FOREVER, Instant

PAIRS: Final = "__pairs"
"""The change of the number of pairs; `WEIGHT` is that of occurrences."""


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Rows and how often each is shown from the instant `begin` to before `end`; `before` is the number until `begin`."""

    rows: pa.Table
    begin: Ints
    end: Ints
    before: Ints
    count: Ints


@dataclass(frozen=True, slots=True)
class PairCounts:
    """The rows of a side with the columns `names`: those without a pair, or with `paired` those with one."""

    names: tuple[str, ...]
    paired: bool = False

    def changes(self, rows: pa.Table, at: Ints, occurrences: Ints, pairs: Ints) -> pa.Table:
        """State rows of changes, in any order; `rows` have the side's columns and their slots."""
        columns = [flat(rows.column(name)) for name in self.names]
        hashed = key_hashes([column for column in columns if not pa.types.is_nested(column.type)], len(at))
        head = [flat(rows.column(SLOT)), *map(pa.array, (hashed, at, occurrences, pairs))]
        return pa.table([*head, *columns], names=[SLOT, HASH, TIME, WEIGHT, PAIRS, *self.names])

    def added(self, tables: Sequence[pa.Table], done: Instant = BEGINNING) -> pa.Table:
        """State rows in order of (hash, instant), one for each row and instant; none where changes cancel out.

        Changes before the instant `done` become one for each row. The tables may be those of some runs: others may have
        the occurrences of a row whose pairs are here.
        """
        rows = pa.concat_tables(tables).combine_chunks()
        hashed, at, codes = ints(rows, HASH), ints(rows, TIME), self._codes(rows)
        at = np.where(at < done, BEGINNING, at)
        order = np.lexsort([codes, at, hashed])
        codes, at = codes[order], at[order]
        first = np.flatnonzero(np.append(True, (codes[1:] != codes[:-1]) | (at[1:] != at[:-1]))[: len(order)])
        sums = {
            name: np.add.reduceat(ints(rows, name)[order], first) if len(first) else at
            for name in (WEIGHT, PAIRS)
        }
        left = (sums[WEIGHT] != 0) | (sums[PAIRS] != 0)
        added = rows.take(pa.array(order[first[left]]))
        for name, values in ((TIME, at[first]), *sums.items()):
            added = added.set_column(added.column_names.index(name), name, pa.array(values[left]))
        return added

    def changed(self, tables: Sequence[pa.Table], span: Span) -> Occurrences | None:
        """The rows with a change in the span, at each of their instants before its limit; None without such rows."""
        due = [ints(table, HASH)[span.holds(ints(table, TIME))] for table in tables]
        hashes = np.unique(np.concatenate([np.empty(0, np.int64), *due]))
        key_rows = [table.take(pa.array(rows)) for table in tables for rows in _with_hash(table, hashes)]
        return self.occurrences(key_rows, span) if key_rows else None

    def occurrences(self, tables: Sequence[pa.Table], span: Span) -> Occurrences | None:
        """All rows, at each of their instants before the limit of the span; None without rows."""
        rows = pa.concat_tables(tables)
        rows = rows.filter(pa.array(ints(rows, TIME) < span.limit))
        if not rows.num_rows:
            return None
        codes, at = self._codes(rows), ints(rows, TIME)
        order = np.lexsort([at, codes])
        codes, at = codes[order], at[order]
        last_of_row = np.append(codes[1:] != codes[:-1], True)
        last = np.flatnonzero(np.append(at[1:] != at[:-1], True) | last_of_row)
        occurs = _cumulated(ints(rows, WEIGHT)[order], last_of_row)[last]
        pairs = _cumulated(ints(rows, PAIRS)[order], last_of_row)[last]
        count = np.where((pairs > 0) == self.paired, occurs, 0)
        ends_row = last_of_row[last]
        end = np.where(ends_row, FOREVER, np.append(at[last][1:], FOREVER))
        before = np.where(np.append(True, ends_row[:-1]), 0, np.append(0, count[:-1]))
        return Occurrences(rows.take(pa.array(order[last])), at[last], end, before, count)

    def _codes(self, rows: pa.Table) -> Ints:
        return group([flat(rows.column(name)) for name in self.names], rows.num_rows).codes


def _with_hash(table: pa.Table, hashes: Ints) -> Iterator[Ints]:
    """The rows of a sorted table with one of these hashes."""
    return (rows for _, rows in of_one_hash(hashes, ints(table, HASH)) if len(rows))


def _cumulated(values: Ints, last_of_row: np.ndarray) -> Ints:
    """The sums up to each value, from the first one of its row on."""
    total = np.cumsum(values)
    starts = np.append(0, np.flatnonzero(last_of_row)[:-1] + 1)
    lengths = np.diff(np.append(starts, len(values)))
    result: Ints = total - np.repeat(total[starts] - values[starts], lengths)
    return result

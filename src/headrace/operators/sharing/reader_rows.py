"""Scanner of queries of a family that read streams of their own, such as the results of a SELECT in FROM: the rows of all these
streams come as one batch, each with the number of its query, and are stored by one pass for all queries with equal steps.

A batch in which an expression fails is given to each query's own scanner, which rejects such rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import QUERY_NUMBER, SLOT, Operator, Scanned, Scanner
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import state_name
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.rows.row_state import LIVE, ROWS, RowLayout
from headrace.operators.sharing.pairs.query_rows import layout_of
from headrace.time import FOREVER


def numbers_of(batch: Batch) -> Ints:
    """The number of the query of each row of a batch."""
    numbers: Ints = flat(batch.columns[QUERY_NUMBER]).to_numpy()
    return numbers


def scanned_of(queries: Sequence[Operator], rows_in: Ints, kept: Ints) -> dict[str, Scanned]:
    """The measurements of queries that got rows, by their ids; equal ones are one object."""
    with_rows = np.flatnonzero(rows_in)
    counts = zip(rows_in[with_rows].tolist(), kept[with_rows].tolist(), strict=True)
    equal: dict[tuple[int, int], Scanned] = {}
    scanned = {}
    for place, count in zip(with_rows.tolist(), counts, strict=True):
        if count not in equal:
            equal[count] = Scanned({}, (), *count)
        scanned[queries[place].id] = equal[count]
    return scanned


@dataclass(slots=True)
class EachAlone:
    """By the place of a query in a cohort, the scanner that gets its rows where an expression fails on some."""

    cohort: Cohort
    scanners: dict[int, Scanner] = field(default_factory=dict)

    def add(self, batch: Batch, places: Ints) -> None:
        """Give each query its rows; `places` are those of the rows' queries."""
        rows = Batch(
            {name: column for name, column in batch.columns.items() if name != QUERY_NUMBER},
            batch.times,
            batch.position,
        )
        for place in np.unique(places).tolist():
            if place not in self.scanners:
                self.scanners[place] = self.cohort.queries[place].scanner({})
            self.scanners[place].add(rows.where(places == place))

    def finish(self, output: ScanOutput, rows_in: Ints, kept: Ints, without: Collection[str] = ()) -> None:
        """Add what they made, `without` sections that are made of all rows; `rows_in` and `kept` are the rows that each query got and
        stores otherwise.
        """
        for place, scanner in self.scanners.items():
            alone = scanner.finish()
            got, stored = int(rows_in[place]), int(kept[place]) + alone.rows_kept
            deltas = {name: table for name, table in alone.deltas.items() if name not in without}
            output.add(self.cohort.queries[place], Scanned(deltas, alone.rejected, got, stored))


@dataclass(frozen=True, slots=True, eq=False)
class _Readers:
    """Queries of a family, and by place in it which of the `layouts` is a query's: those with equal steps have one."""

    cohort: Cohort
    layouts: Sequence[RowLayout]
    layout_of: Ints
    own_slots: np.ndarray

    @staticmethod
    def of(queries: tuple[Operator, ...]) -> _Readers:
        """Of queries in any order."""
        cohort = Cohort.of(queries)
        kinds: dict[object, int] = {}
        layouts, kind_of = list[RowLayout](), list[int]()
        for query in cohort.queries:
            layout = layout_of(query)
            kind = layout.below, layout.above, layout.bounded, layout.partition
            if kind not in kinds:
                kinds[kind] = len(layouts)
                layouts.append(replace(layout, by_query=True))
            kind_of.append(kinds[kind])
        slots = np.array([query.own_slot for query in cohort.queries], np.int16)
        return _Readers(cohort, layouts, np.array(kind_of, np.int64), slots)


_known: Final[MadeOnce[_Readers]] = MadeOnce(64)


@dataclass(slots=True)
class ReaderRows:
    """The rows of a task that queries of a family store, each of streams of its own."""

    readers: _Readers
    tables: list[pa.Table] = field(default_factory=list)
    rows_in: Ints = field(init=False)
    """The rows that each query got."""
    kept: Ints = field(init=False)
    """The rows that each query stores."""
    first: Ints = field(init=False)
    """The first instant of each query's rows."""
    alone: EachAlone = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.readers.cohort.queries)
        self.rows_in, self.kept = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.first = np.full(count, FOREVER)
        self.alone = EachAlone(self.readers.cohort)

    @staticmethod
    def of(queries: tuple[Operator, ...]) -> ReaderRows:
        """The scan of these queries."""
        return ReaderRows(_known.of(queries, lambda: _Readers.of(queries)))

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.readers.cohort.queries[0].id

    def add(self, batch: Batch) -> None:
        """Add rows with the numbers of their queries."""
        places = np.searchsorted(self.readers.cohort.numbers, numbers_of(batch))
        self.rows_in += np.bincount(places, minlength=len(self.rows_in))
        np.minimum.at(self.first, places, batch.at)
        if len(self.readers.layouts) == 1:
            self._store(self.readers.layouts[0], batch, places)
            return
        kinds = self.readers.layout_of[places]
        for kind in np.unique(kinds).tolist():
            is_of_kind = kinds == kind
            self._store(self.readers.layouts[kind], batch.where(is_of_kind), places[is_of_kind])

    def _store(self, layout: RowLayout, batch: Batch, places: Ints) -> None:
        """Add the rows of queries with one layout."""
        scanner = layout.scanner({})
        scanner.add(batch)
        if scanner.below.rejected or scanner.above.rejected:
            self.alone.add(batch, places)
            return
        rows = scanner.finish().deltas.get(ROWS)
        if rows is None:
            return
        of_rows = np.searchsorted(self.readers.cohort.numbers, ints(rows, QUERY_NUMBER))
        live = flat(rows.column(LIVE)).to_numpy(zero_copy_only=False)
        self.kept += np.bincount(of_rows[live], minlength=len(self.kept))
        if layout.routing is None:
            slots = pa.array(self.readers.own_slots[of_rows])
            rows = rows.set_column(rows.column_names.index(SLOT), SLOT, slots)
        self.tables.append(rows)

    def finish(self) -> ScanOutput:
        """The deltas of all queries as one table per section, and what was scanned for those with rows."""
        output, queries = ScanOutput(), self.readers.cohort.queries
        output.add_without_deltas(scanned_of(queries, self.rows_in, self.kept))
        family = queries[0].together(queries)
        rows = pa.concat_tables(self.tables) if self.tables else None
        of_first = family.family_deltas(None, self.first)
        for section, table in (*family.family_deltas(rows, FOREVER).items(), *of_first.items()):
            output.put(f"{state_name(queries[0])}/{section}", table)
        self.alone.finish(output, self.rows_in, self.kept, of_first)
        return output

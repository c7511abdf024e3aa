"""The writing of merged runs: the rows of the runs that entries of the results list name, query by query, in one file.

Rows are copied in few large steps, whatever the number of queries and runs: what a run stores together is read as one table, and
one permutation brings all rows of a portion of the queries into order. Only a portion is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT
from headrace.runtime.home.background_write import give_way
from headrace.runtime.home.merged_runs import FACTS, columns_of, layout_and_query, section_names
from headrace.runtime.results.time_merge import PIECE
from headrace.store.files.container import Container, streamed
from headrace.store.files.filesystem import Store

_Ints: TypeAlias = npt.NDArray[np.int64]

MOST_BYTES: Final = 1 << 30
"""Bytes of runs up to which they are merged: opening larger ones takes nothing next to reading them."""
MOST_OF_QUERY: Final = 1 << 25
"""Bytes of the rows of one query up to which runs are merged: readers of a history have such a section in memory."""
_LARGE: Final = 1 << 18
"""Bytes of a table from which on it may have been made smaller, and is in memory and not in the file when it is read."""
_MOST_IN_MEMORY: Final = 1 << 28
_PORTION: Final = 1 << 24
"""Bytes of rows that are brought into order and written at a time."""


@dataclass(frozen=True, slots=True)
class Input:
    """A run, and which part of the merged one it becomes; of a merged run, which each of its parts becomes."""

    name: str
    part: int | None
    parts: Mapping[int, int]


class TooLarge(Exception):
    """Runs that are not worth merging."""


@dataclass(slots=True)
class _Rows:
    """Rows of one schema: tables one after the other, and the pieces of a query and part in them."""

    tables: list[pa.Table] = field(default_factory=list)
    count: int = 0
    pieces: list[_Ints] = field(default_factory=list)
    """Rows of query, part, first row, number of rows."""

    def add(self, table: pa.Table) -> int:
        """Add a table; the index of its first row."""
        first, self.count = self.count, self.count + table.num_rows
        self.tables.append(table)
        return first


@dataclass(slots=True)
class Merge:
    """The merge of some runs, without the rows of queries that are not needed."""

    store: Store
    is_needed: Callable[[str], bool]
    _codes: dict[str, int] = field(default_factory=dict)
    _needed: dict[str, bool] = field(default_factory=dict)
    _rows: dict[pa.Schema, _Rows] = field(default_factory=dict)
    _in_memory: int = 0

    def write(self, name: str, inputs: Sequence[Input]) -> int | None:
        """Write the merged run, durably; its bytes, None if no query of the runs is needed.

        Raises `TooLarge` instead where merging is not worth it, and `CorruptStore` for a damaged run.
        """
        files = [(one, self.store.map(one.name)) for one in inputs]
        if sum(buffer.size for _, buffer in files) > MOST_BYTES:
            raise TooLarge
        for one, buffer in files:
            container = Container.open(buffer, one.name)
            container.verify()  # else the merged run would have right checksums of damaged rows
            if one.part is None:
                self._add_merged(container, one.parts)
            else:
                self._add_run(container, one.part)
            give_way()
        sorted_rows = [of_schema for rows in self._rows.values() if (of_schema := _Sorted.of(rows))]
        if not sorted_rows:
            return None
        return self.store.write_once(name, streamed(self._portions(sorted_rows), piece=PIECE))

    def _code(self, query: str) -> int:
        """The number of a query; -1 of one that is not needed."""
        needed = self._needed.get(query)
        if needed is None:
            needed = self._needed[query] = self.is_needed(query)
        return self._codes.setdefault(query, len(self._codes)) if needed else -1

    def _added(self, table: pa.Table) -> tuple[_Rows, int]:
        """Where the rows of a table are from now on: those of its schema, and the index of the first."""
        size = table.get_total_buffer_size()
        if size >= _LARGE:
            self._in_memory += size
            if self._in_memory > _MOST_IN_MEMORY:
                raise TooLarge
        rows = self._rows.get(table.schema)
        if rows is None:
            rows = self._rows[table.schema] = _Rows()
        return rows, rows.add(table)

    def _add_run(self, container: Container, part: int) -> None:
        for table, sections in container.groups():
            rows, base = self._added(table)
            codes = [self._code(query) for query, _, _ in sections]
            firsts, counts = (np.array([section[at] for section in sections], np.int64) for at in (1, 2))
            pieces = np.stack([np.array(codes, np.int64), np.full(len(codes), part), firsts + base, counts])
            rows.pieces.append(pieces[:, pieces[0] >= 0])

    def _add_merged(self, container: Container, parts: Mapping[int, int]) -> None:
        new_part = np.full(1 << 16, -1)
        new_part[list(parts)] = list(parts.values())
        places: dict[tuple[int, str], tuple[_Rows, int]] = {}
        groups = [(table, [(layout_and_query(name), first, count) for name, first, count in sections])
                  for table, sections in container.groups()]  # fmt: skip
        for table, sections in groups:
            if not sections[0][0][0]:
                rows, base = self._added(table)
                for (_, layout, query), first, _ in sections:
                    places[layout, query] = rows, base + first
        for table, sections in groups:
            if sections[0][0][0]:
                self._add_parts(table, sections, places, new_part)

    def _add_parts(
        self,
        facts: pa.Table,
        sections: Sequence[tuple[tuple[bool, int, str], int, int]],
        places: Mapping[tuple[int, str], tuple[_Rows, int]],
        new_part: _Ints,
    ) -> None:
        """The pieces that a table of facts describes; its sections are one after the other."""
        part, counts, *_ = columns_of(facts)
        before = np.cumsum(counts) - counts
        at = [place for (_, layout, query), _, _ in sections for place in (places[layout, query],)]
        lengths = np.array([length for _, _, length in sections])
        firsts = np.array([first for _, first, _ in sections])
        starts = np.array([base for _, base in at]) - before[firsts]
        index = _ranges(firsts, lengths)
        pieces = np.stack(
            [
                np.repeat([self._code(query) for (_, _, query), _, _ in sections], lengths),
                new_part[part[index]],
                np.repeat(starts, lengths) + before[index],
                counts[index],
            ]
        )
        of = {id(rows): (number, rows) for number, (rows, _) in enumerate(at)}
        owner = np.repeat([of[id(rows)][0] for rows, _ in at], lengths)
        is_needed = (pieces[0] >= 0) & (pieces[1] >= 0)
        for number, rows in of.values():
            rows.pieces.append(pieces[:, is_needed & (owner == number)])

    def _portions(self, sorted_rows: Sequence[_Sorted]) -> Iterator[Mapping[str, pa.Table]]:
        """The sections, those of some queries at a time."""
        queries, layouts = list(self._codes), dict[int, int]()
        for rows in sorted_rows:
            portion = np.cumsum(rows.sizes) // _PORTION
            ends = np.append(rows.bounds[1:], rows.pieces.shape[1])
            for number in np.unique(portion):
                chosen = np.flatnonzero(portion == number)
                low, high = rows.bounds[chosen[0]], ends[chosen[-1]]
                give_way()
                yield _sections(rows.table, rows.pieces[:, low:high], queries, layouts)


@dataclass(frozen=True, slots=True, eq=False)
class _Sorted:
    """All rows of a schema, their pieces by query and part, and of each query its first piece and the bytes of its rows."""

    table: pa.Table
    pieces: _Ints
    bounds: _Ints
    sizes: _Ints

    @staticmethod
    def of(rows: _Rows) -> _Sorted | None:
        """None without pieces. Raises `TooLarge` for a query with too many rows."""
        pieces = np.concatenate(rows.pieces, axis=1)
        if not pieces.shape[1]:
            return None
        table = pa.concat_tables(rows.tables)
        if any(pa.types.is_dictionary(kind) for kind in table.schema.types):
            table = table.unify_dictionaries()
        pieces = pieces[:, np.lexsort((pieces[1], pieces[0]))]
        bounds = np.flatnonzero(np.diff(pieces[0], prepend=-1))
        width = max(1, table.nbytes // max(1, table.num_rows))
        sizes = np.add.reduceat(pieces[3], bounds) * width
        if sizes.max() > MOST_OF_QUERY:
            raise TooLarge
        return _Sorted(table, pieces, bounds, sizes)


def _sections(
    whole: pa.Table, pieces: _Ints, queries: Sequence[str], layouts: dict[int, int]
) -> dict[str, pa.Table]:
    """The sections of the queries of some pieces; `layouts` counts those that each has."""
    codes, parts, firsts, counts = pieces
    rows = whole.take(pa.array(_ranges(firsts, counts)))
    ends = np.cumsum(counts)
    at, starts = ints(rows, AT), ends - counts
    least, greatest = np.minimum.reduceat(at, starts), np.maximum.reduceat(at, starts)
    columns = zip((parts, counts, least, greatest), FACTS.types, strict=True)
    facts = pa.Table.from_arrays([pa.array(column).cast(kind) for column, kind in columns], schema=FACTS)
    bounds = np.flatnonzero(np.diff(codes, prepend=-1))
    sections, about = dict[str, pa.Table](), dict[str, pa.Table]()
    for low, high in zip(bounds.tolist(), [*bounds[1:].tolist(), len(codes)], strict=True):
        code = int(codes[low])
        layout = layouts.get(code, 0)
        layouts[code] = layout + 1
        name, name_of_facts = section_names(layout, queries[code])
        sections[name] = rows.slice(int(starts[low]), int(ends[high - 1] - starts[low]))
        about[name_of_facts] = facts.slice(low, high - low)
    return {**sections, **about}


def _ranges(firsts: _Ints, counts: _Ints) -> _Ints:
    """first, first + 1, …: `counts` numbers of each."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(firsts - (ends - counts), counts)

"""Reading of merged runs: files that have the results of many runs, query by query, as their parts; and of one entry of the
results list, whether its file is a run or a part of a merged one.

Of each query a merged run has the rows of all parts in one section, in the order of the parts, and the facts about each part
in another one. Where a query's columns have changed it has several pairs of them, its layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.home.run_cache import batches_of, opened, section_of
from headrace.store.files.container import Container
from headrace.store.files.filesystem import Store
from headrace.store.maintenance.retention_classes import PART

_Ints: TypeAlias = npt.NDArray[np.int64]

FACTS: Final = pa.schema(
    [("part", pa.uint16()), ("rows", pa.uint32()), ("least", pa.int64()), ("greatest", pa.int64())]
)
"""Facts about the parts with rows of a query: part, number of rows, least and greatest emission instant."""
_ROWS: Final = "rows"
_FACTS: Final = "facts"


def section_names(layout: int, query: str) -> tuple[str, str]:
    """The sections with a query's rows and facts."""
    return f"{_ROWS}/{layout}/{query}", f"{_FACTS}/{layout}/{query}"


def layout_and_query(section: str) -> tuple[bool, int, str]:
    """The inverse: whether it has facts, the layout, and the query."""
    kind, layout, query = section.split("/", 2)
    return kind == _FACTS, int(layout), query


@dataclass(frozen=True, slots=True, eq=False)
class QueryParts:
    """The parts with rows of one query, ascending: where the rows of each are, and the facts about them."""

    part: _Ints
    layout: _Ints
    first: _Ints
    rows: _Ints
    least: _Ints
    greatest: _Ints

    def index_of(self, part: int) -> int | None:
        """Where a part is; None where it has no rows of the query."""
        index = int(np.searchsorted(self.part, part))
        return index if index < len(self.part) and self.part[index] == part else None

    def facts(self, index: int) -> tuple[int, int, int]:
        """Rows, least and greatest emission instant."""
        return int(self.rows[index]), int(self.least[index]), int(self.greatest[index])


@dataclass(frozen=True, slots=True, eq=False)
class AllParts:
    """All parts of a merged run: of the n-th pair of part and query, ascending by part, the facts."""

    part: _Ints
    query: _Ints
    facts: _Ints
    names: Sequence[str]

    def of(self, part: int) -> dict[str, tuple[int, int, int]]:
        """The facts about one part, by query."""
        low, high = np.searchsorted(self.part, (part, part + 1))
        queries = (self.names[code] for code in self.query[low:high].tolist())
        facts = self.facts[:, low:high].T.tolist()
        return {
            query: (rows, least, greatest)
            for query, (rows, least, greatest) in zip(queries, facts, strict=True)
        }


_parts: Final[Recent[tuple[str, str, str], QueryParts]] = Recent(1024)
_all_parts: Final[Recent[tuple[str, str], AllParts]] = Recent(4)
_sections: Final[Recent[tuple[str, str, str], pa.Table]] = Recent(8)
"""The rows of the queries that were read last: entry after entry is a part of the same file."""


def parts_of(store: Store, name: str, query: str) -> QueryParts:
    """The parts of a query in a merged run; none if it has no rows of the query."""
    key = (str(store.root), name, query)
    parts = _parts.get(key)
    if parts is None:
        parts = _read_parts(opened(store, name), query)
        _parts.put(key, parts)
    return parts


def _read_parts(container: Container, query: str) -> QueryParts:
    columns: list[_Ints] = []
    while (section := section_names(len(columns), query)[1]) in container:
        part, rows, least, greatest = columns_of(container.table(section))
        layout = np.full(len(part), len(columns))
        columns.append(np.stack([part, layout, np.cumsum(rows) - rows, rows, least, greatest]))
    together = np.concatenate(columns, axis=1) if columns else np.zeros((6, 0), np.int64)
    return QueryParts(*together[:, np.argsort(together[0], kind="stable")])


def columns_of(facts: pa.Table) -> list[_Ints]:
    """The columns of facts: part, rows, least, greatest."""
    return [column.to_numpy().astype(np.int64) for column in facts.columns]


def all_parts_of(store: Store, name: str) -> AllParts:
    """The facts about all parts and queries of a merged run."""
    key = (str(store.root), name)
    parts = _all_parts.get(key)
    if parts is None:
        parts = _read_all_parts(opened(store, name))
        _all_parts.put(key, parts)
    return parts


def _read_all_parts(container: Container) -> AllParts:
    names: dict[str, int] = {}
    columns = [np.zeros((5, 0), np.int64)]
    for table, sections in container.groups(f"{_FACTS}/"):
        for section, first, count in sections:
            part, *facts = columns_of(table.slice(first, count))
            query = names.setdefault(layout_and_query(section)[2], len(names))
            columns.append(np.stack([part, np.full(count, query), *facts]))
    together = np.concatenate(columns, axis=1)
    part, query, *facts = together[:, np.argsort(together[0], kind="stable")]
    return AllParts(part, query, np.stack(facts), list(names))


def results_in(store: Store, name: str, query: str, part: int | None) -> pa.Table:
    """The rows of a query in a run, or in a part of a merged run, memory-mapped where they are not compressed."""
    if part is None:
        return section_of(store, name, query)
    parts = parts_of(store, name, query)
    index = parts.index_of(part)
    if index is None:
        return opened(store, name).table(
            section_names(0, query)[0]
        )  # raises the error about what is not there
    section = section_names(int(parts.layout[index]), query)[0]
    return _section(store, name, section).slice(int(parts.first[index]), int(parts.rows[index]))


def results_of(store: Store, entry: Mapping[str, Any], query: str) -> pa.Table:
    """The rows of a query that an entry of the results list names."""
    return results_in(store, entry["name"], query, entry.get(PART))


def results_named(store: Store, record: Mapping[str, Any]) -> pa.Table:
    """The rows that the record of a stream of results names."""
    return results_in(store, record["results"], record["operator"], record.get(PART))


def _section(store: Store, name: str, section: str) -> pa.Table:
    key = (str(store.root), name, section)
    table = _sections.get(key)
    if table is None:
        table = opened(store, name).table(section)
        _sections.put(key, table)
    return table


def readers_of(
    store: Store, entries: Sequence[Mapping[str, Any]], query: str
) -> Iterator[Callable[[], Iterator[pa.RecordBatch]]]:
    """Readers of the rows of a query in entries of one file, in batches by instant or as one batch; the file stays open."""
    name = entries[0]["name"]
    if PART not in entries[0]:
        yield from (batches_of(store, name, query) for _ in entries)
        return
    container, parts = opened(store, name), parts_of(store, name, query)
    wanted = np.isin(parts.part, [entry[PART] for entry in entries])
    for layout in np.unique(parts.layout[wanted]).tolist():
        of_layout = np.flatnonzero(wanted & (parts.layout == layout))
        yield _reader(
            container, section_names(layout, query)[0], parts.first[of_layout], parts.rows[of_layout]
        )


def _reader(
    container: Container, section: str, first: _Ints, rows: _Ints
) -> Callable[[], Iterator[pa.RecordBatch]]:
    """A reader of some parts of a section, as one batch; it does not hold the rows before it is called."""

    def read() -> Iterator[pa.RecordBatch]:
        table = container.table(section)
        is_whole = int(rows.sum()) == int(first[-1] + rows[-1] - first[0])
        if is_whole:
            chosen = table.slice(int(first[0]), int(rows.sum()))
        else:
            chosen = pa.concat_tables(
                table.slice(start, count) for start, count in zip(first.tolist(), rows.tolist(), strict=True)
            )
        return iter(chosen.combine_chunks().to_batches())

    return read

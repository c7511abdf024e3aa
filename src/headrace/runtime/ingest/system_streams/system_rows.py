"""The rows of the built-in streams about one epoch, from its observation: which epochs have rows, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headrace.catalog.catalog import Catalog, CatalogQuery, is_of_query
from headrace.catalog.definitions import StreamDefinition
from headrace.catalog.system_streams import EPOCHS, QUALITY, QUERIES, STREAMS
from headrace.dataclass import dataclass
from headrace.observation import EpochObservation, OperatorObservation
from headrace.runtime.messages.epoch_work import BACKFILLS, EpochWork
from headrace.runtime.plan.derived_streams import owner_of
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.time import BEGINNING, FOREVER, SECOND, Instant

Row: TypeAlias = Sequence[Any]
"""The values of a row in the order of its stream's columns, as JSON has them: instants in microseconds."""


def has_rows(work: EpochWork, index: PlanIndex, *, changes: bool) -> bool:
    """Whether an epoch has rows in the built-in streams: not if all it did was to answer queries over these.

    So no row of theirs is the cause of another one. `changes`: the catalog has changed.
    """
    if not index.system_streams_read:
        return False
    system_streams = index.system_streams
    inputs = {*work.taken, *work.min_punctuations, *(split.stream for split, _ in work.splits)}
    if changes or not inputs <= system_streams:
        return True
    emitting = () if work.operators.followers else work.operators.named
    streams = {index.plan.operators[name].stream for name in emitting if name in index.plan.operators}
    return not all(map(index.follows_system, streams))


@dataclass(frozen=True, slots=True)
class Measured:
    """An epoch that has rows: its observation, the instant of its rows, the index of its plan, and the catalog after it.

    `failed` has the rows on which each operator failed in it; `entries` are those of the query log that it is the first to have. `quality`
    has the values of the queries of which they have changed (`quality_rows`).
    """

    seen: EpochObservation
    at: Instant
    index: PlanIndex
    catalog: Catalog
    failed: Mapping[str, int] = field(default_factory=dict)
    entries: Sequence[Mapping[str, Any]] = ()
    quality: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def rows(self) -> dict[str, list[Row]]:
        """By built-in stream that queries read; only its rows cost anything."""
        return {name: _ROWS[name](self) for name in sorted(self.index.system_streams_read)}

    def of_epoch(self) -> list[Row]:
        """The row of `system.epochs`."""
        seen = self.seen
        streams = [seen.streams[name] for name in self._inputs()]
        results = sum(
            operator.results for name, operator in seen.operators.items() if self._is_of_query(name)
        )
        return [
            (
                *(self.at, seen.epoch, seen.kind),
                sum(stream.rows for stream in streams),
                sum(stream.late for stream in streams),
                sum(stream.rejected for stream in streams),
                *(results, seen.seconds["execute"], seen.state_bytes, seen.state_runs),
            )
        ]

    def of_streams(self) -> list[Row]:
        """The rows of `system.streams`: of the streams that had new rows, not those that a backfill reads again."""
        rows: list[Row] = []
        for name in () if self.seen.kind in BACKFILLS else self._inputs():
            stream = self.seen.streams[name]
            if stream.rows or stream.rejected:
                punctuation = stream.punctuation or BEGINNING
                known = punctuation if BEGINNING < punctuation < FOREVER else None
                lag = None if stream.lag is None else stream.lag / SECOND
                counts = stream.rows, stream.late, stream.rejected, stream.shed
                rows.append((self.at, self.seen.epoch, name, *counts, known, lag))
        return rows

    def of_queries(self) -> list[Row]:
        """The rows of `system.queries`: of the queries with results or failures, and of those that a statement has changed."""
        observed = {name: seen for name, seen in self.seen.operators.items() if self._is_of_query(name)}
        state_rows, failed = Counter[str](), Counter[str]()
        for name, seen in self.seen.operators.items():
            state_rows[owner_of(name)] += seen.state_rows
        for name, count in self.failed.items():
            failed[owner_of(name)] += count
        rows: list[Row] = []
        for name, query in self._named(observed, failed).items():
            id_ = None if query is None else query.operator_id
            seen = observed.get(id_ or "", OperatorObservation())
            counts = seen.rows_in, seen.rows_kept, seen.results, failed[id_ or ""], state_rows[id_ or ""]
            failure = None if query is None else query.definition.failure
            rows.append((self.at, self.seen.epoch, name, _state(query), *counts, failure))
        return rows

    def of_quality(self) -> list[Row]:
        """The rows of `system.quality`."""
        return [(self.at, self.seen.epoch, name, *values) for name, values in self.quality.items()]

    def _named(
        self, observed: Mapping[str, OperatorObservation], failed: Mapping[str, int]
    ) -> dict[str, CatalogQuery | None]:
        """The queries that have rows, by name; None for one that was dropped."""
        of_queries = (entry.get("query", entry) for entry in self.entries if is_of_query(entry))
        changed = {name for entry in of_queries for name in (entry["name"], entry.get("to", entry["name"]))}
        active = {name for name, seen in observed.items() if seen.results}
        active |= {name for name, count in failed.items() if count and self._is_of_query(name)}
        named: dict[str, CatalogQuery | None] = {
            query.definition.name: query
            for query in self.catalog.queries.values()
            if query.operator_id in active
        }
        for name in changed:
            query = self.catalog.query(name)
            named[name if query is None else query.definition.name] = query
        return dict(sorted(named.items()))

    def _inputs(self) -> list[str]:
        """The streams of the observation that are input, without built-in ones."""
        names = {stream.name for stream in self.index.sources} - self.index.system_streams
        return sorted(names & self.seen.streams.keys())

    def _is_of_query(self, operator: str) -> bool:
        """Whether an operator gives the answer of a query that reads no built-in stream."""
        planned = self.index.plan.operators.get(operator)
        return (
            planned is not None
            and owner_of(operator) == operator
            and not self.index.follows_system(planned.stream)
        )


_ROWS: Final[Mapping[str, Callable[[Measured], list[Row]]]] = {
    EPOCHS: Measured.of_epoch,
    STREAMS: Measured.of_streams,
    QUERIES: Measured.of_queries,
    QUALITY: Measured.of_quality,
}


def _state(query: CatalogQuery | None) -> str:
    return "dropped" if query is None else query.definition.state


def as_table(stream: StreamDefinition, rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of the stream's schema."""
    schema = stream.schema.arrow()
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
    )

"""The rows of the built-in streams about one epoch, from its observation: which epochs have rows, and their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headrace.catalog.catalog import Catalog, is_of_query
from headrace.catalog.definitions import StreamDefinition
from headrace.catalog.system_streams import EPOCHS, QUERIES, STREAMS
from headrace.observation import EpochObservation, OperatorObservation
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.plan.derived_streams import owner_of
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.time import BEGINNING, FOREVER, SECOND, Instant

Row: TypeAlias = Sequence[Any]
"""The values of a row in the order of its stream's columns, as JSON has them: instants in microseconds."""


def has_rows(work: EpochWork, index: PlanIndex, *, changes: bool) -> bool:
    """Whether an epoch has rows in the built-in streams: not if all it did was to answer queries over these.

    So no row of theirs is the cause of another one. `changes`: the catalog has changed.
    """
    own = index.system_streams
    if not own:
        return False
    inputs = {*work.taken, *work.min_punctuations, *(split.stream for split, _ in work.splits)}
    if changes or not inputs <= own:
        return True
    emitting = () if work.operators.followers else work.operators.named
    streams = {index.plan.operators[name].stream for name in emitting if name in index.plan.operators}
    return not all(map(index.follows_system, streams))


@dataclass(frozen=True, slots=True)
class Measured:
    """An epoch that has rows: its observation, the instant of its rows, the index of its plan, and the catalog after it.

    `entries` are those of the query log that it is the first to have.
    """

    seen: EpochObservation
    at: Instant
    index: PlanIndex
    catalog: Catalog
    entries: Sequence[Mapping[str, Any]] = ()

    def rows(self) -> dict[str, list[Row]]:
        """By built-in stream that queries read; only its rows cost anything."""
        return {name: _ROWS[name](self) for name in sorted(self.index.system_streams)}

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
        """The rows of `system.streams`: of the streams that had rows."""
        rows = []
        for name in self._inputs():
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
        seen = self._seen_by_query()
        for name in self._changed():
            seen.setdefault(name, OperatorObservation())
        return [
            (self.at, self.seen.epoch, *_query_row(self.catalog, name, seen[name])) for name in sorted(seen)
        ]

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

    def _seen_by_query(self) -> dict[str, OperatorObservation]:
        """The queries with results or rows on which they failed, by name."""
        seen = {name: each for name, each in self.seen.operators.items() if self._is_of_query(name)}
        for name, inner in self.seen.operators.items():
            owner = owner_of(name)
            if owner != name and owner in seen:
                rejected, state_rows = inner.rejected, inner.state_rows
                seen[owner] = seen[owner].plus(OperatorObservation(rejected=rejected, state_rows=state_rows))
        names = {query.operator_id: query.definition.name for query in self.catalog.queries.values()}
        return {
            names[operator]: each
            for operator, each in seen.items()
            if operator in names and (each.results or each.rejected)
        }

    def _changed(self) -> Collection[str]:
        """The queries of which the entries change the definition or the state."""
        of_queries = (entry.get("query", entry) for entry in self.entries if is_of_query(entry))
        named = {name for entry in of_queries for name in (entry["name"], entry.get("to", entry["name"]))}
        found = {name: self.catalog.query(name) for name in named}
        return {name if query is None else query.definition.name for name, query in found.items()}


_ROWS: Final[Mapping[str, Callable[[Measured], list[Row]]]] = {
    EPOCHS: Measured.of_epoch,
    STREAMS: Measured.of_streams,
    QUERIES: Measured.of_queries,
}


def _query_row(catalog: Catalog, name: str, seen: OperatorObservation) -> Row:
    query = catalog.query(name)
    counts = seen.rows_in, seen.rows_kept, seen.results, seen.rejected, seen.state_rows
    if query is None:
        return name, "dropped", *counts, None
    definition = query.definition
    state = "failed" if definition.failure is not None else "paused" if definition.paused else "live"
    return definition.name, state, *counts, definition.failure


def as_table(stream: StreamDefinition, rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of the stream's schema."""
    schema = stream.schema.arrow()
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
    )

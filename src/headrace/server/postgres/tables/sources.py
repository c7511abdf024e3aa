"""The tables that a PostgreSQL client sees, each as columns and batches of rows for DuckDB: a query's committed results
and its current answer, a stream's archive, a relation's rows. Queries of other owners are no tables for an owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final

import pyarrow as pa

from headrace.archive import runs
from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.base.group_codes import ints
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.home.run_cache import load_relation
from headrace.runtime.hub.hub import Hub
from headrace.server.security.principal import Principal

PUBLIC: Final = "public"
"""The schema of results, streams and relations."""
ANSWERS: Final = "answers"
"""The schema of current answers: INVOKE as a table."""
_BATCH_ROWS: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class Source:
    """A table: its columns, and its rows, read again for each scan of it and no further than the scan goes."""

    schema: pa.Schema
    rows: Callable[[], Iterator[pa.Table]]
    failures: list[Exception] = field(default_factory=list)
    """What `rows` has raised: the reader passes on its text alone, with a stack trace."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches()).__arrow_c_stream__(
            requested_schema
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for table in self.rows():
                yield from table.cast(self.schema).to_batches()
        except Exception as error:
            self.failures.append(error)
            raise


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a hub that a principal sees."""

    hub: Hub
    principal: Principal

    def names(self) -> Iterator[tuple[str, str]]:
        """(schema, name) of every table."""
        catalog = self.hub.catalog
        for query in catalog.queries.values():
            if self.principal.sees(query.definition):
                yield PUBLIC, query.definition.name
                yield ANSWERS, query.definition.name
        for stream in catalog.streams.values():
            yield PUBLIC, stream.name
        for relation in catalog.relations.values():
            yield PUBLIC, relation.definition.name

    def columns_of(self, schema: str, name: str) -> pa.Schema:
        """The columns of a table that exists."""
        source = self.table(schema, name)
        return pa.schema([]) if source is None else source.schema

    def table(self, schema: str, name: str) -> Source | None:
        """The table of that name; None if there is none."""
        hub, catalog = self.hub, self.hub.catalog
        if (query := catalog.query(name)) is not None:
            if not self.principal.sees(query.definition):
                return None
            handle = hub.query(name)
            if schema == ANSWERS:
                return Source(handle.schema.arrow(), lambda: iter([handle.invoke()]))
            return Source(handle.history_schema, handle.history_in_parts)
        if schema == ANSWERS:
            return None
        if (stream := catalog.stream(name)) is not None:
            return Source(stream.schema.arrow(), lambda: _archived(hub, stream))
        if (relation := catalog.relation(name)) is not None:
            columns = relation.definition.schema.arrow()
            return Source(
                columns, lambda: iter([load_relation(hub.home.store, relation.file).select(columns.names)])
            )
        return None


def _archived(hub: Hub, stream: StreamDefinition) -> Iterator[pa.Table]:
    """The accepted rows of a stream's archive, in no order.

    Raises `UserError` for a stream without one.
    """
    if stream.archive != "copy":
        raise UserError(
            f"the stream '{stream.name}' keeps no copy of its rows (archive '{stream.archive}')",
            remedy="A standing query over it has its rows as results.",
        )
    home = hub.home
    for value in home.entries(home.latest(), f"archive:{stream.name}"):
        for piece in ArchiveEntry.from_json(value).pieces:
            file = RunFile.of(home.store.map(piece.file), piece.file)
            for batch in file.batches(_BATCH_ROWS, [*stream.schema.names, runs.FATE], piece.groups):
                rows: Any = pa.Table.from_batches([batch])
                yield rows.filter(pa.array(ints(rows, runs.FATE) == runs.ACCEPTED)).select(
                    stream.schema.names
                )

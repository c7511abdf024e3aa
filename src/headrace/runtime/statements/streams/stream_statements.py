"""CREATE STREAM, ALTER STREAM, CREATE REDUCER and DROP REDUCER: checked, then logged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.catalog.definition_json import reducer_to_json, to_json
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.options import settle
from headrace.connectors.sources.listing import not_there_yet
from headrace.connectors.sources.source_reader import require_usable
from headrace.dataclass import dataclass
from headrace.errors import NameTaken, UnknownName, UserError, did_you_mean
from headrace.language.statements import statement as stmt
from headrace.language.statements.clauses.reductions import with_columns
from headrace.runtime.home.file_names import require_name
from headrace.runtime.statements.change_batch import CatalogChanges
from headrace.runtime.statements.definition_diff import differences, refuse_if_read, require_free
from headrace.runtime.statements.outcome import Outcome


@dataclass(frozen=True, slots=True)
class StreamStatements:
    """Executes them. `check_source` tries what only Spark can open, before a stream of it is made."""

    _changes: CatalogChanges
    _check_source: Callable[[StreamDefinition], None]

    @property
    def _catalog(self) -> Catalog:
        """The catalog with the changes that wait."""
        return self._changes.catalog

    def create(self, statement: stmt.CreateStream) -> Outcome:
        """CREATE STREAM."""
        return self.put(statement.definition, replacing=statement.replace, is_frame=False)

    def put(self, new: StreamDefinition, *, replacing: bool, is_frame: bool) -> Outcome:
        """A stream of that definition; `is_frame`: of a streaming DataFrame, which a program has checked."""
        definition = settle(new, Path.cwd())
        existing = self._catalog.stream(definition.name)
        if existing is not None and not differences(self._catalog, existing, definition):
            return Outcome("create", definition.name, f"stream {definition.name} is there already")
        require_free(self._catalog, definition.name, existing, definition, replacing)
        require_name("stream", definition.name)
        require_usable(definition)
        dropped: list[dict[str, Any]] = []
        if existing is not None and _rows_of(existing) != _rows_of(definition):
            refuse_if_read(self._catalog, "stream", definition.name)
            dropped = [{"do": "drop", "kind": "stream", "name": definition.name}]
        if existing is not None and not dropped and existing.reducers and definition.blocks == 1:
            raise UserError(
                f"the reducers of '{definition.name}' need random parts of its archive",
                remedy="Keep the option blocks, or DROP REDUCER first.",
            )
        if existing is not None and existing.constraints != definition.constraints:
            refuse_if_read(self._catalog, "stream", definition.name, "constraints")
        if not is_frame:
            self._check_source(definition)
        self._changes.log(*dropped, {"do": "create_stream", "stream": to_json(definition)})
        message = f"stream {definition.name} created"
        return Outcome("create", definition.name, message, warning=not_there_yet(definition))

    def set(self, statement: stmt.SetStream) -> Outcome:
        """In force from the next epoch on; earlier rows stay as they were sampled."""
        existing = self._catalog.require_stream(statement.name)
        if self._catalog.sample_rate_of(existing.name) != statement.keep:
            self._changes.log({"do": "keep", "name": existing.name, "keep": statement.keep})
        message = f"stream {existing.name} keeps {statement.keep:g} of its rows for queries WITH SHEDDING"
        return Outcome("alter", existing.name, message)

    def create_reducer(self, statement: stmt.CreateReducer) -> Outcome:
        """From the next epoch on the archive has a copy by the reducer: of what it has now, and of later rows."""
        stream, name = self._catalog.require_stream(statement.stream), statement.reducer.name
        require_name("reducer", name)
        if stream.blocks == 1:
            raise UserError(
                f"the archive of '{stream.name}' has no random parts, so it has no copies that are samples",
                span=statement.at,
                remedy="CREATE OR REPLACE STREAM with the option blocks '16'.",
            )
        try:
            reducer = replace(
                statement.reducer, reduction=with_columns(statement.reducer.reduction, stream.schema)
            )
        except UserError as error:
            raise UserError(error.message, span=statement.at, remedy=error.remedy) from None
        existing = next((one for one in stream.reducers if one.name.lower() == name.lower()), None)
        if existing is not None and existing.reduction == reducer.reduction:
            return Outcome("create", name, f"reducer {name} on {stream.name} is there already")
        if existing is not None and not statement.replace:
            raise NameTaken(
                f"the reducer '{existing.name}' on {stream.name} exists, and is {existing.reduction}",
                remedy="CREATE OR REPLACE takes the new definition, and makes its copy again.",
            )
        self._changes.log({"do": "put_reducer", "stream": stream.name, "reducer": reducer_to_json(reducer)})
        return Outcome("create", name, f"reducer {name} on {stream.name} created")

    def drop_reducer(self, statement: stmt.DropReducer) -> Outcome:
        """Its copy is deleted; the archive stays as it is."""
        stream, name = self._catalog.require_stream(statement.stream), statement.name
        names = [reducer.name.lower() for reducer in stream.reducers]
        if name.lower() not in names:
            if statement.if_exists:
                return Outcome("drop", name, f"there was no reducer {name} on {stream.name}")
            raise UnknownName(
                f"the stream '{stream.name}' has no reducer '{name}'", remedy=did_you_mean(name, names)
            )
        self._changes.log({"do": "drop_reducer", "stream": stream.name, "name": name})
        return Outcome("drop", name, f"reducer {name} on {stream.name} dropped")


def _rows_of(definition: StreamDefinition) -> tuple[object, ...]:
    """The columns, what gives a row its event time, and its random part: state and archive depend on them."""
    return definition.schema, definition.time, definition.time_expression, definition.blocks_by

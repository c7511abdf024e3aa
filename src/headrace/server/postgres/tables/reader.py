"""The reader of tables: executes a client's SELECT over the tables that it sees in a DuckDB that is in memory and has no access
to files or the network; `Rows` has the result, which is read part by part.

It opens no file and no network, has one thread and little memory, and holds no data: every table is a stream of Arrow
batches that is read while the statement runs. Decision 33 gives the reasons why its dialect is PostgreSQL's, and not that of queries.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import partial
from typing import Any, Final

import duckdb
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.server.postgres.protocol.problems import Failed, of_stream, problem_of
from headrace.server.postgres.tables.sources import ANSWERS, PUBLIC, Tables
from headrace.server.postgres.tables.sql_text import Edited, for_reader, late_or_rejects, tokens
from headrace.server.postgres.tables.system_tables import SystemTables, script

AGAIN_SECONDS: Final = 0.05
"""Between two interruptions of a statement that should end."""
_BATCH_ROWS: Final = 10_000
_LIMITS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": "1",
    "memory_limit": "512MB",
    "max_temp_directory_size": "0KB",
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
}
_SETTINGS: Final = """
    SET integer_division = true;
    SET default_null_order = 'nulls_last_on_asc_first_on_desc';
    SET python_enable_replacements = false;
"""
"""As in PostgreSQL: 5 / 2 is 2, and NULL is greater than all values."""
_CALL: Final = re.compile(r'"?(\w+)"?\(.*\)', re.DOTALL)


@dataclass(slots=True)
class Rows:
    """The rows of a statement, from which the next ones are taken. Used by one thread at a time."""

    schema: pa.Schema
    tables: Iterator[pa.Table]
    text: Edited | None = None
    """What the reader was given, for the places of its errors."""
    end: Callable[[], None] = lambda: None
    """Called when no more is taken; calling it again is harmless."""
    using: AbstractContextManager[Any] = field(default_factory=nullcontext)
    """Held while rows are taken."""
    failures: Sequence[Exception] = ()
    """Of the tables that are read."""
    taken: int = 0
    _rest: pa.Table | None = None

    @staticmethod
    def of(table: pa.Table) -> Rows:
        """The rows of a table."""
        return Rows(table.schema, iter([table]))

    def take(self, most: int) -> pa.Table | None:
        """The next rows, at most so many, `most` 0: as many as come together; None at the end."""
        try:
            with self.using:
                while self._rest is None or not self._rest.num_rows:
                    self._rest = next(self.tables)
        except StopIteration:
            self.end()
            return None
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise _failed(of_stream(error), self.text, self.failures) from None
        rows = self._rest if not most else self._rest.slice(0, most)
        self._rest = self._rest.slice(rows.num_rows)
        self.taken += rows.num_rows
        return rows


@dataclass(slots=True)
class TableReader:
    """The reader of one session; made with its first SELECT."""

    tables: Tables
    user: str = "headrace"
    """As the client calls itself: `current_user`."""
    _database: duckdb.DuckDBPyConnection | None = None
    _reading: list[duckdb.DuckDBPyConnection] = field(default_factory=list)
    _system: SystemTables = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Of the list above."""
    _using: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that reads."""

    def __post_init__(self) -> None:
        self._system = SystemTables(self.tables)

    def select(self, text: str, zone: str) -> Rows:
        """The rows of a SELECT, of which none is read yet.

        Raises `Failed` for a text that is no SELECT, and for what the reader finds wrong with it.
        """
        edited, failures = for_reader(text), list[Exception]()
        with self._using:
            connection = self._connected(zone)
            try:
                _require_select(edited.text)
                self._require_no_part(text)
                self._provide(connection, text, failures)
                reader = connection.sql(edited.text).to_arrow_reader(_BATCH_ROWS)
            except duckdb.Error as error:
                failed = _failed(_with_place(error, connection, edited.text), edited, failures)
                self._end(connection)
                raise failed from None
            except BaseException:
                self._end(connection)
                raise
        schema = pa.schema([pa.field(_shown(column.name), column.type) for column in reader.schema])
        tables = (pa.Table.from_batches([batch]).rename_columns(schema.names) for batch in reader)
        return Rows(schema, tables, edited, partial(self._end, connection), self._using, failures)

    def interrupt(self) -> None:
        """End what is being read; from any thread. What begins a moment later is not ended: call it again."""
        with self._lock:
            for connection in self._reading:
                connection.interrupt()

    def close(self) -> None:
        """End what is being read, and release everything."""
        while not self._using.acquire(timeout=AGAIN_SECONDS):
            self.interrupt()
        try:
            for connection in list(self._reading):
                self._end(connection)
            if self._database is not None:
                self._database.close()
                self._database = None
        finally:
            self._using.release()

    def _connected(self, zone: str) -> duckdb.DuckDBPyConnection:
        if self._database is None:
            self._database = duckdb.connect(":memory:", config=_LIMITS)
            self._database.execute(
                "ATTACH ':memory:' AS headrace; USE headrace; CREATE SCHEMA public; CREATE SCHEMA answers;"
                "CREATE SCHEMA info_schema; CREATE SCHEMA pgc; SET search_path = 'pgc'"
            )
            self._add_system(self._database)
            self._database.execute(script(self.user))
        connection = self._database.cursor()
        with self._lock:
            self._reading.append(connection)
        try:
            self._add_system(connection)
            connection.execute(
                f"SET search_path = 'headrace.public,headrace.pgc'; SET TimeZone = '{zone}'; {_SETTINGS}"
            )
        except duckdb.Error as error:  # interrupted as early as this
            self._end(connection)
            raise _failed(error, None, ()) from None
        return connection

    def _add_system(self, connection: duckdb.DuckDBPyConnection) -> None:
        for name, source in self._system.sources().items():
            connection.register(name, source)

    def _require_no_part(self, text: str) -> None:
        """Refuse LATE and REJECTS after a stream, which queries have and which would be taken as an alias of its accepted rows."""
        for name, part in late_or_rejects(text):
            if self.tables.hub.catalog.stream(name.word) is not None:
                raise Failed(
                    "0A000",
                    f"{part.word} of a stream is read by queries only",
                    f"CREATE QUERY … FROM {name.text} {part.word}, and read its results. An alias needs AS.",
                    part.start + 1,
                )

    def _provide(self, connection: duckdb.DuckDBPyConnection, text: str, failures: list[Exception]) -> None:
        """Make views of all tables that a text may mean: those that have the name of one of its words."""
        words = {token.word.lower(): token for token in tokens(text) if token.word}
        for schema in (PUBLIC, ANSWERS) if ANSWERS in words else (PUBLIC,):
            for word in words:
                view = f'{schema}."{word.replace(chr(34), chr(34) * 2)}"'
                source = self.tables.table(schema, word)
                if source is None:
                    connection.execute(f"DROP VIEW IF EXISTS {view}")
                else:
                    name = f"{schema}.{word}"
                    connection.register(name, replace(source, failures=failures))
                    connection.execute(f'CREATE OR REPLACE VIEW {view} AS FROM temp.main."{name}"')

    def _end(self, connection: duckdb.DuckDBPyConnection) -> None:
        with self._lock:
            if connection in self._reading:
                self._reading.remove(connection)
                connection.close()


def _failed(error: Exception, edited: Edited | None, failures: Sequence[Exception]) -> Failed:
    """An error of the reader, at its place in the text that the client sent; that of a table, if there is one, is the reason for it."""
    if failures:
        return Failed.of(replace(problem_of(failures[0]), position=None))
    problem = problem_of(error, "" if edited is None else edited.text)
    if edited is not None and problem.position is not None:
        problem = replace(problem, position=edited.place(problem.position - 1) + 1)
    return Failed.of(problem)


def _with_place(error: duckdb.Error, connection: duckdb.DuckDBPyConnection, text: str) -> Exception:
    """The error of a statement that could not be bound, in the form that has its place."""
    if isinstance(error, duckdb.BinderException | duckdb.CatalogException):
        try:
            connection.execute(text)
        except duckdb.Error as placed:
            return placed
    return error


def _require_select(text: str) -> None:
    if [statement.type for statement in duckdb.extract_statements(text)] != [duckdb.StatementType.SELECT]:
        raise Failed("0A000", "this is no statement that reads tables", "Write a SELECT.")


def _shown(name: str) -> str:
    """A column's name as PostgreSQL would give it: of a call, that of the function."""
    call = _CALL.fullmatch(name)
    return name if call is None else {"count_star": "count"}.get(call[1], call[1])

"""PostgreSQL's wire protocol with one client that is admitted: simple queries, prepared statements and portals, and the
transfer of COPY's rows. Its startup is in `admission`; the statements themselves are executed by `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError
from headrace.server.postgres.admission import Startup, say_last
from headrace.server.postgres.copying import CopyIn, CopyOut
from headrace.server.postgres.protocol import frames
from headrace.server.postgres.protocol.frames import Body, Malformed
from headrace.server.postgres.protocol.parameters import literal
from headrace.server.postgres.protocol.problems import Failed, Problem, problem_of
from headrace.server.postgres.protocol.rows import copied_rows, data_rows, row_description
from headrace.server.postgres.protocol.types import BY_OID, OF_NAME, TEXT
from headrace.server.postgres.session import Answer, Revoked, Session
from headrace.server.postgres.tables.reader import Rows
from headrace.server.postgres.tables.sql_text import (
    Text,
    cast_parameters,
    parameters,
    statements,
    with_values,
)

START_SECONDS: Final = 10.0
"""For the startup and the password."""
IDLE_SECONDS: Final = 3600.0
"""Until the next message, and for a client to take what is sent."""
_ROWS: Final = 10_000
_MOST_PREPARED: Final = 1_000
_MOST_PARAMETERS: Final = 65_535
_LARGEST_COPY: Final = 64 << 20
_BEGINNING: Final = (b"Q", b"P", b"E")
"""Messages that begin a statement."""


class _Gone(Exception):
    """The client has closed the connection."""


class _Idle(Exception):
    """The client has sent or taken nothing for too long."""


@dataclass(slots=True)
class _Prepared:
    text: str
    types: list[int]


@dataclass(slots=True)
class _Portal:
    """A prepared statement with its values; `answer` once it was run."""

    text: Text | None
    formats: list[int]
    answers: list[Answer] | CopyIn | CopyOut | None = None

    def end(self) -> None:
        """Take no more of its rows."""
        for answer in self.answers if isinstance(self.answers, list) else []:
            if answer.rows is not None:
                answer.rows.end()


@dataclass(slots=True)
class Connection:
    """The protocol with one client."""

    session: Session
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    startup: Startup
    _prepared: dict[str, _Prepared] = field(default_factory=dict)
    _portals: dict[str, _Portal] = field(default_factory=dict)
    _skipping: bool = False
    """Whether messages are ignored until the next Sync, after an error."""

    async def serve(self) -> None:
        """Answer until the client leaves. Raises nothing that a client can cause."""
        try:
            async with asyncio.timeout(START_SECONDS):
                admitted = await self.startup.admits()
            if admitted:
                await self._messages()
        except Malformed as error:
            await say_last(self.writer, Problem("08P01", str(error)))
        except Revoked:
            await say_last(
                self.writer, Problem("28P01", "terminating connection: the token was revoked or has expired")
            )
        except (_Idle, TimeoutError):
            await say_last(self.writer, Problem("57P05", "terminating connection: it was idle for too long"))
        except (_Gone, asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            await asyncio.to_thread(self.session.close)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def _messages(self) -> None:
        handlers: dict[bytes, Callable[[Body], Awaitable[None]]] = {
            b"Q": self._query,
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"S": self._sync,
            b"H": self._flush,
            b"F": self._function,
        }
        while True:
            kind, body = await self._received()
            if kind == b"X":
                return
            if kind in (b"d", b"c", b"f"):  # of a COPY that has failed
                continue
            if kind not in handlers:
                raise Malformed(f"invalid frontend message type {kind[0]}", lost=True)
            if self._skipping and kind != b"S":
                continue
            await self._handle(kind, handlers[kind], body)

    async def _handle(self, kind: bytes, handler: Callable[[Body], Awaitable[None]], body: Body) -> None:
        if kind in _BEGINNING and not await self.startup.holds():
            raise Revoked
        try:
            with self.session.limited():
                await handler(body)
        except (_Gone, _Idle, Revoked):
            raise
        except Malformed as error:
            if error.lost:
                raise
            await self._failed(Problem("08P01", str(error)), kind)
        except Exception as error:  # noqa: BLE001 - every error is a message to the client, and a fault is logged
            await self._failed(problem_of(error), kind)

    async def _failed(self, problem: Problem, kind: bytes) -> None:
        self.session.fail()
        self.writer.write(problem.as_error())
        if kind == b"Q":
            await self._sync(Body(b""))
        else:
            self._skipping = kind != b"S"

    async def _sync(self, _: Body) -> None:
        self._skipping = False
        while self.session.status == b"I" and self._portals:
            self._portals.popitem()[1].end()
        self.writer.write(frames.ready(self.session.status))
        await self._drained()

    async def _flush(self, _: Body) -> None:
        await self._drained()

    async def _function(self, _: Body) -> None:
        raise Failed("0A000", "calls of functions by number are not supported")

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self.writer.drain()
        except ConnectionError as error:
            raise _Gone from error
        except TimeoutError as error:
            raise _Idle from error

    async def _received(self) -> tuple[bytes, Body]:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                return await frames.read_message(self.reader)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise _Gone from error
        except TimeoutError as error:
            raise _Idle from error

    # -- simple queries ----------------------------------------------------------------------------------------------

    async def _query(self, body: Body) -> None:
        pieces = self._units(body.text())
        if not pieces:
            self.writer.write(frames.EMPTY_QUERY)
        for piece in pieces:
            try:
                await self._carry_out(piece)
            except (HeadraceError, Failed) as error:
                raise Failed.of(problem_of(error).moved(piece.start)) from None
        await self._sync(Body(b""))

    def _units(self, message: str) -> list[Text]:
        """The statements of a message; those of the hub that follow one another are one script, all or none."""
        units: list[Text] = []
        for piece in statements(message):
            if units and self.session.is_of_hub(units[-1]) and self.session.is_of_hub(piece):
                start = units.pop().start
                units.append(Text(message[start : piece.start + len(piece.text)], start))
            else:
                units.append(piece)
        return units

    async def _carry_out(self, text: Text) -> None:
        answers = await self.session.run(text)
        if not isinstance(answers, list):
            await self._copy(answers)
            return
        for answer in answers:
            self._announce(answer)
            if answer.rows is not None:
                formats = [0] * len(answer.rows.schema)
                self.writer.write(row_description(answer.rows.schema, formats))
                await self._send(answer.rows, formats)
            self.writer.write(frames.command_complete(_tag(answer)))

    def _announce(self, answer: Answer) -> None:
        for notice in answer.notices:
            self.writer.write(notice.as_notice("NOTICE" if notice.code == "00000" else "WARNING"))
        for name in answer.changed:
            self.writer.write(frames.parameter_status(name, self.session.settings.reported[name]))

    async def _send(self, rows: Rows, formats: Sequence[int], most: int = 0) -> bool:
        """Send rows, `most` of them (0: all); whether there may be more."""
        left = most
        while not most or left:
            table = await asyncio.to_thread(rows.take, min(left, _ROWS) if most else _ROWS)
            if table is None:
                return False
            self.writer.write(await asyncio.to_thread(data_rows, table, formats))
            await self._drained()
            left -= table.num_rows
        return True

    async def _copy(self, copy: CopyIn | CopyOut) -> None:
        count = await (self._copied_in(copy) if isinstance(copy, CopyIn) else self._copied_out(copy))
        self.writer.write(frames.command_complete(f"COPY {count}"))

    async def _copied_out(self, copy: CopyOut) -> int:
        """Copy rows to the client; how many."""
        schema, tables = await self.session.copied(copy)
        self.writer.write(frames.copy_out(len(schema)))
        if (header := copy.header(schema)) is not None:
            self.writer.write(copied_rows(header, is_csv=copy.is_csv))
        count = 0
        async for table in tables:
            self.writer.write(await asyncio.to_thread(copied_rows, table, is_csv=copy.is_csv))
            await self._drained()
            count += table.num_rows
            if self.reader.at_eof():
                raise _Gone
        self.writer.write(frames.COPY_DONE)
        return count

    async def _copied_in(self, copy: CopyIn) -> int:
        """The rows that a client copies; how many."""
        self.writer.write(frames.copy_in(len(copy.columns)))
        await self._drained()
        parts, size, problem = list[bytes](), 0, None
        while True:
            kind, body = await self._received()
            if kind == b"d":
                size += len(body.data)
                if size > _LARGEST_COPY:
                    problem, parts = (
                        Failed("54000", f"more than {_LARGEST_COPY:,} bytes", "Copy them in parts."),
                        [],
                    )
                else:
                    parts.append(body.data)
            elif kind == b"c":
                if problem is not None:
                    raise problem
                return await self.session.finish(copy, b"".join(parts))
            elif kind == b"f":
                raise Failed("57014", f"COPY from stdin failed: {body.text()}")
            elif kind not in (b"H", b"S"):
                raise Malformed(f"unexpected message type {kind[0]} during COPY from stdin", lost=True)

    # -- prepared statements -----------------------------------------------------------------------------------------

    async def _parse(self, body: Body) -> None:
        name, text = body.text(), body.text()
        types = [body.int32() & 0xFFFFFFFF for _ in range(body.count())]
        if len(statements(text)) > 1:
            raise Failed("42601", "cannot insert multiple commands into a prepared statement")
        if name and name in self._prepared:
            raise Failed("42P05", f'prepared statement "{name}" already exists')
        if len(self._prepared) >= _MOST_PREPARED:
            raise Failed("54000", f"there are {_MOST_PREPARED} prepared statements")
        count = max(parameters(text), len(types))
        if count > _MOST_PARAMETERS:
            raise Failed("54023", f"a statement has at most {_MOST_PARAMETERS:,} parameters")
        casts = cast_parameters(Text(text))
        for index in range(count):
            if index == len(types):
                types.append(0)
            if not types[index]:
                known = OF_NAME.get(casts.get(index + 1, ""), TEXT)
                types[index] = known.oid
        self._prepared[name] = _Prepared(text, types)
        self.writer.write(frames.PARSE_COMPLETE)

    async def _bind(self, body: Body) -> None:
        portal, prepared = body.text(), self._statement(body.text())
        forms = [body.int16() for _ in range(body.count())]
        values = [body.sized() for _ in range(body.count())]
        formats = [body.int16() for _ in range(body.count())]
        if len(values) != len(prepared.types) or len(forms) not in (0, 1, len(values)):
            raise Failed(
                "08P01", f"{len(values)} parameters are bound, and the statement has {len(prepared.types)}"
            )
        if {*forms, *formats} - {0, 1}:
            raise Failed("08P01", "a format is 0 (text) or 1 (binary)")
        if portal and portal in self._portals:
            raise Failed("42P03", f'portal "{portal}" already exists')
        forms = forms * len(values) if len(forms) == 1 else forms or [0] * len(values)
        constants = [literal(*parameter) for parameter in zip(prepared.types, forms, values, strict=True)]
        if (written := statements(prepared.text)) and self.session.is_of_hub(written[0]):
            constants = [
                constant.replace("\\", "\\\\") for constant in constants
            ]  # which the hub's language unescapes
        texts = statements(with_values(prepared.text, constants))
        if portal in self._portals:
            self._portals[portal].end()
        self._portals[portal] = _Portal(texts[0] if texts else None, formats)
        self.writer.write(frames.BIND_COMPLETE)

    async def _describe(self, body: Body) -> None:
        kind, name = body.take(1), body.text()
        if kind == b"S":
            await self._describe_statement(self._statement(name))
        elif kind == b"P" and name in self.session.cursors and name not in self._portals:
            schema = self.session.cursors[name].schema
            self.writer.write(row_description(schema, [0] * len(schema)))
        elif kind == b"P":
            portal = self._portal(name)
            schema = None if portal.text is None else await self._columns(portal)
            formats = [] if schema is None else _formats(portal.formats, len(schema))
            self.writer.write(frames.NO_DATA if schema is None else row_description(schema, formats))
        else:
            raise Malformed("what is to be described is S or P")

    async def _describe_statement(self, prepared: _Prepared) -> None:
        self.writer.write(frames.parameter_types(prepared.types))
        nulls = [
            "NULL" if oid in (0, TEXT.oid) or oid not in BY_OID else f"NULL::{BY_OID[oid].name}"
            for oid in prepared.types
        ]
        texts = statements(with_values(prepared.text, nulls))
        schema = None
        if texts:
            described = _Portal(texts[0], [])
            schema = await self._columns(described)
            described.end()
        self.writer.write(frames.NO_DATA if schema is None else row_description(schema, [0] * len(schema)))

    async def _columns(self, portal: _Portal) -> pa.Schema | None:
        """The columns of what a portal returns; None for what returns nothing."""
        assert portal.text is not None
        if portal.answers is None and self.session.shows(portal.text):
            portal.answers = await self.session.run(portal.text)
        if isinstance(portal.answers, list):
            rows = portal.answers[0].rows
            return None if rows is None else rows.schema
        return self.session.columns(portal.text)

    async def _execute(self, body: Body) -> None:
        portal, most = self._portal(body.text()), body.int32()
        if portal.text is None:
            self.writer.write(frames.EMPTY_QUERY)
            return
        if portal.answers is None:
            portal.answers = await self.session.run(portal.text)
        if not isinstance(portal.answers, list):
            await self._copy(portal.answers)
            return
        (answer,) = portal.answers
        if answer.rows is None or not answer.rows.taken:
            self._announce(answer)
        if answer.rows is not None:
            formats = _formats(portal.formats, len(answer.rows.schema))
            if await self._send(answer.rows, formats, max(most, 0)):
                self.writer.write(frames.PORTAL_SUSPENDED)
                return
        self.writer.write(frames.command_complete(_tag(answer)))

    async def _close(self, body: Body) -> None:
        kind, name = body.take(1), body.text()
        if kind == b"S":
            self._prepared.pop(name, None)
        elif kind == b"P":
            if name in self._portals:
                self._portals.pop(name).end()
        else:
            raise Malformed("what is to be closed is S or P")
        self.writer.write(frames.CLOSE_COMPLETE)

    def _statement(self, name: str) -> _Prepared:
        if name not in self._prepared:
            raise Failed("26000", f'prepared statement "{name}" does not exist')
        return self._prepared[name]

    def _portal(self, name: str) -> _Portal:
        if name not in self._portals:
            raise Failed("34000", f'portal "{name}" does not exist')
        return self._portals[name]


def _tag(answer: Answer) -> str:
    return answer.tag if answer.rows is None else f"{answer.tag} {answer.rows.taken}"


def _formats(formats: Sequence[int], columns: int) -> list[int]:
    """The format of each column: given for all, for each, or text."""
    if len(formats) in (0, 1):
        return list(formats or [0]) * columns
    if len(formats) != columns:
        raise Failed("08P01", f"{len(formats)} formats are bound, and there are {columns} columns")
    return list(formats)

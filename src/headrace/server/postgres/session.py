"""The session of one PostgreSQL client, without the wire protocol: executes its statements and keeps its settings,
transaction state, cursors and time limits; a statement under way can be cancelled.

SELECT goes to the reader of tables (DuckDB), COPY and INSERT to `copying`; cursors, settings and transactions are answered here; every
other statement is executed by the hub, and those that change something are written to the audit log.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.runtime.hub.hub import Hub
from headrace.runtime.statements.outcome import Outcome
from headrace.server.following import Publications
from headrace.server.postgres.copying import CopyIn, CopyOut, Insert
from headrace.server.postgres.following import FollowingCursor
from headrace.server.postgres.protocol.problems import Failed, Problem, problem_of
from headrace.server.postgres.settings import Settings, name_of
from headrace.server.postgres.tables.reader import AGAIN_SECONDS, Rows, TableReader
from headrace.server.postgres.tables.sources import Tables
from headrace.server.postgres.tables.sql_text import Text, statements
from headrace.server.security.permissions import Permissions

_READS: Final = ("SELECT", "WITH", "VALUES", "TABLE", "(")
_SHOWS: Final = ("INVOKE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN")
"""Statements of the hub that show something and change nothing."""
_ENDS: Final = ("COMMIT", "END", "ROLLBACK", "ABORT")
_FETCH: Final = re.compile(
    r"FETCH\s+(?:(?:NEXT|FORWARD)\b\s*)?(?:(ALL|[0-9]+)\b\s*)?(?:(?:FROM|IN)\s+)?(\"(?:[^\"]|\"\")*\"|\w+)\s*",
    re.IGNORECASE | re.DOTALL,
)
_BATCH_ROWS: Final = 10_000
_LOOK_SECONDS: Final = 1.0
"""Until it is found out that a client which gets no rows has left, or that its token was revoked."""
_ALL: Final = 1 << 20
"""Rows that FETCH ALL takes at most of a cursor that follows: it would not end."""


class Revoked(Exception):
    """The token of the connection is not valid any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement did: the tag of its completion, to which the number of rows is added where it has any."""

    tag: str
    rows: Rows | None = None
    notices: tuple[Problem, ...] = ()
    changed: tuple[str, ...] = ()
    """Settings that have another value now."""


@dataclass(slots=True)
class Session:
    """The state of one connection. Its statements run one after the other, and may be cancelled from outside."""

    hub: Hub
    publications: Publications
    permissions: Permissions
    audit: Callable[..., None]
    """Writes a line of the audit log: a principal, and the `statement`, `status` and `message` of `of_tool`."""
    settings: Settings = field(default_factory=Settings)
    status: bytes = b"I"
    """I, T or E, as `ready` of `frames` describes it."""
    cursors: dict[str, Rows | FollowingCursor] = field(default_factory=dict)
    reader: TableReader = field(init=False)
    holds: Callable[[], Awaitable[bool]] | None = None
    """Whether its token is still valid; None: it needs none."""
    _has_changed: bool = False
    """Whether a statement of this transaction has taken effect."""
    _ended: str | None = None
    """Why the statement under way was ended; None: it was not."""
    _timer: asyncio.TimerHandle | None = None
    """Ends it after its time."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _actions: dict[str, Callable[[Text], Awaitable[Answer | CopyIn | CopyOut]]] = field(init=False)

    def __post_init__(self) -> None:
        self.reader = TableReader(Tables(self.hub, self.permissions.principal))
        self._actions = {
            **dict.fromkeys(_READS, self._select),
            **dict.fromkeys(("BEGIN", "START"), self._begin),
            **dict.fromkeys(_ENDS, self._end),
            **dict.fromkeys(
                ("SAVEPOINT", "RELEASE", "DEALLOCATE", "LISTEN", "UNLISTEN", "RESET"), self._nothing
            ),
            "SET": self._set,
            "SHOW": self._show,
            "DECLARE": self._declare,
            "FETCH": self._fetch,
            "CLOSE": self._close,
            "DISCARD": self._discard,
            "INSERT": self._insert,
            "COPY": self._copy,
        }

    def admit(self, permissions: Permissions, holds: Callable[[], Awaitable[bool]]) -> None:
        """Give the session the permissions of a token; `holds`: whether that is still valid."""
        self.permissions, self.holds = permissions, holds
        self.reader = TableReader(Tables(self.hub, permissions.principal))

    def is_of_hub(self, text: Text) -> bool:
        """Whether the hub executes a statement, not the session."""
        return _first(text) not in self._actions or (
            _first(text) == "SHOW" and self.settings.shown(_asked(text)) is None
        )

    def shows(self, text: Text) -> bool:
        """Whether a statement has rows and may be repeated: its columns can be found out by running it."""
        return _first(text) in _READS or _first(text) in _SHOWS

    def _changes(self, text: Text) -> bool:
        return any(_first(statement) not in _SHOWS for statement in statements(text.text))

    def columns(self, text: Text) -> pa.Schema | None:
        """The columns of a FETCH."""
        match = _FETCH.fullmatch(text.text.strip())
        return None if match is None else self._cursor(name_of(match[2])).schema

    async def run(self, text: Text) -> list[Answer] | CopyIn | CopyOut:
        """Run a statement, or several of the hub's; raises its errors. A COPY is what remains to be done."""
        if self.status == b"E" and _first(text) not in _ENDS:
            raise Failed(
                "25P02", "current transaction is aborted, commands ignored until end of transaction block"
            )
        action = self._actions.get(_first(text))
        if action is None or self.is_of_hub(text):
            return await asyncio.to_thread(self._of_hub, text)
        answer = await action(text)
        return [answer] if isinstance(answer, Answer) else answer

    @contextmanager
    def limited(self) -> Any:
        """A block that is ended by `cancel`, and after the statement's time."""
        loop = asyncio.get_running_loop()
        self._ended = None
        self._stop.clear()
        seconds = self.settings.seconds("statement_timeout")
        self._timer = loop.call_later(seconds, self.cancel, "statement timeout") if seconds else None
        try:
            yield
        except Failed as failed:
            if failed.problem.code == "57014" and self._ended is not None:
                raise self._cancelled() from None
            raise
        finally:
            self._stop.clear()
            self.time_is_unlimited()

    def time_is_unlimited(self) -> None:
        """Let the statement under way take any time."""
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self, reason: str = "user request") -> None:
        """End the statement under way: a SELECT, or a FETCH that waits. In the loop's thread."""
        self._ended = reason
        self._stop.set()
        self._interrupt()

    def _interrupt(self) -> None:
        if self._stop.is_set():
            self.reader.interrupt()
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._interrupt)

    def _cancelled(self) -> Failed:
        return Failed("57014", f"canceling statement due to {self._ended or 'user request'}")

    def fail(self) -> None:
        """A statement has failed."""
        if self.status == b"T":
            self.status = b"E"

    def close(self) -> None:
        """The connection is over; nothing is acknowledged."""
        self.cursors.clear()
        self.reader.close()

    # -- the hub -----------------------------------------------------------------------------------------------------

    def _of_hub(self, text: Text) -> list[Answer]:
        principal = self.permissions.principal
        try:
            outcomes = self.hub.execute_or_refuse(
                text.text, zone=self.settings.zone, permit=self.permissions.permit
            )
        except Exception as error:
            problem = problem_of(error)
            if problem.code == "42501" or self._changes(text):
                self.audit(principal, statement=text.text, status=problem.code, message=problem.message)
            raise
        if self._changes(text):
            self.audit(principal, statement=text.text)
        return [self._answer(outcome) for outcome in outcomes]

    def _answer(self, outcome: Outcome) -> Answer:
        notices = () if outcome.warning is None else (Problem("01000", outcome.warning),)
        if outcome.table is not None:
            return Answer("SELECT", Rows.of(outcome.table), notices)
        self._has_changed = True
        message = (Problem("00000", outcome.message),) if outcome.message else ()
        return Answer(outcome.kind.upper(), notices=(*message, *notices))

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _select(self, text: Text) -> Answer:
        return Answer("SELECT", await asyncio.to_thread(self.reader.select, text.text, self.settings.zone))

    # -- settings and transactions -----------------------------------------------------------------------------------

    async def _begin(self, _: Text) -> Answer:
        notices = (
            (Problem("25001", "there is already a transaction in progress"),) if self.status == b"T" else ()
        )
        self.status, self._has_changed = b"T", self._has_changed and self.status == b"T"
        return Answer("BEGIN", notices=notices)

    async def _end(self, text: Text) -> Answer:
        commits = _first(text) in ("COMMIT", "END") and self.status != b"E"
        if text.words[1:2] == ("TO",) or text.words[1:3] in (("WORK", "TO"), ("TRANSACTION", "TO")):
            self.status = b"T"
            return Answer("ROLLBACK")
        notices: tuple[Problem, ...] = ()
        if self.status == b"I":
            notices = (Problem("25P01", "there is no transaction in progress"),)
        elif not commits and self._has_changed:
            notices = (
                Problem(
                    "01000",
                    "statements of this transaction have taken effect, and stay",
                    "There is no rollback.",
                ),
            )
        if self.status != b"I":
            await asyncio.to_thread(self._close_all, acknowledging=commits)
        self.status, self._has_changed = b"I", False
        return Answer("COMMIT" if commits else "ROLLBACK", notices=notices)

    async def _nothing(self, text: Text) -> Answer:
        return Answer(_first(text))

    async def _discard(self, _: Text) -> Answer:
        await asyncio.to_thread(self._close_all, acknowledging=False)
        return Answer("DISCARD ALL")

    async def _set(self, text: Text) -> Answer:
        words = [token for token in text.tokens[1:] if token.word not in ("SESSION", "LOCAL")]
        if not words or words[0].word in ("TRANSACTION", "CHARACTERISTICS", "NAMES", "CONSTRAINTS", "ROLE"):
            return Answer("SET")
        name, rest = words[0].text, words[1:]
        if [token.word for token in words[:2]] == ["TIME", "ZONE"]:
            name, rest = "timezone", words[2:]
        elif rest and (rest[0].text == "=" or rest[0].word == "TO"):
            rest = rest[1:]
        value = "".join(
            token.text[1:-1] if token.kind in ("string", "quoted") else token.text for token in rest
        )
        return Answer("SET", changed=self.settings.put(name_of(name), value))

    async def _show(self, text: Text) -> Answer:
        name, value = self.settings.shown(_asked(text)) or ("", "")
        return Answer("SHOW", Rows.of(pa.table({name: [value]})))

    # -- cursors -----------------------------------------------------------------------------------------------------

    async def _declare(self, text: Text) -> Answer:
        words = [token.word for token in text.tokens]
        if "CURSOR" not in words or "FOR" not in words[words.index("CURSOR") :]:
            raise Failed("42601", "DECLARE name CURSOR FOR SELECT … or FOLLOW query is expected")
        at = words.index("FOR", words.index("CURSOR")) + 1
        name, inner = (
            name_of(text.tokens[1].text),
            Text(text.after(at), text.tokens[at].start if at < len(words) else 0),
        )
        if name in self.cursors:
            raise Failed("42P03", f'cursor "{name}" already exists')
        if _first(inner) == "FOLLOW":
            self.cursors[name] = await asyncio.to_thread(self._following, inner)
        elif _first(inner) in _READS:
            rows = (await self._select(inner)).rows
            assert rows is not None
            rows.text = None  # the statement that fetches has no place for their errors
            self.cursors[name] = rows
        else:
            raise Failed("0A000", "a cursor is FOR SELECT … or FOLLOW query")
        return Answer("DECLARE CURSOR")

    def _following(self, text: Text) -> FollowingCursor:
        match [token.word if token.kind == "name" else token.text for token in text.tokens[2:]]:
            case []:
                client = None
            case ["CLIENT", quoted] if quoted.startswith("'"):
                client = quoted[1:-1].replace("''", "'")
            case _:
                raise Failed("42601", "FOLLOW query [CLIENT 'name'] is expected")
        query = name_of(text.tokens[1].text)
        self.permissions.require_seen(self.hub.catalog, query)
        return FollowingCursor.of(self.hub, query, client)

    async def _fetch(self, text: Text) -> Answer:
        match = _FETCH.fullmatch(text.text.strip())
        if match is None:
            raise Failed(
                "0A000", "FETCH [FORWARD] [n | ALL] FROM name is expected", "Cursors move forward only."
            )
        cursor = self._cursor(name_of(match[2]))
        takes_all = match[1] is not None and match[1].upper() == "ALL"
        most = _ALL if takes_all else int(match[1] or 1)
        if isinstance(cursor, FollowingCursor):
            seconds = self.settings.seconds("follow_timeout")
            return Answer("FETCH", Rows.of(await self._wait_for(cursor, most, seconds)))
        if takes_all:
            return Answer("FETCH", Rows(cursor.schema, iter(partial(cursor.take, 0), None)))
        return Answer("FETCH", Rows.of(await asyncio.to_thread(_taken, cursor, most)))

    async def _wait_for(self, cursor: FollowingCursor, most: int, seconds: float) -> pa.Table:
        """The next rows of a query; none after so many seconds without them."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await asyncio.to_thread(cursor.acknowledge)
        while True:
            waiter = self.publications.waiter
            self.permissions.require_seen(self.hub.catalog, cursor.query)
            rows = await asyncio.to_thread(cursor.take, most)
            left = until - loop.time()
            if rows.num_rows or not most or left <= 0 or self.publications.ended:
                return rows
            waits = [asyncio.ensure_future(event.wait()) for event in (waiter, self._stop)]
            await asyncio.wait(waits, timeout=min(left, _LOOK_SECONDS), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if self._stop.is_set():
                raise self._cancelled()
            if self.holds is not None and not await self.holds():
                raise Revoked

    async def _close(self, text: Text) -> Answer:
        if text.words[1:] == ("ALL",):
            await asyncio.to_thread(self._close_all, acknowledging=True)
        else:
            name = name_of(text.tokens[1].text) if len(text.tokens) > 1 else ""
            cursor = self._cursor(name)
            await asyncio.to_thread(_closed, cursor, acknowledging=True)
            del self.cursors[name]
        return Answer("CLOSE CURSOR")

    def _close_all(self, *, acknowledging: bool) -> None:
        while self.cursors:
            _closed(self.cursors.popitem()[1], acknowledging=acknowledging)

    def _cursor(self, name: str) -> Rows | FollowingCursor:
        if name not in self.cursors:
            raise Failed("34000", f'cursor "{name}" does not exist')
        return self.cursors[name]

    # -- rows of the client ------------------------------------------------------------------------------------------

    async def _insert(self, text: Text) -> Answer:
        def push() -> int:
            insert = Insert.of(self.hub, text)
            try:
                selected = self.reader.select(insert.select, self.settings.zone)
                rows = _whole(selected, self.permissions.largest_body)
            except Failed as failed:
                raise insert.placed(failed) from None
            return self._pushed(rows.num_rows, lambda: insert.push(rows))

        self.permissions.require("register")
        count = await asyncio.to_thread(push)
        self._has_changed = True
        return Answer(f"INSERT 0 {count}")

    async def _copy(self, text: Text) -> CopyIn | CopyOut:
        if "STDIN" in (token.word for token in text.tokens):
            self.permissions.require("register")
            self._has_changed = True
            return await asyncio.to_thread(CopyIn.of, self.hub, text)
        return CopyOut.of(text)

    async def finish(self, copy: CopyIn, data: bytes) -> int:
        """Push the rows of a COPY FROM STDIN; how many."""

        def push() -> int:
            rows = copy.rows(data)
            return self._pushed(rows.num_rows, lambda: copy.push(rows))

        return await asyncio.to_thread(push)

    def _pushed(self, rows: int, push: Callable[[], int]) -> int:
        """Push so many rows, within the owner's quota."""
        self.permissions.quotas.take_rows(self.permissions.principal, rows)
        return push()

    async def copied(self, copy: CopyOut) -> tuple[pa.Schema, AsyncIterator[pa.Table]]:
        """The columns and the rows of a COPY TO STDOUT; those of FOLLOW do not end but with the client or the hub."""
        if _first(copy.source) == "FOLLOW":
            cursor = await asyncio.to_thread(self._following, copy.source)
            self.time_is_unlimited()
            return cursor.schema, self._followed(cursor)
        if _first(copy.source) not in _READS:
            raise Failed("0A000", "COPY has the rows of SELECT … or FOLLOW query")
        rows = (await self._select(copy.source)).rows
        assert rows is not None
        return rows.schema, _each(rows)

    async def _followed(self, cursor: FollowingCursor) -> AsyncIterator[pa.Table]:
        while not self.publications.ended:
            yield await self._wait_for(cursor, _BATCH_ROWS, _LOOK_SECONDS)


def _asked(text: Text) -> str:
    """What SHOW names."""
    return " ".join(token.text for token in text.tokens[1:])


def _first(text: Text) -> str:
    token = text.tokens[0]
    return token.word if token.kind == "name" else token.text


def _taken(rows: Rows, most: int) -> pa.Table:
    parts: Sequence[pa.Table] = []
    while most and (part := rows.take(most)) is not None:
        parts = [*parts, part]
        most -= part.num_rows
    return pa.concat_tables(parts) if parts else rows.schema.empty_table()


def _whole(rows: Rows, most_bytes: int) -> pa.Table:
    """All rows of an INSERT. Raises `Failed` where they are more than so many bytes: none of them is pushed."""
    parts, size = [rows.schema.empty_table()], 0
    while (part := rows.take(0)) is not None:
        parts.append(part)
        size += part.nbytes
        if size > most_bytes:
            rows.end()
            raise Failed("54000", f"the rows are more than {most_bytes:,} bytes", "Insert them in parts.")
    return pa.concat_tables(parts)


async def _each(rows: Rows) -> AsyncIterator[pa.Table]:
    while (table := await asyncio.to_thread(rows.take, _BATCH_ROWS)) is not None:
        yield table


def _closed(cursor: Rows | FollowingCursor, *, acknowledging: bool) -> None:
    if isinstance(cursor, Rows):
        cursor.end()
    elif acknowledging:
        cursor.acknowledge()

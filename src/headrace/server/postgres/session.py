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
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headrace.runtime.hub.hub import Hub
from headrace.runtime.statements.outcome import Outcome
from headrace.server.following import Publications
from headrace.server.postgres import copying
from headrace.server.postgres.copying import CopyIn, CopyOut
from headrace.server.postgres.following import FollowingCursor
from headrace.server.postgres.protocol.problems import Failed, Problem, problem_of
from headrace.server.postgres.tables.reader import AGAIN_SECONDS, Rows, TableReader
from headrace.server.postgres.tables.sql_text import Text, statements
from headrace.server.postgres.tables.system_tables import VERSION
from headrace.server.security.permissions import Permissions
from headrace.zones import rules_of

REPORTED: Final = {
    "server_version": f"{VERSION} (Headrace)",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "is_superuser": "off",
    "session_authorization": "headrace",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
}
"""Settings of which a client hears when it connects, and when they change."""
_OTHERS: Final = {
    "search_path": "public",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "60s",
    "follow_timeout": "10s",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "lc_collate": "C",
    "extra_float_digits": "1",
    "client_min_messages": "notice",
    "datestyle": "ISO, MDY",
}
_SHOWN: Final = {"time zone": "timezone", "transaction isolation level": "transaction_isolation"}
_READS: Final = ("SELECT", "WITH", "VALUES", "TABLE", "(")
_SHOWS: Final = ("INVOKE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN")
"""Statements of the hub that show something and change nothing."""
_ENDS: Final = ("COMMIT", "END", "ROLLBACK", "ABORT")
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "": 1e-3}
_FETCH: Final = re.compile(
    r"FETCH\s+(?:(?:NEXT|FORWARD)\b\s*)?(?:(ALL|[0-9]+)\b\s*)?(?:(?:FROM|IN)\s+)?(\"(?:[^\"]|\"\")*\"|\w+)\s*",
    re.IGNORECASE | re.DOTALL,
)
_BATCH_ROWS: Final = 10_000
_LOOK_SECONDS: Final = 1.0
"""Until it is found out that a client which gets no rows has left."""
_ALL: Final = 1 << 20
"""Rows that FETCH ALL takes at most of a cursor that follows: it would not end."""


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
    settings: dict[str, str] = field(default_factory=lambda: dict(REPORTED))
    status: bytes = b"I"
    """I, T or E, as `ready` of `frames` describes it."""
    cursors: dict[str, Rows | FollowingCursor] = field(default_factory=dict)
    reader: TableReader = field(init=False)
    _others: dict[str, str] = field(default_factory=lambda: dict(_OTHERS))
    _has_changed: bool = False
    """Whether a statement of this transaction has taken effect."""
    _ended: str | None = None
    """Why the statement under way was ended; None: it was not."""
    _timer: asyncio.TimerHandle | None = None
    """Ends it after its time."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _actions: dict[str, Callable[[Text], Awaitable[Answer | CopyIn | CopyOut]]] = field(init=False)

    def __post_init__(self) -> None:
        self.reader = TableReader(self.hub)
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

    def is_of_hub(self, text: Text) -> bool:
        """Whether the hub executes a statement, not the session."""
        return _first(text) not in self._actions or (_first(text) == "SHOW" and self._setting(text) is None)

    def shows(self, text: Text) -> bool:
        """Whether a statement has rows and may be repeated: its columns can be found out by running it."""
        return _first(text) in _READS or _first(text) in _SHOWS

    def _changes(self, text: Text) -> bool:
        return any(_first(statement) not in _SHOWS for statement in statements(text.text))

    def columns(self, text: Text) -> pa.Schema | None:
        """The columns of a FETCH."""
        found = _FETCH.fullmatch(text.text.strip())
        return None if found is None else self._cursor(_name(found[2])).schema

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
        seconds = seconds_of(self._others["statement_timeout"])
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
                text.text, zone=self.settings["TimeZone"], permit=self.permissions.permit
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
        return Answer(
            "SELECT", await asyncio.to_thread(self.reader.select, text.text, self.settings["TimeZone"])
        )

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
        return Answer("SET", changed=self.put(name, value))

    def put(self, name: str, value: str) -> tuple[str, ...]:
        """Change a setting; its name, where clients want to know.

        Raises `Failed` for a value that it cannot have.
        """
        name = _name(name)
        reported = {known.lower(): known for known in REPORTED}.get(name.lower())
        key = name.lower()
        if key == "timezone" and value.upper() in ("DEFAULT", "LOCAL"):
            value = "UTC"
        is_right = {
            "client_encoding": lambda: value.upper().replace("-", "") in ("UTF8", "UNICODE", "DEFAULT"),
            "timezone": lambda: rules_of(value) is not None and re.fullmatch(r"[\w/+:-]+", value),
            "datestyle": lambda: value.upper().startswith(("ISO", "DEFAULT")),
            "statement_timeout": lambda: seconds_of(value) is not None,
            "follow_timeout": lambda: seconds_of(value) is not None,
        }.get(key, lambda: True)()
        if not is_right:
            raise Failed("22023", f'invalid value for parameter "{name}": "{value}"')
        if reported is None:
            self._others[key] = value
            return ()
        if key not in ("application_name", "timezone"):
            return ()
        self.settings[reported] = value
        return (reported,)

    async def _show(self, text: Text) -> Answer:
        name, value = self._setting(text) or ("", "")
        return Answer("SHOW", Rows.of(pa.table({name: [value]})))

    def _setting(self, text: Text) -> tuple[str, str] | None:
        """The name and the value of the setting that SHOW names; None where it names none."""
        asked = " ".join(token.text for token in text.tokens[1:]).lower()
        name = _SHOWN.get(asked, asked)
        every = {known.lower(): value for known, value in self.settings.items()} | self._others
        every["timezone"] = self.settings["TimeZone"]
        return (name, every[name]) if name in every else None

    # -- cursors -----------------------------------------------------------------------------------------------------

    async def _declare(self, text: Text) -> Answer:
        words = [token.word for token in text.tokens]
        if "CURSOR" not in words or "FOR" not in words[words.index("CURSOR") :]:
            raise Failed("42601", "DECLARE name CURSOR FOR SELECT … or FOLLOW query is expected")
        at = words.index("FOR", words.index("CURSOR")) + 1
        name, inner = (
            _name(text.tokens[1].text),
            Text(text.after(at), text.tokens[at].start if at < len(words) else 0),
        )
        if name in self.cursors:
            raise Failed("42P03", f'cursor "{name}" already exists')
        if _first(inner) == "FOLLOW":
            self.cursors[name] = await asyncio.to_thread(self._following, inner)
        elif _first(inner) in _READS:
            rows = (await self._select(inner)).rows
            assert rows is not None
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
        return FollowingCursor.of(self.hub, _name(text.tokens[1].text), client)

    async def _fetch(self, text: Text) -> Answer:
        found = _FETCH.fullmatch(text.text.strip())
        if found is None:
            raise Failed(
                "0A000", "FETCH [FORWARD] [n | ALL] FROM name is expected", "Cursors move forward only."
            )
        cursor = self._cursor(_name(found[2]))
        most = 1 if found[1] is None else _ALL if found[1].upper() == "ALL" else int(found[1])
        if isinstance(cursor, FollowingCursor):
            seconds = seconds_of(self._others["follow_timeout"]) or 0.0
            return Answer("FETCH", Rows.of(await self._wait_for(cursor, most, seconds)))
        return Answer("FETCH", Rows.of(await asyncio.to_thread(_taken, cursor, most)))

    async def _wait_for(self, cursor: FollowingCursor, most: int, seconds: float) -> pa.Table:
        """The next rows of a query; none after so many seconds without them."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await asyncio.to_thread(cursor.acknowledge)
        while True:
            waiter = self.publications.waiter
            rows = await asyncio.to_thread(cursor.take, most)
            left = until - loop.time()
            if rows.num_rows or not most or left <= 0 or self.publications.ended:
                return rows
            waits = [asyncio.ensure_future(event.wait()) for event in (waiter, self._stop)]
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if self._stop.is_set():
                raise self._cancelled()

    async def _close(self, text: Text) -> Answer:
        if text.words[1:] == ("ALL",):
            await asyncio.to_thread(self._close_all, acknowledging=True)
        else:
            name = _name(text.tokens[1].text) if len(text.tokens) > 1 else ""
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
            stream, columns, select = copying.insert_as_select(self.hub, text)
            rows = self.reader.select(select, self.settings["TimeZone"])
            return copying.insert(self.hub, stream, columns, _taken(rows, _ALL))

        count = await asyncio.to_thread(push)
        self._has_changed = True
        return Answer(f"INSERT 0 {count}")

    async def _copy(self, text: Text) -> CopyIn | CopyOut:
        if "STDIN" in (token.word for token in text.tokens):
            self._has_changed = True
            return await asyncio.to_thread(CopyIn.of, self.hub, text)
        return CopyOut.of(text)

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


def seconds_of(text: str) -> float | None:
    """A length of time such as `500ms`, `10 s` or `60000`, in seconds; None for what is none."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min|h|)", text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2]]


def _first(text: Text) -> str:
    token = text.tokens[0]
    return token.word if token.kind == "name" else token.text


def _name(text: str) -> str:
    """A name as it is meant: in small letters unless it is quoted."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()


def _taken(rows: Rows, most: int) -> pa.Table:
    found: Sequence[pa.Table] = []
    while most and (part := rows.take(most)) is not None:
        found = [*found, part]
        most -= part.num_rows
    return pa.concat_tables(found) if found else rows.schema.empty_table()


async def _each(rows: Rows) -> AsyncIterator[pa.Table]:
    while (table := await asyncio.to_thread(rows.take, _BATCH_ROWS)) is not None:
        yield table


def _closed(cursor: Rows | FollowingCursor, *, acknowledging: bool) -> None:
    if isinstance(cursor, Rows):
        cursor.end()
    elif acknowledging:
        cursor.acknowledge()

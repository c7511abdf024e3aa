"""A direct evaluator in another engine: R(τ) is what SQLite makes of the rows that the windows hold at τ.

A query's text becomes SQL by writing for each window the SELECT that finds its rows among all rows of the stream; what changes
from one instant to the next is emitted. It shares nothing with the reference but the catalogue.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter

from headrace.algebra.query import Query
from headrace.time import MINUTE, SECOND
from tests.papers.query_catalogue import Asked, Coming, Emitted, Past, printed

UNITS = {"MINUTES": MINUTE, "SECONDS": SECOND}
BARE = re.compile(r"\bFROM (\w+)\b(?! ?\[)(?: (?!WHERE)(\w+))?")
PARENTHESISED = re.compile(r"\((\w+ \[[^\]]*\])\)")
WINDOW = re.compile(r"\b(\w+) \[([^\]]*)\](?: AS (\w+))?")
TO_STREAM = re.compile(r"\b([IDR])STREAM\(")


def translatable(asked: Asked, past: Past) -> bool:
    """Not what reads other queries of the catalogue, or windows over a SELECT."""
    return not re.search(r"\) AS \w+ \[", asked.text) and all(
        name in past.streams for name, _ in BARE.findall(asked.text)
    )


def emitted_by_sql(past: Past, rows: Coming, asked: Asked, query: Query) -> Emitted:
    """The answer of a query over the rows."""
    text, kind = as_relation(asked.text, query)
    text = PARENTHESISED.sub(
        r"\1", BARE.sub(lambda m: f"FROM {m[1]} [ROWS UNBOUNDED] AS {m[2] or m[1]}", text)
    )
    for stream in past.streams:
        text = re.sub(rf"\b{stream} IN\b", f"({', '.join(past.columns(stream))}) IN", text)
    read = {match[1] for match in WINDOW.finditer(text)}
    times = {row[past.time(stream)] for stream, row in rows if stream in read}
    shifts = {0, 1} | {reach(match[2]) + 1 for match in WINDOW.finditer(text)}
    instants = sorted(at + shift for at in times for shift in shifts)
    database, sql = filled(past, rows), WINDOW.sub(lambda match: held(past, *match.groups()), text)
    before: Counter[tuple[object, ...]] = Counter()
    changes = []
    for at in instants:
        now = Counter(database.execute(sql, {"t": at}).fetchall())
        came, gone = (list((one - other).elements()) for one, other in ((now, before), (before, now)))
        before = now
        if kind is not None:
            changes += [(at, row) for row in {"I": came, "D": gone, "R": list(now.elements())}[kind]]
        elif at <= max(times):
            changes += [(at, -1, row) for row in gone] + [(at, 1, row) for row in came]
    names = query.schema.names
    return printed(
        [(*instant_and_sign, dict(zip(names, row, strict=True))) for *instant_and_sign, row in changes], query
    )


def as_relation(text: str, query: Query) -> tuple[str, str | None]:
    """The SELECT without its relation-to-stream operator, and which that is."""
    text = " ".join(text.split())
    if match := TO_STREAM.search(text):
        end = text.index(")", match.end()) if match.start() else len(text) - 1
        return text[: match.start()] + text[match.end() : end] + text[end + 1 :], match[1]
    return text, "I" if query.emission == "stream" else None


def filled(past: Past, rows: Coming) -> sqlite3.Connection:
    """A database of all rows, each with its place in the order of arrival."""
    database = sqlite3.connect(":memory:")
    for name, body in past.functions.items():
        database.create_function(
            name,
            2,
            lambda *arguments, body=body: None if None in arguments else body(*arguments),
            deterministic=True,
        )
    for stream in past.streams:
        database.execute(f"CREATE TABLE {stream} ({', '.join(past.columns(stream))}, place)")
    for index, (stream, row) in enumerate(rows):
        values = [row[name] for name in past.columns(stream)] + [index]
        database.execute(f"INSERT INTO {stream} VALUES ({', '.join('?' * len(values))})", values)
    return database


def reach(window: str) -> int:
    """How long a row stays in a window of time."""
    match = re.fullmatch(r"RANGE (\d+) (\w+)", window)
    return int(match[1]) * UNITS[match[2].upper()] if match else 0


def held(past: Past, stream: str, window: str, alias: str | None) -> str:
    """The rows that a window holds at `:t`."""
    time, columns = past.time(stream), ", ".join(past.columns(stream))
    sql = f"SELECT {columns} FROM {stream} WHERE {time} <= :t"
    latest = f"ORDER BY {time} DESC, place DESC"
    if window == "NOW" or window.startswith("RANGE"):
        sql += f" AND {time} >= :t - {reach(window)}"
    elif match := re.fullmatch(r"ROWS (\d+)", window):
        sql += f" {latest} LIMIT {match[1]}"
    elif match := re.fullmatch(r"PARTITION BY (\w+) ROWS (\d+)", window):
        numbered = f"ROW_NUMBER() OVER (PARTITION BY {match[1]} {latest}) AS nth"
        sql = f"SELECT {columns} FROM (SELECT *, {numbered} FROM {stream} WHERE {time} <= :t) WHERE nth <= {match[2]}"
    else:
        assert window == "ROWS UNBOUNDED", window
    return f"({sql}) AS {alias or stream}"

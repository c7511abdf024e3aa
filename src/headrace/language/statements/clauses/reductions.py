"""The parser of reductions, the text of the option `reduce` and of CREATE REDUCER: `uniform(0.75)`, `age(7 DAYS 0.5)`,
`load(10 GB)`, `rows(100 PER host EVERY 1 HOUR)`, `error(2 PERCENT OF bytes PER host EVERY 1 HOUR)`, or several of them.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.catalog.reductions import UNITS, Counted, Load, Reduction
from headrace.errors import Span, UserError, did_you_mean
from headrace.language.statements.options import interval_option
from headrace.language.syntax.cursor import Cursor
from headrace.schema import Schema
from headrace.time import Duration

_DECIMAL: Final = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)
_PART: Final = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*(,|$)")
_SIZE: Final = re.compile(r"(\d+)\s*(B|KB|MB|GB|TB|PB)", re.ASCII | re.IGNORECASE)
_BEHIND: Final = re.compile(r"(\d+)\s+ROWS\s+BEHIND", re.ASCII | re.IGNORECASE)
_ROWS: Final = re.compile(r"(\d+)", re.ASCII)
_ERROR: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s+PERCENT\s+OF\s+(.+)", re.ASCII | re.IGNORECASE)
_INTERVALS: Final = re.compile(r"(.*?)(?:\s+PER\s+(.*?))?\s+EVERY\s+(.*)", re.IGNORECASE | re.DOTALL)
_EXAMPLES: Final = (
    "Write 'uniform(0.75)', 'age(7 DAYS 0.5, 30 DAYS 0.9)', 'load(10 GB)', 'rows(100 PER host EVERY 1 HOUR)' or "
    "'error(2 PERCENT OF bytes PER host EVERY 1 HOUR)'."
)


def reduction(cursor: Cursor, text: str, at: Span) -> Reduction:
    """The reduction that a text means; `at` is its place. Raises `UserError` for any other text."""
    parts: dict[str, tuple[str, str]] = {}
    place = 0
    while place < len(text) or not parts:
        match = _PART.match(text, place)
        kind = None if match is None else _KINDS.get(match[1].lower())
        if match is None or kind is None or (match[3] and match.end() == len(text)):
            raise cursor.error(f"'{text}' is no reduction of the archive", at, _EXAMPLES)
        if kind in parts:
            raise cursor.error(
                f"'{text}' has two reductions of one kind",
                at,
                "Write one of uniform and age, one load, and one of rows and error.",
            )
        parts[kind] = match[1].lower(), match[2].strip()
        place = match.end()
    ages, load, counted = parts.get("age"), parts.get("load"), parts.get("counted")
    return Reduction(
        () if ages is None else _ages(cursor, ages[0], ages[1], at),
        None if load is None else _load(cursor, load[1], at),
        None if counted is None else _counted(cursor, counted[0], counted[1], at),
    )


def with_columns(reduction: Reduction, schema: Schema) -> Reduction:
    """The reduction with the names of columns as a stream has them. Raises `UserError` for a column that it lacks, or of another kind."""
    counted = reduction.counted
    if counted is None:
        return reduction
    columns = tuple(_column(name, schema) for name in counted.columns)
    of = _column(counted.of, schema) if counted.of else ""
    if of and not (schema.field(of).type.is_numeric):
        raise UserError(
            f"the error of '{of}' is not known: it is {schema.field(of).type}",
            remedy="OF takes a column of numbers.",
        )
    exact = Counted(columns, counted.every, counted.rows, counted.within, of)
    return Reduction(reduction.ages, reduction.load, exact)


_KINDS: Final = {"uniform": "age", "age": "age", "load": "load", "rows": "counted", "error": "counted"}


def _ages(cursor: Cursor, kind: str, text: str, at: Span) -> tuple[tuple[Duration, float], ...]:
    """From which age on the archive drops which share of its rows."""
    steps = []
    for part in text.split(","):
        age, _, share = part.strip().rpartition(" ")
        if not _DECIMAL.fullmatch(share) or not 0 < float(share) < 1:
            raise cursor.error(f"reduce drops a share between 0 and 1, not '{share}'", at, _EXAMPLES)
        if bool(age) != (kind == "age"):
            raise cursor.error(f"'{part.strip()}' is no step of {kind}", at, _EXAMPLES)
        steps.append((interval_option(cursor, "reduce", age, at) if age else 0, float(share)))
    if steps != sorted(set(steps)) or [share for _, share in steps] != sorted({share for _, share in steps}):
        raise cursor.error("older rows are reduced further: ages and shares must ascend", at, _EXAMPLES)
    return tuple(steps)


def _load(cursor: Cursor, text: str, at: Span) -> Load:
    """How many bytes are stored at most, and how many rows may wait."""
    size, behind = None, None
    for part in (part.strip() for part in text.split(",")):
        if (match := _SIZE.fullmatch(part)) is not None and size is None:
            size = int(match[1]) * 1000 ** UNITS.index(match[2].upper())
        elif (match := _BEHIND.fullmatch(part)) is not None and behind is None:
            behind = int(match[1])
        else:
            raise cursor.error(f"'{part}' is no limit of load", at, _EXAMPLES)
    if 0 in (size, behind):
        raise cursor.error("a limit of load is above 0", at, _EXAMPLES)
    return Load(size, behind)


def _counted(cursor: Cursor, kind: str, text: str, at: Span) -> Counted:
    """How many rows of an interval are kept, or up to which error."""
    match = _INTERVALS.fullmatch(text)
    amount = None if match is None else (_ROWS if kind == "rows" else _ERROR).fullmatch(match[1].strip())
    if match is None or amount is None:
        raise cursor.error(f"'{text}' does not state what {kind} keeps of an interval", at, _EXAMPLES)
    columns = tuple(name.strip() for name in match[2].split(",")) if match[2] else ()
    every = interval_option(cursor, "EVERY", match[3], at)
    if not every or not float(amount[1]) or "" in columns or len({n.lower() for n in columns}) < len(columns):
        raise cursor.error(f"{kind} takes a number above 0, columns and an interval", at, _EXAMPLES)
    if kind == "rows":
        return Counted(columns, every, rows=int(amount[1]))
    return Counted(columns, every, within=float(amount[1]) / 100, of=amount[2].strip())


def _column(name: str, schema: Schema) -> str:
    found = schema.find(name)
    if found is None:
        raise UserError(f"the stream has no column '{name}'", remedy=did_you_mean(name, schema.names))
    return found.name

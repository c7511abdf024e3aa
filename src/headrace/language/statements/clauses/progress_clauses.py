"""The parser of clauses of CREATE STREAM that determine its punctuation (SLACK n ROWS, PUNCTUATED EXTERNALLY or BY
PATTERNS, PROGRESS PER and STEP, HEARTBEAT), and of DEDUPLICATE BY.

Each clause promises that no later row has a smaller event time than some bound (Li 2008, section 4); the requirements of
the promise are checked here.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Final

from headrace.catalog.definitions import Deduplication, Progressing
from headrace.dataclass import dataclass
from headrace.errors import Span, did_you_mean
from headrace.language.parser.durations import duration
from headrace.language.syntax.ast import Expr
from headrace.language.syntax.cursor import Cursor
from headrace.schema import BIGINT, BOOLEAN, DATE, INT, SMALLINT, STRING, TINYINT, Schema
from headrace.time import Duration

FILES: Final = frozenset({"csv", "json", "parquet", "arrow"})
"""Formats read from a path."""

MOST_ROWS_BEHIND: Final = 10_000
"""The maximum number of rows whose event times are stored from epoch to epoch."""

_NAMING: Final = (STRING, TINYINT, SMALLINT, INT, BIGINT, BOOLEAN, DATE)
"""Types whose values can name a source or a group: their equality is exact."""


@dataclass(slots=True)
class ProgressClauses:
    """The clauses read so far, each once; `at` is the place of the last one that others may contradict."""

    declared: Progressing = field(default_factory=Progressing)
    deduplicate: Deduplication | None = None
    at: Span | None = None

    def add(self, at: Span | None = None, **clause: Any) -> None:
        """Add a clause, by its fields in `Progressing`."""
        self.declared, self.at = replace(self.declared, **clause), at or self.at

    def accept_groups(self, cursor: Cursor, schema: Schema, condition: Expr, start: Span) -> bool:
        """Pass `FOR (columns)` after the condition of PUNCTUATED BY, if it is there."""
        if not cursor.accept("FOR"):
            return False
        once(cursor, not self.declared.groups, "PUNCTUATED BY … FOR or PATTERNS", start)
        text = cursor.text[condition.span.start : condition.span.end]
        self.add(groups=_columns(cursor, schema, "FOR"), group_condition=text)
        return True

    def check(self, cursor: Cursor, using: str, punctuated: bool, archive: str | None) -> None:
        """Refuse clauses that contradict each other or the source."""
        at, column = self.at or cursor.before.span, self.declared.pattern_column
        if self.declared.external and punctuated:
            remedy = "PUNCTUATE is accepted together with PUNCTUATED BY: leave PUNCTUATED EXTERNALLY out."
            raise cursor.error("a stream is PUNCTUATED BY its rows or EXTERNALLY, not both", at, remedy)
        if self.declared.folder and using not in FILES:
            remedy = "PROGRESS PER (column) takes the source's name from the rows."
            raise cursor.error(f"USING {using} reads no folders for PROGRESS PER FOLDER", at, remedy)
        if column is not None and archive is not None and archive.lower() != "copy":
            remedy = "Leave the option archive out: then a copy is kept without the rows that are promises."
            raise cursor.error(f"PATTERNS IN {column} cannot go with archive '{archive}'", at, remedy)
        if self.deduplicate is not None and archive is not None and archive.lower() != "copy":
            remedy = "Leave the option archive out: then a copy is stored that has each row once."
            raise cursor.error(f"DEDUPLICATE BY cannot go with archive '{archive}'", at, remedy)


def progress_clause(cursor: Cursor, schema: Schema, clauses: ProgressClauses) -> bool:
    """Pass one clause of progress; False without one."""
    start, declared = cursor.token.span, clauses.declared
    if (
        cursor.at_word("SLACK")
        and cursor.ahead().kind == "number"
        and cursor.ahead(2).upper in ("ROW", "ROWS")
    ):
        cursor.advance()
        once(cursor, declared.behind is None, "SLACK", start)
        clauses.add(behind=_rows_behind(cursor))
    elif cursor.accept("PUNCTUATED", "EXTERNALLY"):
        once(cursor, not declared.external, "PUNCTUATED EXTERNALLY", start)
        clauses.add(start, external=True)
    elif cursor.at_word("PUNCTUATED", "BY", "PATTERNS") and cursor.ahead(3).upper in ("OF", "IN"):
        for _ in range(3):
            cursor.advance()
        once(cursor, not declared.groups, "PUNCTUATED BY … FOR or PATTERNS", start)
        column = _pattern_column(cursor, schema) if cursor.accept("IN") else None
        cursor.expect("OF", purpose=" and the columns that patterns apply to")
        groups = _columns(cursor, schema, "PATTERNS OF")
        clauses.add(start, pattern_column=column, groups=groups, patterns=True)
    elif cursor.accept("PROGRESS", "PER"):
        once(cursor, not (declared.per or declared.folder), "PROGRESS PER", start)
        clauses.add(start, **_sources(cursor, schema))
    elif cursor.accept("PROGRESS", "STEP"):
        once(cursor, declared.step is None, "PROGRESS STEP", start)
        clauses.add(step=length_after(cursor, "PROGRESS STEP"))
    elif cursor.at_word("PROGRESS"):
        cursor.advance()
        raise cursor.expected("PER or STEP after PROGRESS")
    elif cursor.accept("HEARTBEAT"):
        once(cursor, declared.heartbeat is None, "HEARTBEAT", start)
        cursor.expect("EVERY", purpose=" after HEARTBEAT")
        every = length_after(cursor, "HEARTBEAT EVERY")
        cursor.expect("DELAY", purpose=" and how long a row takes at most")
        clauses.add(heartbeat=(every, duration(cursor, "a length of time after DELAY")))
    elif cursor.accept("DEDUPLICATE"):
        once(cursor, clauses.deduplicate is None, "DEDUPLICATE BY", start)
        cursor.expect("BY", purpose=" and the columns that identify a row")
        keys = _columns(cursor, schema, "DEDUPLICATE BY", any_type=True)
        within = length_after(cursor, "WITHIN") if cursor.accept("WITHIN") else 0
        clauses.deduplicate, clauses.at = Deduplication(keys, within), start
    else:
        return False
    return True


def _rows_behind(cursor: Cursor) -> int:
    at = cursor.token.span
    rows = cursor.whole_number("how many rows after SLACK")
    cursor.advance()
    if rows > MOST_ROWS_BEHIND:
        remedy = "SLACK with a length of time has no such limit."
        raise cursor.error(f"SLACK of {rows:,} rows is more than {MOST_ROWS_BEHIND:,}", at, remedy)
    return rows


def _pattern_column(cursor: Cursor, schema: Schema) -> str:
    at = cursor.token.span
    name = cursor.name("the column that holds patterns")
    column = schema.find(name)
    if column is None or column.type != STRING:
        problem = "is not there" if column is None else f"is {column.type}"
        remedy = did_you_mean(name, schema.names) if column is None else "Patterns are texts."
        raise cursor.error(f"the column '{name}' for PATTERNS IN {problem}", at, remedy)
    return column.name


def _sources(cursor: Cursor, schema: Schema) -> dict[str, Any]:
    fields: dict[str, Any] = (
        {"folder": True}
        if cursor.accept("FOLDER")
        else {"per": _columns(cursor, schema, "PROGRESS PER", remedy=", or write PROGRESS PER FOLDER")}
    )
    if cursor.accept("EXPECT"):
        at = cursor.token.span
        fields["expected"] = cursor.whole_number("how many sources there are after EXPECT")
        if fields["expected"] < 1:
            raise cursor.error("EXPECT at least one source", at)
    if cursor.accept("SKEW"):
        fields["skew"] = length_after(cursor, "SKEW", smallest=0)
    return fields


def _columns(
    cursor: Cursor, schema: Schema, after: str, *, any_type: bool = False, remedy: str = ""
) -> tuple[str, ...]:
    """Columns in parentheses whose values can name a source or a group."""
    cursor.expect_sign("(", f" and columns after {after}{remedy}")
    names: list[str] = []
    while True:
        token = cursor.token
        name = cursor.name("a column's name")
        column = schema.find(name)
        if column is None:
            raise cursor.error(
                f"there is no column '{name}' for {after}", token.span, did_you_mean(name, schema.names)
            )
        if not any_type and column.type not in _NAMING:
            raise cursor.error(
                f"{after} cannot go by '{column.name}', which is {column.type}",
                token.span,
                "Take a STRING, whole number, BOOLEAN or DATE.",
            )
        if column.name in names:
            raise cursor.error(f"the column '{column.name}' appears twice", token.span)
        names.append(column.name)
        if not cursor.accept_sign(","):
            break
    cursor.expect_sign(")", " or ',' after a column")
    return tuple(names)


def length_after(cursor: Cursor, word: str, *, smallest: Duration = 1) -> Duration:
    """Pass the length of time of a clause; raises `UserError` where it is less than the smallest, 1 or 0."""
    start = cursor.token.span
    length = duration(cursor, f"a length of time after {word}")
    if length < smallest:
        raise cursor.error(
            f"{word} must {'be longer than 0' if smallest else 'not be negative'}", cursor.since(start)
        )
    return length


def once(cursor: Cursor, first: bool, word: str, at: Span) -> None:
    """Raises `UserError` where a clause is not the first of its kind."""
    if not first:
        raise cursor.error(f"{word} appears twice", at)

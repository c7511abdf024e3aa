"""The parser of the clauses of CREATE STREAM about progress: SLACK n ROWS, PROGRESS PER, HEARTBEAT, ….

Each clause promises that no later row has a smaller event time than some bound (Li 2008, section 4); the requirements of
the promise are checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.catalog.definitions import Deduplication, Progressing
from headrace.errors import Span, did_you_mean
from headrace.language.parser.durations import duration
from headrace.language.syntax.ast import Expr
from headrace.language.syntax.cursor import Cursor
from headrace.schema import BIGINT, BOOLEAN, DATE, INT, SMALLINT, STRING, TINYINT, Schema
from headrace.time import Duration

MOST_ROWS_BEHIND: Final = 10_000
"""The maximum number of rows whose event times are stored from epoch to epoch."""

_NAMING: Final = (STRING, TINYINT, SMALLINT, INT, BIGINT, BOOLEAN, DATE)
"""Types whose values can name a source or a group: their equality is exact."""


@dataclass(slots=True)
class ProgressClauses:
    """The clauses read so far, each once."""

    behind: int | None = None
    external: bool = False
    sources: tuple[str, ...] | None = None
    folder: bool = False
    expected: int = 1
    step: Duration | None = None
    heartbeat: tuple[Duration, Duration] | None = None
    group_condition: str | None = None
    groups: tuple[str, ...] = ()
    patterns: bool = False
    pattern_column: str | None = None
    deduplicate: Deduplication | None = None
    at: Span | None = None

    def definition(self) -> Progressing:
        """The clauses as a value."""
        return Progressing(
            self.behind,
            self.external,
            self.sources or (),
            self.folder,
            self.expected,
            self.step,
            self.heartbeat,
            self.group_condition,
            self.groups,
            self.patterns,
            self.pattern_column,
        )

    def accept_groups(self, cursor: Cursor, schema: Schema, condition: Expr, start: Span) -> bool:
        """Pass `FOR (columns)` after the condition of PUNCTUATED BY, if it is there."""
        if not cursor.accept("FOR"):
            return False
        _once(cursor, not self.groups, "PUNCTUATED BY … FOR or PATTERNS", start)
        self.groups = _columns(cursor, schema, "FOR")
        self.group_condition = cursor.text[condition.span.start : condition.span.end]
        return True

    def check(self, cursor: Cursor, using: str, punctuated: bool, archive: str | None) -> None:
        """Refuse clauses that contradict each other or the source."""
        at = self.at or cursor.before.span
        if self.external and punctuated:
            remedy = "PUNCTUATE is accepted together with PUNCTUATED BY: leave PUNCTUATED EXTERNALLY out."
            raise cursor.error("a stream is PUNCTUATED BY its rows or EXTERNALLY, not both", at, remedy)
        if self.folder and using not in _FILES:
            remedy = "PROGRESS PER (column) takes the source's name from the rows."
            raise cursor.error(f"USING {using} reads no folders for PROGRESS PER FOLDER", at, remedy)
        if self.pattern_column is not None and archive is not None and archive.lower() != "copy":
            remedy = "Leave the option archive out: then a copy is kept without the rows that are promises."
            raise cursor.error(
                f"PATTERNS IN {self.pattern_column} cannot go with archive '{archive}'", at, remedy
            )
        if self.deduplicate is not None and archive is not None and archive.lower() != "copy":
            remedy = "Leave the option archive out: then a copy is stored that has each row once."
            raise cursor.error(f"DEDUPLICATE BY cannot go with archive '{archive}'", at, remedy)


_FILES: Final = frozenset({"csv", "json", "parquet", "arrow"})


def progress_clause(cursor: Cursor, schema: Schema, clauses: ProgressClauses) -> bool:
    """Pass one clause of progress; False without one."""
    start = cursor.token.span
    if (
        cursor.at_word("SLACK")
        and cursor.ahead().kind == "number"
        and cursor.ahead(2).upper in ("ROW", "ROWS")
    ):
        cursor.advance()
        _once(cursor, clauses.behind is None, "SLACK", start)
        clauses.behind = _backfilling(cursor)
    elif cursor.accept("PUNCTUATED", "EXTERNALLY"):
        _once(cursor, not clauses.external, "PUNCTUATED EXTERNALLY", start)
        clauses.external, clauses.at = True, start
    elif cursor.at_word("PUNCTUATED", "BY", "PATTERNS") and cursor.ahead(3).upper in ("OF", "IN"):
        for _ in range(3):
            cursor.advance()
        _once(cursor, not clauses.groups, "PUNCTUATED BY … FOR or PATTERNS", start)
        clauses.pattern_column = _pattern_column(cursor, schema) if cursor.accept("IN") else None
        cursor.expect("OF", purpose=" and the columns that patterns apply to")
        clauses.groups, clauses.patterns, clauses.at = _columns(cursor, schema, "PATTERNS OF"), True, start
    elif cursor.accept("PROGRESS", "PER"):
        _once(cursor, clauses.sources is None and not clauses.folder, "PROGRESS PER", start)
        _sources(cursor, schema, clauses)
        clauses.at = start
    elif cursor.accept("PROGRESS", "STEP"):
        _once(cursor, clauses.step is None, "PROGRESS STEP", start)
        clauses.step = _positive(cursor, "PROGRESS STEP")
    elif cursor.at_word("PROGRESS"):
        cursor.advance()
        raise cursor.expected("PER or STEP after PROGRESS")
    elif cursor.accept("HEARTBEAT"):
        _once(cursor, clauses.heartbeat is None, "HEARTBEAT", start)
        cursor.expect("EVERY", purpose=" after HEARTBEAT")
        every = _positive(cursor, "HEARTBEAT EVERY")
        cursor.expect("DELAY", purpose=" and how long a row takes at most")
        clauses.heartbeat = (every, duration(cursor, "a length of time after DELAY"))
    elif cursor.accept("DEDUPLICATE"):
        _once(cursor, clauses.deduplicate is None, "DEDUPLICATE BY", start)
        cursor.expect("BY", purpose=" and the columns that identify a row")
        keys = _columns(cursor, schema, "DEDUPLICATE BY", any_type=True)
        within = _positive(cursor, "WITHIN") if cursor.accept("WITHIN") else 0
        clauses.deduplicate, clauses.at = Deduplication(keys, within), start
    else:
        return False
    return True


def _backfilling(cursor: Cursor) -> int:
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


def _sources(cursor: Cursor, schema: Schema, clauses: ProgressClauses) -> None:
    if cursor.accept("FOLDER"):
        clauses.folder = True
    else:
        clauses.sources = _columns(cursor, schema, "PROGRESS PER", remedy=", or write PROGRESS PER FOLDER")
    if cursor.accept("EXPECT"):
        at = cursor.token.span
        clauses.expected = cursor.whole_number("how many sources there are after EXPECT")
        if clauses.expected < 1:
            raise cursor.error("EXPECT at least one source", at)


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


def _positive(cursor: Cursor, word: str) -> Duration:
    start = cursor.token.span
    length = duration(cursor, f"a length of time after {word}")
    if length <= 0:
        raise cursor.error(f"{word} must be longer than nothing", cursor.since(start))
    return length


def _once(cursor: Cursor, first: bool, word: str, at: Span) -> None:
    if not first:
        raise cursor.error(f"{word} appears twice", at)

"""The parser of CONSTRAINT in CREATE STREAM: UNIQUE, CLUSTERED BY, ORDERED BY and REFERENCES, by which joins drop rows early.

The stream of REFERENCES need not exist yet: two streams may reference each other. EXPLAIN shows which constraints a join uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from typing import Literal as Choice

from headrace.catalog.definitions import StreamConstraint
from headrace.errors import did_you_mean
from headrace.language.statements.clauses.progress_clauses import length_after
from headrace.language.syntax.cursor import Cursor
from headrace.schema import Schema

_FORMS: Final = (
    "Write UNIQUE (column, …), CLUSTERED BY (column, …) WITHIN duration, ORDERED BY (column) WITHIN duration, "
    "or (column, …) REFERENCES stream (column, …) WITHIN duration."
)


def constraint(cursor: Cursor, schema: Schema, before: Sequence[StreamConstraint]) -> StreamConstraint:
    """Pass what follows CONSTRAINT; `before` are those of the statement already.

    Raises `UserError` for unknown columns, a second constraint of one kind on the same columns, and for what is no constraint.
    """
    start = cursor.token.span
    parsed = _form(cursor, schema)
    same = (parsed.kind, parsed.columns, parsed.stream.lower(), parsed.others)
    if same in [(item.kind, item.columns, item.stream.lower(), item.others) for item in before]:
        raise cursor.error("the same constraint appears twice", cursor.since(start), "Leave one of them out.")
    return parsed


def _form(cursor: Cursor, schema: Schema) -> StreamConstraint:
    kinds: dict[str, Choice["clustered", "ordered"]] = {"CLUSTERED": "clustered", "ORDERED": "ordered"}
    if cursor.accept("UNIQUE"):
        return StreamConstraint("unique", _columns(cursor, schema, "UNIQUE"))
    for word, kind in kinds.items():
        if cursor.accept(word):
            cursor.expect("BY", purpose=f" after {word}")
            start = cursor.token.span
            columns = _columns(cursor, schema, f"{word} BY")
            if kind == "ordered" and len(columns) > 1:
                raise cursor.error(
                    "ORDERED BY takes one column", cursor.since(start), "Declare each order by itself."
                )
            return StreamConstraint(kind, columns, _within(cursor))
    if cursor.at_sign("("):
        return _reference(cursor, schema)
    raise cursor.expected("UNIQUE, CLUSTERED, ORDERED or columns in parentheses after CONSTRAINT", _FORMS)


def _reference(cursor: Cursor, schema: Schema) -> StreamConstraint:
    columns = _columns(cursor, schema, "CONSTRAINT")
    cursor.expect("REFERENCES", purpose=" and the stream whose row follows")
    stream = cursor.name("the referenced stream's name")
    start = cursor.token.span
    others = _columns(cursor, None, f"REFERENCES {stream}")
    if len(others) != len(columns):
        raise cursor.error(
            f"{len(columns)} columns reference {len(others)}",
            cursor.since(start),
            "Name as many on both sides.",
        )
    return StreamConstraint("references", columns, _within(cursor), stream, others)


def _within(cursor: Cursor) -> int:
    cursor.expect("WITHIN", purpose=" and a length of time, such as WITHIN 15 SECONDS")
    return length_after(cursor, "WITHIN", smallest=0)


def _columns(cursor: Cursor, schema: Schema | None, after: str) -> tuple[str, ...]:
    """Columns in parentheses; those of another stream are not known here."""
    cursor.expect_sign("(", f" and columns after {after}")
    names: list[str] = []
    while True:
        token = cursor.token
        name = cursor.name("a column's name")
        column = None if schema is None else schema.find(name)
        if schema is not None and column is None:
            raise cursor.error(
                f"there is no column '{name}' for {after}", token.span, did_you_mean(name, schema.names)
            )
        name = name if column is None else column.name
        if name.lower() in (other.lower() for other in names):
            raise cursor.error(f"the column '{name}' appears twice", token.span, "Name it once.")
        names.append(name)
        if not cursor.accept_sign(","):
            break
    cursor.expect_sign(")", " or ',' after a column")
    return tuple(names)

"""The parser of types of columns, such as `DECIMAL(10, 2)`, and the table of Spark's type names."""

from __future__ import annotations

from typing import Final

from headrace.errors import did_you_mean
from headrace.language.syntax.cursor import Cursor
from headrace.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Type,
    decimal,
)

TYPES: Final[dict[str, Type]] = {
    "BOOLEAN": BOOLEAN,
    **dict.fromkeys(("TINYINT", "BYTE"), TINYINT),
    **dict.fromkeys(("SMALLINT", "SHORT"), SMALLINT),
    **dict.fromkeys(("INT", "INTEGER"), INT),
    **dict.fromkeys(("BIGINT", "LONG"), BIGINT),
    **dict.fromkeys(("FLOAT", "REAL"), FLOAT),
    "DOUBLE": DOUBLE,
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), decimal(10, 0)),
    "STRING": STRING,
    "BINARY": BINARY,
    "DATE": DATE,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), TIMESTAMP),
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "INTERVAL": INTERVAL,
}
"""Spark's names of the scalar types."""

_NESTED: Final = frozenset({"STRUCT", "ARRAY", "MAP", "VARIANT"})
_SIZED: Final = frozenset({"VARCHAR", "CHAR", "CHARACTER"})


def column_type(cursor: Cursor) -> Type:
    """Pass a type.

    Raises `UserError` for anything else, `UnsupportedQuery` for types of nested values.
    """
    token = cursor.token
    word = token.upper
    if word in _NESTED:
        raise cursor.unsupported(
            f"columns of type {word} are not available: rows are flat",
            token.span,
            "Declare one column for each value inside it.",
        )
    if word in _SIZED:
        raise cursor.error(f"there is no type {word} with a length", token.span, "Use STRING.")
    if word not in TYPES:
        if token.kind != "name":
            raise cursor.expected("a type")
        raise cursor.error(f"there is no type '{token.text}'", token.span, did_you_mean(token.text, TYPES))
    cursor.advance()
    if word in ("DECIMAL", "DEC", "NUMERIC"):
        return _decimal(cursor)
    if word == "INTERVAL":
        cursor.accept("DAY", "TO", "SECOND")
    return TYPES[word]


def _decimal(cursor: Cursor) -> Type:
    if not cursor.accept_sign("("):
        return decimal(10, 0)
    start = cursor.token.span
    precision = cursor.whole_number("the number of digits of the DECIMAL")
    scale = cursor.whole_number("the number of fraction digits") if cursor.accept_sign(",") else 0
    if not (1 <= precision <= 38 and scale <= precision):
        raise cursor.error(
            f"DECIMAL({precision},{scale}) does not exist",
            cursor.since(start),
            "A DECIMAL has 1 to 38 digits, and no more of them after the point.",
        )
    cursor.expect_sign(")")
    return decimal(precision, scale)

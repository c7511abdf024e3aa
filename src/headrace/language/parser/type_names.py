"""The parser of types of columns, such as `DECIMAL(10, 2)`, and the table of Spark's type names."""

from __future__ import annotations

from typing import Final

from headrace.errors import Span, did_you_mean
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

_OF_OTHERS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "CLOB", "CITEXT", "NAME", "ENUM"), "STRING"
    ),
    **dict.fromkeys(("VARCHAR", "CHAR", "CHARACTER", "NVARCHAR", "VARCHAR2", "NCHAR", "BPCHAR"), "STRING"),
    **dict.fromkeys(("UUID", "JSON", "JSONB", "XML", "INET"), "STRING"),
    **dict.fromkeys(("DATETIME", "DATETIME2", "DATETIME64", "SMALLDATETIME"), "TIMESTAMP"),
    **dict.fromkeys(
        ("TIMESTAMPTZ", "TIMESTAMP_TZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "TIMESTAMP"
    ),
    **dict.fromkeys(("TIME", "TIMETZ"), "STRING, or TIMESTAMP for an instant"),
    "INT1": "TINYINT",
    **dict.fromkeys(("INT2", "INT16", "SMALLSERIAL", "YEAR"), "SMALLINT"),
    **dict.fromkeys(("INT4", "INT32", "SERIAL", "MEDIUMINT", "UINT16", "USMALLINT"), "INT"),
    **dict.fromkeys(("INT8", "INT64", "BIGSERIAL", "UINT32", "UINTEGER", "SIGNED"), "BIGINT"),
    **dict.fromkeys(("UINT64", "UBIGINT", "UNSIGNED"), "DECIMAL(20, 0)"),
    **dict.fromkeys(("HUGEINT", "INT128"), "DECIMAL(38, 0)"),
    **dict.fromkeys(("FLOAT4", "FLOAT32"), "FLOAT"),
    **dict.fromkeys(("FLOAT8", "FLOAT64"), "DOUBLE"),
    **dict.fromkeys(
        ("NUMBER", "BIGNUMERIC", "BIGDECIMAL", "DECIMAL128"), "DECIMAL(38, 6), with the digits you need"
    ),
    **dict.fromkeys(("MONEY", "SMALLMONEY"), "DECIMAL(19, 2)"),
    **dict.fromkeys(("BOOL", "BIT"), "BOOLEAN"),
    **dict.fromkeys(("BYTES", "BYTEA", "VARBINARY", "BLOB"), "BINARY"),
}
"""What to use for types of other databases, which Spark does not have."""


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
    if word in _SIZED and cursor.ahead().text == "(":
        raise cursor.error(f"there is no type {word} with a length", token.span, "Use STRING.")
    if word not in TYPES:
        if token.kind != "name":
            raise cursor.expected("a type")
        raise cursor.error(f"there is no type '{token.text}'", token.span, _instead_of(token.text))
    cursor.advance()
    _refuse_addition(cursor, word, token.span)
    if word in ("DECIMAL", "DEC", "NUMERIC"):
        return _decimal(cursor)
    if word == "INTERVAL":
        cursor.accept("DAY", "TO", "SECOND")
    return TYPES[word]


def _instead_of(name: str) -> str:
    """A remedy for a name that is no type."""
    other = _OF_OTHERS.get(name.upper())
    return did_you_mean(name, TYPES) if other is None else f"Use {other}."


def _refuse_addition(cursor: Cursor, word: str, start: Span) -> None:
    """Raise `UserError` at what other databases write after the name of a type: a precision, or WITH TIME ZONE."""
    if word == "DOUBLE" and cursor.accept("PRECISION"):
        raise cursor.error("there is no type DOUBLE PRECISION", cursor.since(start), "Use DOUBLE.")
    if word.startswith("TIMESTAMP") and cursor.at_sign("("):
        raise cursor.error(f"there is no {word} with a precision", start, f"Use {word}: it has microseconds.")
    if word == "TIMESTAMP" and cursor.accept("WITHOUT", "TIME", "ZONE"):
        raise cursor.error(
            "there is no TIMESTAMP WITHOUT TIME ZONE", cursor.since(start), "Use TIMESTAMP_NTZ, read as UTC."
        )
    if word == "TIMESTAMP" and (
        cursor.accept("WITH", "TIME", "ZONE") or cursor.accept("WITH", "LOCAL", "TIME", "ZONE")
    ):
        raise cursor.error(
            "there is no TIMESTAMP WITH TIME ZONE", cursor.since(start), "Use TIMESTAMP: it is an instant."
        )


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

"""Values that a client binds to the parameters of a statement, in text or binary format, as SQL constants; also the
elements of an array's text (`{1,2}`). `tables.sql_text` puts the constants in place of `$n`.
"""

from __future__ import annotations

import re
import struct
import uuid
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from headrace.server.postgres.protocol.problems import Failed
from headrace.server.postgres.protocol.types import (
    BOOL,
    BY_OID,
    BYTEA,
    DATE,
    DAYS_TO_2000,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    MICROS_TO_2000,
    NUMERIC,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TYPES,
    UNKNOWN,
    UUID,
    VARCHAR,
    PgType,
)

_FORMS: Final = {
    INT2: ("!h", "{}"),
    INT4: ("!i", "{}"),
    INT8: ("!q", "{}"),
    FLOAT4: ("!f", "{!r}::DOUBLE"),
    FLOAT8: ("!d", "{!r}::DOUBLE"),
    BOOL: ("!?", "{}"),
}
_CASTS: Final = {
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMPTZ: "TIMESTAMPTZ",
    FLOAT4: "FLOAT",
    FLOAT8: "DOUBLE",
    NUMERIC: "DECIMAL(38,10)",
    BOOL: "BOOLEAN",
    INTERVAL: "INTERVAL",
    UUID: "UUID",
}
_ELEMENTS: Final = {kind.array: kind for kind in TYPES if kind.array}


def literal(oid: int, form: int, value: bytes | None) -> str:
    """A parameter's value as SQL; text of an unknown type is a quoted constant, whose type its use defines.

    Raises `Failed` for bytes that are no value of the type.
    """
    if value is None:
        return "NULL"
    kind = BY_OID.get(oid, UNKNOWN)
    try:
        if form == 1:
            return _of_binary(kind, oid, value)
        text = value.decode()
        if oid in _ELEMENTS:
            elements = ",".join(_of_text(_ELEMENTS[oid], element) for element in elements_of(text))
            return f"[{elements}]"
        return _of_text(kind, text)
    except (ValueError, struct.error, OverflowError) as error:
        raise Failed("22P03", f"a parameter is no value of type {kind.name}: {error}") from None


def _of_text(kind: PgType, text: str | None) -> str:
    if text is None:
        return "NULL"
    if kind in (INT2, INT4, INT8):
        return f"({int(text)})"
    if kind is BYTEA and text.startswith("\\x"):
        return _blob(bytes.fromhex(text[2:]))
    quoted = _quoted(text)
    return f"{quoted}::{_CASTS[kind]}" if kind in _CASTS and kind is not NUMERIC else quoted


def _of_binary(kind: PgType, oid: int, value: bytes) -> str:
    if kind in _FORMS:
        form, written = _FORMS[kind]
        number = struct.unpack(form, value)[0]
        shown = written.format(number)
        if isinstance(number, float) and number - number != 0:
            shown = f"'{number}'::DOUBLE"
        return f"({shown})"
    if kind in (TIMESTAMP, TIMESTAMPTZ):
        micros = struct.unpack("!q", value)[0] + MICROS_TO_2000
        return f"make_timestamptz({micros})" if kind is TIMESTAMPTZ else f"make_timestamp({micros})"
    if kind is DATE:
        day = date(1970, 1, 1) + timedelta(days=struct.unpack("!i", value)[0] + DAYS_TO_2000)
        return f"DATE '{day.isoformat()}'"
    if kind is TIME:
        return f"(TIME '00:00:00' + to_microseconds({struct.unpack('!q', value)[0]}))"
    if kind is INTERVAL:
        micros, days, months = struct.unpack("!qii", value)
        return f"(to_months({months}) + to_days({days}) + to_microseconds({micros}))"
    if kind is UUID:
        return f"'{uuid.UUID(bytes=value)}'::UUID"
    if kind is NUMERIC:
        return _quoted(str(_decimal(value)))
    if kind is BYTEA:
        return _blob(value)
    if kind in (TEXT, VARCHAR, UNKNOWN, JSON) and oid not in _ELEMENTS:
        return _quoted(value.decode())
    raise Failed("0A000", f"parameters of the type {oid} are taken as text only")


def _decimal(value: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", value)
    groups = struct.unpack_from(f"!{count}h", value, 8)
    total = sum(
        (Decimal(group).scaleb(4 * (weight - index)) for index, group in enumerate(groups)), Decimal(0)
    )
    return (-total if sign == 0x4000 else total).quantize(Decimal(1).scaleb(-scale))


def _blob(value: bytes) -> str:
    return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"


def _quoted(text: str) -> str:
    if "\0" in text:
        raise ValueError("a zero byte")
    return "'" + text.replace("'", "''") + "'"


def elements_of(text: str) -> list[str | None]:
    """The elements of a one-dimensional array as text, `{1,"a b",NULL}`.

    Raises `ValueError` for a text that is none.
    """
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("an array begins with { and ends with }")
    elements: list[str | None] = []
    for piece in re.findall(r'"(?:[^"\\]|\\.)*"|[^,]+', text[1:-1]):
        if piece.startswith('"'):
            elements.append(re.sub(r"\\(.)", r"\1", piece[1:-1]))
        else:
            elements.append(None if piece.upper() == "NULL" else piece)
    return elements

r"""Cells of COPY in PostgreSQL's text forms, as columns: `t` of BOOLEAN, `\x00ff` of BINARY, `1 day 02:03:04` of INTERVAL; and
the escapes of its text format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.formats.text_values import convert
from headrace.connectors.records.options import TextOptions
from headrace.schema import Type, to_arrow
from headrace.time import DAY, SECOND

_TRUE: Final = pa.array(["t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"])
_FALSE: Final = pa.array(["f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"])
_INTERVAL: Final = re.compile(
    r"(?:(?P<days>[+-]?\d{1,9})\s*days?,?\s*)?(?:(?P<sign>[+-]?)(?P<hours>\d{1,9}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2})(?:\.(?P<micros>\d{1,6}))?)?)?"
)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_MEANT: Final[Mapping[bytes, bytes]] = {
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


def values_of(
    cells: pa.StringArray, kind: Type, options: TextOptions
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """As `convert`, also of cells that PostgreSQL's programs write in forms of their own."""
    if kind.name == "BOOLEAN":
        lower = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
        cells = pc.if_else(
            pc.is_in(lower, _TRUE), "true", pc.if_else(pc.is_in(lower, _FALSE), "false", cells)
        )
    elif kind.name in _READ:
        return _each(cells, kind, _READ[kind.name])
    return convert(cells, kind, options)


def _each(
    cells: pa.StringArray, kind: Type, read: Callable[[str], Any]
) -> tuple[pa.Array, pa.BooleanArray | None]:
    values = pa.array([None if text is None else read(text) for text in cells.to_pylist()], to_arrow(kind))
    failed = pc.and_(pc.is_null(values), pc.is_valid(cells))
    return values, failed if pc.any(failed).as_py() else None


def _bytes(text: str) -> bytes | None:
    r"""Bytes in hexadecimal after `\x`; any other text is its own bytes."""
    if not text.startswith("\\x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        return None


def microseconds(text: str) -> int | None:
    """An interval of days and a time, such as `1 day 02:03:04.5`; None for another text, and for months, which vary in length."""
    found = _INTERVAL.fullmatch(text.strip())
    if found is None or not found[0]:
        return None
    micros = int((found["micros"] or "").ljust(6, "0"))
    minutes = int(found["hours"] or 0) * 60 + int(found["minutes"] or 0)
    time = (minutes * 60 + int(found["seconds"] or 0)) * SECOND + micros
    return int(found["days"] or 0) * DAY + (-time if found["sign"] == "-" else time)


_READ: Final[Mapping[str, Callable[[str], Any]]] = {"BINARY": _bytes, "INTERVAL": microseconds}


def unescaped(column: pa.Array) -> pa.Array:
    r"""Cells of COPY's text format with what `\t`, `\b`, `\101`, `\x41` and `\\` mean.

    Raises `UnicodeDecodeError` where that is no UTF-8.
    """
    is_escaped = pc.fill_null(pc.match_substring(column, "\\"), False)
    if not pc.any(is_escaped).as_py():
        return column
    meant = [_ESCAPE.sub(_meant, text.encode()).decode() for text in column.filter(is_escaped).to_pylist()]
    return pc.replace_with_mask(column, is_escaped, pa.array(meant, column.type))


def _meant(escape: re.Match[bytes]) -> bytes:
    digits, octal, plain = escape.groups()
    if plain is not None:
        return _MEANT.get(plain, plain)
    return bytes([int(digits, 16) if digits is not None else int(octal, 8) & 0xFF])

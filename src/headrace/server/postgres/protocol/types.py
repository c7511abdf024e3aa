"""PostgreSQL's data types with their numbers (OIDs) and names, and the one that clients see for each Arrow type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa

DAYS_TO_2000: Final = 10_957
"""From 1970; PostgreSQL counts from 2000."""
MICROS_TO_2000: Final = DAYS_TO_2000 * 86_400_000_000


class PgType(NamedTuple):
    """A type: its number, its length (-1: any), its name in SQL and in `pg_type`, and the number of its arrays' type."""

    oid: int
    size: int
    name: str
    internal: str
    array: int = 0


BOOL: Final = PgType(16, 1, "boolean", "bool", 1000)
BYTEA: Final = PgType(17, -1, "bytea", "bytea", 1001)
INT8: Final = PgType(20, 8, "bigint", "int8", 1016)
INT2: Final = PgType(21, 2, "smallint", "int2", 1005)
INT4: Final = PgType(23, 4, "integer", "int4", 1007)
TEXT: Final = PgType(25, -1, "text", "text", 1009)
JSON: Final = PgType(114, -1, "json", "json", 199)
FLOAT4: Final = PgType(700, 4, "real", "float4", 1021)
FLOAT8: Final = PgType(701, 8, "double precision", "float8", 1022)
VARCHAR: Final = PgType(1043, -1, "character varying", "varchar", 1015)
DATE: Final = PgType(1082, 4, "date", "date", 1182)
TIME: Final = PgType(1083, 8, "time without time zone", "time", 1183)
TIMESTAMP: Final = PgType(1114, 8, "timestamp without time zone", "timestamp", 1115)
TIMESTAMPTZ: Final = PgType(1184, 8, "timestamp with time zone", "timestamptz", 1185)
INTERVAL: Final = PgType(1186, 16, "interval", "interval", 1187)
NUMERIC: Final = PgType(1700, -1, "numeric", "numeric", 1231)
UUID: Final = PgType(2950, 16, "uuid", "uuid", 2951)
UNKNOWN: Final = PgType(705, -2, "unknown", "unknown")
TYPES: Final = (
    *(BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON, FLOAT4, FLOAT8, VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ),
    *(INTERVAL, NUMERIC, UUID, UNKNOWN),
)
BY_OID: Final = {kind.oid: kind for kind in TYPES}
OF_NAME: Final = {word: kind for kind in TYPES for word in (kind.name, kind.internal)} | {
    "int": INT4,
    "double": FLOAT8,
    "decimal": NUMERIC,
    "string": TEXT,
}
_OF_ARROW: Final[tuple[tuple[Callable[[pa.DataType], bool], PgType], ...]] = (
    (pa.types.is_boolean, BOOL),
    (pa.types.is_int64, INT8),
    (pa.types.is_int32, INT4),
    (pa.types.is_int16, INT2),
    (pa.types.is_int8, INT2),
    (pa.types.is_uint8, INT2),
    (pa.types.is_uint16, INT4),
    (pa.types.is_uint32, INT8),
    (pa.types.is_uint64, NUMERIC),
    (pa.types.is_float64, FLOAT8),
    (pa.types.is_floating, FLOAT4),
    (pa.types.is_decimal, NUMERIC),
    (pa.types.is_date, DATE),
    (pa.types.is_time, TIME),
    (pa.types.is_duration, INTERVAL),
    (pa.types.is_interval, INTERVAL),
    (pa.types.is_binary, BYTEA),
    (pa.types.is_large_binary, BYTEA),
    (pa.types.is_struct, JSON),
    (pa.types.is_map, JSON),
)


def type_of(kind: pa.DataType) -> PgType:
    """The type that clients see for a column of Arrow's."""
    if pa.types.is_timestamp(kind):
        return TIMESTAMPTZ if kind.tz else TIMESTAMP
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = type_of(kind.value_type)
        return PgType(element.array or TEXT.array, -1, f"{element.name}[]", f"_{element.internal}")
    return next((pg_type for test, pg_type in _OF_ARROW if test(kind)), TEXT)

"""Column types and row schemas: Spark SQL's types, and the Arrow type of each.

`Type` is a value (name plus parameters); `Schema` an ordered tuple of named, typed fields. Names keep their case and are
compared without it, as in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import UserError, did_you_mean

OURS: Final = "__"
"""Prefix of Headrace's own column names: no stream and no answer of a user's has a column with it."""


@dataclass(frozen=True, slots=True)
class Type:
    """A Spark SQL type. `precision`/`scale` belong to DECIMAL, `fields` to STRUCT, `element` to ARRAY."""

    name: str
    precision: int = 0
    scale: int = 0
    fields: tuple[Field, ...] = ()
    element: Type | None = None

    def __str__(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.name == "STRUCT":
            return "STRUCT<" + ", ".join(f"{field.name}: {field.type}" for field in self.fields) + ">"
        if self.name == "ARRAY":
            return f"ARRAY<{self.element}>"
        return self.name

    @property
    def is_integer(self) -> bool:
        """TINYINT, SMALLINT, INT or BIGINT."""
        return self.name in INTEGERS

    @property
    def is_fractional(self) -> bool:
        """FLOAT or DOUBLE."""
        return self.name in ("FLOAT", "DOUBLE")

    @property
    def is_numeric(self) -> bool:
        """Integer, fractional or DECIMAL."""
        return self.is_integer or self.is_fractional or self.name == "DECIMAL"

    @property
    def is_orderable(self) -> bool:
        """True for what `<` and MIN accept."""
        return self.name not in ("MAP", "STRUCT", "ARRAY")


@dataclass(frozen=True, slots=True)
class Field:
    """A named column."""

    name: str
    type: Type


BOOLEAN: Final = Type("BOOLEAN")
TINYINT: Final = Type("TINYINT")
SMALLINT: Final = Type("SMALLINT")
INT: Final = Type("INT")
BIGINT: Final = Type("BIGINT")
FLOAT: Final = Type("FLOAT")
DOUBLE: Final = Type("DOUBLE")
STRING: Final = Type("STRING")
BINARY: Final = Type("BINARY")
DATE: Final = Type("DATE")
TIMESTAMP: Final = Type("TIMESTAMP")
TIMESTAMP_NTZ: Final = Type("TIMESTAMP_NTZ")
INTERVAL: Final = Type("INTERVAL")
"""A day-time interval: microseconds."""
VOID: Final = Type("VOID")
"""The type of a bare NULL."""

INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def decimal(precision: int, scale: int) -> Type:
    """DECIMAL(precision, scale)."""
    return Type("DECIMAL", precision=precision, scale=scale)


def struct(*fields: Field) -> Type:
    """STRUCT of the given fields."""
    return Type("STRUCT", fields=fields)


def array(element: Type) -> Type:
    """ARRAY of one element type."""
    return Type("ARRAY", element=element)


STAMP: Final = pa.timestamp("us", tz="UTC")
"""Instants as Arrow has them: microseconds, in UTC."""

_ARROW: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": STAMP,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "INTERVAL": pa.duration("us"),
    "VOID": pa.null(),
}


def to_arrow(kind: Type) -> pa.DataType:
    """The one Arrow type that holds `kind` everywhere in the system."""
    if kind.name == "DECIMAL":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.name == "STRUCT":
        return pa.struct([pa.field(field.name, to_arrow(field.type)) for field in kind.fields])
    if kind.name == "ARRAY" and kind.element is not None:
        return pa.list_(to_arrow(kind.element))
    return _ARROW[kind.name]


def from_arrow(kind: pa.DataType) -> Type:
    """The SQL type of an Arrow type; wider or foreign variants map to the nearest one.

    Raises `UserError` for a type that has no place in Spark SQL.
    """
    if pa.types.is_dictionary(kind):
        return from_arrow(kind.value_type)
    if pa.types.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
        return decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if pa.types.is_struct(kind):
        return struct(*(Field(field.name, from_arrow(field.type)) for field in kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return array(from_arrow(kind.value_type))
    for test, mapped in _FROM_ARROW:
        if test(kind):
            return mapped
    raise UserError(f"the Arrow type {kind} has no SQL type", remedy="Cast the column before passing it.")


_MOST_DIGITS: Final = 38
"""Of a DECIMAL, as in Spark."""

_FROM_ARROW: Final = (
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_int8, TINYINT),
    (pa.types.is_int16, SMALLINT),
    (pa.types.is_uint8, SMALLINT),
    (pa.types.is_int32, INT),
    (pa.types.is_uint16, INT),
    (pa.types.is_int64, BIGINT),
    (pa.types.is_uint32, BIGINT),
    (pa.types.is_float32, FLOAT),
    (pa.types.is_float16, FLOAT),
    (pa.types.is_float64, DOUBLE),
    (pa.types.is_string, STRING),
    (pa.types.is_large_string, STRING),
    (pa.types.is_string_view, STRING),
    (pa.types.is_binary, BINARY),
    (pa.types.is_large_binary, BINARY),
    (pa.types.is_date, DATE),
    (pa.types.is_duration, INTERVAL),
    (pa.types.is_null, VOID),
)


@dataclass(frozen=True)
class Schema:
    """Ordered, typed columns with unique names (compared without case).

    Not slotted: what is derived from the columns is computed once, since a schema is asked for each of thousands of columns.
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for field in self.fields:
            if field.name.lower() in seen:
                raise UserError(
                    f"the column name '{field.name}' appears twice",
                    remedy="Give one of them an alias with AS.",
                )
            seen.add(field.name.lower())

    def __getstate__(self) -> dict[str, tuple[Field, ...]]:
        return {"fields": self.fields}

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(field.name for field in self.fields)

    def find(self, name: str) -> Field | None:
        """The field of that name whatever its case, or None."""
        return self._by_name.get(name.lower())

    def field(self, name: str) -> Field:
        """The field of that name; raises `UserError` that lists similar names."""
        match = self.find(name)
        if match is None:
            raise UserError(f"there is no column '{name}'", remedy=did_you_mean(name, self.names))
        return match

    def arrow(self) -> pa.Schema:
        """The Arrow schema, every column nullable."""
        return self._arrow

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name.lower(): field for field in self.fields}

    @cached_property
    def _arrow(self) -> pa.Schema:
        return pa.schema([pa.field(field.name, to_arrow(field.type)) for field in self.fields])

    @staticmethod
    def of_arrow(schema: pa.Schema) -> Schema:
        """The SQL schema of an Arrow schema."""
        return Schema(tuple(Field(field.name, from_arrow(field.type)) for field in schema))

"""Table of functions and operators of SQL: for each canonical name a factory, which makes the kernel for the types and
constants of a call, once when an expression is compiled. AND, OR, CASE and the like are in `branching`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.dataclass import dataclass
from headrace.operators.scalar.numbers import arithmetic, decimals, math_functions
from headrace.operators.scalar.numbers.comparison import compared, extreme, null_safe_equal
from headrace.operators.scalar.temporal import date_arithmetic, date_parts
from headrace.operators.scalar.temporal.time_zones import in_zone, instants_of, shown_at
from headrace.operators.scalar.text import regex, text_functions
from headrace.operators.scalar.text.parse_values import reader
from headrace.operators.scalar.values.datum import Datum, Kernel, Outcome, column, rows_of
from headrace.schema import TIMESTAMP, Type, to_arrow
from headrace.time import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class Site:
    """One call: function, types of its arguments, values of those that are constants (else None), type of the result."""

    function: str
    arguments: tuple[Type, ...]
    constants: tuple[Any, ...]
    result: Type


Factory: TypeAlias = Callable[[Site], Kernel]


def _additive(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.arithmetic(site.function, site.result)
    if not site.result.is_numeric or not all(kind.is_numeric for kind in site.arguments):
        return date_arithmetic.arithmetic(site.function, site.arguments, site.result)
    return arithmetic.additive(site.function, site.result)


def _divided(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.arithmetic("/", site.result)
    return (
        arithmetic.quotient
        if site.result.is_fractional
        else date_arithmetic.arithmetic("/", site.arguments, site.result)
    )


def _remainder(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.arithmetic(site.function, site.result)
    return (arithmetic.remainder if site.function == "%" else arithmetic.positive_remainder)(site.result)


def _whole_quotient(site: Site) -> Kernel:
    return decimals.whole_quotient if site.arguments[0].name == "DECIMAL" else arithmetic.whole_quotient


def _negated(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.changed(site.result, lambda values, scale: (-values, scale), "-")
    return arithmetic.negated(site.result)


def _absolute(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.changed(site.result, lambda values, scale: (abs(values), scale), "abs")
    return arithmetic.absolute(site.result)


def _same(function: Callable[..., Any]) -> Factory:
    return lambda _: lambda data: (function(*data), None)


def _fixed(kernel: Kernel) -> Factory:
    return lambda _: kernel


_OPERATORS: Final[Mapping[str, Factory]] = {
    "+": _additive,
    "-": _additive,
    "*": _additive,
    "/": _divided,
    "%": _remainder,
    "pmod": _remainder,
    "div": _whole_quotient,
    "negate": _negated,
    "abs": _absolute,
    **{
        symbol: lambda site: compared(site.function, site.arguments[0])
        for symbol in ("=", "<>", "<", "<=", ">", ">=")
    },
    "<=>": lambda site: null_safe_equal(site.arguments[0]),
    "greatest": lambda site: extreme(">", site.result),
    "least": lambda site: extreme("<", site.result),
    "not": _same(pc.invert),
    "isnull": _same(pc.is_null),
    "isnotnull": _same(pc.is_valid),
}


def _of_bits(site: Site) -> Kernel:
    from headrace.operators.scalar.numbers.bits import COUNT, bit, combined, shifted  # noqa: PLC0415 - with the first of them

    match site.function:
        case "bit_count":
            return COUNT
        case "getbit":
            return bit(site.arguments[0])
        case "<<" | ">>" | ">>>":
            return shifted(site.function, site.result)
        case _:
            return combined(site.function, site.result)


_BITS: Final[Mapping[str, Factory]] = dict.fromkeys(
    ("&", "|", "^", "~", "<<", ">>", ">>>", "bit_count", "getbit"), _of_bits
)


def _whole(site: Site) -> Kernel:
    return math_functions.whole(site.function, site.arguments[0], site.result)


def _rounded(site: Site) -> Kernel:
    digits = site.constants[1] if len(site.constants) == 2 else 0
    return math_functions.rounded(site.function, site.arguments[0], digits, site.result)


_NUMBERS: Final[Mapping[str, Factory]] = {
    "floor": _whole,
    "ceil": _whole,
    "round": _rounded,
    "bround": _rounded,
    "isnan": lambda _: math_functions.is_nan,
    "nanvl": lambda _: math_functions.nan_or,
    **{name: _fixed(kernel) for name, kernel in math_functions.REAL.items()},
}


def _like(site: Site) -> Kernel:
    escape = site.constants[2] if len(site.constants) == 3 else "\\"
    return regex.like(site.constants[1], escape, folded=site.function == "ilike")


_TEXTS: Final[Mapping[str, Factory]] = {
    **{name: _fixed(kernel) for name, kernel in text_functions.KERNELS.items()},
    "like": _like,
    "ilike": _like,
    "rlike": lambda site: regex.rlike(site.constants[1]),
    "regexp_extract": lambda site: regex.extract(
        site.constants[1], site.constants[2] if len(site.constants) == 3 else 1
    ),
    "regexp_replace": lambda site: regex.replaced(site.constants[1], site.constants[2]),
}


def _struct(site: Site) -> Kernel:
    """Field names are constants, which are part of the result type."""
    kind = to_arrow(site.result)

    def kernel(data: Sequence[Datum]) -> Outcome:
        rows = rows_of(data)
        return pa.StructArray.from_arrays(
            [column(datum, rows) for datum in data[1::2]], fields=list(kind)
        ), None

    return kernel


_STRUCTS: Final[Mapping[str, Factory]] = {"named_struct": _struct}


def _truncated(site: Site) -> Kernel:
    zone = site.constants[2] if len(site.constants) == 3 else "UTC"
    kernel = date_parts.truncation(units_first=True, result=site.result, zone=zone)
    return lambda data: kernel(data[:2])


def _first_of_two(kernel: Kernel) -> Kernel:
    """The second argument is a constant, already used to make the kernel."""
    return lambda data: kernel(data[:1])


_TIMES: Final[Mapping[str, Factory]] = {
    **{name: _fixed(kernel) for name, kernel in date_parts.PARTS.items()},
    "date_trunc": _truncated,
    "trunc": lambda site: date_parts.truncation(units_first=False, result=site.result),
    "to_date": lambda _: lambda data: (data[0], None),
    "to_timestamp": lambda _: lambda data: (data[0], None),
    "unix_seconds": lambda _: date_parts.since_epoch(SECOND),
    "unix_timestamp": lambda _: date_parts.cut_seconds,
    "unix_millis": lambda _: date_parts.since_epoch(MILLISECOND),
    "unix_micros": lambda _: date_parts.since_epoch(1),
    "timestamp_seconds": lambda site: date_parts.instant_of(SECOND, site.arguments[0], site.result),
    "timestamp_millis": lambda site: date_parts.instant_of(MILLISECOND, site.arguments[0], site.result),
    "timestamp_micros": lambda site: date_parts.instant_of(1, site.arguments[0], site.result),
    "date_add": lambda _: date_parts.moved_days(1),
    "date_sub": lambda _: date_parts.moved_days(-1),
    "datediff": lambda _: date_parts.days_between,
    "last_day": lambda _: date_parts.last_day,
    "from_utc_timestamp": lambda _: in_zone(shown_at),
    "to_utc_timestamp": lambda _: in_zone(instants_of),
    "to_timestamp_in": lambda site: _first_of_two(reader(TIMESTAMP, site.constants[1])),
}

KERNELS: Final[Mapping[str, Factory]] = {**_OPERATORS, **_BITS, **_NUMBERS, **_TEXTS, **_TIMES, **_STRUCTS}
"""With those of `compile.LAZY`, `compile.EXPANDED`, AND and OR, every function of the table."""

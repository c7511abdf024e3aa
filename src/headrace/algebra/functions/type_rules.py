"""Type rules of functions: from the types of the arguments to the types they are cast to and the type of the result.

A rule returns None when the arguments do not fit; the caller reports the error. Constants are arguments of a rule because
Spark types `price * 2` and `round(price, 2)` by their value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from headrace.algebra.expressions.expression import Value
from headrace.algebra.functions.coercion import (
    MAX_PRECISION,
    accepts,
    adjusted,
    common_of_two,
    common_type,
    decimal_for,
    decimal_of_constant,
)
from headrace.algebra.functions.java_regex import check_like, translated, translated_replacement
from headrace.errors import UnsupportedQuery, UserError
from headrace.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    Type,
    decimal,
)
from headrace.zones import rules_of

Typed: TypeAlias = tuple[tuple[Type, ...], Type]
"""The types of the arguments after casts, and the type of the result."""
Rule: TypeAlias = Callable[[tuple[Type, ...], tuple[Value, ...]], Typed | None]

_TIMES: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


def fixed(result: Type, *parameters: Type, optional: tuple[Type, ...] = ()) -> Rule:
    """Parameters of fixed types; those in `optional` may be left out from the end."""

    def rule(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
        expected = (*parameters, *optional)[: max(len(types), len(parameters))]
        if len(expected) != len(types) or not all(map(accepts, expected, types)):
            return None
        return expected, result

    return rule


def zoned(result: Type, *parameters: Type, optional: bool = False) -> Rule:
    """Parameters of fixed types, then the name of a time zone as a constant text, optional with `optional`."""
    alone, with_zone = fixed(result, *parameters), fixed(result, *parameters, STRING)

    def rule(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
        if optional and len(types) == len(parameters):
            return alone(types, constants)
        typed = with_zone(types, constants)
        if typed is None:
            return None
        zone = constants[-1]
        if not isinstance(zone, str) or rules_of(zone) is None:
            raise UserError(
                "there is no such time zone", remedy="Name a constant one, as in 'Europe/Berlin'."
            )
        return typed

    return rule


def repeated(result: Type, kind: Type, *, before: tuple[Type, ...] = (), least: int = 1) -> Rule:
    """`before`, then any number (at least `least`) of arguments of one type."""

    def rule(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
        expected = (*before, *[kind] * (len(types) - len(before)))
        if len(types) < len(before) + least or not all(map(accepts, expected, types)):
            return None
        return expected, result

    return rule


def anything(result: Type) -> Rule:
    """One argument of any type."""
    return lambda types, _: (types, result) if len(types) == 1 else None


def truth(least: int, most: int | None) -> Rule:
    """Truth values."""

    def rule(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
        fits = least <= len(types) <= (most or len(types)) and all(kind in (BOOLEAN, VOID) for kind in types)
        return ((BOOLEAN,) * len(types), BOOLEAN) if fits else None

    return rule


def cast_to_common(
    least: int, most: int | None = None, result: Type | None = None, *, ordered: bool = False
) -> Rule:
    """Arguments cast to their common type, which is the result's unless `result` is given."""

    def rule(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
        if not least <= len(types) <= (most or len(types)):
            return None
        kind = _common(types)
        if kind is None or (ordered and not kind.is_orderable):
            return None
        return (kind,) * len(types), result or kind

    return rule


def choice(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """`if(condition, then, otherwise)`."""
    if len(types) != 3 or types[0] not in (BOOLEAN, VOID):
        return None
    kind = _common(types[1:])
    return None if kind is None else ((BOOLEAN, kind, kind), kind)


def choice_by_null(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """`nvl2(tested, if not null, if null)`."""
    kind = _common(types[1:]) if len(types) == 3 else None
    return None if kind is None else ((types[0], kind, kind), kind)


def null_if_equal(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """`nullif(a, b)` has a's type; only the comparison uses the common one."""
    kind = _common(types) if len(types) == 2 else None
    return None if kind is None or not kind.is_orderable else (types, types[0])


def _common(types: Sequence[Type]) -> Type | None:
    try:
        return common_type(types)
    except UserError:
        return None


# ------------------------------------------------------------------------------------------------------- bits


def _bits_of(kind: Type) -> Type | None:
    """A whole number's own type, INT for an untyped NULL; None for all others."""
    return INT if kind == VOID else kind if kind.is_integer else None


def combined_bits(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """Two whole numbers, cast to their common type; a text is cast to BIGINT where the other is a number."""
    common = common_of_two(*types) if len(types) == 2 else None
    kind = None if common is None else _bits_of(common)
    return None if kind is None else ((kind, kind), kind)


def inverted_bits(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """One whole number."""
    kind = _bits_of(types[0]) if len(types) == 1 else None
    return None if kind is None else ((kind,), kind)


def shifted_bits(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """A BIGINT, or what is cast to INT, by a number of places."""
    if len(types) != 2 or not all(accepts(INT, kind) for kind in types):
        return None
    kind = BIGINT if types[0] == BIGINT else INT
    return (kind, INT), kind


def counted_bits(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """A whole number or a truth value."""
    kind = BOOLEAN if types == (BOOLEAN,) else _bits_of(types[0]) if len(types) == 1 else None
    return None if kind is None else ((kind,), INT)


def one_bit(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """A whole number and the position of a bit."""
    kind = _bits_of(types[0]) if len(types) == 2 and accepts(INT, types[1]) else None
    return None if kind is None else ((kind, INT), TINYINT)


# ------------------------------------------------------------------------------------------------- arithmetic

_DecimalResult: TypeAlias = Callable[[Type, Type], Type]


def _sum_of_decimals(left: Type, right: Type) -> Type:
    scale = max(left.scale, right.scale)
    return adjusted(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)


def _product_of_decimals(left: Type, right: Type) -> Type:
    return adjusted(left.precision + right.precision + 1, left.scale + right.scale)


def _quotient_of_decimals(left: Type, right: Type) -> Type:
    scale = max(6, left.scale + right.precision + 1)
    return adjusted(left.precision - left.scale + right.scale + scale, scale)


def _remainder_of_decimals(left: Type, right: Type) -> Type:
    scale = max(left.scale, right.scale)
    return adjusted(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def _numbers(
    types: tuple[Type, ...], constants: tuple[Value, ...], of_decimals: _DecimalResult
) -> Typed | None:
    """Two numbers: DECIMALs keep their types, all others are cast to the common one."""
    common = common_of_two(*types)
    if common is None or not (common.is_numeric or common == VOID):
        return None
    if common.name == "DECIMAL":
        sides = tuple(
            decimal_of_constant(value) if kind.is_integer and isinstance(value, int) else decimal_for(kind)
            for kind, value in zip((t if t != VOID else common for t in types), constants, strict=True)
        )
        return sides, of_decimals(sides[0], sides[1])
    kind = DOUBLE if common == VOID else common
    return (kind, kind), kind


def plus(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """Numbers; DATE and days; a point in time and an INTERVAL; two INTERVALs."""
    if len(types) != 2:
        return None
    moved = _moved(types) or _moved(types[::-1])
    if moved is not None:
        return moved if _moved(types) else (moved[0][::-1], moved[1])
    if INTERVAL in types:
        return _intervals(types)
    return _numbers(types, constants, _sum_of_decimals)


def minus(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """As plus, and the difference of two points in time, an INTERVAL."""
    if len(types) != 2:
        return None
    if (moved := _moved(types)) is not None:
        return moved
    if all(kind.name in _TIMES for kind in types):
        common = common_of_two(*types)
        return None if common is None else ((common, common), INTERVAL)
    if INTERVAL in types:
        return _intervals(types)
    return _numbers(types, constants, _sum_of_decimals)


def _moved(types: tuple[Type, ...]) -> Typed | None:
    """A point in time moved by the second argument.

    DATE with INTERVAL is DATE or TIMESTAMP in Spark by the INTERVAL's unit, which Headrace's type does not have: refused.
    """
    time, step = types
    if time == DATE and step.name in ("TINYINT", "SMALLINT", "INT"):
        return (DATE, INT), DATE
    if time.name in ("TIMESTAMP", "TIMESTAMP_NTZ") and step == INTERVAL:
        return (time, INTERVAL), time
    return None


def _intervals(types: tuple[Type, ...]) -> Typed | None:
    return ((INTERVAL, INTERVAL), INTERVAL) if all(kind in (INTERVAL, VOID) for kind in types) else None


def times(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """Numbers; an INTERVAL and a whole number, in either order."""
    if len(types) != 2:
        return None
    if INTERVAL in types:
        other = next((kind for kind in types if kind != INTERVAL), None)
        scale = _interval_factor(other)
        return (
            None
            if scale is None
            else (tuple(kind if kind == INTERVAL else scale for kind in types), INTERVAL)
        )
    return _numbers(types, constants, _product_of_decimals)


def divided(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """Numbers, as DOUBLE unless DECIMAL; an INTERVAL by a number."""
    if len(types) != 2:
        return None
    if types[0] == INTERVAL:
        scale = _interval_factor(types[1])
        return None if scale is None else ((INTERVAL, scale), INTERVAL)
    typed = _numbers(types, constants, _quotient_of_decimals)
    if typed is None or typed[1].name == "DECIMAL":
        return typed
    # A text with an integer is cast to an integer, although the quotient is not one.
    return (typed[0] if STRING in types else (DOUBLE, DOUBLE)), DOUBLE


def _interval_factor(kind: Type | None) -> Type | None:
    if kind is None:
        return None
    if kind.is_integer or kind == VOID:
        return BIGINT
    return DOUBLE if kind.is_fractional else None


def remainder(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """Numbers."""
    return _numbers(types, constants, _remainder_of_decimals) if len(types) == 2 else None


def whole_quotient(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """Integers or DECIMALs; always BIGINT."""
    typed = remainder(types, constants)
    if typed is None or typed[1].is_fractional:
        return ((BIGINT, BIGINT), BIGINT) if types == (VOID, VOID) else None
    return typed[0] if typed[1].name == "DECIMAL" else (BIGINT, BIGINT), BIGINT


def signed(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """One number, or an INTERVAL, keeping its type."""
    if len(types) != 1:
        return None
    kind = DOUBLE if types[0] in (STRING, VOID) else types[0]
    return ((kind,), kind) if kind.is_numeric or kind == INTERVAL else None


def integral(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
    """`floor` and `ceil`: BIGINT, or a DECIMAL without fraction digits."""
    if len(types) != 1 or not (types[0].is_numeric or types[0] in (STRING, VOID)):
        return None
    if types[0].name == "DECIMAL":
        kind = types[0]
        digits = kind.precision - kind.scale + 1 if kind.scale else kind.precision
        return types, decimal(min(MAX_PRECISION, digits), 0)
    return (BIGINT if types[0].is_integer else DOUBLE,), BIGINT


def rounded(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """`round(x[, digits])` with constant digits; a DECIMAL's scale shrinks to them."""
    if len(types) not in (1, 2) or (len(types) == 2 and not isinstance(constants[1], int)):
        return None
    if not (types[0].is_numeric or types[0] in (STRING, VOID)):
        return None
    kind = DOUBLE if types[0] in (STRING, VOID) else types[0]
    digits = constants[1] if len(types) == 2 else 0
    assert isinstance(digits, int)
    return (kind, INT)[: len(types)], _rounded_decimal(kind, digits) if kind.name == "DECIMAL" else kind


def _rounded_decimal(kind: Type, digits: int) -> Type:
    whole_digits = kind.precision - kind.scale + 1
    if digits < 0:
        return decimal(min(MAX_PRECISION, max(whole_digits, 1 - digits)), 0)
    scale = min(kind.scale, digits)
    return decimal(min(MAX_PRECISION, whole_digits + scale), scale)


def instant_of(unit_is_second: bool) -> Rule:
    """`timestamp_seconds` takes any number, `timestamp_millis` and `timestamp_micros` integers."""

    def rule(types: tuple[Type, ...], _: tuple[Value, ...]) -> Typed | None:
        if len(types) != 1:
            return None
        if types[0].is_integer or types[0] == VOID:
            return (BIGINT,), TIMESTAMP
        return ((DOUBLE,), TIMESTAMP) if unit_is_second and types[0].is_fractional else None

    return rule


def pattern_of(kind: Type, *, replaces: bool = False) -> Rule:
    """A text and constant texts: a regular expression, and the group or the replacement.

    Raises `UnsupportedQuery` for syntax with different meanings in Java and RE2.
    """
    texts = fixed(kind, STRING, STRING, STRING) if replaces else fixed(kind, STRING, STRING, optional=(INT,))

    def rule(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
        typed = texts(types, constants)
        if typed is None or not isinstance(constants[1], str):
            return None
        pattern = translated(constants[1])
        if replaces:
            if not isinstance(constants[2], str):
                return None
            translated_replacement(constants[2], pattern.groups)
            if pattern.has_end_anchor or pattern.may_be_empty:
                raise UnsupportedQuery(
                    f"replacing '{constants[1]}', which uses '$' or matches nothing, is not exactly what Spark does",
                    remedy="Write \\z for '$', and a pattern that matches at least one character.",
                )
        elif kind == STRING:
            group = constants[2] if len(constants) == 3 else 1
            if (
                not isinstance(group, int)
                or not 0 <= group <= pattern.groups
                or (pattern.has_end_anchor and group == 0)
            ):
                return None
        return typed

    return rule


def like_pattern(*, folded: bool = False) -> Rule:
    """A text, a LIKE pattern, and optionally the escape sign, a constant; `folded` patterns are compared in small letters.

    Raises `UserError` for another escape, and for a constant pattern that fails on every row.
    """
    texts = fixed(BOOLEAN, STRING, STRING, optional=(STRING,))

    def rule(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
        typed = texts(types, constants)
        if typed is None:
            return None
        pattern, escape = constants[1], constants[2] if len(constants) == 3 else "\\"
        if not isinstance(escape, str) or len(escape) != 1:
            raise UserError(
                "the escape of LIKE is a constant text of one character",
                remedy="Write for example: text LIKE 'a!%' ESCAPE '!'.",
            )
        if isinstance(pattern, str):
            check_like(pattern.lower() if folded else pattern, escape)
        return typed

    return rule

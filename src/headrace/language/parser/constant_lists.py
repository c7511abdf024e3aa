"""The parser of the constants of a long IN, all at once, as one typed Arrow array: no syntax node or Python step for
each.

Types are those that `literals.number` gives the constants one by one, and their common type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.expression import Constants
from headrace.algebra.functions.coercion import common_type, decimal_for
from headrace.language.syntax.ast import ConstantList
from headrace.language.syntax.cursor import Cursor
from headrace.language.syntax.lexer import CONSTANT, unescaped
from headrace.schema import BIGINT, DATE, DOUBLE, INT, STRING, Type, decimal, to_arrow

Typed: TypeAlias = tuple[pa.Array, Type]

_NARROW: Final = 2**31


def constant_list(cursor: Cursor) -> ConstantList | None:
    """Pass the list at the cursor as one node; None, and nothing is passed, where it must be read constant by constant."""
    texts = pa.array(CONSTANT.findall(cursor.token.text), pa.string())
    texts = pc.if_else(pc.equal(pc.utf8_upper(texts), "NULL"), pa.scalar(None, pa.string()), texts)
    rules = (read for pattern, read in _RULES if _all_match(texts, pattern))
    if texts.null_count == len(texts) or (read := next(rules, None)) is None:
        return None
    try:
        values, kind = read(texts)
    except pa.ArrowInvalid:  # a date or number that does not exist: the general parser names it
        return None
    return ConstantList(Constants.of(values, kind), cursor.advance().span)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _integers(texts: pa.Array) -> Typed:
    values = texts.cast(pa.int64())
    bounds = pc.min_max(values).as_py()
    if bounds["min"] >= -_NARROW and bounds["max"] < _NARROW:
        return values.cast(pa.int32()), INT
    return values, BIGINT


def _long_integers(texts: pa.Array) -> Typed:
    return pc.utf8_rtrim(texts, "lL").cast(pa.int64()), BIGINT


def _decimals(texts: pa.Array) -> Typed:
    """DECIMALs, and integers among them: DECIMALs too with the suffix BD."""
    numbers = pc.utf8_rtrim(texts, "bBdD")
    digits = pc.utf8_ltrim(numbers, "-0")
    size, point = pc.utf8_length(digits), pc.find_substring(digits, ".")
    is_whole = pc.equal(point, -1)
    scale = pc.if_else(is_whole, 0, pc.subtract(pc.subtract(size, point), 1))
    is_integer = pc.and_(is_whole, pc.equal(numbers, texts))
    shapes = pc.unique(
        pc.add(pc.multiply(pc.if_else(is_whole, size, point), _SCALES), scale).filter(pc.invert(is_integer))
    )
    kinds = [
        decimal(max(whole + part, 1), part)
        for whole, part in (divmod(shape, _SCALES) for shape in shapes.to_pylist())
    ]
    if pc.any(is_integer).as_py():
        kinds.append(_integers(numbers.filter(is_integer))[1])
    kind = decimal_for(common_type(kinds))
    return numbers.cast(to_arrow(kind)), kind


def _doubles(texts: pa.Array) -> Typed:
    values = pc.utf8_rtrim(texts, "dD").cast(pa.float64())
    if not pc.all(pc.is_finite(values)).as_py():
        raise pa.ArrowInvalid("too large")
    return values, DOUBLE


def _strings(texts: pa.Array) -> Typed:
    values = pc.utf8_slice_codeunits(texts, 1, -1)
    is_escaped = pc.fill_null(pc.match_substring_regex(values, r"[\\']"), False)
    if pc.any(is_escaped).as_py():
        plain = [unescaped(text, "'") for text in values.filter(is_escaped).to_pylist()]
        values = pc.replace_with_mask(values, is_escaped, pa.array(plain, pa.string()))
    return values, STRING


def _dates(texts: pa.Array) -> Typed:
    return pc.utf8_slice_codeunits(texts, -11, -1).cast(pa.date32()), DATE


_SCALES: Final = 100
_RULES: Final[tuple[tuple[str, Callable[[pa.Array], Typed]], ...]] = (
    (r"^-?[0-9]{1,18}$", _integers),
    (r"^-?[0-9]{1,18}[lL]$", _long_integers),
    (r"^-?[0-9]{1,18}(\.[0-9]{1,18})?([bB][dD])?$", _decimals),
    (r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+[dD]?|[dD])$", _doubles),
    (r"^'", _strings),
    (r"^(?i:DATE)\s*'[0-9]{4}-[0-9]{2}-[0-9]{2}'$", _dates),
)
"""What all constants but NULLs must match to be read by a function."""

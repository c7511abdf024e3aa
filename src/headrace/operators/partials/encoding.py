"""Partials and encodings by type: which partial an aggregate has over an expression of a type, batches of Arrow values
as numpy arguments of partials, and cells as Arrow columns of state tables and back.

Numbers are stored as they are. Values without arithmetic (strings, binaries, decimals) under MIN and MAX are compared
through ranks, and a first or last value of any type is an index into a dictionary. Both are local to one `load`; the
values themselves are stored. So are values chosen by others, ranked together with those.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal as Choice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, as_int64, flat, hashes, normalise
from headrace.operators.base.sort_ranks import sort_rank
from headrace.operators.partials.central_moments import CoMoments, Moments, Shape
from headrace.operators.partials.integer_moments import carried, squared
from headrace.operators.partials.partial import Argument, Bitwise, Cells, Column, Count, Extreme, Partial, Sum
from headrace.operators.partials.synopsis_partial import Synopsis
from headrace.operators.partials.time_weighted import NOWHERE, Fading, Placed
from headrace.schema import Type, to_arrow
from headrace.synopses.sketches.sketch_kind import Kind
from headrace.time import Duration

Encoding = Choice[
    "rows",
    "int",
    "limbs2",
    "limbs4",
    "squares",
    "double",
    "ranked",
    "hash",
    "text",
    "pair",
    "timed",
    "placed",
    "chosen",
]


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A partial and its input: an expression's values in an encoding, or just rows; `weight` is the weight of each row."""

    partial: Partial
    expression: Expression | None
    encoding: Encoding
    weight: Expression | None = None

    def __hash__(self) -> int:
        """Of the kind and the name of the input: cells are looked up by it all the time; `==` compares all."""
        name = getattr(self.expression, "name", "")
        return hash((type(self.partial), name, self.encoding))

    @property
    def has_dictionary(self) -> bool:
        """Whether the last column of its cells holds indices into a dictionary of values."""
        return self.encoding in ("ranked", "placed", "chosen")

    def arrow_types(self) -> list[pa.DataType]:
        """The types of its stored columns."""
        width = self.partial.width
        if isinstance(self.partial, Count):
            return [pa.int64()] * width
        if isinstance(self.partial, Synopsis):
            return [pa.large_binary()]
        if self.encoding == "timed":
            return [pa.int64()] + [pa.float64()] * (width - 1)
        if self.has_dictionary and self.expression is not None:
            kind = self.expression.type
            return [pa.int64()] * (width - 1) + [
                to_arrow(kind.fields[0].type if self.encoding == "placed" else kind)
            ]
        return [pa.float64() if self.encoding in ("double", "pair") else pa.int64()] * width


def rows_partial() -> PartialColumn:
    """The count of all rows, which every store has: it shows whether a cell is empty."""
    return PartialColumn(Count(), None, "rows")


def count_partial(expression: Expression) -> PartialColumn:
    """How many values are not NULL."""
    return PartialColumn(Count(), expression, "rows")


def sum_partial(expression: Expression) -> PartialColumn:
    """The partial for SUM and AVG over a type; integers and decimals stay exact as limbs of 32 bits, whatever the cut."""
    kind = expression.type
    if kind.name == "DECIMAL":
        return PartialColumn(Sum(4, integer=True), expression, "limbs4")
    if kind.name == "BIGINT":
        return PartialColumn(Sum(2, integer=True), expression, "limbs2")
    if kind.is_integer:
        return PartialColumn(Sum(1, integer=True), expression, "int")
    return PartialColumn(Sum(), expression, "double")


def extreme_partial(expression: Expression, largest: bool) -> PartialColumn:
    """The partial for MIN or MAX over a type."""
    kind = expression.type
    if kind.is_fractional:
        return PartialColumn(Extreme(largest, integer=False), expression, "double")
    ranked = kind.name in ("STRING", "BINARY", "DECIMAL", "VOID")
    return PartialColumn(Extreme(largest, integer=True), expression, "ranked" if ranked else "int")


def bits_partial(expression: Expression, which: Choice["and", "or", "xor"]) -> PartialColumn:
    """The partial for the bits of whole numbers."""
    return PartialColumn(Bitwise(which), expression, "int")


def moments_partial(expression: Expression) -> PartialColumn:
    """The partial for variances of doubles."""
    return PartialColumn(Moments(), expression, "double")


def squares_partial(expression: Expression) -> PartialColumn:
    """The partial for variances of integers and decimals, in addition to their sum: the exact sum of squares, whatever
    the cut.
    """
    width = {"DECIMAL": 8, "BIGINT": 4}.get(expression.type.name, 2)
    return PartialColumn(Sum(width, integer=True), expression, "squares")


def synopsis_partial(
    kind: Kind, expression: Expression, encoding: Encoding, weight: Expression | None = None
) -> PartialColumn:
    """The partial for a synopsis of values that are not NULL."""
    return PartialColumn(Synopsis(kind), expression, encoding, weight)


def shape_partial(expression: Expression) -> PartialColumn:
    """The partial for skewness and kurtosis."""
    return PartialColumn(Shape(), expression, "double")


def pairs_partial(expression: Expression) -> PartialColumn:
    """The partial for all statistics of pairs of numbers."""
    return PartialColumn(CoMoments(), expression, "pair")


def fading_partial(expression: Expression, half_life: Duration) -> PartialColumn:
    """The partial for a mean that fades with time."""
    return PartialColumn(Fading(half_life), expression, "timed")


def placed_partial(expression: Expression, *, last: bool) -> PartialColumn:
    """The partial for the first or last value."""
    return PartialColumn(Placed(last), expression, "placed")


def chosen_partial(expression: Expression, *, largest: bool) -> PartialColumn:
    """The partial for the value of the row in which another is greatest or least."""
    return PartialColumn(Extreme(largest, integer=True), expression, "chosen")


def argument(
    partial_column: PartialColumn,
    values: pa.Array | None,
    dictionary: pa.Array | None = None,
    weights: pa.Array | None = None,
) -> Argument:
    """A batch's values as numpy, ready to lift; `dictionary` is that of `dictionary_of`."""
    if values is None:
        return Argument(np.empty(0), None)
    valid = ~values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    if isinstance(partial_column.partial, Count):
        return Argument(np.empty(0), valid)
    numbers = _numbers(partial_column, values, dictionary)
    if weights is None:
        return Argument(numbers, valid)
    heavy = pc.fill_null(_as_double(weights), 0.0).to_numpy(zero_copy_only=False)
    return Argument(numbers, valid, heavy)


def _numbers(partial_column: PartialColumn, values: pa.Array, dictionary: pa.Array | None) -> Column:
    if partial_column.encoding == "double":
        doubles = values if pa.types.is_float64(values.type) else _as_double(values)
        numbers: Column = pc.fill_null(doubles, 0.0).to_numpy() if values.null_count else doubles.to_numpy()
        return numbers
    if partial_column.encoding == "int":
        return as_int64(values)
    if partial_column.encoding == "hash":
        return hashes(values)
    if partial_column.encoding == "text":
        texts: Column = values.to_numpy(zero_copy_only=False)
        return texts
    if partial_column.encoding == "limbs2":
        whole = as_int64(values)
        limbs = np.empty((2, len(whole)), np.int64)
        np.bitwise_and(whole, 0xFFFFFFFF, out=limbs[0])
        np.right_shift(whole, 32, out=limbs[1])
        return limbs.T
    if partial_column.encoding == "limbs4":
        return _decimal_limbs(values)
    if partial_column.encoding == "squares":
        return _squares(values, partial_column.partial.width)
    if partial_column.encoding in ("pair", "timed", "placed"):
        return _structure(partial_column.encoding, values)
    if partial_column.encoding == "chosen":
        return sort_rank(values, False, True)
    return ranks(values, dictionary)


def summable(values: pa.Array | None) -> tuple[Ints, int] | None:
    """Integers, NULL as 0, and their greatest absolute value; None if a sum of them could leave 64 bits."""
    if values is None or not len(values):
        return None
    whole = as_int64(values)
    most = max(int(whole.max()), -int(whole.min()))
    return (whole, most) if most * len(whole) < 1 << 62 else None


def summable_squares(values: pa.Array | None) -> tuple[Ints, int] | None:
    """Squares of integers, NULL as 0, and the greatest; None if a sum of them could leave 64 bits."""
    if values is None or not len(values) or pa.types.is_decimal(values.type):
        return None
    whole = as_int64(values)
    most = max(int(whole.max()), -int(whole.min())) ** 2
    return (whole * whole, most) if most * len(whole) < 1 << 62 else None


def _squares(values: pa.Array, width: int) -> Column:
    """The squares of integers or of unscaled decimals as `width` limbs."""
    if pa.types.is_decimal(values.type):
        return squared(_decimal_limbs(pc.abs(values)))
    whole = as_int64(values)
    if width == 2:
        square = whole * whole
        return np.stack([square & 0xFFFFFFFF, square >> 32], axis=1)
    sizes = np.abs(whole).view(np.uint64)  # also of the least integer, whose absolute value overflows int64
    return squared(np.stack([sizes & np.uint64(0xFFFFFFFF), sizes >> np.uint64(32)], axis=1))


def _structure(encoding: Encoding, values: pa.Array) -> Column:
    """The parts of structures side by side: doubles of pairs, else integers, with doubles as their bits."""
    first, *rest = values.flatten()
    columns = [pc.fill_null(part, 0).to_numpy(zero_copy_only=False) for part in rest]
    if encoding == "placed":
        return np.stack([*columns, np.arange(len(values))], axis=1)
    numbers = pc.fill_null(first, 0.0).to_numpy(zero_copy_only=False)
    if encoding == "timed":
        numbers = np.ascontiguousarray(numbers).view(np.int64)
    return np.stack([numbers, *columns], axis=1)


def dictionary_of(partial_column: PartialColumn, values: pa.Array | None) -> pa.Array | None:
    """The dictionary into which lifted cells point; None for numbers."""
    if values is None or not partial_column.has_dictionary:
        return None
    match partial_column.encoding:
        case "ranked":
            return sorted_dictionary(values)
        case "chosen":
            return _by_rank(values, sort_rank(values, False, True))
        case _:
            return values.flatten()[0]


def _by_rank(values: pa.Array, ranked: Ints) -> pa.Array:
    """A structure of each rank, with 0.0 for -0.0, so that which of equal ones it is does not show."""
    held = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    row = np.full(int(ranked[held].max()) + 1 if len(held) else 0, -1, np.int64)
    row[ranked[held]] = held
    return _unsigned(values.take(pa.array(row, mask=row < 0)))


def _unsigned(values: pa.Array) -> pa.Array:
    """The values with 0.0 for -0.0, also inside of structures."""
    if not pa.types.is_struct(values.type):
        return normalise(values)
    parts = [_unsigned(part) for part in values.flatten()]
    return pa.StructArray.from_arrays(parts, fields=list(values.type), mask=values.is_null())


def _as_double(values: pa.Array) -> pa.Array:
    """Integers may lose digits above 2^53 here."""
    return values.cast(pa.float64(), safe=False)


def _decimal_limbs(values: pa.Array) -> Column:
    """The four 32-bit limbs of the unscaled two's complement, the highest signed; NULL as zero."""
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(Decimal(0), values.type))
    wide = values.cast(pa.decimal128(38, values.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.uint32)[
        4 * wide.offset : 4 * (wide.offset + len(wide))
    ].reshape(-1, 4)
    limbs = words.astype(np.int64)
    limbs[:, 3] = words[:, 3].view(np.int32)
    return limbs


def sorted_dictionary(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The distinct values, not NULL, ascending (strings by bytes, as Spark compares them)."""
    distinct = flat(pc.unique(values)).drop_null()
    return distinct.take(pc.sort_indices(distinct))


def ranks(values: pa.Array, dictionary: pa.Array | None) -> Column:
    """The index of each value in a sorted dictionary; NULL as 0."""
    assert dictionary is not None
    indices = pc.index_in(values, value_set=dictionary)
    result: Column = pc.fill_null(indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return result


def store(partial_column: PartialColumn, cells: Cells, dictionary: pa.Array | None) -> list[pa.Array]:
    """Arrow columns of cells; an empty cell with a dictionary is NULL."""
    if isinstance(partial_column.partial, Synopsis):
        return [pa.array(cells[0], pa.large_binary())]
    if not partial_column.has_dictionary:
        return [pa.array(part) for part in cells]
    return [*(pa.array(part) for part in cells[:-1]), unrank(cells[-1], dictionary)]


def unrank(indices: Column, dictionary: pa.Array | None) -> pa.Array:
    """Values of ranks; ranks outside the dictionary (the identities) are NULL."""
    assert dictionary is not None
    outside = (indices < 0) | (indices >= len(dictionary))
    return dictionary.take(pa.array(np.where(outside, 0, indices), mask=outside))


def load(
    partial_column: PartialColumn, columns: Sequence[pa.Array | pa.ChunkedArray]
) -> tuple[Cells, pa.Array | None]:
    """Cells from Arrow columns, and the dictionary of a partial that has one."""
    if not partial_column.has_dictionary:
        return tuple(flat(column).to_numpy(zero_copy_only=False) for column in columns), None
    values = flat(columns[-1])
    if isinstance(partial_column.partial, Placed):
        at, position = (flat(column).to_numpy(zero_copy_only=False) for column in columns[:-1])
        return (
            at,
            position,
            np.where(at == partial_column.partial.never, NOWHERE, np.arange(len(values))),
        ), values
    empty = values.is_null().to_numpy(zero_copy_only=False)
    if partial_column.encoding == "chosen":
        indices = sort_rank(values, False, True)
        dictionary = _by_rank(values, indices)
    else:
        dictionary = sorted_dictionary(values)
        indices = ranks(values, dictionary)
    indices[empty] = partial_column.partial.identity((1,))[0][0]
    return (indices,), dictionary


def as_doubles(limbs: Cells) -> Column:
    """The nearest doubles of integers summed as limbs."""
    if len(limbs) == 1:
        return limbs[0].astype(np.float64)
    carried = limbs[1] + (limbs[0] >> 32)
    doubles: Column = carried.astype(np.float64) * 2.0**32 + (limbs[0] & 0xFFFFFFFF)
    return doubles


def whole_numbers(limbs: Cells, kind: Type) -> tuple[pa.Array, np.ndarray]:
    """Exact integers or decimals from summed limbs, and where they do not fit the type (there NULL)."""
    parts = carried(limbs)
    if kind.name != "DECIMAL":
        return _bigints(parts)
    top = parts[3]
    words = np.stack(
        [*(part.astype(np.uint32) for part in parts[:3]), top.astype(np.int32).view(np.uint32)], axis=1
    )
    raw = pa.Array.from_buffers(
        pa.decimal128(38, kind.scale), len(top), [None, pa.py_buffer(words.tobytes())]
    )
    limit = pa.scalar(Decimal(10**kind.precision - 1), pa.decimal128(38, 0))
    bad = (top >= 2**31) | (top < -(2**31))
    unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(top), raw.buffers())
    bad |= pc.greater(pc.abs(unscaled), limit).to_numpy(zero_copy_only=False)
    fitting = pc.if_else(pa.array(~bad), raw, pa.scalar(None, raw.type))
    return fitting.cast(to_arrow(kind), safe=False), bad


def _bigints(parts: list[Column]) -> tuple[pa.Array, np.ndarray]:
    if len(parts) == 1:
        return pa.array(parts[0]), np.zeros(len(parts[0]), bool)
    high = parts[1]
    bad = (high >= 2**31) | (high < -(2**31))
    value = (np.where(bad, 0, high) << 32) | parts[0]
    return pa.array(value, mask=bad if bad.any() else None), bad

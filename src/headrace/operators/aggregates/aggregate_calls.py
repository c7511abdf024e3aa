"""Aggregate calls (SUM, AVG, MIN, …) by partials: which partials the calls of a query need, each once; rows folded by
group into cells, the numbers of a partial for one group; and the value of each call from its cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.aggregates import (
    BY_ANOTHER,
    BY_ORDER,
    BY_VALUE,
    OF_BITS,
    OF_PAIRS,
    OF_SHAPE,
    AggregateCall,
)
from headrace.algebra.expressions.expression import Case, Expression, Literal
from headrace.dataclass import dataclass
from headrace.operators.aggregates.row_weights import common_weight, present
from headrace.operators.aggregates.synopsis_calls import is_synopsis
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.integer_moments import exact_variance
from headrace.operators.partials.moment_statistics import of_pairs, of_shape
from headrace.operators.partials.partial import Argument, Cells, Count, Sum
from headrace.schema import BOOLEAN, to_arrow

_WHICH: Final[dict[str, Choice["and", "or", "xor"]]] = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor"}


@dataclass(frozen=True, slots=True)
class Lowered:
    """An aggregate's column, and the rows on which it overflowed (None: nowhere)."""

    values: pa.Array
    errors: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Cells of every partial for the groups to answer, with the dictionaries of ranked ones."""

    cells: Mapping[PartialColumn, Cells]
    dictionaries: Mapping[PartialColumn, pa.Array] = field(default_factory=dict)


def effective_argument(call: AggregateCall) -> Expression | None:
    """The argument with FILTER folded in: rows that fail the condition become NULL, and raise no errors."""
    if call.condition is None:
        return call.argument
    value = call.argument or Literal(True, BOOLEAN)
    return Case(((call.condition, value),), Literal(None, value.type), value.type)


def needs_values(call: AggregateCall) -> bool:
    """True when it is computed from the distinct values, not from partials of a group."""
    return call.distinct or (call.function in BY_VALUE and not is_synopsis(call))


def partials_of(calls: Sequence[AggregateCall]) -> tuple[PartialColumn, ...]:
    """The partials needed, each once; the first is always the count of all rows."""
    partials: dict[PartialColumn, None] = {at_rest.rows_partial(): None}
    for call in calls:
        partials.update(dict.fromkeys(partial_columns_of(call)))
    return tuple(partials)


def partial_columns_of(call: AggregateCall) -> tuple[PartialColumn, ...]:
    """The partials of one call."""
    argument = effective_argument(call)
    if argument is None:
        return (at_rest.rows_partial(),)
    counted_values = present(argument)
    counted = at_rest.rows_partial() if counted_values is None else at_rest.count_partial(counted_values)
    if is_synopsis(call):
        from headrace.operators.aggregates.synopsis_aggregates import synopses_of  # noqa: PLC0415 - with the first sketch

        return synopses_of(call, argument)
    match call.function:
        case "count":
            return (counted,)
        case "sum":
            return counted, at_rest.sum_partial(argument)
        case "avg":
            return counted, at_rest.sum_partial(argument)
        case "min" | "max":
            return counted, at_rest.extreme_partial(argument, call.function == "max")
        case "bit_and" | "bit_or" | "bit_xor":
            return counted, at_rest.bits_partial(argument, _WHICH[call.function])
        case "first" | "last":
            return (at_rest.placed_partial(argument, last=call.function == "last"),)
        case "max_by" | "min_by":
            return (at_rest.chosen_partial(argument, largest=call.function == "max_by"),)
        case "ewma":
            assert call.half_life is not None
            return (at_rest.fading_partial(argument, call.half_life),)
        case function if function in OF_PAIRS:
            return (at_rest.pairs_partial(argument),)
        case function if function in OF_SHAPE:
            return (at_rest.shape_partial(argument),)
        case _ if argument.type.is_integer or argument.type.name == "DECIMAL":
            return counted, at_rest.sum_partial(argument), at_rest.squares_partial(argument)
        case _:
            return (at_rest.moments_partial(argument),)


def lift(
    partial_columns: Sequence[PartialColumn],
    arguments: Mapping[Expression, pa.Array],
    codes: Ints,
    count: int,
    sizes: Ints | None = None,
    live: Ints | None = None,
) -> Answer:
    """Rows aggregated into `count` cells by `codes[row]`; `sizes` are the rows per cell if they are known.

    With `live` only cells of these codes are returned, in this order; no rows have other codes.
    """
    if live is not None:
        count = int(live.max()) + 1
    cells: dict[PartialColumn, Cells] = {}
    dictionaries: dict[PartialColumn, pa.Array] = {}
    row_counts: Cells | None = None if sizes is None else (sizes,)
    for partial_column in partial_columns:
        values = arguments[partial_column.expression] if partial_column.expression is not None else None
        if isinstance(partial_column.partial, Count) and (values is None or not values.null_count):
            if row_counts is None:
                row_counts = _selected(
                    partial_column.partial.lift(Argument(np.empty(0), None), codes, count), live
                )
            cells[partial_column] = row_counts  # without NULL, COUNT(x) is COUNT(*)
            continue
        weight = (
            common_weight(partial_column.expression, values)
            if isinstance(partial_column.partial, Sum)
            else None
        )
        if row_counts is not None and weight is not None:
            cells[partial_column] = (row_counts[0] * weight,)
            continue
        if partial_column.encoding == "limbs2" and (integers := at_rest.summable(values)) is not None:
            cells[partial_column] = _sums_as_limbs(*integers, codes, count, live)
            continue
        if partial_column.encoding == "squares" and (squares := at_rest.summable_squares(values)) is not None:
            low, high = _sums_as_limbs(*squares, codes, count, live)
            none = np.zeros(len(low), np.int64)
            cells[partial_column] = (low, high, *[none] * (partial_column.partial.width - 2))
            continue
        if (dictionary := at_rest.dictionary_of(partial_column, values)) is not None:
            dictionaries[partial_column] = dictionary
        weights = None if partial_column.weight is None else arguments[partial_column.weight]
        with np.errstate(all="ignore"):
            ready = at_rest.argument(partial_column, values, dictionaries.get(partial_column), weights)
            cells[partial_column] = _selected(partial_column.partial.lift(ready, codes, count), live)
    return Answer(cells, dictionaries)


def _selected(cells: Cells, live: Ints | None) -> Cells:
    return cells if live is None else tuple(part.take(live) for part in cells)


def _sums_as_limbs(wholes: Ints, most: int, codes: Ints, count: int, live: Ints | None) -> Cells:
    """Sums per cell of integers whose sums fit 64 bits too: one addition per row, and then the limbs of the sums.

    An integer of less than 32 bits is a limb itself. Sums of such integers may stay in the lower limb, since they grow
    no faster than sums of lower limbs do.
    """
    (sums,) = _selected(Sum(1, integer=True).lift(Argument(wholes, None), codes, count), live)
    return (sums, np.zeros(len(sums), np.int64)) if most < 1 << 32 else (sums & 0xFFFFFFFF, sums >> 32)


def lift_each(
    partial_columns: Sequence[PartialColumn], arguments: Mapping[Expression, pa.Array], count: int
) -> Answer:
    """`count` rows as one cell each; only for partials without dictionaries that must be merged."""
    cells: dict[PartialColumn, Cells] = {}
    for partial_column in partial_columns:
        values = arguments[partial_column.expression] if partial_column.expression is not None else None
        weights = None if partial_column.weight is None else arguments[partial_column.weight]
        ready = at_rest.argument(partial_column, values, None, weights)
        if isinstance(partial_column.partial, Count):
            cells[partial_column] = (
                np.ones(count, np.int64) if ready.valid is None else ready.valid.astype(np.int64),
            )
        elif (
            isinstance(partial_column.partial, Sum)
            and partial_column.partial.integer
            and partial_column.partial.width > 1
        ):
            cells[partial_column] = tuple(
                ready.values[:, limb] for limb in range(partial_column.partial.width)
            )
        elif isinstance(partial_column.partial, Sum):
            cells[partial_column] = (ready.values + 0,)  # no negative zero, as in a sum
        else:
            with np.errstate(all="ignore"):
                cells[partial_column] = partial_column.partial.lift(ready, np.arange(count), count)
    return Answer(cells)


def measure_of(call: AggregateCall) -> PartialColumn:
    """The partial that holds the number of a COUNT or SUM."""
    return partial_columns_of(call)[-1]


def lower(call: AggregateCall, answer: Answer) -> Lowered:
    """The aggregate's values, one per group."""
    partial_columns = partial_columns_of(call)
    if is_synopsis(call):
        from headrace.operators.aggregates.synopsis_aggregates import lower_synopsis  # noqa: PLC0415 - as above

        return Lowered(lower_synopsis(call, partial_columns[0], answer.cells[partial_columns[0]][0]))
    if call.function == "count":
        return Lowered(pa.array(answer.cells[partial_columns[0]][0]))
    if len(partial_columns) == 1:
        return Lowered(_of_one(call, partial_columns[0], answer))
    number, value = answer.cells[partial_columns[0]][0], answer.cells[partial_columns[1]]
    if partial_columns[-1].encoding == "squares":
        assert call.argument is not None
        scale = call.argument.type.scale if call.argument.type.name == "DECIMAL" else 0
        return Lowered(exact_variance(call.function, number, value, answer.cells[partial_columns[2]], scale))
    if call.function in ("min", "max", *OF_BITS):
        return Lowered(_extreme(call, partial_columns[1], value[0], number, answer))
    if partial_columns[1].encoding == "double":
        with np.errstate(all="ignore"):
            doubles = value[0] / number if call.function == "avg" else value[0]
        return Lowered(pa.array(doubles, mask=number == 0))
    if call.function == "avg":
        if call.type.name == "DECIMAL":
            return _decimal_average(call, value, number)
        with np.errstate(all="ignore"):
            return Lowered(pa.array(at_rest.as_doubles(value) / number, mask=number == 0))
    whole, bad = at_rest.whole_numbers(value, call.type)
    return Lowered(
        pc.if_else(pa.array(number > 0), whole, pa.scalar(None, whole.type)), bad if bad.any() else None
    )


def _of_one(call: AggregateCall, partial_column: PartialColumn, answer: Answer) -> pa.Array:
    """Aggregates of one partial that itself marks empty groups."""
    cells = answer.cells[partial_column]
    if call.function in BY_ORDER:
        return at_rest.unrank(cells[2], answer.dictionaries[partial_column]).cast(to_arrow(call.type))
    if call.function in BY_ANOTHER:
        structures = at_rest.unrank(cells[0], answer.dictionaries[partial_column])
        return structures.flatten()[1].cast(to_arrow(call.type))
    if call.function == "ewma":
        return pa.array(cells[2], mask=cells[1] == 0)
    if call.function in OF_PAIRS:
        return of_pairs(call.function, cells)
    return of_shape(call.function, cells) if call.function in OF_SHAPE else _variance(call.function, cells)


def _variance(function: str, moments: Cells) -> pa.Array:
    number, _, square = moments
    least = 1 if function.endswith("pop") else 2
    with np.errstate(all="ignore"):
        spread = square / (number if function.endswith("pop") else number - 1)
        values = np.sqrt(spread) if function.startswith("stddev") else spread
    return pa.array(values, mask=number < least)


def _extreme(
    call: AggregateCall, partial_column: PartialColumn, value: np.ndarray, number: np.ndarray, answer: Answer
) -> pa.Array:
    kind = to_arrow(call.type)
    if partial_column.has_dictionary:
        return at_rest.unrank(value, answer.dictionaries[partial_column]).cast(kind)
    if call.type.is_fractional:  # which of two equal zeros came first must not show: both are 0.0
        return pa.array(value + 0.0, mask=number == 0).cast(kind)
    whole = pa.array(np.where(number == 0, 0, value), mask=number == 0)
    if call.type.name == "DATE":
        return whole.cast(pa.int32()).cast(kind)
    return whole.cast(kind)


def _decimal_average(call: AggregateCall, limbs: Cells, number: np.ndarray) -> Lowered:
    """SUM / COUNT, rounded half up to the result's scale; per result row, in Python's exact integers.

    The result has a larger scale than the argument, and at most 38 digits: an average may not fit.
    """
    argument_scale = call.argument.type.scale if call.argument is not None else 0
    shift, limit = 10 ** (call.type.scale - argument_scale), 10**call.type.precision
    unscaled: list[int | None] = []
    for parts in zip(number.tolist(), *(part.tolist() for part in limbs), strict=True):
        total = sum(limb << (32 * limb_index) for limb_index, limb in enumerate(parts[1:])) * shift
        unscaled.append(None if not parts[0] else _half_up(total, parts[0]))
    fitting = [None if value is None or abs(value) >= limit else value for value in unscaled]
    whole = pa.array(fitting, pa.decimal128(38, 0))
    scaled = pa.Array.from_buffers(to_arrow(call.type), len(whole), whole.buffers())
    if fitting == unscaled:
        return Lowered(scaled)
    return Lowered(scaled, pc.is_null(whole).to_numpy(zero_copy_only=False) & (number > 0))


def _half_up(numerator: int, denominator: int) -> int:
    magnitude = (2 * abs(numerator) + denominator) // (2 * denominator)
    return magnitude if numerator >= 0 else -magnitude

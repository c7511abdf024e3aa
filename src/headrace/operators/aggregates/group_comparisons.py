"""COUNT, SUM and AVG over the rows that compare with an aggregate of their own group, such as `x > AVG(x)`: estimates
and error bounds from rank sketches of each group, in one pass over panes.

The values of the group (an average, an extreme) are exact; their rank among its rows is known up to the synopsis'
error. The answer is the middle of the possible range.
Source: Gehrke, Korn, Srivastava (2001), section 2, for the problem; the bound, and sliding windows, are those of
`synopses/ranks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Expression
from headrace.operators.aggregates import aggregate_calls
from headrace.operators.aggregates.aggregate_calls import Answer, Lowered
from headrace.operators.partials.partial import Column
from headrace.operators.scalar import Evaluation
from headrace.synopses.sketches.rank_sketch import decode
from headrace.synopses.sketches.rank_summary import Doubles, Ranks

_Limit = tuple[str, Doubles]


def compared(call: AggregateCall, answer: Answer, columns: Mapping[str, pa.Array]) -> Lowered:
    """COUNT, or SUM or AVG of the weight, of the rows whose argument satisfies all comparisons.

    `columns` hold the compared values by name. A comparison with NULL holds for no row; a sum of no rows is 0, a mean
    of none NULL.
    """
    partial_columns = aggregate_calls.partial_columns_of(call)
    rows = len(answer.cells[partial_columns[0]][0])
    evaluation = Evaluation(columns, rows)
    limits, unknown = [], np.zeros(rows, bool)
    for operator, expression in call.against:
        values, null = _doubles(evaluation, expression)
        limits.append((operator, values))
        unknown |= null
    least, most = _between(decode(answer.cells[partial_columns[0]][0]), limits)
    if len(partial_columns) > 1:
        below, above = _between(decode(answer.cells[partial_columns[1]][0]), limits)
        least, most = least - above, most - below
    least, most = np.where(unknown, 0.0, least), np.where(unknown, 0.0, most)
    errors = None if evaluation.errors is None else evaluation.errors.mask
    if call.function == "avg":
        fewest, many = _between(decode(answer.cells[partial_columns[2]][0]), limits)
        return Lowered(_mean(call, (least, most), fewest, np.where(unknown, 0.0, many)), errors)
    return Lowered(_estimate(call, least, most), errors)


def _doubles(evaluation: Evaluation, expression: Expression) -> tuple[Doubles, Column]:
    values = evaluation.values(expression)
    null: Column = values.is_null().to_numpy(zero_copy_only=False)
    return pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False), null


def _between(ranks: Ranks, limits: Sequence[_Limit]) -> tuple[Doubles, Doubles]:
    """The least and the most weight that satisfies all limits."""
    from_, to = [np.zeros(ranks.keys)] * 2, [ranks.totals] * 2
    for operator, values in limits:
        if operator in ("<", "<=", "="):
            estimate = ranks.upto(values, strictly=operator == "<")
            to = [np.minimum(bound, part) for bound, part in zip(to, estimate, strict=True)]
        if operator in (">", ">=", "="):
            estimate = ranks.upto(values, strictly=operator != ">")
            from_ = [np.maximum(bound, part) for bound, part in zip(from_, estimate, strict=True)]
    return np.maximum(to[0] - from_[1], 0.0), np.maximum(to[1] - from_[0], 0.0)


def _mean(call: AggregateCall, sums: tuple[Doubles, Doubles], fewest: Doubles, most: Doubles) -> pa.Array:
    """The middle of the possible quotients of sums and counts, or its distance from either end; NULL if there is no row."""
    least, greatest = sums
    least_count, most_count = np.maximum(np.rint(fewest), 1.0), np.maximum(np.rint(most), 1.0)
    low = least / np.where(least < 0, least_count, most_count)
    high = greatest / np.where(greatest < 0, most_count, least_count)
    result = (high - low) / 2 if call.part == "bound" else (high + low) / 2
    return pa.array(result, mask=np.rint(most) < 1)


def _estimate(call: AggregateCall, least: Doubles, most: Doubles) -> pa.Array:
    """The middle, or its distance from either end."""
    if call.type.is_fractional:
        middle = (least + most) / 2
        return pa.array(np.maximum(most - middle, middle - least) if call.part == "bound" else middle)
    low, high = np.rint(least).astype(np.int64), np.rint(most).astype(np.int64)
    whole = (low + high) // 2
    return pa.array(high - whole if call.part == "bound" else whole)

"""Aggregates of a list of values, exact, in the types of Spark's answers.

Integers and decimals are computed exactly, doubles are rounded once, at the end. The arguments have no NULLs.
"""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from headrace.algebra.expressions.aggregates import OF_PAIRS, OF_SHAPE, AggregateCall
from headrace.algebra.expressions.shedding_estimates import PARTS
from headrace.reference.conversion import fit, in_range
from headrace.reference.shedding import of_weighted
from headrace.reference.statistical_aggregates import (
    faded_mean,
    nearest,
    of_another,
    of_order,
    of_pairs,
    of_shape,
)
from headrace.reference.values import identity, sort_key, unsigned


def aggregate(call: AggregateCall, values: Sequence[Any]) -> Any:
    """`call` over its arguments in the group (for COUNT(*) any values); raises `RowError` when the result does not fit.

    Approximate aggregates are exact here, with bounds of 0: a correct answer is within its bound of this one.
    """
    if call.part == "bound":
        return 0.0 if call.type.is_fractional else 0
    if call.part in PARTS:
        return of_weighted(call, values)
    present = [value for value in values if value is not None] if call.argument is not None else list(values)
    if call.distinct:
        present = list({identity(value): value for value in present}.values())
    match call.function:
        case "count" | "approx_count":
            return len(present)
        case "min":
            return unsigned(min(present, key=sort_key, default=None))
        case "max":
            return unsigned(max(present, key=sort_key, default=None))
        case "sum" | "approx_sum":
            return _sum(call, present) if present else None
        case "avg":
            return _average(call, present) if present else None
        case "var_samp" | "var_pop" | "stddev_samp" | "stddev_pop":
            return _spread(call.function, present)
        case "approx_distinct":
            return len({identity(value) for value in present})
        case "l1_norm" | "l2_norm":
            return _norm(call.function, present) if present else None
        case "top_k" | "approx_top_k":
            return _most_frequent(present, call.most or 0) if present else None
        case "percentile" | "approx_percentile":
            assert call.share is not None
            return _percentile(sorted(present, key=sort_key), call.share) if present else None
        case "mode":
            return _mode(present) if present else None
        case "heavy_hitters":
            assert call.share is not None
            return _heavy_hitters(present, Fraction(str(call.share))) if present else None
        case "ewma":
            assert call.half_life is not None
            return faded_mean(present, call.half_life) if present else None
        case "first" | "last":
            return of_order(call.function, present) if present else None
        case "bit_and" | "bit_or" | "bit_xor":
            return reduce(_BITS[call.function], present) if present else None
        case "max_by" | "min_by":
            return of_another(call.function, present) if present else None
        case function if function in OF_PAIRS:
            return of_pairs(function, present)
        case function if function in OF_SHAPE:
            return of_shape(function, present)
        case other:
            raise NotImplementedError(f"the reference has no aggregate '{other}'")


_BITS: Final = {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}


def _sum(call: AggregateCall, values: Sequence[Any]) -> Any:
    if call.type.is_fractional:
        return total(values)
    if call.type.name == "DECIMAL":
        return fit(_exact_sum(values), call.type)
    return in_range(sum(values), call.type)


def _average(call: AggregateCall, values: Sequence[Any]) -> Any:
    if call.type.name != "DECIMAL":
        return total(values) / len(values)
    with localcontext(prec=100, rounding=ROUND_HALF_UP):
        return fit(_exact_sum(values) / len(values), call.type)


def _exact_sum(values: Sequence[Decimal]) -> Decimal:
    with localcontext(prec=100):
        return sum(values, Decimal(0))


def total(values: Sequence[Any]) -> float:
    """The sum as the nearest double; infinities and NaN as IEEE 754 has them."""
    special = {float(value) for value in values if isinstance(value, float) and not math.isfinite(value)}
    if special:
        return special.pop() if len(special) == 1 else math.nan
    return nearest(sum((Fraction(value) for value in values), Fraction(0)))


def _spread(function: str, values: Sequence[Any]) -> float | None:
    """Variance or standard deviation in two passes: sum of (v - mean)^2 over n, or over n - 1 (NULL when n = 1)."""
    divisor = len(values) - (1 if function.endswith("_samp") else 0)
    if divisor <= 0:
        return None
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    variance = sum(((value - mean) ** 2 for value in exact), Fraction(0)) / divisor
    return math.sqrt(nearest(variance)) if function.startswith("stddev") else nearest(variance)


def _percentile(ascending: Sequence[Any], share: float) -> float:
    """The value at place (n - 1) * share, counted from 0; between two places, between their values in proportion."""
    position = (len(ascending) - 1) * share
    low, high = math.floor(position), math.ceil(position)
    lower, upper = float(ascending[low]) + 0.0, float(ascending[high]) + 0.0
    return lower if lower == upper or low == high else lower + (position - low) * (upper - lower)


def _norm(function: str, values: Sequence[Any]) -> float | int:
    """The norm of the vector of the values' counts."""
    if function == "l1_norm":
        return len(values)
    return math.sqrt(sum(number**2 for number in Counter(map(identity, values)).values()))


def _most_frequent(texts: Sequence[str], number: int) -> str:
    """The most frequent texts, equally frequent ones in ascending order."""
    ranked = sorted(Counter(texts).items(), key=lambda pair: (-pair[1], pair[0]))[:number]
    return json.dumps([{"item": text, "count": count} for text, count in ranked], ensure_ascii=False)


def _mode(values: Sequence[Any]) -> Any:
    """The most frequent value; the least of several."""
    times = Counter(identity(value) for value in values)
    best = min(values, key=lambda value: (-times[identity(value)], sort_key(value)))
    return unsigned(best)


def _heavy_hitters(values: Sequence[Any], share: Fraction) -> str:
    """The values that are at least this share of all, the most frequent first, then by value: a JSON array."""
    times = Counter(values)
    heavy = [value for value, count in times.items() if count >= share * len(values)]
    ordered = sorted(heavy, key=lambda value: (-times[value], sort_key(value)))
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))

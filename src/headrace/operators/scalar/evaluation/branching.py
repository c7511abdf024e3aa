"""Functions that need an argument only if those before it do not decide: AND, OR, COALESCE, CASE, IN.

All arguments are computed for all rows; errors and values are then taken only from the rows that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.numbers.comparison import comparison
from headrace.operators.scalar.values.column_result import Compute, Frame, Result, errors_of
from headrace.operators.scalar.values.datum import Bools, Datum, column, null_where, truth, valid
from headrace.operators.scalar.values.row_errors import Errors, both
from headrace.schema import Type, to_arrow


def connective(name: str) -> Compute:
    """AND or OR by Kleene's tables; the deciding value also overrides errors of other factors."""
    combine, decides = (pc.and_kleene, False) if name == "and" else (pc.or_kleene, True)

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        value: Datum = results[0].value
        for result in results[1:]:
            value = combine(value, result.value)
        errors = errors_of(results)
        if errors is not None:
            decided = truth(value if decides else pc.invert(value), frame.rows)
            errors = errors.within(~decided)
        return Result(value, errors)

    return compute


def coalesce(_: Type) -> Compute:
    """The first value that is not NULL."""

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        value, errors = results[0].value, results[0].errors
        for result in results[1:]:
            if result.errors is not None:
                errors = both(errors, result.errors.within(_is_open(value, errors, frame.rows)))
            value = pc.coalesce(value, result.value)
        return Result(_without(value, errors, frame.rows), errors)

    return compute


def _is_open(value: Datum, errors: Errors | None, rows: int) -> Bools:
    where = valid(value)
    missing = np.zeros(rows, np.bool_) if where is None else np.broadcast_to(~where, rows)
    return missing if errors is None else missing & ~errors.mask


def _without(value: Datum, errors: Errors | None, rows: int) -> Datum:
    return value if errors is None else null_where(errors.mask, column(value, rows))


def case(kind: Type) -> Compute:
    """CASE over [condition, value, condition, value, …, otherwise]."""
    arrow = to_arrow(kind)

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        conditions, values, otherwise = results[:-1:2], results[1::2], results[-1]
        errors: Errors | None = None
        if any(result.errors is not None for result in results):
            errors = _case_errors(frame.rows, conditions, values, otherwise)
        if all(isinstance(condition.value, pa.Scalar) for condition in conditions):
            # One value for all rows is still a column: a reader must not take the result for a constant.
            chosen = column(_constant_choice(conditions, values, otherwise), frame.rows)
            return Result(_without(chosen, errors, frame.rows), errors)
        chosen = otherwise.value
        for condition, value in zip(reversed(conditions), reversed(values), strict=True):
            flags = pc.fill_null(column(condition.value, frame.rows), False)
            chosen = pc.if_else(flags, value.value, chosen)
        if chosen.type != arrow:
            chosen = chosen.cast(arrow)
        return Result(_without(chosen, errors, frame.rows), errors)

    return compute


def _constant_choice(conditions: Sequence[Result], values: Sequence[Result], otherwise: Result) -> Datum:
    for condition, value in zip(conditions, values, strict=True):
        if condition.value.is_valid and condition.value.as_py():
            return value.value
    return otherwise.value


def _case_errors(
    rows: int, conditions: Sequence[Result], values: Sequence[Result], otherwise: Result
) -> Errors | None:
    undecided = np.ones(rows, np.bool_)
    errors: Errors | None = None
    for condition, value in zip(conditions, values, strict=True):
        if condition.errors is not None:
            errors = both(errors, condition.errors.within(undecided))
            undecided = undecided & ~condition.errors.mask
        applies = truth(condition.value, rows) & undecided
        if value.errors is not None:
            errors = both(errors, value.errors.within(applies))
        undecided = undecided & ~applies
    if otherwise.errors is not None:
        errors = both(errors, otherwise.errors.within(undecided))
    return errors


def among(kind: Type) -> Compute:
    """`value IN (candidates)`: candidates after the one that matches raise no errors."""
    equal = comparison("=", kind)

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        value, candidates = results[0], results[1:]
        constants = [c.value for c in candidates if isinstance(c.value, pa.Scalar) and c.errors is None]
        if len(constants) == len(candidates) and isinstance(value.value, pa.Array):
            return Result(_among_constants(value.value, constants, kind), value.errors)
        errors, matches = value.errors, None
        for candidate in candidates:
            if candidate.errors is not None:
                settled = np.zeros(frame.rows, np.bool_) if matches is None else truth(matches, frame.rows)
                absent = valid(value.value)
                needed = ~settled if absent is None else ~settled & absent
                errors = both(errors, candidate.errors.within(needed))
            match = _equal_or_null(equal, value.value, candidate.value)
            matches = match if matches is None else pc.or_kleene(matches, match)
        return Result(_without(matches, errors, frame.rows), errors)

    return compute


def _equal_or_null(equal: Callable[[Datum, Datum], Any], left: Datum, right: Datum) -> Datum:
    if any(isinstance(datum, pa.Scalar) and not datum.is_valid for datum in (left, right)):
        return pa.scalar(None, pa.bool_())
    return equal(left, right)


_MOST_COMPARISONS: Final = 4


def _among_constants(values: pa.Array, constants: Sequence[pa.Scalar], kind: Type) -> pa.Array:
    non_null = [constant for constant in constants if constant.is_valid]
    if len(non_null) == 0:
        return pa.nulls(len(values), pa.bool_())
    if len(non_null) <= _MOST_COMPARISONS:
        equal = comparison("=", kind)
        matches = equal(values, non_null[0])
        for constant in non_null[1:]:
            matches = pc.or_(matches, equal(values, constant))
    else:
        constant_values = pa.concat_arrays([pa.repeat(constant, 1) for constant in non_null])
        if kind.is_fractional:  # -0.0 becomes 0.0
            zero = pa.scalar(0, constant_values.type)
            compared, constant_values = pc.add(values, zero), pc.add(constant_values, zero)
        else:
            compared = values
        matches = pc.is_in(compared, value_set=constant_values)
        if values.null_count:
            matches = pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), matches)
    if len(non_null) < len(constants):
        matches = pc.if_else(matches, True, pa.scalar(None, pa.bool_()))
    return matches

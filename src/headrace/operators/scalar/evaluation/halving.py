"""Search for the rows on which a step of an expression fails: a step that failed on a whole batch is computed by
halves, until those rows are found, and has values for all others.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.operators.base.query_failures import ROW_FAILURES, reason_of
from headrace.operators.scalar.values.column_result import Compute, Frame, Result
from headrace.operators.scalar.values.datum import Failure, column
from headrace.operators.scalar.values.row_errors import Errors
from headrace.schema import Type, to_arrow


def by_halves(compute: Compute, kind: Type, frame: Frame, inputs: Sequence[Result]) -> Result:
    """The values of a node that fails on all rows together; a row on which it fails is an error with the reason.

    Raises what joining the parts does: the values of all rows may be more than one column can hold.
    """
    parts: list[tuple[int, int, Result]] = []
    failed: dict[int, str] = {}
    pending = [(0, frame.rows)]
    while pending:
        low, high = pending.pop()
        part = Frame(_Sliced(frame.columns, low, high), high - low, frame.users)
        try:
            parts.append((low, high, compute(part, [_slice(result, low, high) for result in inputs])))
        except ROW_FAILURES as failure:
            if high - low > 1:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
            elif high > low:
                failed[low] = sys.intern(reason_of(failure))  # mostly the same for all
    return Result(_values(parts, frame.rows, kind), _errors(parts, failed, frame.rows))


def _values(parts: Sequence[tuple[int, int, Result]], rows: int, kind: Type) -> pa.Array:
    """The values of all rows, NULL where no part has any."""
    arrow, arrays, end = to_arrow(kind), list[pa.Array](), 0
    for low, high, result in [*parts, (rows, rows, Result(pa.nulls(0, arrow)))]:
        if low > end:
            arrays.append(pa.nulls(low - end, arrow))
        arrays.append(column(result.value, high - low))
        end = high
    return pa.concat_arrays(arrays)


def _errors(parts: Sequence[tuple[int, int, Result]], failed: Mapping[int, str], rows: int) -> Errors | None:
    """The errors of all parts, and those of rows on which the node failed."""
    mask = np.zeros(rows, np.bool_)
    mask[list(failed)] = True
    inside = [(low, result.errors) for low, _, result in parts if result.errors is not None]
    for low, errors in inside:
        mask[low : low + len(errors.mask)] = errors.mask
    if not mask.any():
        return None
    starts = [low for low, _ in inside]

    def describe(row: int) -> str:
        if row in failed:
            return failed[row]
        low, errors = inside[bisect_right(starts, row) - 1]
        return errors.reasons[row - low]

    return Errors(mask, (Failure(mask, describe),))


class _Sliced(Mapping[str, pa.Array]):
    """Columns of a range of rows, sliced when they are read."""

    def __init__(self, columns: Mapping[str, pa.Array], low: int, high: int) -> None:
        self._columns, self._low, self._high = columns, low, high

    def __getitem__(self, name: str) -> pa.Array:
        return self._columns[name].slice(self._low, self._high - self._low)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _slice(result: Result, low: int, high: int) -> Result:
    """The result of some of the rows."""
    value = result.value.slice(low, high - low) if isinstance(result.value, pa.Array) else result.value
    errors = result.errors
    if errors is None or not errors.mask[low:high].any():
        return Result(value)
    mask = errors.mask[low:high]
    return Result(value, Errors(mask, (Failure(mask, lambda row: errors.reasons[row + low]),)))

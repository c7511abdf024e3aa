"""A node that failed on a whole batch, computed by halves until the rows that fail are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.operators.base.query_failures import ROW_FAILURES, reason_of
from headrace.operators.scalar.values.column_result import Compute, Frame, Result
from headrace.operators.scalar.values.datum import Failure, column
from headrace.operators.scalar.values.row_errors import Errors, both
from headrace.schema import Type, to_arrow


def by_halves(
    compute: Compute, kind: Type, frame: Frame, inputs: Sequence[Result], failure: Exception
) -> Result:
    """The values of a node that raised `failure` on all rows; a row on which it fails is an error with the reason.

    Raises what joining the halves does: the values of all rows may be more than one column can hold.
    """
    if frame.rows <= 1:
        missing = pa.nulls(frame.rows, to_arrow(kind))
        return Result(missing, Errors.everywhere(frame.rows, reason_of(failure)))
    middle = frame.rows // 2
    parts = []
    for low, high in ((0, middle), (middle, frame.rows)):
        part = Frame(_Sliced(frame.columns, low, high), high - low, frame.users)
        given = [_slice(result, low, high) for result in inputs]
        try:
            result = compute(part, given)
        except ROW_FAILURES as again:
            result = by_halves(compute, kind, part, given, again)
        parts.append((low, high, result))
    values = pa.concat_arrays([column(result.value, high - low) for low, high, result in parts])
    errors: Errors | None = None
    for low, _, result in parts:
        errors = both(errors, _moved(result.errors, low, frame.rows))
    return Result(values, errors)


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
    value = result.value.slice(low, high - low) if isinstance(result.value, pa.Array) else result.value
    errors = result.errors
    if errors is None or not errors.mask[low:high].any():
        return Result(value)
    parts = tuple(
        Failure(part.mask[low:high], lambda row, part=part: part.describe(row + low))  # type: ignore[misc]
        for part in errors.parts
    )
    return Result(value, Errors(errors.mask[low:high], parts))


def _moved(errors: Errors | None, low: int, rows: int) -> Errors | None:
    """Errors of a part as errors of the whole."""
    if errors is None:
        return None

    def spread(mask: np.ndarray) -> np.ndarray:
        whole = np.zeros(rows, np.bool_)
        whole[low : low + len(mask)] = mask
        return whole

    parts = tuple(
        Failure(spread(part.mask), lambda row, part=part: part.describe(row - low))  # type: ignore[misc]
        for part in errors.parts
    )
    return Errors(spread(errors.mask), parts)

"""Structures of several values of a row, such as pairs (y, x): arguments of aggregates that take more than one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.series import CHOSEN, PAIR
from headrace.operators.scalar.values.column_result import Compute, Frame, Result, errors_of
from headrace.operators.scalar.values.datum import column
from headrace.schema import Type, to_arrow

_MAKES_NULL: Final = {PAIR: 2, CHOSEN: 1}
"""How many of the first parts make a structure NULL where one of them is."""


def structure(name: str, kind: Type) -> Compute:
    """The values of the arguments side by side; a pair is NULL where one of them is, a chosen value where the first is."""
    arrow = to_arrow(kind)

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        parts = [column(result.value, frame.rows) for result in results]
        parts = [part.cast(field.type) for part, field in zip(parts, arrow, strict=True)]
        is_null = np.zeros(frame.rows, bool)
        for part in parts[: _MAKES_NULL.get(name, 0)]:
            if part.null_count:
                is_null |= part.is_null().to_numpy(zero_copy_only=False)
        mask = pa.array(is_null) if is_null.any() else None
        return Result(pa.StructArray.from_arrays(parts, fields=list(arrow), mask=mask), errors_of(results))

    return compute

"""Calls of registered Python functions on a batch, by row or by array, with an error for each row that fails; and the
functions registered for a block of code. Contract and types: `headrace.algebra.functions.resolve.UserFunction`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.algebra.functions.resolve import UserFunction
from headrace.errors import UserError, did_you_mean
from headrace.operators.scalar.values.column_result import Compute, Frame, Result, errors_of, settled
from headrace.operators.scalar.values.datum import Bools, Failure, column, valid
from headrace.schema import to_arrow

_REGISTERED: ContextVar[Mapping[str, UserFunction]] = ContextVar("registered", default={})  # noqa: B039 - never changed


@contextmanager
def registered(users: Mapping[str, UserFunction]) -> Iterator[None]:
    """Functions by lower-case name, for all evaluations inside the block that do not pass their own."""
    token = _REGISTERED.set(users)
    try:
        yield
    finally:
        _REGISTERED.reset(token)


def in_force() -> Mapping[str, UserFunction]:
    """The functions of the innermost `registered` block."""
    return _REGISTERED.get()


def user_call(name: str) -> Compute:
    """The call of the function registered under `name` at the time of evaluation."""

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        function = frame.users.get(name)
        if function is None:
            raise UserError(f"no function '{name}' is registered", remedy=did_you_mean(name, frame.users))
        errors = errors_of(results)
        arguments = [column(result.value, frame.rows) for result in results]
        needed = np.ones(frame.rows, np.bool_) if errors is None else ~errors.mask
        if function.strict:
            for argument in arguments:
                where = valid(argument)
                needed = needed if where is None else needed & where
        values, failure = _called(function, arguments, needed)
        return settled(values, errors, failure, frame.rows)

    return compute


def _called(
    function: UserFunction, arguments: list[pa.Array], needed: Bools
) -> tuple[pa.Array, Failure | None]:
    """Values on the needed rows, NULL elsewhere."""
    rows = np.flatnonzero(needed)
    chosen = (
        [argument.filter(pa.array(needed)) for argument in arguments]
        if len(rows) < len(needed)
        else arguments
    )
    reasons: dict[int, str] = {}
    call, kind = function.call, to_arrow(function.result)
    if function.by_row:
        values = _by_row(call, kind, chosen, rows, reasons)
    else:
        values = _by_array(call, kind, chosen, rows, reasons)
    indices = np.cumsum(needed) - 1
    spread = values if len(rows) == len(needed) else values.take(pa.array(indices, mask=~needed))
    if not reasons:
        return spread, None
    mask = np.zeros(len(needed), np.bool_)
    mask[list(reasons)] = True
    return spread, Failure(mask, lambda row: f"{function.name}: {reasons[row]}")


def _by_row(
    call: Callable[..., Any], kind: pa.DataType, chosen: list[pa.Array], rows: Any, reasons: dict[int, str]
) -> pa.Array:
    results: list[Any] = []
    for index, row in enumerate(rows.tolist()):
        try:
            value = call(*(argument[index].as_py() for argument in chosen))
            results.append(pa.scalar(value, kind).as_py())
        except Exception as failure:  # noqa: BLE001 whatever a user's function raises is an error of its row
            reasons[row] = f"{type(failure).__name__}: {failure}"
            results.append(None)
    return pa.array(results, kind)


def _by_array(
    call: Callable[..., Any], kind: pa.DataType, chosen: list[pa.Array], rows: Any, reasons: dict[int, str]
) -> pa.Array:
    """One call; after an exception by halves, so that only rows that fail on their own are errors."""
    if len(rows) == 0:
        return pa.nulls(0, kind)
    try:
        values = pa.array(call(*chosen), kind)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if len(values) != len(rows):
            raise ValueError(f"expected {len(rows)} values, found {len(values)}")  # noqa: TRY301 reported like any other
        return values if values.type == kind else values.cast(kind)
    except Exception as failure:  # noqa: BLE001 whatever a user's function raises is an error of its rows
        if len(rows) == 1:
            reasons[int(rows[0])] = f"{type(failure).__name__}: {failure}"
            return pa.nulls(1, kind)
        half = len(rows) // 2
        low = _by_array(call, kind, [argument.slice(0, half) for argument in chosen], rows[:half], reasons)
        high = _by_array(call, kind, [argument.slice(half) for argument in chosen], rows[half:], reasons)
        return pa.concat_arrays([low, high])

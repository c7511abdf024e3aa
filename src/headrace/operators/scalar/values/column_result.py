"""Interface of the steps of a compiled expression: the batch that they read (`Frame`), and the result of each (values,
and errors on the rows without one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from headrace.algebra.functions.resolve import UserFunction
from headrace.dataclass import dataclass
from headrace.operators.scalar.values.datum import Datum, Failure, column, null_where
from headrace.operators.scalar.values.row_errors import Errors, both


@dataclass(frozen=True, slots=True)
class Result:
    """Values of an expression on a batch, NULL on the rows in `errors`."""

    value: Datum
    errors: Errors | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """The input of an evaluation: columns by internal name, their number of rows, registered functions."""

    columns: Mapping[str, pa.Array]
    rows: int
    users: Mapping[str, UserFunction]


Compute: TypeAlias = Callable[[Frame, Sequence[Result]], Result]
"""From the results of the arguments to the result of a node."""


def errors_of(results: Sequence[Result]) -> Errors | None:
    """The errors of all arguments, those of the first argument first."""
    errors: Errors | None = None
    for result in results:
        errors = both(errors, result.errors)
    return errors


def settled(value: Datum, errors: Errors | None, failure: Failure | None, rows: int) -> Result:
    """A result whose failed rows are NULL, whatever the kernel left there."""
    all_errors = both(errors, Errors.of(failure))
    return Result(
        value if all_errors is None else null_where(all_errors.mask, column(value, rows)), all_errors
    )

"""What evaluating one node gives: values, and errors on the rows where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from headrace.algebra.functions.resolve import UserFunction
from headrace.operators.scalar.values.datum import Datum, Failure, column, null_where
from headrace.operators.scalar.values.row_errors import Errors, both


@dataclass(frozen=True, slots=True)
class Result:
    """Values of an expression on a batch, NULL on the rows in `errors`."""

    value: Datum
    errors: Errors | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What expressions are evaluated over: columns by internal name, their number of rows, registered functions."""

    columns: Mapping[str, pa.Array]
    rows: int
    users: Mapping[str, UserFunction]


Compute: TypeAlias = Callable[[Frame, Sequence[Result]], Result]
"""From the results of the arguments to the result of a node."""


def errors_of(results: Sequence[Result]) -> Errors | None:
    """The errors of all arguments, those of the first foremost."""
    found: Errors | None = None
    for result in results:
        found = both(found, result.errors)
    return found


def settled(value: Datum, errors: Errors | None, failure: Failure | None, rows: int) -> Result:
    """A result whose failed rows are NULL, whatever the kernel left there."""
    found = both(errors, Errors.of(failure))
    return Result(value if found is None else null_where(found.mask, column(value, rows)), found)

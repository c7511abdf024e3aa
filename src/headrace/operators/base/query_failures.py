"""Which errors are one query's: what kernels and users' code raise, not the disk's or the home's.

Whatever a query's expressions, functions or results raise concerns that query alone. An error of the store or of the
system concerns all, and fails the epoch, which is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.errors import HeadraceError

ROW_FAILURES: Final = (pa.ArrowException, ArithmeticError, ValueError, MemoryError)
"""What a kernel may raise because of the values of some rows, or of their number: capacity, memory, overflow."""

_LONGEST: Final = 300
"""Characters of an error's own words that a reason repeats."""


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """Why an operator could not do its part of an epoch. `separate`: it worked by itself, so that it is the one that failed."""

    reason: str
    separate: bool = True


def reason_of(failure: BaseException) -> str:
    """An error in a line."""
    words = " ".join(str(failure).split())[:_LONGEST]
    return f"{type(failure).__name__}: {words}" if words else type(failure).__name__


def of_query(failure: Exception) -> str:
    """The reason, of an error that is the query's; any other is raised again."""
    if isinstance(failure, HeadraceError | OSError):
        raise failure
    return reason_of(failure)

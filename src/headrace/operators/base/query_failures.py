"""Classification of errors: those of one query, from kernels and users' code, become the reason for which it failed;
those of the store and the system are raised again.

An error of a query's expressions, functions or results concerns that query alone. An error of the store or of the
system concerns all, and fails the epoch, which is tried again.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError

ROW_FAILURES: Final = (pa.ArrowException, ArithmeticError, ValueError, MemoryError)
"""What a kernel may raise because of the values of some rows, or of their number: capacity, memory, overflow."""

_LONGEST: Final = 300
"""Characters of an error's message that a reason repeats."""


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """Why an operator failed in an epoch. `isolated`: it shared work with no other, so the failure is its own."""

    reason: str
    isolated: bool = True


def reason_of(failure: BaseException) -> str:
    """An error as one line."""
    message = " ".join(str(failure).split())[:_LONGEST]
    return f"{type(failure).__name__}: {message}" if message else type(failure).__name__


def of_query(failure: Exception) -> str:
    """The reason, if the error is the query's; any other is raised again."""
    if isinstance(failure, HeadraceError | OSError):
        raise failure
    return reason_of(failure)

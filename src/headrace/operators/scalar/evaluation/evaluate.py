"""Evaluation of expressions on a batch of rows: values, and rows on which they fail."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.algebra.functions.resolve import UserFunction
from headrace.dataclass import dataclass
from headrace.operators.scalar.evaluation.compile import Node, computed, program
from headrace.operators.scalar.evaluation.user_functions import in_force
from headrace.operators.scalar.values.column_result import Frame, Result
from headrace.operators.scalar.values.datum import Bools, column, truth
from headrace.operators.scalar.values.row_errors import Errors, both


class Evaluation:
    """Expressions over one batch; common subexpressions are computed once.

    `columns` are Arrow arrays by internal name, `rows` their length, `users` the registered functions by lowercase name
    (by default those of the enclosing `registered` block). `errors` holds the rows on which any expression evaluated so
    far has failed.
    """

    __slots__ = ("_frame", "_memo", "errors")

    def __init__(
        self, columns: Mapping[str, pa.Array], rows: int, users: Mapping[str, UserFunction] | None = None
    ) -> None:
        self._frame = Frame(columns, rows, in_force() if users is None else users)
        self._memo: dict[Node, Result] = {}
        self.errors: Errors | None = None

    def values(self, expression: Expression) -> pa.Array:
        """One value per row, NULL where the expression failed; its Arrow type is that of the expression's type."""
        return column(self._evaluated(expression).value, self._frame.rows)

    def mask(self, predicate: Expression) -> Bools:
        """Where the predicate is true: not where it is false, NULL or failed."""
        return truth(self._evaluated(predicate).value, self._frame.rows)

    def result(self, expression: Expression) -> Result:
        """Values (or one for all rows) and errors of this expression alone."""
        return computed(program(expression), self._frame, self._memo)

    def _evaluated(self, expression: Expression) -> Result:
        result = self.result(expression)
        if result.errors is not None and result.errors is not self.errors:
            self.errors = both(self.errors, result.errors)
        return result


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Values of one expression, and the rows on which it failed."""

    values: pa.Array
    errors: Errors | None


def evaluate(
    expression: Expression,
    columns: Mapping[str, pa.Array],
    rows: int,
    users: Mapping[str, UserFunction] | None = None,
) -> Evaluated:
    """One expression on one batch; `Evaluation` is for several."""
    evaluation = Evaluation(columns, rows, users)
    return Evaluated(evaluation.values(expression), evaluation.errors)


def predicate(
    condition: Expression,
    columns: Mapping[str, pa.Array],
    rows: int,
    users: Mapping[str, UserFunction] | None = None,
) -> tuple[Bools, Errors | None]:
    """Where a condition is true, and where it failed."""
    evaluation = Evaluation(columns, rows, users)
    return evaluation.mask(condition), evaluation.errors

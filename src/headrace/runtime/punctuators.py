"""PUNCTUATED BY: a row for which the stream's boolean expression is true promises that none below its event time follows."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.algebra.expressions import Expression, columns_of
from headrace.catalog.definitions import StreamDefinition
from headrace.language.bind_expressions import bind_expression
from headrace.operators.batch import Batch
from headrace.operators.scalar import Evaluation
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Punctuator:
    """A stream's promise, as an expression over its columns."""

    expression: Expression

    @staticmethod
    def of(definition: StreamDefinition) -> Punctuator:
        """Bind the definition's text."""
        assert definition.punctuated_by is not None
        return Punctuator(bind_expression(definition.punctuated_by, definition.schema))

    @property
    def columns(self) -> frozenset[str]:
        """Columns it reads."""
        return columns_of(self.expression)

    def promised(self, batch: Batch) -> Instant:
        """The greatest promise of a batch; a row on which the expression fails promises nothing."""
        evaluation = Evaluation(batch.columns, batch.rows)
        holds = evaluation.mask(self.expression)
        if evaluation.errors is not None:
            holds = holds & ~evaluation.errors.mask
        return int(batch.at[holds].max()) if holds.any() else BEGINNING

"""Punctuation carried by rows, PUNCTUATED BY and its forms: the clause is bound, and the promises are computed from the
rows of a batch or from the text of a pattern.

A row for which the clause's boolean expression is true promises that no later row has an earlier event time. A row with a
pattern promises that no later row matches it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.expression import Expression, columns_of
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.options import zone_of
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.language.binder.expressions.punctuation_patterns import bind_pattern
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import group
from headrace.operators.scalar import Evaluation
from headrace.runtime.messages.key_text import named
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Punctuator:
    """A stream's promise, as an expression over its columns."""

    expression: Expression

    @staticmethod
    def of(definition: StreamDefinition) -> Punctuator | None:
        """The bound PUNCTUATED BY; None without the clause."""
        return Punctuator._bound(definition.punctuated_by, definition)

    @staticmethod
    def of_groups(definition: StreamDefinition) -> Punctuator | None:
        """The bound PUNCTUATED BY … FOR; None without the clause."""
        return Punctuator._bound(definition.progress.group_condition, definition)

    @staticmethod
    def _bound(text: str | None, definition: StreamDefinition) -> Punctuator | None:
        return (
            None
            if text is None
            else Punctuator(bind_expression(text, definition.schema, zone_of(definition.options)))
        )

    @property
    def columns(self) -> frozenset[str]:
        """Columns it reads."""
        return columns_of(self.expression)

    def holds(self, batch: Batch) -> np.ndarray:
        """Which rows promise; a row on which the expression fails promises nothing."""
        evaluation = Evaluation(batch.columns, batch.rows)
        holds = evaluation.mask(self.expression)
        return holds if evaluation.errors is None else holds & ~evaluation.errors.mask


def max_punctuation_by_group(batch: Batch, holds: np.ndarray, groups: Sequence[str]) -> dict[str, Instant]:
    """The maximum promise for each group among the rows that promise."""
    if not holds.any():
        return {}
    chosen = pa.array(holds)
    names = named([batch.columns[name].filter(chosen) for name in groups])
    by_name = group([names], int(holds.sum()))
    greatest = np.full(by_name.count, BEGINNING, np.int64)
    np.maximum.at(greatest, by_name.codes, batch.at[holds])
    return dict(zip(by_name.keys[0].to_pylist(), greatest.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class PatternReader:
    """Reads promises from rows: where the column is not NULL its text is a pattern."""

    definition: StreamDefinition
    column: str

    @staticmethod
    def of(definition: StreamDefinition) -> PatternReader | None:
        """None where rows carry no patterns."""
        column = definition.progress.pattern_column
        return None if column is None else PatternReader(definition, column)

    def promises(self, texts: pa.Array) -> tuple[dict[str, Instant], dict[str, str]]:
        """Promises of the column's values, and for values that are no promise the reason."""
        promises: dict[str, Instant] = {}
        reasons: dict[str, str] = {}
        for text in pc.unique(texts.drop_null()).to_pylist():
            try:
                name, at = promise_of(self.definition, text)
            except UserError as error:
                reasons[text] = error.message
            else:
                promises[name] = max(at, promises.get(name, BEGINNING))
        return promises, reasons


def promise_of(definition: StreamDefinition, text: str, zone: str | None = None) -> tuple[str, Instant]:
    """A pattern's name, and the instant below which no later row matches it.

    Times without a zone are in `zone`, by default the stream's. Raises `UserError` where the stream takes no patterns, or the
    text is none.
    """
    rule = definition.progress
    if not rule.patterns:
        raise UserError(
            f"the stream '{definition.name}' takes no patterns",
            remedy="CREATE STREAM … PUNCTUATED BY PATTERNS OF (columns).",
        )
    pattern, at = bind_pattern(
        text, definition.schema, rule.groups, definition.time, zone or zone_of(definition.options)
    )
    return pattern.text(), at

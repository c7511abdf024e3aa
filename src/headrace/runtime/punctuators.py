"""PUNCTUATED BY: a row for which the stream's boolean expression is true promises that none below its event time follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions import Expression, columns_of
from headrace.catalog.definitions import StreamDefinition
from headrace.language.bind_expressions import bind_expression
from headrace.operators.batch import Batch
from headrace.operators.grouping import Ints, group
from headrace.operators.scalar import Evaluation
from headrace.runtime.naming_values import named
from headrace.runtime.sources.options import zone_of
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Punctuator:
    """A stream's promise, as an expression over its columns."""

    expression: Expression

    @staticmethod
    def of(definition: StreamDefinition) -> Punctuator | None:
        """Bind PUNCTUATED BY; None without the clause."""
        return Punctuator._bound(definition.punctuated_by, definition)

    @staticmethod
    def of_groups(definition: StreamDefinition) -> Punctuator | None:
        """Bind PUNCTUATED BY … FOR; None without the clause."""
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


def greatest_by_group(batch: Batch, holds: np.ndarray, groups: Sequence[str]) -> dict[str, Instant]:
    """The greatest promise for each group among the rows that promise."""
    if not holds.any():
        return {}
    chosen = pa.array(holds)
    names = named([batch.columns[name].filter(chosen) for name in groups])
    found = group([names], int(holds.sum()))
    greatest = np.full(found.count, BEGINNING, np.int64)
    np.maximum.at(greatest, found.codes, batch.at[holds])
    return dict(zip(found.keys[0].to_pylist(), greatest.tolist(), strict=True))


def late_in_group(
    columns: Mapping[str, pa.Array], at: Ints, groups: Sequence[str], bounds: Mapping[str, Instant]
) -> np.ndarray:
    """Rows below the punctuation of their own group: they break its promise."""
    names = named([columns[name] for name in groups])
    place = pc.fill_null(pc.index_in(names, pa.array(list(bounds), pa.string())), -1).to_numpy()
    values = np.array([*bounds.values(), BEGINNING], np.int64)
    return at < values[place]

"""Base class of operators that store rows, or aggregates of them: columns, scanner, row steps and EXPLAIN lines, from
the layout of the stored rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.operators.base.operator import BaseOperator, Scanner
from headrace.operators.output.display import regrouping, settings
from headrace.operators.output.output_stage import Finish
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.rows.row_state import RowLayout


class RowOperator(BaseOperator):
    """An operator whose `rows` define what is stored of each row, and whose `finish` reads the stored values."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def rows(self) -> RowLayout:
            """The layout of stored rows."""

        @property
        def finish(self) -> Finish:
            """The steps above its windows."""

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it reads."""
        return self.rows.reads()

    def scanner(self, relations: Mapping[str, pa.Table]) -> Scanner:
        """Evaluates what is stored of each row."""
        return self.rows.scanner(relations)

    @property
    def row_steps(self) -> tuple[RowStep, ...]:
        """The steps applied to rows before they are stored."""
        return self.rows.steps

    @property
    def finishing(self) -> Finish:
        """The steps above its windows."""
        return self.finish

    @property
    def records(self) -> tuple[Any, ...]:
        """The records whose fields are its settings."""
        return (self,)

    def display(self) -> Iterator[str]:
        """Its class, its settings, and the aggregates that are computed when a window closes."""
        context = self.context
        yield f"{type(self).__name__}{f', windows {context.value}' if context is not None else ''}"
        yield from (f"  {line}" for record in self.records for line in settings(record))
        yield from regrouping(self.finish)

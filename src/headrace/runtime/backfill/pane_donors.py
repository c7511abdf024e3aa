"""Whose panes could a newcomer be filled from? The operators of the published plan, by the rows that they fold.

Kept while plans come into force, by what distinguishes one from the next: a registration among ten thousand queries asks
those over its own rows, and nobody else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.operators.base.operator import Operator
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.time_windows.pane_aggregate import PaneAggregate

_Rows: TypeAlias = tuple[str, tuple[RowStep, ...]]


@dataclass(slots=True)
class PaneSources:
    """The operators that keep panes, of the plan with the name `plan`."""

    plan: str | None = None
    _operators: Mapping[str, Operator] = field(default_factory=dict)
    _by_rows: dict[_Rows, dict[str, PaneAggregate]] = field(default_factory=dict)

    def follow(self, plan: str, operators: Mapping[str, Operator]) -> None:
        """The plan of that name is in force, with these operators."""
        known = self._operators
        if operators is not known:
            gone = [each for name, each in known.items() if operators.get(name) is not each]
            fresh = [each for name, each in operators.items() if known.get(name) is not each]
            for each in gone:
                self._remove(each)
            for each in fresh:
                if (found := each.over_panes) is not None:
                    self._by_rows.setdefault((found.stream, found.steps), {})[found.id] = found
        self.plan, self._operators = plan, operators

    def over_rows_of(self, new_operator: PaneAggregate) -> Collection[PaneAggregate]:
        """Those that fold the rows that an operator folds, in the order in which they came."""
        return self._by_rows.get((new_operator.stream, new_operator.steps), {}).values()

    def _remove(self, operator: Operator) -> None:
        if (gone := operator.over_panes) is not None:
            rows = (gone.stream, gone.steps)
            del self._by_rows[rows][gone.id]
            if not self._by_rows[rows]:
                del self._by_rows[rows]

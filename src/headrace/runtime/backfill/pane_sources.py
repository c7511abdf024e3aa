"""Index of the published plan's operators with panes, by the rows that they fold: a new operator over the same rows may
copy their panes (pane backfill).

The index follows the plan by its changes: a registration among ten thousand queries reads those over the same rows only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import TypeAlias

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.time_windows.pane_aggregate import PaneAggregate

_Rows: TypeAlias = tuple[str, tuple[RowStep, ...]]


@dataclass(slots=True)
class PaneSources:
    """The operators with panes, of the plan with the name `plan`."""

    plan: str | None = None
    _operators: Mapping[str, Operator] = field(default_factory=dict)
    _by_rows: dict[_Rows, dict[str, PaneAggregate]] = field(default_factory=dict)

    def follow(self, plan: str, operators: Mapping[str, Operator]) -> None:
        """Replace the plan by the one of that name with these operators."""
        previous = self._operators
        if operators is not previous:
            for name, operator in previous.items():
                if operators.get(name) is not operator:
                    self._remove(operator)
            for name, operator in operators.items():
                if previous.get(name) is not operator and (panes := operator.over_panes) is not None:
                    self._by_rows.setdefault((panes.stream, panes.steps), {})[panes.id] = panes
        self.plan, self._operators = plan, operators

    def over_rows_of(self, new_operator: PaneAggregate) -> Collection[PaneAggregate]:
        """The operators that fold the same rows as a new one, in the order of registration."""
        return self._by_rows.get((new_operator.stream, new_operator.steps), {}).values()

    def _remove(self, operator: Operator) -> None:
        if (panes := operator.over_panes) is not None:
            rows = (panes.stream, panes.steps)
            del self._by_rows[rows][panes.id]
            if not self._by_rows[rows]:
                del self._by_rows[rows]

"""The operators that read a stream in a scan task, by which of its rows they get, and the columns that they need; both found once
for the thousands of a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import Operator
from headrace.operators.panes.panes import Panes
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.time import Duration

_columns: Final[Recent[int, tuple[Operator, frozenset[str]]]] = Recent(200_000)
"""Columns by the identity of an operator, which is valid while its entry is here."""


def columns_of(operator: Operator) -> frozenset[str]:
    """The columns an operator reads of its stream and of relations."""
    entry = _columns.get(id(operator))
    if entry is None:
        entry = operator, operator.columns
        _columns.put(id(operator), entry)
    return entry[1]


@dataclass(frozen=True, slots=True)
class StreamReaders:
    """The readers of a stream's accepted, late, rejected and sampled rows, and those that revise answers by late rows.

    `revising` is by how long they do. `relations` are those that all look up; by the columns `important` rows are more or less
    important to them.
    """

    accepted: Sequence[Operator]
    late: Sequence[Operator]
    rejected: Sequence[Operator]
    sampled: Sequence[Operator]
    revising: Mapping[Duration | None, Sequence[Operator]]
    relations: frozenset[str]
    important: frozenset[str]
    time_panes: Sequence[Panes] | None
    """The panes that those of accepted rows go by; None if one reads event times themselves."""
    _columns: frozenset[str]

    @staticmethod
    def of(plan: EpochPlan, readers: Sequence[Operator]) -> StreamReaders:
        """Of these operators of a plan."""
        return _known.of((plan, *readers), lambda: _divided(plan, readers))

    def columns(
        self, definition: StreamDefinition, *, archived: bool, also: frozenset[str]
    ) -> tuple[str, ...]:
        """All columns when the rows are archived, else those of the operators and those in `also`; in the stream's order."""
        if archived:
            return definition.schema.names
        needed = self._columns | self.important | also
        return tuple(name for name in definition.schema.names if name in needed)


_known: Final[MadeOnce[StreamReaders]] = MadeOnce(16)


def _divided(plan: EpochPlan, readers: Sequence[Operator]) -> StreamReaders:
    by_channel: dict[str, list[Operator]] = {}
    revising: dict[Duration | None, list[Operator]] = {}
    for operator in readers:
        planned = plan.planned[operator.id]
        if planned.revisions is not None:
            revising.setdefault(planned.revisions.within, []).append(operator)
        else:
            by_channel.setdefault(planned.channel, []).append(operator)
    reading = [operator for operator in readers if plan.planned[operator.id].channel != "rejects"]
    stated = [plan.qualities[operator.id].importance for operator in readers if operator.id in plan.qualities]
    return StreamReaders(
        by_channel.get("rows", []),
        by_channel.get("late", []),
        by_channel.get("rejects", []),
        by_channel.get("kept", []),
        revising=revising,
        relations=frozenset[str]().union(*(operator.relations for operator in readers)),
        important=frozenset(importance.column for importance in stated if importance is not None),
        time_panes=_time_panes(by_channel.get("rows", [])),
        _columns=frozenset[str]().union(*map(columns_of, reading)),
    )


def _time_panes(readers: Sequence[Operator]) -> Sequence[Panes] | None:
    panes = {operator.time_panes for operator in readers}
    by_grid = {comb.grid: comb for comb in panes if comb is not None}
    return None if None in panes else tuple(by_grid.values())

"""The members of a family that take the same turn, finished together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import NOTHING_TOLD, WINDOW, Operator, Sections, StateOwner, Told, Turn
from headrace.operators.families.family import MEMBER, MEMBER_AT_REST, Census, number_of
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.window_assembly.window_closing import Chunk, Closed, close
from headrace.schema import BIGINT

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


_COLUMN: Final = Column(MEMBER, BIGINT)
_NUMBER: Final = itemgetter(0)


@dataclass(frozen=True, slots=True)
class MemberStep:
    """What one query gets of an epoch; see `Step`."""

    results: pa.Table | None = None
    rejected: tuple[Rejected, ...] = ()
    open_windows: int = 0
    told: Told = NOTHING_TOLD
    """Of all members that took the same turn."""


@dataclass(frozen=True, slots=True)
class Cohort(StateOwner):
    """Members of one family that take the same turn, in the order of their numbers."""

    members: tuple[PaneAggregate, ...]
    numbers: Ints
    """The members' numbers."""

    @staticmethod
    def of(members: Sequence[PaneAggregate]) -> Cohort:
        """The cohort of members in the order of their numbers."""
        return Cohort(tuple(members), np.array([number_of(each.id) for each in members], np.int64))

    def own_rows(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The members' rows of state tables."""
        return [self.only(table, Census.of(table)) for table in tables]

    def only(self, table: pa.Table, census: Census) -> pa.Table:
        """The members' rows of a state table; `census` says whose rows are in it."""
        if np.array_equal(census.numbers, self.numbers):  # most often, and cheap to see
            return table
        mine = np.isin(census.numbers, self.numbers)
        if mine.all():
            return table
        mask = np.isin(ints(table, MEMBER_AT_REST), self.numbers)
        return table.filter(pa.array(mask)) if mine.any() else table.slice(0, 0)

    def advance(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn
    ) -> tuple[Sections, dict[str, MemberStep]]:
        """The family's new state sections, and what each member answers; runs and deltas hold members' rows alone."""
        closed = close(together(self.members), runs, deltas, turn)
        results, rejected, told = _finished(self.members, self.numbers, closed)
        steps = {
            member.id: MemberStep(
                results.get(place),
                tuple(rejected.get(place, ())),
                closed.open_windows,
                told,
            )
            for place, member in enumerate(self.members)
        }
        return closed.state, steps

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], turn: Turn
    ) -> Mapping[str, Sequence[pa.Table]]:
        """See `PaneAggregate.before_merge`."""
        return together(self.members).before_merge(sections, turn)

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """One table with the same meaning; see `Operator.compact`."""
        return together(self.members).compact(section, tables, turn)


def together(members: Sequence[PaneAggregate]) -> PaneAggregate:
    """One aggregate for all members: grouped by member first."""
    return replace(members[0], keys=(Named(MEMBER, _COLUMN), *members[0].keys))


def over_panes(members: Sequence[Operator]) -> list[PaneAggregate]:
    """The members of a family of aggregates over panes."""
    return [found for each in members if (found := each.over_panes) is not None]


class _Finishing:
    """Collects result rows and rejects by member; members of equal finish go through it together."""

    def __init__(self, members: Sequence[PaneAggregate]) -> None:
        same: dict[
            int, tuple[Finish, list[int]]
        ] = {}  # thousands share the object, which spares hashing the value
        for place, member in enumerate(members):
            same.setdefault(id(member.finish), (member.finish, []))[1].append(place)
        self.alike: dict[Finish, list[int]] = {}
        for plan, places in same.values():
            self.alike.setdefault(plan, []).extend(places)
        self.tables: dict[int, list[pa.Table]] = {}
        self.rejected: dict[int, list[Rejected]] = {}


def _finished(
    members: Sequence[PaneAggregate], numbers: Ints, closed: Closed
) -> tuple[dict[int, pa.Table], dict[int, list[Rejected]], Told]:
    """Result rows and rejects by the place of the member, and of how many pairs and rows they are."""
    work, told = _Finishing(members), Told()
    for chunk in closed.chunks:
        told = told.plus(len(chunk.windows), chunk.held)
        if len(members) == 1:  # its rows are all there is, and stand as they should
            _finish_rows(work, members[0].finish, chunk, np.zeros(len(chunk.windows), np.int64))
            continue
        places = np.searchsorted(numbers, flat(chunk.columns[MEMBER]).to_numpy())
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], np.arange(len(members) + 1))
        for plan, alike in work.alike.items():
            rows = order if len(alike) == len(members) else _joined(order, edges, alike)
            if len(rows):
                _finish_rows(work, plan, chunk.rows(rows), places[rows])
    return {place: pa.concat_tables(tables) for place, tables in work.tables.items()}, work.rejected, told


def _joined(order: Ints, edges: Ints, places: Sequence[int]) -> Ints:
    """The rows of some members, one after the other."""
    joined: Ints = np.concatenate([order[edges[place] : edges[place + 1]] for place in places])
    return joined


def _finish_rows(work: _Finishing, plan: Finish, chunk: Chunk, places: Ints) -> None:
    """Finish rows of members with the same plan; one by one where a row fails, to know whose it is."""
    first, span = int(chunk.windows.min()), int(places.max()) + 1
    apart = replace(plan, columns=(*plan.columns, Named(MEMBER, _COLUMN)))
    columns = {**chunk.columns, MEMBER: pa.array(places)}
    windows = (chunk.windows - first) * span + places  # a member's window: LIMIT and DISTINCT are within it
    table, bad = finish(apart, columns, windows, chunk.ends, chunk.failed)
    if bad and len(np.unique(places)) > 1:
        for place in np.unique(places).tolist():
            mine = np.flatnonzero(places == place)
            _finish_rows(work, plan, chunk.rows(mine), places[mine])
        return
    if bad:
        work.rejected.setdefault(int(places[0]), []).extend(bad)
    numbered = ints(table, WINDOW) // span + first
    whole = table.set_column(table.column_names.index(WINDOW), WINDOW, pa.array(numbered))
    for place, part in _by_member(whole):
        work.tables.setdefault(place, []).append(part)


def _by_member(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each member, without the column that says so, in their order."""
    if not table.num_rows:
        return
    places = ints(table, MEMBER)
    plain = table.drop_columns([MEMBER])
    if (np.diff(places) < 0).any():
        order = np.argsort(places, kind="stable")
        plain, places = plain.take(pa.array(order)), places[order]
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(places)], strict=True):
        yield int(places[start]), plain.slice(start, stop - start)


def cohorts(operators: Sequence[Operator], turns: Mapping[str, Turn]) -> list[tuple[Cohort, Turn]]:
    """A family's members by the turn they take."""
    by_turn: dict[Turn, list[tuple[int, PaneAggregate]]] = {}
    members = [(number_of(each.id), each) for each in over_panes(operators)]
    for number, member in sorted(members, key=_NUMBER):
        by_turn.setdefault(turns[member.id], []).append((number, member))
    return [
        (Cohort(tuple(each for _, each in alike), np.array([n for n, _ in alike], np.int64)), turn)
        for turn, alike in by_turn.items()
    ]

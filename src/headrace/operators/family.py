"""Queries of one shape keep their state together: the same windows and aggregates under different conditions.

A thousand alerts differ in their WHERE, their HAVING and what they show, hardly ever in their windows. Such queries are a
*family*: one set of tables holds the partials of all of them, with the member's number as the first group key, so that
sealing panes, building blocks and combining windows are done once for all, whatever their number. Each member keeps its
own place in time: a *cohort* is those members that take the same turn, and the rest of the family's rows wait.
Source: CACQ and PSoup (queries as data); architecture, D1.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.aggregates import AggregateCall
from headrace.algebra.expressions import Column, Named
from headrace.operators.adaptive_panes import FEW_OPEN
from headrace.operators.batch import Rejected
from headrace.operators.finish import Finish, finish
from headrace.operators.grouping import Ints, flat, ints
from headrace.operators.lower_synopses import keeps_synopses
from headrace.operators.operator import (
    NOTHING_TOLD,
    WINDOW,
    Operator,
    Scanned,
    Sections,
    StateOwner,
    Told,
    Turn,
)
from headrace.operators.pane_closing import Chunk, Closed, close
from headrace.operators.pane_store import KEY
from headrace.schema import BIGINT

if TYPE_CHECKING:
    from headrace.operators.pane_aggregate import PaneAggregate

UNFOLDED: Final = "/rows"
"""After a state's name, beside the name itself among the adapting ones: its rows are not folded at all as they come."""

MEMBER: Final = "__member"
_COLUMN: Final = Column(MEMBER, BIGINT)
_AT_REST: Final = "k0"
"""The member's column in a state table: the first group key."""
_NUMBER: Final = itemgetter(0)
_NUMBERED: Final = re.compile(r"q(\d+)")


@dataclass(frozen=True, slots=True)
class MemberStep:
    """What one query gets of an epoch; see `Step`."""

    results: pa.Table | None = None
    rejected: tuple[Rejected, ...] = ()
    open_windows: int = 0
    told: Told = NOTHING_TOLD
    """Of all members that took the same turn."""


def in_family(operator: PaneAggregate) -> PaneAggregate:
    """The operator with the name of its family, where its query is one of the query log's and can have one."""
    if operator.answers_empty or operator.revisions is not None or not _NUMBERED.fullmatch(operator.id):
        return operator
    if keeps_synopses(operator.aggregates):
        return operator
    window = (operator.stream, operator.panes, operator.range, operator.window_alias)
    shape = (window, operator.keys, operator.aggregates)
    is_plain = all(isinstance(key.expression, Column) for key in operator.keys) and all(
        (item.call.share, item.call.most, item.call.half_life) == (None, None, None)
        and item.call == AggregateCall(item.call.function, item.call.argument, item.call.type)
        and isinstance(item.call.argument, Column | None)
        for item in operator.aggregates
    )
    name = _of_plain(shape) if is_plain else _name(shape)
    return _alike(replace(operator, family=name))


def _name(shape: object) -> str:
    return f"f{hashlib.blake2b(repr(shape).encode(), digest_size=9).hexdigest()}"


_of_plain: Final = lru_cache(4096)(_name)
"""The same for shapes without constants, which are told apart by being equal; 0.0 and -0.0 are equal and not the same."""


_examples: Final[dict[object, PaneAggregate]] = {}
_FEW_EXAMPLES: Final = 4096


def _alike(operator: PaneAggregate) -> PaneAggregate:
    """The operator, with what it has in common with another one of its family as the same objects: less to keep and send."""
    if len(_examples) >= _FEW_EXAMPLES:
        _examples.clear()
    above = operator.finish
    told = [column.expression for column in above.columns] + [key.expression for key in above.sort]
    is_plain = not (above.having or above.order or above.regroup)
    is_plain = is_plain and all(isinstance(each, Column) for each in told)
    finish = (operator.family, above if is_plain else repr(above))
    same, like = _examples.setdefault(str(operator.family), operator), _examples.setdefault(finish, operator)
    return replace(operator, panes=same.panes, keys=same.keys, aggregates=same.aggregates, finish=like.finish)


def number_of(operator_id: str) -> int:
    """A member's number: that of its query's generation, which is never used again, so no old row can be mistaken."""
    return int(operator_id.removeprefix("q"))


def as_it_runs(operator: Operator, adapting: Collection[str]) -> Operator:
    """The operator as scan tasks have it while its state is among the `adapting`: see `UNFOLDED`."""
    name = state_name(operator)
    return operator.adapting(folds=name + UNFOLDED not in adapting) if name in adapting else operator


def state_name(operator: Operator) -> str:
    """Under which name the operator's state lies: its family's, or its own."""
    return operator.family_key or operator.id


def numbered(operator: PaneAggregate, sections: Sections) -> Sections:
    """An operator's deltas as rows of its family's state: with its number as the first group key."""
    layouts = together((operator,)).layouts
    number = number_of(operator.id)
    schemas = {f"open{place}": layout.schema() for place, layout in enumerate(layouts)}
    schemas[FEW_OPEN] = layouts[0].row_schema()
    return {name: _with_member(schemas[name], table, number) for name, table in sections.items()}


def _with_member(schema: pa.Schema, table: pa.Table, number: int) -> pa.Table:
    columns = [flat(column) for column in table.columns]
    member = pa.array(np.full(table.num_rows, number, np.int64))
    return pa.table([*columns[:2], member, *columns[2:]], schema=schema)


@dataclass(slots=True)
class Harvest:
    """What a scan task made of its rows: deltas by `state/section`, and what was measured and rejected by operator."""

    sections: dict[str, list[pa.Table]] = field(default_factory=dict)
    scanned: dict[str, Scanned] = field(default_factory=dict)
    delta_rows: dict[str, int] = field(default_factory=dict)

    def add(self, operator: Operator, scanned: Scanned) -> None:
        """Take in what one operator's scanner made."""
        rows = 0
        if scanned.deltas:
            for section, table in operator.for_family(scanned.deltas).items():
                self.sections.setdefault(f"{state_name(operator)}/{section}", []).append(table)
            rows = sum(table.num_rows for table in scanned.deltas.values())
        self.delta_rows[operator.id] = self.delta_rows.get(operator.id, 0) + rows
        self.scanned[operator.id] = scanned

    def put(self, section: str, table: pa.Table) -> None:
        """Take in rows of several members of a family."""
        self.sections.setdefault(section, []).append(table)
        census = Census.of(table)
        for number, rows in zip(census.numbers.tolist(), census.rows.tolist(), strict=True):
            self.delta_rows[f"q{number}"] = rows

    def join(self, other: Harvest) -> None:
        """Take in what scanners of other operators made."""
        for section, tables in other.sections.items():
            self.sections.setdefault(section, []).extend(tables)
        self.scanned |= other.scanned
        self.delta_rows |= other.delta_rows


def gathered(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several members in the order of blocks, as one table."""
    if len(tables) == 1:
        return tables[0]
    whole = pa.concat_tables(tables)
    keys = ints(whole, KEY)
    if not (np.diff(keys) < 0).any():
        return whole
    return whole.take(pa.array(np.argsort(keys, kind="stable")))


@dataclass(frozen=True, slots=True)
class Census:
    """Who has rows in a state table, and how many: numbers ascending."""

    numbers: Ints
    rows: Ints

    @staticmethod
    def of(table: pa.Table) -> Census:
        """Count a table's rows by member."""
        numbers, rows = np.unique(ints(table, _AT_REST), return_counts=True)
        return Census(numbers, rows)

    def among(self, members: Ints) -> Ints:
        """The rows of each of `members` (ascending)."""
        found = np.zeros(len(members), np.int64)
        places = np.searchsorted(members, self.numbers)
        known = places < len(members)
        known[known] = members[places[known]] == self.numbers[known]
        found[places[known]] = self.rows[known]
        return found


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
        mask = np.isin(ints(table, _AT_REST), self.numbers)
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

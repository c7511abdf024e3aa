"""One fold for many conditions: a thousand filters over the same groups cost one pass over the rows.

The conditions of all members are one query index; a batch is matched and folded for all of them at once, by the panes
that their windows have in common. Each member's own panes are then made of those cells, a family at a time.
Source: PSoup and CACQ (grouped filters); the kernels are `query_index` and `shared_aggregation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions import Call, Column, Expression, Named
from headrace.operators.batch import Batch, Rejected
from headrace.operators.family import Harvest, number_of, together
from headrace.operators.grouping import Groups, Ints, compact, group
from headrace.operators.operator import Scanned, Scanner
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.pane_store import (
    Gathered,
    Layout,
    by_block_and_group,
    fresh_slots,
    gather,
    merge_gathered,
    pane_keys,
    select,
)
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.preparing import Failed
from headrace.operators.row_steps import Keep
from headrace.operators.scalar import Evaluation
from headrace.operators.shared_aggregation.folding import fold
from headrace.operators.shared_panes import common_panes
from headrace.schema import BIGINT, BOOLEAN

_PREDICATE: Final = Named("__predicate", Column("__predicate", BIGINT))


def predicate_of(member: PaneAggregate) -> Expression | None:
    """The condition of an aggregate whose steps are filters alone; None for all rows."""
    factors = tuple(step.predicate for step in member.steps if isinstance(step, Keep))
    if len(factors) < 2:
        return factors[0] if factors else None
    return Call("and", factors, BOOLEAN)


@dataclass(frozen=True)
class Plan:
    """What the members of a shared fold ask for together. `slots[i]` is the place of member i's condition in the index."""

    members: tuple[PaneAggregate, ...]
    index: QueryIndex
    slots: Ints
    layout: Layout

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """What is aggregated."""
        feds = (fed.expression for fed in self.layout.feds if fed.expression is not None)
        return tuple(dict.fromkeys(feds))

    def inputs(self) -> list[Expression]:
        """What is evaluated on each row: keys, then arguments."""
        return [*(key.expression for key in self.layout.keys[1:]), *self.arguments]


@lru_cache(maxsize=16)
def _plan(members: _Same) -> Plan:
    predicates = {member.id: predicate_of(member) for member in members.operators}
    places = {predicate: str(n) for n, predicate in enumerate(dict.fromkeys(predicates.values()))}
    index = QueryIndex().changed({name: predicate for predicate, name in places.items()})
    slots = [index.entry(places[predicates[member.id]]).slot.number for member in members.operators]
    feds = dict.fromkeys(fed for member in members.operators for fed in member.layouts[0].feds)
    layout = Layout((_PREDICATE, *members.operators[0].keys), tuple(feds))
    return Plan(members.operators, index, np.array(slots, np.int64), layout)


class _Same:
    """Operators of one epoch plan, compared as objects: a worker keeps a plan while it is in force."""

    def __init__(self, operators: tuple[PaneAggregate, ...]) -> None:
        self.operators = operators
        self._ids = tuple(map(id, operators))

    def __hash__(self) -> int:
        return hash(self._ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._ids == other._ids


@dataclass(slots=True)
class SharedPredicates:
    """The scan half of several pane aggregates that group alike."""

    plan: Plan
    own: Mapping[str, Scanner]
    """Each member by itself: for batches on which a key or an argument fails, which it must for some of them alone."""
    tables: list[pa.Table] = field(default_factory=list)
    rejected: dict[int, list[Rejected]] = field(default_factory=dict)
    rows_in: int = 0

    @staticmethod
    def of(members: tuple[PaneAggregate, ...]) -> SharedPredicates:
        """Prepare to fold for all members, whose keys are equal and whose steps are filters."""
        own = _Lazily({member.id: member for member in members})
        return SharedPredicates(_plan(_Same(members)), own)

    def add(self, batch: Batch) -> None:
        """Fold a batch once for all."""
        evaluation = Evaluation(batch.columns, batch.rows)
        values = [evaluation.values(each) for each in self.plan.inputs()]
        if evaluation.errors is not None:
            for member in self.plan.members:
                self.own[member.id].add(batch)
            return
        self.rows_in += batch.rows
        keys = values[: len(self.plan.layout.keys) - 1]
        arguments = dict(zip(self.plan.arguments, values[len(keys) :], strict=True))
        places, starts = common_panes([member.panes for member in self.plan.members], batch.at)
        groups = group(keys, batch.rows)
        codes, count, found, owner = by_block_and_group(places, groups)
        folded = fold(self.plan.index, batch.columns, self.plan.layout.feds, arguments, codes, count)
        self._note(batch, folded.failed)
        cells = folded.cells
        picked = [key.take(pa.array(owner[cells.codes])) for key in groups.keys]
        slots = fresh_slots(picked, cells.rows, None)
        table = self.plan.layout.table(
            starts[found[cells.codes]], [pa.array(cells.slots), *picked], slots, cells.answer
        )
        self.tables.append(table)

    def _note(self, batch: Batch, failed: Mapping[int, Failed]) -> None:
        for slot, rows in failed.items():
            told = Rejected(batch.at[rows.rows], batch.position[rows.rows], rows.reasons)
            self.rejected.setdefault(slot, []).append(told)

    def finish(self) -> Harvest:
        """Each member's deltas, as it would have made them alone."""
        plan, found = self.plan, Harvest()
        cells = gather(plan.layout, self.tables)
        slot_of_row = cells.groups.keys[0].to_numpy()[cells.groups.codes] if cells.rows else np.empty(0, int)
        order = np.argsort(slot_of_row, kind="stable")
        edges = np.searchsorted(slot_of_row[order], np.arange(plan.index.next_slot + 1))
        kept = np.bincount(slot_of_row, _row_counts(plan.layout, cells), plan.index.next_slot)
        for family, places in _families(plan.members).items():
            if cells.rows:
                found.put(f"{family}/open0", self._family(places, cells, order, edges))
        for member, slot in zip(plan.members, plan.slots.tolist(), strict=True):
            alone = self.own[member.id].finish() if member.id in self.own else Scanned({})
            rejected = (*alone.rejected, *self.rejected.get(slot, ()))
            rows_in, rows_kept = alone.rows_in + self.rows_in, alone.rows_kept + int(kept[slot])
            found.add(member, replace(alone, rejected=rejected, rows_in=rows_in, rows_kept=rows_kept))
        return found

    def _family(self, places: Ints, cells: Gathered, order: Ints, edges: Ints) -> pa.Table:
        """The cells of one family's members, as rows of their own panes."""
        members = [self.plan.members[place] for place in places]
        slots = self.plan.slots[places]
        first, counts = edges[slots], edges[slots + 1] - edges[slots]
        whose = np.repeat(np.arange(len(members)), counts)
        rows = order[np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts) + first[whose]]
        codes, live = compact(
            whose * cells.groups.count + cells.groups.codes[rows], len(members) * cells.groups.count
        )
        member, code = np.divmod(live, cells.groups.count)
        numbers = np.array([number_of(each.id) for each in members], np.int64)
        keys = (pa.array(numbers[member]), *(key.take(pa.array(code)) for key in cells.groups.keys[1:]))
        at_rest = cells.slots[rows]
        routed = np.array(
            [-1 if each.single_slot is None else each.single_slot for each in members], np.int16
        )
        at_rest = np.where(routed[whose] >= 0, routed[whose], at_rest)
        blocks = pane_keys(members[0].panes.of_instants(cells.blocks[rows]))
        layout = together(members).layouts[0]
        return merge_gathered(
            layout, Gathered(blocks, at_rest, Groups(codes, len(live), keys), select(cells.answer, rows))
        )


def _row_counts(layout: Layout, cells: Gathered) -> Ints:
    counts: Ints = cells.answer.cells[layout.feds[0]][0]
    return counts


def _families(members: Sequence[PaneAggregate]) -> dict[str, Ints]:
    """The places of members by the name of their family."""
    found: dict[str, list[int]] = {}
    for place, member in enumerate(members):
        assert member.family is not None
        found.setdefault(member.family, []).append(place)
    return {family: np.array(places, np.int64) for family, places in found.items()}


class _Lazily(dict[str, Scanner]):
    """Scanners made when they are first asked for: hardly any batch needs them."""

    def __init__(self, members: Mapping[str, PaneAggregate]) -> None:
        super().__init__()
        self._members = members

    def __missing__(self, name: str) -> Scanner:
        self[name] = self._members[name].scanner({})
        return self[name]

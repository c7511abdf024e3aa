"""One fold for many conditions: a thousand filters over the same groups cost one pass over the rows.

The conditions of all members are one query index; a batch is joined with the relations that all of them ask, then matched
and folded for all of them at once, by the panes that their windows have in common. Each member's own panes are then made of
those cells, a family at a time.
Source: PSoup and CACQ (grouped filters); the kernels are `query_index` and `shared_aggregation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import (
    Gathered,
    Layout,
    fresh_slots,
    gather,
    merge_gathered,
    select,
)
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.group_codes import Groups, Ints, compact, group
from headrace.operators.base.operator import Scanned, Scanner
from headrace.operators.families.cohort import together
from headrace.operators.families.harvest import ScanOutput
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.query_index.matching.prepare import Failed
from headrace.operators.rows.row_pipeline import RowPipeline, joins_of
from headrace.operators.scalar import Evaluation
from headrace.operators.shared_aggregation.strategy import fold
from headrace.operators.sharing.shared_panes import common_panes
from headrace.operators.sharing.shared_plan import SharedPlan, plan_of
from headrace.operators.time_windows.pane_aggregate import PaneAggregate

FOLDED_AT_ONCE: Final = 1 << 20
"""Rows that are matched and folded together: the more rows a cell has, the less it costs to fold one."""
_MOST_BYTES: Final = 1 << 28
"""Long texts are not held so long."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A batch that waits to be folded, with the values of keys and arguments."""

    batch: Batch
    values: tuple[pa.Array, ...]

    @property
    def rows(self) -> int:
        """How many."""
        return self.batch.rows

    @property
    def bytes(self) -> int:
        """What they take."""
        return sum(column.nbytes for column in self.batch.columns.values())


@dataclass(slots=True)
class SharedPredicates:
    """The scan half of several pane aggregates that join and group alike."""

    plan: SharedPlan
    joins: RowPipeline
    own: Mapping[str, Scanner]
    """Each member by itself: for batches on which a join, a key or an argument fails, which it must for some of them alone."""
    tables: list[pa.Table] = field(default_factory=list)
    rejected: dict[int, list[Rejected]] = field(default_factory=dict)
    rows_in: int = 0
    held: list[_Held] = field(default_factory=list)

    @staticmethod
    def of(queries: tuple[PaneAggregate, ...], relations: Mapping[str, pa.Table]) -> SharedPredicates:
        """Prepare to fold for all members, whose keys are equal and whose steps are the same joins, and filters."""
        own = _Lazily({member.id: member for member in queries}, relations)
        return SharedPredicates(plan_of(queries), RowPipeline.of(joins_of(queries[0].steps), relations), own)

    @property
    def representative(self) -> str:
        """The first member's id."""
        return self.plan.queries[0].id

    def add(self, batch: Batch) -> None:
        """Take in a batch; it is folded once for all, as soon as there are enough rows."""
        joined = self.joins.apply(batch)
        evaluation = Evaluation(joined.readable, joined.rows)
        values = tuple(evaluation.values(each) for each in self.plan.inputs)
        if self.joins.rejected or evaluation.errors is not None:
            self.joins.rejected.clear()
            for member in self.plan.queries:
                self.own[member.id].add(batch)
            return
        self.rows_in += batch.rows
        if not joined.rows:
            return
        self.held.append(_Held(joined, values))
        rows, size = (sum(getattr(each, of) for each in self.held) for of in ("rows", "bytes"))
        if rows >= FOLDED_AT_ONCE or size >= _MOST_BYTES:
            self._fold()

    def _fold(self) -> None:
        """Fold what is held."""
        held, self.held = self.held, []
        if not held:
            return
        at, position = (
            np.concatenate([getattr(each.batch, of) for each in held]) for of in ("at", "position")
        )
        batch = Batch(_Joined([each.batch.columns for each in held]), at, position)
        values = [_joined(parts) for parts in zip(*(each.values for each in held), strict=True)]
        keys = values[: len(self.plan.layout.keys) - 1]
        arguments = dict(zip(self.plan.arguments, values[len(keys) :], strict=True))
        places, starts = common_panes(self.plan.combs, batch.at)
        groups = group(keys, batch.rows)
        codes, count, found, owner, _ = by_block_and_group(places, groups)
        folded = fold(
            self.plan.index, batch.columns, self.plan.layout.partial_columns, arguments, codes, count
        )
        self._note(batch, folded.failed)
        cells = folded.cells
        picked = [key.take(pa.array(owner[cells.codes])) for key in groups.keys]
        slots = fresh_slots(groups.keys, groups.count, None)[owner[cells.codes]]
        table = self.plan.layout.table(
            starts[found[cells.codes]], [pa.array(cells.slots), *picked], slots, cells.answer
        )
        self.tables.append(table)

    def _note(self, batch: Batch, failed: Mapping[int, Failed]) -> None:
        for slot, rows in failed.items():
            told = Rejected(batch.at[rows.rows], batch.position[rows.rows], rows.reasons)
            self.rejected.setdefault(slot, []).append(told)

    def finish(self) -> ScanOutput:
        """Each member's deltas, as it would have made them alone."""
        self._fold()
        plan, found = self.plan, ScanOutput()
        cells = gather(plan.layout, self.tables)
        slot_of_row = cells.groups.keys[0].to_numpy()[cells.groups.codes] if cells.rows else np.empty(0, int)
        order = np.argsort(slot_of_row, kind="stable")
        edges = np.searchsorted(slot_of_row[order], np.arange(plan.index.next_slot + 1))
        kept = np.bincount(slot_of_row, _row_counts(plan.layout, cells), plan.index.next_slot)
        for family, places in plan.families.items():
            if cells.rows:
                found.put(f"{family}/open0", self._family(places, cells, order, edges))
        rows = kept[plan.slots].astype(np.int64).tolist()
        for member, slot, rows_kept in zip(plan.queries, plan.slots.tolist(), rows, strict=True):
            rejected = tuple(self.rejected.get(slot, ()))
            shared = Scanned({}, rejected, self.rows_in, rows_kept)
            found.add(
                member, _with(self.own[member.id].finish(), shared) if member.id in self.own else shared
            )
        return found

    def _family(self, places: Ints, cells: Gathered, order: Ints, edges: Ints) -> pa.Table:
        """The cells of one family's members, as rows of their own panes."""
        example, count = self.plan.queries[places[0]], len(places)
        slots = self.plan.slots[places]
        first, counts = edges[slots], edges[slots + 1] - edges[slots]
        whose = np.repeat(np.arange(count), counts)
        rows = order[np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts) + first[whose]]
        codes, live = compact(
            whose * cells.groups.count + cells.groups.codes[rows], count * cells.groups.count
        )
        member, code = np.divmod(live, cells.groups.count)
        numbers = self.plan.numbers[places]
        keys = (pa.array(numbers[member]), *(key.take(pa.array(code)) for key in cells.groups.keys[1:]))
        at_rest = cells.slots[rows]
        routed = self.plan.routed[places]
        at_rest = np.where(routed[whose] >= 0, routed[whose], at_rest)
        blocks = pane_keys(example.panes.of_instants(cells.blocks[rows]))
        layout = together((example,)).layouts[0]
        return merge_gathered(
            layout, Gathered(blocks, at_rest, Groups(codes, len(live), keys), select(cells.answer, rows))
        )


def _with(alone: Scanned, shared: Scanned) -> Scanned:
    """What a member made by itself, and what it has of the shared folds."""
    return Scanned(
        alone.deltas,
        (*alone.rejected, *shared.rejected),
        alone.rows_in + shared.rows_in,
        alone.rows_kept + shared.rows_kept,
    )


def _row_counts(layout: Layout, cells: Gathered) -> Ints:
    counts: Ints = cells.answer.cells[layout.partial_columns[0]][0]
    return counts


class _Joined(Mapping[str, pa.Array]):
    """The columns of several batches as of one; each is joined when it is asked for."""

    def __init__(self, batches: Sequence[Mapping[str, pa.Array]]) -> None:
        self._batches, self._joined = batches, dict[str, pa.Array]()

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._joined:
            self._joined[name] = _joined([batch[name] for batch in self._batches])
        return self._joined[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._batches[0])

    def __len__(self) -> int:
        return len(self._batches[0])


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


class _Lazily(dict[str, Scanner]):
    """Scanners made when they are first asked for: hardly any batch needs them."""

    def __init__(self, queries: Mapping[str, PaneAggregate], relations: Mapping[str, pa.Table]) -> None:
        super().__init__()
        self._members, self._relations = queries, relations

    def __missing__(self, name: str) -> Scanner:
        self[name] = self._members[name].scanner(self._relations)
        return self[name]

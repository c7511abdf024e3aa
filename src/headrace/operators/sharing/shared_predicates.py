"""Scanner of many time-window aggregates with different conditions, over the same joins and groups: a thousand filters
cost one pass over the rows.

The conditions of all queries are one query index. A batch is joined with the relations that all of them look up, then
matched and folded for all of them at once, by the panes that their windows have in common. Each query's own panes are
then made of those cells, a family at a time.
Source: PSoup and CACQ (grouped filters); the kernels are `query_index` and `shared_aggregation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import (
    Gathered,
    Layout,
    fresh_slots,
    gather,
    merge_gathered,
    select,
)
from headrace.operators.base.batch import Batch, EventTimes, Rejected
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.group_codes import Groups, Ints, compact, group, picked
from headrace.operators.base.operator import Scanned
from headrace.operators.families.family import QueryRowCounts
from headrace.operators.families.pane_queries import together
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.query_index.matching.prepare import Failed
from headrace.operators.rows.row_pipeline import RowPipeline, joins_of
from headrace.operators.scalar import Evaluation
from headrace.operators.shared_aggregation.strategy import Folded, Strategy, fold
from headrace.operators.sharing.dense_cells import DenseCells, DenseFold, Pairs, SparseFold
from headrace.operators.sharing.shared_panes import LazyScanners, common_panes
from headrace.operators.sharing.shared_plan import SharedPlan, plan_of
from headrace.operators.time_windows.pane_aggregate import PaneAggregate

FOLDED_AT_ONCE: Final = 1 << 20
_LEAST_AT_ONCE: Final = 1 << 16
"""Rows that are matched and folded together, at most and at least."""
_ROWS_A_CELL: Final = 4
"""Rows wait for others until there are so many for each cell of the last fold: of fewer, cells are most of the work. But arrays
of many rows are memory that a new worker touches for the first time, which took ten times as long as all else.
"""
_ROWS_A_PAIR: Final = 2_000
"""As many for each (pane, group) of the last fold whose cells were added up in place: they cost little, but each has words of
64 rows, and more rows have closer values in each word.
"""
_ALIKE: Final = 2
_CHOSEN_FOR: Final = 8
"""Folds of one choice of strategies."""
_LATEST: Final = 4
"""Folds to whose cells those of another may be added."""
_MOST_BYTES: Final = 1 << 28
"""Held bytes from which rows are folded earlier, for long texts."""


_LEAST_ROWS: Final = 1 << 12
_LEAST_GAIN: Final = 4
"""Few queries fold a batch together if it has so many rows, and a (pane, group) so many of them."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A batch that waits to be folded, before and after joins, with the values of keys and arguments."""

    arrived: Batch
    batch: Batch
    values: tuple[pa.Array, ...]
    bytes: int
    """Of the columns after joins."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.batch.rows


@dataclass(slots=True)
class _Chosen:
    """The strategies that were chosen for a batch of so many rows, and how often they were used again.

    To choose them takes a sample of the batch, as long as a twentieth of its fold.
    """

    strategies: Sequence[Strategy]
    rows: int
    uses: int = 0

    def for_rows(self, rows: int) -> Sequence[Strategy]:
        """The strategies for another batch; none if it is much smaller or larger, and at times, since rows may differ by then."""
        self.uses += 1
        is_alike = self.rows <= _ALIKE * rows and rows <= _ALIKE * self.rows
        return self.strategies if is_alike and self.uses < _CHOSEN_FOR else ()


@dataclass(slots=True)
class SharedPredicates:
    """The scanner of several pane aggregates with the same joins and grouping."""

    plan: SharedPlan
    joins: RowPipeline
    scanners: LazyScanners
    """Each query's scanner: for batches on which a join, a key or an argument fails, which may concern only some queries."""
    folds: list[SparseFold | DenseFold] = field(default_factory=list)
    rejected: dict[int, list[Rejected]] = field(default_factory=dict)
    rows_in: int = 0
    held: list[_Held] = field(default_factory=list)
    enough: int = _LEAST_AT_ONCE
    """The rows that are folded together."""
    few: bool = False
    """Whether the queries are so few that each folds small batches, and rows of nearly as many groups, by itself."""
    pays: bool = True
    adds_up: bool = True
    """Whether the cells of the last fold were added to those of one before, or it was the first."""
    chosen: _Chosen | None = None
    """The strategies that folds of as many rows use again."""

    @staticmethod
    def of(
        queries: tuple[PaneAggregate, ...], relations: Mapping[str, pa.Table], *, few: bool = False
    ) -> SharedPredicates:
        """A scan of all these queries, whose keys are equal and whose steps are the same joins, and filters."""
        scanners = LazyScanners({query.id: query for query in queries}, relations)
        joins = RowPipeline.of(joins_of(queries[0].steps), relations)
        plan = plan_of(queries)
        if not few:
            plan.index.compile()
        return SharedPredicates(plan, joins, scanners, few=few)

    @property
    def representative(self) -> str:
        """The first query's id."""
        return self.plan.queries[0].id

    def add(self, batch: Batch) -> None:
        """Add a batch; it is folded once for all queries when there are enough rows."""
        if not self.pays or (self.few and batch.rows < _LEAST_ROWS):
            self._offer(batch)
            return
        joined = self.joins.apply(batch)
        evaluation = Evaluation(joined.readable, joined.rows)
        values = tuple(evaluation.values(input_) for input_ in self.plan.inputs)
        if self.joins.rejected or evaluation.errors is not None:
            self.joins.rejected.clear()
            self._offer(batch)
            return
        self.rows_in += batch.rows
        if not joined.rows:
            return
        self.held.append(
            _Held(batch, joined, values, sum(column.nbytes for column in joined.columns.values()))
        )
        rows, size = (sum(getattr(input_, of) for input_ in self.held) for of in ("rows", "bytes"))
        if rows >= min(self.enough, FOLDED_AT_ONCE) or size >= _MOST_BYTES:
            self._fold()

    def _offer(self, batch: Batch) -> None:
        """Let each query fold a batch by itself."""
        for query in self.plan.queries:
            self.scanners[query.id].add(batch)

    def _give_up(self, held: Sequence[_Held]) -> None:
        """Let each query fold these batches, and all that follow, by itself."""
        self.pays = False
        for waiting in held:
            self.rows_in -= waiting.arrived.rows
            self._offer(waiting.arrived)

    def _fold(self) -> None:
        """Fold the held batches."""
        held, self.held = self.held, []
        if not held:
            return
        times = EventTimes.joined([waiting.batch.times for waiting in held])
        position = _whole([waiting.batch.position for waiting in held])
        batch = Batch(_Joined([waiting.batch.columns for waiting in held]), times, position)
        values = [_joined(parts) for parts in zip(*(waiting.values for waiting in held), strict=True)]
        keys = values[: len(self.plan.layout.keys) - 1]
        arguments = dict(zip(self.plan.arguments, values[len(keys) :], strict=True))
        pane_indices, starts = common_panes(self.plan.combs, batch.times)
        groups = group(keys, batch.rows)
        slot_of_group = fresh_slots(groups.keys, groups.count, None)
        if batch.rows >= _LEAST_AT_ONCE:
            groups, slot_of_group = _by_slot(groups, slot_of_group)
        codes, count, pair_panes, owner, _ = by_block_and_group(pane_indices, groups)
        if self.few and _LEAST_GAIN * count > batch.rows:
            self._give_up(held)
            return
        former = () if self.chosen is None else self.chosen.for_rows(batch.rows)
        folded = fold(
            self.plan.index,
            batch.columns,
            self.plan.layout.partial_columns,
            arguments,
            codes,
            count,
            former=former,
            keys=dict(zip(self.plan.key_expressions, groups.keys, strict=True)),
            owner=owner,
        )
        if not former:
            self.chosen = _Chosen(folded.strategies, batch.rows)
        self._note(batch, folded.failed)
        self._keep(folded, Pairs(starts[pair_panes], owner, groups.keys, slot_of_group))

    def _keep(self, folded: Folded, pairs: Pairs) -> None:
        """Keep the cells of a fold, with those of one of the latest if its (pane, group)s are among them."""
        layout, slots = self.plan.layout, self.plan.index.next_slot
        if not DenseFold.fits(layout, pairs, slots, folded.rows):
            self.folds.append(SparseFold(folded.cells, pairs))
            self.enough = max(_LEAST_AT_ONCE, _ROWS_A_CELL * folded.rows)
            return
        expected, self.adds_up = self.adds_up, True
        if any(fold_.add(pairs, folded.parts) for fold_ in reversed(self.folds[-_LATEST:])):
            self.enough = max(_LEAST_AT_ONCE, _ROWS_A_PAIR * len(pairs.starts))
            return
        self.adds_up = not self.folds
        self.folds.append(DenseFold.of(layout, pairs, slots))
        self.folds[-1].add(pairs, folded.parts)
        rows = _ROWS_A_PAIR * len(pairs.starts) if expected else _ROWS_A_CELL * folded.rows
        self.enough = max(_LEAST_AT_ONCE, rows)

    def _note(self, batch: Batch, failed: Mapping[int, Failed]) -> None:
        for slot, rows in failed.items():
            rejects = Rejected(batch.at[rows.rows], batch.position[rows.rows], rows.reasons)
            self.rejected.setdefault(slot, []).append(rejects)

    def finish(self) -> ScanOutput:
        """Each query's deltas, as it would have made them alone."""
        self._fold()
        plan, output = self.plan, ScanOutput()
        rows = self._put_cells(output)[plan.slots].astype(np.int64).tolist()
        if not (self.scanners or self.rejected):
            by_count = {rows_kept: Scanned({}, (), self.rows_in, rows_kept) for rows_kept in set(rows)}
            output.add_without_deltas(
                {query.id: by_count[kept] for query, kept in zip(plan.queries, rows, strict=True)}
            )
            return output
        for query, slot, rows_kept in zip(plan.queries, plan.slots.tolist(), rows, strict=True):
            rejected = tuple(self.rejected.get(slot, ()))
            shared = Scanned({}, rejected, self.rows_in, rows_kept)
            output.add(query, self.scanners.joined(query.id, shared))
        return output

    def _put_cells(self, output: ScanOutput) -> np.ndarray:
        """Put out the cells of each family; returns how many rows passed the condition in each slot."""
        plan, slots, folds = self.plan, self.plan.index.next_slot, self.folds
        dense = DenseCells.of(plan.layout, folds, slots)
        tables = {name: self._of_family(dense, of) for name, of in plan.families.items()} if dense else {}
        own_panes = {family for family, table in tables.items() if table is not None}
        by_slot = np.sum([part.cells_by_slot for part in dense], axis=0) if dense else None
        if len(own_panes) < len(plan.families):
            slot_of_row, cells = dense[0].gathered() if len(dense) == 1 else self._cells()
            order = np.argsort(slot_of_row, kind="stable")
            edges = np.searchsorted(slot_of_row[order], np.arange(slots + 1))
            by_slot = np.diff(edges) if by_slot is None else by_slot
            for family, indices in plan.families.items():
                if not cells.rows or tables.get(family) is not None:
                    continue
                of_family = _OfFamily.of(plan, indices, cells, order, edges)
                if len(folds) == 1 and folds[0].pairs.have_own_panes(of_family.example.panes):
                    own_panes.add(family)
                    tables[family] = of_family.table()
                else:
                    tables[family] = of_family.merged()
        for family, table in tables.items():
            output.put(
                f"{family}/open0",
                table,
                self._counts(family, by_slot) if by_slot is not None and family in own_panes else None,
            )
        if dense:
            return np.asarray(np.sum([part.rows_by_slot for part in dense], axis=0))
        return np.bincount(slot_of_row, _row_counts(plan.layout, cells), slots)

    def _of_family(self, dense: Sequence[DenseCells], indices: Ints) -> pa.Table | None:
        """What `_family` makes, where each of the family's panes is one of those of the folds."""
        example, slots = self.plan.queries[indices[0]], self.plan.slots[indices]
        numbers, routed = self.plan.numbers[indices], self.plan.routed[indices]
        layout, panes, tables = together((example,)).layouts[0], example.panes, list[pa.Table]()
        firsts_and_lasts = [panes.of_instants(part.starts[[0, -1]]).tolist() for part in dense]
        if any(first <= last for (_, last), (first, _) in pairwise(firsts_and_lasts)):
            return None
        for part in dense:
            table = part.of_family(panes, slots, numbers, routed, layout)
            if table is None:
                return None
            tables.append(table)
        return pa.concat_tables(tables)

    def _counts(self, family: str, by_slot: Ints) -> QueryRowCounts:
        """The cells of each query of a family whose panes are those of the fold, from those of each condition."""
        indices = self.plan.families[family]
        numbers, cells = self.plan.numbers[indices], by_slot[self.plan.slots[indices]]
        present = np.flatnonzero(cells)
        return QueryRowCounts(numbers[present], cells[present])

    def _cells(self) -> tuple[Ints, Gathered]:
        """The cells of all folds, with the slot of each one's condition, and by the keys of queries."""
        folds = [fold.sparse() for fold in self.folds]
        if len(folds) == 1 and not folds[0].cells.answer.dictionaries:
            return folds[0].cells.slots, folds[0].gathered()
        whole = gather(self.plan.layout, [fold.table(self.plan.layout) for fold in folds])
        by_slot, *keys = whole.groups.keys
        slots = by_slot.to_numpy()[whole.groups.codes] if whole.rows else np.empty(0, np.int64)
        return slots, replace(whole, groups=replace(whole.groups, keys=tuple(keys)))


@dataclass(frozen=True, slots=True, eq=False)
class _OfFamily:
    """Some of the cells of all conditions: row i is a cell of the family's query `owner[i]`, in the pane `blocks[i]` of its own."""

    example: PaneAggregate
    numbers: Ints
    """The numbers of the family's queries."""
    owner: Ints
    blocks: Ints
    at_rest: np.ndarray
    groups: Groups
    answer: Answer

    @staticmethod
    def of(plan: SharedPlan, indices: Ints, cells: Gathered, order: Ints, edges: Ints) -> _OfFamily:
        """The cells of the queries at these `indices`; those of the condition in slot s are `order[edges[s]:edges[s + 1]]`."""
        example, slots = plan.queries[indices[0]], plan.slots[indices]
        first, counts = edges[slots], edges[slots + 1] - edges[slots]
        owner = np.repeat(np.arange(len(indices)), counts)
        rows = order[np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + first[owner]]
        routed, at_rest = plan.routed[indices], cells.slots[rows]
        if (routed >= 0).any():
            at_rest = np.where(routed[owner] >= 0, routed[owner], at_rest)
        blocks = pane_keys(example.panes.of_instants(cells.blocks[rows]))
        groups = Groups(cells.groups.codes[rows], cells.groups.count, cells.groups.keys)
        return _OfFamily(
            example, plan.numbers[indices], owner, blocks, at_rest, groups, select(cells.answer, rows)
        )

    @property
    def _layout(self) -> Layout:
        return together((self.example,)).layouts[0]

    def table(self) -> pa.Table:
        """The rows of the family's state, by pane; each cell is one of them."""
        owner, blocks, at_rest = self.owner, self.blocks, self.at_rest
        codes, answer = self.groups.codes, self.answer
        if (blocks[1:] < blocks[:-1]).any():
            order = np.argsort(blocks, kind="stable")
            owner, blocks, at_rest, codes = owner[order], blocks[order], at_rest[order], codes[order]
            answer = select(answer, order)
        keys = [pa.array(self.numbers[owner]), *(picked(key, codes) for key in self.groups.keys)]
        return self._layout.table(blocks, keys, at_rest, answer)

    def merged(self) -> pa.Table:
        """The same, of cells of which several may be of one query, pane and group."""
        count = self.groups.count
        codes, live = compact(self.owner * count + self.groups.codes, len(self.numbers) * count)
        owner, code = np.divmod(live, count)
        keys = (pa.array(self.numbers[owner]), *(picked(key, code) for key in self.groups.keys))
        groups = Groups(codes, len(live), keys)
        return merge_gathered(self._layout, Gathered(self.blocks, self.at_rest, groups, self.answer))


def _by_slot(groups: Groups, slots: np.ndarray) -> tuple[Groups, np.ndarray]:
    """Groups in the order of their slots at rest, in which those of one state task are together; and the slots."""
    if (slots[1:] >= slots[:-1]).all():
        return groups, slots
    groups = groups.dense()
    order = np.argsort(slots, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    keys = tuple(key.take(pa.array(order)) for key in groups.keys)
    return Groups(rank.take(groups.codes), groups.count, keys), slots[order]


def _row_counts(layout: Layout, cells: Gathered) -> Ints:
    counts: Ints = cells.answer.cells[layout.partial_columns[0]][0]
    return counts


class _Joined(Mapping[str, pa.Array]):
    """The columns of several batches as those of one; each is concatenated on first use."""

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


def _whole(parts: Sequence[Ints]) -> Ints:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

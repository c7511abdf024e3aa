"""Operator for outer joins of two streams under sliding windows: pairs, when their second row arrives, and the rows
without a pair of each window, when it closes.

A row is in the windows that end in (time, time + RANGE], from its first end to its last. Over ends in place of instants
that is a relation, so rows and pairs are counted as in `outer_join`: at an end a row has a pair if one is in the window
with that end. A pair is emitted when its second row arrives; a row without a pair once for the windows without one that
close in a step, as from just before the first of these ends to the last. Equal rows of adjacent windows are counted as
one that continues, so a result is for no more windows than a row may be in. A window is complete when it closes.
Source: Li 2008, chapter 7 (OA-Join), with the unmatched rows of a window at its end as in Fragkoulis et al. 2023 (FJ-5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.query import JoinKind
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import AT, SLOT, Advance, Sections, Step
from headrace.operators.joins.changelog_join import WEIGHT
from headrace.operators.joins.join_side import (
    JoinOperator,
    JoinSpec,
    Side,
    failed_pairs,
    join_lines,
    passing,
    slots_and_hashes,
)
from headrace.operators.joins.outer_join import COUNTED, IN_WORDS, KEPT, new_counts, padded, waiting
from headrace.operators.joins.pair_counts import Occurrences, PairCounts
from headrace.operators.joins.probing.stems import taken
from headrace.operators.joins.window_join import Grid
from headrace.operators.output.changelog import Span
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import END, HASH, of_one_hash
from headrace.time import BEGINNING, FOREVER, Instant


@dataclass(frozen=True, slots=True)
class SlidingOuterJoin(JoinOperator):
    """Pairs and rows without a pair of two sides, each with the instants between which the ends of its windows are."""

    spec: JoinSpec
    grid: Grid
    kind: JoinKind = "left"

    def display(self) -> Iterator[str]:
        """As of a join of windows, and which rows without a pair are in the answer."""
        yield from join_lines(self, changes=False)
        yield f"  {IN_WORDS[self.kind]}, when their window closes"

    def is_stored(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> npt.NDArray[np.bool_]:
        """The rows that are in a window: those that can be in a pair, and all of a side whose rows are kept."""
        in_window = self.grid.last_end(side.until(batch)) > batch.at
        if any(side is self.spec.sides[index] for index in KEPT[self.kind]):
            return np.asarray(in_window)
        return JoinOperator.is_stored(self, batch, keys, side) & in_window

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """Rows with key hash, and the first and the last end of their windows."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.spec.slot)
        head = [slots, mixed, self._next_end(batch.at), self.grid.last_end(side.until(batch))]
        return pa.table(
            [*map(pa.array, head), *(flat(batch.columns[name]) for name in side.stored.names)],
            names=[SLOT, HASH, TIME, END, *side.stored.names],
        )

    def _next_end(self, at: Ints) -> Ints:
        """The first end after each instant."""
        ends: Ints = self.grid.last_end(at) + self.grid.slide
        return ends

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit new pairs, and the rows without a pair of the windows that close."""
        new_rows = self.arrived(deltas)
        pairs: list[pa.Table] = []
        rejected: list[Rejected] = []
        for left, right in self._encounters(runs, new_rows):
            for rows in of_one_hash(ints(left, HASH), ints(right, HASH)):
                table, failed = self._joined(left, right, *rows)
                pairs += [table] if table.num_rows else []
                rejected += [] if failed is None else [failed]
        results = [self._as_result(table) for table in pairs]
        state = self.new_state(new_rows, advance)
        for side in KEPT[self.kind]:
            counts = self._counts(side)
            new = new_counts(counts, self._changes(new_rows[side]), self._pair_changes(pairs))
            stored = [run[COUNTED[side]] for run in runs if COUNTED[side] in run]
            state |= dict.fromkeys([COUNTED[side]] * len(new), *new)
            results += self._without_pair(side, counts, [*stored, *new], advance)
        return Step(state, pa.concat_tables(results) if results else None, tuple(rejected))

    def _encounters(
        self, runs: Sequence[Sections], new_rows: Sequence[pa.Table | None]
    ) -> Iterator[tuple[pa.Table, pa.Table]]:
        """(left, right) rows not joined yet: at least one of the two is new."""
        left, right = new_rows
        for run in runs:
            if left is not None and self.sections[1] in run:
                yield left, run[self.sections[1]]
            if right is not None and self.sections[0] in run:
                yield run[self.sections[0]], right
        if left is not None and right is not None:
            yield left, right

    def _joined(
        self, left: pa.Table, right: pa.Table, left_rows: Ints, right_rows: Ints
    ) -> tuple[pa.Table, Rejected | None]:
        """Those in a window together, with all columns, their slot, and the first and the last end of their windows."""
        first = np.maximum(ints(left, TIME)[left_rows], ints(right, TIME)[right_rows])
        last = np.minimum(ints(left, END)[left_rows], ints(right, END)[right_rows])
        together = np.flatnonzero(first <= last)
        left_rows, right_rows, first, last = (
            values[together] for values in (left_rows, right_rows, first, last)
        )
        left_side, right_side = self.spec.sides
        rows = {
            **taken(left, (SLOT, *left_side.stored.names), left_rows),
            **taken(right, right_side.stored.names, right_rows),
        }
        keep, bad, reasons = passing(self.spec.condition, rows, len(first))
        table = pa.table({**rows, TIME: pa.array(first), END: pa.array(last)})
        failed = failed_pairs(first[bad] - 1, reasons) if reasons else None
        return (table if keep.all() else table.filter(pa.array(keep))), failed

    def _as_result(self, pairs: pa.Table) -> pa.Table:
        rows = {name: flat(pairs.column(name)) for name in self.spec.shown.names[:-1]}
        return self.pairs(rows, ints(pairs, TIME) - 1, flat(pairs.column(END)))

    def _changes(self, rows: pa.Table | None) -> pa.Table | None:
        """Insertion at the first end of a row, retraction after the last one."""
        if rows is None:
            return None
        ones, after = np.ones(rows.num_rows, np.int64), ints(rows, END) + self.grid.slide
        inserted = rows.append_column(WEIGHT, pa.array(ones))
        retracted = rows.set_column(rows.column_names.index(TIME), TIME, pa.array(after))
        return pa.concat_tables([inserted, retracted.append_column(WEIGHT, pa.array(-ones))])

    def _pair_changes(self, pairs: Sequence[pa.Table]) -> pa.Table | None:
        changes = self._changes(pa.concat_tables(pairs)) if pairs else None
        return None if changes is None else changes.append_column(AT, changes.column(TIME))

    def _counts(self, side: int) -> PairCounts:
        return PairCounts(self.spec.sides[side].stored.names)

    def _without_pair(
        self, side: int, counts: PairCounts, tables: Sequence[pa.Table], advance: Advance
    ) -> list[pa.Table]:
        """The rows of a side without a pair in windows that close, once for the windows of each interval."""
        punctuation = FOREVER if advance.final else advance.punctuation
        is_finite = BEGINNING < punctuation < FOREVER
        last_end = int(self.grid.last_end(np.array([punctuation]))[0]) if is_finite else punctuation
        if last_end <= advance.emitted_to:
            return []  # no window closes
        span = self._closing(advance.emitted_to, punctuation)
        shown = counts.occurrences(tables, span) if tables else None
        return [] if shown is None else self._in_windows(side, shown, span)

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """The next end of a window, while rows may be in one; with no punctuation yet the first end of all."""
        first = min(waiting(runs, advance.punctuation), default=FOREVER)
        if first == FOREVER or advance.punctuation == BEGINNING:
            return first
        return int(self._next_end(np.array([advance.punctuation]))[0])

    def _closing(self, emitted_to: Instant, punctuation: Instant) -> Span:
        """The ends that close: after `emitted_to`, up to punctuation."""
        start = emitted_to if emitted_to in (BEGINNING, FOREVER) else emitted_to + 1
        return Span(start, FOREVER if punctuation == FOREVER else punctuation + 1)

    def _in_windows(self, side: int, shown: Occurrences, span: Span) -> list[pa.Table]:
        """The rows shown in the windows that end within the span, each for as many windows as a row may be in."""
        slide, begin = self.grid.slide, shown.begin
        if span.emitted_to != BEGINNING:
            begin = np.maximum(begin, int(self._next_end(np.array([span.emitted_to - 1]))[0]))
        last = np.minimum(shown.end, span.limit) - 1
        last = self.grid.last_end(np.where(shown.count > 0, last, begin))
        chosen = np.flatnonzero((shown.count > 0) & (begin <= last))
        begin, last = begin[chosen], last[chosen]
        most = (max(side.longest or 0 for side in self.spec.sides) - 1) // slide + 1
        parts = (last - begin) // (most * slide) + 1
        number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        begin = np.repeat(begin, parts) + number * most * slide
        last = np.minimum(np.repeat(last, parts), begin + (most - 1) * slide)
        chosen = np.repeat(chosen, parts)
        copies = np.repeat(np.arange(len(chosen)), shown.count[chosen])
        rows = padded(self.spec, self.spec.sides[side].stored, shown.rows, chosen[copies])
        return [self.pairs(rows, begin[copies] - 1, pa.array(last[copies]))] if len(copies) else []

    def needed(self, rows: pa.Table, index: int, advance: Advance) -> pa.Table:
        """The rows of a side that a row of the other side may still be in a window with."""
        return rows.filter(pa.array(ints(rows, END) > self.spec.sides[1 - index].bound(advance)))

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """The rows of a side that may still make pairs; or its rows with their numbers of pairs."""
        if section not in COUNTED:
            return JoinOperator.compact(self, section, tables, advance)
        done = self._closing(advance.emitted_to, advance.emitted_to).emitted_to
        return self._counts(COUNTED.index(section)).added(tables, done)

"""The CQL reading: a relation at every instant, for windows that do not slide, without aggregates.

A row holds in an interval of instants: `[RANGE r]` from t to t + r, UNBOUNDED from t on, `[ROWS n]` until n more rows of its
partition have come. The answer is a changelog (or its insertions, or its deletions) of the instants below punctuation.
Source: CQL (Arasu, Babu, Widom); intervals as in decision D13.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column
from headrace.operators.base.group_codes import Ints, group
from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.base.ranges import dense_ranks
from headrace.operators.output.changelog import EmitMode, Items, Span, emit, unite
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.rows.row_state import ROWS, Held, RowLayout, hold
from headrace.operators.rows.sorted_rows import key_hashes
from headrace.time import BEGINNING, FOREVER, Duration, Instant, render_duration

_BITS: Final = (1 << 18) - 1


@dataclass(frozen=True, slots=True)
class Validity:
    """How long a row holds: `length` microseconds, or until `count` more rows of its partition, or for ever.

    A partition is the first `partitions` stored values. With `told` the first stored value is the last instant of each, with
    `by_changes` it says whether the row comes (+1) or goes (-1): a row is valid until an equal one goes.
    """

    length: Duration | None = None
    count: int | None = None
    partitions: int = 0
    ends_given: bool = False
    by_changes: bool = False

    def display(self) -> Iterator[str]:
        """As EXPLAIN shows it among an operator's settings."""
        yield f"a row is valid {self._in_words()}"

    def _in_words(self) -> str:
        if self.by_changes:
            return "until an equal one is retracted"
        if self.ends_given:
            return "as long as its pair"
        if self.length is not None and self.length <= 1:
            return "at its own instant only"
        if self.length is not None:  # the instant at which the range ends is still of it
            return f"for {render_duration(self.length - 1)}, both ends included"
        if self.count is not None:
            of = " of its partition" if self.partitions else ""
            return f"until {self.count} more rows{of} have come"
        return "permanently"

    @property
    def known_at_once(self) -> bool:
        """True when the time of a row says how long it holds."""
        return self.count is None and not self.ends_given and not self.by_changes

    @property
    def for_ever(self) -> bool:
        """True when rows never leave."""
        return self.length is None and self.known_at_once

    def ends(self, held: Held, layout: RowLayout) -> Ints:
        """The instant at which each row is gone. All rows given must be settled."""
        if self.length is not None:
            return held.at + self.length
        if self.ends_given:
            last: Ints = held.column(layout.names[0]).to_numpy(zero_copy_only=False)
            return np.where(last == FOREVER, FOREVER, np.minimum(last, FOREVER - 1) + 1)
        if self.by_changes:
            return self._matched(held, layout)
        if self.count is None:
            return np.full(held.rows, FOREVER, np.int64)
        codes = group([held.column(name) for name in layout.names[: self.partitions]], held.rows).codes
        ranks = dense_ranks(codes, held.at, held.position)
        width = int(ranks.max()) + 1 if held.rows else 1
        keys = codes * width + ranks
        order = np.argsort(keys, kind="stable")
        wanted = np.where(ranks + self.count < width, codes * width + ranks + self.count, -1)
        place = np.minimum(np.searchsorted(keys, wanted, sorter=order), max(held.rows - 1, 0))
        found = keys[order[place]] == wanted
        return np.where(found, held.at[order[place]], FOREVER)

    def partition_columns(self, layout: RowLayout, keys: Sequence[str], *, routed: bool) -> tuple[str, ...]:
        """Stored values by which rows are apart: what comes and goes among those of one has no part in those of another.

        `keys` are those of the groups that are told; `routed`: each of these is of one partition. None of them: not known.
        """
        if self.by_changes:
            return tuple(keys)
        return layout.names[: self.partitions] if self.count is not None and routed else ()

    def _matched(self, held: Held, layout: RowLayout) -> Ints:
        """The k-th of equal rows that come holds until the k-th that goes; one that goes holds until it, if its row is here.

        Where only a part of the rows is given, what has no partner among them stays.
        """
        codes = group([held.column(name) for name in layout.names[self.partitions :]], held.rows).codes
        comes = held.column(layout.names[0]).to_numpy(zero_copy_only=False) > 0
        ends = np.full(held.rows, FOREVER, np.int64)
        order = np.lexsort((held.at, codes))
        came, gone = order[comes[order]], order[~comes[order]]
        pairs = _rotation(codes[came], codes[gone])
        came, gone = came[pairs[0]], gone[pairs[1]]
        ends[came] = ends[gone] = np.maximum(held.at[gone], held.at[came])
        return ends

    def shown(self, held: Held, layout: RowLayout) -> np.ndarray:
        """The rows that are in answers: those that go only end others."""
        if not self.by_changes:
            return held.live
        comes: np.ndarray = held.column(layout.names[0]).to_numpy(zero_copy_only=False) > 0
        return comes


def touched(held: Held, partition_columns: Sequence[str], emitted_to: Instant) -> Held:
    """The rows that one has come to since `closed`, or gone from, by the values that set rows apart.

    These are told by some bits of their hashes, so a few more rows may be among them.
    """
    if not partition_columns:
        return held
    bits = key_hashes([held.column(name) for name in partition_columns], held.rows) & _BITS
    came = np.zeros(_BITS + 1, bool)
    came[bits[held.at >= emitted_to]] = True
    return held.where(came[bits])


def _rotation(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Places of the k-th of each code in two ascending columns of codes, for every k that both have."""
    first = np.searchsorted(one, one)
    wanted = np.searchsorted(other, one) + np.arange(len(one)) - first
    there = wanted < np.searchsorted(other, one, side="right")
    return np.flatnonzero(there), wanted[there]


def span_of(advance: Advance, emit_mode: EmitMode) -> Span:
    """The instants to tell about: up to punctuation; at the end NOW for relations, everything for streams."""
    if not advance.final:
        return Span(advance.emitted_to, advance.punctuation)
    if emit_mode != "changes":
        return Span(advance.emitted_to, FOREVER)
    return Span(
        advance.emitted_to,
        max(advance.emitted_to, advance.max_event_time + 1)
        if advance.max_event_time != BEGINNING
        else advance.emitted_to,
    )


@dataclass(frozen=True, slots=True)
class InstantRows(RowOperator):
    """`Finish(Windowed(TimeRange | Unbounded | Rows))` of one query."""

    id: str
    query: str
    stream: str
    validity: Validity
    rows: RowLayout
    finish: Finish
    emit_mode: EmitMode
    relations: tuple[str, ...] = ()
    rule: str = ""

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """The steps of its rows."""
        return self.rows.routing_steps

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Keep what came; tell what changes at the instants that punctuation passed."""
        arrived = [delta[ROWS] for delta in deltas if ROWS in delta]
        state = {ROWS: pa.concat_tables(arrived)} if arrived else {}
        span = span_of(advance, self.emit_mode)
        if span.limit <= span.emitted_to:
            return Step(state)
        held = hold(self.rows, [*(run[ROWS] for run in runs if ROWS in run), *arrived])
        held = held.where(held.at < span.limit)
        held = touched(held, self._partition_columns(), span.emitted_to)
        end = self.validity.ends(held, self.rows)
        live = self.validity.shown(held, self.rows) & (end >= span.emitted_to)
        shown = held.where(live)
        items = Items({name: shown.column(name) for name in self.rows.names}, shown.at, end[live])
        results, rejected = emit(self.finish, items, span, self.emit_mode)
        return Step(state, results, rejected)

    def _partition_columns(self) -> tuple[str, ...]:
        if not self.finish.is_row_by_row:
            return ()
        shown = [each.expression for each in self.finish.columns]
        outputs = [each.name for each in shown if isinstance(each, Column)]
        known = outputs if len(outputs) == len(shown) else []
        return self.validity.partition_columns(self.rows, known, routed=not self.finish.distinct)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """Rows that are gone before the next instant told about are not needed, nor those that only ever came."""
        held = hold(self.rows, tables)
        return held.where(self._needed(held, advance)).table

    def _needed(self, held: Held, advance: Advance) -> np.ndarray:
        waiting: np.ndarray = held.at >= advance.emitted_to
        settled = np.flatnonzero(~waiting)
        alive = self.validity.ends(held.where(~waiting), self.rows) >= advance.emitted_to
        if self.validity.for_ever and self.finish.is_row_by_row:
            alive &= False
            if self.finish.distinct:
                alive |= self._first_of_each(held.where(~waiting))
        waiting[settled[alive]] = True
        return waiting

    def _first_of_each(self, held: Held) -> np.ndarray:
        """Of rows that never leave, the earliest of each different one."""
        values = [held.column(name) for name in self.rows.names[self.validity.partitions :]]
        codes = group(values, held.rows).codes
        first, _, _ = unite(codes, held.at, np.full(held.rows, FOREVER, np.int64))
        chosen = np.zeros(held.rows, bool)
        chosen[first] = True
        return chosen

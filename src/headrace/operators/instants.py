"""The CQL reading: a relation at every instant, for windows that do not slide, without aggregates.

A row holds in an interval of instants: `[RANGE r]` from t to t + r, UNBOUNDED from t on, `[ROWS n]` until n more rows of its
partition have come. The answer is a changelog (or its insertions, or its deletions) of the instants below punctuation.
Source: CQL (Arasu, Babu, Widom); intervals as in decision D13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.operators.changes import Items, Span, Telling, tell, unite
from headrace.operators.finish import Finish
from headrace.operators.grouping import Ints, group
from headrace.operators.operator import Sections, Step, Turn
from headrace.operators.row_slides import dense_ranks
from headrace.operators.row_store import ROWS, Held, RowLayout, RowScanner, hold
from headrace.time import BEGINNING, FOREVER, Duration


@dataclass(frozen=True, slots=True)
class Validity:
    """How long a row holds: `length` microseconds, or until `count` more rows of its partition, or for ever.

    A partition is the first `partitions` stored values. With `told` the first stored value is the last instant of each.
    """

    length: Duration | None = None
    count: int | None = None
    partitions: int = 0
    told: bool = False

    @property
    def for_ever(self) -> bool:
        """True when rows never leave."""
        return self.length is None and self.count is None and not self.told

    def ends(self, held: Held, layout: RowLayout) -> Ints:
        """The instant at which each row is gone. All rows given must be settled."""
        if self.length is not None:
            return held.at + self.length
        if self.told:
            last: Ints = held.column(layout.names[0]).to_numpy(zero_copy_only=False)
            return np.where(last == FOREVER, FOREVER, np.minimum(last, FOREVER - 1) + 1)
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


def span_of(turn: Turn, telling: Telling) -> Span:
    """The instants to tell about: up to punctuation; at the end NOW for relations, everything for streams."""
    if not turn.final:
        return Span(turn.closed, turn.now)
    if telling != "changes":
        return Span(turn.closed, FOREVER)
    return Span(
        turn.closed, max(turn.closed, turn.greatest + 1) if turn.greatest != BEGINNING else turn.closed
    )


@dataclass(frozen=True, slots=True)
class InstantRows:
    """`Finish(Windowed(TimeRange | Unbounded | Rows))` of one query."""

    id: str
    query: str
    stream: str
    validity: Validity
    rows: RowLayout
    finish: Finish
    telling: Telling
    relations: tuple[str, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it reads."""
        return self.rows.reads()

    def scanner(self, relations: Mapping[str, pa.Table]) -> RowScanner:
        """Evaluates what is stored of each row."""
        return self.rows.scanner(relations)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Keep what came; tell what changes at the instants that punctuation passed."""
        arrived = [delta[ROWS] for delta in deltas if ROWS in delta]
        state = {ROWS: pa.concat_tables(arrived)} if arrived else {}
        span = span_of(turn, self.telling)
        if span.limit <= span.closed:
            return Step(state)
        held = hold(self.rows, [*(run[ROWS] for run in runs if ROWS in run), *arrived])
        held = held.where(held.at < span.limit)
        end = self.validity.ends(held, self.rows)
        live = held.live & (end >= span.closed)
        shown = held.where(live)
        items = Items({name: shown.column(name) for name in self.rows.names}, shown.at, end[live])
        results, rejected = tell(self.finish, items, span, self.telling)
        return Step(state, results, rejected)

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:  # noqa: ARG002
        """Rows that are gone before the next instant told about are not needed, nor those that only ever came."""
        held = hold(self.rows, tables)
        return held.where(self._needed(held, turn)).table

    def _needed(self, held: Held, turn: Turn) -> np.ndarray:
        waiting: np.ndarray = held.at >= turn.closed
        settled = np.flatnonzero(~waiting)
        alive = self.validity.ends(held.where(~waiting), self.rows) >= turn.closed
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

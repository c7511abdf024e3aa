"""Operator for outer joins, semijoins and antijoins of two changing relations: a changelog of pairs, and of rows with
or without a pair.

The pairs are those of `RelationJoin`. A row without a pair is in the answer with NULLs: it is inserted at its instant,
retracted when its first pair begins, and inserted again when its last pair has ended. Whether it has a pair at an instant
is known once both sides have passed that instant; pairs are emitted when their second row arrives.
Source: the outer join of STREAM's relations (Babu 2005, section 2.3), by counting (Gupta, Mumick and Subrahmanian 1993).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.query import JoinKind
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import AT, SLOT, Advance, Sections, Step
from headrace.operators.joins.changelog_join import WEIGHT, RelationJoin, failures_of
from headrace.operators.joins.join_side import JoinSpec, Side, join_lines
from headrace.operators.joins.pair_counts import Occurrences, PairCounts
from headrace.operators.output.changelog import Span
from headrace.operators.rows.row_state import TIME
from headrace.schema import Schema, to_arrow
from headrace.time import FOREVER, Instant

COUNTED: Final = ("left counts", "right counts")
"""The state sections with the numbers of rows and pairs of each side."""
KEPT: Final[Mapping[JoinKind, tuple[int, ...]]] = {
    "inner": (),
    "left": (0,),
    "right": (1,),
    "full": (0, 1),
    "semi": (0,),
    "anti": (0,),
}
"""The sides whose rows are counted."""
IN_WORDS: Final[Mapping[JoinKind, str]] = {
    "left": "left rows without a pair are in the answer, with NULLs",
    "right": "right rows without a pair are in the answer, with NULLs",
    "full": "rows of both sides without a pair are in the answer, with NULLs",
    "semi": "left rows are in the answer while they have a pair",
    "anti": "left rows are in the answer while they have no pair",
}


@dataclass(frozen=True, slots=True)
class OuterJoin(RelationJoin):
    """Pairs of rows of two sides and rows of the sides that `kind` keeps, as changes."""

    kind: JoinKind = "left"

    @property
    def shape(self) -> None:
        """None: it has no family."""
        return

    @property
    def shows_pairs(self) -> bool:
        """Whether pairs are in the answer."""
        return self.kind not in ("semi", "anti")

    @property
    def pair_columns(self) -> tuple[str, ...]:
        """Those that are shown, and those by which rows are counted."""
        shown = self.spec.shown.names[:-1] if self.shows_pairs else ()
        counted = (name for side in KEPT[self.kind] for name in self.spec.sides[side].stored.names)
        return tuple(dict.fromkeys((SLOT, *shown, *counted)))

    def display(self) -> Iterator[str]:
        """As of the join of its pairs, and which rows without a pair are in the answer."""
        yield from join_lines(self, changes=True)
        yield f"  {IN_WORDS[self.kind]}"

    def is_stored(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> npt.NDArray[np.bool_]:
        """All rows of a side whose rows are kept."""
        if any(side is self.spec.sides[index] for index in KEPT[self.kind]):
            return np.ones(batch.rows, bool)
        return RelationJoin.is_stored(self, batch, keys, side)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit new pairs, and the changes of rows with and without a pair at the instants that both sides have passed."""
        new_changes = self.arrived(deltas)
        tables, failed = self.pair_changes(runs, new_changes)
        state = self.new_state(new_changes, advance)
        pairs = pa.concat_tables(tables) if tables else None
        changelog = [] if pairs is None or not self.shows_pairs else [self.changelog(pairs)]
        span = Span(advance.emitted_to, FOREVER if advance.final else advance.punctuation)
        for side in KEPT[self.kind]:
            counts = self._counts(side)
            new = new_counts(counts, new_changes[side], pairs)
            stored = [run[COUNTED[side]] for run in runs if COUNTED[side] in run]
            state |= dict.fromkeys([COUNTED[side]] * len(new), *new)
            shown = counts.changed([*stored, *new], span)
            changelog += [] if shown is None else [self._kept(side, shown, span)]
        changelog += self.began(runs, deltas, state)
        return Step(state, pa.concat_tables(changelog) if changelog else None, failures_of(failed))

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """Just after the first change of rows or pairs that is not settled: rows without a pair are then known."""
        return min((at + 1 for at in waiting(runs, advance.punctuation)), default=FOREVER)

    def _counts(self, side: int) -> PairCounts:
        return PairCounts(self.spec.sides[side].stored.names, self.kind == "semi")

    def _kept(self, side: int, shown: Occurrences, span: Span) -> pa.Table:
        """The changes of a side's rows within the span; the other side's columns are NULL."""
        change = np.where(span.holds(shown.begin), shown.count - shown.before, 0)
        copies = np.repeat(np.arange(len(change)), np.abs(change))
        rows = padded(self.spec, self.spec.sides[side].stored, shown.rows, copies)
        return self.pairs(rows, shown.begin[copies], pa.array(np.sign(change)[copies], pa.int8()))

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """The changes of a side that may still make pairs; or its rows with their numbers of pairs."""
        if section not in COUNTED:
            return RelationJoin.compact(self, section, tables, advance)
        return self._counts(COUNTED.index(section)).added(tables, advance.emitted_to)


def waiting(runs: Sequence[Sections], punctuation: Instant) -> Iterator[Instant]:
    """The first change at or after the punctuation of each table of counts."""
    for table in (run[section] for run in runs for section in COUNTED if section in run):
        at = ints(table, TIME)
        later = at[at >= punctuation]
        if len(later):
            yield int(later.min())


def new_counts(counts: PairCounts, rows: pa.Table | None, pairs: pa.Table | None) -> list[pa.Table]:
    """The changes of a side's rows and those of their pairs as one state table; empty without changes."""
    new: list[pa.Table] = []
    if rows is not None:
        new.append(counts.changes(rows, ints(rows, TIME), ints(rows, WEIGHT), np.zeros(rows.num_rows, int)))
    if pairs is not None:
        new.append(counts.changes(pairs, ints(pairs, AT), np.zeros(pairs.num_rows, int), ints(pairs, WEIGHT)))
    return [counts.added(new)] if new else []


def padded(spec: JoinSpec, side: Schema, rows: pa.Table, copies: Ints) -> dict[str, pa.Array]:
    """The shown columns of a side's rows, and NULLs for those of the other side."""
    picked, names = pa.array(copies), set(side.names)
    return {
        field.name: flat(rows.column(field.name)).take(picked)
        if field.name in names
        else pa.nulls(len(copies), to_arrow(field.type))
        for field in spec.shown.fields[:-1]
    }

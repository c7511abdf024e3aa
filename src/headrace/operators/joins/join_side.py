"""Common parts of all joins: the description of a join and its sides, the base class of join operators, the scanner
that stores each side's rows by key hash, the join condition on pairs, EXPLAIN lines, and the instant of the first row
of all.

Each join defines what it stores of a row, and for how long: see `window_join` and `changelog_join`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, columns_of
from headrace.algebra.expressions.expression_text import show
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected, insertion_failures
from headrace.operators.base.group_codes import SLOTS, Ints, flat, ints
from headrace.operators.base.operator import AT, SLOT, WINDOW, Advance, BaseOperator, Scanned, Sections
from headrace.operators.base.union_positions import input_number
from headrace.operators.joins.hot_keys.key_layouts import SplitKey
from headrace.operators.joins.hot_keys.routing import Routed, probes_of, routed, side_section, split_keys
from headrace.operators.rows.row_pipeline import RowFilter, RowPipeline, columns_read
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import in_order, key_hashes, usable
from headrace.operators.scalar import Evaluation
from headrace.schema import Schema, to_arrow
from headrace.time import FOREVER, Duration, Instant, render_duration

_SECTIONS: Final = ("left", "right")
FIRST: Final = "first"


def section_of(side: int) -> str:
    """The section with the rows of a side."""
    return _SECTIONS[side] if side < len(_SECTIONS) else f"side{side}"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join: the numbers of its streams among the inputs, and what is stored of their rows.

    `lookback`: how long a row holds, None without end; or `ends`, the column of its last instant. `longest`: no row
    holds longer. `changes`: instead, the column with the sign of each row: insertion or retraction. `name`: what the query
    calls it. `time`: the name of the stored column that is the event time of each row.
    """

    inputs: tuple[int, ...]
    stored: Schema
    filters: tuple[RowFilter, ...]
    keys: tuple[Expression, ...]
    lookback: Duration | None
    ends: str | None = None
    longest: Duration | None = None
    changes: str | None = None
    name: str = ""
    time: str | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The columns it reads."""
        columns = columns_read(self.filters) | (frozenset(self.stored.names) - {self.time})
        columns = columns.union(*(columns_of(key) for key in self.keys))
        return columns | {column for column in (self.ends, self.changes) if column is not None}

    def until(self, batch: Batch) -> Ints:
        """The last instant at which each row holds."""
        if self.ends is not None:
            ends: Ints = flat(batch.columns[self.ends]).to_numpy(zero_copy_only=False)
            return ends
        return np.full(batch.rows, FOREVER) if self.lookback is None else batch.at + self.lookback

    @property
    def reach_in_words(self) -> str:
        """How long a row holds."""
        if self.changes is not None:
            return "follows its changelog"
        if self.lookback is not None:
            return f"is valid for {render_duration(self.lookback)}"
        return "is valid as long as its pair" if self.ends is not None else "is valid permanently"

    def bound(self, advance: Advance) -> Instant:
        """The punctuation of its streams."""
        if not advance.input_punctuations:
            return advance.punctuation
        return min(advance.input_punctuations[input_] for input_ in self.inputs)


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Combinations of a row of each side on which `condition` is true; `shown` are their columns, the last is added by the join.

    `slot` is where rows without a key are joined. `emits_first`: emit a row without a pair, whose last column is NULL,
    at the instant of the first row of all. `rule` chose the operator. `signature`: the graph of the join, if other queries may
    share it. `grows`: rows are stored and nothing is emitted, since its tree of joins is not in force yet.
    """

    id: str
    query: str
    stream: str
    sides: tuple[Side, ...]
    condition: Expression | None
    shown: Schema
    slot: int
    emits_first: bool = False
    relations: tuple[str, ...] = ()
    rule: str = ""
    signature: str = ""
    grows: bool = False

    @property
    def hashes_exactly(self) -> bool:
        """Whether rows of one key hash have equal keys, from which each follows."""
        return hash_exactly([side.keys for side in self.sides])


class JoinOperator(BaseOperator):
    """A join of sides; subclasses define what is stored of a row and which combinations of rows it makes."""

    __slots__ = ()
    spec: JoinSpec

    @property
    def id(self) -> str:
        """Stable name of its state."""
        return self.spec.id

    @property
    def query(self) -> str:
        """The query for which it makes pairs."""
        return self.spec.query

    @property
    def stream(self) -> str:
        """The union of streams that it reads."""
        return self.spec.stream

    @property
    def columns(self) -> frozenset[str]:
        """The columns it reads, by their names in the union."""
        return frozenset().union(*(side.reads for side in self.spec.sides))

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections of its state with rows, by side."""
        return tuple(map(section_of, range(len(self.spec.sides))))

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations its row steps look up: none."""
        return self.spec.relations

    @property
    def rule(self) -> str:
        """The rule that chose it."""
        return self.spec.rule

    @property
    def makes_pairs(self) -> bool:
        """Pairs are all it makes."""
        return True

    @property
    def join_signature(self) -> str:
        """The graph of the join, if it may be shared."""
        return self.spec.signature

    def with_most_rows(self, most: int | None) -> JoinOperator:  # noqa: ARG002
        """The join that stores about so many rows, and beyond that joins a sample of keys, if it can; None: all rows."""
        return self

    def heeding_key_promises(self) -> JoinOperator:
        """The join that removes rows by promises for single keys, if it can."""
        return self

    def scanner(self, relations: Mapping[str, pa.Table]) -> JoinScanner:  # noqa: ARG002
        """Stores the rows of all sides, with the hashes of their keys."""
        return JoinScanner(self)

    def arrived(self, deltas: Sequence[Sections], *, probes: bool = False) -> list[pa.Table | None]:
        """The new rows of each side, in order; None if there are none. `probes`: those of former layouts."""
        sections = map(probes_of, self.sections) if probes else self.sections
        by_side = (
            [delta[side] for delta in deltas if side in delta and delta[side].num_rows] for side in sections
        )
        return [in_order(tables) if tables else None for tables in by_side]

    def can_match(self, batch: Batch, side: Side) -> npt.NDArray[np.bool_]:  # noqa: ARG002
        """The rows of a side that can be in a pair."""
        return np.ones(batch.rows, bool)

    def is_stored(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> npt.NDArray[np.bool_]:
        """The rows of a side with these keys that are stored: those that can be in a pair."""
        return usable(keys, batch.rows) & self.can_match(batch, side)

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """The state rows of input rows with these keys."""
        raise NotImplementedError

    def needed(self, rows: pa.Table, index: int, advance: Advance) -> pa.Table:
        """The state rows of a side, in order, that rows of other sides may still be joined with."""
        raise NotImplementedError

    def new_state(self, new_rows: Sequence[pa.Table | None], advance: Advance) -> dict[str, pa.Table]:
        """The sections of new state rows, by side."""
        return {
            side: needed
            for index, (side, new) in enumerate(zip(self.sections, new_rows, strict=True))
            if new is not None and (needed := self.needed(new, index, advance)).num_rows
        }

    def pairs(self, rows: Mapping[str, pa.Array], at: Ints, last: pa.Array) -> pa.Table:
        """Pairs as result rows; `last` is the column that the join adds."""
        names = self.spec.shown.names
        columns = [
            *(rows[name] for name in names[:-1]),
            last,
            pa.array(np.zeros(len(at), np.int64)),
            pa.array(at),
        ]
        return pa.table(columns, names=[*names, WINDOW, AT])

    def began(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], state: dict[str, pa.Table]
    ) -> list[pa.Table]:
        """A row with the instant of the first row, if `emits_first` and a row arrived that is earlier than all before."""
        first = began_earlier(runs, deltas, self.spec.slot) if self.spec.emits_first else None
        if first is None:
            return []
        at, state[FIRST] = first
        nulls = {field.name: pa.nulls(1, to_arrow(field.type)) for field in self.spec.shown}
        return [self.pairs(nulls, np.array([at]), nulls[self.spec.shown.names[-1]])]

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:  # noqa: ARG002
        """Never: a pair is emitted when its second row arrives."""
        return FOREVER

    @property
    def expires_unvisited(self) -> bool:
        """Rows are stored until the other side's punctuation has passed them."""
        return True

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """One sorted table of what is still needed; or of the first row's instant."""
        if section == FIRST:
            return beginning(earliest(tables), self.spec.slot)
        stored = frozenset(tables[0].column_names).intersection(*(table.column_names for table in tables))
        names = [name for name in tables[0].column_names if name in stored]  # earlier versions stored more
        rows = in_order([table.select(names) for table in tables])
        return self.needed(rows, self.sections.index(side_section(section)), advance)


def join_lines(operator: JoinOperator, *, changes: bool) -> Iterator[str]:
    """The join condition, the key by which rows are joined, and how long they are stored; `changes`: the inputs are
    changelogs.
    """
    spec, on = operator.spec, operator.spec.condition
    yield f"{type(operator).__name__}: pairs where {'rows hold together' if on is None else show(on)}"
    keys = [" = ".join(map(show, same)) for same in zip(*(side.keys for side in spec.sides), strict=True)]
    by = " and ".join(keys) if keys else "nothing: all rows are in one slot"
    what, many = "changes" if changes else "rows", len(spec.sides) > 2
    searched = "each other side, in an order that adapts" if many else "the other side"
    yield f"  {what} are joined by {by}; new {what} search the sorted runs of {searched}"
    until = "is added to the relation once" if changes else "is stored until"
    passed = "the punctuations of all others have" if many else "the other side's punctuation has"
    for side in spec.sides:
        condition = f", only where {show(side.filters[0].predicate)}" if side.filters else ""
        yield f"  {side.name}: a row {side.reach_in_words} and {until} {passed} passed that{condition}"


@dataclass(slots=True)
class JoinScanner:
    """The scan half: the rows of all sides with key hash, time and end, routed by key; those of hot keys by their layouts."""

    operator: JoinOperator
    pipelines: tuple[RowPipeline, ...] = field(init=False)
    tables: tuple[Routed, ...] = field(init=False)
    keys: tuple[SplitKey, ...] = field(init=False)
    side_of: Mapping[int, int] = field(init=False)
    """The side of each input."""
    first: Instant = FOREVER
    rows_in: int = 0
    rows_kept: int = 0
    retractions: list[Ints] = field(default_factory=list)
    """Positions of retracted rows."""

    def __post_init__(self) -> None:
        sides = self.operator.spec.sides
        self.pipelines = tuple(RowPipeline.of(side.filters, {}) for side in sides)
        self.tables = tuple(Routed([], []) for _ in sides)
        self.keys = split_keys(self.operator.spec.id)
        self.side_of = {number: index for index, side in enumerate(sides) for number in side.inputs}

    def add(self, batch: Batch) -> None:
        """Add a batch of one of the streams."""
        if not batch.rows:
            return
        index = self.side_of[input_number(batch)]
        side, pipeline = self.operator.spec.sides[index], self.pipelines[index]
        self.rows_in += batch.rows
        if side.changes is not None:
            self.retractions.append(batch.retractions(side.changes))
        batch = pipeline.apply(self._noting_first(batch, side))
        batch, keys = pipeline.evaluate(batch, side.keys)
        if side.time is not None:
            batch = batch.with_columns({side.time: pa.array(batch.at)})
        keep = self.operator.is_stored(batch, keys, side)
        if not keep.all():
            batch, keys = batch.where(keep), [flat(key).filter(pa.array(keep)) for key in keys]
        if batch.rows:
            self.rows_kept += batch.rows
            self._take(self.operator.at_rest(batch, keys, side), index, batch.position)

    def _take(self, rows: pa.Table, side: int, positions: Ints) -> None:
        """Take in state rows of a side."""
        found = routed(rows, side, positions, self.keys) if self.keys else Routed([rows], [])
        self.tables[side].stored.extend(found.stored)
        self.tables[side].probes.extend(found.probes)

    def _noting_first(self, batch: Batch, side: Side) -> Batch:
        """The rows that can be joined. Among pairs some rows only mark when their streams began."""
        column = side.ends if side.changes is None else side.changes
        if column is None:
            self.first = min(self.first, int(batch.at.min()))
            return batch
        pairs = flat(batch.columns[column]).is_valid().to_numpy(zero_copy_only=False)
        starts = batch.at if side.changes is not None else batch.at[~pairs]
        self.first = min(self.first, int(starts.min(initial=FOREVER)))
        return batch.where(pairs)

    def finish(self) -> Scanned:
        """The deltas: a section for each side."""
        sections = list(zip(self.operator.sections, self.tables, strict=True))
        parts = [(section, of_side.stored) for section, of_side in sections]
        parts += [(probes_of(section), of_side.probes) for section, of_side in sections]
        deltas = {section: pa.concat_tables(tables) for section, tables in parts if tables}
        if self.operator.spec.emits_first and self.first != FOREVER:
            deltas[FIRST] = beginning(self.first, self.operator.spec.slot)
        failures = [failure for pipeline in self.pipelines for failure in pipeline.rejected]
        rejected = insertion_failures(failures, self.retractions)
        return Scanned(deltas, rejected, self.rows_in, self.rows_kept)


def hash_exactly(keys: Sequence[Sequence[Expression]]) -> bool:
    """Whether rows of one key hash have equal keys: the hash of one integer is a permutation."""
    return all(len(key) == 1 and key[0].type.is_integer for key in keys)


def slots_and_hashes(keys: Sequence[pa.Array], rows: int, slot: int) -> tuple[npt.NDArray[np.int16], Ints]:
    """The slot of rows with these keys, and the hash by which they are found in it."""
    mixed = key_hashes(keys, rows)
    if not keys:
        return np.full(rows, slot, np.int16), mixed
    return (mixed.view(np.uint64) % np.uint64(SLOTS)).astype(np.int16), mixed


def passing(
    condition: Expression | None, rows: dict[str, pa.Array], count: int
) -> tuple[npt.NDArray[np.bool_], Ints, tuple[str, ...]]:
    """The pairs on which the condition is true; and those on which it failed, with the reasons."""
    if condition is None:
        return np.ones(count, bool), np.empty(0, np.int64), ()
    evaluation = Evaluation(rows, count)
    keep = evaluation.mask(condition)
    if evaluation.errors is None:
        return keep, np.empty(0, np.int64), ()
    bad = np.flatnonzero(evaluation.errors.mask)
    reasons = tuple(evaluation.errors.reasons[row] for row in bad.tolist())
    return keep & ~evaluation.errors.mask, bad, reasons


def failed_pairs(at: Ints, reasons: tuple[str, ...]) -> Rejected:
    """Pairs on which a condition failed: result rows, which have no position in a stream."""
    return Rejected(at, np.full(len(at), -1), reasons)


def began_earlier(
    runs: Sequence[Sections], deltas: Sequence[Sections], slot: int
) -> tuple[Instant, pa.Table] | None:
    """The instant of the first row and its state table, if a row arrived that is earlier than all before."""
    new = [delta[FIRST] for delta in deltas if FIRST in delta]
    if not new:
        return None
    at = earliest(new)
    if at >= earliest([run[FIRST] for run in runs if FIRST in run]):
        return None
    return at, beginning(at, slot)


def beginning(at: Instant, slot: int) -> pa.Table:
    """The state table of the first row's instant."""
    return pa.table({SLOT: pa.array([slot], pa.int16()), TIME: pa.array([at], pa.int64())})


def earliest(tables: Sequence[pa.Table]) -> Instant:
    """The earliest instant of several such tables."""
    return min(
        (int(ints(table, TIME).min()) for table in tables if table.num_rows),
        default=FOREVER,
    )

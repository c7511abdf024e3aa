"""The contract of an operator: what every one does, and what some can do besides.

An operator is an immutable value that lives in the epoch plan. Its work has two halves: a *scanner* turns a task's rows
into deltas, rows at rest that each belong to a slot; `advance` merges deltas with the operator's earlier runs, for the
slots of one task, when punctuation moves. All else has a default, so that no caller asks of which class an operator is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa

from headrace.operators.base.batch import Batch, Rejected
from headrace.time import Duration, Instant

if TYPE_CHECKING:
    from headrace.algebra.query import SortKey
    from headrace.algebra.windows.context import Context
    from headrace.operators.on_demand.selection import Selection
    from headrace.operators.output.output_stage import Finish
    from headrace.operators.panes.emission_limit import EmissionCap
    from headrace.operators.panes.panes import Panes
    from headrace.operators.panes.subwindows import Subwindows
    from headrace.operators.rows.row_pipeline import RowStep
    from headrace.operators.time_windows.group_punctuation import GroupAdvance
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate

SLOT: Final = "__slot"
WINDOW: Final = "__window"
AT: Final = "__at"

Sections: TypeAlias = Mapping[str, pa.Table]
"""State tables by section name; every row carries its slot in the column `__slot`."""


Windows: TypeAlias = tuple[range, ...]
"""Numbers of windows, as ranges that stand in order and apart."""


@dataclass(frozen=True, slots=True)
class Advance:
    """How far an operator is and how far it goes now.

    `closed`: the punctuation up to which answers were given. `now`: the new punctuation. `greatest`: the greatest event
    time seen. `final`: answer as if the stream ended here. `each`: where several streams are read as one, the punctuation
    of each, of which `now` is the least; empty where only that is known. `told`: where windows up to an instant past
    `closed` have been told although the state says nothing of it, since a provisional end is told in parts and written nowhere.
    """

    emitted_to: Instant
    punctuation: Instant
    max_event_time: Instant
    final: bool = False
    input_punctuations: tuple[Instant, ...] = ()
    provisionally_emitted_to: Instant | None = None

    @property
    def emission_start(self) -> Instant:
        """Up to where windows have been told."""
        return self.emitted_to if self.provisionally_emitted_to is None else self.provisionally_emitted_to


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scanner made of a task's rows."""

    deltas: Sections
    rejected: tuple[Rejected, ...] = ()
    rows_in: int = 0
    rows_kept: int = 0
    groups: int = 0
    sparse_groups: int = 0
    """Of how many (pane, group) pairs the rows are, and how many of these have few: where that was counted."""


@dataclass(frozen=True, slots=True)
class EmittedCounts:
    """Of how many (window, group) pairs an epoch answered, and how many rows these hold: where that was counted."""

    pairs: int = 0
    rows: int = 0

    def plus(self, pairs: int, rows: int) -> EmittedCounts:
        """With some more."""
        return EmittedCounts(self.pairs + pairs, self.rows + rows)


NOTHING_EMITTED: Final = EmittedCounts()


@dataclass(frozen=True, slots=True)
class Step:
    """What `advance` gives: sections to append to the state, results, and what was measured.

    `results` has the query's output columns plus `__at` (emission instant), `__window` (its window's number, or 0) and,
    for relations and for windows that are revised, `__change`.
    """

    state: Sections = field(default_factory=dict)
    results: pa.Table | None = None
    rejected: tuple[Rejected, ...] = ()
    open_windows: int = 0
    revised_windows: Windows = ()
    """Windows that were answered before and that `results` answers anew, because a late row is in them."""
    emitted_counts: EmittedCounts = NOTHING_EMITTED


class Scanner(Protocol):
    """The scan half of an operator, for one task."""

    def add(self, batch: Batch) -> None:
        """Take in a batch of accepted rows."""
        ...

    def finish(self) -> Scanned:
        """The deltas of all batches."""
        ...


class StateOwner(ABC):
    """Whose a state is: an operator, or several that store theirs together. It says what of it is still needed."""

    __slots__ = ()

    @abstractmethod
    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """One table with the same meaning, without rows that no later answer needs."""

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], advance: Advance
    ) -> Mapping[str, Sequence[pa.Table]]:
        """Sections about to be merged, rearranged where they are not merged one by one."""
        return sections

    def own_rows(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Its part of the tables of a state."""
        return list(tables)


class BaseOperator(StateOwner):
    """One operator of the plan; subclasses are frozen dataclasses whose fields are data.

    Contract: `advance` is a pure function; its answer depends only on the union of all rows scanned, not on how they were
    cut into epochs, tasks or slots (asserted by the laws); `compact(name, tables)` may replace the tables at any time.

    What is below `advance` is optional. The defaults are right for an operator that shares nothing, emits all that is due at
    once, and answers for its whole window alone. `around.Around` decides for each ability whether it is the inner operator's.
    """

    __slots__ = ()

    # At run time these are fields of dataclasses, and a property here would be taken for their default.
    if TYPE_CHECKING:

        @property
        @abstractmethod
        def id(self) -> str:
            """Stable name of its state."""

        @property
        @abstractmethod
        def query(self) -> str:
            """The query whose results it makes."""

        @property
        @abstractmethod
        def stream(self) -> str:
            """The stream it reads."""

        @property
        @abstractmethod
        def columns(self) -> frozenset[str]:
            """The stream's columns it needs."""

        @property
        @abstractmethod
        def relations(self) -> tuple[str, ...]:
            """The relations its row steps look up."""

    @abstractmethod
    def scanner(self, relations: Mapping[str, pa.Table]) -> Scanner:
        """A fresh scanner for one task."""

    @abstractmethod
    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Merge, close what punctuation allows, answer."""

    @property
    def rule(self) -> str:
        """The name of the planner's rule that chose it; empty where there is none."""
        return ""

    # What it makes of rows

    @property
    def context(self) -> Context | None:
        """The class of its window, where that is known."""
        return None

    @property
    def row_steps(self) -> tuple[RowStep, ...]:
        """What is done to rows before they are folded or stored."""
        return ()

    @property
    def finishing(self) -> Finish | None:
        """The steps above its windows."""
        return None

    @property
    def sort(self) -> tuple[SortKey, ...]:
        """The hidden sort columns that its results carry."""
        plan = self.finishing
        return plan.sort if plan is not None else ()

    @property
    def reads_changes(self) -> bool:
        """Whether it reads insertions and retractions whatever its stream is."""
        return False

    @property
    def makes_pairs(self) -> bool:
        """Whether its results are pairs of rows that other operators of its query read."""
        return False

    # What it shares with others

    @property
    def over_panes(self) -> PaneAggregate | None:
        """Itself where it aggregates over panes: these are folded, stored and handed over together with those of others."""
        return None

    @property
    def on_request(self) -> Selection | None:
        """Itself where its window is applied when INVOKE asks: it emits nothing, and stores at most what it selected."""
        return None

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """Its steps, where rows that its first filter drops do not matter to it; none where every row may."""
        return ()

    def unshared(self) -> Operator:
        """The operator, folding and storing by itself what it could share."""
        return self

    def keeping(self, most: int | None) -> Operator:
        """The operator while groups of at most so many rows in a pane are stored as rows; None: all are folded."""
        return self

    def with_row_layout(self, *, folds: bool = True) -> Operator:
        """The operator while its pane layout is rows for sparse groups; without `folds` for all groups."""
        return self

    # Where its state is

    @property
    def family_key(self) -> str | None:
        """The name of its family, the same for all queries of its shape; None when it has a state of its own."""
        return None

    def without_family(self) -> Operator:
        """The operator with a state of its own."""
        return self

    def together(self, members: Sequence[Operator]) -> Operator:
        """One operator for all `members` of its family that advance together; itself where it has a state of its own."""
        return self

    def for_family(self, deltas: Sections) -> Sections:
        """Its deltas as rows of its family's state."""
        return deltas

    def owners(
        self, members: Sequence[Operator], advance_of: Callable[[Operator], Advance]
    ) -> Sequence[tuple[StateOwner, Advance]]:
        """Whose its state is, each with the turn by which it may forget; `members` are all that store theirs there."""
        return [(self, advance_of(self))]

    # How far it advances

    @property
    def emission_windows(self) -> Panes | None:
        """How instants map to its windows, where it can emit a part of those that are due; see `pace`."""
        return None

    def emission_limit(
        self,
        runs: Sequence[Sections],
        deltas: Sequence[Sections],
        advance: Advance,
        cap: EmissionCap,
    ) -> Instant | None:
        """The instant up to which it should answer in this step; None: all of the way."""
        return None

    @property
    def ends_in_parts(self) -> bool:
        """Whether its provisional end can be emitted in parts: what it answers depends on nothing it emitted before."""
        return False

    def group_columns(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Which of the columns are keys of groups whose windows can close before the stream's; see `group_punctuation`."""
        return ()

    def advance_groups(
        self,
        runs: Sequence[Sections],
        deltas: Sequence[Sections],
        advance: Advance,
        groups: GroupAdvance,
    ) -> Step:
        """`advance`, where single groups go as far as their own punctuation."""
        return self.advance(runs, deltas, advance)

    def without_done(self, section: str, table: pa.Table, groups: GroupAdvance) -> pa.Table:
        """Rows of a section about to be merged, without groups of which all was emitted and no row will follow."""
        return table

    # What INVOKE and ALTER ask

    @property
    def keeps_latest(self) -> bool:
        """Whether its state says what the last window of each partition answered."""
        return False

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition, from state alone; None when no window has closed."""
        return None

    @property
    def subwindows(self) -> Subwindows | None:
        """Of which lengths its window can be asked for; None where only as a whole."""
        return None

    def answer_subwindow(
        self,
        length: Duration,
        runs: Sequence[Sections],
        closed: Instant,
        now: Instant,
    ) -> pa.Table | None:
        """What it would answer were its window `length` long, one of `subwindows`; see `shorter_windows.shorter`."""
        return None

    # What EXPLAIN shows

    @property
    def title(self) -> str:
        """Its class in words: `RowSlides` is "row slides"."""
        name = type(self).__name__
        return "".join(f" {mark.lower()}" if mark.isupper() else mark for mark in name).strip()

    def display(self) -> Iterator[str]:
        """Lines from the answer down to the rows of the stream; what belongs to the line above is indented."""
        yield type(self).__name__

    @property
    def state_label(self) -> str:
        """What its state holds, in a line."""
        return self.title

    @property
    def synopsis_bytes(self) -> Mapping[str, int]:
        """At most so many bytes a group, by synopsis; sketches have so many in each pane, histograms once."""
        return {}


Operator: TypeAlias = BaseOperator
"""What the planner makes and the runtime runs."""

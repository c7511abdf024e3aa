"""Operator contract: the base class of all operators, with optional abilities and their defaults; the interface of
scanners; and the records that operators take and return.

An operator is an immutable value in the epoch plan. Its work has two halves: a *scanner* turns a task's rows into
deltas, tables whose rows each belong to a slot; `advance` merges deltas with the operator's earlier runs, for the slots
of one task, when punctuation moves. Everything else has a default, so that callers never ask for an operator's class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.observation import NO_PROBES, ProbeCounts
from headrace.operators.base.batch import Batch, Rejected
from headrace.time import FOREVER, Duration, Instant

if TYPE_CHECKING:
    from headrace.adaptive.constraints.partner_delays import PartnerBound
    from headrace.algebra.query import SortKey
    from headrace.algebra.windows.context import Context
    from headrace.operators.base.group_codes import Ints
    from headrace.operators.families.cohort import Cohort
    from headrace.operators.families.pane_queries import PaneStream
    from headrace.operators.joins.hot_keys.key_layouts import SplitKey
    from headrace.operators.joins.key_promises import KeyPromises
    from headrace.operators.joins.key_sample import KeySampleCounts
    from headrace.operators.on_demand.selection import Selection
    from headrace.operators.output.output_stage import Finish
    from headrace.operators.panes.damage import Damage
    from headrace.operators.panes.emission_limit import EmissionCap
    from headrace.operators.panes.panes import Panes
    from headrace.operators.panes.subwindows import Subwindows
    from headrace.operators.rows.row_pipeline import RowStep
    from headrace.operators.rows.row_state import RowLayout
    from headrace.operators.time_windows.group_punctuation import GroupAdvance
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate

SLOT: Final = "__slot"
WINDOW: Final = "__window"
AT: Final = "__at"
QUERY_NUMBER: Final = "__member"
"""The column of a query's number in rows of several queries of a family; see `headrace.operators.families`."""

Sections: TypeAlias = Mapping[str, pa.Table]
"""State tables by section name; every row carries its slot in the column `__slot`."""

Windows: TypeAlias = tuple[range, ...]
"""Window numbers, as disjoint ranges in ascending order."""


@dataclass(frozen=True, slots=True)
class Advance:
    """The interval of event time over which an operator advances.

    `emitted_to`: punctuation up to which answers were emitted. `punctuation`: the new punctuation. `max_event_time`: the
    maximum event time seen. `final`: answer as if the stream ended here. `input_punctuations`: of a union, the punctuation
    of each input, whose minimum is `punctuation`; empty if only that is known. `provisionally_emitted_to`: where windows
    after `emitted_to` were already emitted without a trace in the state, as for a provisional end that is emitted in parts.
    Of a join, `key_promises`: by input, its punctuation of single keys; `key_shares`: of keys that it joins and stores; `partner_bounds`: found ones;
    `split_keys`: those whose rows are divided between tasks, or were lately.
    `damage`: of a query that repairs answers from samples, where they are; None: nowhere.
    """

    emitted_to: Instant
    punctuation: Instant
    max_event_time: Instant
    final: bool = False
    input_punctuations: tuple[Instant, ...] = ()
    provisionally_emitted_to: Instant | None = None
    key_promises: Mapping[int, KeyPromises] = field(default_factory=dict, hash=False)
    key_shares: tuple[float, float] = (1.0, 1.0)
    partner_bounds: tuple[PartnerBound, ...] = ()
    damage: Damage | None = None
    split_keys: tuple[SplitKey, ...] = ()

    @property
    def emission_start(self) -> Instant:
        """The instant up to which windows have been emitted."""
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
    """The (pane, group) pairs of the rows, and how many of them are sparse, where that was counted."""


class EmittedCounts(NamedTuple):
    """(window, group) pairs that an epoch emitted, and the rows in them, where that was counted."""

    pairs: int = 0
    rows: int = 0

    def plus(self, pairs: int, rows: int) -> EmittedCounts:
        """The sums of both."""
        return EmittedCounts(self.pairs + pairs, self.rows + rows)


@dataclass(frozen=True, slots=True)
class Step:
    """What `advance` returns: sections to append to the state, results, and measurements.

    `results` has the query's output columns plus `__at` (emission instant), `__window` (its window's number, or 0) and,
    for relations and for windows that are revised, `__change`.
    """

    state: Sections = field(default_factory=dict)
    results: pa.Table | None = None
    rejected: tuple[Rejected, ...] = ()
    open_windows: int = 0
    revised_windows: Windows = ()
    """Windows that were emitted before and that `results` revises because of a late row."""
    emitted_counts: EmittedCounts = EmittedCounts()
    probe_counts: ProbeCounts = NO_PROBES
    key_sample: KeySampleCounts | None = None
    instants: tuple[Instant, Instant] | None = None
    """The first and the last instant of results that are in the order of instants; None of others."""


@dataclass(frozen=True, slots=True)
class FamilyStep:
    """What `advance_family` returns: sections to append to the family's state, and by operator id each query's `Step` without state."""

    state: Sections
    steps: Mapping[str, Step]


class Scanner(Protocol):
    """The scan half of an operator, for one task."""

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows."""

    def finish(self) -> Scanned:
        """The deltas of all batches."""


class StateOwner(ABC):
    """The owner of a state: one operator, or several that share it. Decides which rows of the state are still needed."""

    __slots__ = ()

    @abstractmethod
    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """One table with the same meaning, without rows that no later answer needs."""

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], advance: Advance
    ) -> Mapping[str, Sequence[pa.Table]]:
        """Sections about to be merged, rearranged where they depend on each other."""
        return sections

    def own_rows(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The owner's rows of the tables of a state."""
        return list(tables)


class BaseOperator(StateOwner):
    """One operator of the plan; subclasses are frozen dataclasses whose fields are data.

    Contract: `advance` is a pure function; its answer depends only on the union of all rows scanned, not on how they were
    cut into epochs, tasks or slots (asserted by the laws); `compact(name, tables)` may replace the tables at any time.
    Everything below `advance` is optional. The defaults are right for an operator that shares nothing, emits at once all
    that is due, and answers only for its whole window. `wrapper.Around` decides for each ability whether to forward it.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # dataclass fields of subclasses: a property here would be taken for their default

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
        """A new scanner for one task."""

    @abstractmethod
    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Merge runs and deltas, close what punctuation allows, and answer."""

    @property
    def rule(self) -> str:
        """The name of the planner's rule that chose it; empty where there is none."""
        return ""

    # Rows

    @property
    def context(self) -> Context | None:
        """The class of its window, if that is known."""
        return None

    @property
    def row_steps(self) -> tuple[RowStep, ...]:
        """The steps applied to rows before they are aggregated or stored."""
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
    def time_panes(self) -> Panes | None:
        """The panes of event times that all it makes of rows goes by; None if it reads the times themselves."""
        return None

    @property
    def counts_arrivals(self) -> bool:
        """Whether rows count in the order in which epochs bring them: a backfill must not read a part of an epoch."""
        return False

    @property
    def most_rows(self) -> int | None:
        """The limit of its stored rows, beyond which it joins a sample of keys; None: there is none."""
        return None

    @property
    def longest_stored(self) -> Duration | None:
        """How long it may store a row; None: without end, or not known."""
        return None

    @property
    def heeds_key_promises(self) -> bool:
        """Whether it removes rows by promises for single keys of its inputs."""
        return False

    @property
    def makes_pairs(self) -> bool:
        """Whether its results are pairs of rows that other operators of its query read."""
        return False

    @property
    def joined_sides(self) -> tuple[str, ...]:
        """Names of the sides of a join of streams; of three or more the new rows probe the others in an order that adapts."""
        return ()

    @property
    def joined_keys(self) -> tuple[tuple[str, ...], ...]:
        """By side, the columns of the union that are the key of a join of windows; empty where a key is no column."""
        return ()

    @property
    def divides_keys(self) -> bool:
        """Whether the rows of one key of a join can be divided between tasks."""
        return False

    def slot_of_key(self, key_hash: int) -> int:
        """The slot of the rows of one key of a join, by its hash, where they are not divided."""
        return self.own_slot

    # Sharing

    @property
    def join_signature(self) -> str:
        """Equal for joins whose combinations other queries could read in common; empty if there are none."""
        return ""

    @property
    def over_panes(self) -> PaneAggregate | None:
        """Itself if it aggregates over panes, whose scan, state and transfer may be shared; else None."""
        return None

    @property
    def on_request(self) -> Selection | None:
        """Itself if its window is applied on INVOKE: it emits nothing, and stores at most what it selected."""
        return None

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """Its steps, if rows that its first filter drops do not affect it; else none."""
        return ()

    def unshared(self) -> Operator:
        """The operator without sharing: it aggregates and stores by itself."""
        return self

    def keeping(self, most: int | None) -> Operator:
        """The operator that stores groups of at most `most` rows in a pane as rows; None: no group."""
        return self

    def with_row_layout(self, *, folds: bool = True) -> Operator:
        """The operator whose pane layout is rows for sparse groups; without `folds` for all groups."""
        return self

    def coarser(self, doubled: int) -> Operator:
        """The operator whose synopses have their error doubled so often; itself without synopses that may get coarser."""
        return self

    # State

    @property
    def family_key(self) -> str | None:
        """The name of its family, equal for all queries of its shape; None if it has its own state. See `FamilyOperator`."""
        return None

    @property
    def former_states(self) -> tuple[str, ...]:
        """Its state's names in earlier versions, where they were others."""
        return ()

    def in_family(self) -> Operator:
        """The operator with the name of its family, if its query can have one."""
        return self

    def among_readers_of(self, results: str) -> Operator:
        """The operator in the family of those that read results with one clock, if it has a family; `results` names the clock."""
        return self

    def without_family(self) -> Operator:
        """The operator with its own state."""
        return self

    @property
    def extent(self) -> int:
        """The extent of its window, if queries of its family differ in it: microseconds, or a number of rows."""
        return 0

    @property
    def own_slot(self) -> int:
        """The slot of its rows that have no key."""
        return 0

    def together(self, queries: Sequence[Operator]) -> Operator:
        """One operator over the state of these queries of its family; itself if it has its own state."""
        return self

    def for_family(self, sections: Sections) -> Sections:
        """Sections of its own, such as its deltas, as rows of its family's state."""
        return sections

    @property
    def family_rows(self) -> RowLayout | None:
        """What it stores of each row, if rows of its family are scanned together."""
        return None

    def family_deltas(self, rows: pa.Table | None, first: Instant | Ints) -> Sections:
        """The deltas of several queries' stored rows with their numbers; `first`: the first instant of all rows, or of each query's."""
        return {}

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """`advance` of a cohort of its family, in one step; runs and deltas hold only rows of these queries."""
        step = self.advance(runs, deltas, advance)
        return FamilyStep(step.state, {self.id: step})

    def stream_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> PaneStream | None:
        """The same with results that are made when they are taken; None if it makes all of them at once."""
        return None

    def owners(
        self, queries: Sequence[Operator], advance_of: Callable[[Operator], Advance]
    ) -> Sequence[tuple[StateOwner, Advance]]:
        """The owners of its state, each with the advance by which it expires rows; `queries` are all operators stored there."""
        return [(self, advance_of(self))]

    # Visits

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """The least punctuation at which `advance` would change or emit anything without new rows, after this advance.

        `runs` are its state after it, with rows that expired; too early an instant costs a visit, too late an answer. Without
        rows there is none: the end of time. By default the next one.
        """
        has_rows = any(table.num_rows for run in runs for table in run.values())
        return min(advance.punctuation + 1, FOREVER) if has_rows else FOREVER

    @property
    def expires_unvisited(self) -> bool:
        """Whether stored rows expire between two visits: then `compact` drops rows also of a state that rests."""
        return False

    # Emission limits

    @property
    def emission_windows(self) -> Panes | None:
        """The mapping of instants to its windows, if it can emit a part of those that are due; see `emission_limit`."""
        return None

    def emission_limit(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, cap: EmissionCap
    ) -> Instant | None:
        """The instant up to which it should answer in this step; None: up to the punctuation."""
        return None

    @property
    def ends_in_parts(self) -> bool:
        """Whether its provisional end can be emitted in parts: its answers do not depend on what it emitted before."""
        return False

    def group_columns(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the columns that are keys of groups whose windows can close before the stream's; see `group_punctuation`."""
        return ()

    def advance_groups(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, groups: GroupAdvance
    ) -> Step:
        """`advance`, where single groups advance to their own punctuation."""
        return self.advance(runs, deltas, advance)

    def without_done(self, section: str, table: pa.Table, groups: GroupAdvance) -> pa.Table:
        """Rows of a section about to be merged, without groups that were emitted completely and get no more rows."""
        return table

    # INVOKE and ALTER

    @property
    def keeps_latest(self) -> bool:
        """Whether its state has the answer of the last window of each partition."""
        return False

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition, from state alone; None when no window has closed."""
        return None

    @property
    def subwindows(self) -> Subwindows | None:
        """The lengths with which its window can be read; None if only as a whole."""
        return None

    def answer_subwindow(
        self, length: Duration, runs: Sequence[Sections], emitted_to: Instant, now: Instant
    ) -> pa.Table | None:
        """What it would answer if its window were `length` long, one of `subwindows`; None without such a window."""
        return None

    # EXPLAIN

    @property
    def title(self) -> str:
        """Its class in words: `RowSlides` is "row slides"."""
        return "".join(f" {mark.lower()}" if mark.isupper() else mark for mark in type(self).__name__).strip()

    def display(self) -> Iterator[str]:
        """Lines from the answer down to the rows of the stream; details of a line are indented below it."""
        yield type(self).__name__

    @property
    def state_label(self) -> str:
        """The contents of its state, in a line."""
        return self.title

    @property
    def synopsis_bytes(self) -> Mapping[str, int]:
        """Maximum bytes per group, by synopsis: of sketches in each pane, of histograms once."""
        return {}


Operator: TypeAlias = BaseOperator
"""What the planner makes and the runtime runs."""

"""Definitions as the catalog has them: streams, relations, queries with their actions, user-defined functions and
windows; each a record of the clauses of its CREATE statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Final, TypeAlias, get_args
from typing import Literal as Choice

from headrace.algebra.windows.user_code import Code
from headrace.catalog.reductions import Reducer, Reduction
from headrace.dataclass import dataclass
from headrace.schema import Schema, Type
from headrace.time import DAY, Duration, render_duration


@dataclass(frozen=True, slots=True)
class Progressing:
    """The clauses of a stream about progress besides SLACK in time, PUNCTUATED BY and IDLE TIMEOUT.

    `behind`: SLACK n ROWS. `external`: rows alone promise nothing. `per`: the columns that name a row's source, or
    `folder`: a file's folder is its source; the stream's punctuation is the minimum over its sources, once `expected` were seen.
    `skew`: the most by which a row of one source is below an earlier one of another. `step`: bounds are rounded down to multiples of it. `heartbeat`: its period, and the maximum delay of a row. `group_condition`
    (text) on a row promises that none of the same `groups` columns follows below its event time. `patterns`: promises are
    patterns over the `groups` columns; `pattern_column` has them where rows carry them.
    """

    behind: int | None = None
    external: bool = False
    per: tuple[str, ...] = ()
    folder: bool = False
    expected: int = 1
    skew: Duration | None = None
    step: Duration | None = None
    heartbeat: tuple[Duration, Duration] | None = None
    group_condition: str | None = None
    groups: tuple[str, ...] = ()
    patterns: bool = False
    pattern_column: str | None = None

    def __str__(self) -> str:
        """The clauses as text."""
        return " ".join(text for _, text in self.clauses()) or "none"

    def clauses(self) -> Iterator[tuple[str, str]]:
        """Each clause as text, after a word for what it is about."""
        if self.behind is not None:
            yield "slack", f"SLACK {self.behind} ROWS"
        if self.external:
            yield "progress", "PUNCTUATED EXTERNALLY"
        if self.group_clause is not None:
            yield "group-wise", self.group_clause
        if self.per or self.folder:
            what = f"({', '.join(self.per)})" if self.per else "FOLDER"
            skew = "" if self.skew is None else f" SKEW {render_duration(self.skew)}"
            yield "sources", f"PROGRESS PER {what} EXPECT {self.expected}{skew}"
        if self.step is not None:
            yield "step", f"PROGRESS STEP {render_duration(self.step)}"
        if self.heartbeat is not None:
            every, delay = map(render_duration, self.heartbeat)
            yield "heartbeat", f"HEARTBEAT EVERY {every} DELAY {delay}"

    @property
    def group_clause(self) -> str | None:
        """The clause of promises for groups, as text; None without one."""
        if not self.groups:
            return None
        named = ", ".join(self.groups)
        if not self.patterns:
            return f"PUNCTUATED BY {self.group_condition} FOR ({named})"
        within = "" if self.pattern_column is None else f" IN {self.pattern_column}"
        return f"PUNCTUATED BY PATTERNS{within} OF ({named})"

    @property
    def has_sources(self) -> bool:
        """True when the progress of each source is stored."""
        return self.behind is not None or bool(self.per) or self.folder


@dataclass(frozen=True, slots=True)
class Deduplication:
    """DEDUPLICATE BY: of rows with equal `keys` whose event times differ by at most `within`, the first to arrive counts."""

    keys: tuple[str, ...]
    within: Duration = 0

    def __str__(self) -> str:
        """The clause without its first two words."""
        return f"({', '.join(self.keys)})" + (
            f" WITHIN {render_duration(self.within)}" if self.within else ""
        )


@dataclass(frozen=True, slots=True)
class StreamConstraint:
    """CONSTRAINT: a promise of the rows of a stream, by which joins drop rows early.

    "unique": no two rows have equal `columns`; "clustered": the event times of rows with equal columns differ by at most `within`;
    "ordered": a row has no smaller value than one that is more than `within` before it; "references": a row of `stream` with equal
    `others` comes at most `within` after the row.
    """

    kind: Choice["unique", "clustered", "ordered", "references"]
    columns: tuple[str, ...]
    within: Duration = 0
    stream: str = ""
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The clause without its first word."""
        columns, within = f"({', '.join(self.columns)})", f"WITHIN {render_duration(self.within)}"
        if self.kind == "unique":
            return f"UNIQUE {columns}"
        if self.kind == "references":
            return f"{columns} REFERENCES {self.stream} ({', '.join(self.others)}) {within}"
        return f"{self.kind.upper()} BY {columns} {within}"


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """TIMESTAMP BY an expression over the row: its text, and the zone by whose clocks it reads times and dates."""

    text: str
    zone: str = "UTC"

    def __str__(self) -> str:
        """The expression as it was written, on one line."""
        return " ".join(self.text.split())


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """CREATE STREAM, with defaults filled in.

    `time` is the event-time column, `time_expression` the expression that computes event times where no column has them; both are
    None when arrival time is stamped. `punctuated_by` is the text of a boolean
    expression over the stream's columns. `archive`: "copy" (default), "in place" or "none". `retain`: the retention of the
    archive, in event time; None has no limit. `blocks`: the number of equal random parts of a run of the archive; `blocks_by`: the
    column of which rows with equal values are in the same part, None where each row is drawn by itself. `keep`: the
    share of rows for queries WITH SHEDDING at CREATE; the current share is the catalog's `sample_rate_of`. `latency`: how long
    rows may wait for others to be read in the same epoch. `reduce`: what is kept of the archive; None is all of it.
    `constraints` are declared by CONSTRAINT. `reducers` are those of CREATE REDUCER, each with a copy of the archive.
    """

    name: str
    schema: Schema
    using: str
    options: Mapping[str, str] = field(default_factory=dict)
    time: str | None = None
    slack: Duration = 0
    punctuated_by: str | None = None
    idle_timeout: Duration | None = None
    max_ahead: Duration = DAY
    archive: Choice["copy", "in place", "none"] = "copy"
    retain: Duration | None = None
    progress: Progressing = Progressing()
    deduplicate: Deduplication | None = None
    blocks: int = 1
    keep: float = 1.0
    time_expression: TimeExpression | None = None
    latency: Duration = 0
    reduce: Reduction | None = None
    constraints: tuple[StreamConstraint, ...] = ()
    blocks_by: str | None = None
    reducers: tuple[Reducer, ...] = ()

    @property
    def event_time(self) -> str | None:
        """What TIMESTAMP BY names, as text; None when arrival time is stamped."""
        return self.time if self.time_expression is None else str(self.time_expression)


@dataclass(frozen=True, slots=True)
class RelationDefinition:
    """CREATE RELATION: a stored table read at CREATE and at each REFRESH."""

    name: str
    schema: Schema
    using: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActionDefinition:
    """THEN: what is done with the rows that a query emits. `target` is a URL, a stream's name or a folder; `options` are by
    lower-case name, ascending.

    `id` is part of the names of its cursor, its dead letters and its idempotency keys; RENAME and ALTER keep it. `since`: the
    number of entries of the results list when it was defined, which it is not applied to. `files`: how its files in a folder begin,
    where RENAME has changed the query's name since.
    """

    kind: Choice["call", "notify", "stream", "folder"]
    target: str
    options: tuple[tuple[str, str], ...] = ()
    id: str = field(default="", compare=False)
    since: int = field(default=0, compare=False)
    files: str = field(default="", compare=False)

    def option(self, name: str, default: str) -> str:
        """The value of an option by its lower-case name."""
        return dict(self.options).get(name, default)

    @property
    def title(self) -> str:
        """The action without its options, as text: `CALL https://example.org/hook`."""
        verb = {"call": "CALL", "notify": "NOTIFY", "stream": "WRITE TO", "folder": "WRITE TO"}[self.kind]
        return f"{verb} {self.target}"

    def __str__(self) -> str:
        """The same with its options."""
        options = ", ".join(f"{name} '{value}'" for name, value in self.options)
        return f"{self.title} WITH ({options})" if options else self.title


@dataclass(frozen=True, slots=True)
class JoinTree:
    """The order in which several joins join the sources of a query: the sources of each join by number, innermost first.

    `number` is the epoch after which it was chosen, 0 for the tree of the registration, and is part of its operators' names.
    `since`: the epoch after which it came into force; None while it only stores rows. `believed` are the rows that its inner joins
    make of a thousand rows of the sources, by the counts for which it was chosen, and `instead` those of the tree before.
    """

    number: int
    groups: tuple[tuple[int, ...], ...]
    since: int | None = None
    believed: int = 0
    instead: int = 0


QueryState: TypeAlias = Choice["live", "paused", "failed"]
QUERY_STATES: Final[tuple[QueryState, ...]] = get_args(QueryState)

QueryPhase: TypeAlias = Choice["registered", "backfilling", "emitting", "live", "paused", "failed"]
"""The state of a query with how far it is, as SHOW has it; see `headrace.runtime.backfill.completeness`."""
QUERY_PHASES: Final[tuple[QueryPhase, ...]] = get_args(QueryPhase)


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """CREATE QUERY: its text is authoritative; it is bound against the catalog at its position in the query log.

    `retain`: the retention of results, in event time behind the query's punctuation; None has no limit. `owner` and
    `tags` are for selecting queries, compared without case. `continues`: its
    window was changed, and it emits windows that end after the change. `materialize`: what is stored of its answer between two
    INVOKEs; None leaves it to the planner. `zone`: the time zone of its times and dates. `sharing`: whether its panes
    are stored and aggregated together with those of equal queries. `max_windows_per_row`: how many windows
    may hold one row; None is the limit of all queries. `max_join_rows`: how many rows its join stores, beyond which it joins a sample
    of keys; None has no limit. `actions`: what is done with the rows that it emits. `join_constraints`: by which its joins drop rows: the
    "declared" ones of streams, or also those that they "find". `spill`: the time between the rows of pairs up to which these are found whatever constraints
    hold, since their rows are spilled; None has no limit.
    """

    name: str
    text: str
    from_now: bool = False
    paused: bool = False
    retain: Duration | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    continues: bool = False
    materialize: Choice["none", "partial", "complete"] | None = None
    zone: str = "UTC"
    sharing: bool = True
    max_windows_per_row: int | None = None
    actions: tuple[ActionDefinition, ...] = ()
    failure: str | None = None
    """The reason, if it was suspended after it failed: it is paused until it is resumed."""
    max_join_rows: int | None = None
    join: str = ""
    """The shared join whose combinations it reads, chosen when it was registered; empty if it has its own."""
    join_sizes: tuple[int, ...] = ()
    """For each source that several joins join, the magnitude of its rows when it was registered; empty: not counted, or all of one magnitude."""
    join_constraints: Choice["declared", "find"] = "declared"
    spill: Duration | None = 0
    join_trees: tuple[JoinTree, ...] = ()
    """The trees of its joins that were in force, the newest last, and after them one that grows; empty: always that of its registration."""

    @property
    def state(self) -> QueryState:
        """Whether it gets rows; one that failed does not until it is resumed or altered."""
        if self.failure is not None:
            return "failed"
        return "paused" if self.paused else "live"

    @property
    def join_tree(self) -> JoinTree | None:
        """The tree in force; None: that of its registration."""
        return next((tree for tree in reversed(self.join_trees) if tree.since is not None), None)

    @property
    def growing_tree(self) -> JoinTree | None:
        """The tree that stores rows, and is not in force yet."""
        return next((tree for tree in self.join_trees if tree.since is None), None)

    def healed(self) -> QueryDefinition:
        """The query as it was before it failed."""
        return self if self.failure is None else replace(self, paused=False, failure=None)


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A Python function usable in queries; `body` is its code. See `headrace.algebra.functions.resolve.UserFunction`.

    `fingerprint` is equal for functions with the same code, also if pickled differently; "" where an older Headrace
    registered it.
    """

    name: str
    parameters: tuple[Type, ...]
    result: Type
    body: Code
    by_row: bool = True
    strict: bool = True
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class WindowDefinition:
    """A user's kind of window; `body` is the code of its class. See `headrace.algebra.windows.user_windows.UserWindow`.

    `fingerprint` is equal for classes with the same code, also if pickled differently.
    """

    name: str
    body: Code
    fingerprint: str

"""Windows, from a stream to a relation: an immutable class for each kind (`TimeSlide`, `Rows`, `Session`, …).

A window that slides gives a *sequence* of relations, one per window, each with bounds `[start, end)`; a window without a
slide gives a relation at *every instant*. Instants and lengths are microseconds.
Source: CQL (Arasu, Babu, Widom) for instants; Li 2008, ch. 5 for window-ids, with floors and an explicit origin.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, TypeAlias
from typing import Literal as Choice

from headrace.algebra.expressions.expression import Expression, Literal
from headrace.algebra.windows.user_code import Code
from headrace.algebra.windows.user_windows import UserWindow
from headrace.algebra.windows.window_kinds import BUILT_IN, instance
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.time import BEGINNING, DAY, Duration, Instant

Numbering: TypeAlias = Choice["rank", "row_num"]
"""The numbering of rows, from 1: by stream order (event time, then position), or by position alone."""


@dataclass(frozen=True, slots=True)
class TimeSlide:
    """`[RANGE r SLIDE e ORIGIN o]`, `window()`, TUMBLE and HOP: window i ends at `anchor + i*slide`.

    A bracket's anchor is its origin; a window that *starts* at `o + i*slide` has the anchor `o + range`.
    """

    range: Duration
    slide: Duration
    anchor: Instant = 0

    def __post_init__(self) -> None:
        if self.range <= 0 or self.slide <= 0:
            raise UserError("a window's range and slide must be positive")

    def bounds(self, window: int) -> tuple[Instant, Instant]:
        """Start (inclusive) and end (exclusive) of window `window`."""
        end = self.anchor + window * self.slide
        return end - self.range, end

    def holds(self, window: int, at: Instant) -> bool:
        """The extent: start <= at < end."""
        start, end = self.bounds(window)
        return start <= at < end


_LAST_DAY: Final = 2_932_896 * DAY
WHOLE: Final = TimeSlide(_LAST_DAY + 719_162 * DAY, _LAST_DAY + 719_162 * DAY, _LAST_DAY)
"""`RANGE TUMBLING ALL`: one window from the first to the last day that a TIMESTAMP can be."""


@dataclass(frozen=True, slots=True)
class Landmark:
    """`[LANDMARK SLIDE e]`: window i holds every row before `anchor + i*slide`."""

    slide: Duration
    anchor: Instant = 0

    def __post_init__(self) -> None:
        if self.slide <= 0:
            raise UserError("a landmark window's slide must be positive")

    def bounds(self, window: int) -> tuple[Instant, Instant]:
        """Start (no beginning) and end (exclusive) of window `window`."""
        return BEGINNING, self.anchor + window * self.slide

    def holds(self, window: int, at: Instant) -> bool:
        """The extent: at < end."""
        return at < self.bounds(window)[1]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """`[RANGE r]`, and `[NOW]` as r = 0: at instant i the rows with i - r <= t <= i."""

    range: Duration

    def __post_init__(self) -> None:
        if self.range < 0:
            raise UserError("a window's range must not be negative")


@dataclass(frozen=True, slots=True)
class Unbounded:
    """`[RANGE UNBOUNDED]`, `[ROWS UNBOUNDED]`, a bare stream: at instant i every row with t <= i.

    `needed` is of a joined stream, and made by the planner: a row is in no pair with one that is younger by more.
    """

    needed: Duration | None = None


@dataclass(frozen=True, slots=True)
class Lasting:
    """Each row from its time to the instant in its column, inclusive, as pairs of rows of two windows have it.

    No user can write it: the planner makes it for a join of streams.
    """

    until: Expression


CHANGE: Final = "__change"
"""The column of a changelog: insertion (+1) or retraction (-1)."""


@dataclass(frozen=True, slots=True)
class Changing:
    """A relation given by its changelog: each row is inserted (+1) or retracted (-1) at its time, by the column `change`.

    No user can write it: a relation in FROM has it, and so do pairs of rows of relations. With `times`, a number, that many equal
    rows are inserted or retracted at once.
    """

    change: Expression
    times: Expression | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """`[ROWS n]` and `[PARTITION BY k ROWS n]`: at instant i the last n rows (of each partition) with t <= i.

    Order is (event time, position). `partition` expressions read the stream's own columns.
    """

    count: int
    partition: tuple[Expression, ...] = ()

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise UserError("a ROWS window needs at least one row")


@dataclass(frozen=True, slots=True)
class RowsSlide:
    """`[ROWS n SLIDE m]`: emitted at rows m, 2m, ... (of each partition) over the last min(n, i*m) rows.

    Rows are numbered in stream order, or in order of arrival (`WATTR row_num`).
    """

    count: int
    slide: int
    partition: tuple[Expression, ...] = ()
    numbered: Numbering = "rank"

    def __post_init__(self) -> None:
        if self.count <= 0 or self.slide <= 0:
            raise UserError("a ROWS window's size and slide must be positive")


@dataclass(frozen=True, slots=True)
class TupleSlide:
    """`[RANGE r SLIDE n ROWS]`: a window ends at the time of every n-th row (of each partition) and holds end - r < t <= end.

    Rows are numbered from 1, in stream order (`SATTR rank(t)`) or in order of arrival (`SATTR row_num`). Rows of one time
    end one window together. These windows are `(start, end]`, those of `TimeSlide` `[start, end)`.
    Source: Li 2008, eqs. 5.10-5.18, with sets of distinct ends.
    """

    range: Duration
    every: int
    partition: tuple[Expression, ...] = ()
    numbered: Numbering = "rank"

    def __post_init__(self) -> None:
        if self.range <= 0 or self.every <= 0:
            raise UserError("a window's range and slide must be positive")

    def holds(self, end: Instant, at: Instant) -> bool:
        """The extent of the window that ends at `end`: end - range < at <= end."""
        return end - self.range < at <= end


@dataclass(frozen=True, slots=True)
class Delta:
    """`[DELTA d ON x]`: a window holds rows while x is within d of its first x (of each partition, in stream order).

    The first row beyond begins the next window. A row whose x is NULL or NaN is in the current window. `on` is a
    DOUBLE over the stream's own columns. Source: the tumbling delta windows of stream languages (delta frames).
    """

    threshold: float
    on: Expression
    partition: tuple[Expression, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < float("inf"):
            raise UserError("the DELTA of a window must be a number of at least 0")

    def leaves(self, first: float, value: float | None) -> bool:
        """True when a value begins a new window after one whose first value is `first`."""
        return value is not None and (value > first + self.threshold or value < first - self.threshold)


@dataclass(frozen=True, slots=True)
class Session:
    """`session_window(t, gap)`, `SESSION(TABLE s PARTITION BY k, DESCRIPTOR(t), gap)`: rows with gaps of at most `gap`.

    Consecutive rows of a partition at most `gap` from each other are in one session; it starts at its first row and ends at its
    last + gap, which a row may still have, as in Spark.
    """

    gap: Duration
    partition: tuple[Expression, ...] = ()

    def __post_init__(self) -> None:
        if self.gap <= 0:
            raise UserError("the gap of a session must be positive")

    def joins(self, earlier: Instant, later: Instant) -> bool:
        """True when consecutive rows of one partition at these times are in one session."""
        return later - earlier <= self.gap


@dataclass(frozen=True, slots=True)
class Custom:
    """`[WINDOW name(constants) ON x]`: windows of a user's class, whose code is `body`, or of a built-in kind (None).

    See `user_windows`, `window_kinds`. `on` are over the stream's columns. Context free: the row alone determines its windows.
    """

    name: str
    arguments: tuple[Literal, ...]
    body: Code | None = field(default=None, repr=False)
    on: tuple[Expression, ...] = ()

    def __post_init__(self) -> None:
        if self.body is None and self.name not in BUILT_IN:
            raise UserError(f"there is no built-in window '{self.name}'")

    @property
    def kind(self) -> UserWindow:
        """The user's object; the same within a process. Raises `UserError` when it cannot be made."""
        return instance(self.name, self.body, tuple(argument.value for argument in self.arguments))


SlidingWindow: TypeAlias = TimeSlide | Landmark | RowsSlide | TupleSlide | Delta | Session | Custom
InstantWindow: TypeAlias = TimeRange | Unbounded | Rows | Lasting | Changing
Window: TypeAlias = SlidingWindow | InstantWindow


def slides(window: Window) -> bool:
    """True for a sequence of relations, false for one relation at every instant."""
    return isinstance(window, TimeSlide | Landmark | RowsSlide | TupleSlide | Delta | Session | Custom)


def counts_rows(window: Window) -> bool:
    """True when rows count although WHERE drops them: the window is applied before it."""
    return isinstance(window, Rows | RowsSlide | TupleSlide | Delta | Session)

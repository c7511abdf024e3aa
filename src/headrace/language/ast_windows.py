"""What can be written for a window: in brackets, as a table function, or in GROUP BY?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Span
from headrace.time import Duration, Instant

if TYPE_CHECKING:
    from headrace.language.ast import Expr, Name


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """`[RANGE r SLIDE e ORIGIN o]`; `range` None is UNBOUNDED, `slide` None is no SLIDE; `[NOW]` is a range of 0."""

    range: Duration | None
    slide: Duration | None
    origin: Instant
    attribute: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class RowNumber:
    """`rank(t)`, or `row_num` when `attribute` is None: what the rows of a window are numbered by."""

    attribute: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """`[PARTITION BY p ROWS n SLIDE m]`; `count` None is UNBOUNDED."""

    count: int | None
    slide: int | None
    partition: tuple[Expr, ...]
    span: Span
    numbered: RowNumber | None = None


@dataclass(frozen=True, slots=True)
class TupleWindow:
    """`[RANGE r SLIDE n ROWS PA p]`: a window of time that ends at every n-th row."""

    range: Duration
    every: int
    partition: tuple[Expr, ...]
    attribute: Name | None
    numbered: RowNumber | None
    span: Span


@dataclass(frozen=True, slots=True)
class DeltaWindow:
    """`[PARTITION BY p DELTA d ON x]`."""

    threshold: float
    on: Expr
    partition: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class LandmarkWindow:
    """`[LANDMARK SLIDE e ORIGIN o]`."""

    slide: Duration
    origin: Instant
    attribute: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class StartingWindow:
    """`window(t, r, s, o)`, `TUMBLE(TABLE s, DESCRIPTOR(t), r)`, HOP: windows that start at `origin + i*slide`."""

    attribute: Name
    range: Duration
    slide: Duration
    origin: Instant
    span: Span


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """`session_window(t, gap)` in GROUP BY; `[PARTITION BY p SESSION gap]`, `SESSION(TABLE s PARTITION BY p, DESCRIPTOR(t), gap)`."""

    attribute: Name | None
    gap: Duration
    partition: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class NamedWindow:
    """`[WINDOW name(constants) ON x, y]`: a user's own kind of window; CUMULATE, which names its event time."""

    name: str
    arguments: tuple[Expr, ...]
    on: tuple[Expr, ...]
    span: Span
    attribute: Name | None = None


WindowClause: TypeAlias = (
    RangeWindow
    | RowsWindow
    | TupleWindow
    | DeltaWindow
    | LandmarkWindow
    | StartingWindow
    | SessionWindow
    | NamedWindow
)
Measure: TypeAlias = "Name | RowNumber"

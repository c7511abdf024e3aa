"""One stage of a planned join: its operator, and the union of streams that it reads; the table of rules that choose
the operator; and functions on the sources of stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from headrace.algebra.query import QueryScan, StreamScan, UnionAll, Windowed
from headrace.algebra.windows.window import CHANGE, TimeRange, TimeSlide, Unbounded, Window
from headrace.dataclass import dataclass
from headrace.operators.joins.changelog_join import RelationJoin
from headrace.operators.joins.join_side import JoinSpec
from headrace.operators.joins.sliding_outer_join import SlidingOuterJoin
from headrace.operators.joins.window_join import Grid, WindowJoin
from headrace.planner.rule import Rule, always, first_of
from headrace.schema import Schema
from headrace.time import Duration

Input: TypeAlias = tuple[str, Schema, tuple[tuple[str, str], ...]]
"""A stream, the columns of its side, and by column the name in the union."""


@dataclass(frozen=True, slots=True)
class UnionStream:
    """A union of streams: by name each with (its column, the column's name in the union)."""

    name: str
    schema: Schema
    inputs: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class JoinStage:
    """An operator that makes pairs, and the union that it reads."""

    operator: WindowJoin | RelationJoin | SlidingOuterJoin
    union: UnionStream

    def signed(self, signature: str) -> JoinStage:
        """The stage, whose join has the graph of this name."""
        return replace(
            self, operator=replace(self.operator, spec=replace(self.operator.spec, signature=signature))
        )


def growing(join_stages: Sequence[JoinStage]) -> tuple[JoinStage, ...]:
    """The joins of a tree that is not in force yet, outermost first: that one stores rows and emits nothing."""
    outermost, *inner = join_stages
    operator = replace(outermost.operator, spec=replace(outermost.operator.spec, grows=True))
    return replace(outermost, operator=operator), *inner


def only_window_join(join_stages: Sequence[JoinStage]) -> WindowJoin | None:
    """The join of windows that makes all pairs by itself; None with several joins, or another."""
    operators = [join_stage.operator for join_stage in join_stages]
    return operators[0] if len(operators) == 1 and isinstance(operators[0], WindowJoin) else None


@dataclass(frozen=True, slots=True)
class Joined:
    """A join of several sides, and the ends of sliding windows; `shared` by queries with windows of their own."""

    spec: JoinSpec
    grid: Grid | None
    shared: bool = False


JOINS: Final[tuple[Rule[Joined, WindowJoin | RelationJoin], ...]] = (
    Rule(
        "changes",
        "a side is a relation given by its changes, so pairs are inserted and retracted with those of both sides",
        when=lambda joined: joined.spec.shown.names[-1] == CHANGE,
        build=lambda joined: RelationJoin(joined.spec),
    ),
    Rule(
        "shared join",
        "queries with other windows and conditions join the same streams by the same key, so matches are found once for all",
        when=lambda joined: joined.shared,
        build=lambda joined: WindowJoin(joined.spec, shows_ages=True),
    ),
    Rule(
        "pairs of windows",
        "the end of a pair is known when it is made, so each is emitted once",
        when=always,
        build=lambda joined: WindowJoin(joined.spec, joined.grid),
    ),
)


def built(joined: Joined) -> WindowJoin | RelationJoin:
    """The operator of a join, by the first rule that applies."""
    rule = first_of(JOINS, joined)
    return rule.build(replace(joined, spec=replace(joined.spec, rule=rule.name)))


def inputs(window: Windowed) -> list[Input]:
    """The streams of a source, each with its columns' names in the union."""
    source = window.source
    assert isinstance(source, StreamScan | QueryScan | UnionAll)
    names = source.schema.names
    streams = source.inputs if isinstance(source, UnionAll) else (source,)
    return [
        (stream.name, source.schema, tuple(zip(stream.table.names, names, strict=True))) for stream in streams
    ]


def union_stream(
    sides: Sequence[Sequence[Input]],
    titles: Sequence[str],
    operator_id: str,
) -> UnionStream:
    """The union of the streams of all sides."""
    inputs = tuple((name, columns) for side in sides for name, _, columns in side)
    fields = tuple(field for side in sides for field in side[0][1])
    return UnionStream(f"@{' JOIN '.join(titles)} of {operator_id}", Schema(fields), inputs)


def title(window: Windowed) -> str:
    """The name of a source."""
    source = window.source
    assert isinstance(source, StreamScan | QueryScan | UnionAll)
    return source.name.lstrip("@")


def stored_for(window: Window) -> Duration | None:
    """How long a row may be in new pairs; None without end."""
    return window.needed if isinstance(window, Unbounded) else lookback(window)


def lookback(window: Window) -> Duration | None:
    """How long a row holds in a window; None without end."""
    return window.range if isinstance(window, TimeSlide | TimeRange) else None

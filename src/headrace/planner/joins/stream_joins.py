"""Decomposition of a query over several streams with windows into joins of pairs, and a query over the pairs.

An operator joins two windows, and its results are a stream of pairs; a third window is joined with that stream, and so on.
With windows of time the end of a pair is known when it is made (`operators/joins/window_join.py`); with a relation given by
its changelog, pairs are changes too (`operators/joins/changelog_join.py`). The query above the joins reads the pairs of the
last one as its only stream, so aggregates, relation-to-stream and joins with relations are those of any other query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.algebra.expressions.expression import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from headrace.algebra.query import (
    Aggregate,
    Filter,
    Join,
    Node,
    Query,
    QueryScan,
    StreamScan,
    UnionAll,
    Windowed,
    walk,
)
from headrace.algebra.rewriting import expressions_of, rewritten
from headrace.algebra.windows.window import (
    CHANGE,
    Changing,
    Custom,
    Lasting,
    TimeRange,
    TimeSlide,
    Unbounded,
    Window,
    slides,
)
from headrace.algebra.windows.window_kinds import JOINED
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.joins.changelog_join import RelationJoin
from headrace.operators.joins.join_side import JoinSpec, Side, TwoSided
from headrace.operators.joins.window_join import UNTIL, Grid, WindowJoin
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.planner.rules import Rule, always, first_of
from headrace.schema import BIGINT, BOOLEAN, INTERVAL, TIMESTAMP, TINYINT, Field, Schema
from headrace.time import Duration

PAIRS: Final = "@"
"""The alias of pairs above a join."""
_UNTIL: Final = Field(UNTIL, BIGINT)
_CHANGE: Final = Field(CHANGE, TINYINT)


@dataclass(frozen=True, slots=True)
class UnionStream:
    """A union of streams: by name each with (its column, the column's name in the union)."""

    name: str
    schema: Schema
    inputs: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class JoinStage:
    """An operator that makes pairs, and the union that it reads."""

    operator: TwoSided
    union: UnionStream


@dataclass(frozen=True, slots=True)
class Joined:
    """A join of two sides, and the ends of sliding windows."""

    spec: JoinSpec
    grid: Grid | None


JOINS: Final[tuple[Rule[Joined, WindowJoin | RelationJoin], ...]] = (
    Rule(
        "changes",
        "a side is a relation given by its changes, so pairs are inserted and retracted with those of both sides",
        when=lambda joined: joined.spec.shown.names[-1] == CHANGE,
        build=lambda joined: RelationJoin(joined.spec),
    ),
    Rule(
        "pairs of windows",
        "the end of a pair is known when it is made, so each is emitted once",
        when=always,
        build=lambda joined: WindowJoin(joined.spec, joined.grid),
    ),
)


def joins_streams(query: Query) -> bool:
    """Whether a query joins streams with each other."""
    return any(_is_of_streams(node) for node in walk(query.root))


def _is_of_streams(node: Node) -> bool:
    return isinstance(node, Join) and isinstance(node.right, Windowed)


def decompose(
    name: str,
    query: Query,
    operator_id: str,
    inner_of: Callable[[str], str],
    stream_of: Callable[[str], str],
) -> tuple[Query, tuple[JoinStage, ...]]:
    """The query over pairs, and the joins that make them, outermost first.

    `inner_of` names the operator whose results an operator reads, `stream_of` the stream of an operator's results. Results
    of other queries have become scans of streams.
    """
    top = next(node for node in walk(query.root) if _is_of_streams(node))
    windows = _windows(top)
    free = frozenset(name for window in windows for name in window.source.schema.names)
    parts = _Parts(name, query, windows, _factors(top), [])
    root = rewritten(query.root, _PairColumns(windows), lambda node: parts.over(node, top, free))
    columns = _columns_read(query.root, top, free, parts.factors)
    inner = inner_of(operator_id)
    join_stages = tuple(parts.join_stages(inner, len(windows) - 1, columns, inner_of, stream_of))
    pairs = StreamScan(stream_of(inner), PAIRS, join_stages[0].operator.spec.shown, None)
    return replace(query, root=_placed(root, parts.windowed(pairs))), join_stages


def _windows(node: Node) -> list[Windowed]:
    """The windows of a chain of joins, left to right."""
    if isinstance(node, Join):
        return [*_windows(node.left), *_windows(node.right)]
    assert isinstance(node, Windowed)
    return [node]


def _factors(node: Node) -> list[Expression]:
    if not isinstance(node, Join):
        return []
    factors = [] if node.condition is None else list(conjuncts(node.condition))
    return [*_factors(node.left), *factors]


def _columns_read(
    root: Node, top: Node, free: frozenset[str], pushed: Sequence[Expression]
) -> frozenset[str]:
    """The streams' columns that are read above the joins."""
    inside = {id(node) for node in walk(top)}
    read = [item for node in walk(root) if id(node) not in inside for item in expressions_of(node)]
    above = [factor for expression in read for factor in conjuncts(expression) if factor not in pushed]
    return frozenset().union(*(columns_of(item) for item in above)) & free


_PLACE: Final = StreamScan("", PAIRS, Schema((_UNTIL,)), None)


def _placed(node: Node, pairs: Node) -> Node:
    """The tree with the pairs at their placeholder."""
    return rewritten(node, lambda _: None, lambda below: pairs if below is _PLACE else None)


@dataclass(slots=True)
class _Parts:
    """The parts of the joins. `factors` are conditions: those of the joins, and those of WHERE on their columns alone."""

    name: str
    query: Query
    windows: list[Windowed]
    factors: list[Expression]
    passed: list[Node]

    def over(self, node: Node, top: Node, free: frozenset[str]) -> Node | None:
        """A placeholder for the pairs in place of the joins; conditions of WHERE that the joins can test are moved to them."""
        if node is top:
            return _PLACE
        grouped = any(isinstance(inner, Aggregate) for inner in walk(node)[1:])
        if not isinstance(node, Filter) or grouped:
            return None
        factors = conjuncts(node.predicate)
        testable = [factor for factor in factors if columns_of(factor) and columns_of(factor) <= free]
        self.factors += testable
        rest = [factor for factor in factors if factor not in testable]
        below = rewritten(node.source, _PairColumns(self.windows), lambda under: self.over(under, top, free))
        if not rest:
            return below
        return rewritten(
            Filter(_PLACE, conjunction(rest)),
            _PairColumns(self.windows),
            lambda under: below if under is _PLACE else None,
        )

    @property
    def slides(self) -> bool:
        """Whether the windows slide."""
        return slides(self.windows[0].window)

    @property
    def validity_field(self) -> Field:
        """The column of pairs with their end, or with +1 or -1; NULL without a pair."""
        return _CHANGE if any(isinstance(window.window, Changing) for window in self.windows) else _UNTIL

    @property
    def grid(self) -> Grid | None:
        """The ends of windows."""
        window = self.windows[0].window
        return Grid(window.slide, window.anchor) if isinstance(window, TimeSlide) else None

    @property
    def emits_first(self) -> bool:
        """Whether the answer has a row from the first row of any stream on."""
        groups = [node for node in walk(self.query.root) if isinstance(node, Aggregate)]
        return bool(groups) and not groups[0].keys and not self.slides

    def windowed(self, pairs: StreamScan) -> Node:
        """The pairs under their window."""
        source: Node = pairs
        if self.emits_first:
            validity = Column(f"{PAIRS}.{self.validity_field.name}", self.validity_field.type)
            source = Filter(pairs, Call("isnotnull", (validity,), BOOLEAN))
        return Windowed(source, PAIRS, self._window())

    def _window(self) -> Window:
        if self.validity_field is _CHANGE:
            return Changing(Column(f"{PAIRS}.{CHANGE}", TINYINT))
        until, ranges = Column(f"{PAIRS}.{UNTIL}", BIGINT), [_lookback(item.window) for item in self.windows]
        first = self.windows[0].window
        if isinstance(first, TimeSlide):
            if set(ranges) == {first.slide}:
                return first  # a pair is in the window of its later row
            constants = (first.slide, first.anchor, max(filter(None, ranges)))
            return Custom(JOINED, tuple(Literal(item, BIGINT) for item in constants), on=(until,))
        return Unbounded() if set(ranges) == {None} else Lasting(until)

    def join_stages(
        self,
        operator_id: str,
        last: int,
        columns: frozenset[str],
        inner_of: Callable[[str], str],
        stream_of: Callable[[str], str],
    ) -> Iterator[JoinStage]:
        """The join of the windows up to number `last`, and the joins it reads; `columns` are those of its pairs."""
        right = self.windows[last]
        left_columns = frozenset(name for item in self.windows[:last] for name in item.source.schema.names)
        right_columns = frozenset(right.source.schema.names)
        now = [
            item
            for item in self.factors
            if columns_of(item) & right_columns and columns_of(item) <= left_columns | right_columns
        ]
        both = [item for item in now if not columns_of(item) <= right_columns]
        keys = [
            pair for factor in both if (pair := _equality(factor, left_columns, right_columns)) is not None
        ]
        tested = frozenset().union(*(columns_of(item) for item in both)) | columns
        right_side = self._side(right, tested & right_columns, tuple(key for _, key in keys), now)
        if last == 1:
            left_side = self._side(
                self.windows[0], tested & left_columns, tuple(key for key, _ in keys), self.factors
            )
            left_met = _inputs(self.windows[0])
        else:
            inner = inner_of(operator_id)
            stages = list(self.join_stages(inner, last - 1, tested & left_columns, inner_of, stream_of))
            shown = stages[0].operator.spec.shown
            left_side = self._side_of_pairs(shown, tuple(key for key, _ in keys), last)
            left_met = [(stream_of(inner), shown, tuple((name, name) for name in shown.names))]
        union = _union_stream(
            [left_met, _inputs(right)], [_title(item) for item in self.windows[: last + 1]], operator_id
        )
        sides = (
            replace(left_side, inputs=tuple(range(len(left_met)))),
            replace(right_side, inputs=tuple(range(len(left_met), len(union.inputs)))),
        )
        yield JoinStage(
            self._operator(operator_id, union, sides, conjunction(both) if both else None, columns), union
        )
        if last > 1:
            yield from stages

    def _operator(
        self,
        operator_id: str,
        union: UnionStream,
        sides: tuple[Side, Side],
        condition: Expression | None,
        columns: frozenset[str],
    ) -> WindowJoin | RelationJoin:
        """The join of two sides, with the columns of their rows that are read."""
        fields = [field for side in sides for field in side.stored if field.name in columns]
        shown, slot = Schema((*fields, self.validity_field)), slot_of_name(operator_id)
        spec = JoinSpec(operator_id, self.name, union.name, sides, condition, shown, slot, self.emits_first)
        joined = Joined(spec, self.grid)
        rule = first_of(JOINS, joined)
        return rule.build(replace(joined, spec=replace(spec, rule=rule.name)))

    def _side_of_pairs(self, shown: Schema, keys: tuple[Expression, ...], last: int) -> Side:
        """Pairs of an inner join of the windows before number `last`."""
        stored = Schema(shown.fields[:-1])
        if self.validity_field is _CHANGE:
            return Side((), stored, (), keys, None, changes=CHANGE)
        longest = _shortest([_lookback(window.window) for window in self.windows[:last]])
        return Side((), stored, (), keys, None, UNTIL, longest)

    def _side(
        self,
        window: Windowed,
        stored: frozenset[str],
        keys: tuple[Expression, ...],
        factors: Sequence[Expression],
    ) -> Side:
        names = frozenset(window.source.schema.names)
        alone = [factor for factor in factors if columns_of(factor) and columns_of(factor) <= names]
        fields = tuple(field for field in window.source.schema if field.name in stored)
        reach, keeps = _stored_for(window.window), (RowFilter(conjunction(alone)),) if alone else ()
        changes = f"{window.alias}.{CHANGE}" if isinstance(window.window, Changing) else None
        return Side((), Schema(fields), keeps, keys, reach, None, reach, changes)


def _inputs(window: Windowed) -> list[tuple[str, Schema, tuple[tuple[str, str], ...]]]:
    """The streams of a source, each with its columns' names in the union."""
    source = window.source
    assert isinstance(source, StreamScan | QueryScan | UnionAll)
    names = source.schema.names
    streams = source.inputs if isinstance(source, UnionAll) else (source,)
    return [
        (stream.name, source.schema, tuple(zip(stream.table.names, names, strict=True))) for stream in streams
    ]


def _union_stream(
    sides: Sequence[Sequence[tuple[str, Schema, tuple[tuple[str, str], ...]]]],
    titles: Sequence[str],
    operator_id: str,
) -> UnionStream:
    inputs = tuple((name, columns) for side in sides for name, _, columns in side)
    fields = tuple(field for side in sides for field in side[0][1])
    return UnionStream(f"@{' JOIN '.join(titles)} of {operator_id}", Schema(fields), inputs)


def _title(window: Windowed) -> str:
    source = window.source
    assert isinstance(source, StreamScan | QueryScan | UnionAll)
    return source.name.lstrip("@")


def _equality(
    factor: Expression, left_columns: frozenset[str], right_columns: frozenset[str]
) -> tuple[Expression, Expression] | None:
    """(left key, right key) of an equality of the two sides."""
    if not (isinstance(factor, Call) and factor.function == "="):
        return None
    one, other = factor.arguments
    for left, right in ((one, other), (other, one)):
        if (
            columns_of(left)
            and columns_of(left) <= left_columns
            and columns_of(right)
            and columns_of(right) <= right_columns
        ):
            return left, right
    return None


def _lookback(window: Window) -> Duration | None:
    return window.range if isinstance(window, TimeSlide | TimeRange) else None


def _stored_for(window: Window) -> Duration | None:
    """How long a row may be in new pairs."""
    return window.needed if isinstance(window, Unbounded) else _lookback(window)


def _shortest(reaches: Sequence[Duration | None]) -> Duration | None:
    """A pair ends with its shorter row."""
    return min((reach for reach in reaches if reach is not None), default=None)


class _PairColumns:
    """Columns of the streams, and bounds of their windows, as columns of pairs."""

    def __init__(self, windows: Sequence[Windowed]) -> None:
        self._columns = {name for window in windows for name in window.source.schema.names}
        self._ranges = {f"{window.alias}.window_start": _lookback(window.window) for window in windows}
        self._bounds = {
            f"{window.alias}.window_{bound}": f"{PAIRS}.window_{bound}"
            for window in windows
            for bound in ("start", "end", "id")
            if slides(window.window)
        }

    def __call__(self, node: Expression) -> Expression | None:
        if not isinstance(node, Column):
            return None
        if node.name in self._columns:
            return Column(f"{PAIRS}.{node.name}", node.type)
        if node.name not in self._bounds:
            return None
        if len({*self._ranges.values()}) > 1 and node.name in self._ranges:
            end = Column(f"{PAIRS}.window_end", TIMESTAMP)
            return Call("-", (end, Literal(self._ranges[node.name], INTERVAL)), TIMESTAMP)
        return Column(self._bounds[node.name], node.type)

"""Decomposition of a query with inner joins of streams into join operators, one for all windows that share a key,
and a query over their results; or into a query over a shared join. For other joins see `outer_joins`.

An operator joins all windows that share a key, and its results are a stream of pairs (or of combinations of more rows);
where conditions do not share a key, the other windows are joined with that stream, and so on (`join_graph`). With windows
of time the end of a pair is known when it is made (`operators/joins/window_join.py`); with a relation given by its changelog,
pairs are changes too, two sides at a time (`operators/joins/changelog_join.py`). The query above the joins reads the pairs
of the last one as its only stream, so aggregates, relation-to-stream and joins with relations are those of any other query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from headrace.adaptive.joins.join_trees import TreeGraph, is_tree
from headrace.algebra.expressions.expression import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    transform,
)
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Filter,
    Join,
    Node,
    Query,
    QueryScan,
    StreamScan,
    Windowed,
    every_node,
    walk,
)
from headrace.algebra.rewriting import rewritten
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
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.joins.changelog_join import RelationJoin
from headrace.operators.joins.join_side import JoinOperator, JoinSpec, Side, hash_exactly
from headrace.operators.joins.window_join import UNTIL, Grid, WindowJoin
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.operators.scalar.evaluation.failing import can_fail
from headrace.planner.joins.common_conditions import NONE, Conditions
from headrace.planner.joins.interval_joins import with_intervals
from headrace.planner.joins.join_graph import (
    Group,
    columns_above,
    equalities,
    factors_of,
    groups_of,
    keys_by_equality,
    shared_keys,
    windows_of,
)
from headrace.planner.joins.join_stage import (
    Joined,
    JoinStage,
    UnionStream,
    built,
    inputs,
    lookback,
    stored_for,
    title,
    union_stream,
)
from headrace.planner.joins.shared_join import Ages, Graph, graph_of, shared_stage
from headrace.schema import BIGINT, BOOLEAN, INTERVAL, TIMESTAMP, TINYINT, Field, Schema
from headrace.time import Duration

PAIRS: Final = "@"
"""The alias of pairs above a join."""
_FEWEST_IN_TREE: Final = 3
"""Sources from which on there may be several joins."""
_UNTIL: Final = Field(UNTIL, BIGINT)
_CHANGE: Final = Field(CHANGE, TINYINT)


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
    shared: str = "",
    sizes: Sequence[int] = (),
    tree: Sequence[Sequence[int]] = (),
) -> tuple[Query, tuple[JoinStage, ...]]:
    """The query over pairs, and the joins that make them, outermost first.

    `inner_of` names the operator whose results an operator reads, `stream_of` the stream of an operator's results; `shared`
    is the shared join that the query reads, if it does; `sizes` and `tree` as of `groups_of`. Results of other queries have become scans of
    streams.
    """
    top, free, parts, root = _divided(name, query)
    if shared:
        graph = graph_of(parts.windows, parts.factors)
        assert graph is not None, "a shared join is chosen for queries that have a graph"
        stage = shared_stage(graph, shared, parts.factors)
        scan = StreamScan(stream_of(shared), PAIRS, stage.operator.spec.shown, None)
        pairs = parts.of_shared(graph, scan, shared)
        root = rewritten(
            root, partial(_shared_column, graph.names), lambda below: pairs if below is _PLACE else None
        )
        return replace(query, root=root), (stage,)
    columns = columns_above(query.root, top, parts.factors) & free
    join_stages = parts.join_stages(operator_id, columns, inner_of, stream_of, sizes, tree)
    if len(join_stages) == 1 and (signature := signature_of(query)):
        join_stages = (join_stages[0].signed(signature),)
    top_join = join_stages[0].operator
    pairs = StreamScan(stream_of(top_join.id), PAIRS, top_join.spec.shown, None)
    return replace(query, root=_placed(root, parts.windowed(pairs))), join_stages


def signature_of(query: Query) -> str:
    """The name of the query's graph, if its join can be shared with other queries; empty if not."""
    read = graph_read_by(query)
    return "" if read is None else read[0].signature


def graph_read_by(query: Query) -> tuple[Graph, Sequence[Expression]] | None:
    """The query's graph and its conditions, if its join can be shared with other queries."""
    if not joins_streams(query) or query.revisions is not None or query.shedding:
        return None
    _, _, parts, _ = _divided("", with_intervals(query))
    graph = graph_of(parts.windows, parts.factors)
    return None if graph is None else (graph, parts.factors)


def conditions_of(query: Query) -> Conditions:
    """What a query requires of single rows of its streams, if its join can be shared."""
    read = graph_read_by(query)
    return NONE if read is None else read[0].conditions(read[1])


def joins_windows(query: Query) -> bool:
    """Whether a query joins windows of streams by a key, in itself or in a SELECT that it reads, and no changes."""
    if not joins_streams(query):
        return any(_is_of_streams(node) for node in every_node(query))
    _, _, parts, _ = _divided("", with_intervals(query))
    columns = [frozenset(window.source.schema.names) for window in parts.windows]
    groups = groups_of(columns, parts.factors, binary=False)
    return parts.validity_field is not _CHANGE and any(group.keys[0] for group in groups)


def sizes_of(query: Query, rows_of: Callable[[str], int]) -> tuple[int, ...]:
    """For each source the magnitude (a power of two) of the rows in its window, where they decide in which order several joins join them.

    `rows_of` counts the rows of a stream so far. Empty where one join joins all sources, where a source is no stream or a condition of
    several can fail, and where all are of one magnitude.
    """
    parts = _parts_of_tree(query)
    if parts is None:
        return ()
    ranges = [stored_for(window.window) for window in parts.windows]
    least = min((range_ for range_ in ranges if range_), default=1)
    rows = [sum(rows_of(name) for name, _, _ in inputs(window)) for window in parts.windows]
    weighed = [
        count if None in ranges else count * (range_ or 0) // least
        for count, range_ in zip(rows, ranges, strict=True)
    ]
    sizes = tuple(map(int.bit_length, weighed))
    return sizes if len(set(sizes)) > 1 else ()


def tree_graph(query: Query, sizes: Sequence[int]) -> TreeGraph | None:
    """What a choice between trees of joins needs; None where rows are stored for good, or conditions connect sources in no tree, or several."""
    parts = _parts_of_tree(query)
    if parts is None:
        return None
    columns = [frozenset(window.source.schema.names) for window in parts.windows]
    keys = shared_keys(columns, parts.factors)
    groups = groups_of(columns, parts.factors, binary=False, sizes=sizes)
    longest = [stored_for(window.window) for window in parts.windows]
    if None in longest or not is_tree(len(columns), keys):
        return None
    names, registered = (window.alias for window in parts.windows), tuple(group.sources for group in groups)
    return TreeGraph(tuple(names), tuple(keys), registered, max(filter(None, longest), default=0))


def _parts_of_tree(query: Query) -> _Parts | None:
    """The parts of a query whose streams several joins join, in an order that changes nothing but the cost."""
    if not joins_streams(query) or len(windows_of(_top_of(query))) < _FEWEST_IN_TREE:
        return None
    _, _, parts, _ = _divided("", with_intervals(query))
    columns = [frozenset(window.source.schema.names) for window in parts.windows]
    if parts.validity_field is _CHANGE or len(groups_of(columns, parts.factors, binary=False)) == 1:
        return None
    if any(isinstance(node, QueryScan) for window in parts.windows for node in walk(window)):
        return None
    between = (factor for factor in parts.factors if not any(columns_of(factor) <= at for at in columns))
    return None if any(map(can_fail, between)) else parts  # which combinations are rejected follows the order


def joins_two_by_each_equality(query: Query) -> bool:
    """Whether a query joins two streams, and each equality of them is a key: so did versions whose joins had two sides."""
    _, _, parts, _ = _divided("", query)
    columns = [frozenset(window.source.schema.names) for window in parts.windows]
    groups = groups_of(columns, parts.factors, binary=True)
    return len(columns) == 2 and groups[0].keys == keys_by_equality(columns, parts.factors)


def _top_of(query: Query) -> Node:
    """The topmost join of streams."""
    return next(node for node in walk(query.root) if _is_of_streams(node))


def _divided(name: str, query: Query) -> tuple[Node, frozenset[str], _Parts, Node]:
    """The joins of a query, the columns of their sources, their parts, and the query with a placeholder for the joins."""
    top, lag = _top_of(query), _lag_of(query)
    windows = [_shorter(window, lag) for window in windows_of(top)]
    free = frozenset(name for window in windows for name in window.source.schema.names)
    parts = _Parts(name, query, windows, factors_of(top), lag)
    root = rewritten(query.root, _PairColumns(windows), lambda node: parts.over(node, top, free))
    return top, free, parts, root


def _lag_of(query: Query) -> Duration:
    """How long before NOW the bounds of a query end."""
    ends = [node.end for node in walk(query.root) if isinstance(node, Bounds)]
    return next((end.duration for end in ends if isinstance(end, Ago)), 0)


def _shorter(window: Windowed, lag: Duration) -> Windowed:
    """A window of a query that ends `lag` before NOW: rows hold later by it, and no longer, so their pairs are those of shorter
    windows at an earlier instant.
    """
    if not lag or not isinstance(window.window, TimeRange):
        return window
    return replace(window, window=TimeRange(window.window.range - lag))


def _shared_column(names: Mapping[str, str], node: Expression) -> Expression | None:
    """A column of pairs by its name in the shared join."""
    if not isinstance(node, Column) or not node.name.startswith(f"{PAIRS}."):
        return None
    name = node.name.removeprefix(f"{PAIRS}.")
    return Column(f"{PAIRS}.{names[name]}", node.type) if name in names else None


_PLACE: Final = StreamScan("", PAIRS, Schema((_UNTIL,)), None)


def _placed(node: Node, pairs: Node) -> Node:
    """The tree with the pairs at their placeholder."""
    return rewritten(node, lambda _: None, lambda below: pairs if below is _PLACE else None)


@dataclass(slots=True)
class _Parts:
    """The parts of the joins. `factors` are conditions: those of the joins, and those of WHERE on their columns alone.

    Pairs hold `lag` later than the windows hold their rows.
    """

    name: str
    query: Query
    windows: list[Windowed]
    factors: list[Expression]
    lag: Duration = 0

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
        return Windowed(source, PAIRS, self._window(Column(f"{PAIRS}.{UNTIL}", BIGINT)))

    def of_shared(self, graph: Graph, pairs: StreamScan, join: str) -> Node:
        """The pairs of a shared join that satisfy the query's conditions, under their window; without those that it has tested."""
        ages = Ages(graph, PAIRS)
        window = self._window(ages.until)
        factors = ages.conditions + ([ages.ends_in(window)] if isinstance(window, TimeSlide) else [])
        implied = graph.implied(self.factors, join)
        for factor in self.factors:
            if columns_of(factor) and factor not in implied:
                named = transform(factor, _PairColumns(self.windows))
                factors.append(transform(named, partial(_shared_column, graph.names)))
        return Windowed(Filter(pairs, conjunction(factors)), PAIRS, window)

    def _window(self, until: Expression) -> Window:
        if self.validity_field is _CHANGE:
            return Changing(Column(f"{PAIRS}.{CHANGE}", TINYINT))
        ranges = [lookback(item.window) for item in self.windows]
        first = self.windows[0].window
        if isinstance(first, TimeSlide):
            if set(ranges) == {first.slide}:
                return first  # a pair is in the window of its later row
            constants = (first.slide, first.anchor, max(filter(None, ranges)))
            return Custom(JOINED, tuple(Literal(item, BIGINT) for item in constants), on=(until,))
        if set(ranges) == {None}:
            return Unbounded()
        return Lasting(Call("+", (until, Literal(self.lag, BIGINT)), BIGINT) if self.lag else until)

    def join_stages(
        self,
        operator_id: str,
        columns: frozenset[str],
        inner_of: Callable[[str], str],
        stream_of: Callable[[str], str],
        sizes: Sequence[int],
        tree: Sequence[Sequence[int]],
    ) -> tuple[JoinStage, ...]:
        """The joins of all windows, outermost first; `columns` are read above them."""
        names = [frozenset(window.source.schema.names) for window in self.windows]
        groups = groups_of(names, self.factors, binary=self.validity_field is _CHANGE, sizes=sizes, tree=tree)
        ids = [operator_id]
        for _ in groups:
            ids.append(inner_of(ids[-1]))
        stages: list[JoinStage] = []
        joined, waiting = frozenset[str](), list(self.factors)
        for group, id_ in zip(groups, reversed(ids[1:]), strict=True):
            joined = joined.union(*(names[source] for source in group.sources))
            now = [factor for factor in waiting if columns_of(factor) and columns_of(factor) <= joined]
            waiting = [factor for factor in waiting if factor not in now]
            above = joined & columns.union(*map(columns_of, waiting))
            inner = (stages[-1].operator, stream_of(stages[-1].operator.id)) if stages else None
            stages.append(self._stage(id_, group, now, above, inner))
        return tuple(reversed(stages))

    def _stage(
        self,
        operator_id: str,
        group: Group,
        factors: Sequence[Expression],
        above: frozenset[str],
        inner: tuple[JoinOperator, str] | None,
    ) -> JoinStage:
        """The join of a group, with the pairs of the join before; `above` are the columns that are read of its own."""
        windows = [self.windows[source] for source in group.sources]
        alone = {
            factor
            for factor in factors
            for window in windows
            if columns_of(factor) <= set(window.source.schema.names)
        }
        both = [factor for factor in factors if factor not in alone]
        keys = group.keys if group.inner_keys is None else (group.inner_keys, *group.keys)
        if hash_exactly(keys):
            both = [factor for factor in both if factor not in set(equalities(keys, both))]
        read = above.union(*map(columns_of, both))
        sides = [
            self._side(window, read, side_keys, factors)
            for window, side_keys in zip(windows, group.keys, strict=True)
        ]
        sources, titles = [inputs(window) for window in windows], [title(window) for window in windows]
        if inner is not None:
            shown, stream = inner[0].spec.shown, inner[1]
            sides.insert(0, self._side_of_pairs(shown, keys[0], inner[0]))
            sources.insert(0, [(stream, shown, tuple((name, name) for name in shown.names))])
            titles.insert(0, "pairs")
        union = union_stream(sources, titles, operator_id)
        numbers = iter(range(len(union.inputs)))
        numbered = tuple(
            replace(side, inputs=tuple(next(numbers) for _ in streams))
            for side, streams in zip(sides, sources, strict=True)
        )
        condition = conjunction(both) if both else None
        return JoinStage(self._operator(operator_id, union, numbered, condition, above), union)

    def _operator(
        self,
        operator_id: str,
        union: UnionStream,
        sides: tuple[Side, ...],
        condition: Expression | None,
        columns: frozenset[str],
    ) -> WindowJoin | RelationJoin:
        """The join of the sides, with the columns of their rows that are read."""
        fields = [field for side in sides for field in side.stored if field.name in columns]
        shown, slot = Schema((*fields, self.validity_field)), slot_of_name(operator_id)
        spec = JoinSpec(operator_id, self.name, union.name, sides, condition, shown, slot, self.emits_first)
        return built(Joined(spec, self.grid))

    def _side_of_pairs(self, shown: Schema, keys: tuple[Expression, ...], inner: JoinOperator) -> Side:
        """The pairs of a join as a side of another."""
        stored = Schema(shown.fields[:-1])
        if self.validity_field is _CHANGE:
            return Side((), stored, (), keys, None, changes=CHANGE, name="pairs")
        longest = _shortest([side.longest for side in inner.spec.sides])
        return Side((), stored, (), keys, None, UNTIL, longest, name="pairs")

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
        reach, keeps = stored_for(window.window), (RowFilter(conjunction(alone)),) if alone else ()
        changes = f"{window.alias}.{CHANGE}" if isinstance(window.window, Changing) else None
        return Side((), Schema(fields), keeps, keys, reach, None, reach, changes, window.alias)


def _shortest(reaches: Sequence[Duration | None]) -> Duration | None:
    """A pair ends with its shorter row."""
    return min((reach for reach in reaches if reach is not None), default=None)


class _PairColumns:
    """Columns of the streams, and bounds of their windows, as columns of pairs."""

    def __init__(self, windows: Sequence[Windowed]) -> None:
        self._columns = {name for window in windows for name in window.source.schema.names}
        self._ranges = {f"{window.alias}.window_start": lookback(window.window) for window in windows}
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

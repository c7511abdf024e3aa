"""Decomposition of a query with outer joins, semijoins or antijoins of windowed streams or changing relations: a
chain of operators that each join two sides, and the query over the last one's results; with the rules that choose
each operator.

The joins are those of FROM and of the SELECTs in WHERE, in the order written. Each reads the changelog of the joins
before it and the changes of one more source, and emits a changelog; the query above reads the last one as its only stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from headrace.algebra.expressions.series import AT, at_of
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
from headrace.algebra.windows.window import CHANGE, Changing, Custom, TimeRange, TimeSlide
from headrace.algebra.windows.window_kinds import JOINED
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.joins.changelog_join import RelationJoin
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.outer_join import KEPT, OuterJoin
from headrace.operators.joins.sliding_outer_join import SlidingOuterJoin
from headrace.operators.joins.window_join import UNTIL, Grid
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.planner.joins.join_graph import columns_above
from headrace.planner.joins.join_stage import (
    Input,
    JoinStage,
    UnionStream,
    inputs,
    lookback,
    union_stream,
)
from headrace.planner.joins.stream_joins import PAIRS
from headrace.planner.rule import Rule, always, first_of
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, INTERVAL, TIMESTAMP, TINYINT, Field, Schema

_CHANGE: Final = Field(CHANGE, TINYINT)
_UNTIL: Final = Field(UNTIL, BIGINT)
Names: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Paired:
    """One join of the chain: its two sides, and its kind."""

    spec: JoinSpec
    join: Join
    grid: Grid | None


def _sliding(paired: Paired) -> SlidingOuterJoin:
    assert paired.grid is not None
    return SlidingOuterJoin(paired.spec, paired.grid, paired.join.kind)


OUTER_JOINS: Final[tuple[Rule[Paired, RelationJoin | SlidingOuterJoin], ...]] = (
    Rule(
        "pairs of changes",
        "other joins keep rows without a pair, or pairs are read at single instants, so pairs are inserted and retracted",
        when=lambda paired: paired.join.kind == "inner",
        build=lambda paired: RelationJoin(paired.spec),
    ),
    Rule(
        "rows without a pair in windows",
        "which rows of a window have no pair is known when it closes, so they are emitted then",
        when=lambda paired: paired.grid is not None,
        build=_sliding,
    ),
    Rule(
        "rows without a pair",
        "rows and their pairs are counted, since a row without a pair is inserted and retracted as its pairs end and begin",
        when=always,
        build=lambda paired: OuterJoin(paired.spec, kind=paired.join.kind),
    ),
)


def has_outer_joins(query: Query) -> bool:
    """Whether a query joins relations that change otherwise than by pairs alone."""
    return any(_is_of_changes(node) and node.kind != "inner" for node in _joins(query.root))


def joins_changes(query: Query) -> bool:
    """Whether the joins of a query are of changes, whatever their windows."""
    reads = (columns_of(item) for node in walk(query.root) for item in expressions_of(node))
    times = (name for columns in reads for name in columns if name.endswith(f".{AT}"))
    return has_outer_joins(query) or any(
        name in _names(join) for name in times for join in _joins(query.root)
    )


def _names(node: Node) -> frozenset[str]:
    """The columns of a node's rows, and the times of the rows of `[NOW]` among them."""
    windows = [window for window in walk(node) if isinstance(window, Windowed)]
    times = (at_of(window.alias).name for window in windows if window.window == TimeRange(0))
    return frozenset((*node.schema.names, *times))


def _own_names(window: Node) -> frozenset[str]:
    """The columns of the rows of a source, without the bounds of its window."""
    assert isinstance(window, Windowed)
    return frozenset(window.source.schema.names)


def _joins(root: Node) -> list[Join]:
    return [node for node in walk(root) if isinstance(node, Join)]


def _is_of_changes(join: Join) -> bool:
    return isinstance(join.right, Windowed)


def decompose_outer(
    name: str, query: Query, operator_id: str, inner_of: Names, stream_of: Names
) -> tuple[Query, tuple[JoinStage, ...]]:
    """The query over the last changelog, and the joins that make it, outermost first.

    `inner_of` names the operator whose results an operator reads, `stream_of` the stream of an operator's results. Results
    of other queries have become scans of streams.
    """
    top = next(join for join in _joins(query.root) if _is_of_changes(join))
    chain = _Chain(name, top, _emits_first(query, top))
    pushed = [factor for factor in _where(query.root) if chain.takes(factor)]
    chain.filters += pushed
    columns = columns_above(query.root, top, pushed) & _names(top)
    inner = inner_of(operator_id)
    stages = chain.stages(top, inner, columns, inner_of, stream_of)
    changes = StreamScan(stream_of(inner), PAIRS, stages[0].operator.spec.shown, None)
    return replace(query, root=_over(query.root, top, _windowed(changes, chain), pushed)), stages


def _emits_first(query: Query, top: Join) -> bool:
    """Whether the answer has a row from the first row of any source on."""
    groups = [node for node in walk(query.root) if isinstance(node, Aggregate)]
    return bool(groups) and not groups[0].keys and not _sliding_windows(top)


def _where(root: Node) -> list[Expression]:
    """The conditions above the joins, below groups."""
    filters = [node for node in walk(root) if isinstance(node, Filter)]
    below = [node for node in filters if not any(isinstance(inner, Aggregate) for inner in walk(node))]
    return [factor for node in below for factor in conjuncts(node.predicate)]


def _over(root: Node, top: Join, changes: Node, pushed: Sequence[Expression]) -> Node:
    """The tree over the changes in place of the joins, without the conditions that the joins test."""
    renamed = _Renamed(top)

    def below(node: Node) -> Node | None:
        if node is top:
            return changes
        if not isinstance(node, Filter) or not set(conjuncts(node.predicate)) & set(pushed):
            return None
        rest = [factor for factor in conjuncts(node.predicate) if factor not in pushed]
        source = Filter(node.source, conjunction(rest)) if rest else node.source
        return rewritten(source, renamed, below)

    return rewritten(root, renamed, below)


class _Renamed:
    """Columns of the joined rows, and bounds of their windows, as columns of the changes."""

    def __init__(self, top: Join) -> None:
        self._columns = _names(top)
        self._ranges = {node.alias: window.range for node, window in _sliding_windows(top)}

    def __call__(self, node: Expression) -> Expression | None:
        if not isinstance(node, Column) or node.name not in self._columns:
            return None
        alias, _, plain = node.name.partition(".")
        if alias not in self._ranges or plain not in ("window_start", "window_end", "window_id"):
            return Column(f"{PAIRS}.{node.name}", node.type)
        if plain == "window_start" and len({*self._ranges.values()}) > 1:
            end = Column(f"{PAIRS}.window_end", TIMESTAMP)
            return Call("-", (end, Literal(self._ranges[alias], INTERVAL)), TIMESTAMP)
        return Column(f"{PAIRS}.{plain}", node.type)


def _sliding_windows(top: Join) -> list[tuple[Windowed, TimeSlide]]:
    """The joined windows that slide, left to right."""
    windows = [node for node in walk(top) if isinstance(node, Windowed)]
    return [(node, node.window) for node in windows if isinstance(node.window, TimeSlide)]


def _windowed(changes: StreamScan, chain: _Chain) -> Windowed:
    """The joined rows under their window: changes, or rows with the instants between which their windows end."""
    sliding = [window for _, window in _sliding_windows(chain.top)]
    if sliding:
        ranges, first = {window.range for window in sliding}, sliding[0]
        constants = (first.slide, first.anchor, max(ranges))
        until = Column(f"{PAIRS}.{UNTIL}", BIGINT)
        of_pairs = Custom(JOINED, tuple(Literal(item, BIGINT) for item in constants), on=(until,))
        return Windowed(changes, PAIRS, first if ranges == {first.slide} else of_pairs)
    change = Column(f"{PAIRS}.{CHANGE}", TINYINT)
    window = Changing(change)
    if not chain.emits_first:
        return Windowed(changes, PAIRS, window)
    return Windowed(Filter(changes, Call("isnotnull", (change,), BOOLEAN)), PAIRS, window)


@dataclass(slots=True)
class _Chain:
    """The joins below `top`. `filters` are conditions of WHERE that are tested on the rows of one source."""

    name: str
    top: Join
    emits_first: bool
    filters: list[Expression] = field(default_factory=list)

    def takes(self, factor: Expression) -> bool:
        """Whether a condition of WHERE may be tested on the rows of a source: no join adds rows with its columns NULL."""
        read = columns_of(factor)
        node: Node = self.top
        while isinstance(node, Join):
            right = frozenset(node.right.schema.names)
            if node.kind in ("right", "full") or (node.kind != "inner" and read & right):
                return False
            if read & right:
                return _alone(factor, _own_names(node.right))
            node = node.left
        return _alone(factor, _own_names(node))

    def stages(
        self, join: Join, operator_id: str, columns: frozenset[str], inner_of: Names, stream_of: Names
    ) -> tuple[JoinStage, ...]:
        """A join and those below it; `columns` are read of its rows."""
        assert isinstance(join.right, Windowed)
        left_names, right_names = _names(join.left), _names(join.right)
        factors = [] if join.condition is None else list(conjuncts(join.condition))
        of_left = [
            factor for factor in factors if _alone(factor, left_names) and join.kind in ("inner", "right")
        ]
        of_right = [
            factor for factor in factors if _alone(factor, right_names) and join.kind not in ("right", "full")
        ]
        tested = [factor for factor in factors if factor not in of_left and factor not in of_right]
        read = columns.union(*map(columns_of, tested))
        kept_sides = KEPT[join.kind]
        pairs = [pair for factor in tested if (pair := _equality(factor, left_names, right_names))]
        keys = [pair for pair in pairs if all(_never_fails(pair[side]) for side in kept_sides)]
        left_keys, right_keys = (tuple(key) for key in zip(*keys, strict=True)) if keys else ((), ())
        right, right_inputs = self._leaf(join.right, read & right_names, right_keys, of_right)
        below: tuple[JoinStage, ...] = ()
        if isinstance(join.left, Join):
            inner = inner_of(operator_id)
            passed = (read & left_names).union(*map(columns_of, of_left))
            below = self.stages(join.left, inner, passed, inner_of, stream_of)
            shown = below[0].operator.spec.shown
            stored = Schema(tuple(item for item in shown.fields[:-1] if item.name in read))
            left = Side((), stored, _filters(of_left), left_keys, None, changes=CHANGE)
            left_inputs = [(stream_of(inner), shown, tuple((name, name) for name in shown.names))]
        else:
            assert isinstance(join.left, Windowed)
            left, left_inputs = self._leaf(join.left, read & left_names, left_keys, of_left)
        count = len(left_inputs)
        sides = (
            replace(left, inputs=tuple(range(count))),
            replace(right, inputs=tuple(range(count, count + len(right_inputs)))),
        )
        union = _union([left_inputs, right_inputs], join, operator_id)
        fields = [item for side in sides for item in side.stored if item.name in columns]
        condition = conjunction(tested) if tested else None
        grid = next((Grid(window.slide, window.anchor) for _, window in _sliding_windows(join)), None)
        shown, slot = Schema((*fields, _CHANGE if grid is None else _UNTIL)), slot_of_name(operator_id)
        spec = JoinSpec(operator_id, self.name, union.name, sides, condition, shown, slot, self.emits_first)
        paired = Paired(spec, join, grid)
        rule = first_of(OUTER_JOINS, paired)
        operator = rule.build(replace(paired, spec=replace(spec, rule=rule.name)))
        return (JoinStage(operator, union), *below)

    def _leaf(
        self,
        window: Windowed,
        stored: frozenset[str],
        keys: tuple[Expression, ...],
        factors: Sequence[Expression],
    ) -> tuple[Side, list[Input]]:
        """A source as a side, and its streams."""
        names = _own_names(window)
        alone = [*factors, *(factor for factor in self.filters if _alone(factor, names))]
        time = at_of(window.alias).name
        moment = (Field(time, BIGINT),) if time in stored else ()
        fields = Schema((*(item for item in window.source.schema if item.name in stored), *moment))
        changes = f"{window.alias}.{CHANGE}" if isinstance(window.window, Changing) else None
        reach, of_time = lookback(window.window), time if moment else None
        side = Side((), fields, _filters(alone), keys, reach, None, reach, changes, window.alias, of_time)
        return side, inputs(window)


def _filters(factors: Sequence[Expression]) -> tuple[RowFilter, ...]:
    return (RowFilter(conjunction(factors)),) if factors else ()


def _alone(factor: Expression, names: frozenset[str]) -> bool:
    """Whether a condition reads columns of one side, and no others."""
    return bool(columns_of(factor)) and columns_of(factor) <= names


def _union(sides: Sequence[Sequence[Input]], join: Join, operator_id: str) -> UnionStream:
    """The streams of both sides as one, of all columns."""
    scans = [node for node in walk(join) if isinstance(node, StreamScan | QueryScan | UnionAll)]
    inside = {id(member) for scan in scans if isinstance(scan, UnionAll) for member in scan.inputs}
    titles = [scan.name.lstrip("@") for scan in scans if id(scan) not in inside]
    return union_stream(sides, titles, operator_id)


def _never_fails(key: Expression) -> bool:
    """Whether a key has a value on every row: a row on which it failed would be rejected, and not kept."""
    if isinstance(key, Cast):
        widens = key.argument.type.is_integer and (key.type.is_integer or key.type == DOUBLE)
        return isinstance(key.argument, Column) and (key.safe or widens)
    return isinstance(key, Column)


def _equality(
    factor: Expression, left_names: frozenset[str], right_names: frozenset[str]
) -> tuple[Expression, Expression] | None:
    """(left key, right key) of an equality of the two sides."""
    if not (isinstance(factor, Call) and factor.function == "="):
        return None
    one, other = factor.arguments
    for left, right in ((one, other), (other, one)):
        if _alone(left, left_names) and _alone(right, right_names):
            return left, right
    return None

"""Shared joins, one join operator for several queries: what queries must have in common for it (their graph), the
operator, and each query's windows as conditions on its results.

A graph is what queries have in common: streams, keys, and the size classes of their windows, under names that do not
depend on their text. The shared join stores all columns of its sources, without conditions, under windows of the class. A
combination has its instant `at`, and the age of each of its rows at that instant: a reader's windows are conditions on
ages, and the combination ends for it at `at + least(range - age)`. See decision 31.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.algebra.expressions.expression import (
    Call,
    Column,
    Expression,
    Literal,
    conjunction,
    transform,
)
from headrace.algebra.expressions.expression_text import show
from headrace.algebra.query import StreamScan, UnionAll, Windowed
from headrace.algebra.windows.window import TimeRange, TimeSlide, Unbounded
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.window_join import AGE, AT_INSTANT
from headrace.planner.joins.join_graph import equalities, groups_of
from headrace.planner.joins.join_stage import (
    Input,
    Joined,
    JoinStage,
    built,
    hash_exactly,
    inputs,
    lookback,
    title,
    union_stream,
)
from headrace.schema import BIGINT, BOOLEAN, Field, Schema
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class Graph:
    """Windows that queries of one graph join, in an order of their own, each with its keys under shared names."""

    windows: tuple[Windowed, ...]
    keys: tuple[tuple[Expression, ...], ...]
    names: Mapping[str, str]
    """Column of the query → its shared name."""
    written: tuple[tuple[Expression, ...], ...]
    """The keys of each window as the query names them."""

    @property
    def signature(self) -> str:
        """A name that is equal for queries that can read one join."""
        sides = [
            (sources(window), key, self.columns(window), size_class(lookback(window.window)))
            for window, key in zip(self.windows, self.keys, strict=True)
        ]
        return hashlib.blake2b(repr(sides).encode(), digest_size=9).hexdigest()

    def columns(self, window: Windowed) -> Schema:
        """The columns of a source under their shared names."""
        fields = window.source.schema.fields
        return Schema(tuple(Field(self.names[field.name], field.type) for field in fields))

    def implied(self, factors: Sequence[Expression]) -> list[Expression]:
        """The conditions that the join has tested: those of its keys."""
        return list(equalities(self.written, factors))


def sources(window: Windowed) -> tuple[str, ...]:
    """The names of the streams of a source."""
    return tuple(name for name, _, _ in inputs(window))


def size_class(range_: Duration | None) -> Duration | None:
    """The range under which a shared join finds the combinations of a window: the next power of two."""
    return None if range_ is None else 1 << max(range_ - 1, 0).bit_length()


def graph_of(windows: Sequence[Windowed], factors: Sequence[Expression]) -> Graph | None:
    """The graph of joined windows under conditions; None where they share no key, or are not all of streams and time."""
    if not all(_is_shareable(window) for window in windows):
        return None
    names = [frozenset(window.source.schema.names) for window in windows]
    groups = groups_of(names, factors, binary=False)
    if len(groups) > 1 or not groups[0].keys[0]:
        return None
    return _in_shared_order([windows[source] for source in groups[0].sources], groups[0].keys)


def _is_shareable(window: Windowed) -> bool:
    scans = window.source.inputs if isinstance(window.source, UnionAll) else (window.source,)
    of_streams = all(isinstance(scan, StreamScan) and scan.channel == "rows" for scan in scans)
    return of_streams and isinstance(window.window, TimeRange | TimeSlide | Unbounded)


def _in_shared_order(windows: Sequence[Windowed], keys: Sequence[tuple[Expression, ...]]) -> Graph:
    """Windows by their streams and keys, and keys by their text: however the query was written."""
    plain = [
        [show(_renamed(key, _names(window, ""))) for key in own]
        for window, own in zip(windows, keys, strict=True)
    ]
    order = sorted(
        range(len(windows)), key=lambda index: (sources(windows[index]), sorted(plain[index]), index)
    )
    key_order = sorted(range(len(keys[0])), key=lambda place: [plain[index][place] for index in order])
    ordered = [windows[index] for index in order]
    names = {
        old: new for side, window in enumerate(ordered) for old, new in _names(window, f"s{side}.").items()
    }
    written = tuple(tuple(keys[index][place] for place in key_order) for index in order)
    shared = tuple(tuple(_renamed(key, names) for key in own) for own in written)
    return Graph(tuple(ordered), shared, names, written)


def _names(window: Windowed, prefix: str) -> dict[str, str]:
    return {name: prefix + name.removeprefix(f"{window.alias}.") for name in window.source.schema.names}


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    def column(node: Expression) -> Expression | None:
        return Column(names[node.name], node.type) if isinstance(node, Column) else None

    return transform(expression, column)


def shared_stage(graph: Graph, join_id: str) -> JoinStage:
    """The shared join of a graph."""
    sides: list[Side] = []
    streams: list[list[Input]] = []
    first = 0
    for number, (window, keys) in enumerate(zip(graph.windows, graph.keys, strict=True)):
        columns, range_ = graph.columns(window), size_class(lookback(window.window))
        streams.append(
            [
                (name, columns, tuple((column, graph.names[shown]) for column, shown in pairs))
                for name, _, pairs in inputs(window)
            ]
        )
        numbers = tuple(range(first, first + len(streams[-1])))
        first += len(numbers)
        sides.append(
            Side(numbers, columns, (), keys, range_, None, range_, name=f"s{number} ({title(window)})")
        )
    union = union_stream(streams, [title(window) for window in graph.windows], join_id)
    equal = [
        Call("=", (one, other), BOOLEAN)
        for key in zip(*graph.keys, strict=True)
        for one, other in pairwise(key)
    ]
    fields = [field for side in sides for field in side.stored]
    ages = [Field(f"{AGE}{number}", BIGINT) for number in range(len(sides))]
    spec = JoinSpec(
        join_id,
        " JOIN ".join(title(window) for window in graph.windows),
        union.name,
        tuple(sides),
        None if hash_exactly(graph.keys) else conjunction(equal),
        Schema((*fields, *ages, Field(AT_INSTANT, BIGINT))),
        slot_of_name(join_id),
        emits_first=True,
        signature=graph.signature,
    )
    return JoinStage(built(Joined(spec, None, shared=True)), union)


@dataclass(frozen=True, slots=True)
class Ages:
    """The windows of a reader as conditions on combinations of the shared join, whose alias is `pairs`."""

    graph: Graph
    pairs: str

    @property
    def _at(self) -> Column:
        return Column(f"{self.pairs}.{AT_INSTANT}", BIGINT)

    @property
    def _left(self) -> list[Expression]:
        """How much longer each row with an end holds, at the instant of the combination."""
        return [
            Call("-", (Literal(range_, BIGINT), self._age(number)), BIGINT)
            for number, range_ in enumerate(self._ranges)
            if range_ is not None
        ]

    @property
    def _ranges(self) -> list[Duration | None]:
        return [lookback(window.window) for window in self.graph.windows]

    def _age(self, number: int) -> Column:
        return Column(f"{self.pairs}.{AGE}{number}", BIGINT)

    @property
    def until(self) -> Expression:
        """The last instant of a combination; of windows of which one has an end."""
        left = self._left
        return Call(
            "+", (self._at, left[0] if len(left) == 1 else Call("least", tuple(left), BIGINT)), BIGINT
        )

    @property
    def conditions(self) -> list[Expression]:
        """Whether all windows hold the combination's rows at its instant; a row that only marks a beginning does not."""
        within: list[Expression] = [
            Call("<=", (self._age(number), Literal(range_, BIGINT)), BOOLEAN)
            for number, range_ in enumerate(self._ranges)
            if range_ is not None
        ]
        return within or [Call("isnotnull", (self._at,), BOOLEAN)]

    def ends_in(self, window: TimeSlide) -> Expression:
        """Whether a window ends after the instant of a combination, and not after its last one."""
        offset = Call("-", (self.until, Literal(window.anchor, BIGINT)), BIGINT)
        since_end = Call("pmod", (offset, Literal(window.slide, BIGINT)), BIGINT)
        return Call(">", (Call("-", (self.until, since_end), BIGINT), self._at), BOOLEAN)

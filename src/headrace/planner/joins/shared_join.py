"""Shared joins, one join operator for several queries: what queries must have in common for it (their graph), the
operator, and each query's windows as conditions on its results.

A graph is what queries have in common: streams and keys, under names that do not depend on their text. The shared join
stores all columns of its sources, under windows of size classes: powers of two that are not smaller than
its readers' windows; bare streams are stored as long as their conditions on time need them. The classes are in its name, with the
conditions that the queries registered with its founder have in common (`common_conditions`), if any. A
combination has its instant `at`, and the age of each of its rows at that instant: a reader's windows are conditions on
ages, and the combination ends for it at `at + least(range - age)`. See decisions 31 and 66.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from headrace.algebra.expressions.expression import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjunction,
    transform,
)
from headrace.algebra.expressions.expression_text import show
from headrace.algebra.query import StreamScan, UnionAll, Windowed
from headrace.algebra.windows.window import TimeRange, TimeSlide, Unbounded
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.joins.join_side import JoinSpec, Side, hash_exactly
from headrace.operators.joins.window_join import AGE, AT_INSTANT
from headrace.planner.joins.common_conditions import (
    NONE,
    Conditions,
    common,
    conditions_in,
    conditions_of,
    filters_of,
    is_word,
    written_in,
)
from headrace.planner.joins.join_graph import equalities, groups_of
from headrace.planner.joins.join_stage import (
    Input,
    Joined,
    JoinStage,
    built,
    inputs,
    lookback,
    stored_for,
    title,
    union_stream,
)
from headrace.schema import BIGINT, BOOLEAN, Field, Schema
from headrace.time import Duration

SizeClasses: TypeAlias = tuple[int | None, ...]
"""For each side the exponent of the power of two that is its range, in microseconds; None without end."""
_APART: Final = "_"
FEWEST_ALIKE: Final = 8
"""Queries that are registered together from which on the join that they found requires what they have in common."""
_ENDLESS: Final = "n"


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
    def classes(self) -> SizeClasses:
        """Those of its windows."""
        return tuple(size_class(stored_for(window.window)) for window in self.windows)

    @property
    def signature(self) -> str:
        """A name that is equal for queries that can read one join, whatever their ranges, and the size classes of its windows."""
        sides = [
            (sources(window), key, self.columns(window))
            for window, key in zip(self.windows, self.keys, strict=True)
        ]
        digest = hashlib.blake2b(repr(sides).encode(), digest_size=9).hexdigest()
        return with_classes(digest, self.classes)

    def columns(self, window: Windowed) -> Schema:
        """The columns of a source under their shared names."""
        fields = window.source.schema.fields
        return Schema(tuple(Field(self.names[field.name], field.type) for field in fields))

    @property
    def sides(self) -> list[Schema]:
        """The columns of each source."""
        return [self.columns(window) for window in self.windows]

    def shared(self, factors: Sequence[Expression]) -> list[Expression]:
        """Conditions under shared names."""
        return [named for factor in factors if (named := _renamed_if_known(factor, self.names)) is not None]

    def conditions(self, factors: Sequence[Expression]) -> Conditions:
        """What a query with these conditions requires of single rows."""
        return conditions_of(self.sides, self.shared(factors))

    def implied(self, factors: Sequence[Expression], join: str) -> list[Expression]:
        """The conditions that the join of this name has tested: those of its keys, and those in its name."""
        tested, required = list(equalities(self.written, factors)), required_by(join)
        if required.written:
            shared = self.shared(factors)
            written = [test for side in self.sides for test in written_in(required, side, shared)]
            tested += [factor for factor in factors if _renamed_if_known(factor, self.names) in written]
        return tested


def sources(window: Windowed) -> tuple[str, ...]:
    """The names of the streams of a source."""
    return tuple(name for name, _, _ in inputs(window))


def size_class(range_: Duration | None) -> int | None:
    """The class of the range under which a shared join finds the combinations of a window: the next power of two."""
    return None if range_ is None else max(range_ - 1, 0).bit_length()


def with_classes(name: str, classes: SizeClasses) -> str:
    """A name, and the size classes of windows."""
    return _APART.join([name, *(_ENDLESS if class_ is None else str(class_) for class_ in classes)])


def classes_in(name: str) -> SizeClasses:
    """The size classes in a name; earlier versions had shared joins without."""
    _, *words = name.split(_APART)
    return tuple(None if word == _ENDLESS else int(word) for word in words if not is_word(word))


def required_by(name: str) -> Conditions:
    """What the name of a shared join, or its signature, requires of its rows."""
    _, *words = name.split(_APART)
    return conditions_in([word for word in words if is_word(word)])


def requiring(name: str, conditions: Conditions) -> str:
    """A name with conditions."""
    return _APART.join([name, *conditions.words])


def read_under(signature: str, join: str) -> str:
    """The signature of the join that a query with this one reads."""
    classes = classes_in(join) or classes_in(signature)
    return requiring(with_classes(_digest(signature), classes), required_by(join))


def restricted(name: str, readers: Sequence[Conditions], signature: str, known: Mapping[str, str]) -> str:
    """The name of a new join with what its first readers have in common, if there are several.

    A graph has one such join for the same classes: queries that it does not cover share one of all rows.
    """
    if len(readers) < FEWEST_ALIKE or not (conditions := common(readers)):
        return name
    others = (other for other in known if with_classes(_digest(other), classes_in(other)) == signature)
    return name if any(map(required_by, others)) else requiring(name, conditions)


def covering(
    signature: str, known: Mapping[str, str], conditions: Callable[[], Conditions] = lambda: NONE
) -> tuple[str, str] | None:
    """The join of the smallest classes that cover those of a signature and are at most twice as wide: its signature and its name.

    It requires no more than the query with these `conditions`.
    `known` are the joins of all signatures, without a name those of single queries. Of one of these with the same classes the
    name is empty, and the signature is that of a shared join to be founded; of one with neighbouring classes too, and the shared
    join is for both. None without such a join.
    """
    of_query, digest = classes_in(signature), _digest(signature)
    alike = [other for other in known if _digest(other) == digest]
    shared = [
        other
        for other in alike
        if known[other]
        and (not (required := required_by(other)) or required.covers(conditions()))
        and (other == signature or (classes_in(known[other]) and _covers(classes_in(other), of_query)))
    ]
    if shared:
        least = min(shared, key=lambda other: (_width(classes_in(other)), not required_by(other)))
        return least, known[least]
    if any(classes_in(other) == of_query for other in alike):
        return signature, ""
    both = [wider for other in alike if (wider := _for_both(classes_in(other), of_query)) is not None]
    return (with_classes(digest, min(both, key=_width)), "") if both else None


def _width(classes: SizeClasses) -> tuple[int, str]:
    return sum(filter(None, classes)), str(classes)


def _digest(signature: str) -> str:
    return signature.partition(_APART)[0]


def _covers(classes: SizeClasses, of_query: SizeClasses) -> bool:
    """Whether all classes are as wide as a query's own, or the next wider ones."""
    return all(
        one == other if one is None or other is None else 0 <= one - other <= 1
        for one, other in zip(classes, of_query, strict=True)
    )


def _for_both(classes: SizeClasses, of_query: SizeClasses) -> SizeClasses | None:
    """The next classes after the narrower ones of each side, where the others are no wider: for windows on both sides of a bound."""
    narrow = [
        None if one is None or other is None else min(one, other)
        for one, other in zip(classes, of_query, strict=True)
    ]
    wider = tuple(None if one is None else one + 1 for one in narrow)
    return wider if _covers(wider, classes) and _covers(wider, of_query) else None


def graph_of(windows: Sequence[Windowed], factors: Sequence[Expression]) -> Graph | None:
    """The graph of joined windows under conditions; None where they share no key, or are not all of streams and time.

    Two windows without any condition have one too: each query makes all pairs anyway.
    """
    if not all(_is_shareable(window) for window in windows):
        return None
    names = [frozenset(window.source.schema.names) for window in windows]
    groups = groups_of(names, factors, binary=False)
    if len(groups) > 1 or (factors and not groups[0].keys[0]):
        return None
    return _in_shared_order([windows[source] for source in groups[0].sources], groups[0].keys)


def _is_shareable(window: Windowed) -> bool:
    scans = window.source.inputs if isinstance(window.source, UnionAll) else (window.source,)
    of_streams = all(isinstance(scan, StreamScan) and scan.channel == "rows" for scan in scans)
    return of_streams and isinstance(window.window, TimeRange | TimeSlide | Unbounded)


def _in_shared_order(windows: Sequence[Windowed], keys: Sequence[tuple[Expression, ...]]) -> Graph:
    """Windows by their streams and keys, and keys by their text: however the query was written."""
    plain = [
        [show(_renamed(key, _names(window, ""))) for key in window_keys]
        for window, window_keys in zip(windows, keys, strict=True)
    ]
    order = sorted(
        range(len(windows)), key=lambda index: (sources(windows[index]), sorted(plain[index]), index)
    )
    key_order = sorted(range(len(keys[0])), key=lambda position: [plain[index][position] for index in order])
    ordered = [windows[index] for index in order]
    names = {
        old: new for side, window in enumerate(ordered) for old, new in _names(window, f"s{side}.").items()
    }
    written = tuple(tuple(keys[index][position] for position in key_order) for index in order)
    shared = tuple(tuple(_renamed(key, names) for key in window_keys) for window_keys in written)
    return Graph(tuple(ordered), shared, names, written)


def _names(window: Windowed, prefix: str) -> dict[str, str]:
    return {name: prefix + name.removeprefix(f"{window.alias}.") for name in window.source.schema.names}


def _renamed_if_known(expression: Expression, names: Mapping[str, str]) -> Expression | None:
    return _renamed(expression, names) if columns_of(expression) <= names.keys() else None


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    def column(node: Expression) -> Expression | None:
        return Column(names[node.name], node.type) if isinstance(node, Column) else None

    return transform(expression, column)


def shared_stage(graph: Graph, join_id: str, factors: Sequence[Expression]) -> JoinStage:
    """The shared join of a graph, under windows of the size classes in its name; `factors` are those of any reader."""
    sides: list[Side] = []
    streams: list[list[Input]] = []
    first = 0
    classes = classes_in(join_id) or graph.classes
    required = required_by(join_id)
    filters = filters_of(graph.sides, required, graph.shared(factors) if required.written else ())
    for number, (window, keys) in enumerate(zip(graph.windows, graph.keys, strict=True)):
        columns, class_ = graph.columns(window), classes[number]
        range_ = None if class_ is None else 1 << class_
        streams.append(
            [
                (name, columns, tuple((column, graph.names[shown]) for column, shown in pairs))
                for name, _, pairs in inputs(window)
            ]
        )
        numbers = tuple(range(first, first + len(streams[-1])))
        first += len(numbers)
        sides.append(
            Side(
                numbers,
                columns,
                filters[number],
                keys,
                range_,
                None,
                range_,
                name=f"s{number} ({title(window)})",
            )
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
        None if hash_exactly(graph.keys) or not equal else conjunction(equal),
        Schema((*fields, *ages, Field(AT_INSTANT, BIGINT))),
        slot_of_name(join_id),
        emits_first=True,
        signature=read_under(graph.signature, join_id),
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

"""Random queries for the laws: the queries that every operator must answer rightly, over the histories of `streams`.

They are built as algebra values over one schema, so that no parser is between a law and what it tests.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import (
    BY_ANOTHER,
    BY_ORDER,
    OF_BITS,
    OF_PAIRS,
    OF_SHAPE,
    AggregateCall,
    NamedAggregate,
    result_type,
)
from headrace.algebra.expressions.expression import Call, Cast, Column, Constants, Expression, Literal, Named
from headrace.algebra.expressions.series import chosen, pair, placed, timed
from headrace.algebra.query import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Query,
    RelationScan,
    SortKey,
    StreamScan,
    Top,
    Windowed,
)
from headrace.algebra.windows.user_code import Code
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    Numbering,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
    Window,
    slides,
)
from headrace.examples.windows import Shifts
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, INT, STRING, Type
from tests.laws.kinds import TICK, Lasting, Striped
from tests.laws.streams import NAMES, SCHEMA

SCAN = StreamScan("s", "s", SCHEMA, "at")


def column(name: str) -> Column:
    """A column of `s`."""
    return Column(f"s.{name}", SCHEMA.field(name).type)


def literal(value: Any, kind: Type) -> Literal:
    """A constant."""
    return Literal(value, kind)


def call(function: str, *arguments: Expression, kind: Type = BOOLEAN) -> Call:
    """A function of the table; a comparison unless `kind` is another."""
    return Call(function, arguments, kind)


def time_slides() -> st.SearchStrategy[TimeSlide]:
    """Dividing and non-dividing slides, slide above range, an origin, odd microseconds."""
    return st.builds(
        TimeSlide,
        st.sampled_from((1, 2, 3, 5, 9, 10)).map(lambda n: n * TICK),
        st.sampled_from((1, 2, 3, 4, 6, 10, 13)).map(lambda n: n * TICK),
        st.sampled_from((0, 0, TICK, -7 * TICK, TICK // 3)),
    )


def sliding_windows() -> st.SearchStrategy[Window]:
    """Windows that are streamed once each."""
    landmark = st.builds(
        Landmark, st.sampled_from((1, 4, 7)).map(lambda n: n * TICK), st.sampled_from((0, TICK // 2))
    )
    return st.one_of(
        time_slides(), time_slides(), landmark, rows_slides(), tuple_slides(), deltas(), sessions()
    )


def partitions() -> st.SearchStrategy[tuple[Expression, ...]]:
    """No partition, by `k`, or by two columns."""
    return st.sampled_from(((), (column("k"),), (column("k"), column("g"))))


def rows_slides() -> st.SearchStrategy[RowsSlide]:
    """`[ROWS n SLIDE m]`, with n below, at and above m."""
    return st.builds(RowsSlide, st.integers(1, 5), st.integers(1, 5), partitions(), numberings())


def numberings() -> st.SearchStrategy[Numbering]:
    """By stream order or by arrival."""
    return st.sampled_from(("rank", "row_num"))


def tuple_slides() -> st.SearchStrategy[TupleSlide]:
    """`[RANGE r SLIDE n ROWS]`, from windows shorter than a tick to windows of everything."""
    lengths = st.sampled_from((1, 2, TICK, 2 * TICK, 5 * TICK, 100 * TICK))
    return st.builds(TupleSlide, lengths, st.integers(1, 4), partitions(), numberings())


def deltas() -> st.SearchStrategy[Delta]:
    """`[DELTA d ON x]` of an integer and of a double, with NULLs and NaNs."""
    measured = st.sampled_from((Cast(column("x"), DOUBLE), column("y"), Cast(column("g"), DOUBLE)))
    return st.builds(Delta, st.sampled_from((0.0, 1.0, 2.5, 10.0)), measured, partitions())


def sessions() -> st.SearchStrategy[Session]:
    """Gaps below, at and above the distance of rows; rows exactly a gap after another are common."""
    return st.builds(Session, st.sampled_from((1, TICK, TICK, 2 * TICK, 5 * TICK, 100 * TICK)), partitions())


def user_windows() -> st.SearchStrategy[Custom]:
    """`[WINDOW …]` of three classes: linear bounds, rows that do not follow each other, and by a column's value."""
    number = st.integers(1, 6).map(lambda n: Literal(n, BIGINT))
    scaled = st.sampled_from((TICK // 2, TICK, 2 * TICK, 3 * TICK)).map(lambda n: Literal(n, BIGINT))
    return st.one_of(
        st.builds(lambda a, b: Custom("shifts", (a, b), Code(pickle.dumps(Shifts))), scaled, scaled),
        st.builds(
            lambda step, n: Custom("cumulate", (Literal(step, BIGINT), Literal(n * step, BIGINT))),
            st.sampled_from((TICK, 2 * TICK)),
            st.integers(1, 4),
        ),
        st.builds(lambda n: Custom("striped", (n,), Code(pickle.dumps(Striped))), number),
        st.builds(
            lambda n, on: Custom("lasting", (n,), Code(pickle.dumps(Lasting)), (on,)),
            number,
            st.sampled_from((column("x"), Cast(column("g"), BIGINT))),
        ),
    )


def instant_windows() -> st.SearchStrategy[Window]:
    """Windows that hold something at every instant."""
    return st.one_of(
        st.builds(TimeRange, st.sampled_from((0, 1, TICK, 3 * TICK, 10 * TICK))),
        st.just(Unbounded()),
        st.builds(Rows, st.integers(1, 5), partitions()),
    )


def predicates() -> st.SearchStrategy[Expression]:
    """Conditions on the stream's own columns, three-valued where columns are NULL."""
    number = st.builds(
        lambda name, op, value: call(
            op,
            column("x" if name else "y"),
            literal(value if name else float(value), BIGINT if name else DOUBLE),
        ),
        st.booleans(),
        st.sampled_from(("=", "<>", "<", "<=", ">", ">=")),
        st.integers(-3, 6),
    )
    text = st.sampled_from(
        (
            call("=", column("k"), literal("a", STRING)),
            call("in", column("k"), literal("b", STRING), literal("c", STRING)),
            call("isnull", column("g")),
            call("not", call("=", column("g"), literal(1, INT))),
            call("in", column("x"), Constants.of(pa.array(range(0, 80, 2), pa.int64()), BIGINT)),
            call("in", column("x"), Constants.of(pa.array([None, *range(1, 80, 2)], pa.int64()), BIGINT)),
        )
    )
    simple = st.one_of(number, number, text)
    both = st.builds(
        lambda op, parts: Call(op, tuple(parts), BOOLEAN),
        st.sampled_from(("and", "or")),
        st.lists(simple, min_size=2, max_size=3),
    )
    return st.one_of(simple, simple, both)


def measures(function: str) -> st.SearchStrategy[Expression | None]:
    """Arguments that fit an aggregate function; `x * 3` and a cast are there to have something to compute."""
    tripled = call("*", column("x"), literal(3, BIGINT), kind=BIGINT)
    numbers: tuple[Expression, ...] = (
        column("x"),
        column("y"),
        column("g"),
        tripled,
        Cast(column("g"), DOUBLE),
    )
    if function == "heavy_hitters":
        return st.sampled_from((column("k"), column("g"), column("x")))
    if function == "count":
        return st.sampled_from((None, column("k"), column("y"), column("x")))
    if function in OF_BITS:
        return st.sampled_from((column("x"), column("g"), tripled))
    return st.sampled_from(
        (*numbers, column("k"), column("at")) if function in ("min", "max", "mode") else numbers
    )


SERIES = (*OF_PAIRS, *OF_SHAPE, *BY_ORDER, *BY_ANOTHER, *BY_ANOTHER, "ewma", "ewma")
"""Statistics of time series."""


def series_arguments(function: str) -> st.SearchStrategy[Expression]:
    """What they take; small numbers, since products of large deviations cancel to rounding, but for a NaN or infinity."""
    small = Cast(call("%", column("x"), literal(21, BIGINT), kind=BIGINT), DOUBLE)
    tenths = call("*", Cast(column("g"), DOUBLE), literal(0.1, DOUBLE), kind=DOUBLE)
    capped = call("least", column("y"), literal(50.0, DOUBLE), kind=DOUBLE)
    if function in BY_ORDER:
        return st.sampled_from([placed(column(name), "s") for name in SCHEMA.names])
    if function in BY_ANOTHER:
        columns = st.sampled_from([column(name) for name in SCHEMA.names])
        return st.builds(chosen, columns, columns)
    if function == "ewma":
        return st.sampled_from([timed(value, "s") for value in (small, tenths, capped)])
    if function in OF_SHAPE:
        return st.sampled_from((small, tenths, capped))
    pairs = ((small, tenths), (tenths, small), (capped, tenths), (small, capped), (tenths, tenths))
    return st.sampled_from([pair(*operands) for operands in pairs])


@st.composite
def aggregate_calls(draw: st.DrawFn) -> AggregateCall:
    """An aggregate of an argument, sometimes DISTINCT, sometimes with FILTER (WHERE ...)."""
    function = draw(
        st.sampled_from(
            (
                *("count", "count", "sum", "avg", "min", "max", "var_samp", "var_pop"),
                *("stddev_samp", "stddev_pop", *OF_BITS, "percentile", "mode", "heavy_hitters"),
                *("series", "series", "series"),
            )
        )
    )
    if function == "series":
        return draw(series_calls())
    argument = draw(measures(function))
    distinct = (
        function in ("count", "sum", "percentile", *OF_BITS) and argument is not None and draw(st.booleans())
    )
    condition = draw(st.one_of(st.none(), st.none(), predicates()))
    kind = result_type(function, None if argument is None else argument.type)
    share = draw(st.sampled_from((0.0, 0.25, 0.5, 0.9, 1.0))) if function == "percentile" else None
    if function == "heavy_hitters":
        share = draw(st.sampled_from((0.01, 0.25, 0.5, 1.0)))
    return AggregateCall(function, argument, kind, distinct, condition, share=share)


@st.composite
def series_calls(draw: st.DrawFn) -> AggregateCall:
    """A statistic of time series, sometimes with FILTER (WHERE ...)."""
    function = draw(st.sampled_from(SERIES))
    argument = draw(series_arguments(function))
    condition = draw(st.one_of(st.none(), st.none(), predicates()))
    half_life = draw(st.sampled_from((TICK // 2, 3 * TICK, 1000 * TICK))) if function == "ewma" else None
    kind = result_type(function, argument.type)
    return AggregateCall(function, argument, kind, condition=condition, half_life=half_life)


@dataclass(frozen=True, slots=True)
class Shape:
    """Which parts a generated query may have."""

    joins: bool = True
    top: bool = True
    distinct: bool = True
    having: bool = True
    emits: bool = True


ANYTHING = Shape()


@st.composite
def _inputs(draw: st.DrawFn, window: Window, shape: Shape) -> Node:
    source: Node = SCAN
    if draw(st.integers(0, 4)) == 0:
        source = Filter(source, draw(predicates()))
    node: Node = Windowed(source, "s", window)
    if draw(st.booleans()):
        node = Filter(node, draw(predicates()))
    if shape.joins and draw(st.integers(0, 5)) == 0:
        names = RelationScan("names", "names", NAMES)
        same = call("=", column("g"), Column("names.id", INT))
        node = Join(node, names, draw(st.sampled_from(("inner", "left"))), same)
    return node


@st.composite
def _grouped(draw: st.DrawFn, source: Node, window: Window, shape: Shape) -> Node:
    keys = tuple(
        Named(name, column(name)) for name in draw(st.sampled_from(((), ("k",), ("g",), ("y",), ("k", "g"))))
    )
    calls = draw(st.lists(aggregate_calls(), min_size=0 if keys else 1, max_size=3))
    aggregates = tuple(NamedAggregate(f"a{number}", item) for number, item in enumerate(calls))
    node: Node = Aggregate(source, keys, aggregates)
    counts = [item for item in aggregates if item.call.function == "count"]
    if shape.having and counts and draw(st.booleans()):
        node = Filter(
            node, call(">", Column(counts[0].name, BIGINT), literal(draw(st.integers(0, 2)), BIGINT))
        )
    bounds = [f"s.window_{end}" for end in ("start", "end")] if slides(window) and draw(st.booleans()) else []
    names = [key.name for key in keys] + [item.name for item in aggregates] + bounds
    return _projected(node, names)


def _projected(node: Node, names: Iterable[str]) -> Project:
    """The named columns, under their last names."""
    fields = {field.name: field for field in node.schema}
    return Project(
        node, tuple(Named(name.rpartition(".")[2], Column(name, fields[name].type)) for name in names)
    )


@st.composite
def queries(
    draw: st.DrawFn, windows: st.SearchStrategy[Window] | None = None, shape: Shape = ANYTHING
) -> Query:
    """A query over one window of `s`, with the emission its window implies."""
    window = draw(st.one_of(sliding_windows(), instant_windows()) if windows is None else windows)
    source = draw(_inputs(window, shape))
    if draw(st.integers(0, 2)):
        node = draw(_grouped(source, window, shape))
    else:
        chosen = draw(
            st.lists(st.sampled_from(("k", "g", "x", "y", "at")), min_size=1, max_size=3, unique=True)
        )
        node = _projected(source, [f"s.{name}" for name in chosen])
    if shape.distinct and draw(st.integers(0, 4)) == 0:
        node = Distinct(node)
    if shape.top and draw(st.integers(0, 4)) == 0:
        node = draw(_topped(node))
    return _as_query(draw, node, window, shape)


@st.composite
def _topped(draw: st.DrawFn, node: Node) -> Top:
    field = draw(st.sampled_from(list(node.schema)))
    descending = draw(st.booleans())
    key = SortKey(Column(field.name, field.type), descending, nulls_first=draw(st.booleans()))
    return Top(node, (key,), draw(st.one_of(st.none(), st.integers(0, 3))))


def _as_query(draw: st.DrawFn, node: Node, window: Window, shape: Shape) -> Query:
    sliding = slides(window)
    kinds = ["istream", "dstream"] + (["rstream"] if sliding or window == TimeRange(0) else [])
    kind = draw(st.sampled_from([None, None, *kinds])) if shape.emits else None
    if kind is not None:
        node = Emit(node, kind)
    empty = sliding and draw(st.booleans())
    return Query(node, "windows" if sliding else "relation" if kind is None else "stream", emit_empty=empty)


def window_queries(shape: Shape = ANYTHING) -> st.SearchStrategy[Query]:
    """Queries whose windows slide."""
    return queries(sliding_windows(), shape)


def relation_queries() -> st.SearchStrategy[Query]:
    """Queries with an answer at every instant."""
    return queries(instant_windows(), Shape(emits=False))


def bare_streams() -> st.SearchStrategy[Query]:
    """Filters and projections of a bare stream: its rows, streamed at commit."""

    def build(predicate: Expression | None, names: list[str]) -> Query:
        window: Node = Windowed(SCAN, "s", Unbounded())
        node = window if predicate is None else Filter(window, predicate)
        return Query(_projected(node, [f"s.{name}" for name in names]), "stream")

    names = st.lists(st.sampled_from(("k", "g", "x", "y", "at")), min_size=1, max_size=5, unique=True)
    return st.builds(build, st.one_of(st.none(), predicates()), names)

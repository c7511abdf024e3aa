"""Many windows over the same rows and groups fold them once, and each answers as it does alone (law 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Cast, Column, Expression, Named
from headrace.algebra.query import Aggregate, Filter, Node, Query, Windowed
from headrace.algebra.windows.window import Landmark, TimeSlide, Window
from headrace.operators.base.batch import Batch, EventTimes
from headrace.operators.base.operator import Advance, Operator
from headrace.operators.families.cohort import cohorts
from headrace.operators.families.family import QueryRowCounts, state_name
from headrace.operators.families.scan_output import ScanOutput, gathered
from headrace.operators.panes.panes import Panes
from headrace.operators.rows.row_pipeline import LookupJoin, RowFilter
from headrace.operators.sharing import scan_sharing as foldings_of
from headrace.operators.sharing import shared_panes
from headrace.operators.sharing.scan_sharing import Unshared, scan_groups
from headrace.operators.sharing.shared_panes import SharedPanes, common_panes
from headrace.operators.sharing.shared_predicates import SharedPredicates
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.reference.history import StreamRow
from headrace.schema import BIGINT, DOUBLE, STRING, Field, Schema
from headrace.time import BEGINNING, DAY, FOREVER, SECOND
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import batch, plain
from tests.laws.strategies import SCAN, SCHEMA, TICK, column, literal


def windows() -> st.SearchStrategy[Window]:
    return st.one_of(
        some.time_slides(), st.builds(Landmark, st.sampled_from((TICK, 4 * TICK)), st.just(TICK // 2))
    )


@st.composite
def together(draw: st.DrawFn) -> list[Query]:
    """Queries that differ in windows and aggregates only."""
    where = draw(st.one_of(st.none(), some.predicates()))
    keys = tuple(Named(name, column(name)) for name in draw(st.sampled_from(((), ("k",), ("k", "g")))))
    queries = []
    for _ in range(draw(st.integers(2, 4))):
        calls = draw(st.lists(some.aggregate_calls(), min_size=1, max_size=3))
        queries.append(query(draw(windows()), where, keys, calls))
    return queries


def query(
    window: Window, where: Expression | None, keys: tuple[Named, ...], calls: Sequence[AggregateCall]
) -> Query:
    node: Node = Windowed(SCAN, "s", window)
    if where is not None:
        node = Filter(node, where)
    named = tuple(NamedAggregate(f"a{index}", call) for index, call in enumerate(calls))
    node = Aggregate(node, keys, named)
    shown = [*(key.name for key in keys), *(item.name for item in named), "s.window_end"]
    return Query(some._projected(node, shown), "windows")


def rows(drawn: Sequence[dict[str, Any]]) -> Batch:
    return batch([StreamRow(row, row["at"], index) for index, row in enumerate(drawn)], SCHEMA)


def harvested(
    operators: Sequence[Operator], batches: Sequence[Batch], relations: Mapping[str, pa.Table] | None = None
) -> ScanOutput:
    groups = scan_groups(operators, relations or {})
    for batch_ in batches:
        for scan_group in groups if batch_.rows else ():
            scan_group.add(batch_)
    output = ScanOutput()
    for scan_group in groups:
        output.join(scan_group.finish())
    return output


def answers(operators: Sequence[Operator], queries: Sequence[Query], output: ScanOutput) -> list[Any]:
    advance = Advance(BEGINNING, FOREVER, 100 * TICK, final=True)
    answered = []
    for operator, wanted in zip(operators, queries, strict=True):
        prefix = f"{state_name(operator)}/"
        deltas = {
            section.removeprefix(prefix): gathered(tables)
            for section, tables in output.sections.items()
            if section.startswith(prefix)
        }
        if operator.family_key is None:
            results = operator.advance([], [deltas], advance).results
        else:
            assert isinstance(operator, PaneAggregate)
            ((cohort, _),) = cohorts([operator], {operator.id: advance})
            mine = {name: cohort.only(table, QueryRowCounts.of(table)) for name, table in deltas.items()}
            mine = {name: table for name, table in mine.items() if table.num_rows}
            results = cohort.advance([], [mine], advance).steps[operator.id].results
        answered.append(canonical(plain(results, wanted)))
    return answered


def counted(output: ScanOutput) -> dict[str, tuple[int, int]]:
    return {name: (scanned.rows_in, scanned.rows_kept) for name, scanned in output.scanned.items()}


@given(queries=together(), drawn=st.lists(streams.rows(), min_size=1, max_size=2), cheap=st.booleans())
def test_each_answers_together_as_alone(queries: list[Query], drawn: list[Any], cheap: bool) -> None:
    operators = [lower(f"q{index}", asked, f"q{index}") for index, asked in enumerate(queries)]
    batches = [rows(epoch) for epoch in drawn]
    alone = ScanOutput()
    for operator in operators:
        alone.join(harvested([operator], batches))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_panes, "_LEAST_GAIN", 0 if cheap else 4)
        shared = harvested(operators, batches)
    assert answers(operators, queries, shared) == answers(operators, queries, alone)
    assert counted(shared) == counted(alone)


def test_queries_that_differ_in_windows_only_are_folded_by_one_scanner() -> None:
    keys = (Named("k", column("k")),)
    count = [AggregateCall("count", None, BIGINT)]
    slides = [TimeSlide(9 * TICK, 3 * TICK), TimeSlide(4 * TICK, TICK), Landmark(TICK)]
    same = [lower(f"q{n}", query(window, None, keys, count), f"q{n}") for n, window in enumerate(slides)]
    other = lower("other", query(slides[0], some.call("isnull", column("g")), keys, count), "other")
    groups = scan_groups([*same, other], {})
    assert len(groups) == 2
    assert {type(group) for group in groups} == {SharedPanes, Unshared}


def test_an_expression_that_fails_for_one_query_leaves_the_others_whole() -> None:
    keys = (Named("k", column("k")),)
    fine = query(TimeSlide(4 * TICK, TICK), None, keys, [AggregateCall("count", None, BIGINT)])
    quotient = some.call("/", column("y"), column("y"), kind=DOUBLE)
    failing = query(TimeSlide(6 * TICK, TICK), None, keys, [AggregateCall("sum", quotient, DOUBLE)])
    operators = [lower("fine", fine, "fine"), lower("failing", failing, "failing")]
    values = [{"k": "a", "g": 1, "x": n, "y": float(n), "at": n * TICK} for n in range(3)]
    output = harvested(operators, [rows(values)])
    assert sum(rejection.rows for rejection in output.scanned["failing"].rejected) == 1
    assert not output.scanned["fine"].rejected
    assert counted(output) == {"fine": (3, 3), "failing": (3, 2)}


@given(
    combs=st.lists(some.time_slides(), min_size=1, max_size=3),
    at=st.lists(st.integers(-50 * SECOND, 50 * SECOND), min_size=1, max_size=20),
    most=st.sampled_from((1, 4096)),
)
def test_a_common_pane_lies_within_one_pane_of_every_window(
    combs: list[TimeSlide], at: list[int], most: int
) -> None:
    panes = [Panes.of(comb) for comb in combs]
    instants = np.array(at, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_panes, "_MOST_GRID", most)
        places, starts = common_panes(panes, EventTimes.of(instants))
    assert (starts[places] <= instants).all()
    for comb_panes in panes:
        assert (comb_panes.of_instants(starts[places]) == comb_panes.of_instants(instants)).all()


def test_rows_that_lie_centuries_apart_cost_their_own_panes_only() -> None:
    """An absurd event time among others: 6 · 10^15 panes of a microsecond and more are between these."""
    combs = [Panes.of(TimeSlide(*comb)) for comb in ((1, 1), (3, 2), (60 * SECOND, 7 * SECOND))]
    instants = np.array([0, -200 * 365 * DAY, 5, 4, 5], np.int64)
    places, starts = common_panes(combs, EventTimes.of(instants))
    assert starts[places].tolist() == instants.tolist()
    assert len(starts) == 4


def test_a_predicate_of_its_own_keeps_a_query_apart() -> None:
    keys = (Named("k", column("k")),)
    count = [AggregateCall("count", None, BIGINT)]
    operators = [
        lower(
            f"q{limit}",
            query(TimeSlide(TICK, TICK), some.call(">", column("x"), literal(limit, BIGINT)), keys, count),
            f"q{limit}",
        )
        for limit in (1, 2)
    ]
    table = rows([{"k": "a", "g": 1, "x": 2, "y": 0.0, "at": 0}])
    assert counted(harvested(operators, [table])) == {"q1": (1, 1), "q2": (1, 0)}


@st.composite
def many(draw: st.DrawFn) -> list[Query]:
    """Queries of any condition, window and aggregate with the same grouping."""
    keys = tuple(Named(name, column(name)) for name in draw(st.sampled_from(((), ("k",), ("k", "g")))))
    queries = []
    for _ in range(draw(st.integers(2, 6))):
        where = draw(st.one_of(st.none(), some.predicates(), st.just(_QUOTIENT)))
        calls = draw(st.lists(some.aggregate_calls(), min_size=1, max_size=2))
        queries.append(query(draw(windows()), where, keys, calls))
    return queries


_QUOTIENT = some.call(">", some.call("/", literal(1, BIGINT), column("x"), kind=DOUBLE), literal(0.0, DOUBLE))
"""A condition that fails on some rows."""


@given(queries=many(), drawn=st.lists(streams.rows(), min_size=1, max_size=2))
def test_many_conditions_fold_together_as_each_alone(queries: list[Query], drawn: list[Any]) -> None:
    operators = [lower(f"q{index}", asked, f"q{index}") for index, asked in enumerate(queries)]
    batches = [rows(epoch) for epoch in drawn]
    alone = ScanOutput()
    for operator in operators:
        alone.join(harvested([operator], batches))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", 0)
        assert any(
            isinstance(group, SharedPredicates | SharedPanes) for group in scan_groups(operators, {})
        ) or any(group.grouped.distinct_arguments or group.panes.has_gaps for group in operators)
        shared = harvested(operators, batches)
    assert answers(operators, queries, shared) == answers(operators, queries, alone)
    assert counted(shared) == counted(alone)
    assert refused(shared) == refused(alone)


NAMES = Schema((Field("k", STRING), Field("label", BIGINT)))
RELATIONS = {
    "names": pa.table(
        {"k": ["a", "a", "b", None], "label": [0, 2, 2, 3]}, schema=pa.schema(list(NAMES.arrow()))
    )
}
LABEL, K, X = Column("r.label", BIGINT), Column("k", STRING), Column("x", BIGINT)
ON_LABEL = [
    some.call(">", LABEL, literal(1, BIGINT)),
    some.call("isnull", LABEL),
    some.call("=", LABEL, X),
    some.call(">", some.call("/", literal(1, BIGINT), LABEL, kind=DOUBLE), literal(0.4, DOUBLE)),
]


@st.composite
def joins(draw: st.DrawFn) -> LookupJoin:
    """A look-up with and without rows that have no pair, pairs by a condition, and a key that may fail."""
    key = draw(st.sampled_from([K, K, _FAILING_KEY]))
    residual = draw(st.sampled_from([None, some.call("<>", LABEL, X)]))
    return LookupJoin("names", "r", NAMES, (key,), (K,), residual, draw(st.booleans()))


_FAILING_KEY = Cast(some.call("/", X, X, kind=DOUBLE), STRING)


@st.composite
def joined(draw: st.DrawFn) -> tuple[list[Query], list[PaneAggregate]]:
    """Aggregates of few shapes, most around the same join, with conditions below and above it, some of which fail."""
    by, other = draw(joins()), draw(joins())
    queries, operators = [], []
    for index in range(draw(st.integers(2, 6))):
        where = draw(st.sampled_from([None, *BELOW]))
        late = draw(st.sampled_from([None, *ON_LABEL]))
        asked = query(draw(st.sampled_from(SLIDES)), where, (Named("k", column("k")),), COUNTS)
        operator = lower(f"q{index}", asked, f"q{index}")
        assert isinstance(operator, PaneAggregate)
        mine = draw(st.sampled_from([by, by, by, other]))
        above = () if late is None else (RowFilter(late),)
        queries.append(asked)
        operators.append(replace(operator, steps=(*operator.steps, mine, *above), relations=("names",)))
    return queries, operators


SLIDES = (TimeSlide(4 * TICK, TICK), TimeSlide(9 * TICK, 3 * TICK))
COUNTS = [AggregateCall("count", None, BIGINT), AggregateCall("sum", column("x"), BIGINT)]
BELOW = [some.call(">", column("x"), literal(0, BIGINT)), some.call("=", column("y"), column("y")), _QUOTIENT]


@examples(150)
@given(together_joined=joined(), drawn=st.lists(streams.rows(), min_size=1, max_size=2))
def test_many_conditions_around_one_join_fold_together_as_each_alone(
    together_joined: tuple[list[Query], list[PaneAggregate]], drawn: list[Any]
) -> None:
    queries, operators = together_joined
    batches = [rows(epoch) for epoch in drawn]
    alone = ScanOutput()
    for operator in operators:
        alone.join(harvested([operator], batches, RELATIONS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", 0)
        shared = harvested(operators, batches, RELATIONS)
    assert answers(operators, queries, shared) == answers(operators, queries, alone)
    assert counted(shared) == counted(alone)
    assert refused(shared) == refused(alone)


def test_queries_that_join_alike_share_one_index_unless_a_filter_may_fail() -> None:
    count, keys = [AggregateCall("count", None, BIGINT)], (Named("k", column("k")),)
    join = LookupJoin("names", "r", NAMES, (K,), (K,), None, keep_unmatched=False)

    def around(number: int, late: Expression, by: LookupJoin = join) -> PaneAggregate:
        where = some.call(">", column("x"), literal(number, BIGINT))
        operator = lower(f"q{number}", query(TimeSlide(4 * TICK, TICK), where, keys, count), f"q{number}")
        assert isinstance(operator, PaneAggregate)
        return replace(operator, steps=(*operator.steps, by, RowFilter(late)), relations=("names",))

    same = [around(number, ON_LABEL[number % 3]) for number in range(20)]
    failing, other = around(20, ON_LABEL[3]), around(21, ON_LABEL[0], replace(join, keep_unmatched=True))
    strategies = dict.fromkeys(
        (how, len(members)) for how, members in foldings_of.groups([*same, failing, other])
    )
    assert set(strategies) == {("conditions", 20), ("unshared", 1)}


def refused(output: ScanOutput) -> dict[str, list[tuple[int, str]]]:
    return {
        name: sorted(
            (int(position), reason)
            for rejection in scan.rejected
            for position, reason in zip(rejection.position, rejection.reasons, strict=True)
        )
        for name, scan in output.scanned.items()
    }


def test_cells_of_a_family_are_stored_with_each_query_s_number_and_slot() -> None:
    count = [AggregateCall("count", None, BIGINT)]
    keys = (Named("k", column("k")),)
    slides = [TimeSlide(n * TICK, TICK) for n in (3, 4, 9)]
    operators = [lower(f"q{n}", query(window, None, keys, count), f"q{n}") for n, window in enumerate(slides)]
    operators = [
        replace(operator, single_slot=200 + n if n else None)
        for n, operator in enumerate(operators)
        if isinstance(operator, PaneAggregate)
    ]
    values = [{"k": "ab"[n % 2], "g": 1, "x": n, "y": 0.5, "at": n * TICK // 9} for n in range(40)]
    shared = harvested(operators, [rows(values)])
    assert len(shared.sections) == 1  # windows over the same panes are one family
    stored = gathered(next(iter(shared.sections.values())))
    alone = ScanOutput()
    for operator in operators:
        alone.join(harvested([operator], [rows(values)]))
    by_itself = gathered(next(iter(alone.sections.values())))
    order = [("k0", "ascending"), ("__key", "ascending"), ("k1", "ascending")]
    assert stored.sort_by(order).equals(by_itself.sort_by(order).cast(stored.schema))
    assert shared.delta_rows == alone.delta_rows

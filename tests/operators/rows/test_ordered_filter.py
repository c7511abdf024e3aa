"""A conjunction whose terms are evaluated in any order: the same rows are kept, and the same are rejected for the same reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.filters import thinned_sample
from headrace.adaptive.filters.ordering import OrderInForce
from headrace.algebra.expressions.expression import Call, Column, Expression, Literal, conjunction
from headrace.algebra.functions.resolve import UserFunction
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.rows import ordered_filter
from headrace.operators.rows.filter_profiles import profiling
from headrace.operators.rows.filter_terms import terms_of
from headrace.operators.rows.row_pipeline import RowFilter, RowPipeline, conjunctions_of
from headrace.operators.rows.semijoin import Membership
from headrace.operators.scalar import Evaluation
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.schema import BIGINT, BOOLEAN, STRING
from tests.examples import examples

A, B, T = Column("a", BIGINT), Column("b", BIGINT), Column("t", STRING)
STATES = (True, False, None, "fails")


def by_state(name: str, shift: int) -> UserFunction:
    """A function that is true, false, NULL or fails, by its argument."""

    def body(value: int | None) -> bool | None:
        state = STATES[(0 if value is None else value) // 4**shift % 4]
        if state == "fails":
            raise ValueError(f"{name} of {value}")
        return state

    return UserFunction(name, (BIGINT,), BOOLEAN, body, by_row=True, strict=False)


USERS = {f"f{shift}": by_state(f"f{shift}", shift) for shift in range(3)}


def called(name: str, *arguments: Expression, kind: Any = BOOLEAN) -> Call:
    return Call(name, arguments, kind)


COSTLY = [called("f0", A), called("f1", A), called("f2", B), called("f1", B)]
COSTLY += [called("rlike", T, Literal("^a+b", STRING)), called("not", called("f0", B))]
CHEAP = [
    called("=", called("div", Literal(6, BIGINT), A, kind=BIGINT), Literal(3, BIGINT)),
    called("<", A, Literal(30, BIGINT)),
    called("isnotnull", T),
    called(">", B, A),
]


def batch(a: Sequence[int | None], b: Sequence[int | None], t: Sequence[str | None]) -> Batch:
    columns = {"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64()), "t": pa.array(t, pa.string())}
    return Batch(columns, np.arange(len(a)) * 10, np.arange(len(a)) + 1000)


def plainly(whole: Expression, rows: Batch) -> tuple[list[int], dict[int, str]]:
    """The positions that are kept and rejected if every conjunct is evaluated on every row."""
    evaluation = Evaluation(rows.columns, rows.rows)
    keep = evaluation.mask(whole)
    errors = {} if evaluation.errors is None else evaluation.errors.reasons
    kept = [int(rows.position[row]) for row in np.flatnonzero(keep) if row not in errors]
    return kept, {int(rows.position[row]): errors[row] for row in errors}


def in_order(pipeline: RowPipeline, rows: Batch) -> tuple[list[int], dict[int, str]]:
    kept = pipeline.apply(rows)
    return kept.position.tolist(), of(pipeline.rejected)


def of(rejected: Sequence[Rejected]) -> dict[int, str]:
    return {
        position: reason
        for part in rejected
        for position, reason in zip(part.position.tolist(), part.reasons, strict=True)
    }


def clock() -> Iterator[int]:
    now = 0
    while True:
        now += 7
        yield now


def ordered_by(steps: tuple[RowFilter, ...], order: Sequence[int], share: float = 1 / 256) -> RowPipeline:
    """A pipeline made where that order is in force."""
    (_, terms) = conjunctions_of(steps)[0]
    ticks = clock()
    with profiling({terms.name: OrderInForce(tuple(order), share)}, lambda: next(ticks)):
        return RowPipeline.of(steps, {})


values = st.one_of(st.none(), st.integers(0, 63))
rows_of = st.lists(
    st.tuples(values, values, st.sampled_from([None, "aab", "b", "ab"])), min_size=1, max_size=40
)


@given(
    costly=st.lists(st.sampled_from(COSTLY), min_size=1, max_size=4, unique=True),
    cheap=st.lists(st.sampled_from(CHEAP), max_size=3, unique=True),
    rows=rows_of,
    choice=st.randoms(use_true_random=False),
)
@examples(300)
def test_rows_and_rejects_are_the_same_in_every_order(costly, cheap, rows, choice) -> None:
    factors = [*costly, *cheap]
    choice.shuffle(factors)
    whole, some = conjunction(factors), batch(*zip(*rows, strict=True))
    steps = (RowFilter(whole),)
    with registered(USERS):
        expected = plainly(whole, some)
        if not conjunctions_of(steps):
            assert in_order(RowPipeline.of(steps, {}), some) == expected
            return
        orders = list(permutations(range(len(conjunctions_of(steps)[0][1].terms))))
        for order in choice.sample(orders, min(4, len(orders))):
            assert in_order(ordered_by(steps, order), some) == expected


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_terms_by_hand(order) -> None:
    """A row is kept if both are true, rejected if one fails and none is false, else dropped."""
    codes = [STATES.index(one) + 4 * STATES.index(other) for one, other in product(STATES, STATES)]
    pairs = dict(enumerate(product(STATES, STATES), 1000))
    some = batch(codes, codes, [None] * len(codes))
    with registered(USERS):
        kept, rejected = in_order(ordered_by((RowFilter(conjunction(COSTLY[:2])),), order), some)
    assert {pairs[position] for position in kept} == {(True, True)}
    assert {pairs[position]: reason.split()[0] for position, reason in rejected.items()} == {
        (True, "fails"): "f1:",
        (None, "fails"): "f1:",
        ("fails", "fails"): "f0:",
        ("fails", True): "f0:",
        ("fails", None): "f0:",
    }


def test_a_term_is_evaluated_on_the_rows_that_are_left_and_a_cheap_one_on_all() -> None:
    seen: list[int] = []

    def counted(numbers: pa.Array) -> pa.Array:
        seen.append(len(numbers))
        return pa.array([True] * len(numbers))

    users = {"f0": UserFunction("f0", (BIGINT,), BOOLEAN, counted)}
    whole = conjunction([called("f0", A), called("<", B, Literal(3, BIGINT))])
    some = batch(range(1000), [row % 10 for row in range(1000)], [""] * 1000)
    with registered(users):
        pipeline = RowPipeline.of((RowFilter(whole),), {})
        assert pipeline.apply(some).rows == 300
    assert seen == [300]
    assert pipeline.ordered[0][1].order == (1, 0)


def test_equal_costly_parts_are_computed_once() -> None:
    whole = [called(">", called("f0", A, kind=BIGINT), Literal(n, BIGINT)) for n in (1, 2)]
    assert terms_of([conjunction(whole)], []) is None
    three = terms_of([conjunction([*whole, called("f1", A), *CHEAP[1:3]])], [])
    assert [len(list(term.reads)) for term in three.terms] == [1, 1, 2]


def test_where_no_order_matters_there_are_no_terms() -> None:
    assert terms_of([conjunction(CHEAP)], []) is None
    assert terms_of([COSTLY[0]], []) is None
    assert conjunctions_of((RowFilter(conjunction(CHEAP)),)) == {}


def test_every_sampled_row_is_evaluated_by_all_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """By recounting what the sampled rows drop, where no term is so cheap that others see fewer."""
    monkeypatch.setattr(thinned_sample, "CHEAPER", 1000.0)
    steps = (RowFilter(conjunction([COSTLY[4], called("rlike", T, Literal("b$", STRING)), CHEAP[1]])),)
    (_, terms) = conjunctions_of(steps)[0]
    some = batch(
        [row % 40 for row in range(50)], [0] * 50, [("aab", "ba", "ab")[row % 3] for row in range(50)]
    )
    pipeline = ordered_by(steps, (2, 0, 1), share=1)
    pipeline.apply(some)
    seen = pipeline.ordered[0][1].tally.observation()
    assert (seen.order, seen.rows, seen.sampled) == ((2, 0, 1), 50, 50)
    expected: dict[int, int] = {}
    for row in range(50):
        bits = [
            not bool(
                Evaluation({name: at[row : row + 1] for name, at in some.columns.items()}, 1).mask(
                    term.predicate
                )[0]
            )
            for term in terms.terms
        ]
        code = sum(bit << index for index, bit in enumerate(bits))
        if code:
            expected[code] = expected.get(code, 0) + 1
    assert seen.patterns == expected
    assert len(seen.nanoseconds) == 3
    assert all(spent > 0 for spent in (*seen.nanoseconds, *seen.sample_nanoseconds))


def test_a_sample_is_the_same_rows_whenever_they_are_read_and_never_more_than_a_window() -> None:
    some = batch([1] * 60_000, [1] * 60_000, ["b"] * 60_000)
    chosen = ordered_filter._sampled(some, 1 / 16)
    assert chosen.tolist() == ordered_filter._sampled(some, 1 / 16).tolist()
    assert len(chosen) == pytest.approx(60_000 / 16, rel=0.1)
    steps = (RowFilter(conjunction([COSTLY[4], called("rlike", T, Literal("b$", STRING))])),)
    pipeline = ordered_by(steps, (0, 1))
    for _ in range(6):
        pipeline.apply(some)
    seen = pipeline.ordered[0][1].tally.observation()
    assert seen.sampled == ordered_filter.MOST_SAMPLED


def test_of_a_sample_a_costly_term_sees_few_of_the_rows_that_a_cheap_one_drops() -> None:
    """An expression drops seven rows of eight, and a function costs ten times as much; what each drops counts as of all rows."""
    text = ["a" if row % 8 else "b" for row in range(20_000)]
    some = batch([0] * 20_000, [4 * (row % 2) for row in range(20_000)], text)
    pipeline = ordered_by(
        (RowFilter(conjunction([called("rlike", T, Literal("b$", STRING)), COSTLY[3]])),),
        (0, 1),
        share=1 / 16,
    )
    with registered(USERS):
        pipeline.apply(some)
    seen = pipeline.ordered[0][1].tally.observation()
    most = ordered_filter.MOST_SAMPLED
    assert (seen.sampled, seen.in_sample[0]) == (most, most)
    assert most / 8 < seen.in_sample[1] < most / 3
    assert seen.patterns[1] + seen.patterns.get(3, 0) == pytest.approx(most * 7 / 8, rel=0.1)


def test_small_batches_are_sampled_as_often_as_large_ones() -> None:
    at = np.arange(100)
    total = sum(len(ordered_filter._sampled(Batch({}, at, at + 100 * one), 1 / 64)) for one in range(10_000))
    assert total == pytest.approx(1_000_000 / 64, rel=0.1)


def test_a_task_without_an_order_takes_one_from_its_first_sample() -> None:
    """The guess has both at the same cost; the second drops all rows."""
    steps = (
        RowFilter(
            conjunction([called("rlike", T, Literal("a", STRING)), called("rlike", T, Literal("z", STRING))])
        ),
    )
    ticks = clock()
    with profiling({}, lambda: next(ticks)):
        pipeline = RowPipeline.of(steps, {})
    assert pipeline.ordered[0][1].order == (0, 1)
    assert pipeline.apply(batch([1] * 500, [1] * 500, ["a"] * 500)).rows == 0
    seen = pipeline.ordered[0][1].tally.observation()
    assert (seen.order, seen.evaluated) == ((1, 0), (0, 500))


@pytest.mark.parametrize(("rows", "first"), [(6, 0), (60, 1)])
def test_of_few_rows_a_dear_term_does_not_come_first_because_it_has_dropped_all(
    monkeypatch: pytest.MonkeyPatch, rows: int, first: int
) -> None:
    """The guess has the function at ten times the cost. It drops every sampled row, and the expression none: six rows may be chance, sixty are none."""
    monkeypatch.setattr(ordered_filter, "UNSETTLED_SHARE", 1)
    monkeypatch.setattr(thinned_sample, "CHEAPER", 1000.0)
    steps = (RowFilter(conjunction([called("rlike", T, Literal("a", STRING)), COSTLY[0]])),)
    ticks = clock()
    with profiling({}, lambda: next(ticks)), registered(USERS):
        pipeline = RowPipeline.of(steps, {})
        assert pipeline.apply(batch([1] * rows, [1] * rows, ["a"] * rows)).rows == 0
    seen = pipeline.ordered[0][1].tally.observation()
    assert seen.sampled == rows
    assert seen.order[0] == first


@pytest.mark.parametrize(("believed", "sampled"), [((0.0, 1.0), 0), ((1.0, 0.0), 63), ((), 0)])
def test_a_batch_of_other_drops_than_was_believed_is_sampled_at_once(believed, sampled) -> None:
    """The second term drops all rows."""
    steps = (
        RowFilter(
            conjunction([called("rlike", T, Literal("a", STRING)), called("rlike", T, Literal("z", STRING))])
        ),
    )
    (_, terms) = conjunctions_of(steps)[0]
    ticks = clock()
    with profiling({terms.name: OrderInForce((0, 1), 0.0, believed)}, lambda: next(ticks)):
        pipeline = RowPipeline.of(steps, {})
    pipeline.apply(batch([1] * 1000, [1] * 1000, ["a"] * 1000))
    assert pipeline.ordered[0][1].tally.observation().sampled == pytest.approx(sampled, abs=2)
    assert pipeline.ordered[0][1].order == (0, 1)


def test_nothing_is_measured_outside_a_task() -> None:
    steps = (RowFilter(conjunction(COSTLY[4:5] + CHEAP[1:2])),)
    pipeline = RowPipeline.of(steps, {})
    pipeline.apply(batch([1], [1], ["aab"]))
    assert (pipeline.ordered[0][1].clock, pipeline.ordered[0][1].tally.rows) == (None, 0)


ids = {
    "names": pa.table({"id": pa.array([1, 2, 3, None], pa.int64())}),
    "few": pa.table({"id": pa.array([2, 40], pa.int64())}),
}


def member(name: str, relation: str, value: Expression) -> Membership:
    return Membership(name, relation, name, (), (), None, None, value, Column("id", BIGINT))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_tests_of_membership_are_terms(order) -> None:
    """IN over relations, negated too, with NULLs, together with a condition on the row; their columns remain."""
    one, other = Column("in0.m", BOOLEAN), Column("in1.m", BOOLEAN)
    steps = (
        RowFilter(called("<", B, Literal(50, BIGINT))),
        member("in0.m", "names", A),
        member("in1.m", "few", B),
        RowFilter(conjunction([one, called("not", other)])),
    )
    some = batch([0, 1, 2, 3, None, 1], [1, 2, 3, 60, 1, None], [""] * 6)
    pipeline = RowPipeline.of(steps, ids)
    (end, ordered) = pipeline.ordered[0]
    assert (end, len(ordered.terms.terms)) == (4, 3)
    ordered.order = order
    kept = pipeline.apply(some)
    assert kept.columns["a"].to_pylist() == [2]
    assert (kept.columns["in0.m"].to_pylist(), kept.columns["in1.m"].to_pylist()) == ([True], [False])
    none = pipeline.apply(batch([9], [9], [""]))
    assert set(none.columns) == {"a", "b", "t", "in0.m", "in1.m"}


def test_a_membership_that_may_fail_is_tested_on_every_row() -> None:
    """Its failure rejects a row whatever the others are, so it has no free order."""
    failing = member("in0.m", "names", called("div", Literal(6, BIGINT), A, kind=BIGINT))
    assert conjunctions_of((failing, RowFilter(conjunction([Column("in0.m", BOOLEAN), COSTLY[4]])))) == {}

"""The index changes by deltas: later queries match, dropped ones do not, and slots are given again only when free."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Expression
from headrace.errors import UserError
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching.match import match
from tests.operators.query_index.predicates import bound
from tests.operators.query_index.test_matching import same_as_brute


def batch(values: list[int | None]) -> dict[str, pa.Array]:
    return {"i": pa.array(values, pa.int32()), "b": pa.array(range(len(values)), pa.int64())}


def many(count: int, start: int = 0) -> dict[str, Expression | None]:
    return {f"q{n}": bound(f"i > {n % 50} AND b <> {n}") for n in range(start, start + count)}


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 40), unique=True), st.lists(st.integers(0, 40))), max_size=12)
)
def test_after_any_changes_exactly_the_live_queries_match(steps: list[tuple[list[int], list[int]]]) -> None:
    columns = batch([0, 10, None, 30, 49])
    index, live = QueryIndex(), dict[str, Expression | None]()
    for added, removed in steps:
        gone = [f"q{n}" for n in removed if f"q{n}" in live]
        live = {name: predicate for name, predicate in live.items() if name not in gone}
        fresh = {name: p for n in added for name, p in many(1, n).items() if name not in live}
        index, live = index.changed(fresh, gone), {**live, **fresh}
        assert {entry.id for entry in index.entries()} == set(live)
        numbers = [entry.slot for entry in index.entries()]
        assert len(set(numbers)) == len(numbers)
        same_as_brute(index, live, columns, match(index, columns, 5))


def test_a_query_added_later_matches_and_the_older_version_does_not_know_it() -> None:
    # An index frozen where a pipeline was built would never match the second query.
    first = QueryIndex().changed({"a": bound("i > 1")})
    second = first.changed({"b": bound("i > 2")})
    columns = batch([1, 2, 3])
    assert match(first, columns, 3).slots.tolist() == [0]
    assert match(second, columns, 3).counts().tolist() == [2, 1]


def test_registering_one_query_compiles_that_query_and_not_the_ten_thousand() -> None:
    index = QueryIndex().changed(many(2000))
    main = index.sides[0]
    plan = main.plain[0].plan
    for n in range(5):
        index = index.changed({f"late{n}": bound("i > 3")})
    assert index.sides[0] is main
    assert index.sides[0].plain[0].plan is plan
    assert sum(len(side.entries) for side in index.sides[1:]) == 5


def test_a_delta_beyond_a_tenth_is_merged() -> None:
    index = QueryIndex().changed(many(100))
    for n in range(40):
        index = index.changed({f"late{n}": bound("i > 3")})
        sizes = [len(side.entries) for side in index.sides]
        assert all(small <= 0.1 * large for large, small in itertools.pairwise(sizes)), sizes
    assert len(index) == 140


def test_dropped_queries_leave_their_side_when_a_tenth_is_gone() -> None:
    index = QueryIndex().changed(many(100))
    index = index.changed(remove=[f"q{n}" for n in range(9)])
    assert len(index.sides[0].entries) == 100
    index = index.changed(remove=["q50", "q51"])
    assert len(index.sides[0].entries) == len(index) == 89


def test_the_slot_of_a_dropped_query_is_given_to_no_other() -> None:
    index = QueryIndex().changed(many(3))
    matches = match(index, batch([60, 60]), 2)  # bitmaps of a caller that has not finished
    index = index.changed({"x": bound("i < 0")}, ["q1"]).changed({"y": bound("i < 0")})
    assert {index.entry("x").slot, index.entry("y").slot}.isdisjoint(matches.slots.tolist())


def test_a_name_comes_back_after_it_was_dropped() -> None:
    index = QueryIndex().changed(many(50)).changed(remove=["q7"]).changed({"q7": bound("i IS NULL")})
    matches = match(index, batch([None, 99]), 2)
    assert matches.rows_of(index.entry("q7").slot).tolist() == [True, False]


def test_names_must_be_new_to_come_and_known_to_go() -> None:
    index = QueryIndex().changed(many(1))
    with pytest.raises(UserError, match="'q0' is in the index already"):
        index.changed(many(1))
    with pytest.raises(UserError, match="'other' is not in the index"):
        index.changed(remove=["other"])


def test_long_lists_of_constants_match_as_each_alone() -> None:
    lists = {n: ", ".join(map(str, range(n % 7, n))) for n in (40, 900, 1_000, 1_200, 5_000)}
    texts = [f"i {word} ({items})" for items in lists.values() for word in ("IN", "NOT IN")]
    texts += [f"b IN ({', '.join(repr(str(n)) for n in range(1_500))}, 'x')", f"i IN ({lists[40]}, NULL)"]
    queries: dict[str, Expression | None] = {text: bound(f"{text} AND b < 60") for text in texts}
    columns = batch([None, *range(-1, 50), 950, 1_100, 4_999, 5_000])
    same_as_brute(index := QueryIndex().changed(queries), queries, columns, match(index, columns, 56))

"""Every kernel of the query index agrees with evaluating the predicate, for every row and query."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.row_matching import route
from headrace.algebra.expressions.expression import Column, Expression
from headrace.operators.query_index.boxes import by_column, by_row
from headrace.operators.query_index.boxes.box_ranges import BoxRanges
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching import selections as selecting
from headrace.operators.query_index.matching.few_rows import MOST, are_few
from headrace.operators.query_index.matching.match import Kernel, Matches, chosen, match
from headrace.operators.query_index.predicates import normal_form as normalising
from headrace.operators.query_index.predicates.normal_form import normal
from headrace.operators.query_index.predicates.value_domains import EVERY
from headrace.schema import BOOLEAN, to_arrow
from tests.examples import examples
from tests.operators.query_index.predicates import SCHEMA, batches, bound, brute, texts

KERNELS: tuple[Kernel | None, ...] = ("rows", "columns", "pairs", "comparisons", None)


def same_as_brute(
    index: QueryIndex,
    predicates: dict[str, Expression | None],
    columns: dict[str, pa.Array],
    matches: Matches,
) -> None:
    assert len(matches.slots) == len(predicates) == len(index)
    for name, predicate in predicates.items():
        slot = index.entry(name).slot
        mask, failed = brute(predicate, columns)
        np.testing.assert_array_equal(matches.rows_of(slot), mask, err_msg=str(predicate))
        mine = matches.failed.get(slot)
        assert ([] if mine is None else mine.rows.tolist()) == failed.rows.tolist(), predicate
        assert (() if mine is None else mine.reasons) == failed.reasons


@examples(100)
@given(st.lists(texts(), min_size=1, max_size=8), batches(), st.sampled_from(KERNELS))
def test_a_row_is_wanted_by_a_query_exactly_if_its_predicate_is_true(
    written: list[str], columns: dict[str, pa.Array], kernel: Kernel | None
) -> None:
    predicates: dict[str, Expression | None] = {f"q{n}": bound(text) for n, text in enumerate(written)}
    index = QueryIndex().changed(predicates)
    same_as_brute(index, predicates, columns, match(index, columns, len(columns["i"]), kernel))


@pytest.mark.parametrize("others", [(), ("b = i",), ("b = i AND at IS NULL",)])
def test_rows_with_null_are_exceptional_for_a_residual_that_may_fail_whatever_other_queries_read(
    others: tuple[str, ...],
) -> None:
    """The difference of b and i fails on the first row, for all queries, and is NULL on the second, where the residual fails."""
    nan = "CAST('NaN' AS DOUBLE)"
    cautious = f"5 + t = i - {nan} AND b = i AND t + 2147483647 > t - {nan}"
    predicates: dict[str, Expression | None] = {
        f"q{n}": bound(text) for n, text in enumerate((*others, cautious))
    }
    rows = {"t": [5, 5, 5], "i": [-5, None, 3], "b": [2**63 - 1, 7, 4]}
    columns = {
        field.name: pa.array(rows.get(field.name, [None] * 3), to_arrow(field.type))
        for field in SCHEMA.fields
    }
    index = QueryIndex().changed(predicates)
    same_as_brute(index, predicates, columns, match(index, columns, 3, None))


@given(st.lists(texts(), min_size=2, max_size=8), batches())
def test_rows_are_routed_to_the_queries_that_match_them(
    written: list[str], columns: dict[str, pa.Array]
) -> None:
    rows = len(columns["i"])
    index = QueryIndex().changed({f"q{n}": bound(text) for n, text in enumerate(written)})
    index = index.changed({"new": bound(written[0])}, ["q1"])
    matches, routed = match(index, columns, rows), route(index, columns, rows)
    for row in range(rows):
        wanted = [slot for slot in matches.slots.tolist() if matches.rows_of(slot)[row]]
        assert routed.of_row(row).tolist() == wanted
    assert {slot: one.rows.tolist() for slot, one in routed.failed.items()} == {
        slot: one.rows.tolist() for slot, one in matches.failed.items()
    }


@examples(100)
@given(st.lists(texts(), min_size=2, max_size=8), batches(), st.sampled_from((0.0, 1 / 64, 2.0)))
def test_pairs_are_the_bits_of_bitmaps(
    written: list[str], columns: dict[str, pa.Array], dense: float
) -> None:
    rows = len(columns["i"])
    index = QueryIndex().changed({f"q{n}": bound(text) for n, text in enumerate(written)})
    index = index.changed({"new": bound(written[0])}, ["q1"])
    matches = match(index, columns, rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(selecting, "DENSE", dense)
        selected = selecting.selections(index, columns, rows)
        pairs = Counter(
            pair for part in selected.pairs() for pair in zip(*(side.tolist() for side in part), strict=True)
        )
    bits = {
        (row, slot)
        for slot in matches.slots.tolist()
        for row in np.flatnonzero(matches.rows_of(slot)).tolist()
    }
    assert pairs == Counter(bits)
    assert {slot: failed.rows.tolist() for slot, failed in selected.failed.items()} == {
        slot: failed.rows.tolist() for slot, failed in matches.failed.items()
    }


def test_a_query_that_no_row_satisfies_and_that_fails_is_routed_nowhere() -> None:
    written = ["s LIKE 'a%' AND i + 2147483647 > 5 AND FALSE", "s LIKE 'a%'", "i + 2147483647 > 5"]
    index = QueryIndex().changed({f"q{n}": bound(text) for n, text in enumerate(written)})
    columns = whole([2147483647, -5]) | {"s": pa.array(["ab", "b"])}
    matches, routed = match(index, columns, 2), route(index, columns, 2)
    for row in range(2):
        wanted = [slot for slot in matches.slots.tolist() if matches.rows_of(slot)[row]]
        assert routed.of_row(row).tolist() == wanted


def test_parts_without_tables_are_routed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    index = QueryIndex().changed({f"q{n}": bound(f"i > {n} OR b = {n}") for n in range(70)})
    columns = whole([1, 5, 69, None, 200])
    usual = route(index, columns, 5)
    monkeypatch.setattr(by_row, "LARGEST", 0)
    turned = route(index, columns, 5)
    assert len(turned.slots) < len(usual.slots)
    for row in range(5):
        assert turned.of_row(row).tolist() == usual.of_row(row).tolist()


def whole(values: list[int | None]) -> dict[str, pa.Array]:
    return {name: pa.array(values, pa.int32() if name == "i" else pa.int64()) for name in ("i", "b")}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_golden_example_of_the_counting_and(kernel: Kernel | None) -> None:
    # A query without factors is wanted by every row, and a contradiction by none: counters of factors get both wrong.
    written = ["i < 5", "i <= 5", "i = 5", "i >= 5", "i > 5", "TRUE", "i < 5 AND i > 5"]
    index = QueryIndex().changed({f"{n + 1}": bound(text) for n, text in enumerate(written)})
    matches = match(index, whole([4, 5, 6, None]), 4, kernel)
    wanted = [
        {name for name in map(str, range(1, 8)) if matches.rows_of(index.entry(name).slot)[row]}
        for row in range(4)
    ]
    assert wanted == [{"1", "2", "6"}, {"2", "3", "4", "6"}, {"4", "5", "6"}, {"6"}]


@pytest.mark.parametrize("kernel", KERNELS)
def test_duplicate_factors_count_once(kernel: Kernel | None) -> None:
    index = QueryIndex().changed({"q": bound("i > 3 AND i > 3 AND i > 2")})
    assert match(index, whole([3, 4]), 2, kernel).counts().tolist() == [1]


@pytest.mark.parametrize("kernel", KERNELS)
def test_integers_beyond_doubles_are_not_confused(kernel: Kernel | None) -> None:
    index = QueryIndex().changed({"q": bound("b = 9007199254740993"), "r": bound("b > 9007199254740992")})
    matches = match(index, {"b": pa.array([2**53, 2**53 + 1, 2**53 + 2])}, 3, kernel)
    assert [matches.rows_of(slot).tolist() for slot in (0, 1)] == [[False, True, False], [False, True, True]]


def test_a_row_major_answer_is_the_column_major_one_turned_round() -> None:
    rng = np.random.default_rng(7)
    values = rng.integers(-5, 200, 130).tolist()
    index = QueryIndex().changed({f"q{n}": bound(f"i > {n} AND i <> {n + 7}") for n in range(70)})
    matches = match(index, whole(values), 130)
    by_row = np.unpackbits(matches.by_row().view(np.uint8), axis=1, bitorder="little")[:, :70]
    np.testing.assert_array_equal(by_row, np.array([matches.rows_of(slot) for slot in range(70)]).T)


@pytest.mark.parametrize("kernel", KERNELS)
def test_many_queries_of_continuous_constants_need_no_table_of_their_square(kernel: Kernel | None) -> None:
    rng = np.random.default_rng(3)
    queries, rows = 3000, 5000
    low = rng.integers(-(2**62), 2**62, queries)
    constants = {f"q{n}": bound(f"b >= {one} AND b < {one + 2**58}") for n, one in enumerate(low.tolist())}
    index = QueryIndex().changed(constants)
    values = rng.integers(-(2**62), 2**62, rows)
    matches = match(index, {"b": pa.array(values)}, rows, kernel if kernel != "rows" else None)
    slots = np.array([index.entry(f"q{n}").slot for n in range(queries)])
    ordered = np.sort(values)
    expected = np.searchsorted(ordered, low + 2**58) - np.searchsorted(ordered, low)
    np.testing.assert_array_equal(matches.counts()[np.searchsorted(matches.slots, slots)], expected)


def test_disjunctions_beyond_the_limit_are_evaluated_and_within_it_are_boxes() -> None:
    few = normal(bound("i = 1 OR b = 2 OR t = 3"))
    many = normal(bound(" AND ".join("(i = 1 OR b = 2 OR t = 3)" for _ in range(4))))
    assert (len(few.boxes), few.residual) == (3, None)
    assert len(many.boxes) <= normalising.MOST_BOXES
    assert many.residual is not None


def test_an_or_on_one_attribute_is_one_box() -> None:
    form = normal(bound("i < 3 OR i BETWEEN 10 AND 20 OR i IN (30, 31, 40)"))
    assert len(form.boxes) == 1
    (domain,) = form.boxes[0].values()
    assert (domain.starts, domain.flips) == (True, (3, 10, 21, 30, 32, 40, 41))


def test_a_fractional_constant_becomes_an_integer_bound_of_the_plain_column() -> None:
    form = normal(bound("i > 2.5 AND i < 7.5D"))
    assert [(attribute, domain.flips) for attribute, domain in form.boxes[0].items()] == [
        (bound("i = 1").arguments[0], (3, 8))  # type: ignore[union-attr]
    ]


def test_a_residual_is_evaluated_only_on_rows_that_pass_the_rest() -> None:
    # Evaluated on every row, 10 / i would fail on the rows where i is 0; the reference rejects none of them either.
    index = QueryIndex().changed({"q": bound("b > 5 AND rlike(CAST(10 / i AS STRING), '5')")})
    columns = {"i": pa.array([0, 2, 0], pa.int32()), "b": pa.array([1, 6, 9])}
    matches = match(index, columns, 3)
    assert matches.rows_of(0).tolist() == [False, True, False]
    assert matches.failed[0].rows.tolist() == [2]


def test_a_failing_row_is_a_reject_of_the_queries_that_needed_the_value_only() -> None:
    index = QueryIndex().changed(
        {"a": bound("10 / i > 1"), "b": bound("i = 0"), "c": bound("10 / i > 1 AND b > 5")}
    )
    matches = match(index, {"i": pa.array([0, 5, 0], pa.int32()), "b": pa.array([9, 9, 1])}, 3)
    slots = {name: index.entry(name).slot for name in "abc"}
    failed = {
        name: matches.failed[slot].rows.tolist() for name, slot in slots.items() if slot in matches.failed
    }
    assert failed == {"a": [0, 2], "c": [0]}
    assert matches.rows_of(slots["b"]).tolist() == [True, False, True]


def test_more_attributes_than_runs_of_slices_still_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_column, "_MANY_RUNS", 1)
    predicates: dict[str, Expression | None] = {
        "a": bound("i > 1 AND b > 1"),
        "b": bound("b > 2"),
        "c": bound("i < 2"),
        "d": bound("b < 9 AND i IS NULL"),
    }
    columns = whole([None, 1, 2, 3])
    index = QueryIndex().changed(predicates)
    same_as_brute(index, predicates, columns, match(index, columns, 4, "columns"))


def test_a_query_without_predicate_wants_every_row() -> None:
    index = QueryIndex().changed({"all": None, "true": Column("ok", BOOLEAN), "b": Column("ok", BOOLEAN)})
    matches = match(index, {"ok": pa.array([True, None, False])}, 3)
    assert matches.counts().tolist() == [3, 1, 1]


def test_null_does_not_save_a_row_from_an_error_but_false_does() -> None:
    # NULL AND <error> is an error, FALSE AND <error> is false: the boxes alone would pass over both.
    index = QueryIndex().changed({"q": bound("b > 5 AND rlike(CAST(10 / i AS STRING), '5')")})
    columns = {"i": pa.array([0, 0, 0, 2], pa.int32()), "b": pa.array([None, 1, 9, None])}
    matches = match(index, columns, 4)
    assert matches.failed[0].rows.tolist() == [0, 2]
    assert matches.counts().tolist() == [0]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_nan_is_the_one_largest_value_and_both_zeros_are_one(kernel: Kernel | None) -> None:
    patterns = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64).view(
        np.float64
    )
    values = pa.array(np.r_[patterns, np.inf, -0.0, 0.0])
    written = [
        "d = CAST('NaN' AS DOUBLE)",
        "d > CAST('Infinity' AS DOUBLE)",
        "d = 0.0D",
        "d < 0.0D",
        "d >= -0.0D",
    ]
    index = QueryIndex().changed({text: bound(text) for text in written})
    matches = match(index, {"d": values}, 6, kernel)
    assert [matches.counts()[index.entry(text).slot] for text in written] == [3, 3, 2, 0, 6]


def test_nulls_are_distinguished_where_constants_outnumber_the_rows() -> None:
    predicates: dict[str, Expression | None] = {f"q{n}": bound(f"i > {n}") for n in range(0, 400, 3)}
    predicates |= {"null": bound("i IS NULL"), "or": bound("i > 390 OR i IS NULL"), "not": bound("i <> 7")}
    columns = whole([None, 7, 391, None, 12])
    index = QueryIndex().changed(predicates)
    same_as_brute(index, predicates, columns, match(index, columns, 5, "columns"))


def test_conditions_on_two_integers_are_indexed_by_their_difference_and_on_doubles_evaluated() -> None:
    """Many constants of a pair of attributes are one column, whichever is written first; a guard where a sum may overflow."""
    texts = ["b > i + 5", "i - 3 <= b", "b - i <> 9", "t < i", "i >= t + 100"]
    forms = [normal(bound(text)) for text in texts]
    assert [form.residual for form in forms] == [None] * len(texts)
    asked = [{one for one, domain in form.boxes[0].items() if domain != EVERY} for form in forms]
    assert asked[0] == asked[1] == asked[2]
    assert [len(one) for one in asked] == [1] * len(texts)
    assert [len(form.attributes) for form in forms] == [2, 2, 1, 1, 1], "t + 100 cannot overflow an INT"
    assert normal(bound("b > i + 6")).attributes == forms[0].attributes, "nearby constants share their guard"
    for text in ("d > f + 5", "b <=> i", "m < i", "s < s"):
        assert normal(bound(text)).residual is not None, text


def test_candidates_are_tested_on_the_attributes_by_which_they_were_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each query a tenth of the rows by one attribute, and all by the other."""
    index = QueryIndex().changed(
        {f"q{n}": bound(f"b BETWEEN {10 * n} AND {10 * n + 9} AND i < {1000 + n}") for n in range(10)}
    )
    tested = list[int]()
    accept = BoxRanges.accept

    def counting(self: BoxRanges, boxes: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        tested.append(len(boxes))
        return accept(self, boxes, ranks)

    monkeypatch.setattr(BoxRanges, "accept", counting)
    monkeypatch.setattr(selecting, "DENSE", 2.0)
    pairs = [*selecting.selections(index, whole([*range(100)]), 100).pairs()]
    assert sum(len(rows) for rows, _ in pairs) == 100
    assert tested == [100]


@pytest.mark.parametrize("kernel", KERNELS)
def test_null_and_a_range_are_not_one_range(kernel: Kernel | None) -> None:
    """Also where other attributes find the rows."""
    written = [
        "b >= 5 OR b IS NULL",
        "b IS NULL",
        "b < 5",
        "b IS NOT NULL",
        "i = 5 AND (b >= 5 OR b IS NULL)",
    ]
    predicates: dict[str, Expression | None] = {f"q{n}": bound(text) for n, text in enumerate(written)}
    index = QueryIndex().changed(predicates)
    columns = whole([None, 3, 5, 7]) | {"i": pa.array([5, 5, 5, 6], pa.int32())}
    same_as_brute(index, predicates, columns, match(index, columns, 4, kernel))


def test_few_rows_are_compared_and_many_are_not() -> None:
    hundred = [f"b >= {n} AND b < {2 * n + 7} AND i > {n % 9}" for n in range(100)]
    index = QueryIndex().changed({f"q{n}": bound(text) for n, text in enumerate(hundred)})
    (part,) = (compiled.part for side in index.sides for compiled in side.plain)
    ranks = [np.zeros(MOST, np.uint16)] * len(part.attributes)
    most = MOST // part.boxes
    assert (chosen(part, ranks, most), chosen(part, ranks, most + 1)) == ("comparisons", "columns")
    several = QueryIndex().changed({"q": bound("b IN (1, 3, 5) OR i > 7"), "other": bound("b = 2")})
    assert not any(are_few(compiled.part, 1) for side in several.sides for compiled in side.plain)

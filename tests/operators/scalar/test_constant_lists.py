"""Long lists of constants after IN: one node, which answers as the constants do one by one.

A comment in the list makes the parser read it constant by constant, which is what the one node is compared with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Constants, Expression, constants_in, walk
from headrace.algebra.expressions.expression_text import show
from headrace.algebra.functions.coercion import common_type
from headrace.algebra.query import Filter
from headrace.algebra.query import walk as nodes
from headrace.errors import UserError
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.language.binder.query_binder import bind_query
from headrace.language.parser.literals import number
from headrace.language.syntax.lexer import FEWEST, tokens
from headrace.operators.query_index.predicates.attribute_factors import MOST_CANDIDATES, factor
from headrace.operators.query_index.predicates.normal_form import normal
from headrace.operators.scalar.evaluation.evaluate import evaluate
from headrace.planner.explain.operator_text import explain
from headrace.planner.lowering.lower import lower
from headrace.reference.conversion import RowError
from headrace.reference.scalar import evaluate as evaluated_one_by_one
from headrace.runtime.plan.plan_classes import codec
from headrace.schema import Schema, Type
from tests.language.catalog import Catalog
from tests.language.rendering.expression_text import render_expression

ROWS = pa.table(
    {
        "i": pa.array([1, 2, -3, None, 2**31 - 1, 0, 7], pa.int32()),
        "l": pa.array([1, -(2**40), None, 2**40, 12, -3, 7], pa.int64()),
        "d": pa.array([0.1, -0.0, float("nan"), None, 1e300, 2.5, 12.0], pa.float64()),
        "f": pa.array([0.1, -0.0, float("nan"), None, 1.5, 2.5, 12.0], pa.float32()),
        "p": pa.array([None, "0.10", "2.50", "-7.00", "12.00", "0.00", "99.99"], pa.string()).cast(
            pa.decimal128(12, 2)
        ),
        "s": pa.array(["a", "it's", None, "", "7", "2020-02-29", "x\\y"], pa.string()),
        "y": pa.array([0, 18_321, None, -1, 365, 1, 2], pa.int32()).cast(pa.date32()),
        "t": pa.array(
            [0, 10**15, None, -1, 86_400_000_000, 1_582_934_400_000_000, 2], pa.timestamp("us", "UTC")
        ),
        "b": pa.array([True, False, None, True, True, False, False]),
    }
)
SCHEMA = Schema.of_arrow(ROWS.schema)

INTEGERS = [*map(str, range(-5, 40)), "007", "2147483647"]
NUMBERS = {
    "INT": INTEGERS,
    "BIGINT": [*INTEGERS, str(2**31), str(-(2**40)), str(2**40)],
    "suffixed": [f"{each}L" for each in range(-9, 40)],
    "decimal": ["0.1", "2.5", "-7.00", "0.00", "00.50", *(f"{each}.25" for each in range(40))],
    "decimal and integer": ["0.10", "12", "-3", str(2**40), *(f"{each}.5" for each in range(40))],
    "decimal by suffix": ["0.1BD", "12bd", "0BD", *(f"-{each}.5BD" for each in range(40))],
    "double": ["1e-1", "-0D", "1.2E1", "2.5d", ".5e0", "1e300", *(f"{each}e1" for each in range(40))],
    "one by one": ["300S", "12Y", *map(str, range(40))],
}
TEXTS = {
    "strings": [
        "'a'",
        r"'it\'s'",
        "'it''s'",
        r"'x\\y'",
        "''",
        "'7'",
        "', '",
        *(f"'{each}'" for each in range(40)),
    ],
    "days": [f"'{1970 + each}-01-01'" for each in range(60)] + ["'2020-02-29'"],
    "dates": [f"DATE '{1970 + each}-01-01'" for each in range(60)] + ["date'2020-02-29'"],
    "timestamps": [f"TIMESTAMP '{1970 + each}-01-01'" for each in range(60)],
}
COLUMNS = {
    **dict.fromkeys(NUMBERS, ("i", "l", "d", "f", "p", "s")),
    "strings": ("s", "i", "d"),
    "days": ("s", "y", "t"),
    "dates": ("y", "t"),
    "timestamps": ("t", "y"),
}
KINDS = {**NUMBERS, **TEXTS}


def bound(column: str, items: Sequence[str], before: str = "", zone: str = "UTC") -> Expression:
    return bind_expression(f"{column} IN ({before}{', '.join(items)})", SCHEMA, zone)


def answer(expression: Expression) -> tuple[list[bool | None], dict[int, str]]:
    columns = {name: ROWS.column(name).combine_chunks() for name in ROWS.column_names}
    result = evaluate(expression, columns, ROWS.num_rows)
    alone = [
        evaluate(expression, {name: part.slice(row, 1) for name, part in columns.items()}, 1)
        for row in range(7)
    ]
    assert [single.values[0].as_py() for single in alone] == result.values.to_pylist(), (
        "a list that is long for one row"
    )
    return result.values.to_pylist(), {} if result.errors is None else dict(result.errors.reasons)


def expected(expression: Expression) -> list[bool | str | None]:
    def one(row: dict[str, Any]) -> bool | str | None:
        try:
            return evaluated_one_by_one(expression, row)  # type: ignore[no-any-return]
        except RowError:
            return "fails"

    values = ROWS.set_column(7, "t", ROWS.column("t").cast(pa.int64())).to_pylist()
    return [one(row) for row in values]


@st.composite
def lists(draw: st.DrawFn) -> tuple[str, list[str]]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    items = draw(st.lists(st.sampled_from(KINDS[kind]), min_size=FEWEST, max_size=FEWEST + 20))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), draw(st.sampled_from(("NULL", "null"))))
    return draw(st.sampled_from(COLUMNS[kind])), items


@given(lists(), st.sampled_from(("UTC", "Europe/Berlin")))
def test_a_long_list_answers_as_its_constants_do_one_by_one(listed: tuple[str, list[str]], zone: str) -> None:
    column, items = listed
    fast, slow = bound(column, items, zone=zone), bound(column, items, "/**/ ", zone)
    assert answer(fast) == answer(slow)
    values, failures = answer(fast)
    negated = Call("not", (fast,), fast.type)
    assert answer(negated)[0] == [None if value is None else not value for value in values]
    if zone == "UTC":  # the reference has no zones
        assert [("fails" if row in failures else value) for row, value in enumerate(values)] == expected(fast)
        assert expected(fast) == expected(slow)


@given(lists())
def test_a_long_list_is_written_and_stored_as_it_was(listed: tuple[str, list[str]]) -> None:
    column, items = listed
    expression = bound(column, items)
    text = render_expression(expression, {name: name for name in SCHEMA.names})
    again = bind_expression(text, SCHEMA)
    assert render_expression(again, {name: name for name in SCHEMA.names}) == text
    assert answer(again) == answer(expression)
    assert codec().decode(codec().encode(expression).body) == expression
    assert hash(expression) == hash(bound(column, items))
    assert expression == bound(column, items)


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"one by one", "timestamps"}))
def test_a_list_of_constants_is_one_node(kind: str) -> None:
    expression = bound(COLUMNS[kind][0], [*KINDS[kind], "NULL"])
    assert isinstance(expression, Call)
    assert constants_in(expression.arguments[1]) is not None
    for count, is_list in ((FEWEST, True), (FEWEST - 1, False)):
        few = bound(COLUMNS[kind][0], KINDS[kind][:count])
        assert any(isinstance(node, Constants) for node in walk(few)) == is_list


@pytest.mark.parametrize("kind", sorted({*NUMBERS} - {"one by one"}))
@pytest.mark.parametrize(
    "more", ["1", "2147483647", "2147483648", "-2147483648", "-2147483649", "000.001", "999.5"]
)
def test_a_list_has_the_common_type_of_its_constants(kind: str, more: str) -> None:
    def typed(item: str) -> Type:
        return number(item.lstrip("-"), negative=item.startswith("-"))[1]

    usual = [item for item in NUMBERS[kind] if typed(item) == typed(NUMBERS[kind][-1])]
    items = [*usual * 40, more]
    listed = constants_in(bound("d", items).arguments[1])  # type: ignore[union-attr]
    assert (listed is None) == (kind in ("suffixed", "double"))  # read one by one: 1L, 2
    assert listed is None or listed.type == common_type([typed(item) for item in items])


@pytest.mark.parametrize(
    "text",
    [
        "b IN (i IN ({}))",
        "b IN (i IN ({}), false)",
        "i IN (CASE WHEN l IN ({}) THEN 1 ELSE 7 END)",
        "(i IN ({})) IN (true)",
        "i IN (abs(i)) AND i IN ({})",
    ],
)
def test_a_list_inside_another_in_is_one_truth_value(text: str) -> None:
    fast, slow = (
        bind_expression(text.format(before + ", ".join(map(str, range(40)))), SCHEMA)
        for before in ("", "/**/ ")
    )
    assert answer(fast) == answer(slow)
    assert answer(fast)[0] == expected(fast)
    assert (factor(fast) is None) == (factor(slow) is None)


def test_candidates_after_the_one_that_is_equal_do_not_fail() -> None:
    items = ["'7'", "'12'", "'x'", *(f"'{number}'" for number in range(40))]
    values, failures = answer(bound("i", items))
    assert values == [None, None, None, None, None, None, True]
    assert sorted(failures) == [0, 1, 2, 4, 5]
    assert all("'x'" in reason for reason in failures.values())
    assert answer(bound("i", [*items[:2], "NULL", *items[2:]])) == (values, failures)


def test_two_strings_of_one_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    import headrace.operators.scalar.evaluation.constant_lists as module

    monkeypatch.setattr(module, "_LONGER", 0)
    constants, values = pa.array(["a", "b", "c"]), pa.array(["a", "z", None, "c", "b"])
    assert module.Lookup(constants).holds(values).tolist() == [True, False, False, True, True]
    null_hash = pa.array([-0x61C8864680B583EB])  # NULL has the hash of this number
    assert module.Lookup(null_hash).holds(pa.array([None, 1, -0x61C8864680B583EB])).tolist() == [
        False,
        False,
        True,
    ]
    real = module.hashes
    monkeypatch.setattr(module, "hashes", lambda column: real(column) * 0 + 1)
    assert module.Lookup(constants).holds(values).tolist() == [True, False, False, True, True]
    assert module.Lookup(constants[:1]).holds(values).tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("usual", "wrong"), [("1", "300Y"), ("DATE '2020-01-01'", "'2020-02-30'"), ("1", "1e400")]
)
def test_a_mistake_in_a_long_list_has_its_place(usual: str, wrong: str) -> None:
    text = f"y IN ({', '.join([usual] * 40)}, {usual[:-12]}{wrong})"
    with pytest.raises(UserError) as raised:
        bind_expression(text, SCHEMA)
    assert raised.value.line_and_column == (1, text.index(wrong) + 1)


def test_long_lists_are_factors_up_to_a_limit() -> None:
    def condition(count: int) -> Expression:
        return bound("l", [str(number) for number in range(count)])

    listed = factor(condition(MOST_CANDIDATES))
    assert listed is not None
    assert listed == factor(bound("l", [str(number) for number in range(MOST_CANDIDATES)], "/**/"))
    assert factor(condition(MOST_CANDIDATES + 1)) is None
    form = normal(condition(MOST_CANDIDATES + 1))
    assert form.residual is not None
    assert not form.residual_may_fail
    assert factor(bound("l", [*map(str, range(40)), "NULL"])) is None
    assert factor(bound("i", [f"'{number}'" for number in range(40)])) == factor(
        bound("i", [str(number) for number in range(40)])
    )
    assert factor(bound("i", [*(f"'{number}'" for number in range(40)), "'x'"])) is None


def test_a_long_list_is_cut_where_people_read() -> None:
    assert show(bound("i", [str(number) for number in range(1_040)])) == (
        "in(i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 1,030 more)"
    )
    assert show(bound("l", ["1"] * 40)).startswith("in(l, 1, 1, ")


def calls_of(action: Callable[[], object]) -> int:
    """How many times an action calls functions of Headrace."""
    count = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and "headrace" in frame.f_code.co_filename

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("one", ["{}", "'text {}'", "{}.25", "{}e-3"])
def test_issue_18_item_4_a_list_of_a_hundred_thousand_takes_as_many_steps_as_one_of_a_thousand(
    one: str,
) -> None:
    """Tokens, functions called to parse, bind, plan, store, show and run, and stored rows do not grow with the list."""

    def steps(count: int) -> tuple[int, ...]:
        listed = ", ".join(one.format(number) for number in range(1_000_000, 1_000_000 + count))
        value = "CAST(price AS STRING)" if "'" in one else "price"
        text = f"SELECT auction FROM bids b [RANGE TUMBLING 1 HOUR] WHERE {value} IN ({listed})"
        operators: list[Any] = []
        rows = {"b.price": pa.array([1_000_001.25, None, 2.0])}

        def plan_store_and_run() -> None:
            query = bind_query(text, Catalog())
            operators.append(lower("q", query, "q1"))
            stored = codec().encode(operators[0]).body
            assert codec().decode(stored) == operators[0]
            assert " more)" in explain(operators[0])
            (predicate,) = (node.predicate for node in nodes(query.root) if isinstance(node, Filter))
            evaluate(predicate, rows, 3)

        calls = calls_of(plan_store_and_run)
        return len(tokens(text)), calls, len(codec().encode(operators[0]).body["rows"])

    for _ in range(17):  # constructors are compiled after the first objects
        steps(32)
    assert steps(100_000) == steps(1_000)

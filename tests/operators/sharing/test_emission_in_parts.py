"""Changes of many queries are made for some queries at a time: they are those that each query makes by itself, and no more items are in memory
at once than was chosen.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.operator import AT, QUERY_NUMBER, Operator, Step
from headrace.operators.families import finishing
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.finishing import emit_parts, plan_of
from headrace.operators.output import changelog
from headrace.operators.output.changelog import EmitMode, Items, Span
from headrace.planner.lowering.lower import lower
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws.strategies import column
from tests.operators.sharing.test_query_rows import ending, reading

QUERIES = 7
MODES: tuple[EmitMode, ...] = ("changes", "istream", "dstream", "rstream")


def operators() -> tuple[Operator, ...]:
    """Queries of one family."""
    asked = reading(ending(9, 0), some.call("=", column("x"), column("x")), False)
    return tuple(lower(f"q{number}", asked, f"q{number}") for number in range(QUERIES))


ROWS = st.lists(
    st.tuples(st.integers(0, QUERIES - 1), st.integers(0, 6), st.integers(0, 6), st.sampled_from("ab")),
    max_size=20,
)


def items_of(rows: list[tuple[int, int, int, str]]) -> Items:
    """Rows of a query's number, begin, length and key."""
    numbers, begin, length = (np.array([row[place] for row in rows], np.int64) for place in range(3))
    names = [pa.array([row[3] for row in rows], pa.string()), pa.array(np.array(length, float))]
    columns = {"c1": names[0], "c2": names[1], QUERY_NUMBER: pa.array(numbers)}
    return Items(columns, begin, begin + length)


def bag(step: Step) -> Counter[Any]:
    if step.results is None:
        return Counter()
    table = step.results.select(sorted(step.results.column_names))
    return Counter(map(str, table.to_pylist()))


@examples(150)
@given(
    st.lists(ROWS, max_size=3),
    st.sampled_from(MODES),
    st.sampled_from((1, 3, 8)),
    st.tuples(st.integers(0, 4), st.integers(4, 9)),
)
def test_parts_of_the_queries_are_emitted_as_all_at_once(
    drawn: list[list[tuple[int, int, int, str]]], emit_mode: EmitMode, at_once: int, bounds: tuple[int, int]
) -> None:
    queries, span, parts = operators(), Span(*bounds), [items_of(rows) for rows in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finishing, "_ITEMS_AT_ONCE", at_once)
        steps = emit_parts(Cohort.of(queries), parts, span, emit_mode)
    for number, query in enumerate(queries):
        own = items_of([row for rows in drawn for row in rows if row[0] == number])
        table, _ = changelog.emit(plan_of(query), own, span, emit_mode)
        assert bag(steps[query.id]) == bag(Step({}, table))
        results = steps[query.id].results
        if results is not None and results.num_rows:
            at = results.column(AT).to_pylist()
            assert at == sorted(at)
            assert steps[query.id].instants in (None, (at[0], at[-1]))
    assert steps.keys() == {query.id for query in queries}


def test_few_items_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, seen = np.random.default_rng(1), list[int]()
    rows = [
        (int(n), int(at), 3, "a")
        for n, at in zip(rng.permutation(700) % QUERIES, rng.integers(0, 9, 700), strict=True)
    ]
    emit = finishing.emit

    def counting(plan: Any, items: Items, *others: Any) -> Any:
        seen.append(items.rows)
        return emit(plan, items, *others)

    monkeypatch.setattr(finishing, "emit", counting)
    monkeypatch.setattr(finishing, "_ITEMS_AT_ONCE", 250)
    steps = emit_parts(
        Cohort.of(operators()), [items_of(rows[:300]), items_of(rows[300:])], Span(0, 20), "changes"
    )
    assert seen == [300, 200, 200], "of each query there are a hundred"
    assert all(step.instants is not None for step in steps.values()), (
        "nothing has to be sorted or searched for each query"
    )

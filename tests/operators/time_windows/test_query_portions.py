"""The rows of many queries are divided into those of some queries at a time, whatever their order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.aggregates.cell_table import FIRST_KEY
from headrace.operators.window_assembly import query_portions as module
from headrace.operators.window_assembly.query_portions import query_portions


def table(numbers: list[int], first: int) -> pa.Table:
    rows = np.arange(first, first + len(numbers))
    return pa.table({FIRST_KEY: pa.array(numbers, pa.int64()), "row": rows})


@given(
    st.lists(
        st.lists(st.tuples(st.lists(st.integers(3, 30), min_size=1), st.booleans()), max_size=3),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 40),
    st.sampled_from((1, 1 << 8)),
)
def test_each_query_is_in_one_portion_with_all_of_its_rows_in_order(
    drawn: list[list[tuple[list[int], bool]]], most: int, of_a_run: int
) -> None:
    parts, first = [], 0
    for part in drawn:
        tables = []
        for numbers, in_order in part:
            tables.append(table(sorted(numbers) if in_order else numbers, first))
            first += len(numbers)
        parts.append(tables)
    rows = [row for part in parts for of_part in part for row in of_part.to_pylist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS_OF_A_RUN", of_a_run)
        portions = list(query_portions(parts, most))
    assert {len(portion) for portion in portions} == {len(parts)}
    for index, part in enumerate(parts):
        found = [row for portion in portions for of_part in portion[index] for row in of_part.to_pylist()]
        own = [row for of_part in part for row in of_part.to_pylist()]
        assert sorted(map(str, found)) == sorted(map(str, own)), "all rows of a part, in that part"
        for portion in portions:
            for of_part in portion[index]:
                by_query = [(row[FIRST_KEY], row["row"]) for row in of_part.to_pylist()]
                assert sorted(by_query) == sorted(by_query, key=lambda row: row[0]), (
                    "in the order in which they were"
                )
    queries = [
        {row[FIRST_KEY] for part in portion for of_part in part for row in of_part.to_pylist()}
        for portion in portions
    ]
    assert all(max(own) < min(other) for own, other in pairwise(queries)), (
        "queries in order, each in one portion"
    )
    if len(rows) > most:
        sizes = Counter(row[FIRST_KEY] for row in rows)
        for own in queries:
            assert sum(sizes[query] for query in own) < most + max(sizes[query] for query in own)
        assert len(portions) >= min(len(sizes), len(rows) / (most + max(sizes.values())))


def test_rows_in_the_order_of_queries_are_not_copied() -> None:
    numbers = np.sort(np.arange(4000) % 10)
    panes = table([*numbers.tolist(), *numbers.tolist()], 0)
    whole = panes[FIRST_KEY].chunk(0).buffers()[1]
    for (part,) in query_portions([[panes]], 1000):
        assert len(part) == 2
        for piece in part:
            assert piece[FIRST_KEY].chunk(0).buffers()[1].address == whole.address


def test_many_rows_in_no_order_of_queries_stay_in_their_own() -> None:
    whole = table(np.random.default_rng(1).integers(0, 50, 5_000).tolist(), 0)
    portions = [pa.concat_tables(part) for (part,) in query_portions([[whole]], 1_000)]
    assert len(portions) > 3
    for portion in portions:
        assert (np.diff(portion["row"].to_numpy()) > 0).all()

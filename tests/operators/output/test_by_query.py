"""Results of several queries are separated by query, with their first and last instants where they are in order."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.operator import AT, QUERY_NUMBER
from headrace.operators.families.finishing import by_query, by_query_with_instants


def table(rows: list[tuple[int, int]]) -> pa.Table:
    numbers, at = [query for query, _ in rows], [at for _, at in rows]
    kind = pa.int64()
    return pa.table(
        {QUERY_NUMBER: pa.array(numbers, kind), AT: pa.array(at, kind), "n": list(range(len(rows)))}
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=12), st.booleans())
def test_the_rows_of_each_query(rows: list[tuple[int, int]], ordered: bool) -> None:
    rows = sorted(rows, key=lambda row: row[1]) if ordered else rows
    expected = {
        query: [(n, at) for n, (of, at) in enumerate(rows) if of == query]
        for query in sorted({of for of, _ in rows})
    }
    plain = dict(by_query(table(rows)))
    assert list(plain) == list(expected)
    ascend = all(list_ == sorted(list_, key=lambda row: row[1]) for list_ in expected.values())
    for query, part, instants in by_query_with_instants(table(rows)):
        assert list(zip(part["n"].to_pylist(), part[AT].to_pylist(), strict=True)) == expected[query]
        assert part.equals(plain[query])
        assert part.column_names == [AT, "n"]
        assert instants == ((expected[query][0][1], expected[query][-1][1]) if ascend else None)


def test_of_no_table_there_are_none() -> None:
    assert list(by_query(None)) == list(by_query_with_instants(None)) == []

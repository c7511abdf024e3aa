"""The order in which results are shown, against Python's own sort."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column
from headrace.algebra.query import SortKey
from headrace.operators.base.operator import AT
from headrace.operators.output.output_stage import HIDDEN
from headrace.runtime.results.result_log import in_parts, ordered
from headrace.runtime.results.time_merge import Part, instant_batches
from headrace.schema import BIGINT

FURTHEST = 2**63 - 1
NAMES = ["key", "value"]
small = st.integers(-3, 3)
anything = small | st.integers(-FURTHEST - 1, FURTHEST)
rows = st.lists(st.tuples(anything, small | anything, small), max_size=40)


@given(rows, st.booleans(), st.booleans())
def test_rows_stand_by_instant_then_the_querys_order_then_columns(rows, descending, narrow):
    """Also where the keys span more than one whole number holds, and when there is nothing or one row."""
    if narrow:  # keys that fit into one number together
        rows = [(at % 1000, key % 1000, value) for at, key, value in rows]
    at, key, value = ([row[index] for row in rows] for index in range(3))
    columns = {"key": key, "value": value, AT: at, f"{HIDDEN}0": key}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    sort = [SortKey(Column("key", BIGINT), descending, nulls_first=not descending)]
    shown = ordered(table, sort, ["key", "value"]).select(["key", "value"])
    expected = sorted(rows, key=lambda row: (row[0], -row[1] if descending else row[1], *row[1:]))
    assert list(zip(*shown.to_pydict().values(), strict=True)) == [row[1:] for row in expected]


@given(st.lists(rows, max_size=4), st.booleans(), st.integers(1, 5))
def test_results_of_several_tasks_are_ordered_block_by_block_as_in_one_go(parts, by_instant, block):
    """Each part by instant, as state tasks leave them, or in any order; many rows of one instant are longer than a block."""
    parts = [sorted(part, key=lambda row: row[0]) if by_instant else part for part in parts]
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64()), (AT, pa.int64())])
    table = pa.concat_tables(
        [schema.empty_table()]
        + [pa.table([[row[place] for row in part] for place in (1, 2, 0)], schema=schema) for part in parts]
    )
    shown = ordered(table, [], ["key", "value"], block)
    assert shown.equals(ordered(table, [], ["key", "value"], table.num_rows))
    expected = sorted(row for part in parts for row in part)
    assert list(zip(*shown.to_pydict().values(), strict=True)) == [row[1:] for row in expected]


@given(st.lists(rows, min_size=1, max_size=4), st.integers(1, 6), st.none() | small)
def test_a_history_is_returned_in_parts_in_the_order_of_all(parts, piece, since):
    """Parts by instant come in pieces, others in one; tables share no instant."""
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64()), (AT, pa.int64())])
    read = []
    for part in (part for part in parts if part):
        table = pa.table([[row[at] for row in part] for at in (1, 2, 0)], schema=schema)
        at = table.column(AT).to_pylist()
        size = piece if at == sorted(at) else len(at)
        read.append(Part(min(at), lambda table=table, size=size: iter(table.to_batches(size))))
    expected = sorted(row for part in parts for row in part if since is None or row[0] >= since)
    chunks = [
        list(zip(*table.to_pydict().values(), strict=True)) for table in in_parts(read, [], NAMES, since)
    ]
    assert [row for rows in chunks for row in rows] == [row[1:] for row in expected]
    stretch = [table.column(AT).to_pylist() for table in instant_batches(read, piece)]
    assert all(max(before) < min(after) for before, after in pairwise(stretch))
    assert sum(map(len, stretch)) == sum(map(len, parts))


def test_a_long_history_is_read_piece_by_piece():
    """Of two parts no more is in memory than a piece of each, however long they are."""
    read, returned = [0, 0], 0

    def part(number):
        for first in range(0, 100_000, 1000):
            read[number] += 1000
            at = range(first, first + 1000)
            yield pa.record_batch([pa.array(at, pa.int64()), pa.array(at, pa.int64())], names=["key", AT])

    for chunk in instant_batches([Part(0, lambda: part(0)), Part(0, lambda: part(1))], 1000):
        returned += chunk.num_rows
        assert sum(read) - returned <= 4000
    assert returned == 200_000


def test_many_small_parts_and_many_rows_of_one_instant_are_returned_whole():
    """Nothing is read again for each of them."""
    small = [
        pa.table({"key": pa.array([at], pa.int64()), AT: pa.array([at], pa.int64())}) for at in range(3000)
    ]
    one = pa.table({"key": pa.array(range(5000), pa.int64()), AT: pa.array([7] * 5000, pa.int64())})
    parts = [Part.of(table) for table in small] + [Part(7, lambda: iter(one.to_batches(10)))]
    tables = list(instant_batches(parts, 100))
    at = [row for table in tables for row in table.column(AT).to_pylist()]
    assert sorted(at) == sorted([*range(3000), *[7] * 5000])
    assert all(max(a.column(AT).to_pylist()) < min(b.column(AT).to_pylist()) for a, b in pairwise(tables))

"""Archive runs: every row once, each run in time order, full ones given up while rows still come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive import runs
from headrace.archive.run_file import RunFile
from headrace.archive.runs import AT, FATE, POSITION, RunWriter

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.float64()), ("k", pa.string())])


def write(batches: Sequence[Sequence[int]], full: int) -> list[list[pa.Buffer]]:
    """Runs given up by each batch, then those of the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "RUN_ROWS", full)
        writer = RunWriter(SCHEMA)
        found, position = [], 0
        for times in batches:
            at = np.array(times, np.int64)
            places = np.arange(position, position + len(at))
            position += len(at)
            columns = [pa.array(places * 7), pa.array(at / 3), pa.array([f"k{t}" for t in times])]
            found.append(writer.add(columns, at, places, at < 0))
        return [*found, writer.finish()]


def read(run: pa.Buffer) -> pa.Table:
    return pq.read_table(pa.BufferReader(run))


@given(
    batches=st.lists(st.lists(st.integers(-20, 20), min_size=1, max_size=6), min_size=1, max_size=8),
    full=st.sampled_from((1, 3, 8, 1000)),
)
def test_every_row_is_in_one_run_and_every_run_is_in_order(batches: list[list[int]], full: int) -> None:
    found = [run for given_up in write(batches, full) for run in given_up]
    seen = []
    for run in found:
        table = read(run).to_pydict()
        order = list(zip(table[AT], table[POSITION], strict=True))
        assert order == sorted(order)
        seen += zip(table[POSITION], table[AT], table["x"], table["y"], table["k"], table[FATE], strict=True)
    times = [at for batch in batches for at in batch]
    assert sorted(seen) == [(n, at, n * 7, at / 3, f"k{at}", int(at < 0)) for n, at in enumerate(times)]


def test_a_run_is_given_up_when_it_is_full_and_not_before() -> None:
    found = write([[0, 1, 2], [3, 4, 5], [6, 7, 8]], full=5)
    assert [[read(run).num_rows for run in given_up] for given_up in found] == [[], [6], [], [3]]


def test_rows_out_of_order_are_kept_only_until_they_fill_a_run() -> None:
    found = write([[5, 1], [0, 9], [3, 4]], full=4)
    assert [[read(run).num_rows for run in given_up] for given_up in found] == [[], [4], [], [2]]


def test_the_first_null_of_a_column_ends_a_run_and_no_reader_sees_which_run_has_one() -> None:
    schema = pa.schema([("x", pa.int64()), ("k", pa.string())])
    batches = [([1, 2], ["a", "b"]), ([3, 4], ["c", "d"]), ([5, None], ["e", "f"]), ([6, 7], ["g", None])]
    batches += [([8, None], ["h", None])]
    writer, made = RunWriter(schema), []
    for number, (x, k) in enumerate(batches):
        at = np.arange(2, dtype=np.int64) + 10 * number
        made += writer.add([pa.array(x, pa.int64()), pa.array(k)], at, at, None)
    made += writer.finish()
    files = [RunFile.of(run, "run") for run in made]
    assert [one.read().num_rows for one in files] == [4, 2, 4]
    levels = [
        [column.max_definition_level for column in map(one.file.schema.column, range(2))] for one in files
    ]
    assert levels == [[0, 0], [1, 0], [1, 1]]
    read = pa.concat_tables([one.read() for one in files])  # which takes equal schemas alone
    assert read.column("x").to_pylist() == [1, 2, 3, 4, 5, None, 6, 7, 8, None]
    assert [read.schema.field(name).nullable for name in ("x", "k", POSITION)] == [True, True, False]
    parts = [batch for one in files for batch in one.batches(100, ["k"])]
    assert pa.Table.from_batches(parts).column("k").to_pylist() == read.column("k").to_pylist()


def test_columns_of_the_archive_have_no_levels_and_positions_no_bounds() -> None:
    (run,) = write([[1, 2, 3]], full=1)[0]
    file = pq.ParquetFile(pa.BufferReader(run))
    levels = {column.name: column.max_definition_level for column in map(file.schema.column, range(6))}
    assert levels == {"x": 0, "y": 0, "k": 0, POSITION: 0, FATE: 0, AT: 0}
    group = file.metadata.row_group(0)
    bounded = {group.column(index).path_in_schema for index in range(6) if group.column(index).is_stats_set}
    assert bounded == {"x", AT}


@given(
    st.integers(0, 40),
    st.integers(1, 9),
    st.integers(1, 7),
    st.integers(1, 50),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_the_parts_of_row_groups_are_all_of_their_rows_once_and_in_order(
    rows: int, of_group: int, parts: int, of_batch: int, chosen: list[bool]
) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": range(rows)}), sink, row_group_size=of_group)
    file = RunFile.of(sink.getvalue(), "run")
    groups = [number for number in range(len(file.rows_of_groups)) if chosen[number]]
    for given_groups in (None, groups):
        whole = file.read(["v"], given_groups).column("v").to_pylist()
        read = [
            [
                value
                for batch in file.batches(of_batch, ["v"], given_groups, (part, parts))
                for value in batch.column("v").to_pylist()
            ]
            for part in range(parts)
        ]
        assert list(chain.from_iterable(read)) == whole
        decoded = [len(file._within(given_groups, part, parts)[0]) for part in range(parts)]
        assert sum(decoded) <= len(file.rows_of_groups if given_groups is None else groups) + parts - 1
        assert max(map(len, read)) - min(map(len, read)) <= 1

"""Columns of integers come back from fewer bytes as they were, whatever their range, type and place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.files.container import Container, parts
from headrace.store.files.narrow_columns import narrowed, schema_narrowed, widened

STAMP = pa.timestamp("us", tz="UTC")
KINDS = {
    pa.int64(): 64,
    STAMP: 64,
    pa.duration("us"): 64,
    pa.time64("us"): 64,
    pa.int32(): 32,
    pa.date32(): 32,
    pa.int16(): 16,
    pa.float64(): None,
    pa.bool_(): None,
    pa.string(): None,
}
EDGES = [0, 1, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32]


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    """With the greatest and the least integers, ranges at the bounds of the narrow types, and NULLs."""
    kind = draw(st.sampled_from(list(KINDS)))
    bits = KINDS[kind]
    if bits is None:
        values: list[Any] = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        return pa.array([None if value else value for value in values], pa.bool_()).cast(kind)
    top = (1 << (bits - 1)) - 1
    span = draw(st.sampled_from([edge for edge in EDGES if edge <= 2 * top]))
    least = draw(st.sampled_from((-top - 1, -1, 0, 7, top - span)).filter(lambda value: value + span <= top))
    drawn = draw(st.lists(st.integers(least, least + span), min_size=rows, max_size=rows))
    if len(drawn) > 1:
        drawn[0], drawn[-1] = least, least + span
    missing = np.zeros(rows, bool)
    if rows and draw(st.booleans()):
        missing[draw(st.integers(0, rows - 1))] = draw(st.booleans())
    plain = pa.array(np.array(drawn, f"i{bits // 8}"), mask=missing)
    return plain.view(kind)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 6))
    arrays = draw(st.lists(columns(rows), min_size=1, max_size=4))
    fields = [pa.field(f"c{index}", array.type, metadata={"n": "x"}) for index, array in enumerate(arrays)]
    whole = pa.table(arrays, pa.schema(fields, {"about": "y"}))
    return pa.concat_tables([whole.slice(0, 2), whole.slice(2)]).slice(draw(st.integers(0, 1)))


@given(tables())
def test_what_is_narrowed_is_widened_to_the_same(table: pa.Table) -> None:
    written, narrow = narrowed(table)
    assert written.schema.equals(schema_narrowed(table.schema, narrow), check_metadata=True)
    assert written.num_rows == table.num_rows
    if table.num_rows:
        batches = [widened(batch, table.schema, narrow) for batch in written.to_batches()]
        back = pa.Table.from_batches(batches)
        assert back.equals(table, check_metadata=True)
        back.validate()


@pytest.mark.parametrize(("span", "size"), [(0, 0), (1, 1), (255, 1), (256, 2), (65_536, 4), (1 << 32, 8)])
def test_differences_take_the_narrowest_type(span: int, size: int) -> None:
    least = -(1 << 62)
    table = pa.table({"a": np.array([least, least + span]), "kept": [0.5, 1.5]})
    written, narrow = narrowed(table)
    assert narrow == ([[0, least, size]] if size < 8 else [])
    assert written.column_names == (["kept"] if size == 0 else ["a", "kept"])
    assert written.nbytes == 2 * (size + 8)


def test_rows_without_another_column_keep_one() -> None:
    table = pa.table({"a": np.full(3, 7), "b": np.full(3, 8)})
    written, narrow = narrowed(table)
    assert (written.num_rows, narrow) == (3, [[0, 7, 0], [1, 8, 1]])


def results(rows: int, seed: int = 1) -> pa.Table:
    """As results are: values and instants of a narrow range, a constant, and one memory under two names."""
    rng = np.random.default_rng(seed)
    at = pa.array(1_700_000_000_000_000 + rng.integers(0, 1 << 30, rows))
    columns = {
        "v": rng.integers(0, 1000, rows),
        "at": at,
        "also": at.view(STAMP),
        "none": np.zeros(rows, int),
    }
    return pa.table(columns)


@pytest.mark.parametrize("piece", [None, 1000])
def test_large_sections_of_a_compressed_container_are_narrow(piece: int | None) -> None:
    table = results(50_000)
    data = b"".join(parts({"t": table}, compressed=True, piece=piece))
    assert len(data) < 50_000 * 6 + 100_000, "of 32 bytes of a row 2 + 4 are written"
    assert len(data) > 50_000 * 6, "and are not compressed, since that saves nothing"
    container = Container.open(data)
    container.verify()
    assert container.table("t").equals(table)
    batches = list(container.batches("t")())
    assert [batch.num_rows for batch in batches] == [piece or 50_000] * (50_000 // (piece or 50_000))
    assert pa.Table.from_batches(batches).equals(table)
    assert container.schema("t") == table.schema


def test_what_repeats_is_compressed_besides() -> None:
    table = pa.table({"a": np.arange(80_000) // 1000, "b": ["one text"] * 80_000})
    data = b"".join(parts({"t": table}, compressed=True, piece=1000))
    assert len(data) < 80_000 * 6, "of 20 bytes of a row, of which 12 are text and where it ends"
    assert Container.open(data).table("t").equals(table)


def test_small_sections_together_are_narrow_and_each_is_widened_alone() -> None:
    tables = {f"q{number}": results(500 + number, number) for number in range(40)}
    data = b"".join(parts(tables, compressed=True))
    rows = sum(table.num_rows for table in tables.values())
    assert len(data) < rows * 10 + 10_000, "of 32 bytes of a row 2 + 4 + 4: nothing is one memory in a group"
    container = Container.open(data)
    container.verify()
    assert all(container.table(name).equals(table) for name, table in tables.items())
    assert next(iter(container._groups.values())).nbytes < rows * 11, "a group stays as it is written"
    [(group, sections)] = container.groups()
    assert {name: group.slice(first, count) for name, first, count in sections} == tables


def test_what_is_read_at_once_stays_as_wide_as_it_is() -> None:
    """State is read in every epoch: its columns are views of the file."""
    table = results(50_000)
    data = pa.py_buffer(b"".join(parts({"t": table})))
    address = Container.open(data).table("t")["v"].chunk(0).buffers()[1].address
    assert data.address <= address < data.address + data.size

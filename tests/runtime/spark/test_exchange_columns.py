"""Columns of large tables of numbers in a blob's file: read as they were, from any chunks, in one piece."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.exchange_columns import are_plain
from headrace.runtime.messages.exchange_files import received
from headrace.runtime.messages.task_messages import ScanReceipt

ROWS = 100_000


def numbers(rows: int) -> pa.Table:
    """Columns of every width, with zeros, negative zeros and metadata."""
    each = np.arange(rows)
    columns = {
        "key": pa.array(each // 1000),
        "slot": pa.array((each % 7).astype(np.int16)),
        "tiny": pa.array((each % 100).astype(np.int8)),
        "value": pa.array(each / 3),
        "at": pa.array(each).cast(pa.timestamp("us", "UTC")),
        "price": pa.array((each % 1000).astype(np.int32)).cast(pa.decimal128(38, 4)),
        "none": pa.array(np.zeros(rows, np.int64)),
        "none_but_the_last": pa.array((each == rows - 1).astype(np.int64)),
        "negative_zero": pa.array(np.full(rows, -0.0)),
    }
    return pa.table(columns).replace_schema_metadata({"a": "b"})


def through_a_file(tables: dict[str, pa.Table]) -> tuple[dict[str, pa.Table], int]:
    """What arrives, and the bytes of the file."""
    data = b"".join(ScanBlob(ScanReceipt(3), {}, tables).parts())
    aligned = pa.allocate_buffer(len(data))
    memoryview(aligned).cast("B")[:] = data
    blob = ScanBlob.unpack(aligned)
    assert blob.receipt == ScanReceipt(3)
    return dict(blob.sections), len(data)


def test_tables_of_chunks_and_slices_arrive_in_one_piece() -> None:
    whole = numbers(ROWS)
    cut = pa.concat_tables([whole.slice(5, 700), whole.slice(705, 0), whole.slice(705, 80_000)])
    assert are_plain(cut)
    found, _ = through_a_file({"q/a": cut, "q/small": whole.slice(3, 9), "q/b": whole})
    assert all(table.schema.metadata == {b"a": b"b"} for table in found.values())
    for name, sent in (("q/a", cut), ("q/small", whole.slice(3, 9)), ("q/b", whole)):
        assert found[name].equals(sent, check_metadata=True)
        found[name].validate(full=True)
    assert {column.num_chunks for column in found["q/a"].columns} == {1}
    assert np.signbit(found["q/b"]["negative_zero"].to_numpy()).all()
    assert found["q/b"]["price"][999].as_py() == Decimal("999.0000")
    assert found["q/b"]["at"][7].as_py() == datetime(1970, 1, 1, microsecond=7, tzinfo=UTC)


def test_a_column_of_zeros_has_no_bytes() -> None:
    _, with_zeros = through_a_file({"q": numbers(ROWS)})
    _, without = through_a_file({"q": numbers(ROWS).drop_columns(["none"])})
    assert with_zeros - without < 500


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, *range(1, ROWS * 2)]),
        pa.array(["text"] * ROWS * 2),
        pa.array([True, False] * ROWS),
        pa.array([[1]] * ROWS * 2),
        pa.array(["text"] * ROWS * 2).dictionary_encode(),
        pa.nulls(ROWS * 2),
    ],
    ids=lambda column: str(column.type),
)
def test_other_columns_are_written_as_before(column: pa.Array) -> None:
    table = pa.table({"n": np.arange(ROWS * 2), "other": column})
    assert table.nbytes > 1 << 20
    assert not are_plain(table)
    assert through_a_file({"q": table})[0]["q"].equals(table)


def test_what_is_small_or_packed_is_no_column() -> None:
    assert not are_plain(numbers(10))
    blob = ScanBlob(ScanReceipt(1), {}, {"q": numbers(ROWS)})
    assert received(blob.pack()) == blob


def test_columns_that_are_one_memory_are_written_once() -> None:
    each = pa.array(np.arange(ROWS) + 1)
    table = pa.table({"a": each, "b": each, "c": each.cast(pa.timestamp("us")), "d": each.slice(0)})
    other = pa.table({"a": each, "b": pa.array(np.arange(ROWS) + 1)})
    for sent, columns in ((table, 1), (other, 2), (pa.concat_tables([table, table.slice(0, 9)]), 1)):
        found, size = through_a_file({"q/a": sent})
        assert found["q/a"].equals(sent)
        assert columns * 8 * ROWS < size < columns * 8 * ROWS + 8192

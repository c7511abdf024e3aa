"""A delta is divided between state tasks by the slots of its rows: large chunks of one task pass as they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.group_codes import SLOTS
from headrace.operators.base.operator import SLOT
from headrace.runtime.tasks.scan import scan_task

OWNERS = st.sampled_from(((0,), (0, 128), (0, 1, 255), (0, 64, 128, 192)))
CHUNKS = st.lists(st.lists(st.integers(0, SLOTS - 1), max_size=6), max_size=5)


def delta(chunks: list[list[int]]) -> pa.Table:
    schema = pa.schema([(SLOT, pa.int16()), ("row", pa.int64())])
    places = np.cumsum([0, *map(len, chunks)])
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(slots, pa.int16()), pa.array(range(start, start + len(slots)), pa.int64())],
            schema=schema,
        )
        for start, slots in zip(places.tolist(), chunks, strict=False)
    ]
    return pa.Table.from_batches(batches, schema)


@given(chunks=CHUNKS, owners=OWNERS, large=st.sampled_from((0, 2, 1 << 16)))
def test_each_task_gets_its_rows_in_their_order(
    chunks: list[list[int]], owners: tuple[int, ...], large: int
) -> None:
    table = delta(chunks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_task, "_LARGE_CHUNKS", large)
        shares = dict(scan_task._split(table, owners))
    if len(owners) == 1:
        assert shares[0] is table
        return
    rows = list(zip(table[SLOT].to_pylist(), table["row"].to_pylist(), strict=True))
    for task, (low, high) in enumerate(zip(owners, (*owners[1:], SLOTS), strict=True)):
        own = [row for slot, row in rows if low <= slot < high]
        assert (shares[task]["row"].to_pylist() if task in shares else []) == own


def test_a_chunk_of_one_task_is_not_copied() -> None:
    table = delta([[3, 9, 100], [90, 130], [200, 128]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_task, "_LARGE_CHUNKS", 1)
        shares = dict(scan_task._split(table, (0, 128)))
    addresses = [chunk.buffers()[1].address for chunk in table["row"].chunks]
    assert shares[0]["row"].chunk(0).buffers()[1].address == addresses[0]
    assert shares[1]["row"].chunk(1).buffers()[1].address == addresses[2]

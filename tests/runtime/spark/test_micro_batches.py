"""A micro-batch that Spark repeats is compared with what an earlier attempt has written: that is what counts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.runtime.spark.streaming_source import _write_batches

NAME = "batch-000000000000.arrow"


def batches(values: list[int], size: int = 2) -> list[pa.RecordBatch]:
    return pa.table({"v": pa.array(values, pa.int64())}).to_batches(max_chunksize=size)


@pytest.mark.parametrize(
    ("again", "is_same"),
    [
        (batches([1, 2, 3]), True),
        (batches([1, 2, 3], 1), True),
        (batches([3, 1, 2]), True),
        (batches([1, 2, 2]), False),
        (batches([1, 2]), False),
    ],
)
def test_a_repetition_is_known_by_its_rows_in_any_order(
    again: list[pa.RecordBatch], is_same: bool, tmp_path: Path
) -> None:
    assert _write_batches(batches([1, 2, 3]), tmp_path, NAME) == (3, True)
    before = (tmp_path / NAME).read_bytes()
    assert _write_batches(again, tmp_path, NAME) == (3, is_same)
    assert (tmp_path / NAME).read_bytes() == before


def test_a_repetition_without_rows_is_another_one(tmp_path: Path) -> None:
    assert _write_batches([], tmp_path, NAME) == (0, True)
    _write_batches(batches([1]), tmp_path, NAME)
    assert _write_batches([], tmp_path, NAME) == (0, False)

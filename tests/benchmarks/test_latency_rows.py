"""The rows that latency is measured with: what their queries must answer, and their bytes for peers in Java."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.expected import WrongAnswer
from benchmarks.latency_rows import (
    EVERY_US,
    STREAM,
    Answers,
    batches,
    dues_us,
    expected,
    queries,
    until_ms,
    write_bytes,
    write_dues,
)
from benchmarks.latency_runner import answered
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

ROWS, BATCHES, QUERIES = 20, 650, 7


def test_what_is_expected_is_what_the_queries_answer(tmp_path: Path) -> None:
    """Thirteen seconds: the windows of the first ten begin before the rows."""
    tables = batches(ROWS, BATCHES)
    with Hub(tmp_path, LocalExecutor(), tasks=1) as hub:
        hub.execute(STREAM)
        others = queries(QUERIES)
        hub.register_many(others)
        hub.push("e", pa.concat_tables(tables))
        hub.catch_up()
        found = Answers.from_json(answered(hub, others, until_ms(BATCHES)))
    meant = expected(tables, QUERIES)
    assert found == meant
    assert min(meant.selected, meant.windows, meant.counted) > 0
    with pytest.raises(WrongAnswer, match="Flink answered"):
        Answers(meant.selected, meant.windows, meant.counted + 1).require(meant, "Flink")


def test_bytes_are_the_rows_in_the_order_of_java(tmp_path: Path) -> None:
    tables = batches(ROWS, 2)
    write_bytes(tables, tmp_path / "rows")
    rows = pa.concat_tables(tables)
    read = list(struct.iter_unpack(">qqid", (tmp_path / "rows").read_bytes()))
    columns = [rows.column("at").cast(pa.int64()), *(rows.column(name) for name in ("n", "key", "value"))]
    assert read == list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert [n for _, n, _, _ in read if n >= 0] == [0, 1]


def test_batches_are_due_at_any_distance_from_what_happens_every_ten_milliseconds(tmp_path: Path) -> None:
    dues = dues_us(700)
    gaps = dues[1:] - dues[:-1]
    assert abs(gaps.mean() / EVERY_US - 1) < 0.001
    assert gaps.min() > EVERY_US / 2
    parts = np.bincount(dues % 10_000 // 1_000, minlength=10)
    assert parts.min() > 35
    write_dues(700, tmp_path / "dues")
    assert struct.unpack(">700q", (tmp_path / "dues").read_bytes()) == tuple(dues.tolist())

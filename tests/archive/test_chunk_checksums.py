"""Archive runs have checksums of their columns, which readers compare, and other readers of Parquet do not see."""

from __future__ import annotations

import decimal
from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive.run_file import RunFile
from headrace.archive.runs import RunEncoder
from headrace.errors import CorruptStore
from headrace.store.files.checksums import chunk_checksums
from headrace.store.files.checksums.fast_checksum import fast_checksum

ROWS = 600


def rows() -> pa.Table:
    """Columns of every form: packed, split into streams of bytes, with a dictionary, nested, and empty."""
    numbers = np.arange(ROWS)
    return pa.table(
        {
            "n": pa.array(numbers * 7919 % 1000),
            "d": pa.array(numbers / 3, mask=numbers % 5 == 0),
            "t": [f"text {n % 9}" for n in range(ROWS)],
            "a": [[n, 2] for n in range(ROWS)],
            "s": [{"x": n, "y": ["é"]} for n in range(ROWS)],
            "m": pa.array([[("k", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
            "c": pa.array([decimal.Decimal(n) for n in range(ROWS)], pa.decimal128(12, 2)),
            "at": pa.array(numbers).cast(pa.timestamp("us", tz="UTC")),
            "none": pa.nulls(ROWS, pa.float64()),
        }
    )


def written(groups: int) -> pa.Buffer:
    run, size = RunEncoder(rows().schema), ROWS // groups
    run.write(rows(), np.arange(ROWS), row_group=size)
    return run.close({"about": "x"})


@pytest.fixture(params=[True, False], ids=["by column", "one"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pa.Buffer:
    """A run with a checksum of each column of each row group, or with one."""
    if request.param:
        monkeypatch.setattr(chunk_checksums, "_SMALL", 0)
    return written(3)


def flipped(data: pa.Buffer, at: int) -> pa.Buffer:
    changed = bytearray(data.to_pybytes())
    changed[at] ^= 1 << at % 8
    return pa.py_buffer(bytes(changed))


def test_no_flipped_bit_of_a_run_is_another_answer(run: pa.Buffer) -> None:
    """In pages, their headers, the checksums and the footer; without the magic word of the checksums the rows are those written."""
    end = chunk_checksums._footer_start(run)
    word = range(end - 8, end)
    for at in range(4, run.size):
        if at in word:
            assert RunFile.of(flipped(run, at), "r").read().equals(rows())
        else:
            with pytest.raises(CorruptStore, match="'archive/r' is damaged"):
                RunFile.of(flipped(run, at), "archive/r").read()


def test_other_columns_and_row_groups_of_a_damaged_run_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_checksums, "_SMALL", 0)
    run = written(3)
    column = pq.read_metadata(pa.BufferReader(run)).row_group(1).column(1)
    damaged = RunFile.of(flipped(run, column.data_page_offset + column.total_compressed_size // 2), "r")
    others = [name for name in rows().column_names if name != "d"]
    assert damaged.read(others).equals(rows().select(others))
    assert damaged.read(None, [0, 2]).num_rows == 400
    for read in (lambda: damaged.read(["d"]), lambda: [*damaged.batches(50, ["n", "d"], [1])]):
        with pytest.raises(CorruptStore, match="column 1 of row group 1"):
            read()
    assert sum(batch.num_rows for batch in damaged.batches(50, ["n", "d"], part=(0, 3))) == 200


def test_other_readers_of_parquet_read_the_run(run: pa.Buffer, tmp_path) -> None:
    file = tmp_path / "run.parquet"
    file.write_bytes(run)
    assert pq.read_table(file).equals(rows())
    asked = f"SELECT SUM(n), COUNT(*), SUM(a[1]), SUM(s.x), COUNT(d) FROM '{file}'"
    assert duckdb.sql(asked).fetchall() == [
        (
            sum(n * 7919 % 1000 for n in range(ROWS)),
            ROWS,
            sum(range(ROWS)),
            sum(range(ROWS)),
            ROWS * 4 // 5,
        )
    ]


@pytest.mark.parametrize("groups", [1, 3])
def test_runs_of_earlier_versions_have_none_and_are_read(groups: int, tmp_path) -> None:
    pq.write_table(rows(), tmp_path / "run.parquet", row_group_size=ROWS // groups)
    run = RunFile.of(pa.py_buffer((tmp_path / "run.parquet").read_bytes()), "r")
    assert run.checksums is None
    assert run.read(["n", "s"]).equals(rows().select(["n", "s"]))


def test_a_run_without_rows_is_read() -> None:
    data = RunEncoder(rows().schema).close()
    assert RunFile.of(data, "r").read().num_rows == 0


@pytest.mark.parametrize("place", [(0, 0), (3, 6), (0, 20_000), (5, 20_000), (8, 19_993), (1, 4100)])
def test_the_fast_checksum_sees_every_bit(place: Sequence[int]) -> None:
    data = np.random.default_rng(1).bytes(20_000)
    start, end = place
    expected = fast_checksum(pa.py_buffer(data), start, end)
    for at in {0, start - 1, start, start + 1, (start + end) // 2, end - 9, end - 1, end, 19_999} - {
        -1,
        -9,
        20_000,
    }:
        changed = bytearray(data)
        changed[at] ^= 0x80
        differs = fast_checksum(pa.py_buffer(bytes(changed)), start, end) != expected
        assert differs == (start <= at < end)
    moved = data[4096:8192] + data[:4096] + data[8192:]
    assert end < 8192 or start or fast_checksum(pa.py_buffer(moved[8:] + moved[:8]), 0, end) != expected

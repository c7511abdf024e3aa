"""Parts of runs that are announced before they are read: how many, and which bytes. Only counts, since times are the storage's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive.in_flight import AHEAD, MOST_BYTES, announced, ranges_of
from headrace.archive.runs import FATE, POSITION, RunEncoder
from headrace.store.files.filesystem import LocalStore


@pytest.mark.parametrize("count", [0, 1, 3, AHEAD, AHEAD + 1, 40])
def test_each_part_is_read_when_it_and_those_that_follow_are_announced(count: int) -> None:
    asked: list[int] = []
    read = []
    for part in announced(range(count), lambda part: asked.append(part) or 1000):  # type: ignore[func-returns-value]
        assert len(asked) == min(count, part + AHEAD + 1)
        read.append(part)
    assert read == asked == list(range(count))


def test_parts_that_follow_are_announced_up_to_some_bytes() -> None:
    """Of large parts one is announced at a time: their bytes are in memory."""
    asked: list[int] = []
    for part in announced(range(20), lambda part: asked.append(part) or MOST_BYTES // 2):  # type: ignore[func-returns-value]
        assert len(asked) == min(20, part + 3)
    large = announced(range(20), lambda part: asked.append(part) or 2 * MOST_BYTES)  # type: ignore[func-returns-value]
    asked.clear()
    assert next(large) == 0
    assert asked == [0, 1]


def run(rows: int = 40_000, group: int = 5_000) -> pa.Buffer:
    number = np.arange(rows)
    table = pa.table(
        {
            "at": number,
            "v": np.random.default_rng(3).random(rows),
            "text": pa.array([f"text {number % 50}" for number in range(rows)]),
            POSITION: number,
            FATE: pa.array(np.zeros(rows, np.int8)),
        }
    )
    encoder = RunEncoder(table.schema)
    encoder.write(table, number, row_group=group)
    return encoder.close()


def test_ranges_are_those_of_the_columns_and_row_groups_alone() -> None:
    data = run()
    footer = pq.read_metadata(pa.BufferReader(data))
    groups, columns = [0, 1, 2, 6], {"v", "text"}
    ranges = ranges_of(footer, columns, groups)
    spent = np.frombuffer(data, np.uint8).copy()
    for start, size in ranges:
        spent[start : start + size] = 0
    needed = pq.ParquetFile(pa.BufferReader(data)).read_row_groups(groups, sorted(columns))
    kept = np.zeros_like(spent)
    for start, size in ranges:
        kept[start : start + size] = np.frombuffer(data, np.uint8)[start : start + size]
    only = pq.ParquetFile(pa.BufferReader(kept.tobytes()), metadata=footer)
    assert only.read_row_groups(groups, sorted(columns)).equals(needed), "no byte of them is missing"
    own = sum(
        footer.row_group(group).column(number).total_compressed_size for group in groups for number in (1, 2)
    )
    assert own <= sum(size for _, size in ranges) < data.size / 2
    assert len(ranges) == 2, "what is between groups 2 and 6 is skipped"


def test_a_whole_file_is_one_range() -> None:
    data = run()
    footer = pq.read_metadata(pa.BufferReader(data))
    ranges = ranges_of(footer, set(footer.schema.names), range(footer.num_row_groups))
    assert len(ranges) == 1
    assert ranges[0][1] >= 0.9 * data.size - 4096


def test_advice_about_a_file_that_is_not_there_is_no_error_and_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised: list[int] = []
    monkeypatch.setattr("os.posix_fadvise", lambda _, at, *__: advised.append(at))
    LocalStore(str(tmp_path)).will_need("absent", [(0, 10)])
    assert advised == []


def test_long_ranges_are_announced_in_pieces_that_the_system_does_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    store.write_once("file", [bytes(1 << 21)])
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr("os.posix_fadvise", lambda _, at, size, __: advised.append((at, size)))
    store.will_need("file", [(100, (1 << 20) + 7), (1 << 21, 0)])
    assert all(size <= 1 << 19 for _, size in advised)
    assert advised[0][0] == 100
    assert [at + size for at, size in advised[:-1]] == [at for at, _ in advised[1:]]
    assert sum(size for _, size in advised) == (1 << 20) + 7

"""Blocks of archive runs: a run is the sum of its equal random parts, each in time order, the same whenever it is written."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.blocks import Blocks, Parts, blocks_for, blocks_of, hashes_of, seed_of
from headrace.archive.prefixes import Prefixes
from headrace.archive.runs import AT, BLOCK, POSITION, RunWriter
from headrace.runtime.hub.opening import open_hub

SCHEMA = pa.schema([("x", pa.int64())])
SEED = seed_of("bids")


def written(times: list[int], cuts: list[int], blocks: int) -> bytes:
    """One run of rows at these times, taken in as the batches between the cuts."""
    writer = RunWriter(SCHEMA, blocks=Blocks(SEED, blocks))
    edges = sorted({0, len(times), *(cut % len(times) for cut in cuts)})
    for low, high in itertools.pairwise(edges):
        at, position = np.array(times[low:high], np.int64), np.arange(low, high)
        assert writer.add([pa.array(position * 7)], at, position, None) == []
    (data,) = writer.finish()
    found: bytes = data.to_pybytes()
    return found


@given(
    times=st.lists(st.integers(-50, 50), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    blocks=st.sampled_from((2, 4, 7, 64)),
)
def test_the_blocks_are_the_run_and_each_is_in_order(times: list[int], cuts: list[int], blocks: int) -> None:
    data = written(times, cuts, blocks)
    file = pq.ParquetFile(pa.BufferReader(data))
    seen, before = [], -1
    for group in range(file.num_row_groups):
        part = file.read_row_group(group).to_pydict()
        (block,) = set(part[BLOCK])
        assert before < block < blocks
        before = block
        statistics = (
            file.metadata.row_group(group).column(file.schema_arrow.get_field_index(BLOCK)).statistics
        )
        assert (statistics.min, statistics.max) == (block, block)  # what lets any reader skip it
        order = list(zip(part[AT], part[POSITION], strict=True))
        assert order == sorted(order)
        seen += zip(part[POSITION], part[AT], part["x"], strict=True)
    assert sorted(seen) == [(n, at, 7 * n) for n, at in enumerate(times)]
    assert data == written(times, [], blocks)


@pytest.mark.parametrize("blocks", [4, 10, 100])
@pytest.mark.parametrize("first", [0, 1 << 40])
def test_blocks_are_equal_but_for_chance_and_two_streams_draw_differently(blocks: int, first: int) -> None:
    """Chi-square of 100,000 consecutive positions, fixed seeds: far below what one block too many or too few would give."""
    position = np.arange(first, first + 100_000)
    block = blocks_of(position, SEED, blocks)
    counts = np.bincount(block, minlength=blocks)
    assert len(counts) == blocks
    expected = len(position) / blocks
    assert ((counts - expected) ** 2 / expected).sum() < blocks + 5 * np.sqrt(2 * blocks)
    other = blocks_of(position, seed_of("cars"), blocks)
    assert abs((other == block).mean() - 1 / blocks) < 0.01
    assert abs((block[1:] == block[:-1]).mean() - 1 / blocks) < 0.01  # neighbours are independent too


def test_more_blocks_refine_fewer() -> None:
    position = np.arange(5000)
    assert (blocks_of(position, SEED, 64) // 4 == blocks_of(position, SEED, 16)).all()


@pytest.mark.parametrize(("blocks", "halvings"), [(16, 6), (7, 3), (1, 5), (4, 0)])
def test_parts_are_the_rows_below_their_shares(blocks: int, halvings: int) -> None:
    position = np.arange(40_000)
    parts = Parts(SEED, blocks, halvings)
    number, high = parts.number(position), hashes_of(position, SEED) >> np.uint64(32)
    last = blocks - 1 + halvings
    assert sorted(set(number.tolist())) == list(range(last + 1))
    for part in range(last + 1):
        below = (high.astype(object) * parts.share(part).denominator) >> 32 < parts.share(part).numerator
        assert ((number <= part) == below.astype(bool)).all()
    assert parts.share(last) == 1
    assert parts.share(0) == parts.share(halvings) / 2**halvings
    first = number <= halvings
    assert (first == (blocks_of(position, SEED, blocks) == 0)).all()


def test_a_large_run_begins_with_ever_larger_samples_of_it() -> None:
    rows = 600_000
    writer = RunWriter(SCHEMA, blocks=Blocks(SEED, 8))
    position = np.arange(rows)
    writer.add([pa.array(position)], position[::-1].copy(), position, None)
    (data,) = writer.finish()
    file = pq.ParquetFile(pa.BufferReader(data))
    prefixes = Prefixes.of(file.metadata)
    assert prefixes.shares[:6] == (1 / 256, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8)
    assert prefixes.shares[6:] == tuple((n + 1) / 8 for n in range(1, 8))
    assert (prefixes.population, prefixes.rows[-1]) == (rows, rows)
    for share in (1 / 300, 1 / 256, 0.1, 0.5, 0.51, 1.0):
        index = prefixes.holding(share)
        assert prefixes.shares[index] >= share
        assert index == 0 or prefixes.shares[index - 1] < share
        read = file.read_row_groups(list(range(prefixes.groups[index])))
        hashes = hashes_of(position, SEED).astype(float) / 2**64
        assert read.num_rows == prefixes.rows[index] == (hashes < prefixes.shares[index]).sum()
        assert (hashes[read.column(POSITION).to_numpy()] < prefixes.shares[index]).all()


def test_as_many_blocks_are_read_as_hold_the_fraction() -> None:
    """Floating point makes 10 · (1 - 0.7) a little more than 3: three blocks, not four."""
    assert [blocks_for(f, 10) for f in (0.0, 0.01, 1 - 0.7, 0.3, 0.31, 1.0)] == [0, 1, 3, 3, 4, 10]


def test_a_late_query_reads_a_past_in_blocks_and_other_tools_a_sample_of_it(tmp_path: Path) -> None:
    """An archive in blocks means what one in one piece does; pandas takes it, or some of its blocks, as plain Parquet."""
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = [{"at": start + dt.timedelta(seconds=n), "v": n} for n in range(3000)]
    text = "SELECT SUM(v) AS total, COUNT(*) AS n FROM {} [ROWS 100 SLIDE 50]"
    with open_hub(tmp_path / "home", local=True) as hub:
        for name, options in (("whole", ""), ("parts", "OPTIONS (blocks '8') ")):
            hub.execute(f"CREATE STREAM {name} (at TIMESTAMP, v BIGINT) USING push {options}TIMESTAMP BY at")
            for low in range(0, 3000, 1000):
                hub.push(name, rows[low : low + 1000])
                hub.loop.drain()
            hub.register(text.format(name), f"late_{name}")
        hub.loop.drain()
        assert hub.query("late_parts").history().equals(hub.query("late_whole").history())
        files = sorted((tmp_path / "home/archive/parts").iterdir())
    whole = pd.concat([pd.read_parquet(file) for file in files])
    assert sorted(whole["v"]) == list(range(3000))
    some = pd.concat([pd.read_parquet(file, filters=[(BLOCK, "<", 2)]) for file in files])
    assert 600 < len(some) < 900
    assert set(some[BLOCK]) == {0, 1}


def test_blocks_by_a_column_have_all_rows_of_a_key_in_every_run_and_stream(tmp_path: Path) -> None:
    """Also of NULL, of a wider type, and after the archive was reduced: then the same keys are left."""
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    keys = [None, *range(-30, 300)]
    blocks: dict[int | None, set[int]] = {key: set() for key in keys}
    with open_hub(tmp_path / "home", local=True) as hub:
        for name, kind in (("narrow", "INT"), ("wide", "BIGINT")):
            hub.execute(
                f"CREATE STREAM {name} (at TIMESTAMP, car {kind}) USING push"
                " OPTIONS (blocks '8', blocksBy 'CAR', reduce 'uniform(0.5)') TIMESTAMP BY at"
            )
            for number in range(3):
                rows = [
                    {"at": start + dt.timedelta(seconds=1000 * number + n), "car": k}
                    for n, k in enumerate(keys)
                ]
                hub.push(name, rows)
                hub.catch_up()
            for file in (tmp_path / "home/archive" / name).iterdir():
                for row in pq.read_table(file).to_pylist():
                    blocks[row["car"]].add(row[BLOCK])
        assert all(len(found) == 1 for found in blocks.values())
        assert {block for found in blocks.values() for block in found} == set(range(8))
        hub.vacuum()
        left = [
            row["car"]
            for segment in hub.home.latest().facts["reduced"]["wide"]
            for row in pq.read_table(tmp_path / "home" / segment["file"]).to_pylist()
        ]
        (outcome,) = hub.execute("DESCRIBE EXTENDED wide")
    assert sorted(left, key=repr) == sorted(2 * [key for key in keys if min(blocks[key]) < 4], key=repr)
    described = dict(zip(*(outcome.table[name].to_pylist() for name in ("property", "value")), strict=True))
    assert described["archive"] == "8 random blocks of keys of car"

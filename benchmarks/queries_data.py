"""The rows and the predicates of the benchmark of many standing queries: the same for everyone, the same every time.

Row i happens at `ORIGIN` + 5 µs * i (200,000 rows an event-second, so that input is measured and not output: a window
answers with up to 100 rows a query every two million rows). Predicates are those of PSoup's experiments: one to four of four
attributes in 0..255, each within an interval, whose bounds repeat with probability one in five. The last file
holds rows an hour later that make every engine close its windows: one for each of the first predicates, which it satisfies.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.folders import cache

ATTRIBUTES = ("a", "b", "c", "d")
KEYS = 100
VALUES = 256
ORIGIN_US = 1_700_000_040_000_000
STEP_US = 5
RANGE_SECONDS, SLIDE_SECONDS = 60, 10
ROWS_PER_FILE = 500_000
CLOSING_QUERIES = 16
SEED = 2_004
GENERATION = 1  # part of the folder's name: change it whenever the rows change

Predicate = tuple[tuple[str, int, int], ...]
"""(attribute, low, high) of each factor, both ends included."""


def predicates(count: int) -> list[Predicate]:
    """The first `count` predicates."""
    rng = np.random.default_rng(SEED)

    def constant() -> int:
        return int(rng.integers(0, 8)) * 32 if rng.random() < 0.2 else int(rng.integers(0, VALUES))

    def factor(name: str) -> tuple[str, int, int]:
        low = constant()
        return name, low, low + int(rng.integers(0, VALUES))

    drawn = []
    for _ in range(count):
        names = sorted(rng.choice(ATTRIBUTES, rng.integers(1, 5), replace=False).tolist())
        drawn.append(tuple(factor(name) for name in names))
    return drawn


def table(index: int, size: int) -> pa.Table:
    """File number `index`: its first `size` rows."""
    rng = np.random.default_rng([SEED, index])
    at = ORIGIN_US + (index * ROWS_PER_FILE + np.arange(ROWS_PER_FILE, dtype=np.int64)) * STEP_US
    columns = {
        "key": rng.integers(0, KEYS, ROWS_PER_FILE, dtype=np.int32),
        "v": rng.integers(0, VALUES, ROWS_PER_FILE, dtype=np.int64),
        **{name: rng.integers(0, VALUES, ROWS_PER_FILE, dtype=np.int32) for name in ATTRIBUTES},
    }
    return _table(at, columns).slice(0, size)


def folder(count: int) -> Path:
    """A folder with exactly `count` rows in files in time order, and the closing rows last."""
    rows_folder = cache() / f"queries-rows-{GENERATION}-{count}"
    ready = rows_folder.with_suffix(".ready")
    if not ready.exists():
        rows_folder.mkdir(parents=True, exist_ok=True)
        for index, start in enumerate(range(0, count, ROWS_PER_FILE)):
            _write(
                table(index, min(ROWS_PER_FILE, count - start)),
                rows_folder / f"part-{index:05d}.parquet",
                index,
            )
        _write(_closing(count), rows_folder / "part-99999.parquet", 99_999)
        ready.touch()
    return rows_folder


def first_rows() -> pa.Table:
    """One row at the beginning that no predicate wants: to warm up on."""
    nobody = {name: np.full(1, 10 * VALUES, np.int32) for name in ATTRIBUTES}
    return _table(np.array([ORIGIN_US]), {"key": np.zeros(1, np.int32), "v": np.zeros(1, np.int64), **nobody})


def last_window_end_us(count: int) -> int:
    """Windows of the first `count` rows end before this; those of the closing rows, later."""
    return ORIGIN_US + count * STEP_US + (RANGE_SECONDS + SLIDE_SECONDS) * 1_000_000


def expected(count: int, wanted: dict[int, Predicate]) -> dict[int, pa.Table]:
    """What queries (by number) must answer over the first `count` rows, by window and key; with numpy alone."""
    slide = SLIDE_SECONDS * 1_000_000
    panes = -(-count * STEP_US // slide)
    counts = {number: np.zeros(panes * KEYS, np.int64) for number in wanted}
    totals = {number: np.zeros(panes * KEYS, np.int64) for number in wanted}
    for index, start in enumerate(range(0, count, ROWS_PER_FILE)):
        rows = table(index, min(ROWS_PER_FILE, count - start))
        at, key, v = (rows[name].cast(pa.int64()).to_numpy() for name in ("at", "key", "v"))
        cell = (at - ORIGIN_US) // slide * KEYS + key
        columns = {name: rows[name].to_numpy() for name in ATTRIBUTES}
        for number, factors in wanted.items():
            mask = np.ones(len(cell), bool)
            for name, low, high in factors:
                mask &= (columns[name] >= low) & (columns[name] <= high)
            counts[number] += np.bincount(cell[mask], minlength=panes * KEYS)
            totals[number] += np.bincount(cell[mask], v[mask], panes * KEYS).astype(np.int64)
    return {number: _windows(counts[number], totals[number], panes) for number in wanted}


def _windows(counts: np.ndarray, totals: np.ndarray, panes: int) -> pa.Table:
    reach = RANGE_SECONDS // SLIDE_SECONDS
    ends, keys, n, total = [], [], [], []
    for last in range(panes + reach - 1):
        held = slice(max(0, last - reach + 1) * KEYS, (last + 1) * KEYS)
        count, value = (part[held].reshape(-1, KEYS).sum(axis=0) for part in (counts, totals))
        here = np.flatnonzero(count)
        ends.append(np.full(len(here), ORIGIN_US + (last + 1) * SLIDE_SECONDS * 1_000_000))
        keys.append(here)
        n.append(count[here])
        total.append(value[here])
    columns = [np.concatenate(parts) for parts in (ends, keys, n, total)]
    return pa.table(columns, names=["window_end", "key", "n", "total"])


def _closing(count: int) -> pa.Table:
    rows = predicates(CLOSING_QUERIES)
    at = np.full(len(rows), ORIGIN_US + count * STEP_US + 3_600_000_000)
    lows = [{name: low for name, low, _ in factors} for factors in rows]
    columns = {name: np.array([low.get(name, 0) for low in lows], np.int32) for name in ATTRIBUTES}
    nothing = {"key": np.zeros(len(rows), np.int32), "v": np.zeros(len(rows), np.int64)}
    return _table(at, {**nothing, **columns})


def _table(at: np.ndarray, columns: dict[str, np.ndarray]) -> pa.Table:
    return pa.table({"at": pa.array(at).cast(pa.timestamp("us", tz="UTC")), **columns})


def _write(rows: pa.Table, path: Path, index: int) -> None:
    pq.write_table(rows, path, compression="lz4", row_group_size=250_000)
    os.utime(path, (ORIGIN_US // 1_000_000 + index,) * 2)


def save_predicates(count: int, path: Path) -> None:
    """For runners that import nothing of this module."""
    path.write_text(json.dumps(predicates(count)), encoding="utf-8")

"""The rows of the benchmark of joined streams: the same for everyone, the same every time.

Row i of each stream happens at `ORIGIN_US` + 20 µs * i, 50,000 rows an event-second, with one of 200,000 keys. Windows of ten seconds hold
2.5 rows of a key and stream. The last file of a stream has one row an hour later that makes every engine close its windows.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.folders import cache

KEYS = 200_000
ORIGIN_US = 1_700_000_040_000_000
STEP_US = 20
WINDOW_SECONDS = 10
ROWS_PER_FILE = 250_000
STREAMS = 4
GENERATION = 1  # part of the folder's name: change it whenever the rows change

_WINDOW_US = WINDOW_SECONDS * 1_000_000


def folder(count: int) -> Path:
    """A folder with a folder for each stream, of exactly `count` rows in files in order of time, and the closing row last."""
    rows_folder = cache() / f"stream-joins-rows-{GENERATION}-{count}"
    ready = rows_folder.with_suffix(".ready")
    if not ready.exists():
        for stream in range(STREAMS):
            of_stream = rows_folder / f"s{stream}"
            of_stream.mkdir(parents=True, exist_ok=True)
            at, key, v = _rows(stream, count)
            for index, first in enumerate(range(0, count, ROWS_PER_FILE)):
                part = slice(first, first + ROWS_PER_FILE)
                _write(at[part], key[part], v[part], of_stream, index)
            closing = np.array([ORIGIN_US + count * STEP_US + 3_600_000_000])
            _write(closing, np.zeros(1, np.int32), np.zeros(1, np.int64), of_stream, 99_999)
        ready.touch()
    return rows_folder


def first_row() -> pa.Table:
    """A row an hour before the others."""
    return _table(np.array([ORIGIN_US - 3_600_000_000]), np.zeros(1, np.int32), np.zeros(1, np.int64))


def expected(count: int, streams: int) -> dict[int, tuple[int, int]]:
    """By end of window in microseconds: the number of combinations, and the sum of v of the first two streams over them."""
    rows = [_rows(stream, count) for stream in range(streams)]
    answer = {}
    for window in range(-(-count * STEP_US // _WINDOW_US)):
        counts, sums = [], []
        for at, key, v in rows:
            inside = (at - ORIGIN_US) // _WINDOW_US == window
            counts.append(np.bincount(key[inside], minlength=KEYS))
            sums.append(np.bincount(key[inside], v[inside], KEYS).astype(np.int64))
        others = np.prod(counts[2:], axis=0, dtype=np.int64) if streams > 2 else np.int64(1)
        number = int((counts[0] * counts[1] * others).sum())
        total = int(((sums[0] * counts[1] + sums[1] * counts[0]) * others).sum())
        if number:
            answer[ORIGIN_US + (window + 1) * _WINDOW_US] = (number, total)
    return answer


def _rows(stream: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """at, key and v of a stream."""
    rng = np.random.default_rng([2_008, stream])
    at = ORIGIN_US + np.arange(count, dtype=np.int64) * STEP_US
    return at, rng.integers(0, KEYS, count, dtype=np.int32), rng.integers(0, 1000, count)


def _write(at: np.ndarray, key: np.ndarray, v: np.ndarray, of_stream: Path, index: int) -> None:
    path = of_stream / f"part-{index:05d}.parquet"
    pq.write_table(_table(at, key, v), path, compression="lz4", row_group_size=ROWS_PER_FILE)
    os.utime(path, (ORIGIN_US // 1_000_000 + index,) * 2)


def _table(at: np.ndarray, key: np.ndarray, v: np.ndarray) -> pa.Table:
    return pa.table({"at": pa.array(at).cast(pa.timestamp("us", tz="UTC")), "key": key, "v": v})

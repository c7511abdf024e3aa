"""The rows every system reads: the same for everyone, the same every time.

Row i happens at `ORIGIN` + 20 µs * i + a jitter below 20 µs (50,000 rows an event-second, in time order), with a key
of 1000 and a value in hundredths. A last file holds one row, an hour after all others: it makes every engine
that waits for event time close the windows of the real rows. Its own windows are left out when answers are compared.

`python -m benchmarks.data --rows 1000000` makes the files; asking for fewer rows later links the same files again.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.folders import cache

ROWS = 20_000_000
ROWS_PER_FILE = 1_000_000
ROWS_PER_SECOND = 50_000
KEYS = 1000
ORIGIN_US = 1_700_000_040_000_000  # 2023-11-14T22:14:00Z, a full minute
RANGE_US = 60_000_000
CLOSING_GAP_US = 3_600_000_000
SEED = 20_231_114
GENERATION = 1  # part of the folder's name: change it whenever the rows change

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int32()), ("value", pa.float64())])
FORMATS = ("parquet", "arrow", "csv")
_STEP_US = 1_000_000 // ROWS_PER_SECOND
_ROW_GROUP = 250_000


@dataclass(frozen=True, slots=True)
class Rows:
    """The first `count` rows in one format: `folder` holds files in time order, the closing row last."""

    folder: Path
    count: int
    format: str


def last_window_end_us(count: int) -> int:
    """Windows that hold one of the first `count` rows end before this; those of the closing row, later."""
    return ORIGIN_US + count * _STEP_US + RANGE_US + 1_000_000


def rows(count: int, form: str = "parquet") -> Rows:
    """Make what is missing and return a folder of exactly `count` rows; `form` is one of `FORMATS`."""
    if form not in FORMATS:
        raise ValueError(f"Expected a format of {', '.join(FORMATS)}, found {form!r}.")
    folder = cache() / f"rows-{GENERATION}-{count}" / form
    ready = folder.parent / f"{form}.ready"
    if not ready.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for index, start in enumerate(range(0, count, ROWS_PER_FILE)):
            size = min(ROWS_PER_FILE, count - start)
            _link(_pooled(index, size, form), folder / f"part-{index:05d}.{form}", index)
        closing = folder / f"part-99999.{form}"
        _write(_closing_row(count), closing, form)
        _stamp(closing, 99_999)
        ready.touch()
    return Rows(folder, count, form)


def table(index: int, size: int) -> pa.Table:
    """File number `index`: rows `index * ROWS_PER_FILE` and the `size - 1` after it."""
    generator = np.random.default_rng([SEED, index])
    first = index * ROWS_PER_FILE
    jitter = generator.integers(0, _STEP_US, ROWS_PER_FILE, dtype=np.int64)
    keys = generator.integers(0, KEYS, ROWS_PER_FILE, dtype=np.int32)
    values = generator.integers(0, 1_000_000, ROWS_PER_FILE) / 100.0
    at = ORIGIN_US + (first + np.arange(ROWS_PER_FILE, dtype=np.int64)) * _STEP_US + jitter
    return pa.table(
        [pa.array(at[:size]).cast(SCHEMA.field("at").type), pa.array(keys[:size]), pa.array(values[:size])],
        schema=SCHEMA,
    )


def _closing_row(count: int) -> pa.Table:
    at = ORIGIN_US + count * _STEP_US + CLOSING_GAP_US
    return pa.table(
        [pa.array([at]).cast(SCHEMA.field("at").type), pa.array([0], pa.int32()), pa.array([0.0])],
        schema=SCHEMA,
    )


def _pooled(index: int, size: int, form: str) -> Path:
    """One file that all row counts share."""
    path = cache() / f"pool-{GENERATION}" / form / f"{index:05d}-{size}.{form}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        _write(table(index, size), unfinished, form)
        unfinished.rename(path)
    return path


def _write(rows_of_file: pa.Table, path: Path, form: str) -> None:
    if form == "parquet":
        pq.write_table(rows_of_file, path, compression="lz4", row_group_size=_ROW_GROUP)
    elif form == "arrow":
        with pa.ipc.new_file(path, SCHEMA) as writer:
            writer.write_table(rows_of_file, max_chunksize=_ROW_GROUP)
    else:
        micros = rows_of_file.set_column(0, "at", rows_of_file["at"].cast(pa.int64()))
        pacsv.write_csv(micros, path, pacsv.WriteOptions(include_header=False))


def _link(source: Path, target: Path, index: int) -> None:
    if not target.exists():
        os.link(source, target)
    _stamp(target, index)


def _stamp(path: Path, index: int) -> None:
    """Engines that order files by modification time must find them in time order."""
    os.utime(path, (ORIGIN_US // 1_000_000 + index,) * 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the benchmark's rows.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--format", choices=FORMATS, default="parquet")
    options = parser.parse_args()
    started = time.perf_counter()
    written = rows(options.rows, options.format)
    print(f"{written.count:,} rows in {written.folder} ({time.perf_counter() - started:.1f} s)")


if __name__ == "__main__":
    main()

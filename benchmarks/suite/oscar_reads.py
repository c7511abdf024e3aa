"""The break-even of skipping on this machine's storage, and scans of an archive while it takes in rows (OSCAR, Figures 12 to 18)."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import folders
from benchmarks.baselines.archive_layouts import costs
from benchmarks.baselines.archive_layouts.heap import rows_of
from benchmarks.baselines.archive_layouts.layout import Layout, Strawman
from benchmarks.baselines.archive_layouts.random_blocks import RandomBlocks
from benchmarks.baselines.archive_layouts.reducers import Uniform
from benchmarks.charts import Curve, Curves, Grid
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.archive.blocks import LEAST_ROWS
from headrace.archive.in_flight import LEAST_BYTES, announced
from headrace.archive.run_file import RunFile
from headrace.archive.runs import RunEncoder
from headrace.store.files.filesystem import LocalStore

SKIPS = """The size of a piece from which reading a part of a file saves time: bytes skipped on the storage, and rows of a row group.

A file is read in pieces of 16 KB to 16 MB, every fourth of them, and whole, both from the storage (its pages are dropped from the page cache before each reading) and
from the page cache. A piece is large enough where a quarter takes at most half of the time of all. All pieces are one sweep, which the system reads ahead. Every
fourth piece is read as Headrace's archive reads parts of runs: the pieces that follow are announced, so that several requests are in flight (`headrace.archive.in_flight`);
and, for comparison, each when the one before it is there. Parquet is read from memory by row groups of 64 to 65,536 rows: the
time of one is an overhead and a time for each row, and the break-even is the rows that take as long as the overhead. The smallest part of
a run in Headrace is between one and two times 2,048 rows: `headrace.archive.blocks`."""
LOAD = """Completed scans of an archive that takes in rows, and the time that it takes in as many, with none to six readers (OSCAR, Figures 13 to 18).

Every reader scans the archive again and again, in a thread of its own, until a fixed number of rows has been archived; a part of a scan at the end counts as that part.
The archive is a stream in order of time whose rows are drawn after reading (the strawman), or runs of 100 random blocks. A round takes less than a second,
so both shares are measured one after the other, with the same readers, and compared within each round: single rounds gave 1.4 to 10 on a busy machine."""
PIECES = tuple(1 << power for power in range(14, 25))
GROUPS = tuple(1 << power for power in range(6, 17, 2))
READERS = (0, 1, 2, 4, 6)
KEEPS = (1.0, 0.25)
FILE = 256 << 20
LEAST = 8 << 20
"""The least size of the file, for few rows."""


def skips(rows: int, rounds: int) -> Report:
    """Time of a quarter of a file to that of all, by the size of pieces; time of row groups by their rows."""
    root = folders.fresh("oscar-skips")
    path, size = root / "pieces", max(LEAST, min(FILE, rows * 64))
    with path.open("wb") as file:
        for start in range(0, size, LEAST):
            file.write(np.random.default_rng(start).bytes(min(LEAST, size - start)))
        os.fsync(file.fileno())
    pieces = [piece for piece in PIECES if piece * 8 <= size]
    stored, waiting, cached = (
        [_quarter(path, size, piece, rounds, cold=cold, ahead=ahead) for piece in pieces]
        for cold, ahead in ((True, True), (True, False), (False, True))
    )
    groups = [_group_seconds(count, max(3, rounds)) for count in GROUPS]
    shutil.rmtree(root)
    per_row, overhead = np.polyfit(GROUPS, groups, 1, w=1 / np.array(groups))
    break_even = costs.break_even(overhead, 1 / per_row)
    part = LEAST_ROWS / break_even
    table: list[dict[str, Any]] = [
        {
            "piece": piece,
            "quarter_to_all_from_storage": round(one, 3),
            "one_after_the_other": round(alone, 3),
            "from_cache": round(other, 3),
        }
        for piece, one, alone, other in zip(pieces, stored, waiting, cached, strict=True)
    ]
    table += [
        {"row_group": count, "microseconds": round(1e6 * seconds, 1)}
        for count, seconds in zip(GROUPS, groups, strict=True)
    ]
    note = (
        f"Pieces are large enough from {_enough(pieces, stored) >> 10:,} KB on from storage, one after the other "
        f"{_enough_or_none(pieces, waiting)}, and {_enough(pieces, cached) >> 10:,} KB from the page cache. A row group costs {1e6 * overhead:.0f} µs and "
        f"{1e9 * per_row:.1f} ns a row: break-even at {break_even:,.0f} rows."
    )
    ratios = [
        Ratio("time of a quarter in the largest pieces to all, from storage", stored[-1], 0.5, at_most=True),
        Ratio("rows of the smallest part to the break-even", part, 0.125),
        Ratio("rows of the smallest part to the break-even", part, 8, at_most=True),
    ]
    title, picture = "How small a part of an archive is worth skipping", _skips_picture(table)
    return Report("oscar-skips", title, table, ratios, [], "ms", [SKIPS, note], picture=picture)


def _skips_picture(table: list[dict[str, Any]]) -> Grid:
    pieces = [row for row in table if "piece" in row]
    groups = [row for row in table if "row_group" in row]
    across = [row["piece"] for row in pieces]
    quarter = [
        Curve("from storage", across, [row["quarter_to_all_from_storage"] for row in pieces], "ours"),
        Curve("one after the other", across, [row["one_after_the_other"] for row in pieces], "yardstick"),
        Curve("from the page cache", across, [row["from_cache"] for row in pieces], "theirs"),
    ]
    time_of = [row["microseconds"] for row in groups]
    group = Curve("one column of doubles", [row["row_group"] for row in groups], time_of, "ours")
    return Grid(
        "What is worth skipping",
        [
            Curves(
                "Reading every fourth piece",
                ("bytes of a piece", "time of a quarter to all"),
                quarter,
                (True, False),
            ),
            Curves("Reading a row group", ("rows", "µs"), [group], (True, True)),
        ],
    )


def _enough(pieces: list[int], parts: list[float]) -> int:
    """The least piece from which on a quarter takes at most half of the time."""
    large = [number for number in range(len(pieces)) if max(parts[number:]) <= 0.5]
    return pieces[large[0]] if large else pieces[-1]


def _enough_or_none(pieces: list[int], parts: list[float]) -> str:
    return f"from {_enough(pieces, parts) >> 10:,} KB on" if parts[-1] <= 0.5 else "none of them is"


def _quarter(path: Path, size: int, piece: int, rounds: int, *, cold: bool, ahead: bool) -> float:
    """The time of every fourth piece to that of all pieces, which are a sweep."""
    ratios = []
    for _ in range(max(3, rounds)):
        quarter = _read(path, range(0, size, piece * 4), piece, cold=cold, ahead=ahead)
        ratios.append(quarter / _read(path, range(0, size, piece), piece, cold=cold, ahead=False))
    return statistics.median(ratios)


def _read(path: Path, starts: range, piece: int, *, cold: bool, ahead: bool) -> float:
    store = LocalStore(str(path.parent))

    def announce(start: int) -> int:
        if piece >= LEAST_BYTES:
            store.will_need(path.name, [(start, piece)])
        return piece

    with path.open("rb", buffering=0) as file:
        if cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        started = time.perf_counter()
        for start in announced(starts, announce) if ahead else starts:
            os.pread(file.fileno(), piece, start)
        return time.perf_counter() - started


def _group_seconds(count: int, rounds: int) -> float:
    """The time to read one row group of so many rows, of a file that is open."""
    groups = max(4, 4096 // count)
    position = np.arange(count * groups)
    rows = rows_of(position * 1000, position, v=np.random.default_rng(3).gamma(2.0, 20.0, len(position)))
    encoder = RunEncoder(rows.schema)
    encoder.write(rows, position * 1000, row_group=count)
    file = RunFile.of(encoder.close(), "run")
    seconds = []
    for _ in range(5 * rounds):
        started = time.perf_counter()
        for group in range(groups):
            file.read(["v"], [group])
        seconds.append((time.perf_counter() - started) / groups)
    return statistics.median(seconds)


def load(rows: int, rounds: int) -> Report:
    """Completed scans and the time to take in rows, by readers, share and layout; medians over `rounds`, five at least."""
    block_rows = max(50, min(8192, rows // 200))
    batches = list(_batches(block_rows, 300))
    cases = [
        (name, readers, keep) for name in ("strawman", "runs of 100") for readers in READERS for keep in KEEPS
    ]
    measured: dict[tuple[str, int, float], list[tuple[float, float]]] = {case: [] for case in cases}
    for _ in range(max(5, rounds)):
        for name, readers, keep in cases:
            measured[name, readers, keep].append(_loaded(name, batches, block_rows, keep, readers))
    table = [
        {
            "layout": name,
            "share": keep,
            "readers": readers,
            "ingest_ms": round(1000 * statistics.median(seconds for seconds, _ in of_case), 1),
            "scans_per_second": round(statistics.median(scans / seconds for seconds, scans in of_case), 2),
        }
        for (name, readers, keep), of_case in measured.items()
    ]
    ratios = [
        Ratio(
            f"scans of {readers} readers, runs of 100: a quarter to all",
            _quarter_to_all(*(measured["runs of 100", readers, keep] for keep in KEEPS)),
            3.0,
        )
        for readers in READERS[1:]
    ]
    return Report(
        "oscar-load",
        "Scans of an archive while it takes in rows",
        table,
        ratios,
        [],
        "scans a second",
        [LOAD, f"{200 * block_rows:,} rows are there, {100 * block_rows:,} are taken in."],
        picture=_load_picture(table),
    )


def _quarter_to_all(every: list[tuple[float, float]], quarter: list[tuple[float, float]]) -> float:
    """The scans a second of a quarter of the rows to those of all, measured one after the other: the median of the rounds."""
    return statistics.median(
        (scans / seconds) / (of_all / seconds_of_all)
        for (seconds_of_all, of_all), (seconds, scans) in zip(every, quarter, strict=True)
    )


def _scans_of(row: dict[str, Any]) -> float:
    return float(row["scans_per_second"])


def _batches(block_rows: int, count: int) -> Iterator[pa.Table]:
    draw = np.random.default_rng(5)
    for number in range(count):
        position = np.arange(number * block_rows, (number + 1) * block_rows)
        yield rows_of(position * 1000, position, v=draw.gamma(2.0, 20.0, block_rows))


def _loaded(
    name: str, batches: list[pa.Table], block_rows: int, keep: float, readers: int
) -> tuple[float, float]:
    """The time to take in the last third of the batches, and how many scans were completed meanwhile."""
    root = folders.fresh("oscar-load")
    layout: Layout = Strawman.at(root, block_rows)
    if name != "strawman":
        layout = RandomBlocks.at(root, block_rows, 100)
        layout.is_ordered = False
    there = len(batches) * 2 // 3
    for batch in batches[:there]:
        layout.insert(batch)
    layout.flush()
    total = there * block_rows
    ended, scans = threading.Event(), [0.0] * readers

    def scan(number: int) -> None:
        while not ended.is_set():
            read = 0
            for rows in layout.scan(Uniform(1 - keep), columns=["v"]):
                pc.sum(pc.greater(rows.column("v"), 50.0))
                read += rows.num_rows
                if ended.is_set():
                    break
            scans[number] += min(read / (keep * total), 1.0) if ended.is_set() else 1.0

    threads = [threading.Thread(target=scan, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    for batch in batches[there:]:
        layout.insert(batch)
    layout.flush()
    seconds = time.perf_counter() - started
    ended.set()
    for thread in threads:
        thread.join()
    shutil.rmtree(root)
    return seconds, sum(scans)


def _load_picture(table: list[dict[str, Any]]) -> Grid:
    def curves(title: str, unit: str, value: Callable[[dict[str, Any]], float]) -> Curves:
        drawn = [
            Curve(
                f"{name}, {keep:.0%} of the rows",
                [row["readers"] for row in table if (row["layout"], row["share"]) == (name, keep)],
                [value(row) for row in table if (row["layout"], row["share"]) == (name, keep)],
                "yardstick" if name == "strawman" else "ours",
            )
            for name in ("strawman", "runs of 100")
            for keep in KEEPS
        ]
        return Curves(title, ("readers", unit), drawn)

    return Grid(
        "An archive that is read while it takes in rows",
        [
            curves("Completed scans", "scans a second", _scans_of),
            curves("Time to take in the same rows", "ms", lambda row: float(row["ingest_ms"])),
        ],
    )

"""OSCAR's comparison of archive layouts again: what each one writes, and reads of a long archive at a reduction.

Five hundred blocks of 8,192 rows (fewer rows where `--rows` gives fewer) are archived as the stream itself, whose rows are drawn after reading
(the strawman); with copies reduced by 20, 40, 60 and 80 % (OnWriteReplicate); as a stream whose rows scans mark, with the copy that a
vacuum makes of the others (OnReadModify); in runs of 10, 100 and 500 random blocks (RandomizeThenSort); and as Headrace stores it, in runs of a
million rows, 16 blocks, the first one cut into halves. All are Parquet by the same encoder, read through one access method, and return the same rows: those with a
hash below the share that is wanted, whose count is compared. A scan counts values over all of them, and reads the column of values; it reads positions too where rows have to be drawn, which those
of random blocks are already. Rows arrive as CSV, and the time to write them
begins with that, as in the paper; what arrival takes alone is listed too. Of the stream and its copies, whose times are compared, it is the median of rounds.
Copies have three times the rows and the bytes of random values; of all columns somewhat more bytes, since the regular times and positions of the stream take no room there. The stream itself is written file after file, each copy of it by a thread of its own. Rows, row groups, seeks (ranges of adjacent
row groups) and bytes are counted, also those of all columns of the row groups that were read: rows in order of time compress better, which a scan of all columns would pay for. Times are medians from files in the page cache, so that skipping saves decoding, and no seek of a disk.
The model is OSCAR's Table 1, in blocks.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks import folders
from benchmarks.baselines.archive_layouts import costs
from benchmarks.baselines.archive_layouts.heap import AT, Counters, ints, rows_of
from benchmarks.baselines.archive_layouts.layout import ALWAYS, Interval, Layout, Strawman
from benchmarks.baselines.archive_layouts.marked_copies import MarkedCopies
from benchmarks.baselines.archive_layouts.preset_copies import PresetCopies
from benchmarks.baselines.archive_layouts.random_blocks import RandomBlocks
from benchmarks.baselines.archive_layouts.reducers import Uniform
from benchmarks.charts import Curve, Curves, Grid
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.archive.runs import POSITION

BLOCKS, BLOCK_ROWS = 500, 8192
COPIES = (0.2, 0.4, 0.6, 0.8)
REDUCTIONS = (0.0, 0.25, 0.5, 0.75, 0.99)
RUNS = (10, 100, 500)
HEADRACE_BLOCKS, HEADRACE_ROWS = 16, 1 << 20
VALUES = ("v", "level")
STEP = 1000
"""Microseconds from a row to the next."""
STRAWMAN, EAGER, FIRST, SECOND, VACUUMED = (
    "strawman",
    "copies",
    "marks, first scan",
    "marks, second scan",
    "marks, after a vacuum",
)
HEADRACE = "Headrace"
READS = ("rows_read", "blocks_read", "seeks", "bytes_read", "bytes_of_blocks", "blocks_dirtied")


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan at a reduction cost; `model` is the blocks that OSCAR's formula gives."""

    layout: str
    reduction: float
    counted: dict[str, int]
    seconds: float
    model: float


def oscar(rows: int, rounds: int) -> Report:
    """Bytes written, and rows, row groups, seeks, bytes and time read, by layout and reduction."""
    block_rows = max(20, min(BLOCK_ROWS, rows // BLOCKS))
    root = folders.fresh("oscar")
    layouts = _layouts(root, block_rows)
    texts = _arriving(block_rows)
    written = {name: _written(layout, texts) for name, layout in layouts.items()}
    for name, seconds in _written_again(texts, block_rows, max(3, rounds) - 1).items():
        written[name]["seconds"] = statistics.median([written[name]["seconds"], *seconds])
    of_values = _bytes_of_values(layouts)
    for layout in layouts.values():
        _check_whole(layout, block_rows)
    scans = [
        scan for name, layout in layouts.items() for scan in _scans(name, layout, block_rows, max(3, rounds))
    ]
    _check_equal(layouts, block_rows)
    ranges = _ranges(layouts, block_rows)
    shutil.rmtree(root)
    return _report(written, of_values, scans, ranges, block_rows)


def _layouts(root: Path, block_rows: int) -> dict[str, Layout]:
    def folder(name: str) -> Path:
        path = root / name
        path.mkdir()
        return path

    layouts: dict[str, Layout] = {
        STRAWMAN: Strawman.at(folder("stream"), block_rows),
        EAGER: PresetCopies.at(folder("copies"), block_rows, COPIES),
        "marks": MarkedCopies.at(folder("marks"), block_rows),
    }
    for run in RUNS:
        layouts[f"runs of {run}"] = replace(
            RandomBlocks.at(folder(f"runs{run}"), block_rows, run), is_ordered=False
        )
    whole = min(HEADRACE_ROWS, BLOCKS * block_rows) // HEADRACE_BLOCKS
    layouts[HEADRACE] = replace(
        RandomBlocks.at(folder("headrace"), whole, HEADRACE_BLOCKS, halved=True), is_ordered=False
    )
    return layouts


def _stream(block_rows: int) -> Iterator[pa.Table]:
    """The rows, ten blocks at a time: a value that varies at random, and one that varies slowly."""
    draw, level = np.random.default_rng(11), 0.0
    for first in range(0, BLOCKS * block_rows, 10 * block_rows):
        position = np.arange(first, first + 10 * block_rows)
        steps = level + np.cumsum(draw.integers(-1, 2, len(position)))
        level = float(steps[-1])
        yield rows_of(position * STEP, position, v=draw.gamma(2.0, 20.0, len(position)), level=steps)


def _arriving(block_rows: int) -> list[bytes]:
    """The same rows as a source sends them, as CSV: event time and values."""
    texts = []
    for batch in _stream(block_rows):
        text = pa.BufferOutputStream()
        csv.write_csv(batch.select([AT, *VALUES]), text, csv.WriteOptions(include_header=False))
        texts.append(text.getvalue().to_pybytes())
    return texts


def _parsed(texts: Sequence[bytes]) -> Iterator[pa.Table]:
    """Rows of a source with their positions."""
    names = csv.ReadOptions(column_names=[AT, *VALUES], use_threads=False)
    types = csv.ConvertOptions(column_types={AT: pa.int64(), **dict.fromkeys(VALUES, pa.float64())})
    position = 0
    for text in texts:
        rows = csv.read_csv(pa.BufferReader(text), names, convert_options=types).combine_chunks()
        count = rows.num_rows
        values = {name: rows.column(name).to_numpy() for name in VALUES}
        yield rows_of(ints(rows, AT), np.arange(position, position + count), **values)
        position += count


def _written(layout: Layout, texts: Sequence[bytes]) -> dict[str, float]:
    """Rows, row groups and bytes written; the time in which the rows of a source are read and written, and that of reading alone."""
    started = time.perf_counter()
    for _ in _parsed(texts):
        pass
    reading = time.perf_counter() - started
    started = time.perf_counter()
    for batch in _parsed(texts):
        layout.insert(batch)
    layout.flush()
    seconds = time.perf_counter() - started
    counters = layout.counters
    return {
        "rows_written": counters.rows_written,
        "blocks_written": counters.blocks_written,
        "bytes_written": counters.bytes_written,
        "seconds": seconds,
        "reading": reading,
    }


def _written_again(texts: Sequence[bytes], block_rows: int, rounds: int) -> dict[str, list[float]]:
    """The time from arrival to files of the two layouts whose times are compared, by turns, in other folders."""
    seconds: dict[str, list[float]] = {STRAWMAN: [], EAGER: []}
    for _ in range(rounds):
        for name, of_name in seconds.items():
            root = folders.fresh("oscar-again")
            layout: Layout = Strawman.at(root, block_rows)
            if name == EAGER:
                layout = PresetCopies.at(root, block_rows, COPIES)
            of_name.append(_written(layout, texts)["seconds"])
            shutil.rmtree(root)
    return seconds


def _bytes_of_values(layouts: Mapping[str, Layout]) -> float:
    """Bytes of the values that vary at random, which no order makes smaller: those of all copies to those of the stream."""
    stream, eager = layouts[STRAWMAN], layouts[EAGER]
    assert isinstance(stream, Strawman)
    assert isinstance(eager, PresetCopies)
    copied = sum(block.sizes["v"] for copy in eager.copies for block in copy.heap.blocks)
    return copied / sum(block.sizes["v"] for block in stream.heap.blocks)


def _check_whole(layout: Layout, block_rows: int) -> None:
    """Nothing is lost: the rows and their sum are the source's."""
    count = total = 0
    for rows in layout.scan(Uniform(0.0), ALWAYS, ["v", POSITION]):
        count, total = count + rows.num_rows, total + int(ints(rows, POSITION).sum())
    expected = BLOCKS * block_rows
    if (count, total) != (expected, expected * (expected - 1) // 2):
        raise WrongAnswer(f"the archive has {count:,} rows of {expected:,}, or others")


def _count(layout: Layout, reducer: Uniform, interval: Interval = ALWAYS) -> int:
    """The number of rows with a great value."""
    return sum(
        pc.sum(pc.greater(rows.column("v"), 50.0)).as_py() or 0
        for rows in layout.scan(reducer, interval, ["v"])
    )


def _scans(name: str, layout: Layout, block_rows: int, rounds: int) -> Iterator[Scan]:
    for reduction in REDUCTIONS:
        keeps = [1 - reduction] * BLOCKS
        if isinstance(layout, MarkedCopies):
            yield from _marked(layout, reduction, rounds)
        else:
            yield _scan(name, layout, Uniform(reduction), _model(name, keeps, block_rows), rounds)


def _model(name: str, keeps: Sequence[float], block_rows: int) -> float:
    """Blocks that a layout reads, by its formula."""
    if name == STRAWMAN:
        return costs.strawman_reads(keeps)
    if name == EAGER:
        return costs.copies_reads(keeps, [1 - copy for copy in COPIES])
    if name == HEADRACE:
        rows = min(HEADRACE_ROWS, BLOCKS * block_rows)
        halvings = max(0, (rows // HEADRACE_BLOCKS // 1024).bit_length() - 1)
        share = costs.random_reads(keeps[:1], HEADRACE_BLOCKS, halvings) / HEADRACE_BLOCKS
        return share * BLOCKS
    run = int(name.removeprefix("runs of "))
    return costs.random_reads(keeps[: BLOCKS // run], run)


def _marked(layout: MarkedCopies, reduction: float, rounds: int) -> Iterator[Scan]:
    """The first scan, which marks; the second one; and those after a vacuum. Each reduction is a reducer of its own."""
    keeps, reducer = [1 - reduction] * BLOCKS, Uniform(reduction, f"reduced-{reduction}")
    first = _scan(FIRST, layout, reducer, costs.marked_first_reads(keeps), 1)
    yield first
    yield _scan(SECOND, layout, reducer, costs.marked_reads(keeps, is_vacuumed=False), rounds)
    layout.vacuum(reducer.name)
    yield _scan(VACUUMED, layout, reducer, costs.marked_reads(keeps, is_vacuumed=True), rounds)


def _scan(name: str, layout: Layout, reducer: Uniform, model: float, rounds: int) -> Scan:
    seconds, counted = [], {}
    for number in range(rounds):
        before = replace(layout.counters)
        started = time.perf_counter()
        _count(layout, reducer)
        seconds.append(time.perf_counter() - started)
        if number == 0:
            counted = _between(before, layout.counters)
    return Scan(name, reducer.reduction, counted, statistics.median(seconds), model)


def _between(before: Counters, after: Counters) -> dict[str, int]:
    return {name: getattr(after, name) - getattr(before, name) for name in READS}


def _check_equal(layouts: dict[str, Layout], block_rows: int) -> None:
    """All layouts return the same rows: of all times, and of a part."""
    for reduction in REDUCTIONS:
        for interval in (ALWAYS, _part(block_rows, 0.3, 0.1)):
            counts = {
                name: _count(layout, Uniform(reduction, f"reduced-{reduction}"), interval)
                for name, layout in layouts.items()
            }
            if len(set(counts.values())) > 1:
                raise WrongAnswer(f"different rows at a reduction of {reduction}: {counts}")


def _part(block_rows: int, start: float, length: float) -> Interval:
    """A part of the stream's times."""
    end = BLOCKS * block_rows * STEP
    return Interval(int(start * end), int((start + length) * end) - 1)


def _ranges(layouts: dict[str, Layout], block_rows: int) -> list[dict[str, Any]]:
    """Rows read for a part of the time, at a half and a sixteenth: in order of time, and in random blocks."""
    table = []
    for length in (0.5, 0.1, 0.02):
        interval = _part(block_rows, 0.3, length)
        for reduction in (0.5, 1 - 1 / HEADRACE_BLOCKS):
            for name in (STRAWMAN, HEADRACE):
                layout = layouts[name]
                before = replace(layout.counters)
                _count(layout, Uniform(reduction), interval)
                counted = _between(before, layout.counters)
                table.append(
                    {
                        "layout": f"{name}, {length:.0%} of the time",
                        "reduction": reduction,
                        "rows_read": counted["rows_read"],
                        "row_groups": counted["blocks_read"],
                        "seeks": counted["seeks"],
                        "MB_read": round(counted["bytes_read"] / 1e6, 2),
                    }
                )
    return table


def _report(
    written: dict[str, dict[str, float]],
    of_values: float,
    scans: list[Scan],
    ranges: list[dict[str, Any]],
    block_rows: int,
) -> Report:
    assert __doc__ is not None
    return Report(
        "oscar",
        "Archive layouts: written, and read at a reduction (OSCAR, Figures 11 and 12, Table 1)",
        [*_writes(written), *(_row(scan) for scan in scans), *ranges],
        [*_bars_of_writes(written, of_values), *_bars_of_reads(scans, block_rows)],
        [],
        "ms",
        [__doc__.strip(), f"{BLOCKS * block_rows:,} rows. {_writing(written)}"],
        picture=_picture(scans),
    )


def _writing(written: dict[str, dict[str, float]]) -> str:
    eager, plain = (written[name]["seconds"] - written[name]["reading"] for name in (EAGER, STRAWMAN))
    return f"Without the arrival of rows copies take {eager / plain:.1f} times as long to write as the stream alone."


def _writes(written: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {
            "layout": name,
            "rows_written": int(counted["rows_written"]),
            "MB_written": round(counted["bytes_written"] / 1e6, 2),
            "arrive_and_write_ms": round(1000 * counted["seconds"], 1),
            "arrive_ms": round(1000 * counted["reading"], 1),
        }
        for name, counted in written.items()
    ]


def _row(scan: Scan) -> dict[str, Any]:
    return {
        "layout": scan.layout,
        "reduction": scan.reduction,
        "rows_read": scan.counted["rows_read"],
        "row_groups": scan.counted["blocks_read"],
        "seeks": scan.counted["seeks"],
        "dirtied": scan.counted["blocks_dirtied"],
        "MB_read": round(scan.counted["bytes_read"] / 1e6, 2),
        "MB_of_all_columns": round(scan.counted["bytes_of_blocks"] / 1e6, 2),
        "model_blocks": round(scan.model, 2),
        "ms": round(1000 * scan.seconds, 1),
    }


def _bars_of_writes(written: dict[str, dict[str, float]], of_values: float) -> list[Ratio]:
    """OB-1: one, three and one times the rows; and what random blocks cost in compression."""
    plain = written[STRAWMAN]

    def ratio(name: str, what: str) -> float:
        return written[name][what] / plain[what]

    eager = ratio(EAGER, "rows_written")
    bars = [
        Ratio("rows written, copies to strawman", eager, 2.94),
        Ratio("rows written, copies to strawman", eager, 3.06, at_most=True),
        Ratio("bytes of random values written, copies to strawman", of_values, 2.94),
        Ratio("bytes of random values written, copies to strawman", of_values, 3.06, at_most=True),
        Ratio("time from arrival to files, copies to strawman", ratio(EAGER, "seconds"), 3.0, at_most=True),
        Ratio(
            "rows written, marks before a vacuum to strawman",
            ratio("marks", "rows_written"),
            1.0,
            at_most=True,
        ),
    ]
    bars += [
        Ratio(f"rows written, {name} to strawman", ratio(name, "rows_written"), 1.0, at_most=True)
        for name in (*(f"runs of {run}" for run in RUNS), HEADRACE)
    ]
    bars.append(
        Ratio("bytes written, Headrace to strawman", ratio(HEADRACE, "bytes_written"), 1.5, at_most=True)
    )
    return bars


def _bars_of_reads(scans: list[Scan], block_rows: int) -> list[Ratio]:
    """OB-2 (blocks by the formulas), OB-3 (marks dirty all blocks; long runs save bytes and time) and OB-7 (copies have a least size)."""
    of = {(scan.layout, scan.reduction): scan for scan in scans}
    rows = BLOCKS * block_rows
    names = dict.fromkeys(scan.layout for scan in scans)

    def blocks(scan: Scan) -> float:
        return scan.counted["rows_read"] / block_rows + scan.counted["blocks_dirtied"]

    bars = [
        Ratio(
            f"{name}: greatest difference of rows read to the formula's blocks, of all",
            max(abs(blocks(of[name, r]) - of[name, r].model) / BLOCKS for r in REDUCTIONS),
            max(0.005, 3 / rows**0.5),
            at_most=True,
        )
        for name in names
    ]
    dirtied = min(of[FIRST, r].counted["blocks_dirtied"] for r in REDUCTIONS if r) / BLOCKS
    bars.append(Ratio("marks: least share of blocks that a first scan dirties", dirtied, 1.0))
    for what in ("bytes", "time"):
        greatest = max(
            _cost(of["runs of 500", r], what) / _cost(of[STRAWMAN, r], what) for r in REDUCTIONS[1:]
        )
        bars.append(Ratio(f"{what} read, runs of 500 to strawman, greatest", greatest, 1.0, at_most=True))
    coarsest = of[EAGER, 0.99].counted["rows_read"] / rows
    bars += [
        Ratio("copies: share of the rows read at a reduction of 0.99", coarsest, 0.19),
        Ratio(
            "runs of 500: share of the rows read at 0.99",
            of["runs of 500", 0.99].counted["rows_read"] / rows,
            0.012,
            at_most=True,
        ),
        Ratio(
            "Headrace: share of the rows read at 0.99",
            of[HEADRACE, 0.99].counted["rows_read"] / rows,
            0.02 if rows >= HEADRACE_ROWS else 0.07,
            at_most=True,
        ),
    ]
    return bars


def _cost(scan: Scan, what: str) -> float:
    return scan.seconds if what == "time" else float(scan.counted["bytes_read"])


def _picture(scans: list[Scan]) -> Grid:
    names = dict.fromkeys(scan.layout for scan in scans)
    kinds: dict[str, str] = {HEADRACE: "ours", STRAWMAN: "yardstick"}

    def curves(title: str, unit: str, value: Callable[[Scan], float]) -> Curves:
        drawn = [
            Curve(
                name,
                [scan.reduction for scan in scans if scan.layout == name],
                [value(scan) for scan in scans if scan.layout == name],
                kinds.get(name, "theirs"),
            )
            for name in names
        ]
        return Curves(title, ("reduction", unit), drawn)

    return Grid(
        "Archive layouts, read at a reduction",
        [
            curves("Bytes read", "MB", lambda scan: scan.counted["bytes_read"] / 1e6),
            curves("Time", "ms", lambda scan: 1000 * scan.seconds),
        ],
    )

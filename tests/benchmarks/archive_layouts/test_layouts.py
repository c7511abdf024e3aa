"""Layouts of an archive: all return the same rows at the same reductions; copies, marks, vacuums and the map of free space."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.archive_layouts.heap import AT, Ints, ints, rows_of
from benchmarks.baselines.archive_layouts.layout import ALWAYS, Draw, Interval, Layout, Strawman, by_hash
from benchmarks.baselines.archive_layouts.marked_copies import RESTART, SAMPLERATE, MarkedCopies
from benchmarks.baselines.archive_layouts.preset_copies import PresetCopies
from benchmarks.baselines.archive_layouts.random_blocks import RandomBlocks
from benchmarks.baselines.archive_layouts.reducers import Age, Load, Reducer, Uniform, UntilAccurate
from headrace.archive.runs import POSITION

Make: TypeAlias = Callable[[Path], Layout]
BLOCK = 5
LAYOUTS: dict[str, Make] = {
    "strawman": lambda path: Strawman.at(path, BLOCK),
    "copies": lambda path: PresetCopies.at(path, BLOCK, (0.25, 0.5, 0.75)),
    "marks": lambda path: MarkedCopies.at(path, BLOCK),
    "marks by reference": lambda path: MarkedCopies.at(path, BLOCK, by_reference=True),
    "random": lambda path: RandomBlocks.at(path, BLOCK, 4),
    "random, halved": lambda path: RandomBlocks.at(path, BLOCK, 4, halved=True),
}


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def fill(layout: Layout, times: Sequence[int], *, first: int = 0, cut: int = 7) -> None:
    at = np.sort(np.array(times, np.int64))
    position = np.arange(first, first + len(at))
    for start in range(0, len(at), cut):
        part = slice(start, start + cut)
        layout.insert(rows_of(at[part], position[part], v=position[part] * 1.0))
    layout.flush()


def scanned(layout: Layout, reducer: Reducer, interval: Interval = ALWAYS) -> list[tuple[int, int]]:
    """Event time and position of the rows of a scan, as they are returned."""
    return [
        (at, position)
        for rows in layout.scan(reducer, interval)
        for at, position in zip(ints(rows, AT).tolist(), ints(rows, POSITION).tolist(), strict=True)
    ]


def drawn(times: Sequence[int], keep: float, interval: Interval = ALWAYS) -> list[tuple[int, int]]:
    """The rows that every layout returns."""
    at = np.sort(np.array(times, np.int64))
    position = np.arange(len(at))
    chosen = (by_hash(position) < keep) & (at >= interval.begin) & (at <= interval.end)
    return list(zip(at[chosen].tolist(), position[chosen].tolist(), strict=True))


TIMES = st.lists(st.integers(0, 40), min_size=1, max_size=120)
SHARES = st.sampled_from((0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.99))


@pytest.mark.parametrize("name", LAYOUTS)
@given(
    times=TIMES,
    scans=st.lists(
        st.tuples(SHARES, st.integers(-2, 42), st.integers(0, 44), st.booleans()), min_size=1, max_size=5
    ),
)
def test_every_layout_returns_the_same_rows(
    name: str, times: list[int], scans: list[tuple[float, int, int, bool]]
) -> None:
    """Whatever was scanned and vacuumed before: the reduction of a scan alone decides."""
    with folder() as path:
        layout = LAYOUTS[name](path)
        fill(layout, times)
        for reduction, begin, length, vacuums in scans:
            interval = Interval(begin, begin + length)
            expected = drawn(times, 1 - reduction, interval)
            assert scanned(layout, Uniform(reduction), interval) == expected
            values = [
                rows.column("v").to_numpy() for rows in layout.scan(Uniform(reduction), interval, ["v"])
            ]
            assert np.concatenate([[], *values]).tolist() == [position for _, position in expected]
            if vacuums and isinstance(layout, MarkedCopies) and "uniform" in layout.reduced:
                layout.vacuum("uniform")


@pytest.mark.parametrize("name", LAYOUTS)
@given(times=TIMES, recent=SHARES, age=st.integers(1, 30))
def test_a_unit_is_reduced_as_its_least_reducible_row(
    name: str, times: list[int], recent: float, age: int
) -> None:
    """No row twice, none out of order, none missing that its own age keeps, where the scan changes its reduction midway."""
    with folder() as path:
        layout = LAYOUTS[name](path)
        fill(layout, times)
        now, old = max(times), (1 + recent) / 2
        rows = scanned(layout, Age(now, ((0, recent), (age, old))))
        assert rows == sorted(set(rows))
        expected = drawn(times, 1.0)
        draw = by_hash(np.arange(len(expected))).tolist()
        wanted = {row for row in expected if draw[row[1]] < 1 - (old if now - row[0] >= age else recent)}
        assert wanted <= set(rows) <= {row for row in expected if draw[row[1]] < 1 - recent}


def bytes_of(path: Path, *columns: str) -> int:
    """What some columns of the files of a folder have, of all row groups."""
    total = 0
    for file in path.glob("*.parquet"):
        footer = pq.read_metadata(file)
        for group in range(footer.num_row_groups):
            chunks = [footer.row_group(group).column(number) for number in range(footer.num_columns)]
            total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)
    return total


def test_only_what_decides_on_rows_is_read_besides_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    """Positions where rows are drawn after reading, event times where an interval cuts what is read; neither of a whole sample."""
    for name in ("stream", "random"):
        (tmp_path / name).mkdir()
    stream = Strawman.at(tmp_path / "stream", 400)
    random = replace(RandomBlocks.at(tmp_path / "random", 100, 4), is_ordered=False)
    fill(stream, range(400), cut=400)
    fill(random, range(400), cut=400)

    def read(layout: Layout, reduction: float, interval: Interval = ALWAYS) -> int:
        before = layout.counters.bytes_read
        list(layout.scan(Uniform(reduction), interval, ["v"]))
        return layout.counters.bytes_read - before

    of_stream, of_random = (lambda *names: bytes_of(tmp_path / "stream", *names)), tmp_path / "random"
    assert read(stream, 0.0) == of_stream("v")
    assert read(stream, 0.5) == of_stream("v", POSITION)
    assert read(stream, 0.5, Interval(10, 20)) == of_stream("v", POSITION, AT)
    assert read(stream, 0.0, Interval(0, 399)) == of_stream("v")
    assert read(random, 0.0) == bytes_of(of_random, "v")
    assert read(random, 0.1) == bytes_of(of_random, "v", POSITION)
    assert 0.4 < read(random, 0.5) / bytes_of(of_random, "v") < 0.6
    assert random.counters.bytes_of_blocks > 2 * random.counters.bytes_read


def evenly(count: int) -> Draw:
    return lambda position: (position * 37 % count + 0.5) / count


def test_the_nearest_finer_copy_is_read_and_the_rest_is_dropped(tmp_path: Path) -> None:
    """A reduction of 0.4 reads the copy of 0.25, and drops a fifth of it; 0.75 reads half of the copy of 0.5."""
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    layout = PresetCopies.at(tmp_path / "one", 10, (0.25, 0.5, 0.75), evenly(100))
    fill(layout, range(200))
    assert (len(scanned(layout, Uniform(0.4))), layout.counters.rows_read) == (120, 150)
    layout = PresetCopies.at(tmp_path / "other", 10, (0.5,), evenly(100))
    fill(layout, range(200))
    assert (len(scanned(layout, Uniform(0.75))), layout.counters.rows_read) == (50, 100)


def test_copies_are_added_and_removed_while_the_stream_continues(tmp_path: Path) -> None:
    layout = PresetCopies.at(tmp_path, 10, (), evenly(100))
    fill(layout, range(200))
    layout.add(0.75)
    fill(layout, range(200, 400), first=200)
    rows = scanned(layout, Uniform(0.75))
    assert (len(rows), layout.counters.rows_read) == (100, 200 + 50)  # what is older is in the stream alone
    layout.remove(0.75)
    before = layout.counters.rows_read
    assert scanned(layout, Uniform(0.75)) == rows
    assert layout.counters.rows_read - before == 400


def test_a_copy_has_the_share_of_rows_that_its_reduction_leaves(tmp_path: Path) -> None:
    layout = PresetCopies.at(tmp_path, 1000, (0.2, 0.4, 0.6, 0.8))
    rows = 20_000
    fill(layout, range(rows), cut=1000)
    for copy in layout.copies:
        stored = sum(block.rows for block in copy.heap.blocks)
        assert abs(stored - copy.keep * rows) <= 4 * (rows * copy.keep * (1 - copy.keep)) ** 0.5


def test_copies_have_three_times_the_bytes_of_random_values_and_more_of_regular_places(
    tmp_path: Path,
) -> None:
    """Times and positions at regular steps are packed to nothing in the stream; a sample has gaps, and random blocks have jumps."""
    rows, stored = 40_000, dict[str, dict[str, int]]()
    layouts: dict[str, Callable[[Path], Layout]] = {
        "stream": lambda path: Strawman.at(path, 1000),
        "copies": lambda path: PresetCopies.at(path, 1000, (0.2, 0.4, 0.6, 0.8)),
        "random": lambda path: RandomBlocks.at(path, 1000, 40),
    }
    position = np.arange(rows)
    values = np.random.default_rng(5).random(rows)
    for name, make in layouts.items():
        (tmp_path / name).mkdir()
        layout = make(tmp_path / name)
        layout.insert(rows_of(position * 1000, position, v=values))
        layout.flush()
        stored[name] = {column: bytes_of(tmp_path / name, column) for column in ("v", AT, POSITION)}
    plain, copies, random = stored["stream"], stored["copies"], stored["random"]
    assert copies["v"] / plain["v"] == pytest.approx(3, rel=0.02)
    assert random["v"] / plain["v"] == pytest.approx(1, rel=0.05)
    for column in (AT, POSITION):
        assert copies[column] > 6 * plain[column]
        assert 0.75 * random[column] > plain[column], "also of three quarters of the rows"
    assert 0.75 * random["v"] < plain["v"]


def rates_of(layout: MarkedCopies, reducer: str = "uniform") -> dict[int, float]:
    """The share that each row of a copy has survived, by position."""
    of = layout.reduced[reducer]
    assert of.has_copy
    rates: dict[int, float] = {}
    for block in of.heap.blocks:
        rows = pq.ParquetFile(block.path).read_row_group(block.group)
        stored = rows.column(SAMPLERATE).to_pylist() if SAMPLERATE in rows.column_names else [1.0] * len(rows)
        rates |= dict(zip(ints(rows, POSITION).tolist(), stored, strict=True))
    return rates


def test_what_less_was_wanted_of_is_not_in_the_copy(tmp_path: Path) -> None:
    """100 rows at 0.5, a vacuum, at 0.25: survivors have 0.25. More is read from the stream; arrivals are whole."""
    layout = MarkedCopies.at(tmp_path, 10, evenly(100))
    fill(layout, range(100))
    assert len(scanned(layout, Uniform(0.5))) == 50
    layout.vacuum("uniform")
    assert set(rates_of(layout).values()) == {0.5}
    before = layout.counters.rows_read
    assert len(scanned(layout, Uniform(0.75))) == 25
    assert layout.counters.rows_read - before == 50
    layout.vacuum("uniform")
    assert list(rates_of(layout).values()) == [0.25] * 25
    before = layout.counters.rows_read
    assert len(scanned(layout, Uniform(0.5))) == 50
    assert layout.counters.rows_read - before == 100
    assert layout.reduced["uniform"].accesses[-1]
    fill(layout, range(100, 120), first=100)
    rates = rates_of(layout)
    assert {rates[position] for position in range(100, 120)} == {1.0}
    assert len(rates) == 45


def test_marks_are_seen_by_scans_of_their_reducer_alone(tmp_path: Path) -> None:
    layout = MarkedCopies.at(tmp_path, 10, evenly(100))
    fill(layout, range(100))
    scanned(layout, Uniform(0.9))
    layout.vacuum("uniform")
    assert len(scanned(layout, Uniform(0.1, "other"))) == 90
    assert len(scanned(layout, Uniform(0.9))) == 10


@given(
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    operations=st.lists(
        st.one_of(
            st.tuples(st.just("scan"), SHARES, st.integers(0, 60), st.integers(0, 60)),
            st.tuples(st.just("vacuum"), st.just(0.0), st.just(0), st.just(0)),
            st.tuples(st.just("arrive"), st.just(0.0), st.integers(1, 25), st.just(0)),
        ),
        max_size=8,
    ),
    by_reference=st.booleans(),
)
def test_the_map_of_free_space_is_the_truth(
    cuts: list[int], operations: list[tuple[str, float, int, int]], by_reference: bool
) -> None:
    """After any scans, vacuums and arrivals: its dead rows are those whose draw no scan of them wanted, and a vacuum leaves none."""
    with folder() as path:
        layout = MarkedCopies.at(path, BLOCK, by_reference=by_reference)
        rows = 0
        for cut in cuts:
            fill(layout, range(rows, rows + cut), first=rows)
            rows += cut
        wanted = np.ones(rows)  # the least share that was wanted of each row, by its block of that time
        for kind, reduction, one, other in operations:
            of = layout.reduced.get("uniform")
            if kind == "arrive":
                fill(layout, range(rows, rows + one), first=rows)
                rows, wanted = rows + one, np.append(wanted, np.ones(one))
            elif kind == "scan":
                interval = Interval(min(one, other), max(one, other))
                blocks = (layout.stream if of is None else of.heap).blocks
                asked = [b for b in blocks if interval.meets(b.first[0], b.last[0])]
                list(layout.scan(Uniform(reduction), interval))
                after = layout.reduced.get("uniform")
                if after is not None and not after.accesses[-1]:
                    for block in asked:
                        at = slice(block.first[1], block.last[1] + 1)
                        wanted[at] = np.minimum(wanted[at], 1 - reduction)
            elif of is not None:
                layout.vacuum("uniform")
                assert layout.free_space("uniform") == {}
            check_free_space(layout, wanted)


def check_free_space(layout: MarkedCopies, wanted: np.ndarray) -> None:
    of = layout.reduced.get("uniform")
    free = layout.free_space("uniform")
    for block in () if of is None else of.heap.blocks:
        rows = pq.ParquetFile(block.path).read_row_group(block.group)
        position = ints(rows, POSITION)
        dead = int((by_hash(position) >= wanted[position]).sum())
        recorded = free.get(block)
        assert (0 if recorded is None else recorded.rows) == dead
        assert recorded is None or recorded.bytes == pytest.approx(dead / block.rows * block.bytes)


def test_a_vacuum_writes_only_files_with_dead_rows(tmp_path: Path) -> None:
    layout = MarkedCopies.at(tmp_path, 10, evenly(100))
    layout.stream.file_blocks = 2
    fill(layout, range(100), cut=100)
    scanned(layout, Uniform(0.5))
    layout.vacuum("uniform")
    fill(layout, range(100, 200), first=100, cut=100)
    scanned(layout, Uniform(0.8), Interval(0, 30))
    old = {block.path for block in layout.reduced["uniform"].heap.blocks}
    before = layout.counters.rows_written
    layout.vacuum("uniform")
    new = {block.path for block in layout.reduced["uniform"].heap.blocks}
    assert old & new  # the files of later rows
    assert layout.counters.rows_written - before < 100


def test_a_scan_that_began_before_a_vacuum_sees_what_it_would_have_seen(tmp_path: Path) -> None:
    """No lock: files are replaced, never changed."""
    layout = MarkedCopies.at(tmp_path, 10, evenly(100))
    fill(layout, range(200))
    list(layout.scan(Uniform(0.5)))
    layout.vacuum("uniform")
    reader = layout.scan(Uniform(0.5))
    seen = list(islice(reader, 3))
    list(layout.scan(Uniform(0.9)))
    layout.vacuum("uniform")
    fill(layout, range(200, 250), first=200)
    seen += list(reader)
    positions = np.concatenate([ints(rows, POSITION) for rows in seen])
    expected = np.arange(200)
    assert positions.tolist() == expected[evenly(100)(expected) < 0.5].tolist()


def test_too_many_scans_of_the_stream_give_the_copy_up(tmp_path: Path) -> None:
    layout = MarkedCopies.at(tmp_path, 10, evenly(100))
    fill(layout, range(100))
    scanned(layout, Uniform(0.9))
    layout.vacuum("uniform")
    for _ in range(9):
        scanned(layout, Uniform(0.9))
    for number in range(10):
        assert layout.reduced["uniform"].original_share <= RESTART
        scanned(layout, Uniform(0.5))
        assert layout.reduced["uniform"].accesses[-1], number
    scanned(layout, Uniform(0.5))  # 11 of the last 20
    assert "uniform" not in layout.reduced
    before = layout.counters.blocks_dirtied
    assert len(scanned(layout, Uniform(0.5))) == 50
    assert layout.counters.blocks_dirtied - before == 10


def test_reductions_by_age_load_and_accuracy_follow_their_rules() -> None:
    age = Age(1000, ((0, 0.1), (100, 0.5), (500, 0.9)))
    assert [age.level(high) for high in (1000, 901, 900, 501, 500, 0)] == [0.1, 0.1, 0.5, 0.5, 0.9, 0.9]
    load = Load(target=1.0, least=1 / 16)
    trace = []
    for seconds in (0.5, 2.0, 2.0, 100.0, 100.0, 0.1, 0.1):
        load.took(seconds)
        trace.append(load.keep)
    assert trace == pytest.approx([1, 0.45, 0.2025, 1 / 16, 1 / 16, 2 / 16, 3 / 16])
    assert load.level(0) == 1 - load.keep
    accurate = UntilAccurate("v", 0.1)
    assert accurate.level(0) == 0
    accurate.observe(values([90.0, 110.0]))
    assert accurate.level(0) == 0  # 100 ± 19.6
    accurate.observe(values([90.0, 110.0] * 4))
    assert accurate.level(0) == 1  # 100 ± 6.5


def values(v: Sequence[float]) -> pa.Table:
    position: Ints = np.arange(len(v))
    return rows_of(position, position, v=np.array(v))


def test_a_scan_ends_when_its_estimate_is_accurate(tmp_path: Path) -> None:
    layout = RandomBlocks.at(tmp_path, 10, 4)
    fill(layout, range(1000), cut=100)
    reducer = UntilAccurate("v", 0.5)
    rows = scanned(layout, reducer)
    assert reducer.level(0) == 1
    assert 2 <= len(rows) <= 400
    assert layout.counters.rows_read == len(rows)


def test_a_run_that_is_written_again_has_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name, cut in (("one", 7), ("other", 19)):
        (tmp_path / name).mkdir()
        layout = RandomBlocks.at(tmp_path / name, BLOCK, 4)
        fill(layout, range(100), cut=cut)
        files.append([run.path.read_bytes() for run in layout.runs])
    assert files[0] == files[1]

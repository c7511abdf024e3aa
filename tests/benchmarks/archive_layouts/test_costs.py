"""Costs of archive layouts: the formulas give OSCAR's reference values, and count what each layout reads and writes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.baselines.archive_layouts import costs
from benchmarks.baselines.archive_layouts.heap import Doubles, Ints, rows_of
from benchmarks.baselines.archive_layouts.layout import Layout, Strawman
from benchmarks.baselines.archive_layouts.marked_copies import MarkedCopies
from benchmarks.baselines.archive_layouts.preset_copies import PresetCopies
from benchmarks.baselines.archive_layouts.random_blocks import RandomBlocks
from benchmarks.baselines.archive_layouts.reducers import Age, Reducer, Uniform

COPIES = (0.8, 0.6, 0.4, 0.2)
REDUCTIONS = (0.0, 0.25, 0.5, 0.75, 0.99)
EVEN = 500
"""Of so many rows in a row, every share of whole 500ths is drawn exactly."""
ROWS, BLOCK = 10_000, 20
BLOCKS = ROWS // BLOCK


def evenly(position: Ints) -> Doubles:
    """Draws of which every interval of the stream has its share."""
    return (
        position * 309 % EVEN + 0.5
    ) / EVEN  # between shares, so that 1 - 0.99 may be a little more than 0.01


def filled(layout: Layout) -> Layout:
    position = np.arange(ROWS)
    for start in range(0, ROWS, 700):
        part = position[start : start + 700]
        layout.insert(rows_of(part * 10, part, v=part * 1.0))
    layout.flush()
    return layout


def blocks_read(layout: Layout, reducer: Reducer) -> int:
    before = layout.counters.blocks_read
    for _ in layout.scan(reducer):
        pass
    return layout.counters.blocks_read - before


@pytest.mark.parametrize(
    ("reduction", "seconds"),
    # strawman, copies, marks first, second and vacuumed, runs of 10, 100 and 500 blocks
    [
        (0.0, (20, 20, 20, 20, 20, 20, 20, 20)),
        (0.25, (20, 16, 40, 20, 15, 16, 15, 15)),
        (0.5, (20, 12, 40, 20, 10, 10, 10, 10)),
        (0.75, (20, 8, 40, 20, 5, 6, 5, 5)),
        (0.99, (20, 4, 40, 20, 0.2, 2, 0.2, 0.2)),
    ],
)
def test_the_formulas_give_the_reference_values(reduction: float, seconds: tuple[float, ...]) -> None:
    blocks = 108_000
    keeps = [1 - reduction] * blocks
    reads = (
        costs.strawman_reads(keeps),
        costs.copies_reads(keeps, COPIES),
        costs.marked_first_reads(keeps),
        costs.marked_reads(keeps, is_vacuumed=False),
        costs.marked_reads(keeps, is_vacuumed=True),
        *(costs.random_reads([1 - reduction] * (blocks // run), run) for run in (10, 100, 500)),
    )
    assert [20 * read / blocks for read in reads] == pytest.approx(seconds, rel=1e-9)


def test_writes_take_the_reference_times() -> None:
    blocks = 108_000
    writes = (
        costs.strawman_writes(blocks),
        costs.copies_writes(blocks, COPIES),
        costs.marked_writes(blocks, has_copy=False),
        costs.marked_writes(blocks, has_copy=True),
        costs.marked_writes(blocks, has_copy=True, by_reference=True),
        costs.random_writes(blocks, 10),
    )
    assert [430 * write / blocks for write in writes] == pytest.approx([430, 1290, 430, 860, 430, 430])
    entry = 20 / 8192
    assert costs.strawman_writes(blocks, entry) == blocks * (1 + entry)
    assert costs.copies_writes(blocks, COPIES, entry) == pytest.approx(3 * blocks * (1 + entry))
    assert costs.random_writes(blocks, 100, entry) == blocks * (1 + entry / 100)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_every_layout_reads_as_many_blocks_as_its_formula(tmp_path: Path, reduction: float) -> None:
    keeps, uniform = [1 - reduction] * BLOCKS, Uniform(reduction)
    for name in ("strawman", "copies", "marks", *(f"random{run}" for run in (10, 100, 500))):
        (tmp_path / name).mkdir()
    strawman = filled(Strawman.at(tmp_path / "strawman", BLOCK, evenly))
    assert blocks_read(strawman, uniform) == costs.strawman_reads(keeps)
    copies = filled(PresetCopies.at(tmp_path / "copies", BLOCK, COPIES, evenly))
    assert blocks_read(copies, uniform) == round(costs.copies_reads(keeps, [1 - c for c in COPIES]))
    marks = MarkedCopies.at(tmp_path / "marks", BLOCK, evenly)
    filled(marks)
    first = blocks_read(marks, uniform)
    assert first + marks.counters.blocks_dirtied == costs.marked_first_reads(keeps)
    dirtied = marks.counters.blocks_dirtied
    assert blocks_read(marks, uniform) == costs.marked_reads(keeps, is_vacuumed=False)
    assert marks.counters.blocks_dirtied == dirtied
    marks.vacuum("uniform")
    assert blocks_read(marks, uniform) == round(costs.marked_reads(keeps, is_vacuumed=True))
    for run_blocks in (10, 100, 500):
        # a block of random rows needs enough of them not to be empty
        random = filled(RandomBlocks.at(tmp_path / f"random{run_blocks}", BLOCK, run_blocks))
        runs = BLOCKS // run_blocks
        assert blocks_read(random, uniform) == costs.random_reads([1 - reduction] * runs, run_blocks)


def test_ages_are_counted_by_block_and_by_run(tmp_path: Path) -> None:
    """The formulas sum over units: a unit is reduced by the age of its newest row."""
    for name in ("strawman", "copies", "random"):
        (tmp_path / name).mkdir()
    end = (ROWS - 1) * 10
    age = Age(end, ((25_000, 0.2), (50_000, 0.8)))

    def keeps(units: int) -> list[float]:
        edges = np.linspace(0, ROWS, units + 1).astype(int)
        return [1 - age.level(10 * (high - 1)) for _, high in pairwise(edges)]

    strawman = filled(Strawman.at(tmp_path / "strawman", BLOCK, evenly))
    assert blocks_read(strawman, age) == BLOCKS
    random = filled(RandomBlocks.at(tmp_path / "random", BLOCK, 50))
    assert blocks_read(random, age) == costs.random_reads(keeps(BLOCKS // 50), 50)
    copies = filled(PresetCopies.at(tmp_path / "copies", BLOCK, COPIES, evenly))
    model = costs.copies_reads(keeps(BLOCKS), [1 - copy for copy in COPIES])
    switches = 2
    assert model <= blocks_read(copies, age) <= model + switches * (len(COPIES) + 1)


@pytest.mark.parametrize(
    ("layout", "ratio"), [("strawman", 1.0), ("copies", 3.0), ("marks", 1.0), ("random", 1.0)]
)
def test_writes_are_counted_in_rows(tmp_path: Path, layout: str, ratio: float) -> None:
    layouts: dict[str, Layout] = {
        "strawman": Strawman.at(tmp_path, BLOCK, evenly),
        "copies": PresetCopies.at(tmp_path, BLOCK, COPIES, evenly),
        "marks": MarkedCopies.at(tmp_path, BLOCK, evenly),
        "random": RandomBlocks.at(tmp_path, BLOCK, 10),
    }
    assert filled(layouts[layout]).counters.rows_written == round(ratio * ROWS)


@pytest.mark.parametrize(("by_reference", "ratio"), [(False, 2), (True, 1)])
def test_arrivals_are_written_twice_once_there_is_a_copy(
    tmp_path: Path, by_reference: bool, ratio: int
) -> None:
    marks = MarkedCopies.at(tmp_path, BLOCK, evenly, by_reference=by_reference)
    filled(marks)
    blocks_read(marks, Uniform(0.5))
    marks.vacuum("uniform")
    before = marks.counters.rows_written
    position = np.arange(ROWS, 2 * ROWS)
    marks.insert(rows_of(position * 10, position, v=position * 1.0))
    marks.flush()
    assert marks.counters.rows_written - before == ratio * ROWS


def test_a_first_block_in_halves_is_read_in_parts() -> None:
    assert costs.random_reads([0.01], 16) == 1
    assert costs.random_reads([0.01, 0.5], 16, halvings=3) == 0.25 + 8
    assert costs.random_reads([0.0001], 16, halvings=3) == 0.125
    assert costs.random_reads([0.0], 16) == 0


def test_skipping_pays_beyond_the_break_even_only() -> None:
    seek, rate = 0.005, 60e6
    least = costs.break_even(seek, rate)
    for skipped, pays in ((least * 0.9, False), (least * 1.1, True)):
        every_fourth = costs.read_seconds(100, 100 * skipped / 3, seek, rate)
        everything = costs.read_seconds(1, 100 * (skipped + skipped / 3), seek, rate)
        assert (every_fourth < everything) == pays


def test_random_blocks_pay_for_long_times_or_small_shares() -> None:
    """f < (L + D/R) / (L + D): half of the rows of an hour, of runs of an hour in 16 blocks, are not less than the hour's rows."""
    hour = 3600.0
    assert not costs.range_read_pays(0.54, hour, hour, 16)
    assert costs.range_read_pays(0.53, hour, hour, 16)
    assert costs.range_read_pays(0.9, 24 * hour, hour, 16)

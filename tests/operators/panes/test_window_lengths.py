"""Windows of several lengths over the same panes: their blocks, and which of them later windows are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.operators.base.operator import Advance
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.panes.pane_keys import block_key, cover, covers, levels_and_blocks
from headrace.operators.panes.panes import Panes
from headrace.operators.panes.window_lengths import WindowLengths, top_level
from headrace.operators.sharing.scan_sharing import scan_groups
from headrace.planner.lowering.lower import lower
from headrace.reference.history import StreamRow
from headrace.time import BEGINNING
from tests.laws.driving import batch
from tests.laws.strategies import TICK
from tests.laws.test_laws import SCHEMAS
from tests.laws.test_window_lengths import CALLS, query


def windows(*ranges: int, slide: int = 4) -> list[tuple[int, Panes, int]]:
    """Queries 10, 11, … in the opposite order."""
    numbered = [(10 + n, Panes.of(TimeSlide(range_, slide)), range_) for n, range_ in enumerate(ranges)]
    return numbered[::-1]


intervals = st.tuples(st.integers(-300, 300), st.integers(1, 300), st.integers(0, 6))


@given(st.lists(intervals, min_size=1, max_size=8))
def test_the_blocks_of_many_intervals_are_those_of_each(drawn: list[tuple[int, int, int]]) -> None:
    first, length, top = (np.array(column) for column in zip(*drawn, strict=True))
    keys, owner = covers(first, first + length, top)
    for index, (low, count, level) in enumerate(drawn):
        blocks = sorted(block_key(*block) for block in cover(low, low + count, level))
        assert sorted(keys[owner == index].tolist()) == blocks


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-(1 << 50), 1 << 50)), min_size=1))
def test_a_key_has_its_level_and_block(drawn: list[tuple[int, int]]) -> None:
    levels, blocks = levels_and_blocks(np.array([block_key(*block) for block in drawn]))
    assert list(zip(levels.tolist(), blocks.tolist(), strict=True)) == drawn


@pytest.mark.parametrize("ranges", [(6, 10, 2), (4, 8, 40, 44)])
def test_lengths_are_in_the_order_of_numbers_and_each_gives_its_panes_back(ranges: tuple[int, ...]) -> None:
    lengths = WindowLengths.of(windows(*ranges))
    assert lengths is not None
    assert lengths.ranges.tolist() == list(ranges)
    assert lengths.grid == Panes.of(TimeSlide(max(ranges), 4))
    assert lengths.tops.tolist() == [top_level(length) for length in lengths.panes.tolist()]
    numbers_of = {(panes, range_): numbers.tolist() for panes, range_, numbers in lengths.each()}
    assert numbers_of == {(panes, range_): [number] for number, panes, range_ in windows(*ranges)}


def test_equal_windows_and_landmarks_have_no_lengths() -> None:
    landmark = Panes.of(Landmark(4))
    assert WindowLengths.of(windows(8, 8)) is None
    assert WindowLengths.of([(1, landmark, 0), (2, landmark, 0)]) is None


def test_a_block_is_needed_while_a_window_of_its_own_query_is_made_of_it() -> None:
    lengths = WindowLengths.of(windows(8, 40, 80))  # 2, 10 and 20 panes, in blocks of up to 1, 8 and 16
    assert lengths is not None
    numbers, blocks = np.repeat([10, 11, 12], 30), np.tile(np.arange(30), 3)
    panes = lengths.still_needed(numbers, np.zeros(90, np.int64), blocks, 30)  # the panes [first, 30)
    assert [blocks[panes & (numbers == number)].min() for number in (10, 11, 12)] == [28, 20, 10]
    eights = lengths.still_needed(numbers, np.full(90, 3), blocks, 30)
    assert [int(blocks[eights & (numbers == number)].min(initial=99)) for number in (10, 11, 12)] == [
        99,
        2,
        1,
    ]


def test_rows_of_dropped_queries_may_be_needed_or_not_but_do_no_harm() -> None:
    lengths = WindowLengths.of(windows(8, 40))
    assert lengths is not None
    dropped = np.array([3, 99])
    assert len(lengths.still_needed(dropped, np.zeros(2, np.int64), np.zeros(2, np.int64), 5)) == 2


def test_open_windows_are_counted_by_each_query_s_own_length() -> None:
    asked = [query(TimeSlide(length * TICK, TICK), None, ["k"], CALLS[0]) for length in (1, 4, 9)]
    operators = [lower(f"q{n}", each, f"q{n}") for n, each in enumerate(asked)]
    values = [{"k": "a", "g": 0, "x": n, "y": 0.5, "at": n * TICK} for n in range(12)]
    rows = batch([StreamRow(each, each["at"], n) for n, each in enumerate(values)], SCHEMAS["s"])
    output = ScanOutput()
    for group in scan_groups(operators, {}):
        group.add(rows)
        output.join(group.finish())
    deltas = {name.partition("/")[2]: tables[0] for name, tables in output.sections.items()}
    steps = Cohort.of(operators).advance([], [deltas], Advance(BEGINNING, 8 * TICK, 11 * TICK)).steps
    assert [steps[f"q{n}"].open_windows for n in range(3)] == [4, 7, 12]

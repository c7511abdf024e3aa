"""The source of a flood: it pushes on schedule, and remembers the truth; the checksum notices every other row, and no other order."""

from __future__ import annotations

import time
from itertools import permutations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.floods.flood_source import EVERY, Checksum, Source

ROW = st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(0, 9))


class Slow:
    """A hub that takes long for its first push."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def push(self, stream: str, rows: pa.Table) -> None:
        assert stream == "s"
        if not self.tables:
            time.sleep(3 * EVERY)
        self.tables.append(rows)


def checksum(rows: list[tuple[int, int, int]], cut: int) -> Checksum:
    found = Checksum()
    for start in range(0, len(rows), cut):
        found.add(*(np.array(column, np.int64) for column in zip(*rows[start : start + cut], strict=True)))
    return found


@given(st.lists(ROW, min_size=1, max_size=30), st.lists(ROW, min_size=1, max_size=30), st.integers(1, 9))
def test_the_checksum_is_that_of_the_bag_of_rows(
    rows: list[tuple[int, int, int]], others: list[tuple[int, int, int]], cut: int
) -> None:
    assert checksum(rows, cut) == checksum(rows[::-1], 7)
    assert (checksum(rows, cut) == checksum(others, cut)) == (sorted(rows) == sorted(others))


def test_values_that_change_places_are_noticed() -> None:
    assert checksum([(1, 2, 3), (4, 5, 6)], 9) != checksum([(1, 5, 3), (4, 2, 6)], 9)
    assert checksum([(1, 2, 3), (4, 5, 6)], 9) != checksum([(1, 2, 6), (4, 5, 3)], 9)
    assert len({checksum([row], 9).total for row in permutations((1, 2, 3))}) == 6


def test_a_push_that_takes_long_makes_no_other_one_late() -> None:
    hub = Slow()
    source = Source(hub)
    began = time.perf_counter()
    source.pour(400, 2.0)
    due = np.array([at for at, _ in source.due])
    assert np.allclose(np.diff(due), EVERY)
    assert began <= due[0]
    assert [rows for _, rows in source.due] == [100] * 8
    times = np.concatenate([table["at"].cast(pa.int64()).to_numpy() for table in hub.tables])
    assert (np.diff(times) > 0).all()
    assert source.checksum.rows == 800


def test_it_remembers_counts_and_sums_by_second_and_group() -> None:
    source = Source(Slow())
    draw = np.random.default_rng(2)
    at = np.sort(draw.integers(5_000_000, 9_000_000, 200))
    k, v = draw.integers(0, 1000, 200), draw.integers(0, 100, 200)
    for part in (slice(0, 90), slice(90, 200)):
        source.remember(at[part], k[part], v[part])
    answers = source.answers(5, 10, 7)
    assert source.first_end == 6
    for end in range(5, 11):
        for group in range(7):
            inside = (at // 1_000_000 == end - 1) & (k % 7 == group)
            assert answers[end - 5, :, group].tolist() == [inside.sum(), v[inside].sum()]

"""The symmetric hash join with a cleaner finds every pair but those of which one row was removed before the other came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.cleaned_join import CleanedJoin

arrivals = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=40)


def held(arrived: list[tuple[int, int]], side: int, before: int, most: int, kept: int) -> list[int]:
    """The cleaner replayed: the rows of a side in memory when row `before` comes."""
    rows: list[int] = []
    for row, (of_side, _) in enumerate(arrived[:before]):
        if of_side == side:
            rows.append(row)
            rows = rows[-kept:] if len(rows) > most else rows
    return rows


@given(arrivals, st.integers(1, 6), st.data())
def test_pairs_are_those_of_loops_over_the_rows_that_the_cleaner_has_left(
    arrived: list[tuple[int, int]], most: int, data: st.DataObject
) -> None:
    kept = data.draw(st.integers(1, most))
    join = CleanedJoin(most, kept)
    emitted = set[tuple[int, int]]()
    for row, (side, key) in enumerate(arrived):
        pairs = join.arrive(side, row, key)
        partners = [other for other in held(arrived, 1 - side, row, most, kept) if arrived[other][1] == key]
        assert sorted(pairs) == sorted((row, other) if side == 0 else (other, row) for other in partners)
        emitted |= set(pairs)
        assert max(join.rows) <= most
    complete = {
        (first, second)
        for first in range(join.complete_since, len(arrived))
        for second in range(join.complete_since, len(arrived))
        if arrived[first] == (0, arrived[second][1]) and arrived[second][0] == 1
    }
    assert complete <= emitted


def test_a_row_that_was_removed_is_stated_and_has_no_later_partner() -> None:
    join = CleanedJoin(most=2, kept=1)
    assert [join.arrive(0, row, 5) for row in range(3)] == [[], [], []]
    assert (join.rows, join.complete_since, join.cleanings) == ((1, 0), 2, 1)
    assert join.arrive(1, 3, 5) == [(2, 3)]

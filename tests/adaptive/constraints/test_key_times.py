"""Distances of rows by key against their definitions, and what promises that were found finish: nothing that a row still to come is joined with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.key_promises import FoundPromise, KeyRows
from headrace.adaptive.constraints.key_times import NONE, from_first, from_larger

RANGE = 12
Row = tuple[int, int]
"""(value, time)."""
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=8)


def columns(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int64)


@given(new=ROWS, parts=st.lists(ROWS, max_size=3))
def test_from_first_is_the_distance_to_any_stored_row_and_to_the_first_new_one(
    new: list[Row], parts: list[list[Row]]
) -> None:
    new = sorted(new)
    stored = [row for part in parts for row in part]
    expected = []
    for place, (value, at) in enumerate(new):
        apart = [abs(at - then) for other, then in stored if other == value]
        apart += [at - then for other, then in new[:place] if other == value]
        expected.append(max(apart, default=NONE))
    found = from_first(*columns(new), [columns(sorted(part)) for part in parts])
    assert found.tolist() == expected


@given(new=ROWS, seen=ROWS)
def test_from_larger_is_the_distance_to_the_first_larger_value(new: list[Row], seen: list[Row]) -> None:
    expected = [
        max((at - then for larger, then in seen if larger > value and then < at), default=NONE)
        for value, at in new
    ]
    assert from_larger(*columns(new), columns(seen)).tolist() == expected


def as_rows(rows: list[Row]) -> KeyRows:
    values, at = columns(rows)
    return KeyRows(values, at, values)


@pytest.mark.parametrize("kind", ["clustered", "ordered"])
@given(data=st.data())
def test_a_row_is_finished_only_if_no_row_to_come_is_its_partner(kind: str, data: st.DataObject) -> None:
    """The bound is of distances within a window, as larger ones are not measured; any part of the rows is seen."""
    rows, waiting, punctuation = data.draw(ROWS), data.draw(ROWS), data.draw(st.integers(0, 30))
    came = [row for row in rows if row[1] < punctuation]
    seen = [row for row in rows if data.draw(st.booleans()) and row[1] < punctuation]
    seen += [row for row in rows if data.draw(st.booleans()) and row[1] >= punctuation]
    breaks = {
        "clustered": lambda one, other: one[0] == other[0],
        "ordered": lambda one, other: one[0] > other[0],
    }[kind]
    apart = [b[1] - a[1] for a in rows for b in rows if breaks(a, b)]
    within = max((one for one in apart if 0 <= one <= RANGE), default=0)
    finished = FoundPromise(kind, within).finished(as_rows(waiting), as_rows(seen), punctuation)  # type: ignore[arg-type]
    for (value, at), done in zip(waiting, finished.tolist(), strict=True):
        partners = [
            row for row in rows if row[0] == value and row[1] >= punctuation and abs(row[1] - at) <= RANGE
        ]
        assert not (done and partners), (came, partners)


@pytest.mark.parametrize(("kind", "value"), [("clustered", 5), ("ordered", 4)])
@pytest.mark.parametrize(
    ("seen_at", "punctuation", "done"), [(10, 14, True), (10, 13, False), (9, 14, False)]
)
def test_a_row_is_finished_by_rows_that_are_no_earlier(
    kind: str, value: int, seen_at: int, punctuation: int, done: bool
) -> None:
    promise = FoundPromise(kind, 3)  # type: ignore[arg-type]
    finished = promise.finished(as_rows([(value, 10), (6, 10)]), as_rows([(5, seen_at)]), punctuation)
    assert finished.tolist() == [done, False]

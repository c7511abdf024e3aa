"""Panes against the extent that windows are defined by, for every small range, slide and anchor."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.operators.panes.pane_keys import cover
from headrace.operators.panes.panes import Panes

INSTANTS = range(-25, 26)
WINDOWS = range(-15, 16)


@pytest.mark.parametrize("anchor", [0, 3, -7])
def test_the_panes_of_a_window_hold_exactly_its_extent(anchor: int) -> None:
    for length, slide in product(range(1, 13), range(1, 8)):
        window = TimeSlide(length, slide, anchor)
        panes = Panes.of(window)
        for number, at in product(WINDOWS, INSTANTS):
            first, stop = panes.first(number), panes.stop(number)
            assert first is not None
            held = first <= panes.of_instant(at) < stop
            assert held == window.holds(number, at), (window, number, at)


def test_panes_of_many_instants_are_those_of_each() -> None:
    at = np.array(INSTANTS)
    for length, slide in product(range(1, 13), range(1, 8)):
        panes = Panes.of(TimeSlide(length, slide, 2))
        assert panes.of_instants(at).tolist() == [panes.of_instant(instant) for instant in INSTANTS]


def test_first_and_last_window_of_a_pane_enclose_all_that_hold_it_and_no_window_too_many() -> None:
    for length, slide in product(range(1, 13), range(1, 8)):
        panes = Panes.of(TimeSlide(length, slide))
        for pane in range(-12, 13):
            holders = [w for w in range(-40, 41) if (panes.first(w) or 0) <= pane < panes.stop(w)]
            first, last = panes.first_window(pane), panes.last_window(pane)
            assert last is not None
            if holders:
                assert (first, last) == (holders[0], holders[-1])
            else:
                assert panes.has_gaps
                assert pane % 2 == 0


def test_there_are_two_panes_a_slide_at_most_whatever_the_range_is() -> None:
    for length, slide in product(range(1, 30), range(1, 12)):
        panes = Panes.of(TimeSlide(length, slide))
        assert panes.per_slide == (1 if length % slide == 0 else 2)
        assert panes.per_window == panes.stop(0) - (panes.first(0) or 0)


def test_a_landmark_window_holds_every_pane_before_its_end() -> None:
    window = Landmark(5, 2)
    panes = Panes.of(window)
    for number, at in product(WINDOWS, INSTANTS):
        assert (panes.of_instant(at) < panes.stop(number)) == window.holds(number, at)
        assert panes.first(number) is None


def test_the_last_closed_window_is_the_last_one_that_ends_at_or_before_the_punctuation() -> None:
    for slide, anchor, at in product(range(1, 8), (0, 3), INSTANTS):
        window = TimeSlide(4, slide, anchor)
        closed = Panes.of(window).last_closed(at)
        assert window.bounds(closed)[1] <= at < window.bounds(closed + 1)[1]


def test_cover_is_a_disjoint_union_of_few_aligned_blocks() -> None:
    for first, length, top in product(range(-33, 34), range(70), range(6)):
        blocks = cover(first, first + length, top)
        panes = [pane for level, block in blocks for pane in range(block << level, (block + 1) << level)]
        assert panes == list(range(first, first + length))
        assert len(blocks) <= 2 * top + (length >> top) + 1

"""Constraints of single sides that a join found: the same answers while they hold, a part of all when they break, whatever keys are watched,
in any cut, tasks and merges; what is measured and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.observation import NO_DELAY, DelayObservation, KeyTimes
from headrace.operators.base.group_codes import hashes, numbers_of_hashes
from headrace.operators.joins.probing import key_monitor
from headrace.operators.joins.probing.key_monitor import key_distances
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles, probing
from headrace.operators.joins.probing.stems import Stem
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.rows.sorted_rows import Sorted
from tests.operators.joins.test_constrained_join import RANGE, Driven, Row, finding, join, loops

Plan = list[tuple[list[list[Row]], list[int]]]
BREAKS: dict[str, Callable[[Row, Row], bool]] = {
    "clustered": lambda one, other: one[0] == other[0],
    "ordered": lambda one, other: other[0] is not None and one[0] is not None and other[0] < one[0],
}
"""Whether the later of two rows of a side counts for the distance of a kind."""


def drawn(data: st.DataObject, sides: int) -> Plan:
    plan: Plan = []
    bounds, value = [0] * sides, 0
    keys = st.sampled_from((None, 0, 1, 2, 3))
    for _ in range(data.draw(st.integers(1, 6), "epochs")):
        rows: list[list[Row]] = []
        for side in range(sides):
            own = data.draw(st.lists(st.tuples(keys, st.integers(0, 15)), max_size=5))
            rows.append([(key, value + n, bounds[side] + later) for n, (key, later) in enumerate(own)])
            value += len(own)
        bounds = [bound + data.draw(st.integers(0, 15)) for bound in bounds]
        plan.append((rows, list(bounds)))
    return plan


def every_row(plan: Plan) -> list[list[Row]]:
    return [[row for rows, _ in plan for row in rows[side]] for side in range(len(plan[0][0]))]


def largest(rows: list[Row], kind: str) -> int:
    """The largest distance of a kind that rows stored for a window show."""
    apart = [b[2] - a[2] for a, b in product(rows, rows) if a[0] is not None and BREAKS[kind](a, b)]
    return max((one for one in apart if 0 <= one <= RANGE), default=0)


def run(plan: Plan, found: tuple[PartnerBound, ...], data: st.DataObject) -> Driven:
    driven = finding(len(plan[0][0]))
    driven.found = found
    for rows, bounds in plan:
        driven.epoch(rows, bounds, data.draw(st.integers(1, 3)))
        if driven.runs:
            driven.merge(sorted(data.draw(st.sets(st.integers(0, len(driven.runs) - 1)))))
    return driven


@given(
    data=st.data(),
    sides=st.integers(2, 3),
    holds=st.booleans(),
    share=st.sampled_from((1 / 512, 0.5, 0.9)),
)
def test_bounds_of_keys_that_hold_lose_nothing_and_others_lose_a_part(
    data: st.DataObject, sides: int, holds: bool, share: float
) -> None:
    plan = drawn(data, sides)
    every = every_row(plan)
    found = []
    for side, kind in product(range(sides), BREAKS):
        if data.draw(st.booleans()):
            within = largest(every[side], kind) if holds else data.draw(st.integers(0, 9))
            found.append(PartnerBound(side, side, within, within, kind=kind))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_monitor, "SHADOWS", share)
        driven = run(plan, tuple(found), data)
    expected = Counter(tuple(row[1] for row in rows) for rows in loops(every))
    assert driven.emitted <= expected
    if holds:
        assert driven.emitted == expected


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Keys are watched by halves: three that ascend, of which the last is watched and the others not."""
    monkeypatch.setattr(key_monitor, "SHADOWS", 0.5)
    is_watched = key_monitor.shadows(hashes(pa.array(range(100)))).tolist()
    others = [key for key in range(50) if not is_watched[key]]
    return others[0], others[1], next(key for key in range(50, 100) if is_watched[key])


def test_a_row_goes_once_its_partner_has_come_and_the_bound_has_passed(half: tuple[int, int, int]) -> None:
    key, other, watched = half
    driven = finding(2)
    driven.found = (PartnerBound(1, 1, 4, 4, kind="clustered"),)
    driven.epoch([[(key, 10, 3), (other, 11, 3), (watched, 12, 3)], [(key, 20, 3), (watched, 21, 3)]], (9, 7))
    driven.merge([0])
    assert driven.kept()[0] == [10, 11, 12], "one at 7 may still come"
    driven.epoch([[], []], (9, 8))
    driven.merge([0])
    assert driven.kept()[0] == [11, 12], "one without a partner waits, and one of a key that is watched"


def test_a_row_goes_once_a_larger_key_that_is_watched_has_come(half: tuple[int, int, int]) -> None:
    key, other, watched = half
    driven = finding(2)
    driven.found = (PartnerBound(1, 1, 4, 4, kind="ordered"),)
    driven.epoch([[(key, 10, 3)], [(other, 20, 3)]], (20, 20))
    driven.merge([0])
    assert driven.kept()[0] == [10], "the larger key is not watched"
    driven.epoch([[], [(watched, 21, 22)]], (26, 26))
    driven.merge(range(len(driven.runs)))
    assert driven.kept()[0] == [10]
    driven.epoch([[], []], (27, 27))
    driven.merge(range(len(driven.runs)))
    assert driven.kept()[0] == []


@pytest.mark.parametrize("kind", ["clustered", "ordered"])
def test_rows_that_break_a_bound_are_counted(half: tuple[int, int, int], kind: str) -> None:
    key, _, watched = half
    profiles, driven = ProbeProfiles(measures=True), finding(2)
    driven.found = (PartnerBound(1, 1, 4, 4, kind=kind),)  # type: ignore[arg-type]
    first = watched if kind == "ordered" else key
    with probing(profiles):
        driven.epoch([[], [(watched, 20, 0), (first, 21, 0)]], (0, 0))
        driven.epoch(
            [[], [(min(first, key), 22, 4), (min(watched, 99), 23, 5 if kind == "clustered" else 0)]], (0, 0)
        )
        driven.epoch([[], [(key, 24, 5)]], (0, 0))
    (seen,) = profiles.delays.values()
    assert driven.rejected.total() == seen.left_out == 1
    assert seen.left_out_sampled == (1 if kind == "clustered" else 0), "of keys that are watched"
    assert f"found: {kind} by key" in next(iter(driven.rejected))


@pytest.mark.parametrize(
    ("operator", "measures"),
    [
        (finding(2).operator, True),
        (WindowJoin(join(2).spec), True),
        (WindowJoin(join(2).spec, most_rows=9), False),
        (join(2), False),
    ],
    ids=["finds", "proposes", "has rows of a sample of keys", "drops rows by what is declared"],
)
def test_what_is_measured_of_keys(operator: Any, measures: bool) -> None:
    profiles, driven = ProbeProfiles(measures=True, sees_keys=True), Driven(operator)
    with probing(profiles):
        driven.epoch([[(1, 10, 0), (2, 11, 9)], [(8, 19, 0)]], (0, 0))
        driven.epoch([[(1, 12, 7), (1, 13, 8), (3, 14, 9)], [(9, 20, 1)]], (0, 0))
    (seen,) = profiles.delays.values()
    assert bool(seen.keys) == measures
    if measures:
        assert seen.keys[0][:2] == (5, 8)
        assert seen.keys[1] == KeyTimes(2, NO_DELAY, 0, NO_DELAY, 1)
        assert DelayObservation.of(json.loads(json.dumps(seen.as_dict()))).keys == seen.keys


@pytest.mark.parametrize(
    ("found", "compared"),
    [
        ((PartnerBound(1, 0, RANGE // 8),), False),
        ((PartnerBound(1, 0, RANGE // 8 + 1),), True),
        ((PartnerBound(0, 1, 0),), True),
        ((PartnerBound(1, 0, RANGE // 8), PartnerBound(0, 0, 3, kind="ordered")), True),
    ],
    ids=["brief", "not brief", "for the other side", "a bound on its keys is in force"],
)
def test_keys_of_a_side_that_others_wait_for_briefly_are_not_compared(
    found: tuple[PartnerBound, ...], compared: bool
) -> None:
    """They could finish no row much sooner; a bound on them that is in force has to hold."""
    profiles, driven = ProbeProfiles(measures=True), finding(2)
    driven.found = found
    with probing(profiles):
        driven.epoch([[(1, 10, 0), (1, 11, 1)], []], (0, 0))
    (seen,) = profiles.delays.values()
    assert bool(seen.keys) == compared


def test_keys_for_which_few_rows_wait_are_not_compared() -> None:
    """One of 33 stored rows waits for side 0, and then two of 34."""
    profiles, driven = ProbeProfiles(measures=True), finding(2)
    driven.epoch([[(key, key, 0) for key in range(32)], [(99, 50, 0)]], (0, 0))
    with probing(profiles):
        driven.epoch([[(1, 60, 1)], [(1, 61, 1)]], (0, 0))
    (seen,) = profiles.delays.values()
    assert [times.rows > 0 for times in seen.keys] == [False, True]
    with probing(again := ProbeProfiles(measures=True)):
        driven.epoch([[(2, 62, 2)], []], (0, 0))
    (seen,) = again.delays.values()
    assert [times.rows > 0 for times in seen.keys] == [True, False]


def test_a_side_whose_rows_are_stored_for_less_time_than_others_wait_shows_nothing() -> None:
    spec = join(2).spec
    short = replace(spec.sides[1], lookback=5, longest=5)
    profiles = ProbeProfiles(measures=True)
    driven = Driven(replace(finding(2).operator, spec=replace(spec, sides=(spec.sides[0], short))))
    with probing(profiles):
        driven.epoch([[(1, 10, 0)], [(1, 20, 0)]], (0, 0))
    (seen,) = profiles.delays.values()
    assert [times.rows for times in seen.keys] == [1, 0]


@given(
    data=st.data(),
    share=st.sampled_from((0.25, 0.9)),
    of_rows=st.sampled_from((0.3, 1.0)),
    every=st.booleans(),
)
def test_distances_are_of_a_sample_and_from_keys_that_are_watched(
    data: st.DataObject, share: float, of_rows: float, every: bool
) -> None:
    rows = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 20)), min_size=1, max_size=8)
    parts = [data.draw(rows) for _ in range(data.draw(st.integers(1, 3)))]
    made = [
        Sorted.of(pa.table({"__hash": pa.array(keys), "__time": pa.array(at)}), None)
        for keys, at in (
            (hashed[order], times[order])
            for hashed, times in (
                (hashes(pa.array([r[0] for r in part])), np.array([r[1] for r in part])) for part in parts
            )
            for order in (np.lexsort((times, hashed)),)
        )
    ]
    *stored, new = made
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_monitor, "SHADOWS", share)
        seen = key_distances(new, Stem(tuple(stored), None), of_rows, every=every)
        watched = {key for key in range(-3, 4) if key_monitor.shadows(hashes(pa.array([key])))[0]}
    compared = set(numbers_of_hashes(seen.hashes[seen.is_compared]).tolist())
    of_new = parts[-1] if every else [row for row in parts[-1] if row[0] in compared]
    known = [row for part in parts for row in part if row[0] in watched]
    behind = Counter(
        (key, at, max((at - then for larger, then in known if larger > key and then < at), default=NO_DELAY))
        for key, at in of_new
    )
    measured = zip(
        numbers_of_hashes(seen.hashes).tolist(), seen.at.tolist(), seen.inverted.tolist(), strict=True
    )
    assert Counter(measured) == behind
    assert seen.has_larger == bool(known)
    assert seen.is_compared.all() or every

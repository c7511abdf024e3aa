"""Joins that spill the rows that constraints finish: no pair is lost whatever constraints hold, rows leave the disk with their windows, and only
those of the keys of new rows are read.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.key_promises import KINDS, KeyPromise
from headrace.adaptive.constraints.partner_delays import UNBOUNDED, PartnerBound
from headrace.operators.joins.constrained_join import Reference
from headrace.operators.joins.probing import key_monitor, spilled_rows
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles, probing
from tests.operators.joins.test_constrained_join import (
    RANGE,
    UNIQUE,
    Driven,
    Plan,
    Row,
    join,
    loops,
    planned,
    values_of,
)


def on_disk(driven: Driven) -> list[list[int]]:
    """The values of the spilled rows of each side."""
    names = [spilled_rows.rows_of(name) for name in driven.operator.sections]
    return [
        sorted(
            value
            for run in driven.runs
            if name in run
            for value in run[name].column(f"s{side}.v").to_pylist()
        )
        for side, name in enumerate(names)
    ]


def run(driven: Driven, plan: Plan, data: st.DataObject) -> Driven:
    """The plan in any number of tasks, with any merges, under the bounds of its epochs and others on the order of keys, which rows need not obey."""
    by_key = [
        PartnerBound(side, side, within, within, kind=kind)
        for side in range(driven.sides)
        for kind, within in data.draw(st.dictionaries(st.sampled_from(KINDS), st.integers(0, 12))).items()
    ]
    with probing(ProbeProfiles(measures=True)):
        for rows, bounds, force in plan:
            if driven.operator.finds_bounds:
                in_time = (bound for bound in force.values() if bound.within is not None)
                driven.found = (*in_time, *by_key)
            driven.epoch(rows, bounds, data.draw(st.integers(1, 3)))
            if driven.runs:
                driven.merge(sorted(data.draw(st.sets(st.integers(0, len(driven.runs) - 1)))))
    return driven


def all_rows(plan: Plan, sides: int) -> list[list[Row]]:
    return [[row for rows, _, _ in plan for row in rows[side]] for side in range(sides)]


def guessed(sides: int, data: st.DataObject) -> Driven:
    """A join with constraints that its rows need not obey."""
    withins = st.integers(0, 12)
    kinds = st.sampled_from(("unique", "clustered", "ordered"))
    promises = [
        [KeyPromise(kind, data.draw(withins), kind) for kind in data.draw(st.sets(kinds))]
        for _ in range(sides)
    ]
    references = [
        Reference(*pair, data.draw(withins), "r")
        for pair in permutations(range(sides), 2)
        if data.draw(st.booleans())
    ]
    return Driven(join(sides, promises, references))


@pytest.mark.parametrize("share", [1 / 512, 0.5])
@given(data=st.data(), sides=st.integers(2, 3), finds=st.booleans())
def test_whatever_constraints_hold_no_combination_is_lost(
    data: st.DataObject, sides: int, finds: bool, share: float
) -> None:
    """Also where so many keys are stored whatever was found, which are what finds the order of others."""
    plan = planned(data, sides, st.one_of(st.none(), st.integers(0, 12)))
    driven = guessed(sides, data)
    driven.operator = replace(driven.operator, spill=UNBOUNDED, finds_bounds=finds)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_monitor, "SHADOWS", share)
        run(driven, plan, data)
    assert driven.emitted == values_of(loops(all_rows(plan, sides)))
    assert not driven.rejected


@given(data=st.data(), sides=st.integers(2, 3), spill=st.integers(1, RANGE + 5))
def test_rows_so_far_apart_are_found_and_no_combination_is_wrong(
    data: st.DataObject, sides: int, spill: int
) -> None:
    plan = planned(data, sides, st.one_of(st.none(), st.integers(0, 12)))
    driven = guessed(sides, data)
    driven.operator = replace(driven.operator, spill=spill, finds_bounds=data.draw(st.booleans()))
    run(driven, plan, data)
    every = loops(all_rows(plan, sides))
    near = [rows for rows in every if max(row[2] for row in rows) - min(row[2] for row in rows) <= spill]
    assert values_of(near) <= driven.emitted <= values_of(every)


@given(data=st.data(), spill=st.integers(1, RANGE + 5))
def test_of_two_sides_it_is_the_answer_of_bounds_that_are_at_least_so_long(
    data: st.DataObject, spill: int
) -> None:
    """However runs are merged, and however bounds change."""
    plan = planned(data, 2, st.one_of(st.none(), st.integers(0, 20)))
    driven = Driven(replace(join(2), finds_bounds=True, spill=spill))
    came = {row[1]: epoch for epoch, (rows, _, _) in enumerate(plan) for of_side in rows for row in of_side}
    for rows, bounds, force in plan:
        driven.found = tuple(bound for bound in force.values() if bound.within is not None or bound.former)
        driven.epoch(rows, bounds, data.draw(st.integers(1, 3)))
        if driven.runs:
            driven.merge(sorted(data.draw(st.sets(st.integers(0, len(driven.runs) - 1)))))

    def is_answer(pair: tuple[Row, ...]) -> bool:
        force = plan[max(came[row[1]] for row in pair)][2]
        return all(
            pair[child][2] - pair[parent][2]
            <= max(spill, force[parent, child].limits(np.array([pair[parent][2]]))[0])
            for parent, child in permutations(range(2))
        )

    assert driven.emitted == values_of(filter(is_answer, loops(all_rows(plan, 2))))


def referring(spill: int, within: int = 5) -> Driven:
    return Driven(replace(join(2, (), [Reference(0, 1, within, "r")]), spill=spill))


def test_finished_rows_are_on_disk_until_pairs_with_them_are_no_answers() -> None:
    driven = referring(spill=12)
    driven.epoch([[(1, 10, 0), (2, 11, 4)], []], (0, 6))
    driven.merge([0])
    assert (driven.kept()[0], on_disk(driven)[0]) == ([11], [10])
    driven.epoch([[(3, 12, 7)], []], (0, 12))
    driven.merge(range(len(driven.runs)))
    assert (driven.kept()[0], on_disk(driven)[0]) == ([12], [10, 11])
    driven.epoch([[], []], (0, 13))
    driven.merge(range(len(driven.runs)))
    assert (driven.kept()[0], on_disk(driven)[0]) == ([], [11, 12])
    driven.epoch([[], []], (0, 20))
    driven.merge(range(len(driven.runs)))
    assert driven.runs == []


def test_a_merge_without_division_drops_no_row() -> None:
    driven = referring(spill=UNBOUNDED)
    driven.epoch([[(1, 10, 0)], []], (0, 0))
    driven.epoch([[], []], (0, 9))
    (run_,) = driven.runs
    assert driven.operator.compact("left", [run_["left"]], driven.advance).num_rows == 1


def test_spilled_rows_leave_with_their_windows() -> None:
    driven = referring(spill=UNBOUNDED)
    driven.epoch([[(1, 10, 0)], []], (0, RANGE))
    driven.merge([0])
    assert on_disk(driven)[0] == [10]
    driven.epoch([[], []], (0, RANGE + 1))
    driven.merge([0])
    assert driven.runs == []


@pytest.mark.parametrize("merges", [True, False])
def test_a_new_row_that_waits_for_nothing_is_spilled_at_once(merges: bool) -> None:
    driven = referring(spill=20)
    driven.epoch([[], []], (0, 9))
    driven.epoch([[(1, 10, 2)], []], (0, 9))
    assert (driven.kept()[0], on_disk(driven)[0]) == ([], [10])
    if merges:
        driven.merge([0])
    driven.epoch([[], [(1, 20, 22)]], (0, 22))
    assert driven.emitted == {(10, 20): 1}
    driven.epoch([[], [(1, 21, 23)]], (0, 23))
    assert driven.emitted == {(10, 20): 1}
    assert driven.rejected.total() == 1, "a pair beyond both lengths is left out"


def test_rows_of_three_sides_without_a_partner_are_spilled() -> None:
    chain = [Reference(1, 0, 0, "first"), Reference(0, 1, 20, "second"), Reference(1, 2, 20, "third")]
    driven = Driven(replace(join(3, (), chain), spill=UNBOUNDED))
    driven.epoch([[], [(2, 21, 3)], []], (9, 9, 9))
    assert (driven.kept()[1], on_disk(driven)[1]) == ([], [21])
    driven.epoch([[(2, 11, 9)], [], [(2, 31, 9)]], (9, 9, 9))
    assert driven.emitted == {(11, 21, 31): 1}


def test_rows_of_finished_keys_are_read_again_when_their_key_comes_again() -> None:
    profiles = ProbeProfiles(measures=True)
    driven = Driven(replace(join(2, [[UNIQUE], [UNIQUE]]), spill=UNBOUNDED))
    with probing(profiles):
        driven.epoch(
            [[(key, 10 + key, 0) for key in range(5)], [(key, 20 + key, 1) for key in range(4)]], (1, 1)
        )
        driven.merge([0])
        assert driven.kept() == [[14], []]
        assert profiles.delays["q1.inner"].from_spill == 0
        driven.epoch([[], [(3, 30, 2), (4, 31, 2)]], (2, 2))
    assert driven.emitted[13, 30] == driven.emitted[14, 31] == 1
    assert profiles.delays["q1.inner"].from_spill == 1, "of the one whose row had gone"


def test_only_rows_of_keys_that_pass_the_filter_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = referring(spill=UNBOUNDED)
    driven.epoch([[(key, key, 0) for key in range(1000)], []], (0, 9))
    driven.merge([0])
    read = list[int]()

    def noting(*arguments: object) -> list[object]:
        pieces = with_keys(*arguments)
        read.extend(piece.rows for piece in pieces)
        return pieces

    with_keys = spilled_rows.with_keys
    monkeypatch.setattr(spilled_rows, "with_keys", noting)
    driven.epoch([[], [(key, key, 10) for key in (5, 7, 5000, 6000)]], (0, 10))
    assert read == [2]
    assert driven.emitted == {(5, 5): 1, (7, 7): 1}


def test_sampled_keys_are_stored_and_not_spilled(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(replace(join(2), finds_bounds=True, spill=UNBOUNDED))
    driven.found = (PartnerBound(0, 1, 5, 5),)
    monkeypatch.setattr(key_monitor, "SHADOWS", 1.0)
    driven.epoch([[(1, 10, 0)], []], (0, 9))
    driven.merge([0])
    assert (driven.kept()[0], on_disk(driven)[0]) == ([10], [])


def test_without_spill_no_section_is_made() -> None:
    driven = referring(spill=0)
    driven.epoch([[(1, 10, 0), (1, 11, 8)], []], (0, 9))
    assert [sorted(part) for part in driven.runs] == [["left"]]
    assert "spill" not in "\n".join(driven.operator.display())
    assert "spilled for their whole windows" in "\n".join(referring(spill=UNBOUNDED).operator.display())


def test_references_over_several_sides_add_up_on_disk_too() -> None:
    driven = Driven(
        replace(join(3, (), [Reference(0, 1, 5, "first"), Reference(1, 2, 5, "second")]), spill=9)
    )
    driven.epoch([[(1, 10, 0)], [], []], (11, 9, 11))
    assert (driven.kept()[0], on_disk(driven)[0]) == ([], [10])
    driven.epoch([[], [(1, 20, 9)], []], (12, 10, 17))
    driven.merge(range(len(driven.runs)))
    assert on_disk(driven)[0] == [10]
    driven.epoch([[], [], [(1, 30, 18)]], (18, 18, 18))
    assert driven.emitted == {(10, 20, 30): 1}
    driven.epoch([[], [], []], (19, 19, 19))
    driven.merge(range(len(driven.runs)))
    assert on_disk(driven)[0] == []


@pytest.mark.parametrize(("spill", "rejects"), [(0, 1), (9, 1), (UNBOUNDED, 0)])
def test_a_row_that_breaks_what_was_found_of_keys_is_no_reject_where_no_pair_can_be_missing(
    monkeypatch: pytest.MonkeyPatch, spill: int, rejects: int
) -> None:
    monkeypatch.setattr(key_monitor, "SHADOWS", 1.0)
    driven = Driven(replace(join(2), finds_bounds=True, spill=spill))
    driven.found = (PartnerBound(1, 1, 0, 0, kind="clustered"),)
    with probing(ProbeProfiles(measures=True)):
        driven.epoch([[(1, 10, 0)], [(1, 20, 0)]], (0, 0))
        driven.epoch([[], [(1, 21, 5)]], (5, 5))
    assert driven.emitted == {(10, 20): 1, (10, 21): 1}
    assert driven.rejected.total() == rejects

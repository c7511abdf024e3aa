"""The examples of the thesis, row by row: what is Yes, No and Unknown, what results, and what each constraint removes (G8, G9)."""

from __future__ import annotations

import pytest

from benchmarks.models.constraints.constrained_mjoin import ConstrainedMJoin, Constraints
from benchmarks.models.constraints.join_graph import JoinGraph, ManyOne
from benchmarks.models.constraints.k_estimate import KEstimate
from benchmarks.models.constraints.key_bounds import Clustered, Ordered
from tests.adaptive.constraints.examples import CHAIN, CHAIN_COLUMNS, STAR, STAR_COLUMNS, Played

TO_S2, TO_S3 = STAR.joins


def k(value: int) -> KEstimate:
    return KEstimate(fixed=value)


def star(
    constraints: Constraints, thirds: tuple[tuple[int, int], ...] = ((5, 3), (7, 9), (10, 12))
) -> Played:
    """The streams of figure 6.8a after their first rows; the filter is D < 8."""
    played = Played(ConstrainedMJoin(STAR, STAR_COLUMNS, constraints))
    for row in ((6, 20), (4, 15)):
        played.put("S2", row)
    for row in thirds:
        played.put("S3", row, passes=row[1] < 8)
    return played


def test_a_row_joins_fails_or_waits() -> None:
    played = star(Constraints())
    assert played.held("S2") == {(6, 20): "Yes", (4, 15): "Yes"}
    assert played.held("S3") == {(5, 3): "Yes", (7, 9): "No", (10, 12): "No"}
    assert played.put("S1", (6, 5)) == [(6, 5, 6, 20, 5, 3)]
    assert played.put("S1", (8, 10)) == []
    assert played.held("S1") == {}, "a root that is Yes or No is not stored: nothing is left to join"
    assert played.put("S1", (8, 5)) == []
    assert played.held("S1") == {(8, 5): "Unknown"}
    assert played.put("S2", (8, 1)) == [(8, 5, 8, 1, 5, 3)]


def test_referential_integrity_gives_a_row_up_after_k_arrivals() -> None:
    played = star(Constraints(integrity={TO_S3: k(1)}))
    assert played.held("S3") == {(5, 3): "Yes"}, "rows that failed are not stored"
    assert played.put("S1", (4, 10)) == []
    assert played.held("S1") == {(4, 10): "Unknown"}
    played.put("S3", (11, 2))
    assert played.held("S1") == {}


def test_clustered_arrival_frees_a_value_after_k_others() -> None:
    played = star(Constraints(of_parent={("S1", "B"): [Clustered(k(1))]}))
    assert played.put("S1", (6, 5)) == [(6, 5, 6, 20, 5, 3)]
    assert played.put("S1", (8, 8)) == []
    assert played.held("S1") == {(8, 8): "Unknown"}
    assert played.put("S1", (4, 5)) == [(4, 5, 4, 15, 5, 3)]
    assert (5, 3) in played.held("S3")
    assert played.put("S1", (11, 10)) == []
    assert (5, 3) not in played.held("S3")


def test_the_order_of_children_tells_that_one_will_not_come() -> None:
    played = star(Constraints(of_child={("S3", "B"): Ordered(k(2))}), ((7, 9), (5, 3), (10, 12)))
    assert played.held("S3") == {(5, 3): "Yes"}, "rows that failed are not stored"
    assert played.put("S1", (6, 4)) == []
    assert played.held("S1") == {}, "S3 has passed 4: its bound is 7"
    played.put("S1", (6, 9))
    assert played.held("S1") == {(6, 9): "Unknown"}


@pytest.mark.parametrize(
    ("clustered", "ordered", "left"),
    [
        (True, False, {"S1": {(6, 8): "Unknown", (3, 13): "Unknown"}, "S2": {(6, 20)}}),
        (False, True, {"S1": {(3, 13): "Unknown"}, "S2": {(6, 20), (4, 15)}}),
        (True, True, {"S1": {(3, 13): "Unknown"}, "S2": set()}),
    ],
)
def test_two_constraints_free_more_than_each_of_them(
    clustered: bool, ordered: bool, left: dict[str, object]
) -> None:
    constraints = Constraints(
        of_parent={("S1", "A"): [Clustered(k(0))]} if clustered else {},
        of_child={("S3", "B"): Ordered(k(0))} if ordered else {},
    )
    played = star(constraints)
    for row in ((4, 5), (6, 8), (3, 13)):
        played.put("S1", row)
    assert played.held("S1") == left["S1"]
    assert set(played.held("S2")) == left["S2"]


def test_integrity_can_keep_rows_longer_that_another_constraint_frees() -> None:
    alone = star(Constraints(of_parent={("S1", "B"): [Clustered(k(0))]}))
    both = star(Constraints(of_parent={("S1", "B"): [Clustered(k(0))]}, integrity={TO_S3: k(3)}))
    for played in (alone, both):
        for row in ((6, 10), (4, 10), (8, 8)):
            played.put("S1", row)
    assert set(alone.held("S1")) == {(8, 8)}
    assert (10, 12) not in alone.held("S3")
    assert set(both.held("S1")) == {(6, 10), (4, 10), (8, 8)}
    for number in range(3):
        both.put("S3", (100 + number, 1))
    assert both.held("S1") == {}


def chain(**options: object) -> Played:
    """The streams of figure 6.8b; the filter is D > 10."""
    return Played(ConstrainedMJoin(CHAIN, CHAIN_COLUMNS, **options))  # type: ignore[arg-type]


def test_a_row_becomes_yes_with_the_rows_below_it() -> None:
    played = chain()
    played.put("S2", (2, 4))
    assert played.held("S2") == {(2, 4): "Unknown"}
    played.put("S1", (1, 2))
    assert played.held("S1") == {(1, 2): "Unknown"}
    assert played.put("S3", (4, 12)) == [(1, 2, 2, 4, 4, 12)]


@pytest.mark.parametrize("keeps_no", [True, False])
def test_rows_that_failed_tell_those_above(keeps_no: bool) -> None:
    played = chain(keeps_no=keeps_no)
    played.put("S3", (6, 8), passes=False)
    played.put("S2", (3, 6))
    played.put("S1", (9, 3))
    assert played.held("S2") == ({(3, 6): "No"} if keeps_no else {(3, 6): "Unknown"})
    assert played.held("S1") == ({} if keeps_no else {(9, 3): "Unknown"})


def test_a_row_that_is_given_up_takes_those_above_with_it() -> None:
    played = chain(constraints=Constraints(integrity={CHAIN.joins[1]: k(0)}))
    played.put("S1", (1, 2))
    assert played.held("S1") == {(1, 2): "Unknown"}
    played.put("S2", (2, 4))
    assert (played.held("S1"), played.held("S2")) == ({}, {})


@pytest.mark.parametrize(
    ("sample", "reach", "noticed"), [(0.0, 1.0, False), (1.0, 1.0, True), (0.0, 4.0, True)]
)
def test_shadows_of_rows_that_were_given_up_show_that_k_rises(
    sample: float, reach: float, noticed: bool
) -> None:
    estimate = KEstimate(window=4, reach=reach, sample=sample)
    played = star(Constraints(integrity={TO_S3: estimate}))
    for number in range(20, 30):  # each child comes at once
        played.put("S1", (6, number))
        played.put("S3", (number, 1))
    assert estimate.k == 1
    played.put("S1", (6, 50))
    played.put("S3", (40, 1))
    assert (6, 50) not in played.held("S1")
    for number in (41, 50):
        assert played.put("S3", (number, 1)) == [], "a shadow is in no result"
    assert estimate.violations == int(noticed)
    assert estimate.is_used != noticed


def test_a_row_that_expires_retracts_the_results_above_it() -> None:
    played = chain(windows={"S1": 100, "S2": 100, "S3": 1}, retracts=True)
    played.put("S2", (2, 4))
    played.put("S1", (1, 2))
    assert played.put("S3", (4, 12)) == [(1, 2, 2, 4, 4, 12)]
    assert played.held("S1") == {(1, 2): "Yes"}
    assert played.join.retracted == []
    played.put("S3", (5, 20))
    assert [{name: places.tolist() for name, places in gone.items()} for gone in played.join.retracted] == [
        {"S1": [1], "S2": [0], "S3": [2]}
    ]
    assert (1, 2) not in played.held("S1")


def test_a_graph_is_a_tree_with_its_roots_as_cover() -> None:
    assert STAR.roots == ("S1",)
    both = JoinGraph((ManyOne("S1", "S3", "A", "A"), ManyOne("S2", "S3", "A", "A")))
    assert set(both.roots) == {"S1", "S2"}
    assert both.is_cover(both.roots)
    assert not both.is_cover(["S1"])
    assert CHAIN.reachable("S2") == {"S2", "S3"}


@pytest.mark.parametrize(
    ("joins", "reason"),
    [
        ((("a", "b"), ("b", "c"), ("a", "c")), "the join of a with c closes a cycle"),
        ((("a", "b"), ("b", "a")), "the join of b with a closes a cycle"),
        ((("a", "b"), ("c", "d")), "c is not connected to a by joins"),
    ],
)
def test_other_graphs_are_refused(joins: tuple[tuple[str, str], ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        JoinGraph(tuple(ManyOne(parent, child, "k", "k") for parent, child in joins))

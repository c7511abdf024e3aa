"""PSoup's eddy, tuple by tuple: the golden example of Figures 4 and 5, with counts; every result marked once, in any order of visits;
stored results are those of a prefix of arrivals, which an eddy with a single pool cannot promise.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.psoup.eddy import COMPARE, Eddy, Factor, JoinFactor, Query, Tuple, by_loops

RS = frozenset({"R", "S"})
Q23 = Query(23, RS, (Factor("R", "<", 5), Factor("S", ">", 1)), (JoinFactor("R", ">", "S"),))
PAST = [
    Tuple("R", 50, 4),
    Tuple("R", 52, 3),
    Tuple("R", 53, 7),
    Tuple("S", 49, 2),
    Tuple("S", 51, 1),
    Tuple("S", 54, 3),
]


def r_first(interest: frozenset[str]) -> str:
    return "R" if "R" in interest else min(interest)


def filled(policy=r_first) -> Eddy:
    eddy = Eddy(("R", "S"), policy)
    for row in PAST:
        eddy.arrive(row)
    eddy.drain()
    return eddy


def pairs(eddy: Eddy) -> set[tuple[int, int]]:
    return {(ids[0][1], ids[1][1]) for _, ids in eddy.results}


def test_a_new_query_visits_both_stems_as_drawn() -> None:
    """G2: structs for 50 and 52 of three tuples; the factor on S is evaluated for each struct and tuple, six times."""
    eddy = filled()
    eddy.register(Q23)
    eddy.drain()
    assert pairs(eddy) == {(50, 49), (50, 54), (52, 49)}
    assert (eddy.counts.own, eddy.counts.substituted) == (3 + 6, 4)
    assert eddy.counts.structs == 2 + 3


def test_a_new_tuple_visits_the_queries_and_then_the_other_stem() -> None:
    eddy = filled()
    eddy.register(Q23)
    eddy.drain()
    before = pairs(eddy)
    eddy.arrive(Tuple("R", 55, 4))
    eddy.drain()
    assert pairs(eddy) - before == {(55, 49), (55, 54)}
    assert eddy.window(23, 50, 60) == {(("R", 50), ("S", 54)), (("R", 55), ("S", 54))}


def test_the_factor_between_streams_becomes_one_with_a_constant() -> None:
    join = JoinFactor("R", "<=", "S", -3)
    assert join.substituted({"R": Tuple("R", 1, 10)}) == Factor("S", ">=", 13)
    assert join.substituted({"S": Tuple("S", 1, 10)}) == Factor("R", "<=", 7)
    assert join.substituted({}) is None


VALUES = st.integers(0, 4)
RELOPS = st.sampled_from(sorted(COMPARE))


@st.composite
def arrivals(draw: st.DrawFn) -> list[Tuple | Query]:
    """Tuples of three streams and queries over one to three of them, some without a factor between streams."""
    found: list[Tuple | Query] = []
    for number in range(draw(st.integers(1, 12))):
        if draw(st.integers(0, 3)) == 0:
            streams = draw(st.sets(st.sampled_from("RST"), min_size=1))
            factors = draw(
                st.lists(st.builds(Factor, st.sampled_from(sorted(streams)), RELOPS, VALUES), max_size=2)
            )
            between = [(one, other) for one in sorted(streams) for other in sorted(streams) if one < other]
            joins = [
                JoinFactor(one, draw(RELOPS), other, draw(st.integers(-1, 1)))
                for one, other in between
                if draw(st.booleans())
            ]
            found.append(Query(number, frozenset(streams), tuple(factors), tuple(joins)))
        else:
            found.append(Tuple(draw(st.sampled_from("RST")), number, draw(VALUES)))
    return found


def send(eddy: Eddy, arrived: Sequence[Tuple | Query]) -> None:
    for each in arrived:
        if isinstance(each, Query):
            eddy.register(each)
        else:
            eddy.arrive(each)


@given(arrived=arrivals(), policy=st.sampled_from((min, max, r_first)))
def test_each_result_is_marked_once_and_what_is_stored_is_that_of_a_prefix(arrived, policy) -> None:
    eddy = Eddy("RST", policy)
    send(eddy, arrived)
    prefixes = [by_loops(arrived[:length]) for length in range(len(arrived) + 1)]
    reached = 0
    for _ in eddy.run():
        reached = next(place for place in range(reached, len(prefixes)) if prefixes[place] == eddy.results)
    assert eddy.results == prefixes[-1]
    assert eddy.marked == len(eddy.results)


def test_with_a_single_pool_results_are_marked_twice() -> None:
    """CACQ's eddy: a new tuple is stored while earlier ones are still under way, so both find the pair."""
    arrived = [
        Query(0, RS, (), (JoinFactor("R", "=", "S"),)),
        *PAST[:1],
        Tuple("S", 60, 4),
        Tuple("R", 61, 4),
    ]
    mixed = Eddy(("R", "S"), single_pool=True)
    send(mixed, arrived)
    mixed.drain()
    assert mixed.results == by_loops(arrived)
    assert mixed.marked > len(mixed.results)


@pytest.mark.parametrize("policy", [min, max])
def test_a_tuple_does_not_meet_itself_and_a_query_without_factors_takes_all(policy) -> None:
    eddy = Eddy(("R", "S"), policy)
    send(eddy, [Query(1, RS), Tuple("R", 2, 0), Tuple("S", 3, 0), Tuple("S", 4, 0)])
    eddy.drain()
    assert pairs(eddy) == {(2, 3), (2, 4)}

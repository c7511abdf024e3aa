"""The MJoin of relations that change finds what loops find, for any graph and any order of its filters; its look-ups are counted."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.mjoin import Combination, Equality, MJoin, Row, Stem
from tests.examples import examples

STAR: list[Equality] = [((0, 0), (1, 0)), ((0, 1), (2, 0)), ((0, 2), (3, 0))]
CHAIN: list[Equality] = [((0, 0), (1, 0)), ((1, 1), (2, 0)), ((2, 1), (3, 0))]
FIGURE_5_3: list[Equality] = [
    ((0, 0), (1, 0)),
    ((0, 1), (2, 0)),
    ((2, 1), (3, 0)),
    ((2, 2), (4, 0)),
    ((4, 1), (5, 0)),
]
"""Relations 1 to 6 of Babu's figure 5.3a as 0 to 5."""
CYCLE: list[Equality] = [
    ((0, 0), (1, 0)),
    ((1, 1), (2, 0)),
    ((2, 1), (0, 1)),
    ((2, 2), (3, 0)),
    ((3, 1), (0, 2)),
]


def by_loops(relations: list[dict[int, Row]], equalities: list[Equality]) -> Counter[Combination]:
    """The ids of all combinations."""
    return Counter(
        ids
        for ids in product(*relations)
        if all(
            relations[one[0]][ids[one[0]]][one[1]] == relations[other[0]][ids[other[0]]][other[1]]
            for one, other in equalities
        )
    )


@pytest.mark.parametrize(
    "equalities", [STAR, CHAIN, CYCLE, FIGURE_5_3], ids=["star", "chain", "cycle", "figure"]
)
@examples(25)
@given(data=st.data())
def test_any_updates_in_any_order_of_filters_change_the_results_as_loops_do(
    equalities: list[Equality], data: st.DataObject
) -> None:
    many = 1 + max(end[0] for equality in equalities for end in equality)
    join, relations = MJoin(many, equalities), [dict[int, Row]() for _ in range(many)]
    running = Counter[Combination]()
    for row_id in range(data.draw(st.integers(4, 16), "updates")):
        relation = data.draw(st.integers(0, many - 1))
        others = [other for other in range(many) if other != relation]
        join.orders[relation] = data.draw(st.permutations(others))
        if relations[relation] and data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(sorted(relations[relation])))
            removed = join.update(relation, gone, relations[relation].pop(gone), inserted=False)
            running.subtract(removed)
        else:
            row = data.draw(st.tuples(*[st.integers(0, 1)] * 3))
            relations[relation][row_id] = row
            running.update(join.update(relation, row_id, row, inserted=True))
        assert +running == by_loops(relations, equalities)
        assert min(running.values(), default=0) >= 0


def with_one_row_each(equalities: list[Equality], many: int, without: tuple[int, ...] = ()) -> MJoin:
    join = MJoin(many, equalities)
    for relation in range(1, many):
        if relation not in without:
            join.stems[relation].insert(relation, (7, 7, 7))
    return join


@pytest.mark.parametrize(("without", "probes"), [((), 3), ((1,), 1), ((2,), 2), ((3,), 3), ((1, 2, 3), 1)])
def test_the_first_side_of_a_star_without_a_partner_ends_the_search_and_results_search_nothing_again(
    without: tuple[int, ...], probes: int
) -> None:
    join = with_one_row_each(STAR, 4, without)
    made = join.update(0, 9, (7, 7, 7), inserted=True)
    assert made == ([] if without else [(9, 1, 2, 3)])
    assert (join.probes, join.dropped) == (probes, int(bool(without)))


def test_the_cost_of_results_does_not_depend_on_the_order_and_that_of_a_drop_does() -> None:
    for order, probes in (((1, 2, 3), 3), ((3, 1, 2), 1)):
        join = with_one_row_each(STAR, 4, without=(3,))
        join.orders[0] = order
        assert join.update(0, 9, (7, 7, 7), inserted=True) == []
        assert join.probes == probes


def test_golden_7_logical_filters_along_the_paths_of_figure_5_3() -> None:
    join = MJoin(6, FIGURE_5_3)
    assert [join.path(0, relation) for relation in range(1, 6)] == [[1], [2], [2, 3], [2, 4], [2, 4, 5]]
    filters = dict(enumerate(range(1, 6), start=1))
    order = [filters[number] for number in (3, 2, 1, 4, 5)]
    assert [step + 1 for step in join.operators(0, order)] == [3, 4, 2, 5, 6]


def test_golden_5_a_chain_of_three_with_its_intermediate_rows() -> None:
    """R1(A), R2(A, B), R3(B): <1> of R1 joins (1, 2) and (1, 3) of R2, of which R3 has the first."""
    join = MJoin(3, [((0, 0), (1, 0)), ((1, 1), (2, 0))])
    for row_id, row in enumerate(((1, 2), (1, 3), (2, 3))):
        assert join.update(1, row_id, row, inserted=True) == []
    assert join.update(2, 10, (2,), inserted=True) == []
    before = join.probes
    assert join.update(0, 20, (1,), inserted=True) == [(20, 0, 10)]
    assert join.probes - before == 3, "R2 by A, R3 by the B of both rows"
    assert join.update(2, 11, (3,), inserted=True) == [(20, 1, 11)]
    assert join.update(0, 20, (1,), inserted=False) == [(20, 0, 10), (20, 1, 11)]


def test_equalities_outside_of_the_spanning_tree_are_tested() -> None:
    triangle: list[Equality] = [((0, 0), (1, 0)), ((1, 1), (2, 0)), ((2, 1), (0, 1))]
    join = MJoin(3, triangle)
    join.update(1, 1, (5, 6), inserted=True)
    join.update(2, 2, (6, 8), inserted=True)
    assert join.update(0, 3, (5, 9), inserted=True) == []
    assert join.update(0, 4, (5, 8), inserted=True) == [(4, 1, 2)]


def test_relations_without_an_equality_are_refused() -> None:
    with pytest.raises(ValueError, match="Cartesian"):
        MJoin(3, [((0, 0), (1, 0))])


rows = st.tuples(st.integers(0, 2), st.integers(0, 2))


@given(st.lists(rows, max_size=12), st.sets(st.integers(0, 11)), st.integers(0, 12))
def test_a_probe_of_each_index_is_a_filter_and_no_index_has_an_id_that_is_gone(
    stored: list[Row], deleted: set[int], before: int
) -> None:
    stem = Stem((0, 1))
    for row_id, row in enumerate(stored):
        stem.insert(row_id, row)
    for row_id in deleted & stem.rows.keys():
        stem.delete(row_id)
    stem.expire(before)
    kept = {row_id: row for row_id, row in enumerate(stored) if row_id >= before and row_id not in deleted}
    assert stem.rows == kept
    for attribute, value in product((0, 1), range(3)):
        wanted = {row_id for row_id, row in kept.items() if row[attribute] == value}
        assert set(stem.probe(attribute, value)) == wanted
        assert (value in stem.indexes[attribute]) == bool(wanted)

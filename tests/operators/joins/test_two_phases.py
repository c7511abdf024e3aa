"""The two phases of a join of many sides: how often which side is probed, what is made of it, and what a sample shows of other orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.filters.ordering import UNSETTLED_SHARE, OrderInForce
from headrace.adaptive.joins.output_order import fewest_first, rows_made
from headrace.observation import ProbeObservation
from headrace.operators.joins.probing import two_phases
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles, join_of, name_of_side, probing
from headrace.time import BEGINNING
from tests.operators.joins.test_many_sides import Driven, Row, batch, join, loops

FOREVER_VALID = 10**9


def side(keys: Mapping[float, int]) -> list[Row]:
    """So many rows of each key, at one instant."""
    return [(key, number, 1) for key, count in keys.items() for number in range(count)]


def stored(sides: Sequence[Mapping[float, int]]) -> Driven:
    """A join of one more side, the first, that has no row; the others have these."""
    driven = Driven(join((FOREVER_VALID,) * (len(sides) + 1)))
    parts = [batch(side(keys), number) for number, keys in enumerate(sides, 1)]
    driven.epoch(parts, (BEGINNING,) * (len(sides) + 1))
    return driven


def observed(
    driven: Driven,
    new: Sequence[Row],
    order: Sequence[int],
    share: float = 0.0,
    believed: Sequence[float] = (),
) -> ProbeObservation:
    """What was observed of new rows of the first side, which probe the others in an order of their places."""
    name = name_of_side(driven.operator.id, 0)
    orders = {name: OrderInForce(tuple(order), share, tuple(believed))}
    profiles = ProbeProfiles(orders, measures=True)
    with probing(profiles):
        driven.epoch([batch(new, 0)], (BEGINNING,) * len(driven.operator.spec.sides))
    (seen,) = profiles.observed.values()
    return seen


NEW: list[Row] = [(float(key), key, 2) for key in range(10)]
SIDES = (
    {float(key): 1 for key in range(8)},
    {float(key): 3 for key in range(4)},
    {float(key): 2 for key in range(2, 10)},
)
"""Keys 0 to 7, 0 to 3, 2 to 9: all three have keys 2 and 3."""


@pytest.mark.parametrize(
    ("order", "probed", "dropped"),
    [
        ((0, 1, 2), (10, 8, 4), (2, 4, 2)),
        ((1, 2, 0), (2, 10, 4), (0, 6, 2)),
        ((2, 1, 0), (2, 8, 10), (0, 6, 2)),
    ],
)
def test_a_side_is_probed_with_the_rows_that_the_sides_before_have_left(
    order: tuple[int, ...], probed: tuple[int, ...], dropped: tuple[int, ...]
) -> None:
    seen = observed(stored(SIDES), NEW, order)
    assert (seen.rows, seen.probed, seen.dropped) == (10, probed, dropped)


def test_the_second_phase_makes_rows_of_those_that_are_left_alone_and_searches_nothing_again() -> None:
    """Keys 2 and 3, each with 1, 3 and 2 partners: hops make 1, 1·2 and 1·2·3 rows of each, whatever order the first phase has."""
    for order in permutations(range(3)):
        driven = stored(SIDES)
        before = driven.counts
        seen = observed(driven, NEW, order)
        assert (seen.made, seen.compared) == (2 * (1 + 2 + 6), 2 * (1 + 2 + 6))
        assert driven.counts.probes - before.probes == sum(seen.probed)
        assert driven.emitted.total() == 12


def test_a_fixed_order_is_that_of_both_phases() -> None:
    driven = stored(SIDES)
    before = driven.counts
    driven.operator = replace(driven.operator, orders=((2, 3, 1), (0, 2, 3), (0, 1, 3), (0, 1, 2)))
    driven.epoch([batch(NEW, 0)], (BEGINNING,) * 4)
    assert driven.counts == before.plus(10 + 4 + 2, 2 * (3 + 3 * 2 + 3 * 2 * 1))


def test_a_sample_shows_for_each_dropped_row_which_sides_have_no_partner_for_it() -> None:
    """Of every row: 0 and 1 have none in the third; 4 to 7 none in the second; 8 and 9 none in the first and second."""
    for order in permutations(range(3)):
        seen = observed(stored(SIDES), NEW, order, share=1.0)
        assert seen.sampled == 10
        assert seen.patterns == {0b100: 2, 0b010: 4, 0b011: 2}


def test_nothing_is_searched_twice_for_the_sample() -> None:
    for order in permutations(range(3)):
        seen = observed(stored(SIDES), NEW, order, share=1.0)
        assert sum(seen.probed) + seen.profiled == 10 * 3


def test_rows_are_sampled_together_and_as_many_as_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each epoch a hundred rows or none: of all epochs a twentieth; while an order is not settled a hundred of each."""
    monkeypatch.setattr(two_phases, "SAMPLED", 100)
    keys = {float(key): 1 for key in range(300)}
    driven, sampled, unsettled, of_few = stored((keys, keys)), 0, 0, 0
    for epoch in range(400):
        new: list[Row] = [(float(key), key, 2 + epoch) for key in range(300)]
        sampled += observed(driven, new, (0, 1), share=0.05).sampled
        of_few += observed(driven, new[:10], (0, 1), share=UNSETTLED_SHARE).sampled
        if epoch < 3:
            unsettled += observed(driven, new, (0, 1), share=UNSETTLED_SHARE).sampled
            assert observed(driven, new, (0, 1)).sampled == 0
        driven.runs = driven.runs[:1]
    assert sampled % 100 == 0
    assert 0.7 < sampled / (400 * 300 * 0.05) < 1.3
    assert 0.6 < of_few / (400 * 10 * UNSETTLED_SHARE) < 1.4
    assert unsettled == 300


def test_more_rows_are_sampled_where_other_sides_drop_them_than_was_believed() -> None:
    keys = {float(key): 1 for key in range(2000)}
    new: list[Row] = [(float(key), key, 2) for key in range(4000)]
    for believed, sampled in (((1.0, 0.0), 0), ((0.0, 1.0), two_phases.SAMPLED)):
        seen = observed(stored((keys, keys)), new, (0, 1), share=0.0001, believed=believed)
        assert seen.dropped == (2000, 0)
        assert seen.sampled == sampled


def test_new_rows_are_searched_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stored(SIDES)
    one = observed(whole, NEW, (0, 1, 2), share=1.0)
    monkeypatch.setattr(two_phases, "_AT_ONCE", 3)
    parts = stored(SIDES)
    assert observed(parts, NEW, (0, 1, 2), share=1.0) == one
    assert parts.emitted == whole.emitted


def test_joins_of_two_sides_have_one_order_and_are_not_measured() -> None:
    driven, profiles = Driven(join((9, 9))), ProbeProfiles(share_without=1.0, measures=True)
    with probing(profiles):
        driven.epoch([batch(NEW, 0), batch(NEW, 1)], (BEGINNING,) * 2)
    assert (driven.emitted.total(), profiles.observed) == (10, {})
    assert not driven.operator.adapts


def test_an_order_of_another_number_of_sides_is_not_followed() -> None:
    driven = stored(SIDES)
    orders = {name_of_side(driven.operator.id, 0): OrderInForce((0, 1), 0.0)}
    with probing(ProbeProfiles(orders, measures=True)):
        driven.epoch([batch(NEW, 0)], (BEGINNING,) * 4)
    assert driven.emitted.total() == 12


def test_a_side_has_the_name_of_its_join() -> None:
    assert join_of(name_of_side("q1.inner", 2)) == "q1.inner"


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=2, max_size=4),
)
def test_combinations_are_made_in_an_order_that_makes_few_rows(drawn: list[list[int]]) -> None:
    """The first hop makes fewest rows of all; of three sides no order makes fewer."""
    counts = {place: np.array(each) for place, each in enumerate(drawn)}
    order = fewest_first(counts)
    assert sorted(order) == list(counts)
    totals = {other: rows_made(counts, other) for other in permutations(counts)}
    assert counts[order[0]].sum() == min(each.sum() for each in counts.values())
    if len(counts) == 2:
        assert totals[tuple(order)] == min(totals.values())


def test_rows_made_are_the_products_of_the_partners_of_each_row() -> None:
    counts = {1: np.array([2, 1]), 2: np.array([5, 0]), 3: np.array([1, 9])}
    assert rows_made(counts, (1, 2, 3)) == 3 + 10 + 10
    assert fewest_first(counts) == [1, 2, 3]


def test_the_next_side_is_the_one_with_fewest_rows_given_those_before() -> None:
    """By themselves the second has 6 partners and the third 7; with the first they make 1·1 + 2·5 and 1·5 + 2·2 rows."""
    counts = {1: np.array([1, 2]), 2: np.array([1, 5]), 3: np.array([5, 2])}
    assert fewest_first(counts) == [1, 3, 2]


def orders_in_force(sides: int) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.permutations(range(sides - 1)).map(tuple), min_size=sides, max_size=sides)


def _rows(data: st.DataObject, least: int) -> Iterator[Row]:
    keys, times = st.sampled_from((None, 0.0, 1.5)), st.integers(least, least + 8)
    yield from data.draw(st.lists(st.tuples(keys, st.integers(0, 9), times), max_size=5))


@given(data=st.data(), sides=st.integers(3, 5))
def test_orders_that_switch_at_every_epoch_never_change_the_answers(data: st.DataObject, sides: int) -> None:
    """With a sample of every row or of none; profiles are those of the rows."""
    ranges = data.draw(st.tuples(*(st.sampled_from((0, 2, 5, None)),) * sides))
    driven, bounds = Driven(join(ranges)), [-3] * sides
    every: tuple[list[Row], ...] = tuple([] for _ in range(sides))
    for _ in range(data.draw(st.integers(1, 4))):
        parts = []
        for number in range(sides):
            rows = list(_rows(data, bounds[number]))
            every[number].extend(rows)
            parts += [batch(rows, number)] if rows else []
        bounds = [max(bound, data.draw(st.integers(-3, 15))) for bound in bounds]
        chosen = data.draw(orders_in_force(sides))
        share = data.draw(st.sampled_from((0.0, 0.3, 1.0)))
        orders = {
            name_of_side(driven.operator.id, number): OrderInForce(order, share)
            for number, order in enumerate(chosen)
        }
        profiles = ProbeProfiles(orders, measures=True)
        with probing(profiles):
            driven.epoch(data.draw(st.permutations(parts)), bounds, data.draw(st.integers(1, 2)))
        for seen in profiles.observed.values():
            assert sum(seen.patterns.values()) <= seen.sampled <= seen.rows
            if share == 1.0:
                assert sum(seen.patterns.values()) == sum(seen.dropped)
                first = Counter[int]()
                for bits, count in seen.patterns.items():
                    first[next(place for place in seen.order if bits >> place & 1)] += count
                assert tuple(first[place] for place in range(sides - 1)) == seen.dropped
    assert driven.emitted == loops(every, driven.operator, ordered=False)

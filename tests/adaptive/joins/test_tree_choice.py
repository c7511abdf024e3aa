"""The choice between trees of joins: which trees there are, what is expected of them by what one shows, and when another is worth it."""

from __future__ import annotations

import pytest

from headrace.adaptive.joins.join_trees import Rows, Stage, Tree, TreeGraph, inner_rows, is_tree, possible
from headrace.adaptive.joins.tree_choice import TreeChoice

KEYS = tuple(map(frozenset, ({0, 1}, {0, 2}, {0, 3})))
STAR = TreeGraph(("f", "x", "y", "z"), KEYS, ((0, 1), (2,), (3,)), 10)
CHAIN = TreeGraph(tuple("abcd"), tuple(map(frozenset, ({0, 1}, {1, 2}, {2, 3}))), ((0, 1), (2,), (3,)), 10)


def stages(tree: Tree, shares: dict[int, float], stored: float = 1000, new: float = 100) -> list[Stage]:
    """An epoch of a star whose hub finds so many rows in each arm, of 1000 that are stored; joins are independent."""
    seen, before, now, joined = list[Stage](), stored, stored + new, 1.0
    for number, sources in enumerate(tree):
        arm = sources[-1]
        share = shares[arm] / stored
        first = Rows(stored, new) if not number else Rows(before, now - before)
        made = (now * (stored + new) - before * stored) * share
        seen.append(Stage((first, Rows(stored, new)), made))
        joined *= share
        before, now = stored ** (number + 2) * joined, (stored + new) ** (number + 2) * joined
    return seen


def known(tree: Tree, shares: dict[int, float]) -> TreeChoice:
    choice = TreeChoice(STAR, tree)
    for _ in range(4):
        choice.take(stages(tree, shares))
    return choice


def test_a_star_has_all_orders_of_its_arms_and_a_chain_those_that_connect() -> None:
    assert len(list(STAR.trees())) == 6
    assert list(CHAIN.trees()) == [
        ((0, 1), (2,), (3,)),
        ((1, 2), (0,), (3,)),
        ((1, 2), (3,), (0,)),
        ((2, 3), (1,), (0,)),
    ]


def test_sources_of_one_key_are_joined_at_once() -> None:
    """A star two of whose arms share a key, and a join by that key with a third."""
    graph = TreeGraph(tuple("fxyz"), (frozenset({0, 1, 2}), frozenset({0, 3})), ((0, 1, 2), (3,)), 10)
    assert list(graph.trees()) == [((0, 1, 2), (3,)), ((0, 3), (1, 2))]
    assert graph.keys_of(((0, 3), (1, 2))) == [frozenset({0, 3}), frozenset({0, 1, 2})]


@pytest.mark.parametrize(
    ("count", "keys", "connects"),
    [
        (3, ({0, 1}, {1, 2}), True),
        (4, ({0, 1, 2}, {0, 3}), True),
        (3, ({0, 1}, {1, 2}, {0, 2}), False),
        (4, ({0, 1}, {2, 3}), False),
        (4, ({0, 1}, {0, 1, 2}), False),
        (2, (), False),
    ],
)
def test_only_conditions_that_connect_all_sources_in_one_way_make_a_choice(
    count: int, keys: tuple[set[int], ...], connects: bool
) -> None:
    assert is_tree(count, list(map(frozenset, keys))) == connects


def test_combinations_have_a_new_row() -> None:
    assert possible([Rows(10, 2), Rows(5, 1)]) == 12 * 6 - 10 * 5


def test_rows_of_inner_joins_by_hand() -> None:
    """Of f and x a tenth of the 110 new combinations, with y a fifth of those; the last join is that of every tree."""
    rows = {0: Rows(10, 1), 1: Rows(10, 1), 2: Rows(10, 0), 3: Rows(99, 9)}
    kept = {KEYS[0]: 0.1, KEYS[1]: 0.2, KEYS[2]: 0.9}
    assert inner_rows(STAR, ((0, 1), (2,), (3,)), rows, kept) == pytest.approx(21 * 0.1 + 210 * 0.02)


def test_what_is_expected_of_the_tree_in_force_is_what_it_makes() -> None:
    choice = known(STAR.registered, {1: 3.0, 2: 1.0, 3: 0.1})
    assert choice.expected(choice.tree) == pytest.approx(choice.measured)


def test_the_arms_that_keep_least_come_first() -> None:
    assert known(STAR.registered, {1: 3.0, 2: 0.5, 3: 0.1}).better() == ((0, 3), (2,), (1,))
    assert known(((0, 3), (2,), (1,)), {1: 3.0, 2: 0.5, 3: 0.1}).better() is None


def test_a_tree_that_saves_little_is_not_worth_its_rows() -> None:
    """Rows of the sources cost too: a tenth of a row less between the joins is nothing."""
    assert known(STAR.registered, {1: 0.1, 2: 0.09, 3: 0.08}).better() is None


def test_little_is_decided_from_few_rows() -> None:
    choice = TreeChoice(STAR, STAR.registered)
    for _ in range(2):
        choice.take(stages(STAR.registered, {1: 3.0, 2: 0.5, 3: 0.1}, new=10))
    assert choice.better() is None


def test_a_tree_that_did_not_keep_what_was_believed_makes_the_next_change_dearer() -> None:
    """Arms depend on each other: in the other order the same rows drop, and the first join makes as many as before."""
    tree = ((0, 3), (1,), (2,))
    careless, careful = known(tree, {1: 0.8, 2: 0.8, 3: 1.3}), TreeChoice(STAR, STAR.registered)
    careful.put_in_force(tree, believed=10.0)
    for _ in range(4):
        careful.take(stages(tree, {1: 0.8, 2: 0.8, 3: 1.3}))
    assert careless.better() is not None
    assert careful.better() is None
    assert careful.caution == 2.0


def test_a_promise_that_is_kept_restores_confidence() -> None:
    tree = ((0, 3), (2,), (1,))
    choice = TreeChoice(STAR, STAR.registered, caution=4.0)
    reached = known(tree, {1: 3.0, 2: 0.5, 3: 0.1}).measured
    choice.put_in_force(tree, believed=reached)
    for _ in range(4):
        choice.take(stages(tree, {1: 3.0, 2: 0.5, 3: 0.1}))
    choice.better()
    assert choice.caution == 2.0


def test_a_tree_that_grows_is_given_up_once_it_would_cost_more() -> None:
    choice = known(STAR.registered, {1: 3.0, 2: 0.5, 3: 0.1})
    assert choice.still_better(((0, 3), (2,), (1,)))
    for _ in range(8):
        choice.take(stages(STAR.registered, {1: 0.1, 2: 0.5, 3: 3.0}))
    assert not choice.still_better(((0, 3), (2,), (1,)))

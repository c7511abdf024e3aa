"""EXPLAIN ADAPTIVE of one conjunction: the terms in their order, and the orders before with the reason for each change."""

from __future__ import annotations

from dataclasses import replace

from headrace.adaptive.settling.robust_order import DropInterval
from headrace.adaptive.settling.settled_order import ChoiceTime
from headrace.algebra.expressions.expression import Call, Column, Literal
from headrace.observation import FilterObservation
from headrace.operators.rows.filter_terms import Terms, terms_of
from headrace.planner.explain.adaptive.filter_orders import order_lines
from headrace.schema import BOOLEAN, STRING


def terms() -> Terms:
    """Two regular expressions."""
    parts = [Call("rlike", (Column("t", STRING), Literal(text, STRING)), BOOLEAN) for text in "ab"]
    found = terms_of(parts, [])
    assert found is not None
    return found


def seen(order: tuple[int, int], drops: tuple[int, int], sampled: int = 100) -> FilterObservation:
    """A thousand rows, of which the terms take 100 and 200 ns; no row is dropped by both."""
    patterns = {1: drops[0], 2: drops[1]} if sampled else {}
    spent = (sampled * 100, sampled * 200) if sampled else ()
    return FilterObservation(order, 1000, (1000, 1000), (0, 0), (100_000, 200_000), sampled, spent, patterns)


def test_orders_are_listed_by_periods_with_what_was_believed_before_each() -> None:
    history = [
        (3, seen((0, 1), (30, 10))),
        (4, seen((0, 1), (10, 90))),
        (5, seen((1, 0), (10, 90))),
        (6, seen((1, 0), (0, 0), sampled=0)),
    ]
    head, *lines = order_lines(terms(), history, (1, 0), ChoiceTime(50_000, 10_000))
    assert head.endswith("of 2 terms, in an order that adapts (A-Greedy):")
    assert lines == [
        "  1. term 2: drops 90 % (83 to 94 %) at 200 ns a row: rlike(t, 'b')",
        "  2. term 1: drops 10 % (5.5 to 17 %) at 100 ns a row: rlike(t, 'a')",
        "  2 terms evaluated a row, since epoch 5",
        "  time: 1.35 ms, of which evaluation 89 %, profiling 6.7 %, profile windows 3.7 %, re-optimizing 0.7 %",
        "  the best single order for these epochs, 2, 1, takes 0.893 times as long; profiling took 8.7 %",
        "  1 change of the order; 0 undone within 3 epochs",
        "  epochs 5 to 6: order 2, 1, 2,000 rows; term 2 drops 50 % at 200 ns a row, before term 1, which drops 20 % at 100 ns a row",
        "  epochs 3 to 4: order 1, 2, 2,000 rows; chosen by the first sample",
    ]


def test_changes_are_counted_by_their_causes_and_those_undone_soon() -> None:
    """Term 2 begins to drop much, and ends two epochs later; term 1 drops less at the same time, which alone would change nothing."""
    few, many = (30, 10), (20, 90)
    history = [
        (1, seen((0, 1), few)),
        (2, seen((1, 0), many)),
        (4, seen((0, 1), few)),
        (90, seen((1, 0), many)),
    ]
    lines = list(order_lines(terms(), history, (1, 0)))
    assert "  3 changes of the order: 3 from what term 2 drops; 1 undone within 3 epochs" in lines
    assert not any("single order" in line for line in order_lines(terms(), history[:1], (0, 1)))


def test_costs_change_orders_too() -> None:
    slow = replace(
        seen((1, 0), (50, 40)), nanoseconds=(900_000, 200_000), sample_nanoseconds=(90_000, 20_000)
    )
    lines = list(order_lines(terms(), [(1, seen((0, 1), (50, 40))), (5, slow)], (1, 0)))
    assert "  1 change of the order: 1 from what term 1 costs; 0 undone within 3 epochs" in lines


def test_a_change_that_takes_effect_in_the_next_epoch_is_announced() -> None:
    lines = list(order_lines(terms(), [(1, seen((0, 1), (5, 60)))], (1, 0)))
    assert lines[4] == (
        "  from the next epoch on: order 2, 1; term 2 drops 60 % at 200 ns a row, before term 1, which drops 5.0 % at 100 ns a row"
    )


def test_of_few_sampled_rows_it_is_stated_how_far_the_order_may_be_from_the_best() -> None:
    """Ten rows, of which term 1 drops none and term 2 five: nowhere in the intervals does order 1, 2 take more than 300 to 200 ns."""
    lines = list(order_lines(terms(), [(1, seen((0, 1), (0, 5), sampled=10))], (0, 1)))
    low, high = DropInterval.of(0, 10), DropInterval.of(5, 10)
    worst = max(
        (100 + (1 - a) * 200) / min(100 + (1 - a) * 200, 200 + (1 - b) * 100)
        for a in (low.low, low.high)
        for b in (high.low, high.high)
    )
    assert lines[2] == "  2. term 2: drops 50 % (24 to 76 %) at 200 ns a row: rlike(t, 'b')"
    assert lines[3] == (
        f"  10 rows were sampled: whatever these shares are in their intervals, the order takes at most {worst:.3g} times as long as the best"
    )
    assert worst > 1.3
    many = order_lines(terms(), [(1, seen((0, 1), (0, 50)))], (0, 1))
    assert not any("whatever" in line for line in many)
    one = order_lines(terms(), [(1, seen((0, 1), (0, 1), sampled=1))], (0, 1))
    assert any(line.startswith("  1 row was sampled: ") for line in one)


def test_a_term_that_was_tried_on_few_of_the_sampled_rows_has_a_wide_interval() -> None:
    one = replace(seen((0, 1), (50, 50)), in_sample=(100, 10))
    lines = list(order_lines(terms(), [(1, one)], (0, 1)))
    assert "drops 50 % (40 to 60 %)" in lines[1]
    assert "drops 50 % (24 to 76 %)" in lines[2]


def test_without_a_sample_shares_are_unknown() -> None:
    lines = list(
        order_lines(
            terms(), [(1, seen((0, 1), (0, 0), sampled=0)), (2, seen((1, 0), (0, 0), sampled=0))], (1, 0)
        )
    )
    assert "term 2 drops an unknown share at 200 ns a row" in lines[5]
    assert lines[1] == "  1. term 2: rlike(t, 'b')"


def test_before_the_first_epoch_the_order_is_a_guess() -> None:
    assert list(order_lines(terms(), [], (0, 1)))[-1] == "  nothing was observed yet: the order is a guess"

"""EXPLAIN ADAPTIVE of one conjunction: the terms in their order, and the orders before with the reason for each change."""

from __future__ import annotations

from dataclasses import replace

from headrace.adaptive.filters.settled_order import ChoiceTime
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
        "  1. term 2: drops 90 % at 200 ns a row: rlike(t, 'b')",
        "  2. term 1: drops 10 % at 100 ns a row: rlike(t, 'a')",
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

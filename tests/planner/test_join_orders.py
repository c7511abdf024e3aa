"""EXPLAIN ADAPTIVE of one join: the orders of each side, with what was believed and measured, and the reason for each change."""

from __future__ import annotations

from headrace.observation import ProbeObservation
from headrace.planner.explain.adaptive.join_orders import probe_order_lines


def seen(
    order: tuple[int, int], drops: tuple[int, int], probed: tuple[int, int], sampled: int = 100
) -> ProbeObservation:
    """A thousand new rows of `b`; of the sample so many have no row in `a` and in `c`, none in neither."""
    patterns = {1: drops[0], 2: drops[1]} if sampled else {}
    return ProbeObservation(order, 1000, probed, (0, 0), (9, 9), 5, 4, sampled, 7, patterns)


HISTORY = [
    (3, seen((0, 1), (30, 10), (1000, 700))),
    (4, seen((0, 1), (10, 90), (1000, 900))),
    (5, seen((1, 0), (10, 90), (100, 1000))),
    (6, seen((1, 0), (0, 0), (100, 1000), sampled=0)),
]


def test_orders_are_listed_with_what_was_believed_and_measured_and_why_they_changed() -> None:
    lines = list(probe_order_lines("q.inner", ("a", "b", "c"), {1: HISTORY}, {1: (1, 0)}))
    assert lines == [
        "join q.inner of 3 sides, whose new rows probe the others in orders that adapt (A-Greedy):",
        "  a: nothing was observed yet: the side with fewest rows first",
        "  b: c drops 90 %, a drops 10 %",
        (
            "    epochs 5 to 6: order c, a; 1.1 probes and 0.004 rows made for each of 2,000 rows; c drops 90 %, before a, which drops"
            " 10 %: 1.1 probes a row instead of 1.9, by the sample"
        ),
        (
            "    epochs 3 to 4: order a, c; 1.8 probes and 0.004 rows made for each of 2,000 rows; the side with fewest rows first"
        ),
        "  c: nothing was observed yet: the side with fewest rows first",
    ]


def test_a_change_that_takes_effect_in_the_next_epoch_is_announced() -> None:
    lines = list(probe_order_lines("q.inner", ("a", "b", "c"), {1: HISTORY[:2]}, {1: (1, 0)}))
    assert lines[3] == (
        "    from the next epoch on: order c, a; c drops 90 %, before a, which drops 10 %: 1.1 probes a row instead of 1.9, by"
        " the sample"
    )


def test_without_a_sample_shares_are_unknown() -> None:
    history = [
        (1, seen((0, 1), (0, 0), (1000, 700), sampled=0)),
        (2, seen((1, 0), (0, 0), (9, 1000), sampled=0)),
    ]
    lines = list(probe_order_lines("q.inner", ("a", "b", "c"), {1: history}, {1: (1, 0)}))
    assert lines[2] == "  b: c drops an unknown share, a drops an unknown share"
    assert lines[3].endswith("c drops an unknown share, before a, which drops an unknown share")


def test_the_newest_orders_are_listed() -> None:
    history = [(epoch, seen((epoch % 2, 1 - epoch % 2), (1, 1), (1000, 900))) for epoch in range(50)]
    lines = list(probe_order_lines("q.inner", ("a", "b", "c"), {1: history}, {1: (1, 0)}))
    assert [line for line in lines if line.startswith("    epoch 49:")]
    assert len(lines) == 3 + 1 + 8

"""Plans out of order and in order emit the same rows, break no promise on any edge, and hold what the thesis predicts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.plans import in_order
from benchmarks.baselines.plans.flows import Flow, Rows, is_grammatical, is_in_order
from benchmarks.baselines.plans.out_of_order import (
    Apply,
    DuplicateElimination,
    Input,
    Meld,
    Select,
    WindowCount,
)
from benchmarks.baselines.plans.plan import Delay, Node, Ran, run
from benchmarks.baselines.windows import Sliding
from benchmarks.disorder import low_watermarks

ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), min_size=1, max_size=25)
END = 1000


def flows(rows: list[tuple[int, int]], size: int, steps: int) -> list[Flow]:
    """The rows a few at a time with their true low watermark where it advances; at the last step all is complete."""
    at = np.array([row[0] for row in rows], np.int64)
    low = low_watermarks(at)
    drawn, bound = list[Flow](), -1
    for start in range(0, size * steps, size):
        part = slice(start, start + size)
        key = np.array([row[1] for row in rows[part]], np.int64)
        done = min(start + size, len(rows))
        now = END if start + size == size * steps else int(low[done - 1]) if done < len(rows) else bound
        drawn.append(
            Flow(Rows(at[part], key, np.arange(start, start + len(key))), now if now > bound else None)
        )
        bound = max(now, bound)
    return drawn


def both(streams: tuple[list[tuple[int, int]], ...], size: int) -> dict[str, list[Flow]]:
    steps = max(-(-len(stream) // size) for stream in streams) + 1
    return {f"s{number}": flows(stream, size, steps) for number, stream in enumerate(streams)}


def counted(ran: Ran, edge: str) -> dict[tuple[int, int], int]:
    rows = ran.rows(edge)
    emitted = dict(
        zip(zip(rows.at.tolist(), rows.key.tolist(), strict=True), rows.value.tolist(), strict=True)
    )
    assert len(emitted) == len(rows), "a window was emitted twice"
    return emitted


def by_definition(rows: list[tuple[int, int]], windows: Sliding) -> dict[tuple[int, int], int]:
    counts: Counter[tuple[int, int]] = Counter()
    for at, key in rows:
        for end in range(windows.slide, 40 + windows.range + windows.slide, windows.slide):
            counts[end, key] += end - windows.range <= at < end
    return {pair: n for pair, n in counts.items() if n}


@given(
    streams=st.tuples(ROWS, ROWS), size=st.integers(1, 7), shape=st.sampled_from([(10, 10), (10, 5), (6, 4)])
)
def test_every_edge_keeps_its_promises_and_both_plans_count_the_same(
    streams: tuple[list[tuple[int, int]], list[tuple[int, int]]], size: int, shape: tuple[int, int]
) -> None:
    windows = Sliding(*shape)
    sources = both(streams, size)

    def odd(rows: Rows) -> np.ndarray:
        return rows.key != 1

    def renamed(rows: Rows) -> Rows:
        return Rows(rows.at, rows.key * 10, rows.value)

    loose = [
        Node("select", Select(odd), ("s0",)),
        Node("melded", Meld.of(2), ("select", "s1")),
        Node("distinct", DuplicateElimination(), ("melded",)),
        Node("project", Apply(renamed), ("distinct",)),
        Node("count", WindowCount(windows), ("project",)),
    ]
    strict = [
        Node("sort 0", in_order.Sort(), ("s0",)),
        Node("sort 1", in_order.Sort(), ("s1",)),
        Node("select", Select(odd), ("sort 0",)),
        Node("merged", in_order.Merge.of(2), ("select", "sort 1")),
        Node("distinct", DuplicateElimination(), ("merged",)),
        Node("project", Apply(renamed), ("distinct",)),
        Node("count", in_order.WindowCount(windows), ("project",)),
    ]
    wanted = by_definition(
        [(at, key * 10) for at, key in {*(row for row in streams[0] if row[1] != 1), *streams[1]}], windows
    )
    for plan, ordered in ((loose, False), (strict, True)):
        ran = run(plan, sources)
        assert all(is_grammatical(edge) for edge in ran.edges.values())
        assert not ordered or all(is_in_order(ran.edges[node.name]) for node in plan)
        assert counted(ran, "count") == wanted
        assert all(held[-1] == 0 for held in ran.held.values()), "state after the last punctuation"


def test_golden_example_8_meld_emits_the_least_bound_and_once() -> None:
    meld = Meld.of(2)
    meld.take(Flow(bound=20), Flow(bound=19))
    assert [meld.take(Flow(), Flow(bound=bound)).bound for bound in (20, 21, 22)] == [20, None, None]


def test_input_blocks_what_breaks_a_punctuation_and_counts_it() -> None:
    source = Input()
    rows = Rows(*(np.array([4, 9], np.int64),) * 3)
    assert len(source.take(Flow(rows, 7)).rows) == 2
    after = source.take(Flow(rows, 5))
    assert after.rows.at.tolist() == [9]
    assert after.bound is None
    assert source.blocked == 1
    assert is_grammatical([Flow(rows, 7), after])
    assert not is_grammatical([Flow(rows, 7), Flow(rows)])


def test_a_projection_that_changes_the_event_time_is_refused() -> None:
    moved = Apply(lambda rows: Rows(rows.at + 1, rows.key, rows.value))
    with pytest.raises(ValueError, match="Expected the event times"):
        moved.take(Flow(Rows(*(np.array([1], np.int64),) * 3)))


@given(stream=ROWS, steps=st.integers(0, 4))
def test_split_and_merge_of_figure_8_3(stream: list[tuple[int, int]], steps: int) -> None:
    """An ordered input, of which the rows that a cheap condition passes go past a slow one: the merge holds them, meld none."""
    windows, sorted_ = Sliding(10, 5), sorted(stream)
    sources = {"s0": [*flows(sorted_, 3, -(-len(sorted_) // 3) + 1), *[Flow()] * steps]}

    def branches(union: Meld | in_order.Merge, count: WindowCount | in_order.WindowCount) -> list[Node]:
        return [
            Node("cheap", Select(lambda rows: rows.key == 0), ("s0",)),
            Node("rest", Select(lambda rows: rows.key != 0), ("s0",)),
            Node("slow", Delay(steps), ("rest",)),
            Node("dear", Select(lambda rows: rows.key == 1), ("slow",)),
            Node("union", union, ("cheap", "dear")),
            Node("count", count, ("union",)),
        ]

    loose = run(branches(Meld.of(2), WindowCount(windows)), sources)
    strict = run(branches(in_order.Merge.of(2), in_order.WindowCount(windows)), sources)
    wanted = by_definition([row for row in stream if row[1] < 2], windows)
    assert counted(loose, "count") == counted(strict, "count") == wanted
    assert all(is_grammatical(edge) for ran in (loose, strict) for edge in ran.edges.values())
    assert is_in_order(strict.edges["union"])
    assert loose.held_at_most("union") == 0
    assert loose.edges["count"][-1].bound == strict.edges["count"][-1].bound

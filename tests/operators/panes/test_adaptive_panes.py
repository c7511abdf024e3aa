"""AdaptWID with panes: sparse groups are stored as rows, answers are the same, and the state is never larger for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.language.binder.query_binder import bind_query
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.panes.adaptive_panes import (
    LEAST_GROUPS,
    SPARSE_OPEN,
    SPARSE_SEALED,
    partial_bytes,
    row_bytes,
    settle,
    should_store_rows,
    sparse_group_limit,
)
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.time import BEGINNING, MINUTE, SECOND
from tests.language.catalog import Catalog
from tests.operators.local_driver import drive

CATALOG = Catalog(
    "CREATE STREAM s (k BIGINT, v BIGINT, name STRING, at TIMESTAMP) USING push TIMESTAMP BY at;"
)
WIDE = "COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean, MIN(v) AS least, MAX(v) AS most, STDDEV(v) AS spread"


def operator(text: str, keeps: int | None = None) -> PaneAggregate:
    lowered = lower("q", bind_query(text, CATALOG), "q1")
    assert isinstance(lowered, PaneAggregate)
    return replace(lowered, row_layout_limit=keeps)


def rows(k: Any, at: Any, seed: int = 1) -> Batch:
    """Rows of keys `k` at seconds `at`; values and names are drawn, some of them NULL."""
    rng = np.random.default_rng(seed)
    n = len(k)
    missing = rng.random(n) < 0.1
    return Batch(
        {
            "k": pa.array(np.asarray(k, np.int64)),
            "v": pa.array(rng.integers(-1000, 1000, n), mask=missing),
            "name": pa.array([f"n{each}" for each in rng.integers(0, 50, n)]),
        },
        np.asarray(at, np.int64) * SECOND,
        np.arange(n),
    )


def skewed(epoch: int) -> Batch:
    """Two large groups and many of one row, in the ten seconds of an epoch."""
    rng = np.random.default_rng(epoch)
    k = np.r_[rng.integers(0, 2, 400), 1000 * (epoch + 1) + np.arange(200)]
    return rows(k, 10 * epoch + rng.integers(0, 10, len(k)), epoch)


def bytes_of(sections: Sections) -> int:
    return sum(table.nbytes for table in sections.values())


TEXTS = {
    "tumbling": f"SELECT k, {WIDE} FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k",
    "sliding": f"SELECT k, {WIDE} FROM s [RANGE 60 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "many panes": "SELECT k, MIN(name) AS a, MAX(name) AS z, COUNT(v) AS n FROM s [RANGE 100 SECONDS SLIDE 7 SECONDS] GROUP BY k",
    "beside distinct": "SELECT k, COUNT(DISTINCT name) AS d, SUM(v) AS t FROM s [RANGE 40 SECONDS SLIDE 20 SECONDS] GROUP BY k",
    "a condition": "SELECT k, SUM(v) FILTER (WHERE v > 0) AS t, COUNT(*) AS n FROM s [RANGE 40 SECONDS SLIDE 20 SECONDS] GROUP BY k",
    "without groups": "SELECT SUM(v) AS t, MIN(name) AS a FROM s [RANGE 40 SECONDS SLIDE 20 SECONDS]",
}
KEEPING: Mapping[str, Mapping[int, int]] = {
    "always": dict.fromkeys(range(12), 2),
    "all rows": dict.fromkeys(range(12), 10**6),
    "now and then": {0: 1, 1: 3, 5: 2, 6: 0, 9: 10**6},
}


def emitted(text: str, keeping: Mapping[int, int], compact_after: Mapping[int, int]) -> list[Any]:
    epochs = [[skewed(2 * n), skewed(2 * n + 1)] for n in range(6)]
    punctuations = [20 * n * SECOND for n in range(1, 7)]
    run = drive(operator(text), epochs, punctuations, 3, keeping=keeping, compact_after=compact_after)
    assert run.results is not None
    columns = run.results.to_pydict()
    spread = columns.get("spread")
    if spread is not None:
        columns["spread"] = [None if each is None or math.isnan(each) else round(each, 6) for each in spread]
    return sorted(zip(*columns.values(), strict=True), key=repr)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("keeping", KEEPING)
def test_answers_are_those_of_partials_whichever_groups_keep_their_rows(name: str, keeping: str) -> None:
    expected = emitted(TEXTS[name], {}, {})
    assert len(expected) > 5
    assert emitted(TEXTS[name], KEEPING[keeping], {}) == expected
    assert emitted(TEXTS[name], KEEPING[keeping], {1: 2, 3: 9, 4: 1}) == expected


@pytest.mark.parametrize("name", ["tumbling", "sliding"])
def test_the_state_of_many_small_groups_is_far_smaller(name: str) -> None:
    sizes = []
    for keeps in (None, sparse_group_limit(operator(TEXTS[name]).layouts[0])):
        each = operator(TEXTS[name], keeps)
        runs: list[Sections] = []
        for epoch in range(2):
            scanner = each.scanner({})
            scanner.add(skewed(epoch))
            advance = Advance(max(0, epoch - 1) * 10 * SECOND, epoch * 10 * SECOND, 10 * SECOND)
            runs.append(each.advance(runs, [scanner.finish().deltas], advance).state)
        sizes.append(sum(map(bytes_of, runs)))
    assert sizes[1] < 0.6 * sizes[0]


def test_a_group_keeps_its_rows_up_to_the_size_of_its_partial() -> None:
    each = operator(TEXTS["tumbling"]).with_row_layout()
    layout, most = each.layouts[0], each.row_layout_limit
    assert most is not None
    assert most * row_bytes(layout) < partial_bytes(layout) <= (most + 1) * row_bytes(layout)
    scanner = each.scanner({})
    scanner.add(rows([1] * most + [2] * (most + 1), [0] * (2 * most + 1)))
    deltas = scanner.finish().deltas
    assert deltas[SPARSE_OPEN].column("k0").to_pylist() == [1] * most
    assert deltas["open0"].column("k0").to_pylist() == [2]


def test_rows_that_come_later_fold_the_group_when_runs_are_merged() -> None:
    each = operator(TEXTS["tumbling"]).with_row_layout()
    assert each.row_layout_limit is not None
    runs = []
    for n in range(each.row_layout_limit + 1):
        scanner = each.scanner({})
        scanner.add(rows([1, 10 + n], [n, n]))
        runs.append(each.advance([], [scanner.finish().deltas], Advance(BEGINNING, BEGINNING, 0)).state)
    assert [set(run) for run in runs] == [{SPARSE_OPEN}] * len(runs)
    merged = each.before_merge(
        {SPARSE_OPEN: [run[SPARSE_OPEN] for run in runs]}, Advance(BEGINNING, BEGINNING, 0)
    )
    assert [table.column("k0").to_pylist() for table in merged["open0"]] == [[1]]
    assert sorted(merged[SPARSE_OPEN][0].column("k0").to_pylist()) == [
        10 + n for n in range(each.row_layout_limit + 1)
    ]


def test_blocks_of_panes_keep_few_rows_too_and_a_window_that_is_one_pane_keeps_none() -> None:
    each = operator(
        "SELECT k, SUM(v) AS t FROM s [RANGE 10 MINUTES SLIDE 10 SECONDS] GROUP BY k"
    ).with_row_layout()
    scanner = each.scanner({})
    scanner.add(rows(np.arange(300), np.arange(300)))
    step = each.advance([], [scanner.finish().deltas], Advance(BEGINNING, 5 * MINUTE, 5 * MINUTE))
    levels = np.unique(step.state[SPARSE_SEALED].column("__key").to_numpy() >> 57)
    assert len(levels) > 3
    alone = operator(TEXTS["tumbling"]).with_row_layout()
    scanner = alone.scanner({})
    scanner.add(rows(np.arange(300), np.zeros(300)))
    step = alone.advance([], [scanner.finish().deltas], Advance(BEGINNING, 5 * MINUTE, 5 * MINUTE))
    assert step.state == {}
    assert step.results is not None
    assert step.results.num_rows == 300


def test_a_group_with_a_partial_never_keeps_rows_beside_it() -> None:
    layout = operator(TEXTS["sliding"]).layouts[0]
    each = operator(TEXTS["sliding"]).with_row_layout()
    one, many = each.scanner({}), each.scanner({})
    one.add(rows([1, 2], [0, 0]))
    many.add(rows([1] * 50, [0] * 50))
    partials, few = settle(layout, [one.finish().deltas[SPARSE_OPEN], many.finish().deltas["open0"]])
    assert partials.column("k0").to_pylist() == [1]
    assert partials.column("p0_0").to_pylist() == [51]
    assert few.column("k0").to_pylist() == [2]


def test_the_choice_is_made_of_what_was_measured_with_hysteresis() -> None:
    layout = operator(TEXTS["tumbling"]).layouts[0]
    saved = 1 - row_bytes(layout) / partial_bytes(layout)
    groups = 10 * LEAST_GROUPS

    def after(share: float, *, does: bool) -> bool:
        return should_store_rows(layout, groups, round(groups * share / saved), does=does)

    assert after(0.16, does=False)
    assert after(0.10, does=True), "between the thresholds it stays as it is"
    assert not after(0.10, does=False)
    assert not after(0.04, does=True)
    assert should_store_rows(layout, LEAST_GROUPS - 1, 0, does=True), "too few groups say nothing"
    assert not should_store_rows(layout, LEAST_GROUPS - 1, LEAST_GROUPS - 1, does=False)


def test_landmarks_and_revisions_fold_every_row() -> None:
    """All closed panes of a landmark are one; late rows would need their group's stored rows again."""
    for text in (
        "SELECT k, SUM(v) AS t FROM s [LANDMARK SLIDE 10 SECONDS] GROUP BY k",
        "SELECT SUM(v) AS t FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] EMIT EMPTY",
    ):
        assert operator(text).with_row_layout().row_layout_limit is None

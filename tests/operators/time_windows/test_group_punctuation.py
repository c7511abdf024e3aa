"""Promises for single groups and what becomes of them where a query keeps only some of the promising columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.catalog.definitions import Progressing
from headrace.language.binder.query_binder import bind_query
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.time_windows.group_punctuation import GroupAdvance
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.runtime.messages.key_text import named
from headrace.runtime.progress.group_progress import bounds_by
from headrace.time import BEGINNING, FOREVER, SECOND, Instant
from tests.language.catalog import Catalog

CATALOG = Catalog("CREATE STREAM s (a BIGINT, b BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;")
COUNTED = "SELECT a, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY a"
EPOCHS = [[(1, 2, 3), (1, 3, 4)], [(1, 3, 5)]]
"""(a, b, seconds): after the first epoch it is promised that no row with a = 1 and b = 2 is below 10 s."""
PROMISED: Mapping[tuple[str, ...], list[Any]] = {("a", "b"): [[1], [2]], ("a",): [[1]]}


def operator() -> PaneAggregate:
    lowered = lower("q", bind_query(COUNTED, CATALOG), "q1").without_family()
    assert isinstance(lowered, PaneAggregate)
    return lowered


def emitted(columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """(a, n) as emitted, if the promise is read as one on these columns."""
    counts, runs, results = operator(), list[Sections](), []
    name = named([pa.array(value) for value in PROMISED[columns]])[0].as_py()
    closed, before = BEGINNING, dict[str, Instant]()
    for rows, now in zip(EPOCHS, (BEGINNING, FOREVER), strict=True):
        scanner = counts.scanner({})
        a, b, at = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        scanner.add(Batch({"a": pa.array(a), "b": pa.array(b)}, at * SECOND, np.arange(len(at))))
        advance, ahead = Advance(closed, now, 10 * SECOND), {name: 10 * SECOND}
        if columns == ("a",):
            groups = GroupAdvance(columns, before, ahead, bounds_by(Progressing(groups=columns)))
            step = counts.advance_groups(runs, [scanner.finish().deltas], advance, groups)
        else:
            step = counts.advance(runs, [scanner.finish().deltas], advance)
        runs, closed, before = [*runs, step.state], now, ahead
        if step.results is not None:
            results += [(row["a"], row["n"]) for row in step.results.to_pylist()]
    return results


def test_repair_5_a_promise_on_columns_that_a_query_does_not_keep_is_dropped() -> None:
    """Projected, as printed, the promise for a = 1 and b = 2 would be one for all of a = 1, and close its window too early."""
    assert operator().group_columns(("a", "b")) == ("a",), "b is lost: the promise with it"
    assert operator().group_columns(("a",)) == ("a",)
    assert emitted(("a", "b")) == [(1, 3)]
    assert emitted(("a",)) == [(1, 2)], "one row too few, though every promise was kept"

"""What late rows add to the blocks of closed panes: a cell for each group with rows in the block, and none for the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.panes.late_panes import into_blocks
from headrace.operators.panes.pane_keys import block_key, pane_keys
from headrace.runtime.hub.opening import open_hub
from headrace.schema import BIGINT

GROUPED = Grouped(
    (Named("k", Column("k", BIGINT)),),
    (NamedAggregate("a0", AggregateCall("sum", Column("v", BIGINT), result_type("sum", BIGINT))),),
)
LAYOUT = GROUPED.layouts[0]
TOP = 3


@given(
    rows=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3)), min_size=1, max_size=9),
    before=st.integers(1, 16),
)
@example(rows=[(4, 0), (6, 1)], before=7)
def test_every_level_has_the_groups_of_its_blocks_and_no_other(
    rows: list[tuple[int, int]], before: int
) -> None:
    pane, key = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    late = fold(GROUPED, pane_keys(pane), [pa.array(key), pa.array(np.ones_like(key))], None)[0]
    wanted = Counter(
        (block_key(level, 0) + (pane >> level), key)
        for pane, key in rows
        for level in range(1, TOP + 1)
        if pane >> level < before >> level
    )
    added = [row for table in into_blocks(LAYOUT, [late], before, TOP) for row in table.to_pylist()]
    assert {(row["__key"], row["k0"]): row["p0_0"] for row in added} == dict(wanted)
    assert len(added) == len(wanted)


def test_a_revised_window_has_no_row_for_a_group_without_rows(tmp_path: Path) -> None:
    """Seconds 6 and 7 come late: the window that ends at 7 s holds the first alone."""
    with open_hub(tmp_path, local=True) as hub:
        hub.execute("CREATE STREAM s (k STRING, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute(
            "CREATE QUERY q AS SELECT k, COUNT(*) AS n, window_end FROM s [RANGE 9 SECONDS SLIDE 2 SECONDS]"
            " GROUP BY k WITH REVISIONS FOR INTERVAL 30 SECONDS"
        )
        start = 1_700_000_001
        for rows in ([(0, "x")], [(8, "x")], [(6, "late"), (7, "later"), (9, "x")]):
            at = pa.array([(start + second) * 1_000_000 for second, _ in rows], pa.timestamp("us", "UTC"))
            hub.push("s", pa.table({"k": [key for _, key in rows], "at": at}))
            hub.catch_up()
        emitted = hub.query("q").history().to_pylist()
    assert all(row["n"] > 0 for row in emitted)
    first = min(row["window_end"] for row in emitted if row["k"] == "later")
    assert first > min(row["window_end"] for row in emitted if row["k"] == "late")

"""Windows of rows at every instant: exactly the partitions with new rows are evaluated."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.output.output_stage import Finish
from headrace.operators.relations.instant_rows import InstantRows, Validity, touched
from headrace.operators.rows.row_state import ROWS, RowLayout, hold
from headrace.schema import BIGINT

K, V = Column("k", BIGINT), Column("v", BIGINT)
COLUMNS = (Named("k", Column("c1", BIGINT)), Named("v", Column("c2", BIGINT)))
LAST_TWO = InstantRows(
    "q",
    "q",
    "s",
    Validity(count=2, partitions=1),
    RowLayout((K,), (K, V), (), (), True, (0,), 3),
    Finish(columns=COLUMNS),
    "changes",
)


def scanned(keys: list[int], at: list[int]) -> Sections:
    scanner, times = LAST_TWO.scanner({}), np.array(at)
    scanner.add(Batch({"k": pa.array(keys), "v": pa.array(at)}, times, times))
    return scanner.finish().deltas


@pytest.mark.parametrize("partitions", [3, 5000])
def test_a_row_pushes_out_the_oldest_of_its_own_partition_also_at_the_instant_emitted_to(
    partitions: int,
) -> None:
    """Two rows of each partition are emitted; then the last one gets a row at exactly the instant up to which rows were emitted."""
    keys = [*range(partitions), *range(partitions)]
    emitted_to = 2 * partitions
    step = LAST_TWO.advance(
        [], [scanned(keys, list(range(emitted_to)))], Advance(0, emitted_to, emitted_to - 1)
    )
    after = LAST_TWO.advance(
        [step.state],
        [scanned([partitions - 1], [emitted_to])],
        Advance(emitted_to, emitted_to + 1, emitted_to),
    )
    assert after.results is not None
    rows = after.results.select(["k", "v", "__at", "__change"]).to_pylist()
    assert sorted(rows, key=lambda row: row["v"]) == [
        {"k": partitions - 1, "v": partitions - 1, "__at": emitted_to, "__change": -1},
        {"k": partitions - 1, "v": emitted_to, "__at": emitted_to, "__change": 1},
    ]


def test_of_many_partitions_few_rows_are_looked_at() -> None:
    count = 50_000
    step = LAST_TWO.advance(
        [], [scanned(list(range(count)), list(range(count)))], Advance(0, count, count - 1)
    )
    held = hold(LAST_TWO.rows, [step.state[ROWS], scanned([7], [count])[ROWS]])
    apart = LAST_TWO.validity.partition_columns(LAST_TWO.rows, (), routed=True)
    assert apart == ("c0",)
    seen = touched(held, apart, count)
    assert 7 in seen.column("c1").to_pylist()
    assert seen.rows < 20

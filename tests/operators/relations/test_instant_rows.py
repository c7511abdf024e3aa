"""Windows of rows at every instant: exactly the partitions with new rows are evaluated."""

from __future__ import annotations

from dataclasses import replace

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


PAIRS = replace(
    LAST_TWO,
    validity=Validity(ends_given=True, partitions=1),
    rows=RowLayout((V,), (K, V), (), (), False, None, 3),
)


@pytest.mark.parametrize(("last", "stored"), [((5, 6, 9, 12), [1, 2]), ((5, 12, 12, 12), [0, 1, 1, 2])])
def test_rows_that_begin_and_expire_in_an_epoch_are_emitted_and_not_stored(
    last: tuple[int, ...], stored: list[int]
) -> None:
    """Where they are many: up to instant 10 two of four rows do; else all are stored. An end is the last instant of a row."""
    scanner, times = PAIRS.scanner({}), np.array([1, 2, 3, 4])
    scanner.add(Batch({"k": pa.array([0, 1, 1, 2]), "v": pa.array(last)}, times, times))
    step = PAIRS.advance([], [scanner.finish().deltas], Advance(0, 10, 4))
    assert step.state[ROWS]["c1"].to_pylist() == stored
    after = PAIRS.advance([step.state], [], Advance(10, 20, 4))
    changes = [
        (row["k"], row["__at"], row["__change"])
        for results in (step.results, after.results)
        if results is not None
        for row in results.to_pylist()
    ]
    begin = [(k, at, 1) for k, at in zip((0, 1, 1, 2), (1, 2, 3, 4), strict=True)]
    end = [(k, at + 1, -1) for k, at in zip((0, 1, 1, 2), last, strict=True)]
    assert sorted(changes) == sorted(begin + end)

"""Operators made and driven by hand: rows are (key, value, time), answers (instant, columns)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Expression, Named
from headrace.algebra.windows.window import CHANGE
from headrace.operators.aggregates.group_by import Grouped
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import AT, Operator
from headrace.operators.base.union_positions import placed
from headrace.operators.output.output_stage import Finish
from headrace.operators.row_windows.partitioned_rows import PartitionedRows
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.operators.rows.row_state import RowLayout
from headrace.schema import BIGINT, STRING
from tests.operators.local_driver import DriveResult, drive

K, V = Column("k", STRING), Column("v", BIGINT)
COUNT = Grouped((Named("k", K),), (NamedAggregate("n", AggregateCall("count", None, BIGINT)),))
"""How many rows there are of each key."""

Rows = Sequence[tuple[str | None, int, int]]


def layout(
    *kept: Expression, partition: tuple[Expression, ...] = (), where: Expression | None = None
) -> RowLayout:
    """Rows at rest, each partition in its slot; rows that WHERE drops count."""
    above = () if where is None else (RowFilter(where),)
    return RowLayout(partition, kept, (), above, True, tuple(range(len(partition))) or None, 3)


def values(*names: str, first: int = 0) -> Finish:
    """The select list: stored values by their places, under these names."""
    types = {"k": STRING, "v": BIGINT}
    columns = (Named(name, Column(f"c{first + index}", types[name])) for index, name in enumerate(names))
    return Finish(tuple(columns))


def rows_of(*partition: Expression, where: Expression | None = None, **how: Any) -> PartitionedRows:
    """The values of a window's rows."""
    rows = layout(V, partition=partition, where=where)
    finish = values("v", first=len(partition))
    return PartitionedRows("q", "q", "s", len(partition), "s.", rows, None, finish, **how)


def counts_of(*partition: Expression, grouped: Grouped = COUNT, **how: Any) -> PartitionedRows:
    """How many rows of each key a window has."""
    names = [*(key.name for key in grouped.keys), *(item.name for item in grouped.aggregates)]
    types = {"k": STRING, "n": BIGINT}
    finish = Finish(tuple(Named(name, Column(name, types[name])) for name in names))
    rows = layout(*grouped.inputs(), partition=partition)
    return PartitionedRows("q", "q", "s", len(partition), "s.", rows, grouped, finish, **how)


def batches(cut: Sequence[Rows], *, member: int = 0, prefix: str = "") -> list[Batch]:
    """A batch for each epoch, with consecutive positions."""
    made, before = [], 0
    for rows in cut:
        columns = {
            f"{prefix}k": pa.array([row[0] for row in rows], pa.string()),
            f"{prefix}v": pa.array([row[1] for row in rows], pa.int64()),
        }
        position = np.arange(before, before + len(rows))
        made.append(Batch(columns, np.array([row[2] for row in rows], np.int64), placed(position, member)))
        before += len(rows)
    return made


def driven(
    operator: Operator, cut: Sequence[Rows], punctuations: Sequence[int] | None = None, **how: Any
) -> DriveResult:
    """Each epoch is one split; without `punctuations` each promises all up to its last row."""
    if punctuations is None:
        punctuations = np.maximum.accumulate([max(row[2] for row in rows) + 1 for rows in cut]).tolist()
    return drive(operator, [[batch] for batch in batches(cut)], punctuations, **{"final": False, **how})


def plain(results: pa.Table | None, *names: str) -> list[tuple[Any, ...]]:
    """Result rows as (instant, columns), in order; changes as (instant, sign, columns)."""
    if results is None:
        return []
    shown = [*([CHANGE] if CHANGE in results.column_names else []), *names]
    rows = zip(*(results.column(name).to_pylist() for name in (AT, *shown)), strict=True)
    return sorted(rows, key=lambda row: [(part is not None, part) for part in row])


def emitted(
    operator: Operator,
    cut: Sequence[Rows],
    *names: str,
    punctuations: Sequence[int] | None = None,
    **how: Any,
) -> list[tuple[Any, ...]]:
    """What an operator emits over epochs of rows."""
    return plain(driven(operator, cut, punctuations, **how).results, *names)

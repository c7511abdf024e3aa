"""The rows of one stream passed to the readers of a union that has it as input, with the union's column names, event times and
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import as_int64
from headrace.operators.base.operator import QUERY_NUMBER
from headrace.operators.base.union_positions import placed
from headrace.runtime.plan.union_streams import UnionInput


class _Takes(Protocol):
    def add(self, batch: Batch) -> None: ...


@dataclass(slots=True)
class UnionFeed:
    """Passes rows of one input to the readers of a union, with the union's column names.

    `columns_read` are the union's columns that they read; `adding` is their time, in nanoseconds. `query`: the number of the one query
    among several that reads the input, which becomes a column; rows that have that column keep it.
    """

    union_input: UnionInput
    number: int
    readers: Sequence[_Takes]
    columns_read: frozenset[str]
    query: int | None = None
    adding: int = 0

    def reads(self) -> frozenset[str]:
        """The columns of the input that are read."""
        return self.union_input.input_columns(self.columns_read)

    def add(self, batch: Batch) -> None:
        """Add a batch of the input's rows."""
        started = perf_counter_ns()
        columns = {
            name: batch.columns[column]
            for column, name in self.union_input.columns
            if name in self.columns_read
        }
        if QUERY_NUMBER in batch.columns:
            columns[QUERY_NUMBER] = batch.columns[QUERY_NUMBER]
        elif self.query is not None:
            columns[QUERY_NUMBER] = pa.array(np.full(batch.rows, self.query))
        time = self.union_input.time
        at = as_int64(batch.columns[time]) if time else batch.at
        renamed = Batch(columns, at, placed(batch.position, self.number))
        for reader in self.readers:
            reader.add(renamed)
        self.adding += perf_counter_ns() - started

"""Rows of a stream for a query that is answered exactly or from sketches: all of them, marked by what their epoch has chosen; or, of a
query WITH SHEDDING, sketched and fewer, with their weights.
"""

from __future__ import annotations

from dataclasses import field
from math import floor, log2

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.time_windows.alternatives import IS_SKETCHED
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.tasks.scan.shed_rows import BatchSamples, sampled_at
from headrace.runtime.tasks.timing import Timed


@dataclass(slots=True)
class AlternativeRows:
    """The readers of one operator in one task; `shares` are of the rows that arrive now, those that it counts exactly (1 or 0) and those
    that it sees. `sample_rate` is that of the stream, None if the operator sees all rows.

    A row of a sample represents a power of two of rows: ranks are whole numbers. Rows of a sample are sketched in any case.
    """

    readers: list[Timed]
    columns: frozenset[str]
    seed: int
    operator: str
    shares: tuple[float, ...] = (1.0,)
    sample_rate: float | None = None
    shed: int = 0
    arrived: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def add(self, batch: Batch, split: Split, samples: BatchSamples) -> None:
        """Pass accepted rows to the readers; a split of the archive is marked as in the epoch that first read it."""
        if not batch.rows:
            return
        self.arrived[0] += batch.rows
        is_new = split.sample_rate is None
        exactly, *seen = self.shares if is_new else split.shares.get(self.operator, (1.0,))
        needed, rate = batch.only(self.columns), 1.0
        if self.sample_rate is not None:
            of_stream = self.sample_rate if split.sample_rate is None else split.sample_rate
            rate = 2.0 ** floor(log2(min(of_stream, *seen, 1.0)))
            needed = sampled_at(needed, samples.nested, rate)
            self.shed += batch.rows - needed.rows
        marks = pa.repeat(pa.scalar(exactly < 1 or rate < 1), needed.rows)
        marked = needed.with_columns({IS_SKETCHED: marks})
        if marked.rows:
            for reader in self.readers:
                reader.add(marked)

    def flush(self) -> None:
        """No row waits."""

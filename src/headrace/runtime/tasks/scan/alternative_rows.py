"""Rows of a stream for a query that is answered exactly or from sketches: all of them, marked by what their epoch has chosen."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.time_windows.alternatives import IS_SKETCHED
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.tasks.timing import Timed


@dataclass(slots=True)
class AlternativeRows:
    """The readers of one operator in one task; `exactly` is the share of rows that arrive now which it counts exactly: 1 or 0."""

    readers: list[Timed]
    columns: frozenset[str]
    seed: int
    operator: str
    exactly: float = 1.0
    shed: int = 0
    arrived: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def add(self, batch: Batch, split: Split, samples: object) -> None:
        """Pass accepted rows to the readers; a split of the archive is marked as in the epoch that first read it."""
        del samples
        if not batch.rows:
            return
        chosen = self.exactly if split.sample_rate is None else split.shares.get(self.operator, (1.0,))[0]
        needed = batch.only(self.columns)
        marks = pa.repeat(pa.scalar(chosen < 1), batch.rows)
        marked = needed.with_columns({IS_SKETCHED: marks})
        self.arrived[0] += batch.rows
        for reader in self.readers:
            reader.add(marked)

    def flush(self) -> None:
        """No row waits."""

"""The rows of a stream, on their way to queries that read several streams as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

from headrace.operators.base.batch import Batch
from headrace.operators.base.union_positions import placed
from headrace.runtime.plan.union_streams import UnionInput


class _Takes(Protocol):
    def add(self, batch: Batch) -> None: ...


@dataclass(slots=True)
class Through:
    """Hands rows of one member to those who read the meeting, under the names that columns have there.

    `wanted` are the meeting's columns they read; `adding` is what they took, in nanoseconds.
    """

    union_input: UnionInput
    number: int
    readers: Sequence[_Takes]
    wanted: frozenset[str]
    adding: int = 0

    def reads(self) -> frozenset[str]:
        """The member's own columns that are needed."""
        return self.union_input.input_columns(self.wanted)

    def add(self, batch: Batch) -> None:
        """Take in a batch of the member's rows."""
        started = perf_counter_ns()
        columns = {
            among: batch.columns[own] for own, among in self.union_input.columns if among in self.wanted
        }
        renamed = Batch(columns, batch.at, placed(batch.position, self.number))
        for reader in self.readers:
            reader.add(renamed)
        self.adding += perf_counter_ns() - started

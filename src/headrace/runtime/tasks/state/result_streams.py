"""Results of a cohort that are made as they are written, those of some queries at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.finishing import ResultsByQuery
from headrace.operators.families.pane_queries import PaneStream
from headrace.runtime.tasks.timing import Ledger


@dataclass(frozen=True, slots=True, eq=False)
class ResultStream:
    """The results of a cohort of the state `name`; `state_rows` are those that each query stores, and `taken` those that were taken of it."""

    name: str
    cohort: Cohort
    stream: PaneStream
    state_rows: Sequence[int]
    taken: Ints

    @staticmethod
    def of(name: str, cohort: Cohort, stream: PaneStream, state_rows: Sequence[int]) -> ResultStream:
        """Of which nothing was taken."""
        return ResultStream(name, cohort, stream, state_rows, np.zeros_like(cohort.numbers))

    def portions(self, ledger: Ledger) -> Iterator[ResultsByQuery]:
        """All results of some queries; then only `stream.steps` has results."""
        made = self.stream.portions()
        while True:
            with ledger.timed(self.name):
                portion = next(made, None)
            if portion is None:
                return
            self.taken[np.searchsorted(self.cohort.numbers, portion.numbers)] += portion.rows
            yield portion

    def left(self) -> tuple[Mapping[str, Step], Sequence[int], Sequence[int]]:
        """The step of each query with the results that were not taken, and by query the rows of its state and those that were taken."""
        return self.stream.steps(), self.state_rows, self.taken.tolist()

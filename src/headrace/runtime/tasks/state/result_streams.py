"""Results of a cohort that are made as they are written, those of some queries at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.pane_queries import PaneStream
from headrace.runtime.results.time_merge import by_instant
from headrace.runtime.tasks.timing import Ledger

NONE_TAKEN: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class ResultStream:
    """The results of a cohort of the state `name`; `state_rows` are those that each query stores."""

    name: str
    cohort: Cohort
    stream: PaneStream
    state_rows: Sequence[int]
    taken: Counter[str] = field(default_factory=Counter)
    """Rows that were taken, by operator."""

    def portions(self, ledger: Ledger) -> Iterator[dict[str, Step]]:
        """All results of some queries, each in the order of instants; then only `stream.steps` has results."""
        made = self.stream.portions()
        while True:
            with ledger.timed(self.name):
                portion = next(made, None)
                if portion is None:
                    return
                portion = {query: _ordered(step) for query, step in portion.items()}
            for query, step in portion.items():
                self.taken[query] += 0 if step.results is None else step.results.num_rows
            yield portion


def _ordered(step: Step) -> Step:
    if step.instants is not None or step.results is None:
        return step
    return replace(step, results=by_instant(step.results))

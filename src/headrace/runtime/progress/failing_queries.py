"""Decisions on operators that fail in an epoch: they are isolated and tried again, then left out of it, and after several
such epochs their queries are suspended.

Operators that fail together are isolated and tried again, on small batches, in the same epoch. One that fails in isolation
is left out: its progress does not change, and it reads the missed rows from the archive, by itself. After `ATTEMPTS`
epochs without it its query is suspended, with the reason; at the end of a stream at once, since no further epoch follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.operators.base.query_failures import QueryFailure
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import Participants, StateReceipt
from headrace.runtime.plan import derived_streams

ATTEMPTS: Final = 3
"""Epochs in a row in which an operator may fail before its query is suspended."""
FAILED_ROWS: Final = "rejected"
"""In a manifest's facts: how many rows each operator has failed on. Those with a list `failures:…` are among them."""


def failures_of(receipts: Iterable[StateReceipt]) -> dict[str, QueryFailure]:
    """Operators that failed in any task of an epoch."""
    failures: dict[str, QueryFailure] = {}
    for receipt in receipts:
        for name, failure in receipt.failures.items():
            if name not in failures or failure.isolated:
                failures[name] = failure
    return failures


@dataclass(slots=True)
class FailingQueries:
    """How often operators failed in a row, and which of their queries are to be suspended."""

    attempts: dict[str, int] = field(default_factory=dict)
    due: dict[str, str] = field(default_factory=dict)
    """Operators that failed too often, with the reason."""

    def copy(self) -> FailingQueries:
        """The same, which does not change with these."""
        return FailingQueries(dict(self.attempts), dict(self.due))

    def without(self, work: EpochWork, failed: Mapping[str, QueryFailure]) -> EpochWork:
        """The rest of an epoch's work; operators that failed together are isolated first."""
        isolated = {name: failure for name, failure in failed.items() if failure.isolated}
        if not isolated:
            return replace(work, isolated=work.isolated | failed.keys())
        left = work.operators.without(isolated)
        if work.kind == "fill":  # panes are copied once: these operators read the archive instead
            of_others = [
                (split, weight)
                for split, weight in work.splits
                if split.pane_backfill is not None and split.pane_backfill.new_operator in left
            ]
            return replace(work, operators=left, splits=tuple(of_others))
        for name, failure in isolated.items():
            self.attempts[name] = self.attempts.get(name, 0) + 1
            if work.final or self.attempts[name] >= ATTEMPTS:
                self.due[name] = failure.reason
        splits = work.splits if left.named or not work.is_replay else ()
        return replace(work, operators=left, splits=splits)

    def succeeded(self, operators: Participants) -> None:
        """Reset the count of operators that took part in an epoch."""
        for name in [name for name in self.attempts if name in operators]:
            del self.attempts[name]

    def entries(self, catalog: Catalog) -> list[dict[str, str]]:
        """Entries of the query log that suspend the queries that are due."""
        if not self.due:
            return []
        due, self.due = self.due, {}
        reasons = {derived_streams.owner_of(name): reason for name, reason in due.items()}
        for name in due:
            self.attempts.pop(name, None)
        return [
            {"do": "pause", "name": query.definition.name, "reason": reason}
            for query in catalog.queries.values()
            if not query.definition.paused
            for reason in (reasons.get(query.operator_id), reasons.get(query.definition.join))
            if reason is not None
        ]

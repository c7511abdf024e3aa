"""Operators that could not do their part of an epoch: left out of it, tried again, and suspended when that does not help.

An operator that fails together with others is tried separately, on small batches, in the same epoch. One that fails separately
is left out: it stays where it was, is behind, and reads what it has missed from the archive, by itself. After `ATTEMPTS`
epochs without it its query is suspended, with the reason; at the end of a stream at once, since no further epoch follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.catalog.catalog import Catalog
from headrace.errors import EpochFailed
from headrace.operators.base.query_failures import QueryFailure
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan import derived_streams

ATTEMPTS: Final = 3
"""Epochs in a row in which an operator may fail before its query is suspended."""


def failures_of(receipts: Iterable[StateReceipt]) -> dict[str, QueryFailure]:
    """Operators that failed in any task of an epoch."""
    found: dict[str, QueryFailure] = {}
    for receipt in receipts:
        for name, failure in receipt.failures.items():
            if name not in found or failure.separate:
                found[name] = failure
    return found


@dataclass(slots=True)
class FailingQueries:
    """How often operators have failed in a row, and which queries are to be suspended."""

    attempts: dict[str, int] = field(default_factory=dict)
    due: dict[str, str] = field(default_factory=dict)
    """Operators that have failed too often, and why."""

    def without(self, work: EpochWork, failed: Mapping[str, QueryFailure]) -> EpochWork:
        """The work that is left of an epoch; what failed together with others is tried separately first."""
        separate = {name: failure for name, failure in failed.items() if failure.separate}
        if not separate:
            return replace(work, separate=work.separate | failed.keys())
        if work.kind == "fill":  # what a donor holds is handed over once, or the query never has it
            name, failure = next(iter(separate.items()))
            raise EpochFailed(f"{name} cannot take over panes: {failure.reason}", lasting=True)
        for name, failure in separate.items():
            self.attempts[name] = self.attempts.get(name, 0) + 1
            if work.final or self.attempts[name] >= ATTEMPTS:
                self.due[name] = failure.reason
        left = tuple(name for name in work.operators if name not in separate)
        splits = work.splits if left or not work.is_replay else ()
        return replace(work, operators=left, splits=splits)

    def succeeded(self, operators: Sequence[str]) -> None:
        """Forget the failures of operators that took part in an epoch."""
        if self.attempts:
            for name in operators:
                self.attempts.pop(name, None)

    def entries(self, catalog: Catalog) -> list[dict[str, str]]:
        """What suspends the queries that are due, as entries of the query log; after that none is."""
        due, self.due = self.due, {}
        owners = {derived_streams.owner_of(name): reason for name, reason in due.items()}
        for name in due:
            self.attempts.pop(name, None)
        return [
            {"do": "pause", "name": query.definition.name, "reason": owners[query.operator_id]}
            for query in catalog.queries.values()
            if query.operator_id in owners and not query.definition.paused
        ]

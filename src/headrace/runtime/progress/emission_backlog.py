"""The emission backlog: operators with closed windows not yet emitted, and when they get an epoch.

Punctuation may close more windows of an operator than one epoch can emit. In epochs that read rows such an operator takes
its rows and emits nothing; epochs between, without rows, emit its windows. So it delays neither other queries nor the
input, and its progress is in the manifest like every other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.dataclass import dataclass
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.repair_ledger import ledgers
from headrace.runtime.messages.task_messages import Participants
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant


def held_back(plan: EpochPlan, manifest: Manifest) -> dict[str, Instant]:
    """Operators whose readers want exact answers alone, and of which rows wait for repair: the instant up to which all rows are there."""
    if not plan.settling:
        return {}
    waiting = ((name, ledger) for name, ledger in ledgers(manifest).items() if ledger.waits)
    return {name: ledger.since for name, ledger in waiting if name in plan.settling}


def emission_backlog(operators: Iterable[str], plan: EpochPlan, manifest: Manifest) -> dict[str, Instant]:
    """Operators that have read all input but not emitted up to its punctuation, with the instant up to which they have.

    One that follows its stream has emitted all, and one that waits for the repair of rows what it can.
    """
    held = held_back(plan, manifest)
    return {
        name: emitted_to
        for name in operators
        if ((emitted_to := manifest.operator(name).emitted_to) > BEGINNING or name in plan.settling)
        and emitted_to
        < min(manifest.stream(plan.operators[name].stream).punctuation, held.get(name, FOREVER))
    }


@dataclass(slots=True)
class BacklogSchedule:
    """Alternates: every other epoch emits the backlog."""

    _due: bool = True

    def next_epoch(self, backlog: Mapping[str, Instant]) -> EpochWork | None:
        """The epoch that emits, when it is due."""
        return self.epoch_now(backlog) if self._due else None

    @staticmethod
    def epoch_now(backlog: Mapping[str, Instant]) -> EpochWork | None:
        """The epoch that emits, due or not."""
        return EpochWork("tick", operators=Participants(frozenset(backlog))) if backlog else None

    def chosen(self, work: EpochWork | None) -> None:
        """Record which epoch was chosen."""
        self._due = work is None or work.kind != "tick" or bool(work.min_punctuations)

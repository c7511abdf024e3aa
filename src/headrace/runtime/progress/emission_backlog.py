"""Who has more to tell than one epoch could hold, and whose turn is it: theirs, or new rows'?

Such an operator stands behind its stream's punctuation. In epochs that read rows it takes its rows in and tells nothing;
epochs between, without rows, take it further. So it neither holds up other queries nor the input, and survives a kill like
everything that a manifest says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


def emission_backlog(operators: Iterable[str], plan: EpochPlan, manifest: Manifest) -> dict[str, Instant]:
    """Of operators that have read all there is, those that have not told all that punctuation lets them, and how far they are."""
    promised = {name: manifest.stream(name).punctuation for name in plan.streams}
    places = manifest.operators
    return {
        name: closed
        for name in operators
        if BEGINNING < (closed := places[name].emitted_to) < promised[plan.operators[name].stream]
    }


@dataclass(slots=True)
class BacklogSchedule:
    """Takes turns: an epoch that tells after every other one."""

    _due: bool = True

    def next_epoch(self, backlog: Mapping[str, Instant]) -> EpochWork | None:
        """The epoch that tells, when it is its turn."""
        return self.epoch_now(backlog) if self._due else None

    @staticmethod
    def epoch_now(backlog: Mapping[str, Instant]) -> EpochWork | None:
        """The same whoever's turn it is."""
        return EpochWork("tick", operators=tuple(backlog)) if backlog else None

    def chosen(self, work: EpochWork | None) -> None:
        """Which epoch was chosen."""
        self._due = work is None or work.kind != "tick" or bool(work.min_punctuations)

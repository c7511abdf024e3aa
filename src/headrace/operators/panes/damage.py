"""The damage of a query WITH SHEDDING (repair), around an epoch: between which event times it was answered from samples, how far
that is repaired, and which of its windows are to be answered again.

Event times suffice to tell what is repaired: rows are repaired in the order of the epochs that read them, and no row of an epoch that
is not late is below the punctuation with which the epoch began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.time import BEGINNING, FOREVER, Instant


@dataclass(frozen=True, slots=True)
class Damage:
    """All rows below `before` were exact when the epoch began, all below `since` are after it: read whole, repaired, or given up.

    No row above `until` was shed. Rows up to `lost_to` are in an archive no more: their estimates stay. `number` counts the times
    at which rows were shed after all had been repaired. `is_repair`: the epoch reads rows of the archive to repair.
    """

    number: int = 0
    before: Instant = FOREVER
    since: Instant = FOREVER
    until: Instant = BEGINNING
    lost_to: Instant = BEGINNING
    is_repair: bool = False

    @property
    def is_none(self) -> bool:
        """Whether all was exact before the epoch and is after it."""
        return self.before == self.since == FOREVER

    def repaired(self, panes: Panes, emitted_to: Instant) -> range:
        """The windows that were emitted from samples, are exact after the epoch, and were not before it."""
        first = max(closed_at(panes, self.before), last_holding(panes, self.lost_to)) + 1
        last = min(
            closed_at(panes, emitted_to), closed_at(panes, self.since), last_holding(panes, self.until)
        )
        return range(first, max(first, last + 1))

    def lost(self, panes: Panes) -> range:
        """The windows whose samples can be repaired no more, and no other epoch has counted."""
        first = closed_at(panes, self.before) + 1
        last = min(closed_at(panes, self.since), last_holding(panes, self.lost_to))
        return range(first, max(first, last + 1))

    def doubtful(self, panes: Panes) -> range:
        """The windows that may hold a sample after the epoch, emitted or not."""
        first = closed_at(panes, self.since) + 1
        return range(first, max(first, last_holding(panes, self.until) + 1))


NO_DAMAGE: Final = Damage()


def pane_at(panes: Panes, at: Instant) -> int:
    """The first pane that is not wholly below an instant, also of the beginning and the end of time."""
    if at in (BEGINNING, FOREVER):
        return LOWEST if at == BEGINNING else HIGHEST
    return panes.of_instant(at)


def closed_at(panes: Panes, at: Instant) -> int:
    """The greatest window that ends at or before an instant, also of the beginning and the end of time."""
    if at in (BEGINNING, FOREVER):
        return LOWEST if at == BEGINNING else HIGHEST
    return panes.last_closed(at)


def last_holding(panes: Panes, at: Instant) -> int:
    """The last window that may hold a row of an instant's pane."""
    if at in (BEGINNING, FOREVER):
        return LOWEST if at == BEGINNING else HIGHEST
    last = panes.last_window(panes.of_instant(at))
    return HIGHEST if last is None else last

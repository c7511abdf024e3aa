"""The damage of a query WITH SHEDDING (repair), around an epoch: between which event times it was answered from samples, how far
that is repaired, and which of its windows are to be answered again.

Event times suffice to know what is repaired: rows are repaired in the order of the epochs that read them, and no row of an epoch that
is not late is below the punctuation with which the epoch began.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Windows
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.time import BEGINNING, FOREVER, Instant

Span: TypeAlias = tuple[Instant, Instant]
"""The least and the greatest event time of rows of which some were shed, at most."""


@dataclass(frozen=True, slots=True)
class Damage:
    """All rows below `before` were exact when the epoch began, all below `since` are after it: read whole, repaired, or given up.

    Rows were shed within `spans` alone, which are disjoint and ascending. Rows up to `lost_to` are in an archive no more: their estimates
    stay. `number` counts the times at which rows were shed after all had been repaired. `is_repair`: the epoch reads rows of the
    archive to repair.
    """

    number: int = 0
    before: Instant = FOREVER
    since: Instant = FOREVER
    spans: tuple[Span, ...] = ()
    lost_to: Instant = BEGINNING
    is_repair: bool = False

    @property
    def is_none(self) -> bool:
        """Whether all was exact before the epoch and is after it."""
        return self.before == self.since == FOREVER

    def repaired(self, panes: Panes, emitted_to: Instant) -> Windows:
        """The windows that were emitted from samples, are exact after the epoch, and were not before it."""
        first = max(closed_at(panes, self.before), last_holding(panes, self.lost_to)) + 1
        return self._among(panes, first, min(closed_at(panes, emitted_to), closed_at(panes, self.since)))

    def lost(self, panes: Panes, emitted_to: Instant) -> Windows:
        """The windows whose samples can be repaired no more, and no other epoch has counted; of landmark windows those up to an instant."""
        last = min(closed_at(panes, self.since), last_holding(panes, self.lost_to))
        last = last if panes.back is not None else min(last, closed_at(panes, emitted_to))
        return self._among(panes, closed_at(panes, self.before) + 1, last)

    def doubtful(self, panes: Panes, emitted_to: Instant = FOREVER) -> Windows:
        """The windows up to an instant that may hold a sample after the epoch."""
        return self._among(panes, closed_at(panes, self.since) + 1, closed_at(panes, emitted_to))

    def _among(self, panes: Panes, first: int, last: int) -> Windows:
        """The windows from one to another that hold panes of the spans."""
        ranges: list[range] = []
        for low, high in self.spans:
            start = max(first, panes.first_window(pane_at(panes, low)), ranges[-1].stop if ranges else first)
            stop = min(last, last_holding(panes, high)) + 1
            ranges += [range(start, stop)] if start < stop else []
        return tuple(ranges)


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

"""An aggregation of two levels whose first has a table of fixed size, and three ways to empty that table.

The lower level of a split aggregation (Gigascope's) has a slot for each hash value and no more; an entry in the slot of
another group is sent up as a partial, and the upper level adds partials of a (window, group). When a window
ends its entries have to go. Doing so at once stops the intake, so they go a few at a time (*workload smoothing*).
Source: Li, Window Queries over Data Streams (2008), section 8.4.3, figure 8-6 as repaired; `printed` is the figure itself.
The pipeline's own two levels, partials of a scan task and state by slot, keep every group: here are the bounds it does
without, as something to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as Choice

Flush = Choice["in order", "slow", "lazy"]
Sent = tuple[int, int, int]
"""Window, group, count."""


@dataclass(slots=True)
class FirstLevel:
    """A table of `size` slots that counts rows by (window, group), for rows whose windows never go back.

    `flush`: "in order" sends one old entry a row and all of them before anything new may leave; "slow" one old entry every
    `every` rows; "lazy" none but those that collide. Of the last two no entry stays longer than `most` windows.
    `sent`: what has gone up; `complete`: windows below it have no entry here any more.
    """

    size: int
    flush: Flush
    every: int = 1
    most: int = 2
    printed: bool = False
    sent: list[Sent] = field(default_factory=list)
    complete: int = 0
    _slots: list[list[int] | None] = field(default_factory=list)
    _window: int = 0
    _old: int = 0
    _pos: int = 0
    _rows: int = 0
    _cleared: int = 0

    def __post_init__(self) -> None:
        self._slots = [None] * self.size

    def row(self, window: int, group: int) -> int:
        """Take a row; how many entries were sent up for it."""
        before = len(self.sent)
        if window > self._window:
            self._turn(window)
        if self.flush == "in order":
            self._next_old()
        elif self.flush == "slow":
            self._rows += 1
            if self._rows % self.every == 0:
                self._next_old()
        else:
            self._check()
        self._put(window, group)
        return len(self.sent) - before

    def end(self) -> None:
        """Send up all there is."""
        for slot in range(self.size):
            self._send(slot)
        self.complete = self._window + 1

    def held(self) -> list[int]:
        """The windows of the entries in the table."""
        return [entry[0] for entry in self._slots if entry is not None]

    def _turn(self, window: int) -> None:
        """The first row of a window: what was new is old now."""
        if self.printed:
            self._window = window
            return
        if self.flush == "in order":
            self._all_old()
        self._window, self._old, self._pos = window, window, 0
        for slot, entry in enumerate(self._slots):
            if entry is not None and (
                entry[0] <= window - self.most or (self.flush == "in order" and entry[0] < window - 1)
            ):
                self._send(slot)
        self.complete = max(self.complete, window - self.most + 1)

    def _is_old(self, entry: list[int]) -> bool:
        return entry[0] < self._old

    def _next_old(self) -> None:
        """Send the next old entry, where there is one; behind the last slot all old ones have gone."""
        if self.printed:  # stops at the first slot that is not old, and stays there
            entry = self._slots[self._pos] if self._pos < self.size else None
            if entry is not None and self._is_old(entry):
                self._send(self._pos)
                self._pos += 1
            return
        while self._pos < self.size:
            entry = self._slots[self._pos]
            self._pos += 1
            if entry is not None and self._is_old(entry):
                self._send(self._pos - 1)
                break
        if self._pos >= self.size:
            self.complete = max(self.complete, self._old)

    def _all_old(self) -> None:
        while self._pos < self.size:
            self._next_old()

    def _check(self) -> None:
        """Check a few slots for entries that have nearly stayed too long."""
        entry = self._slots[self._cleared]
        if entry is not None and entry[0] <= self._window - self.most + 1 < self._window:
            self._send(self._cleared)
        self._cleared = (self._cleared + 1) % self.size

    def _put(self, window: int, group: int) -> None:
        slot = (group * 2_654_435_761 % (1 << 32)) % self.size
        entry = self._slots[slot]
        if entry is None:
            self._slots[slot] = [window, group, 1]
        elif entry[1] == group and (self.printed or entry[0] == window):
            entry[2] += 1
        else:
            if self.flush == "in order" and not self._is_old(entry):
                self._all_old()  # else a new window's entry would leave before an old one's
            self._send(slot)
            self._slots[slot] = [window, group, 1]

    def _send(self, slot: int) -> None:
        entry = self._slots[slot]
        if entry is not None:
            self.sent.append((entry[0], entry[1], entry[2]))
            self._slots[slot] = None


def rolled_up(sent: list[Sent]) -> dict[tuple[int, int], int]:
    """The upper level: the counts of all (window, group)."""
    counts: dict[tuple[int, int], int] = {}
    for window, group, count in sent:
        counts[window, group] = counts.get((window, group), 0) + count
    return counts

"""Panes: the largest intervals of which every window of a sequence is made; the arithmetic of instants, panes and
windows.

A window's bounds are on two combs, its starts and its ends. If the slide divides the range the combs coincide and there
is one pane per slide; else there are two per slide, whatever the range is (paired windows, Krishnamurthy et al. 2006, a
coarser cut than the gcd of Li 2008, section 6.3). Window i is then always the panes `[first(i), stop(i))`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.dataclass import dataclass
from headrace.operators.base.batch import EventTimes
from headrace.operators.base.group_codes import Ints
from headrace.time import Duration, Instant, render_duration

LOWEST: Final = -(1 << 55)
"""Below every pane: block keys hold no smaller number."""
HIGHEST: Final = 1 << 55
"""Above every pane."""


@dataclass(frozen=True, slots=True)
class Panes:
    """How instants map to pane numbers, and panes to windows. Pane 0 begins at the anchor; numbers may be negative.

    `cut` is where, after each end, a window starts: 0 if the combs coincide. `back` is the slides of a window, None for
    a landmark window, which has no first pane.
    """

    slide: Duration
    anchor: Instant
    cut: Duration
    back: int | None
    """ceil(range / slide); None for a landmark."""

    @staticmethod
    def of(window: TimeSlide | Landmark) -> Panes:
        """The panes of a window sequence."""
        if isinstance(window, Landmark):
            return Panes(window.slide, window.anchor, 0, None)
        return Panes(
            window.slide, window.anchor, -window.range % window.slide, -(-window.range // window.slide)
        )

    def display(self) -> Iterator[str]:
        """As EXPLAIN shows it among an operator's settings."""
        yield f"a window ends every {render_duration(self.slide)}"

    @property
    def grid(self) -> tuple[Duration, Instant, Duration]:
        """What panes and the ends of windows depend on: windows with equal grids differ only in their lengths."""
        return self.slide, self.anchor, self.cut

    @property
    def per_slide(self) -> int:
        """Panes in one slide: 1 or 2."""
        return 2 if self.cut else 1

    @property
    def per_window(self) -> int | None:
        """Panes in one window; None for a landmark."""
        if self.back is None:
            return None
        return self.per_slide * self.back - (1 if self.cut else 0)

    @property
    def has_gaps(self) -> bool:
        """True when slide > range: even panes belong to no window."""
        return self.back == 1 and self.cut > 0

    def of_instants(self, at: Ints) -> Ints:
        """The pane of each instant."""
        offset = at - self.anchor
        advance = offset // self.slide
        if not self.cut:
            return advance
        return 2 * advance + (offset - advance * self.slide >= self.cut)

    def of_times(self, times: EventTimes) -> Ints:
        """The pane of each row: without reading the instants where all are in one pane."""
        pane = self.holding_all(times)
        return (
            self.of_instants(times.instants) if pane is None else np.broadcast_to(np.int64(pane), times.rows)
        )

    def holding_all(self, times: EventTimes) -> int | None:
        """The pane that holds both bounds, and so all rows; None if there are two, or no rows."""
        if not times.rows:
            return None
        first, last = map(self.of_instant, times.bounds)
        return first if first == last else None

    def starts(self, panes: Ints) -> Ints:
        """The first instant of each pane."""
        if not self.cut:
            return self.anchor + panes * self.slide
        return self.anchor + (panes >> 1) * self.slide + (panes & 1) * self.cut

    def of_instant(self, at: Instant) -> int:
        """The pane that holds `at`; every pane below it has ended at or before `at`."""
        advance, offset = divmod(at - self.anchor, self.slide)
        return 2 * advance + (offset >= self.cut) if self.cut else advance

    def first(self, window: int) -> int | None:
        """The first pane of a window; None for a landmark."""
        if self.back is None:
            return None
        return self.per_slide * (window - self.back) + (1 if self.cut else 0)

    def stop(self, window: int) -> int:
        """One past the last pane of a window."""
        return self.per_slide * window

    def last_closed(self, punctuation: Instant) -> int:
        """The greatest window whose end is at or before the punctuation."""
        return (punctuation - self.anchor) // self.slide

    def end_of(self, window: int) -> Instant:
        """The end of a window: the least punctuation that closes it."""
        return self.anchor + window * self.slide

    def first_window(self, pane: int) -> int:
        """The first window that holds the pane or ends after it."""
        return pane // self.per_slide + 1

    def last_window(self, pane: int) -> int | None:
        """The last window that holds the pane (or begins before it); None for a landmark, where there is none."""
        if self.back is None:
            return None
        return (pane - (1 if self.cut else 0)) // self.per_slide + self.back

    def holding(self, panes: Ints, closed: int) -> tuple[range, ...]:
        """The windows up to `closed` that hold one of the panes, as disjoint ranges."""
        distinct = np.unique(panes)
        ranges: list[range] = []
        for pane in distinct.tolist():
            last = self.last_window(pane)
            stop = closed + 1 if last is None else min(last, closed) + 1
            start = max(self.first_window(pane), ranges[-1].stop if ranges else self.first_window(pane))
            if start < stop:
                joins_previous = ranges and ranges[-1].stop == start
                ranges[-1:] = (
                    [range(ranges[-1].start, stop)] if joins_previous else [*ranges[-1:], range(start, stop)]
                )
        return tuple(ranges)

    def window_bounds(self, windows: Ints, range_: Duration | Ints | None) -> tuple[Ints, Ints]:
        """Starts and ends of windows, in microseconds; `range_` is of all or of each."""
        ends = self.anchor + windows * self.slide
        if range_ is None:
            return np.full(len(windows), np.iinfo(np.int64).min), ends
        return ends - range_, ends

"""AdaptWID: windows whose groups keep rows or partials, chosen for each group while the stream runs.

A group of few rows is smaller as its rows (*lazy*) than as a partial for each open window (*eager*). A group starts lazy, is
folded when its live rows pass a threshold, and goes back when they fall clearly below it (hysteresis). Going back cannot bring
rows back: what was folded stays until it is emitted, besides the rows that arrive meanwhile, and both are merged.
Source: Li, Window Queries over Data Streams (2008), section 6.4; the threshold is 6.9 with counted live rows, without the
sum of offsets that they contain already, and the duration of a window counted from the low watermark at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from typing import Literal as Choice

import numpy as np

from headrace.algebra.windows.window import TimeSlide
from headrace.operators.base.group_codes import Ints, compact
from headrace.operators.partials.partial import Argument, Cells, Column, Partial, concatenate
from headrace.time import Duration, Instant

_DOWN: Final = 0.8
_NUMBER: Final = 8
_NOTHING: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Buffered:
    """Rows at rest: of each its group, instant and value."""

    group: Ints
    at: Ints
    value: Column

    def where(self, chosen: np.ndarray) -> Buffered:
        """Some of the rows."""
        return Buffered(self.group[chosen], self.at[chosen], self.value[chosen])

    def beside(self, other: Buffered) -> Buffered:
        """These rows and others."""
        pairs = zip((self.group, self.at, self.value), (other.group, other.at, other.value), strict=True)
        return Buffered(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, slots=True)
class Folded:
    """Partials at rest, one entry a group and window. `ending` counts the rows for which the window is the last."""

    group: Ints
    window: Ints
    ending: Ints
    cells: tuple[Cells, ...]

    def where(self, chosen: np.ndarray) -> Folded:
        """Some of the entries."""
        cells = tuple(tuple(part[chosen] for part in columns) for columns in self.cells)
        return Folded(self.group[chosen], self.window[chosen], self.ending[chosen], cells)


@dataclass(frozen=True, slots=True)
class Effort:
    """What was done, in rows and entries: the same on every machine.

    `combined`: rows into windows; `buffered`: rows put aside; `created`: entries made; `emitted`: entries and rows read to answer.
    """

    combined: int = 0
    buffered: int = 0
    created: int = 0
    emitted: int = 0

    def plus(self, other: Effort) -> Effort:
        """The sum."""
        return Effort(
            self.combined + other.combined,
            self.buffered + other.buffered,
            self.created + other.created,
            self.emitted + other.emitted,
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """The state: rows of lazy groups, partials of eager ones, and which groups go from eager to lazy.

    `answered`: the greatest window that was; `greatest`: the greatest instant seen; `duration`: how long a window lives.
    """

    buffer: Buffered
    folded: Folded
    leaving: Ints
    answered: int
    greatest: Instant
    duration: Duration
    effort: Effort = Effort()


@dataclass(frozen=True, slots=True)
class AdaptiveWid:
    """Aggregates of one integer or double by an integer group, over windows of time.

    `way`: `lazy` and `eager` never switch; they are what adaptation is measured against.
    """

    window: TimeSlide
    partials: tuple[Partial, ...]
    way: Choice["adaptive", "eager", "lazy"] = "adaptive"

    @property
    def row_bytes(self) -> int:
        """Of a row at rest."""
        return 3 * _NUMBER

    @property
    def entry_bytes(self) -> int:
        """Of a partial at rest with its group and window."""
        return _NUMBER * (3 + sum(partial.width for partial in self.partials))

    def state_bytes(self, groups: Groups) -> int:
        """What the state takes."""
        entries, rows = len(groups.folded.group), len(groups.buffer.group)
        return entries * self.entry_bytes + rows * self.row_bytes + _NUMBER * len(groups.leaving)

    def start(self) -> Groups:
        """Before any row."""
        empty = tuple(partial.identity((0,)) for partial in self.partials)
        value = np.empty(0, np.int64)
        lowest = int(np.iinfo(np.int64).min) // 4
        return Groups(
            Buffered(_NOTHING, _NOTHING, value),
            Folded(_NOTHING, _NOTHING, _NOTHING, empty),
            _NOTHING,
            lowest,
            lowest,
            self.window.range,
        )

    def thresholds(self, groups: Groups) -> tuple[float, float]:
        """Live rows above which a group is folded, and below which its rows are kept again."""
        up = self.entry_bytes * groups.duration / (self.row_bytes * self.window.slide)
        return up, _DOWN * up

    def add(self, groups: Groups, rows: Buffered, up: float | None = None) -> Groups:
        """Take in rows, all at or above the punctuation; `up` replaces the threshold of the cost model."""
        groups = replace(groups, greatest=max(groups.greatest, int(rows.at.max(initial=groups.greatest))))
        first, last = self._bounds(rows.at, groups.answered)
        held = first <= last  # not so between windows, where the slide is longer than the range
        rows = rows if held.all() else rows.where(held)
        if self.way == "eager":
            return self._scan_group(groups, rows)
        eager = np.setdiff1d(groups.folded.group, groups.leaving)
        known = np.isin(rows.group, eager)
        aside = groups.buffer.beside(rows.where(~known))
        if self.way == "lazy":
            return self._keeping(groups, aside, len(groups.buffer.group))
        limit = self.thresholds(groups)[0] if up is None else up
        volume, where = _volumes(aside.group, groups.folded)
        grown = volume[where] > limit
        switched = aside.where(grown)
        before = np.flatnonzero(~grown) < len(groups.buffer.group)
        groups = self._keeping(groups, aside.where(~grown), int(before.sum()))
        groups = replace(groups, leaving=np.setdiff1d(groups.leaving, switched.group))
        return self._scan_group(groups, rows.where(known).beside(switched))

    def close(self, groups: Groups, punctuation: Instant, down: float | None = None) -> tuple[Groups, Folded]:
        """Answer the windows that end at or before the punctuation; `down` replaces the threshold of the cost model."""
        now = (punctuation - self.window.anchor) // self.window.slide
        if now <= groups.answered:
            return groups, groups.folded.where(np.zeros(len(groups.folded.group), bool))
        due = groups.folded.window <= now
        late, combined = self._folded(groups.buffer, groups.answered, now)
        emitted = self._merged([groups.folded.where(due), late])
        emissions = int(due.sum()) + combined
        folded = groups.folded.where(~due)
        buffer = groups.buffer.where(self._bounds(groups.buffer.at, now)[1] > now)
        oldest = self.window.anchor + now * self.window.slide - self.window.range
        lived = max(self.window.range, groups.greatest - oldest)
        groups = replace(
            groups,
            folded=folded,
            buffer=buffer,
            answered=now,
            duration=lived,
            effort=groups.effort.plus(Effort(combined=combined, emitted=emissions)),
        )
        return self._leaving(groups, down), emitted

    def _leaving(self, groups: Groups, down: float | None) -> Groups:
        """Eager groups of few live rows keep their rows from now on."""
        if self.way != "adaptive":
            return groups
        index, names = _numbered(groups.folded.group)
        live = np.bincount(index, groups.folded.ending, minlength=len(names))
        small = names[live < (self.thresholds(groups)[1] if down is None else down)]
        still = np.intersect1d(groups.leaving, names)
        return replace(groups, leaving=np.union1d(still, small))

    def _bounds(self, at: Ints, answered: int) -> tuple[Ints, Ints]:
        """The first window to come and the last window of each row."""
        since = at - self.window.anchor
        first = np.maximum(since // self.window.slide + 1, answered + 1)
        return first, (since + self.window.range) // self.window.slide

    def _keeping(self, groups: Groups, buffer: Buffered, before: int) -> Groups:
        put = Effort(buffered=len(buffer.group) - before)
        return replace(groups, buffer=buffer, effort=groups.effort.plus(put))

    def _scan_group(self, groups: Groups, rows: Buffered) -> Groups:
        if not len(rows.group):
            return groups
        fresh, combined = self._folded(rows, groups.answered, None)
        folded = self._merged([groups.folded, fresh])
        created = len(folded.group) - len(groups.folded.group)
        effort = groups.effort.plus(Effort(combined=combined, created=created))
        return replace(groups, folded=folded, effort=effort)

    def _folded(self, rows: Buffered, answered: int, upto: int | None) -> tuple[Folded, int]:
        """Rows as partials of their windows after `answered`, and how many combinations that took."""
        first, last = self._bounds(rows.at, answered)
        stop = last if upto is None else np.minimum(last, upto)
        copies = np.maximum(stop - first + 1, 0)
        source = np.repeat(np.arange(len(first)), copies)
        begin = np.repeat(np.cumsum(copies) - copies, copies)
        window = np.arange(len(source)) - begin + first[source]
        codes, group, number = _pairs(rows.group[source], window)
        argument = Argument(rows.value[source], None)
        cells = tuple(partial.lift(argument, codes, len(group)) for partial in self.partials)
        ending = np.bincount(codes, window == last[source], minlength=len(group)).astype(np.int64)
        return Folded(group, number, ending, cells), len(source)

    def _merged(self, parts: Sequence[Folded]) -> Folded:
        """One entry a group and window."""
        whole = [
            np.concatenate([getattr(part, name) for part in parts]) for name in ("group", "window", "ending")
        ]
        codes, group, window = _pairs(whole[0], whole[1])
        ending = np.bincount(codes, whole[2], minlength=len(group)).astype(np.int64)
        cells = tuple(
            partial.reduce(concatenate([part.cells[index] for part in parts], partial), codes, len(group))
            for index, partial in enumerate(self.partials)
        )
        return Folded(group, window, ending, cells)


def _pairs(group: Ints, window: Ints) -> tuple[Ints, Ints, Ints]:
    """Codes of (group, window) pairs, and the group and window of each code."""
    index, names = _numbered(group)
    low = int(window.min(initial=0))
    span = int(window.max(initial=0)) - low + 1
    codes, live = compact(index * span + (window - low), len(names) * span)
    return codes, names[live // span], live % span + low


def _numbered(group: Ints) -> tuple[Ints, Ints]:
    """The place of each group among the distinct ones, and these; without sorting where they are close."""
    if not len(group):
        return group, group
    low = int(group.min())
    codes, live = compact(group - low, int(group.max()) - low + 1)
    return codes, live + low


def _volumes(group: Ints, folded: Folded) -> tuple[Ints, Ints]:
    """Live rows of each distinct group, rows and folded together, and where each of `group` is among them."""
    index, names = _numbered(np.concatenate([group, folded.group]))
    weight = np.concatenate([np.ones(len(group), np.int64), folded.ending])
    return np.bincount(index, weight, minlength=len(names)), index[: len(group)]

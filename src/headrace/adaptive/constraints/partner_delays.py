"""Bounds on how long rows of one side of a join wait for their partners on another, found from the delays of pairs that were joined; and
bounds within which the rows of a side are clustered, or ordered, by key, found from the distances of rows.

The largest delay of the newest pairs is k. A bound is k with some room, is lowered after a window of pairs, and is given up at once
when a pair exceeds it: then whole windows are stored until a new one is found. Delays are differences of event times.
Source: Babu (2005), sections 6.5 to 6.8 (three constraints and their monitors), with event time in place of arrival counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias
from typing import Literal as Choice

import numpy as np
import numpy.typing as npt

from headrace.adaptive.constraints.newest_delays import NewestDelays
from headrace.dataclass import dataclass
from headrace.time import BEGINNING, Duration, Instant

Ints: TypeAlias = npt.NDArray[np.int64]
UNBOUNDED: Final = 1 << 61
"""A delay in event time beyond all others; two of them have a sum."""
WINDOW: Final = 1000
"""Pairs of which k is the largest delay: the thesis' W."""
REACH: Final = 1.2
"""How far beyond k a bound is, as a factor: the thesis' c. Delays up to it raise k, and lose nothing."""
EPOCHS: Final = 8
"""Epochs with pairs before a bound is trusted, as the pairs of one may be few bursts."""
_LOWER: Final = 0.8
"""The part of k below which a smaller one takes its place."""
_GAIN: Final = 0.75
"""The part of the longest window up to which a bound is used: a larger one would save little and risk as much."""
_DIGITS: Final = 2
"""Decimal digits of a bound, which is rounded up, so that it seldom changes."""
_BRIEF: Final = 1 / 8
"""The part of the longest window up to which a wait is brief: what else finishes rows saves no more."""
_FORMER: Final = 8
"""Former bounds that are remembered; of more, the oldest are taken together."""


@dataclass(frozen=True, slots=True)
class PartnerBound:
    """Rows of side `child` come at most `within` after the rows of side `parent` with which they are joined; None: no bound is in force.

    `k` is the largest delay by which it was found. `former` has (instant, within): rows of the parent before the instant waited no
    longer than that, since they may have been dropped when a longer bound came into force.
    Of another `kind` it is about one side, `parent` and `child`: its rows of one key come at most `within` after the first ("clustered"), or
    none has a smaller key than one more than `within` before it ("ordered"). "unique", no key comes twice, is proposed alone.
    """

    parent: int
    child: int
    within: Duration | None = None
    k: Duration | None = None
    former: tuple[tuple[Instant, Duration], ...] = ()
    kind: Choice["partner", "clustered", "ordered", "unique"] = "partner"

    def limits(self, at: Ints) -> Ints:
        """How long after rows of the parent at these instants the last row of the child is joined with them."""
        limits = np.full(len(at), UNBOUNDED if self.within is None else self.within)
        for before, within in self.former:
            limits = np.where(at < before, np.minimum(limits, within), limits)
        return limits


@dataclass(frozen=True, slots=True)
class Delays:
    """What one epoch showed of two sides: the number of pairs, the `largest` delay of the child, the event time of the `latest` pair, and the
    punctuations: that of the child, and the `least` of all sides. Of one side, the pairs are its rows, each with one before it.
    """

    pairs: int
    largest: Duration
    latest: Instant
    punctuation: Instant
    least: Instant


@dataclass(slots=True)
class DelayEstimate:
    """The bound of one ordered pair of sides, epoch by epoch. `window`: so many pairs are measured before it is found or lowered.

    Delays cannot exceed the time that was observed, so a bound is not trusted before that is twice as long as the bound. Of one side it has to be as
    long as the longest window: keys that come again after a while have no short distances before.
    """

    bound: PartnerBound
    window: int = WINDOW
    reach: float = REACH
    epochs: int = EPOCHS
    _newest: NewestDelays = field(default_factory=NewestDelays)
    """Of the epochs with pairs."""
    _since: Instant | None = None
    """The event time of the first pair that counts."""

    def observe(self, seen: Delays, longest: Duration | None) -> None:
        """Take in an epoch; `longest` is the longest window of the join, None without end."""
        within = self.bound.within
        largest = max(seen.largest, 0)
        if within is not None and largest > within:
            self._newest, self._since = NewestDelays(), seen.latest
            self._replace(None, None, seen)
        elif self._since is None:
            self._since = seen.latest
        self._newest.add(seen.pairs, largest)
        if self.bound.k is not None and largest > self.bound.k:
            self._use(largest, seen)
        elif self._is_trusted(seen.latest, longest):
            self._lower(seen, longest)
        self._expire(seen, longest)

    @property
    def measured(self) -> Duration:
        """The largest delay of the window."""
        return self._newest.largest

    def _is_trusted(self, latest: Instant, longest: Duration | None) -> bool:
        """Whether enough was measured; epochs beyond that no longer count."""
        newest = self._newest
        if newest.pairs < self.window or newest.epochs < self.epochs or self._since is None:
            return False
        while newest.epochs > self.epochs and newest.pairs - newest.oldest >= self.window:
            newest.leave_oldest()
        observed = latest - self._since
        if self.bound.kind != "partner" and (longest is None or observed < longest):
            return False
        return observed >= 2 * bound_after(self.measured, self.reach)

    def _lower(self, seen: Delays, longest: Duration | None) -> None:
        """Use the measured delay, if none is used or it is clearly smaller, and storing rows for so long would save enough."""
        k, within = self.measured, bound_after(self.measured, self.reach)
        is_lower = self.bound.k is None or k <= _LOWER * self.bound.k
        saves = longest is None or within <= _GAIN * longest
        if is_lower and saves and within != self.bound.within:
            self._use(k, seen)

    def _use(self, k: Duration, seen: Delays) -> None:
        self._replace(k, bound_after(k, self.reach), seen)

    def _replace(self, k: Duration | None, within: Duration | None, seen: Delays) -> None:
        """Another bound from the next epoch on; rows that the one before may have dropped stay bound by it."""
        before, former = self.bound.within, self.bound.former
        is_longer = before is not None and (within is None or within > before)
        concerns_pairs = is_longer and self.bound.kind == "partner"
        if concerns_pairs and before is not None and seen.punctuation > BEGINNING + before:
            former = (*former, (seen.punctuation - before, before))
        self.bound = replace(self.bound, within=within, k=k, former=_fewer(former))

    def _expire(self, seen: Delays, longest: Duration | None) -> None:
        """Remove former bounds of rows that are in no window any more."""
        if longest is not None and self.bound.former:
            former = tuple(entry for entry in self.bound.former if entry[0] + longest >= seen.least)
            self.bound = replace(self.bound, former=former)


def wait_briefly(bounds: Iterable[PartnerBound], side: int, sides: int, longest: Duration | None) -> bool:
    """Whether the rows of all other sides wait for a side for a small part of the window, by bounds on delays. What its keys finish is not asked then."""
    waits = {
        bound.parent: bound.within for bound in bounds if bound.kind == "partner" and bound.child == side
    }
    within = [waits.get(other) for other in range(sides) if other != side]
    return longest is not None and all(wait is not None and wait <= _BRIEF * longest for wait in within)


def bound_after(k: Duration, reach: float = REACH) -> Duration:
    """The bound for a largest delay: `reach` times as long, rounded up.

    >>> bound_after(0), bound_after(7), bound_after(15_000_000), bound_after(15_100_000)
    (0, 9, 18000000, 19000000)
    """
    bound = math.ceil(k * reach)
    step: int = 10 ** max(len(str(bound)) - _DIGITS, 0)
    return -(-bound // step) * step


def _fewer(former: Sequence[tuple[Instant, Duration]]) -> tuple[tuple[Instant, Duration], ...]:
    """At most so many former bounds: the oldest two together are the shorter one, up to the later instant."""
    entries = list(former)
    while len(entries) > _FORMER:
        (first, one), (second, other), *rest = entries
        entries = [(max(first, second), min(one, other)), *rest]
    return tuple(entries)

"""General histograms: f of the last S instants for any composable f, for many keys at once, in buckets that grow with their age.

f maps a bag of rows to a number from 0 on, f(A + B) >= f(A) + f(B), and f(A + B) <= C (f(A) + f(B)). Two neighbours are merged when
together they are at most 1/k of the newer buckets (Invariant 4), so no bucket of several instants is more than C/k of them (Invariant 3).
The answer composes all buckets that are entirely in the window: `answer <= truth <= (C + C^2 / k) * answer`.
A batch is inserted at once: the newer buckets of a pair only grow while others are merged, so all mergeable pairs are merged
together, repeatedly, until none is left; the number of such rounds is the logarithm of the rows.
Source: Datar, Gionis, Indyk, Motwani (2001), section 5. Repaired: a bucket stores its oldest row's time too, and is left out only when it
crosses the edge of the window; one row never does, however heavy. The text's "C^2 / k + C - 1" is no small error for C = 2; as
the factor above it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from headrace.synopses.arrays import Ints

Doubles: TypeAlias = npt.NDArray[np.float64]
_MOST_NUMBERS: Final = 1 << 22
"""The maximum number of fresh summaries' numbers that are inserted at a time."""


class Measure(Protocol):
    """f over composable summaries, each a row of `width` numbers."""

    @property
    def factor(self) -> float:
        """C: the maximum ratio of f to the sum of f over the parts."""
        ...

    @property
    def width(self) -> int:
        """Numbers in a summary; all 0 is the empty summary."""
        ...

    def joined(self, one: Doubles, other: Doubles) -> Doubles:
        """Row by row the summary of both bags together."""
        ...

    def sizes(self, summaries: Doubles) -> Doubles:
        """Row by row the number f of the bag."""
        ...


@dataclass(frozen=True, slots=True)
class GeneralHistograms:
    """One histogram per key: buckets `offsets[key]:offsets[key + 1]`, the newest first.

    Bucket i holds the rows from instant `oldest[i]` to `newest[i]`, whose summary is `summaries[i]` and whose f is `sizes[i]`.
    """

    measure: Measure
    k: int
    offsets: Ints
    oldest: Ints
    newest: Ints
    summaries: Doubles
    sizes: Doubles

    @staticmethod
    def empty(measure: Measure, k: int, keys: int) -> GeneralHistograms:
        """No rows; accuracy k."""
        none = np.empty(0, np.int64)
        offsets, nothing = np.zeros(keys + 1, np.int64), np.empty((0, measure.width))
        return GeneralHistograms(measure, k, offsets, none, none, nothing, np.empty(0))

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        parts = (self.offsets, self.oldest, self.newest, self.summaries, self.sizes)
        return int(sum(part.nbytes for part in parts))

    def owners(self) -> Ints:
        """The key of each bucket."""
        return np.repeat(np.arange(self.keys), np.diff(self.offsets))

    def absorb(self, keys: Ints, times: Ints, summaries: Doubles) -> GeneralHistograms:
        """The histograms with more rows, each as its summary, in the order of times; none may be older than an earlier one."""
        merged, step = self, max(1, _MOST_NUMBERS // max(self.measure.width, 1))
        for start in range(0, len(keys), step):
            part = slice(start, start + step)
            merged = _merged(_with_rows(merged, keys[part], times[part], summaries[part]))
        return merged

    def since(self, start: int) -> GeneralHistograms:
        """The histograms without buckets that are entirely older than `start`."""
        return _where(self, self.newest >= start)

    def within(self, start: int) -> Doubles:
        """Per key the composition of all buckets whose rows are all at or after `start`."""
        held = _where(self, self.oldest >= start)
        while len(held.sizes) > np.count_nonzero(np.diff(held.offsets)):
            index = np.arange(len(held.sizes)) - held.offsets[:-1][held.owners()]
            last = np.r_[held.owners()[1:] != held.owners()[:-1], True]
            held = _with_merged(held, np.flatnonzero((index % 2 == 0) & ~last))
        composed = np.zeros((self.keys, self.measure.width))
        composed[held.owners()] = held.summaries
        return composed

    def answer(self, start: int) -> tuple[Doubles, Doubles]:
        """Per key the minimum and the maximum of f since `start`."""
        value = self.measure.sizes(self.within(start))
        across = np.zeros(self.keys, bool)
        across[self.owners()[(self.oldest < start) & (start <= self.newest)]] = True
        c = self.measure.factor
        return value, np.where(across, (c + c**2 / self.k) * value, value)


def _with_rows(held: GeneralHistograms, keys: Ints, times: Ints, summaries: Doubles) -> GeneralHistograms:
    backwards = np.arange(len(keys))[::-1]
    order = backwards[np.argsort(keys[backwards], kind="stable")]  # newest first, per key
    fresh = replace(
        held,
        offsets=np.r_[0, np.cumsum(np.bincount(keys, minlength=held.keys))],
        oldest=times[order],
        newest=times[order],
        summaries=summaries[order],
        sizes=held.measure.sizes(summaries[order]),
    )
    owner = np.r_[fresh.owners(), held.owners()]
    by_owner = np.argsort(owner, kind="stable")  # fresh ones of a key first
    return replace(
        held,
        offsets=fresh.offsets + held.offsets,
        oldest=np.r_[fresh.oldest, held.oldest][by_owner],
        newest=np.r_[fresh.newest, held.newest][by_owner],
        summaries=np.concatenate([fresh.summaries, held.summaries])[by_owner],
        sizes=np.r_[fresh.sizes, held.sizes][by_owner],
    )


def _merged(held: GeneralHistograms) -> GeneralHistograms:
    """The histograms with pairs merged until Invariant 4 holds."""
    merged = held
    while len(pairs := _mergeable(merged)):
        merged = _with_merged(merged, pairs)
    return merged


def _mergeable(held: GeneralHistograms) -> Ints:
    """The newer indices of mergeable pairs, no two of which overlap."""
    if len(held.sizes) < 2:
        return np.empty(0, np.int64)
    owner = held.owners()
    newer = pd.Series(held.sizes).groupby(owner).cumsum().to_numpy() - held.sizes
    small = held.k * (held.sizes[:-1] + held.sizes[1:]) <= newer[:-1]
    lone = held.oldest == held.newest
    small |= lone[:-1] & lone[1:] & (held.oldest[:-1] == held.oldest[1:])  # no window separates these
    small &= owner[:-1] == owner[1:]
    places = np.arange(len(small))
    begins = small & ~np.r_[False, small[:-1]]
    run = np.maximum.accumulate(np.where(begins, places, 0))
    chosen: Ints = np.flatnonzero(small & ((places - run) % 2 == 0))
    return chosen


def _with_merged(held: GeneralHistograms, pairs: Ints) -> GeneralHistograms:
    summaries = held.measure.joined(held.summaries[pairs], held.summaries[pairs + 1])
    remaining = np.ones(len(held.sizes), bool)
    remaining[pairs + 1] = False
    oldest, composed, sizes = held.oldest.copy(), held.summaries.copy(), held.sizes.copy()
    oldest[pairs], composed[pairs] = held.oldest[pairs + 1], summaries
    sizes[pairs] = held.measure.sizes(summaries)
    return _where(replace(held, oldest=oldest, summaries=composed, sizes=sizes), remaining)


def _where(held: GeneralHistograms, remaining: npt.NDArray[np.bool_]) -> GeneralHistograms:
    many = np.bincount(held.owners()[remaining], minlength=held.keys)
    parts = (held.oldest[remaining], held.newest[remaining], held.summaries[remaining], held.sizes[remaining])
    return GeneralHistograms(held.measure, held.k, np.r_[0, np.cumsum(many)], *parts)

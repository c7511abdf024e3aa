"""Window joins of two streams: out of order (OA-Join), two that keep their output in order, and one that takes the order of arrival for
that of time; by what they hold and when they emit.

Rows of stream i join rows of the other for `ranges[i]` after them: `t0 - ranges[1] <= t1 <= t0 + ranges[0]`, on equal keys. Both
streams may be in any order, and one behind the other; `bounds` are the punctuation of each. Li 2008, chapter 7, with the two ranges the
right way round: those of equation 7.1 are exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.windows import Ints

NEVER = np.iinfo(np.int64).min // 4


@dataclass(frozen=True, slots=True)
class Rows:
    """Event times and join keys."""

    at: Ints
    key: Ints

    def __len__(self) -> int:
        return len(self.at)

    def where(self, chosen: np.ndarray) -> Rows:
        return Rows(self.at[chosen], self.key[chosen])

    def and_(self, other: Rows) -> Rows:
        return Rows(np.r_[self.at, other.at], np.r_[self.key, other.key])


NONE = Rows(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Arrived:
    """One step: the rows that arrived of each stream, and each one's bound after it."""

    rows: tuple[Rows, Rows]
    bounds: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Joined:
    """By step: pairs let go (event times of both sides), how far the first side's times are complete, what is held."""

    pairs: list[tuple[Ints, Ints]]
    complete: list[int]
    held: list[int]


def pairs_of(left: Rows, right: Rows, ranges: tuple[int, int]) -> tuple[Ints, Ints]:
    """Event times of all pairs within the band."""
    if not len(left) or not len(right):
        return NONE.at, NONE.at
    order = np.argsort(right.key, kind="stable")
    keys = right.key[order]
    low, high = np.searchsorted(keys, left.key, "left"), np.searchsorted(keys, left.key, "right")
    count = high - low
    one = np.repeat(np.arange(len(left)), count)
    other = order[np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)]
    t0, t1 = left.at[one], right.at[other]
    near = (t0 - ranges[1] <= t1) & (t1 <= t0 + ranges[0])
    return t0[near], t1[near]


def out_of_order(steps: Sequence[Arrived], ranges: tuple[int, int]) -> Joined:
    """OA-Join: probe at once, purge each side by the other's bound, let pairs go in any order."""
    return _probing(steps, ranges, in_order=False)


def output_sorted(steps: Sequence[Arrived], ranges: tuple[int, int]) -> Joined:
    """OPOB: probe at once, keep pairs until no earlier one can come."""
    return _probing(steps, ranges, in_order=True)


def _probing(steps: Sequence[Arrived], ranges: tuple[int, int], *, in_order: bool) -> Joined:
    stored, waiting = [NONE, NONE], (NONE.at, NONE.at)
    bounds = (NEVER, NEVER)
    joined = Joined([], [], [])
    for step in steps:
        first, second = step.rows
        before, now = pairs_of(first, stored[1], ranges), pairs_of(stored[0].and_(first), second, ranges)
        pairs = (np.r_[before[0], now[0]], np.r_[before[1], now[1]])
        for side, fresh in enumerate(step.rows):
            keep = fresh.at >= bounds[1 - side] - ranges[side]
            stored[side] = stored[side].and_(fresh.where(keep))
        bounds = step.bounds
        for side in (0, 1):
            stored[side] = stored[side].where(stored[side].at >= bounds[1 - side] - ranges[side])
        complete = min(bounds[1] - ranges[0], bounds[0])
        if in_order:
            both = (np.r_[waiting[0], pairs[0]], np.r_[waiting[1], pairs[1]])
            order = np.lexsort(both[::-1])
            cut = int(np.searchsorted(both[0][order], complete))
            pairs = (both[0][order[:cut]], both[1][order[:cut]])
            waiting = (both[0][order[cut:]], both[1][order[cut:]])
        joined.pairs.append(pairs)
        joined.complete.append(complete)
        joined.held.append(len(stored[0]) + len(stored[1]) + len(waiting[0]))
    return joined


def input_held(steps: Sequence[Arrived], ranges: tuple[int, int]) -> Joined:
    """OPIB: hold rows of the first stream until all they can meet is there; then probe in order."""
    held, stored = NONE, NONE
    joined = Joined([], [], [])
    for step in steps:
        held, stored = held.and_(step.rows[0]), stored.and_(step.rows[1])
        complete = min(step.bounds[1] - ranges[0], step.bounds[0])
        ready = held.at < complete
        probing = held.where(ready)
        probing = probing.where(np.argsort(probing.at, kind="stable"))
        joined.pairs.append(pairs_of(probing, stored, ranges))
        held = held.where(~ready)
        least = min(int(held.at.min(initial=step.bounds[0])), step.bounds[0])
        stored = stored.where(stored.at >= least - ranges[1])
        joined.complete.append(complete)
        joined.held.append(len(held) + len(stored))
    return joined


def global_order(steps: Sequence[Arrived], ranges: tuple[int, int]) -> Joined:
    """The join that takes the order of arrival for that of time: both windows end at the latest row of all, and hold what is joined.

    Rows of a step arrive by event time, the first stream's first. Exact where both streams are in order and synchronised; where one is
    behind it loses pairs, and makes pairs of rows that are too far from each other.
    """
    stored, now = [NONE, NONE], NEVER
    joined = Joined([], [], [])
    for step in steps:
        pairs = [(NONE.at, NONE.at)]
        side_of = np.repeat((0, 1), [len(rows) for rows in step.rows])
        both = step.rows[0].and_(step.rows[1])
        for index in np.lexsort((side_of, both.at)).tolist():
            side, row = int(side_of[index]), both.where(np.array([index]))
            now = max(now, int(row.at[0]))
            other = stored[1 - side]
            stored[1 - side] = other = other.where(other.at >= now - ranges[1 - side])
            met = other.at[other.key == row.key[0]]
            row_times = np.repeat(row.at, len(met))
            pairs.append((row_times, met) if side == 0 else (met, row_times))
            stored[side] = stored[side].and_(row)
        joined.pairs.append(
            (np.concatenate([t0 for t0, _ in pairs]), np.concatenate([t1 for _, t1 in pairs]))
        )
        joined.complete.append(min(step.bounds[1] - ranges[0], step.bounds[0]))
        joined.held.append(len(stored[0]) + len(stored[1]))
    return joined

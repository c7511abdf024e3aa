"""Streams out of order, of every kind the thesis on window queries names, and how disordered they are.

A stream here is event times in order of arrival, in seconds, with the source of each row. All are made from a seed.
Source: Li, Window Queries over Data Streams (2008), chapters 2, 6 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Event times in order of arrival, and each row's source."""

    at: Times
    source: Times


@dataclass(frozen=True, slots=True)
class Disorder:
    """How far out of order: `slack` in time and `behind` in rows that would lose no row; the share of rows below the greatest."""

    slack: int
    behind: int
    displaced: float


def band(rows: int, seconds: int, depth: int, seed: int) -> Arrivals:
    """Each row is late by up to `depth` seconds, all depths equally likely."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, seconds, rows))
    return _arriving(at, at + rng.random(rows) * depth, np.zeros(rows, np.int64))


def block_sorted(rows: int, seconds: int, block: int, seed: int) -> Arrivals:
    """A router dumps its cache every `block` seconds: what ended since comes at once, in any order."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, seconds, rows))
    return _arriving(at, (at // block + 1) * block + rng.random(rows) * 0.5, np.zeros(rows, np.int64))


def skewed(rows: int, seconds: int, skews: tuple[int, ...], seed: int) -> Arrivals:
    """Sources each in order, but each as many seconds behind as `skews` has for it."""
    rng = np.random.default_rng(seed)
    at, source = np.sort(rng.integers(0, seconds, rows)), rng.integers(0, len(skews), rows)
    return _arriving(at, at + np.array(skews)[source], source)


def lulls(rows: int, seconds: int, silent: tuple[tuple[int, int], ...], depth: int, seed: int) -> Arrivals:
    """As `band`, but rows that would arrive within [from, to) are held up, and come together after it."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, seconds, rows))
    arrive = at + rng.random(rows) * depth
    for low, high in silent:
        held = (arrive >= low) & (arrive < high)
        arrive[held] = high + rng.random(int(held.sum())) * 0.5
    return _arriving(at, arrive, np.zeros(rows, np.int64))


def mostly_punctual(rows: int, seconds: int, share: float, depth: int, seed: int) -> Arrivals:
    """A `share` of the rows comes late, by up to `depth` seconds; the others in order."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, seconds, rows))
    late = rng.random(rows) < share
    return _arriving(at, at + late * rng.random(rows) * depth, np.zeros(rows, np.int64))


def low_watermarks(at: Times) -> Times:
    """The least event time still to come after each row (Li 2008, equation 4.1); after the last one past the greatest."""
    after = np.r_[at[1:], at.max() + 1]
    return np.minimum.accumulate(after[::-1])[::-1]


def measured(arrivals: Arrivals) -> Disorder:
    """The disorder of a stream, row by row."""
    at = arrivals.at
    highest = np.maximum.accumulate(at)
    slack = int((highest - at).max())
    first_above = np.searchsorted(highest, at, side="right")
    behind = int(np.maximum(np.arange(len(at)) - first_above, 0).max())
    return Disorder(slack, behind, float((at < highest).mean()))


def _arriving(at: Times, arrive: npt.NDArray[np.float64] | Times, source: Times) -> Arrivals:
    order = np.argsort(arrive, kind="stable")
    return Arrivals(at[order], source[order])

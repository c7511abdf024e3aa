"""Hybrid structs of one new tuple or query against one SteM: each by itself, or as one composite tuple; and the choice between them.

The structs of a new query share its factor on the other stream, `S.b RELOP constant`, and differ in the value of their own factor,
`v RELOP S.b`. A probe is one search in the sorted attribute. Source: PSoup (2002), section 5.3 and Figure 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from benchmarks.baselines.windows import Ints

Relop: TypeAlias = Literal["=", "<", "<=", ">", ">="]
_FROM_BELOW: Final = ("<", "<=")


@dataclass(frozen=True, slots=True)
class Matched:
    """Pairs of (struct, row of the SteM in its order), how many searches found them, and values that a merge has passed."""

    struct: Ints
    row: Ints
    probes: int
    passed: int = 0


def _range(column: Ints, relop: Relop, constants: Ints) -> tuple[Ints, Ints]:
    """The rows of a sorted column of which `value RELOP constant` holds, for each constant."""
    low, high = np.zeros(len(constants), np.int64), np.full(len(constants), len(column))
    if relop in ("=", ">", ">="):
        low = np.searchsorted(column, constants, "right" if relop == ">" else "left")
    if relop in ("=", *_FROM_BELOW):
        high = np.searchsorted(column, constants, "left" if relop == "<" else "right")
    return low, high


def separate(column: Ints, shared: tuple[Relop, int], own_relop: Relop, values: Ints) -> Matched:
    """Each struct searches by the shared factor, and by its own: two probes each."""
    pairs, probes = list[tuple[Ints, Ints]](), 0
    for number in range(len(values)):
        one = values[number : number + 1]
        (low,), (high,) = _range(column, shared[0], np.array([shared[1]]))
        (first,), (last,) = _range(column, own_relop, one)
        probes += 2
        begin = max(low, first)
        rows = np.arange(begin, max(begin, min(high, last)))
        pairs.append((np.full(len(rows), number), rows))
    return _matched(pairs, probes)


def nested(column: Ints, shared: tuple[Relop, int], own_relop: Relop, values: Ints) -> Matched:
    """A composite tuple: the shared factor once, and then each value searches what is left of the SteM."""
    (low,), (high,) = _range(column, shared[0], np.array([shared[1]]))
    left, pairs, probes = column[low:high], list[tuple[Ints, Ints]](), 1
    for number in range(len(values)):
        (first,), (last,) = _range(left, own_relop, values[number : number + 1])
        probes += 1
        rows = np.arange(first, max(first, last)) + low
        pairs.append((np.full(len(rows), number), rows))
    return _matched(pairs, probes)


def merged(column: Ints, shared: tuple[Relop, int], own_relop: Relop, values: Ints) -> Matched:
    """A composite tuple, whose values in order are merged with what the shared factor leaves: one pass over both."""
    (low,), (high,) = _range(column, shared[0], np.array([shared[1]]))
    left, order = column[low:high], np.argsort(values, kind="stable")
    first, last = _range(left, own_relop, values[order])
    counts = np.maximum(last - first, 0)
    struct = np.repeat(order, counts)
    row = np.arange(len(struct)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return Matched(struct, row + low, 1, len(left) + len(values))


def chosen(own_relop: Relop) -> str:
    """The way for structs with such a factor: a merge finds equal values in one pass; of an inequality each value has a prefix or
    a suffix of the rows, so that the pairs themselves are the cost, and a search finds where they begin.
    """
    return "merged" if own_relop == "=" else "nested"


def _matched(pairs: list[tuple[Ints, Ints]], probes: int) -> Matched:
    none = np.zeros(0, np.int64)
    return Matched(
        np.concatenate([none, *(struct for struct, _ in pairs)]),
        np.concatenate([none, *(row for _, row in pairs)]),
        probes,
    )

"""Plans of a join of several streams by one key as trees: an MJoin is one node, an XJoin has two children everywhere, and in between are
trees of MJoins. Each node but the root stores its results, as the streams are stored, and emits the changes of every step.

SteMs and their search are those of Headrace's operator (`operators/joins/probing/stems.py`), so that plans differ only in what they store and search.
Sources: Viglas, Naughton, Burger 2003 (MJoin); Urhan, Franklin 2000 (XJoin); Babu 2005, chapter 5 (the spectrum between them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.baselines.one_phase import OnePhase
from headrace.adaptive.filters.ordering import OrderInForce
from headrace.operators.joins.probing.stems import Stem
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import END, HASH, Sorted, in_order, key_hashes

Ints: TypeAlias = npt.NDArray[np.int64]
Tree: TypeAlias = "int | tuple[Tree, ...]"
"""A stream's number, or a join of two or more."""


def leaves(tree: Tree) -> tuple[int, ...]:
    """The streams of a tree."""
    return (tree,) if isinstance(tree, int) else tuple(leaf for child in tree for leaf in leaves(child))


def trees(streams: Sequence[int], *, binary: bool = False) -> Iterator[Tree]:
    """All trees over some streams: 1, 4 and 26 over 2, 3 and 4; with `binary` those of XJoins: 1, 3 and 15.

    >>> [len(list(trees(range(n)))) for n in (2, 3, 4)], [len(list(trees(range(n), binary=True))) for n in (2, 3, 4)]
    ([1, 4, 26], [1, 3, 15])
    """
    if len(streams) == 1:
        yield streams[0]
        return
    for parts in _partitions(list(streams)):
        if len(parts) > 1 and (len(parts) == 2 or not binary):
            yield from _products([list(trees(part, binary=binary)) for part in parts])


def _partitions(streams: list[int]) -> Iterator[list[list[int]]]:
    """The ways to divide streams into sets."""
    if not streams:
        yield []
        return
    first, rest = streams[0], streams[1:]
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            for parts in _partitions([stream for stream in rest if stream not in others]):
                yield [[first, *others], *parts]


def _products(choices: Sequence[Sequence[Tree]]) -> Iterator[tuple[Tree, ...]]:
    if not choices:
        yield ()
        return
    for head in choices[0]:
        for tail in _products(choices[1:]):
            yield (head, *tail)


@dataclass(slots=True)
class Work:
    """What a plan did: combinations looked up, rows compared with them, rows of inner results that were made; and the most rows that it
    stored, of streams and of inner results.
    """

    probes: int = 0
    compared: int = 0
    made: int = 0
    stored: int = 0
    inner_stored: int = 0

    @property
    def total(self) -> int:
        """Look-ups, comparisons and rows made: the unit is about one access of memory."""
        return self.probes + self.compared + self.made


def sorted_rows(at: Ints, key: Ints, until: Ints) -> Sorted:
    """Rows with their key's hash, time and end, as a SteM has them."""
    hashed = key_hashes([pa.array(key)], len(key))
    return _of(hashed, at, until)


def _of(hashed: Ints, at: Ints, until: Ints) -> Sorted:
    return Sorted.of(in_order([pa.table({HASH: hashed, TIME: at, END: until})]), None)


@dataclass(slots=True)
class _Node:
    """A join of children, each with its SteM: a stream, or the results of a node."""

    children: tuple[int | _Node, ...]
    stems: list[Sorted | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stems = [None] * len(self.children)

    def changes(self, arrived: Sequence[Sorted | None], work: Work) -> Sorted | None:
        """The new results of a step."""
        results: list[tuple[Ints, Ints, Ints]] = []
        for index, child in enumerate(self.children):
            new = arrived[child] if isinstance(child, int) else child.changes(arrived, work)
            if new is None:
                continue
            if not isinstance(child, int):
                work.made += new.rows
            stems = {
                number: Stem(() if stored is None else (stored,), None)
                for number, stored in enumerate(self.stems)
            }
            others = tuple(number for number in stems if number != index)
            order = tuple(sorted(range(len(others)), key=lambda number: stems[others[number]].rows))
            probing = OnePhase(stems, others, OrderInForce(order, 0.0), _always, _any_time, fixed=True)
            met = probing.combinations(new, index)
            results += [
                (new.hash[combination.rows[index]], combination.at, combination.until) for combination in met
            ]
            work.probes, work.compared = work.probes + sum(probing.probed), work.compared + probing.compared
            self.stems[index] = _joined(self.stems[index], new)
        if not results:
            return None
        hashed, at, until = (np.concatenate(column) for column in zip(*results, strict=True))
        return _of(hashed, at, until) if len(at) else None

    def expire(self, bound: int) -> tuple[int, int]:
        """Remove what ended before an instant; the rows of streams and of inner results that remain."""
        streams = inner = 0
        for index, (child, stored) in enumerate(zip(self.children, self.stems, strict=True)):
            if stored is not None:
                remaining = stored.table.filter(pa.array(stored.until() >= bound))
                self.stems[index] = Sorted.of(remaining, None) if remaining.num_rows else None
                streams, inner = (
                    (streams + remaining.num_rows, inner)
                    if isinstance(child, int)
                    else (streams, inner + remaining.num_rows)
                )
            if not isinstance(child, int):
                below = child.expire(bound)
                streams, inner = streams + below[0], inner + below[1]
        return streams, inner

    def inner(self) -> Iterator[tuple[_Node, Sorted | None]]:
        """The nodes below it, with their stored results."""
        for child, stored in zip(self.children, self.stems, strict=True):
            if not isinstance(child, int):
                yield child, stored
                yield from child.inner()


def _always(at: Ints, until: Ints) -> npt.NDArray[np.bool_]:
    return np.ones(len(at), bool) | (at <= until)


def _any_time(at: Ints, until: Ints) -> tuple[Ints, Ints]:
    return at, until


def _joined(stored: Sorted | None, new: Sorted) -> Sorted:
    return new if stored is None else Sorted.of(in_order([stored.table, new.table]), None)


@dataclass(slots=True)
class JoinTree:
    """A plan; `take` is a step of all streams in order of time."""

    tree: tuple[Tree, ...]
    work: Work = field(default_factory=Work)
    root: _Node = field(init=False)

    def __post_init__(self) -> None:
        self.root = _built(self.tree)

    def take(self, arrived: Sequence[Sorted | None], bound: int) -> list[tuple[int, int]]:
        """The results of a step as (instant, end); rows that end before `bound` are removed after it."""
        results = self.root.changes(arrived, self.work)
        streams, inner = self.root.expire(bound)
        self.work.stored = max(self.work.stored, streams)
        self.work.inner_stored = max(self.work.inner_stored, inner)
        return (
            [] if results is None else list(zip(results.at.tolist(), results.until().tolist(), strict=True))
        )


def _built(tree: tuple[Tree, ...]) -> _Node:
    return _Node(tuple(child if isinstance(child, int) else _built(child) for child in tree))

"""Unit-time costs of a join of two windows, for each direction by nested loops or by hash; the choice of both, and of how a memory
or a processor that is too small for both windows is divided; and a join that counts what these costs are made of.

A direction is the probing of one window by the other stream's rows. Its window is maintained for it alone, so both directions choose
for themselves (asymmetric joins). With arrivals a second r (of the probing stream) and s (of the other), and a window of s*T rows
with k keys, a second costs

    nested loops:  r * s*T * compare           + s * 2 * move
    hash:          r * (look + s*T/k * compare) + s * 2 * (look + move)

since a row enters and leaves the window once. Source: Kang, Naughton, Viglas, Evaluating window joins over unbounded streams (2003),
of which the guides have the title and the metric; the formulas follow later texts about them, constants are arguments.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, TypeAlias

Method: TypeAlias = Literal["loops", "hash"]
METHODS: tuple[Method, ...] = ("loops", "hash")


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a comparison of two rows, of the look-up of a bucket, and of putting a row somewhere."""

    compare: float = 1.0
    look: float = 4.0
    move: float = 1.0


def direction_cost(
    method: Method, probing: float, stored: float, seconds: float, keys: float, costs: Costs = Costs()
) -> float:
    """The cost a second of one direction; `probing` and `stored` are rows a second of both streams, the window has `seconds`.

    >>> direction_cost("loops", 10, 2, 60, 40), direction_cost("hash", 10, 2, 60, 40)
    (1204.0, 90.0)
    """
    rows = stored * seconds
    if method == "loops":
        return probing * rows * costs.compare + stored * 2 * costs.move
    return probing * (costs.look + rows / keys * costs.compare) + stored * 2 * (costs.look + costs.move)


def cheapest(
    rates: tuple[float, float], seconds: tuple[float, float], keys: float, costs: Costs = Costs()
) -> tuple[Method, Method]:
    """The methods in which the first stream's window is probed by the second, and the second's by the first.

    >>> cheapest((10, 10), (60, 60), 40)
    ('hash', 'hash')
    >>> cheapest((200, 0.1), (5, 5), 40)
    ('loops', 'loops')
    >>> cheapest((200, 1), (1, 1), 40)
    ('loops', 'loops')
    >>> cheapest((200, 1), (60, 60), 40)
    ('hash', 'hash')
    >>> cheapest((500, 1), (2, 10), 40)
    ('loops', 'hash')
    """
    first, second = (
        min(METHODS, key=lambda method: direction_cost(method, probing, stored, window, keys, costs))
        for probing, stored, window in (
            (rates[1], rates[0], seconds[0]),
            (rates[0], rates[1], seconds[1]),
        )
    )
    return first, second


def memory_split(
    rates: tuple[float, float], seconds: tuple[float, float], memory: float
) -> tuple[float, float]:
    """How many rows of each window to keep, of at most `memory` together, so that most pairs are found.

    A second finds, of every key, r0 * rows1 + r1 * rows0 pairs: a place is worth the rate that probes it. So the window of
    the slower stream is kept first, and the other one gets what is left.

    >>> memory_split((10, 2), (60, 60), 200)
    (80.0, 120.0)
    >>> memory_split((10, 2), (60, 60), 100)
    (0.0, 100.0)
    >>> memory_split((10, 2), (60, 60), 9999)
    (600.0, 120.0)
    """
    whole = [rate * window for rate, window in zip(rates, seconds, strict=True)]
    slower = 0 if rates[0] <= rates[1] else 1
    window_rows = [0.0, 0.0]
    window_rows[slower] = min(float(memory), float(whole[slower]))
    window_rows[1 - slower] = min(float(memory) - window_rows[slower], float(whole[1 - slower]))
    return window_rows[0], window_rows[1]


def pairs_found(rates: tuple[float, float], window_rows: tuple[float, float], keys: float) -> float:
    """Pairs a second that a join of these rates finds with so many rows of both windows."""
    return (rates[0] * window_rows[1] + rates[1] * window_rows[0]) / keys


@dataclass(frozen=True, slots=True)
class Share:
    """What one direction of a join does: its method, the share of the other stream's rows that probe, and of its own rows that are kept."""

    method: Method = "hash"
    probing: float = 0.0
    kept: float = 0.0

    def pairs(self, probing: float, rows: float, keys: float) -> float:
        """The pairs a second, of `probing` rows a second and a window of so many rows."""
        return self.probing * probing * self.kept * rows / keys


def _with_pairs(
    method: Method, part: float, probing: float, stored: float, seconds: float, keys: float, costs: Costs
) -> tuple[float, Share]:
    """The least cost a second at which a direction finds a part of its pairs, and what it does.

    With nested loops a comparison is for a row that probes and one that is kept, so all rows probe, and fewer are kept. A look-up is
    for a row that probes alone, and moves for a row that is kept: fewer of those that cost more.
    """
    if not part:
        return 0.0, Share()
    rows = stored * seconds
    look, move = (0.0, 2 * costs.move) if method == "loops" else (costs.look, 2 * (costs.look + costs.move))
    of_pairs = probing * rows * costs.compare / (1 if method == "loops" else keys)
    of_probing, of_kept = probing * look, stored * move
    kept = min(1.0, max(part, (part * of_probing / of_kept) ** 0.5))
    share = Share(method, part / kept, kept)
    return share.probing * of_probing + share.kept * of_kept + part * of_pairs, share


def processor_split(
    rates: tuple[float, float],
    seconds: tuple[float, float],
    keys: float,
    budget: float,
    costs: Costs = Costs(),
    steps: int = 100,
) -> tuple[Share, Share]:
    """What each direction does with so much cost a second for both, so that most pairs are found.

    The directions are the probing of the first stream's window and of the second's. They share nothing but the processor, so one
    may be complete and the other one left out: pairs that take few comparisons come first, and many pairs share the upkeep of a window.

    >>> processor_split((10, 10), (60, 60), 40, 9999)
    (Share(method='hash', probing=1.0, kept=1.0), Share(method='hash', probing=1.0, kept=1.0))
    >>> processor_split((100, 1), (60, 60), 40, 500)
    (Share(method='hash', probing=0.0, kept=0.0), Share(method='hash', probing=0.89, kept=1.0))
    """
    best, most = (Share(), Share()), 0.0
    directions = ((rates[1], rates[0], seconds[0]), (rates[0], rates[1], seconds[1]))
    ways = []
    for probing, stored, window in directions:
        parts = (number / steps for number in range(steps + 1))
        ways.append(
            [
                min(
                    (_with_pairs(method, part, probing, stored, window, keys, costs) for method in METHODS),
                    key=lambda way: way[0],
                )
                for part in parts
            ]
        )
    for (cost, first), (other_cost, second) in product(*ways):
        found = first.pairs(rates[1], rates[0] * seconds[0], keys) + second.pairs(
            rates[0], rates[1] * seconds[1], keys
        )
        if cost + other_cost <= budget and found > most:
            best, most = (first, second), found
    return best


@dataclass(slots=True)
class Counts:
    """Comparisons, look-ups of buckets, and rows moved."""

    compared: int = 0
    looked: int = 0
    moved: int = 0

    def cost(self, costs: Costs) -> float:
        return self.compared * costs.compare + self.looked * costs.look + self.moved * costs.move


@dataclass(slots=True)
class Window:
    """The rows of one stream, (time, key), for one method of probing; the oldest go first, and beyond `most` before their time."""

    method: Method
    seconds: float
    most: int | None = None
    rows: deque[tuple[float, int]] = field(default_factory=deque)
    buckets: dict[int, deque[float]] = field(default_factory=dict)

    def add(self, at: float, key: int, counts: Counts) -> None:
        if self.most == 0:
            return
        self.rows.append((at, key))
        counts.moved += 1
        if self.method == "hash":
            counts.looked += 1
            self.buckets.setdefault(key, deque()).append(at)
        if self.most is not None and len(self.rows) > self.most:
            self._drop(counts)

    def expire(self, now: float, counts: Counts) -> None:
        while self.rows and self.rows[0][0] < now - self.seconds:
            self._drop(counts)

    def _drop(self, counts: Counts) -> None:
        _, key = self.rows.popleft()
        counts.moved += 1
        if self.method == "hash":
            counts.looked += 1
            self.buckets[key].popleft()

    def probe(self, key: int, counts: Counts) -> int:
        """The number of rows of a key."""
        if self.method == "loops":
            counts.compared += len(self.rows)
            return sum(1 for _, other in self.rows if other == key)
        counts.looked += 1
        met = len(self.buckets.get(key, ()))
        counts.compared += met
        return met


def join(
    arrivals: Iterable[tuple[float, int, int]],
    methods: tuple[Method, Method],
    seconds: tuple[float, float],
    most: Sequence[int | None] = (None, None),
    shares: tuple[Share, Share] | None = None,
) -> tuple[int, Counts]:
    """The number of pairs, and what finding them took; arrivals are (time, stream, key) in order of time.

    With `shares` each direction has its part of the rows, drawn by chance and each by itself.
    """
    windows = [
        Window(method, length, rows) for method, length, rows in zip(methods, seconds, most, strict=True)
    ]
    pairs, counts, drawn = 0, Counts(), random.Random(16)
    for at, stream, key in arrivals:
        other = windows[1 - stream]
        probes, keeps = (1.0, 1.0) if shares is None else (shares[1 - stream].probing, shares[stream].kept)
        other.expire(at, counts)
        if probes == 1.0 or drawn.random() < probes:
            pairs += other.probe(key, counts)
        if keeps == 1.0 or drawn.random() < keeps:
            windows[stream].add(at, key, counts)
    return pairs, counts

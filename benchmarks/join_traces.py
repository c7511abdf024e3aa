"""Recorded updates of the windows of a join, and the counted costs of plans over them: generators with set rates, multiplicities and
selectivities, the eight points of the thesis on caches, and a burst.

A window has a number of rows: a row that comes to a full one makes the oldest leave. Values are drawn in turn from a domain, each as often in
a row as its multiplicity, or at random from a distribution.
Source: Babu (2005), section 5.8 and table 5.2. The table has the selectivities of pairs alone. Here each pair is given four values of its own,
all streams ten in common, which make six tenths of the least selectivity, and what is left are values that join nothing; so the
selectivities of pairs are exact, and combinations of three and four exist except where all are 0.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np

from benchmarks.models.caches.global_caches import GlobalSegment
from benchmarks.models.caches.traced_join import Row, TracedJoin, row_of
from headrace.adaptive.caches.segments import Equality, Orders

Update: TypeAlias = tuple[int, Row, int]
Draw: TypeAlias = Callable[[], Row]

POINTS: Final[Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "D1": ((10, 1, 1, 1), (0.004, 0.005, 0.005, 0.007, 0.0045, 0.005)),
    "D2": ((8, 1, 1, 8), (0.004, 0.005, 0.005, 0.007, 0.0045, 0.005)),
    "D3": ((10, 15, 1, 5), (0.003, 0.005, 0.007, 0.0045, 0.006, 0.008)),
    "D4": ((1, 1, 1, 1), (0.003, 0.004, 0.0067, 0.002, 0.0023, 0.0027)),
    "D5": ((4, 1, 1, 4), (0.005, 0.007, 0.005, 0.006, 0.005, 0.002)),
    "D6": ((1, 1, 1, 1), (0.005, 0.0033, 0.0025, 0.0067, 0.005, 0.0075)),
    "D7": ((1, 1, 1, 1), (0.0,) * 6),
    "D8": ((1, 1, 1, 1), (0.001,) * 6),
}
"""Table 5.2: rates of R, S, T, U; selectivities RS, RT, RU, ST, SU, TU."""
_COMMON, _OF_PAIR, _SHARE = 10, 4, 0.6


def distributions(selectivities: Sequence[float]) -> np.ndarray:
    """Of four streams the probabilities of values, with these selectivities of pairs; the last value is that of all rows that join nothing."""
    pairs, common = list(combinations(range(4), 2)), _SHARE * min(selectivities)
    probabilities = np.zeros((4, _COMMON + _OF_PAIR * len(pairs) + 1))
    probabilities[:, :_COMMON] = np.sqrt(common / _COMMON)
    for number, (pair, wanted) in enumerate(zip(pairs, selectivities, strict=True)):
        first = _COMMON + _OF_PAIR * number
        probabilities[list(pair), first : first + _OF_PAIR] = np.sqrt((wanted - common) / _OF_PAIR)
    probabilities[:, -1] = 1 - probabilities[:, :-1].sum(axis=1)
    return probabilities


def drawn(probabilities: np.ndarray, private: int, rng: np.random.Generator) -> Draw:
    """Rows with a value A of a distribution, in which those that join nothing are numbered from `private` on."""
    values = deque[int]()

    def draw() -> Row:
        nonlocal private
        if not values:
            values.extend(rng.choice(len(probabilities), 1000, p=probabilities).tolist())
        value = values.popleft()
        private += 1
        return row_of(A=private if value == len(probabilities) - 1 else value)

    return draw


def in_turn(domain: int, multiplicity: int, columns: Sequence[str]) -> Draw:
    """Rows whose columns have the values of a domain one after the other, each as often in a row as the multiplicity."""
    number = -1

    def draw() -> Row:
        nonlocal number
        number += 1
        value = number // multiplicity % domain
        return row_of(**dict.fromkeys(columns, value))

    return draw


def updates(
    draws: Sequence[Draw],
    rates: Callable[[int], Sequence[float]],
    sizes: Sequence[int],
    rows: int,
    rng: np.random.Generator,
) -> Iterator[Update]:
    """`rows` arrivals at these rates, which may depend on the number of arrivals before; windows are full before the first."""
    windows = [deque(draw() for _ in range(size)) for draw, size in zip(draws, sizes, strict=True)]
    for window, held in enumerate(windows):
        for row in held:
            yield window, row, 0
    for number in range(rows):
        weights = np.asarray(rates(number), float)
        window = int(rng.choice(len(draws), p=weights / weights.sum()))
        row = draws[window]()
        yield window, row, 1
        windows[window].append(row)
        yield window, windows[window].popleft(), -1


@dataclass(slots=True)
class Plan:
    """Orders with the caches that are used in them."""

    orders: Orders
    caches: tuple[GlobalSegment, ...] = ()
    unindexed: frozenset[tuple[int, str]] = frozenset()


def counted(trace: Sequence[Update], equalities: Sequence[Equality], plan: Plan) -> TracedJoin:
    """The join after a trace, with its counts. Updates with sign 0 fill the windows at no cost."""
    join = TracedJoin(equalities, plan.orders, plan.unindexed)
    for cache in plan.caches:
        join.use(cache)
    for window, row, sign in trace:
        if sign:
            join.change(window, row, sign)
        else:
            join.hold(window, row)
    return join


@dataclass(slots=True)
class TreeCost:
    """The counted cost of a tree of binary joins over one key, each with its result stored: `tree` is nested pairs of windows."""

    tree: object
    held: dict[int, Counter[int]] = field(default_factory=dict)
    cost: int = 0
    largest: int = 0

    def run(self, trace: Sequence[Update]) -> int:
        """The cost of a trace: a probe, what it finds, and what is stored, at each join above the window."""
        for window, row, sign in trace:
            value = dict(row)["A"]
            if sign:
                self._climb(self.tree, window, value)
            self.held.setdefault(window, Counter())[value] += sign or 1
        return self.cost

    def _size(self, node: object, value: int) -> int:
        if isinstance(node, int):
            return self.held.setdefault(node, Counter())[value]
        left, right = node  # type: ignore[misc]
        return self._size(left, value) * self._size(right, value)

    def _climb(self, node: object, window: int, value: int) -> int:
        """The combinations that change at a node; 0 where the window is not below it."""
        if isinstance(node, int):
            return int(node == window)
        left, right = node  # type: ignore[misc]
        for below, other in ((left, right), (right, left)):
            changed = self._climb(below, window, value)
            if changed:
                joined = changed * self._size(other, value)
                stored = 0 if node is self.tree else joined
                self.cost += changed + 2 * joined + stored
                return joined
            if _is_below(below, window):
                return 0
        return 0


def _is_below(node: object, window: int) -> bool:
    return node == window if isinstance(node, int) else any(_is_below(one, window) for one in node)  # type: ignore[attr-defined]


def trees(windows: Sequence[int]) -> Iterator[object]:
    """All trees of binary joins of windows."""
    if len(windows) == 1:
        yield windows[0]
        return
    first, *others = windows
    for count in range(len(others)):
        for chosen in combinations(others, count):
            rest = [one for one in others if one not in chosen]
            for left in trees([first, *chosen]):
                yield from ((left, right) for right in trees(rest))

"""The choice of caches for known benefits and costs: by dynamic programming, by search of all sets, and greedily.

Two caches of one pipeline must not overlap. Caches of the same windows with the same key, in different pipelines, are one cache: a
group, whose upkeep is paid once. Without groups of several the problem is a forest, and dynamic programming is exact; with them it is
NP-hard, and a greedy cover comes close.
Source: Babu (2005), section 5.5.3. The greedy algorithm is only named there; this one is a cover by cost-effectiveness: operators
are covered by caches or by themselves, at the least price for each operator that is newly covered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from headrace.adaptive.caches.cost_model import CacheValue
from headrace.adaptive.caches.segments import Segment, children
from headrace.dataclass import dataclass

EXHAUSTIVE_UP_TO: Final = 12
"""Candidates of which all sets are tried."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cache that may be used, with its value; those with an equal `group` share one upkeep."""

    segment: Segment
    value: CacheValue
    group: str


Chosen: TypeAlias = frozenset[Segment]


def net_value(chosen: Iterable[Candidate]) -> float:
    """The benefits less the upkeep of each group."""
    upkeep: dict[str, float] = {}
    total = 0.0
    for one in chosen:
        total += one.value.benefit
        upkeep[one.group] = one.value.upkeep
    return total - sum(upkeep.values())


def is_shared(among: Sequence[Candidate]) -> bool:
    """Whether a group has several caches."""
    return any(count > 1 for count in Counter(one.group for one in among).values())


def by_dynamic_programming(among: Sequence[Candidate]) -> Chosen:
    """The best set if no upkeep is shared: of each segment either its cache or the best of those within it."""
    known = {one.segment: one for one in among}
    below = children([one.segment for one in among])

    def best(segment: Segment | None) -> tuple[float, Chosen]:
        parts = [best(child) for child in below[segment]]
        total, chosen = (
            sum(value for value, _ in parts),
            frozenset[Segment]().union(*(chosen_below for _, chosen_below in parts)),
        )
        net = known[segment].value.net if segment is not None else 0.0
        return (
            (net, frozenset((segment,))) if segment is not None and net > max(0.0, total) else (total, chosen)
        )

    return best(None)[1]


def exhaustively(among: Sequence[Candidate]) -> Chosen:
    """The best of all sets without overlaps: the number of sets doubles with each candidate."""

    def best(rest: Sequence[Candidate], chosen: tuple[Candidate, ...]) -> tuple[float, tuple[Candidate, ...]]:
        if not rest:
            return net_value(chosen), chosen
        without = best(rest[1:], chosen)
        if any(rest[0].segment.overlaps(one.segment) for one in chosen):
            return without
        return max(best(rest[1:], (*chosen, rest[0])), without, key=lambda option: option[0])

    return frozenset(one.segment for one in best(list(among), ())[1])


def greedily(among: Sequence[Candidate], plain: dict[tuple[int, int], float]) -> Chosen:
    """A set by covering all places, `plain` with their costs without a cache, at the least price for each new one.

    What is chosen is then pruned: caches within chosen ones, and groups that do not pay.
    """
    uncovered, chosen = set(plain), list[Candidate]()
    while uncovered:
        single = min(uncovered, key=lambda place: (plain[place], place))
        actions = [(plain[single], 1, tuple[Candidate, ...](), {single})]
        for group in dict.fromkeys(one.group for one in among):
            actions += _openings([one for one in among if one.group == group], chosen, uncovered)
        _, _, opened, covered = min(actions, key=lambda action: (action[0] / action[1], -action[1]))
        chosen += opened
        uncovered -= covered
    outermost = [one for one in chosen if not any(other.segment.holds(one.segment) for other in chosen)]
    return frozenset(one.segment for one in _paying(outermost))


def _openings(
    group: Sequence[Candidate], chosen: Sequence[Candidate], uncovered: set[tuple[int, int]]
) -> list[tuple[float, int, tuple[Candidate, ...], set[tuple[int, int]]]]:
    """The use of one, two, … caches of a group, those first that cover an operator at the least price: price, places, caches."""
    is_open = any(one.group == group[0].group for one in chosen)
    offers = []
    for one in group:
        places = _places(one.segment) & uncovered
        if places and one not in chosen:
            offers.append((one.value.proc / len(places), one, places))
    offers.sort(key=lambda offer: (offer[0], offer[1].segment))
    price, covered = 0.0 if is_open else group[0].value.upkeep, set[tuple[int, int]]()
    opened: tuple[Candidate, ...] = ()
    actions = []
    for _, one, places in offers:
        price, covered, opened = price + one.value.proc, covered | places, (*opened, one)
        actions.append((price, len(covered), opened, covered))
    return actions


def _places(segment: Segment) -> set[tuple[int, int]]:
    return {(segment.pipeline, place) for place in range(segment.first, segment.last + 1)}


def _paying(chosen: Sequence[Candidate]) -> list[Candidate]:
    """Those with a benefit, of groups whose benefits exceed the upkeep."""
    useful = [one for one in chosen if one.value.benefit > 0]
    by_group: dict[str, list[Candidate]] = {}
    for one in useful:
        by_group.setdefault(one.group, []).append(one)
    return [one for group in by_group.values() if net_value(group) > 0 for one in group]


def select(among: Sequence[Candidate], plain: dict[tuple[int, int], float]) -> Chosen:
    """Exactly where that is cheap: without shared upkeep, or for few candidates; else greedily."""
    if not is_shared(among):
        return by_dynamic_programming(among)
    return exhaustively(among) if len(among) <= EXHAUSTIVE_UP_TO else greedily(among, plain)

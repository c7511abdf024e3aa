"""A join of windows, row by row over a recorded trace, with caches in its pipelines: the executor that caches are judged with, which
counts all it does.

A change of a window runs through its pipeline: look-ups, misses, and the changes of the caches it passes. Every cache can be added,
empty, and dropped at any time. Rows are values by column name; one that comes in several times is there as often.
Source: Babu (2005), sections 5.3 to 5.5 and 5.7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TypeAlias
from zlib import crc32

import numpy as np

from benchmarks.models.caches.global_caches import CountedEntries, GlobalSegment
from headrace.adaptive.caches.estimates import MissEstimate
from headrace.adaptive.caches.segments import Equality, Key, Orders, Segment, is_prefix_invariant, key_of
from headrace.dataclass import dataclass

Row: TypeAlias = tuple[tuple[str, int], ...]
"""The values of a row by column, in order of the columns."""
Combination: TypeAlias = tuple[tuple[int, Row], ...]
"""Rows of some windows, in order of the windows."""
Values: TypeAlias = tuple[int, ...]


def row_of(**values: int) -> Row:
    """A row with these values."""
    return tuple(sorted(values.items()))


@dataclass(slots=True)
class Counts:
    """What a join did: rows looked up in a window (`probes`), rows there compared with one (`compared`), combinations `made`, look-ups in
    caches with their `hits`, and `changes` of entries.
    """

    probes: int = 0
    compared: int = 0
    made: int = 0
    lookups: int = 0
    hits: int = 0
    changes: int = 0

    @property
    def cost(self) -> int:
        """All of it, one each."""
        return self.probes + self.compared + self.made + self.lookups + self.changes


@dataclass(slots=True)
class _Used:
    """A cache in use: its segment, the windows by whose combinations it is changed, its key, and its entries."""

    segment: Segment
    seen_with: tuple[int, ...]
    key: Key
    entries: CountedEntries[Combination] = field(default_factory=CountedEntries)
    lookups: int = 0
    hits: int = 0

    @property
    def is_global(self) -> bool:
        return self.seen_with != self.segment.windows

    def part(self, combination: Combination) -> Combination:
        """The rows of its windows."""
        return tuple((window, row) for window, row in combination if window in self.segment.windows)

    def key_of_part(self, part: Combination) -> Values:
        rows = {window: dict(row) for window, row in part}
        return tuple(rows[window][column] for window, column in self.key)


@dataclass(slots=True)
class TracedJoin:
    """The join; columns of `unindexed` are searched by comparing all rows of the window."""

    equalities: Sequence[Equality]
    orders: Orders
    unindexed: frozenset[tuple[int, str]] = frozenset()
    counts: Counts = field(default_factory=Counts)
    windows: list[Counter[Row]] = field(init=False)
    used: dict[Segment, _Used] = field(default_factory=dict)
    watched: dict[Segment, MissEstimate] = field(default_factory=dict)
    """Caches that are not used, with the keys that would be looked up in them."""
    _indexes: dict[tuple[int, str], dict[int, Counter[Row]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.windows = [Counter() for _ in self.orders]
        columns = {column for equality in self.equalities for column in equality}
        self._indexes = {column: {} for column in columns - self.unindexed}

    # ------------------------------------------------------------------------------------------ the caches in use

    def use(self, segment: Segment | GlobalSegment) -> None:
        """Begin to use a cache, which is empty. Raises `ValueError` where it could become wrong."""
        cached = segment.segment if isinstance(segment, GlobalSegment) else segment
        seen_with = segment.seen_with if isinstance(segment, GlobalSegment) else segment.windows
        if not is_prefix_invariant(self.orders, seen_with):
            raise ValueError(f"expected windows with the prefix invariant, found {seen_with}")
        new = _Used(cached, seen_with, key_of(cached, self.orders, self.equalities))
        for other in self.used.values():
            if (
                cached.overlaps(other.segment)
                or self._skips(cached, other)
                or self._skips(other.segment, new)
            ):
                raise ValueError(f"expected caches that do not overlap, found {cached} and {other.segment}")
        self.used[cached] = new

    def _skips(self, segment: Segment, other: _Used) -> bool:
        """Whether a hit leaves out the place at which another cache is changed."""
        changed_at = len(other.seen_with) - 1
        return segment.pipeline in other.seen_with and segment.first < changed_at <= segment.last

    def drop(self, segment: Segment) -> None:
        """Do without a cache from now on."""
        del self.used[segment]

    def reorder(self, orders: Orders) -> None:
        """Take other orders; caches that could become wrong, or whose place is another one, are dropped."""
        changed = {pipeline for pipeline, order in enumerate(orders) if order != self.orders[pipeline]}
        self.orders = orders
        for segment, used in list(self.used.items()):
            if segment.pipeline in changed or not is_prefix_invariant(orders, used.seen_with):
                self.drop(segment)
        remaining = list(self.used.values())
        for one in remaining:
            if one.segment in self.used and any(
                self._skips(other.segment, one) for other in self.used.values()
            ):
                self.drop(one.segment)

    # ------------------------------------------------------------------------------------------------- processing

    def change(self, window: int, row: Row, sign: int) -> list[Combination]:
        """A row that comes to a window (+1) or leaves it (-1): the combinations that come or leave with it."""
        order = self.orders[window]
        waiting: list[list[Combination]] = [[] for _ in range(len(order) + 1)]
        waiting[0].append(((window, row),))
        for place, other in enumerate(order):
            combinations = waiting[place]
            self._pass_changes(window, place, combinations, sign)
            self._watch(window, place, combinations)
            used = self._used_at(window, place)
            if used is None:
                waiting[place + 1] += [more for one in combinations for more in self._joined(one, other)]
            else:
                waiting[used.segment.last + 1] += self._looked_up(used, combinations)
        self._pass_changes(window, len(order), waiting[-1], sign)
        self._store(window, row, sign)
        if sign < 0:
            self._evict_unasked(window, row)
        return waiting[-1]

    def hold(self, window: int, row: Row) -> None:
        """A row that was in a window before the trace began."""
        self._store(window, row, 1)

    def _store(self, window: int, row: Row, sign: int) -> None:
        counters = [self.windows[window]]
        for column, value in row:
            if (window, column) in self._indexes:
                counters.append(self._indexes[window, column].setdefault(value, Counter()))
        for counter in counters:
            counter[row] += sign
            if not counter[row]:
                del counter[row]

    def _pass_changes(self, window: int, place: int, combinations: Sequence[Combination], sign: int) -> None:
        """Change the caches for which these combinations are changes of their windows."""
        for used in self.used.values():
            if window in used.seen_with and place == len(used.seen_with) - 1:
                for combination in combinations:
                    part = used.part(combination)
                    self.counts.changes += 1
                    used.entries.change(used.key_of_part(part), part, sign)

    def _watch(self, pipeline: int, place: int, combinations: Sequence[Combination]) -> None:
        for segment, estimate in self.watched.items():
            if (segment.pipeline, segment.first) == (pipeline, place) and combinations:
                key = key_of(segment, self.orders, self.equalities)
                estimate.add(np.array([crc32(repr(self._asked(key, one)).encode()) for one in combinations]))

    def profile(self, window: int, row: Row) -> list[tuple[int, int]]:
        """What a row would do without caches: at each place the rows that come there and their cost; at the end those that leave."""
        combinations: list[Combination] = [((window, row),)]
        before, seen = self.counts, list[tuple[int, int]]()
        for other in self.orders[window]:
            self.counts = Counts()
            came = len(combinations)
            combinations = [more for one in combinations for more in self._joined(one, other)]
            seen.append((came, self.counts.cost))
        self.counts = before
        return [*seen, (len(combinations), 0)]

    def _used_at(self, pipeline: int, place: int) -> _Used | None:
        """The cache that is looked up at a place."""
        at_place = (
            used
            for used in self.used.values()
            if (used.segment.pipeline, used.segment.first) == (pipeline, place)
        )
        return next(at_place, None)

    def _looked_up(self, used: _Used, combinations: Sequence[Combination]) -> list[Combination]:
        """Combinations with the rows of a cache; where a key is absent the segment is run, and the key added.

        A key that was added for this row is not looked up for it again: a globally consistent cache has the rows that windows support, of
        which this row is none yet.
        """
        fresh: dict[Values, list[Combination]] = {}
        result = []
        for combination in combinations:
            self.counts.lookups += 1
            used.lookups += 1
            key = self._asked(used.key, combination)
            entry = used.entries.entries.get(key)
            if key not in fresh and entry is None:
                fresh[key] = self._missed(used, key, combination)
            else:
                self.counts.hits += 1
                used.hits += 1
            parts = fresh[key] if key in fresh else self._parts(used, entry or Counter())
            result += [_together(combination, part) for part in parts]
        return result

    def _missed(self, used: _Used, key: Values, combination: Combination) -> list[Combination]:
        """Run the segment for a combination, and add its key; returns the segment's part of the results."""
        combinations = [combination]
        for other in self.orders[used.segment.pipeline][used.segment.first : used.segment.last + 1]:
            combinations = [more for one in combinations for more in self._joined(one, other)]
        parts = [used.part(one) for one in combinations]
        used.entries.create(key, self._supported(used, Counter(parts)).elements())
        self.counts.changes += len(parts)
        return parts

    def _parts(self, used: _Used, entry: Counter[Combination]) -> list[Combination]:
        """The rows of an entry, as often as they come; the counts of a globally consistent cache are of more windows."""
        if used.is_global:
            return [part for part in entry for _ in range(self._times(part))]
        return list(entry.elements())

    def _asked(self, cache_key: Key, combination: Combination) -> Values:
        """The key by which a combination is looked up: the values that are equal to those of the cache's columns."""
        rows = {window: dict(row) for window, row in combination}
        values = []
        for column in cache_key:
            for one, other in (pair for both in self.equalities for pair in (both, both[::-1])):
                if one == column and other[0] in rows:
                    values.append(rows[other[0]][other[1]])
                    break
        return tuple(values)

    def _times(self, part: Combination) -> int:
        """How many combinations of rows are equal to this one: rows come several times."""
        times = 1
        for window, row in part:
            times *= self.windows[window][row]
        return times

    def _supported(self, used: _Used, parts: Counter[Combination]) -> Counter[Combination]:
        """The rows to store for a key that was absent: of a globally consistent cache those with partners, by their number."""
        if not used.is_global:
            return parts
        others = tuple(window for window in used.seen_with if window not in used.segment.windows)
        counted = {
            part: times * sum(1 for _ in self._extended(part, others)) for part, times in parts.items()
        }
        return Counter({part: count for part, count in counted.items() if count})

    def _evict_unasked(self, window: int, row: Row) -> None:
        """Evict the keys of globally consistent caches that no row can ask for any more: their changes are not seen."""
        for used in self.used.values():
            order, first = self.orders[used.segment.pipeline], used.segment.first
            asking = (used.segment.pipeline, *order[:first])
            if not used.is_global or window not in asking:
                continue
            others = tuple(other for other in asking if other != window)
            left = ((window, row),)
            lost = {self._asked(used.key, one) for one in self._extended(left, others)}
            first_window, *rest = asking
            for key in lost & used.entries.entries.keys():
                starts = (((first_window, one),) for one in self.windows[first_window])
                still = (one for start in starts for one in self._extended(start, tuple(rest)))
                if not any(self._asked(used.key, one) == key for one in still):
                    used.entries.evict(key)

    # ------------------------------------------------------------------------------------------------ the windows

    def _extended(self, combination: Combination, others: Sequence[int]) -> Iterator[Combination]:
        """A combination with rows of other windows, for the upkeep of caches."""
        if not others:
            yield combination
            return
        for more in self._joined(combination, others[0]):
            yield from self._extended(more, others[1:])

    def _joined(self, combination: Combination, window: int) -> list[Combination]:
        """A combination with each row of a window that all conditions between them allow."""
        rows = {known: dict(row) for known, row in combination}
        wanted = {
            one[1]: rows[other[0]][other[1]]
            for both in self.equalities
            for one, other in (both, both[::-1])
            if one[0] == window and other[0] in rows
        }
        self.counts.probes += 1
        indexed = [column for column in wanted if (window, column) in self._indexes]
        candidates = (
            self._indexes[window, indexed[0]].get(wanted[indexed[0]], Counter())
            if indexed
            else self.windows[window]
        )
        joined = []
        for row in candidates.elements():
            self.counts.compared += 1
            values = dict(row)
            if all(values[column] == value for column, value in wanted.items()):
                joined.append(_together(combination, ((window, row),)))
        self.counts.made += len(joined)
        return joined


def _together(one: Combination, other: Combination) -> Combination:
    return tuple(sorted((*one, *other)))

"""The caches of one join in an epoch: new rows look up combinations of other sides instead of making them, and caches follow the
new rows of the sides whose combinations they have.

A cache has, of each key that it holds, all combinations of its sides that hold together, and on which those conditions are true that read
these sides alone. So a look-up takes the place of the search of each of these sides, of the combinations that do not hold together,
and of conditions. A key that is absent is joined once, for all new rows that ask for it, and added. New rows of a cache's sides are
joined with its other sides, for the keys that it holds: at the turn of their side, so that a look-up meets exactly the rows that a
search would. Which caches there are changes the cost, never the answer.
Source: Babu (2005), sections 5.3 and 5.4. All sides are joined by one key, so changes of a cache are found by its keys, and no order of
the probes is needed for that (there: the prefix invariant).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.adaptive.caches.estimates import MissEstimate
from headrace.adaptive.caches.key_directory import KeyDirectory
from headrace.adaptive.filters.order_cost import Bools
from headrace.algebra.expressions.expression import Expression, columns_of, conjunction, conjuncts
from headrace.dataclass import dataclass
from headrace.observation import CacheObservation
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Advance
from headrace.operators.joins.caches.caching import Caching, JoinMemory, Sides
from headrace.operators.joins.caches.resident_rows import merged_tail
from headrace.operators.joins.caches.subjoin_cache import Entries, SubjoinCache, rows_of
from headrace.operators.joins.join_side import JoinSpec, passing
from headrace.operators.joins.probing.stems import Combinations, Stem
from headrace.operators.joins.probing.two_phases import HoldTogether, Probing
from headrace.operators.rows.sorted_rows import Sorted
from headrace.operators.scalar.evaluation.failing import can_fail
from headrace.time import BEGINNING, FOREVER

_BITS: Final = 14
"""Of the number of buckets of a cache: 256 pages."""
_AT_ONCE: Final = 1 << 18
"""New rows that are looked up at once."""
_SAMPLE: Final = 256
"""New rows of an epoch that are also joined without a cache, to know what it saves."""
_LEAST: Final = 16 * _SAMPLE
"""New rows of an epoch of which some are joined without a cache too."""
_MOST_ROWS: Final = 4_000_000
"""Rows of all sides that a process remembers of a join."""
_MOST_COMBINATIONS: Final = 1 << 23
"""Combinations that are made to fill a cache in an epoch."""
_BLOCK: Final = 1 << 12
"""New rows whose different keys are counted together."""
_FEW: Final = 512
"""New rows of an epoch, below which different keys of earlier epochs are not counted."""
_ENTRY: Final = -1
"""The side of combinations in a cache, while they are looked up."""


@dataclass(slots=True)
class CachedJoin:
    """One epoch of a join. `stems` are its sides: as a process remembers them, if it does, else as they are given."""

    spec: JoinSpec
    stems: dict[int, Stem]
    hold_together: HoldTogether
    partners: Callable[[Ints, Ints], tuple[Ints, Ints]]
    caching: Caching
    memory: JoinMemory = field(init=False)
    _seen: CacheObservation = field(default_factory=CacheObservation)

    def __post_init__(self) -> None:
        memories: dict[str, JoinMemory] = {} if self.caching.memories is None else self.caching.memories
        self.memory = memories.pop(self.spec.id) if self.spec.id in memories else JoinMemory()
        chosen = set(self._chosen.values())
        for sides in self.memory.caches.keys() - chosen:
            del self.memory.caches[sides]
            self.memory.pool.give_back(sides, self.memory.pool.held.get(sides, 0))
        if self.memory.rows:
            for side, pieces in self.memory.rows.items():
                self.stems[side] = Stem(pieces, self.stems[side].longest)
        else:
            self.memory.caches.clear()
            self.memory.pool.held.clear()

    @property
    def _chosen(self) -> Mapping[int, Sides]:
        """The caches to use; none that were chosen when the join had more sides."""
        chosen = self.caching.chosen.get(self.spec.id, {})
        of_all = {*chosen, *(side for sides in chosen.values() for side in sides)}
        return chosen if all(side < len(self.spec.sides) for side in of_all) else {}

    @property
    def used(self) -> tuple[int, int]:
        """How many rows of the last side looked up a cache, and how many of its combinations they were compared with."""
        return self._seen.lookups, self._seen.matched

    # --------------------------------------------------------------------------------------------------- look-ups

    def combinations(self, probing: Probing, new: Sorted, side: int) -> Iterator[Combinations]:
        """New rows of a side with rows of all others: by its cache, if it has one, else by searching the others."""
        self._seen = CacheObservation(rows=new.rows)
        sides = self._chosen.get(side)
        if sides is None or not all(self.stems[other].rows for other in probing.others):
            yield from self._without_cache(probing, new, side)
            return
        cache = self._cache(sides, side, new)
        if self._is_too_much(new, cache):
            yield from self._without_cache(probing, new, side)
            return
        see, probing.see = probing.see, None
        if new.rows >= _LEAST:
            for _ in self._without_cache(probing, _some(new), side):
                pass
        rest, work = [other for other in probing.others if other not in sides], np.zeros(new.rows, np.int64)
        for start in range(0, new.rows, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            for matched in self._looked_up(cache, new, part, side):
                if see is not None:
                    work += np.bincount(matched.rows[side], minlength=new.rows)
                yield from self._extended(matched, new.hash, side, rest)
        if see is not None:
            see(new.hash, work)

    def _without_cache(self, probing: Probing, new: Sorted, side: int) -> Iterator[Combinations]:
        """Search all others, and note what that takes."""
        count = 0
        for combinations in probing.combinations(new, side):
            count += combinations.count
            yield combinations
        seen = CacheObservation(measured=new.rows, compared=probing.compared, made=count)
        self._seen = self._seen.plus(seen)

    def _is_too_much(self, new: Sorted, cache: SubjoinCache) -> bool:
        """Whether keys that are absent have so many combinations, at all instants, that they had better not be made."""
        keys = new.hash[_begins(new.hash)]
        keys = keys[~cache.directory.present(keys)]
        if not len(keys):
            return False
        bounds = self.partners(np.full(len(keys), cache.floor), np.full(len(keys), FOREVER))
        most = np.ones(len(keys))
        for side in cache.sides:
            most *= self.stems[side].search(bounds, keys).counts
        return float(most.sum()) > _MOST_COMBINATIONS

    def _cache(self, sides: Sides, side: int, new: Sorted) -> SubjoinCache:
        """The cache of some sides, with all that rows of this side need."""
        least, bound = int(new.at.min()), self.memory.bounds.get(side, BEGINNING)
        floor = least if bound == BEGINNING else min(least, bound)
        cache = self.memory.caches.get(sides)
        if cache is None:
            ranges = [self.stems[other].longest for other in sides]
            longest = min((range_ for range_ in ranges if range_ is not None), default=None)
            cache = self.memory.caches[sides] = SubjoinCache(sides, longest, floor, KeyDirectory(_BITS))
        if least < cache.floor:
            cache.lower_floor(floor)
        return cache

    def _looked_up(self, cache: SubjoinCache, new: Sorted, part: slice, side: int) -> Iterator[Combinations]:
        """New rows with the combinations of their keys."""
        hashes = new.hash[part]
        begins = _begins(hashes)
        keys = hashes[begins]
        present = cache.directory.present(keys)
        of_row = present[np.cumsum(begins) - 1]
        created = Entries.together(list(self._joined(keys[~present], cache)), cache.sides)
        numbers = np.arange(len(hashes)) + part.start
        hits, missed = numbers[of_row], numbers[~of_row]
        hit_count = len(hashes) - int(np.count_nonzero(~present))
        lookups, found = self.memory.asked.get(cache.sides, (0, 0))
        self.memory.asked[cache.sides] = lookups + len(hashes), found + hit_count
        looked_up = CacheObservation(lookups=len(hashes), hits=hit_count, created=created.count)
        self._seen = self._seen.plus(looked_up)
        if len(hits) and cache.pieces:
            yield from self._matched(cache.pieces, cache.stem(), new, hits, side)
        if len(missed):
            if created.count:
                stem = Stem((created.searchable(),), cache.longest)
                yield from self._matched([created], stem, new, missed, side)
            cache.create(keys[~present], created, lambda: self._need_page(cache.sides))

    def _matched(
        self, pieces: Sequence[Entries], stem: Stem, new: Sorted, rows: Ints, side: int
    ) -> Iterator[Combinations]:
        """New rows with the combinations in pieces that hold with them."""
        at, until = new.at[rows], new.until(rows)
        known = Combinations(at, until, {side: rows})
        matches = stem.search(self.partners(at, until), new.hash[rows])
        for extended, compared in stem.extend(known, matches, _ENTRY):
            self._seen = self._seen.plus(CacheObservation(matched=compared))
            together = extended.where(self.hold_together(extended.at, extended.until))
            if together.count:
                of_sides = rows_of(pieces, sorted(pieces[0].found.rows), together.rows[_ENTRY])
                yield Combinations(together.at, together.until, {side: together.rows[side], **of_sides})

    def _extended(
        self, combinations: Combinations, hashes: Ints, origin: int, rest: Sequence[int]
    ) -> Iterator[Combinations]:
        """Combinations with rows of more sides, which are searched."""
        if not rest:
            yield combinations
            return
        stem = self.stems[rest[0]]
        matches = stem.search(
            self.partners(combinations.at, combinations.until), hashes[combinations.rows[origin]]
        )
        for extended, _ in stem.extend(combinations, matches, rest[0]):
            together = extended.where(self.hold_together(extended.at, extended.until))
            if together.count:
                yield from self._extended(together, hashes, origin, rest[1:])

    def _need_page(self, sides: Sides) -> bool:
        grant = self.memory.pool.need_page(sides)
        if grant.victim is not None:
            self.memory.caches[grant.victim].give_back_page()
        return grant.given

    # -------------------------------------------------------------------------------------------------- subjoins

    def _joined(self, keys: Ints, cache: SubjoinCache) -> Iterator[Entries]:
        """All combinations of a cache's sides of these keys, in ascending order, that hold at its floor or later."""
        first, *rest = sorted(cache.sides, key=lambda side: self.stems[side].rows)
        alone = Combinations(np.full(len(keys), cache.floor), np.full(len(keys), FOREVER), {})
        yield from self._entries(alone, keys, np.arange(len(keys)), (first, *rest), cache)

    def _entries(
        self, known: Combinations, keys: Ints, key_of: Ints, rest: Sequence[int], cache: SubjoinCache
    ) -> Iterator[Entries]:
        """Combinations with rows of more sides, at last with the conditions of all; `key_of` is the place of each one's key."""
        if not rest:
            columns = self._columns(known, cache.sides)
            condition = self._condition(cache.sides)
            passed = (
                np.ones(known.count, bool)
                if condition is None
                else passing(condition, columns, known.count)[0]
            )
            entries = Entries(keys[key_of], known)
            yield entries if passed.all() else entries.take(passed)
            return
        stem = self.stems[rest[0]]
        numbered = Combinations(known.at, known.until, {**known.rows, _ENTRY: key_of})
        matches = stem.search(self.partners(known.at, known.until), keys[key_of])
        for extended, compared in stem.extend(numbered, matches, rest[0]):
            self._seen = self._seen.plus(CacheObservation(joined=compared))
            together = extended.where(self.hold_together(extended.at, extended.until))
            rows = {side: numbers for side, numbers in together.rows.items() if side != _ENTRY}
            yield from self._entries(
                Combinations(together.at, together.until, rows), keys, together.rows[_ENTRY], rest[1:], cache
            )

    def _condition(self, sides: Sides) -> Expression | None:
        """The conditions on these sides alone; none if a condition of the join may fail, which is reported by combination of all."""
        condition = self.spec.condition
        if condition is None or can_fail(condition):
            return None
        names = frozenset(name for side in sides for name in self.spec.sides[side].stored.names)
        alone = [
            factor for factor in conjuncts(condition) if columns_of(factor) and columns_of(factor) <= names
        ]
        return conjunction(alone) if alone else None

    def _tests_all(self, side: int) -> bool:
        """Whether a cache of all other sides tests all conditions."""
        others = tuple(other for other in range(len(self.spec.sides)) if other != side)
        return self._condition(others) == self.spec.condition

    def _columns(self, combinations: Combinations, sides: Sides) -> dict[str, pa.Array]:
        condition = self._condition(sides)
        read = frozenset() if condition is None else columns_of(condition)
        columns: dict[str, pa.Array] = {}
        for side in sides:
            of_side = [name for name in self.spec.sides[side].stored.names if name in read]
            if of_side:
                columns |= self.stems[side].columns(of_side, combinations.rows[side])
        return columns

    # ---------------------------------------------------------------------------------------------------- upkeep

    def add(self, new: Sorted, side: int, emitted: int) -> None:
        """The turn of a side is over: caches of the side get the combinations of its new rows, which are searched from now on."""
        start = self.stems[side].rows
        for cache in self.memory.caches.values():
            if side in cache.sides:
                self._follow(cache, new, side, start)
        self.stems[side] = Stem((*self.stems[side].pieces, new), self.stems[side].longest)
        if self.caching.measures and len(self.spec.sides) > 2:
            name = f"{self.spec.id}/{side}"
            known = self._seen
            combination_count = known.made * new.rows // known.measured if known.measured else known.matched
            passed = emitted if self._tests_all(side) else combination_count
            self.caching.add(
                name, known.plus(CacheObservation(passing=passed, missing=self._missing(new, side)))
            )

    def _follow(self, cache: SubjoinCache, new: Sorted, side: int, start: int) -> None:
        """Insert the combinations of new rows, whose numbers begin with `start`, for the keys that are present."""
        rows = np.flatnonzero(cache.directory.present(new.hash))
        if not len(rows):
            return
        others = [other for other in cache.sides if other != side]
        if not all(self.stems[other].rows for other in others):
            return
        known = Combinations(np.maximum(new.at[rows], cache.floor), new.until(rows), {side: rows + start})
        known_hashes = new.hash[rows]
        grown = {**self.stems, side: Stem((*self.stems[side].pieces, new), self.stems[side].longest)}
        before, self.stems = self.stems, grown
        changed = 0
        for entries in self._entries(known, known_hashes, np.arange(len(rows)), others, cache):
            changed += cache.insert(Entries.of(entries.hash, entries.found))
        self.stems = before
        self._seen = self._seen.plus(CacheObservation(followed=len(rows), changed=changed))

    def _missing(self, new: Sorted, side: int) -> int:
        """How many of the new rows would have a key that a cache does not hold: as it begins empty, with a large epoch or some smaller ones.

        Of very few rows, for which a cache never pays, no key is taken to be known.
        """
        keys = int(np.count_nonzero(_begins(new.hash)))
        if new.rows >= _BLOCK or new.rows < _FEW:
            return keys
        estimate = self.memory.misses.setdefault(side, MissEstimate(_BLOCK))
        estimate.add(new.hash)
        return min(keys, round(estimate.probability * new.rows))

    def leave(self, advance: Advance) -> None:
        """Remember the join for the next epoch: rows that no row can be joined with any more are dropped as pieces are merged."""
        memory, sides = self.memory, self.spec.sides
        memory.bounds = {index: side.bound(advance) for index, side in enumerate(sides)}
        if self._chosen and sum(stem.rows for stem in self.stems.values()) <= _MOST_ROWS:
            for index, side in enumerate(sides):
                bound = min(bound for other, bound in memory.bounds.items() if other != index)
                pieces = self.stems[index].pieces
                while (merged := merged_tail(pieces, side.lookback, bound)) is not None:
                    pieces, start, numbers = merged
                    for cache in memory.caches.values():
                        if index in cache.sides:
                            cache.renumber(index, start, numbers)
                memory.rows[index] = pieces
            for cache in memory.caches.values():
                asking = [side for side, of in self._chosen.items() if of == cache.sides]
                cache.raise_floor(min(memory.bounds[side] for side in asking))
            memory.prioritize()
        else:
            memory.rows, memory.caches = {}, {}
            memory.pool.held.clear()
        if self.caching.memories is not None and len(sides) > 2:
            self.caching.memories[self.spec.id] = memory
            sides_seen = [f"{self.spec.id}/{side}" for side in range(len(sides))]
            name = next((name for name in sides_seen if name in self.caching.observed), None)
            if name is not None and memory.nbytes:
                self.caching.add(name, CacheObservation(resident=memory.nbytes))


def _begins(hashes: Ints) -> Bools:
    """Of hashes in order, those that differ from the one before."""
    return np.concatenate([[True], hashes[1:] != hashes[:-1]])


def _some(new: Sorted) -> Sorted:
    """A few of many new rows."""
    chosen = np.arange(0, new.rows, new.rows // _SAMPLE)
    return Sorted(new.table, new.hash[chosen], new.at[chosen], None, new.until(chosen))

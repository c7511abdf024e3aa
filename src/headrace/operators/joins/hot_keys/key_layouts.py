"""Layouts of the rows of one key of a join: all in one place, or divided into parts that different tasks own.

A part is a key of its own for all that stores and searches rows: it has a hash and a slot. Each row of the *spread* side is in one part, by
its position; each row of the other sides is in all of them. So rows of all sides, one of each, meet in exactly one part.

A layout changes between two epochs, and no stored row is moved. New rows are stored as the new layout has it. To the parts of former layouts
they are sent as *probes*: they meet the rows that are stored there, not each other alone. A former layout ends once the punctuation has passed the last
instant at which a row that is stored in it can be joined. Of the rows of a combination the earliest layout has all: its own ones, and those of later layouts
as probes, while it matters. There it is made, and nowhere else, whatever layouts follow each other. Of two sides, probes need not be stored:
one row is the layout's own, and the other one new. Of more sides they are (`former_layouts`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import SLOTS, hashes
from headrace.time import Duration, Instant

_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """Where rows of one key are stored: the hash and the slot of each part. Rows of side `spread` are in one part, others in all.

    `since`: the first epoch of which rows are stored so. `last`: of a former layout, the greatest event time of any row before it ended.
    """

    hashes: tuple[int, ...]
    slots: tuple[int, ...]
    spread: int = 0
    since: int = 0
    last: Instant | None = None

    @property
    def parts(self) -> int:
        """How many parts it has."""
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class SplitKey:
    """The layouts of the rows of one key, by its hash: former ones with rows that may still be joined, then the one in force."""

    key: int
    layouts: tuple[KeyLayout, ...]

    @staticmethod
    def whole(key: int, slot: int) -> SplitKey:
        """A key with all rows in one place, as every key begins."""
        return SplitKey(key, (undivided(key, slot, 0),))

    @staticmethod
    def of(fields: Sequence[Any]) -> SplitKey:
        """From a manifest's fact."""
        key, layouts = fields
        return SplitKey(
            key, tuple(KeyLayout(tuple(parts), tuple(slots), *rest) for parts, slots, *rest in layouts)
        )

    @property
    def fields(self) -> list[Any]:
        """The inverse."""
        return [
            self.key,
            [[list(at.hashes), list(at.slots), at.spread, at.since, at.last] for at in self.layouts],
        ]

    @property
    def current(self) -> KeyLayout:
        """The layout in force."""
        return self.layouts[-1]

    @property
    def former(self) -> tuple[KeyLayout, ...]:
        """The layouts before it."""
        return self.layouts[:-1]

    @property
    def hashes(self) -> frozenset[int]:
        """The hashes of all parts of all layouts."""
        return frozenset(part for layout in self.layouts for part in layout.hashes)

    @property
    def is_undivided(self) -> bool:
        """Whether all rows that matter are in one place."""
        return not self.former and self.current.hashes == (self.key,)

    def changed_to(self, layout: KeyLayout, last: Instant) -> SplitKey:
        """The key with another layout in force; `last` is the greatest event time of its rows so far.

        A former layout with the same parts is in force again, with the rows that it has: where probes are not stored, of two sides.
        """
        ended = (*self.former, replace(self.current, last=last))
        return SplitKey(self.key, (*(one for one in ended if one.hashes != layout.hashes), layout))

    def has_former(self, layout: KeyLayout) -> bool:
        """Whether a former layout has the same parts."""
        return any(one.hashes == layout.hashes for one in self.former)

    def without_ended(self, punctuation: Instant, longest: Duration) -> SplitKey:
        """The key without former layouts of which no row is joined any more; none holds longer than `longest`."""
        needed = (one for one in self.former if one.last is None or one.last + longest >= punctuation)
        return SplitKey(self.key, (*needed, self.current))


def undivided(key: int, slot: int, since: int) -> KeyLayout:
    """All rows of a key in one place."""
    return KeyLayout((key,), (slot,), 0, since)


def divided(key: int, spread: int, parts: int, since: int, taken: Collection[int] = ()) -> KeyLayout:
    """The rows of a key in several parts, in slots that as many tasks own, one each.

    The hashes differ from each other and from those `taken`. The slot of a part is another than its hash has for a key of its own: so rows of a key
    that happens to have this hash are not taken for rows of the part.
    """
    slots = tuple((2 * part + 1) * SLOTS // (2 * parts) for part in range(parts))
    found = list[int]()
    seed = key
    while len(found) < parts:
        seed = _signed(seed * 31 + since * 1_000_003 + len(found) + 1)
        hash_ = int(hashes(pa.array([seed], pa.int64()))[0])
        if hash_ not in taken and hash_ not in found and hash_ != key and hash_ % SLOTS != slots[len(found)]:
            found.append(hash_)
    return KeyLayout(tuple(found), slots, spread, since)


def _signed(number: int) -> int:
    return int(np.uint64(number % _WORD).view(np.int64))

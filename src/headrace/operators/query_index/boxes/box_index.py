"""How do the boxes of many queries lie so that a batch is matched against all of them at once?

Per attribute, all flips of all boxes are sorted into cuts; `place` of a value is how many cuts lie at or below it. "The
rows at place r or higher" is one bitmap, and the rows that a domain holds are the XOR of a few of those: one for `>=`, two
for a range. (Guide to predicate indexes: elementary intervals, in their cumulative form, so that tables grow with
the distinct constants of a batch and never with their product by the number of queries.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.predicates.normal_form import Box, Normal
from headrace.operators.query_index.predicates.order_keys import has_whole_keys
from headrace.operators.query_index.predicates.value_domains import Domain


@dataclass(frozen=True, slots=True, eq=False)
class AttributeIndex:
    """One attribute of a part.

    `cuts` are sorted keys (int64, or Arrow binaries); `points` the constants, when every domain is a set of constants or
    its complement. `boxes` name the attribute, ascending; box `boxes[i]` holds the rows of bitmap `first[i]` XOR
    bitmap `second[i]` XOR those in `more`, pairs of (i, bitmap) without repeated i in one pass. Bitmaps by number: 0..k
    rows at that place or higher, `blank`, `null`.
    """

    expression: Expression
    cuts: Ints | pa.Array
    points: pa.Array | None
    boxes: Ints
    first: Ints
    second: Ints
    more: tuple[tuple[Ints, Ints], ...]

    @property
    def blank(self) -> int:
        """The number of the bitmap without rows."""
        return len(self.cuts) + 1

    @property
    def null(self) -> int:
        """The number of the bitmap of rows where the attribute is NULL, and their place."""
        return len(self.cuts) + 2


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Queries compiled together; nothing changes in it.

    Query i has slot `slots[i]` and boxes `starts[i]` up to `starts[i + 1]`; queries without a box are left out.
    """

    slots: Ints
    starts: Ints
    attributes: tuple[AttributeIndex, ...]

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self.slots)

    @property
    def boxes(self) -> int:
        """Number of boxes."""
        return int(self.starts[-1])


def compiled(queries: Sequence[tuple[int, Normal]]) -> Part:
    """A part of (slot, normal form) pairs."""
    held = [(slot, form.boxes) for slot, form in queries if form.boxes]
    numbers = {
        attribute: number
        for number, attribute in enumerate(
            dict.fromkeys(chain.from_iterable(box for _, boxes in held for box in boxes))
        )
    }
    # Queries of one box that read the same attributes lie together: their bitmaps are combined as one slice.
    held.sort(key=lambda one: (len(one[1]), sorted(numbers[a] for a in one[1][0])))
    boxes = [box for _, alternatives in held for box in alternatives]
    counts = [len(alternatives) for _, alternatives in held]
    return Part(
        np.array([slot for slot, _ in held], np.int64),
        np.r_[0, np.cumsum(counts, dtype=np.int64)].astype(np.int64),
        tuple(_attribute(attribute, boxes) for attribute in numbers),
    )


def _attribute(attribute: Expression, boxes: Sequence[Box]) -> AttributeIndex:
    named = [(number, box[attribute]) for number, box in enumerate(boxes) if attribute in box]
    keys = sorted({flip for _, domain in named for flip in domain.flips})
    place = {key: number + 1 for number, key in enumerate(keys)}
    blank, null = len(keys) + 1, len(keys) + 2
    lists = [list(_bitmaps(domain, place, null)) for _, domain in named]
    longest = max(map(len, lists), default=0)
    more = tuple(
        (
            np.array([i for i, one in enumerate(lists) if len(one) > step], np.int64),
            np.array([one[step] for one in lists if len(one) > step], np.int64),
        )
        for step in range(2, longest)
    )
    whole = has_whole_keys(attribute.type)
    constants = None if whole else _points([domain for _, domain in named])
    return AttributeIndex(
        attribute,
        np.array(keys, np.int64) if whole else pa.array(keys, pa.binary()),
        constants,
        np.array([number for number, _ in named], np.int64),
        np.array([one[0] if one else blank for one in lists], np.int64),
        np.array([one[1] if len(one) > 1 else blank for one in lists], np.int64),
        more,
    )


def _bitmaps(domain: Domain, place: dict[int | bytes, int], null: int) -> Iterator[int]:
    if domain.starts:
        yield 0
    yield from (place[flip] for flip in domain.flips)
    if domain.at_null:
        yield null


def _points(domains: Sequence[Domain]) -> pa.Array | None:
    """The constants, ascending, when flips always come in pairs around one; then one hash look-up finds a place."""
    found: set[bytes] = set()
    for domain in domains:
        for low, high in zip(domain.flips[::2], domain.flips[1::2], strict=False):
            assert isinstance(low, bytes)
            if len(domain.flips) % 2 or high != low + b"\0":
                return None
            found.add(low)
        if len(domain.flips) % 2:
            return None
    return pa.array(sorted(found), pa.binary())

"""Compiled boxes of many queries, as arrays by attribute, so that a batch is matched with all of them at once. A box is
a conjunction of conditions: one set of values for each attribute.

Per attribute, all flips of all boxes are sorted into cuts; the *rank* of a value is how many cuts are at or below it.
"The rows of rank r or higher" is one bitmap, and the rows in a domain are the XOR of a few of those: one for `>=`, two
for a range. (Guide to predicate indexes: elementary intervals, in their cumulative form, so that tables grow with the
distinct constants of a batch and never with their product by the number of queries.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_ranges import BoxRanges
from headrace.operators.query_index.predicates.normal_form import Box, Normal
from headrace.operators.query_index.predicates.order_keys import has_whole_keys
from headrace.operators.query_index.predicates.value_domains import Domain


@dataclass(frozen=True, slots=True, eq=False)
class AttributeIndex:
    """One attribute of a part.

    `cuts` are sorted keys (int64, or Arrow binaries); `points` the constants, when every domain is a set of constants
    or its complement. `boxes` name the attribute, ascending; box `boxes[i]` contains the rows of bitmap `first[i]` XOR
    bitmap `second[i]` XOR those in `more`, pairs of (i, bitmap) without repeated i in one pass. Bitmaps by number: 0..k
    rows of that rank or higher, `blank`, `null`.
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
        """The number of the bitmap of rows where the attribute is NULL, which is also their rank."""
        return len(self.cuts) + 2


@dataclass(frozen=True, eq=False)
class Part:
    """Queries compiled together; immutable.

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

    @cached_property
    def ranges(self) -> tuple[BoxRanges, ...]:
        """By attribute the ranks that each box accepts."""
        return tuple(BoxRanges.of(attribute, self.boxes) for attribute in self.attributes)

    @cached_property
    def named(self) -> tuple[Ints, ...]:
        """By attribute the index of each box among those that name it; -1 of one that does not."""
        indices = tuple(np.full(self.boxes, -1, np.int64) for _ in self.attributes)
        for attribute, index_of in zip(self.attributes, indices, strict=True):
            index_of[attribute.boxes] = np.arange(len(attribute.boxes))
        return indices

    @cached_property
    def owners(self) -> Ints:
        """The query of each box."""
        return np.repeat(np.arange(self.queries), np.diff(self.starts))


def compiled(queries: Sequence[tuple[int, Normal]]) -> Part:
    """A part of (slot, normal form) pairs."""
    with_boxes = [(slot, form.boxes) for slot, form in queries if form.boxes]
    numbers = {
        attribute: number
        for number, attribute in enumerate(
            dict.fromkeys(chain.from_iterable(box for _, boxes in with_boxes for box in boxes))
        )
    }
    # Queries of one box that read the same attributes are adjacent: their bitmaps are combined as one slice.
    with_boxes.sort(key=lambda pair: (len(pair[1]), sorted(numbers[a] for a in pair[1][0])))
    boxes = [box for _, alternatives in with_boxes for box in alternatives]
    counts = [len(alternatives) for _, alternatives in with_boxes]
    return Part(
        np.array([slot for slot, _ in with_boxes], np.int64),
        np.r_[0, np.cumsum(counts, dtype=np.int64)].astype(np.int64),
        tuple(_attribute(attribute, boxes) for attribute in numbers),
    )


def _attribute(attribute: Expression, boxes: Sequence[Box]) -> AttributeIndex:
    named = [(number, box[attribute]) for number, box in enumerate(boxes) if attribute in box]
    keys = sorted({flip for _, domain in named for flip in domain.flips})
    rank_of = {key: number + 1 for number, key in enumerate(keys)}
    blank, null = len(keys) + 1, len(keys) + 2
    lists = [list(_bitmaps(domain, rank_of, null)) for _, domain in named]
    longest = max(map(len, lists), default=0)
    more = tuple(
        (
            np.array([i for i, bitmaps in enumerate(lists) if len(bitmaps) > step], np.int64),
            np.array([bitmaps[step] for bitmaps in lists if len(bitmaps) > step], np.int64),
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
        np.array([bitmaps[0] if bitmaps else blank for bitmaps in lists], np.int64),
        np.array([bitmaps[1] if len(bitmaps) > 1 else blank for bitmaps in lists], np.int64),
        more,
    )


def _bitmaps(domain: Domain, rank_of: dict[int | bytes, int], null: int) -> Iterator[int]:
    if domain.starts:
        yield 0
    yield from (rank_of[flip] for flip in domain.flips)
    if domain.at_null:
        yield null


def _points(domains: Sequence[Domain]) -> pa.Array | None:
    """The constants, ascending, if flips always come in pairs around one; then one hash look-up finds a rank."""
    constants: set[bytes] = set()
    for domain in domains:
        for low, high in zip(domain.flips[::2], domain.flips[1::2], strict=False):
            assert isinstance(low, bytes)
            if len(domain.flips) % 2 or high != low + b"\0":
                return None
            constants.add(low)
        if len(domain.flips) % 2:
            return None
    return pa.array(sorted(constants), pa.binary())

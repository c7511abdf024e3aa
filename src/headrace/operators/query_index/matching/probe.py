"""Matching pairs (row, query) by search: the batch is sorted by each attribute, and every box (conjunction of a query)
visits only the rows in its narrowest range.

The range of the attribute that keeps the fewest rows of this batch is the access predicate of a box: only its rows are
visited, and the other attributes are tested on them. The cost is that of the candidates, so it is for many selective
queries; for unselective ones bitmaps are cheaper. There are no tables, whatever the constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import AttributeIndex, Part

_PAIRS: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """The probe of every box on a batch: attribute, and the range of rows in that attribute's order.

    `probed[b]` is -1 for a box that names no attribute, or none with a domain of one range: it visits all rows.
    """

    orders: tuple[Ints, ...]
    probed: Ints
    low: Ints
    high: Ints
    by_share: tuple[int, ...]
    """The attributes, those first that select the fewest rows of this batch."""

    @property
    def candidates(self) -> int:
        """The number of pairs that would be visited."""
        return int((self.high - self.low).sum())


def probe(part: Part, at: Sequence[Ints], rows: int) -> Probe:
    """Choose the narrowest range of every box."""
    probed, low, high = (np.full(part.boxes, fill, np.int64) for fill in (-1, 0, rows))
    orders, shares = list[Ints](), list[float]()
    for number, (attribute, here) in enumerate(zip(part.attributes, at, strict=True)):
        order = np.argsort(here.astype(np.uint16) if attribute.null < 1 << 16 else here, kind="stable")
        orders.append(order)
        counts = np.bincount(here, minlength=attribute.null + 1)
        below = np.r_[0, np.cumsum(counts)]
        start, stop, ranged = _ranges(attribute, below, rows)
        boxes = attribute.boxes
        shares.append(float(np.where(ranged, stop - start, rows).mean()) if len(boxes) else rows)
        better = ranged & (stop - start < high[boxes] - low[boxes])
        chosen = boxes[better]
        probed[chosen], low[chosen], high[chosen] = number, start[better], stop[better]
    by_share = sorted(range(len(shares)), key=shares.__getitem__)
    return Probe(tuple(orders), probed, low, high, tuple(by_share))


def _ranges(attribute: AttributeIndex, below: Ints, rows: int) -> tuple[Ints, Ints, np.ndarray]:
    """Rows [start, stop) in the attribute's order that a box selects, if they are one range of values."""
    first, second = attribute.first, attribute.second
    nulls = below[attribute.null]
    start = np.where(first == attribute.blank, 0, below[np.minimum(first, attribute.blank)])
    stop = np.where(second == attribute.blank, nulls, below[np.minimum(second, attribute.blank)])
    ranged = (first < attribute.blank) & (second != attribute.null)
    only_nulls = (first == attribute.null) & (second == attribute.blank)
    start, stop = np.where(only_nulls, nulls, start), np.where(only_nulls, rows, stop)
    none = first == attribute.blank
    start, stop = np.where(none, 0, start), np.where(none, 0, stop)
    ranged |= only_nulls | none
    for boxes, _ in attribute.more:
        ranged[boxes] = False
    return start, stop, ranged


def pairs_of(part: Part, at: Sequence[Ints], probes: Probe) -> Iterator[tuple[Ints, Ints]]:
    """Matching pairs (row, query of the part), each once, some at a time."""
    names = _named(part)
    owner = np.repeat(np.arange(part.queries), np.diff(part.starts))
    visited = np.cumsum(probes.high - probes.low)[part.starts[1:] - 1]
    edges = part.starts[np.r_[0, np.flatnonzero(np.diff(visited // _PAIRS)) + 1]]
    for low, high in zip(edges, np.r_[edges[1:], part.boxes], strict=True):
        if low < high:
            rows, boxes = _verified(part, at, probes, names, slice(int(low), int(high)))
            yield _distinct(part, rows, owner[boxes])


def _named(part: Part) -> list[Ints]:
    """For each attribute, the index of a box among those that name it; -1 if it does not."""
    names = []
    for attribute in part.attributes:
        index_of = np.full(part.boxes, -1, np.int64)
        index_of[attribute.boxes] = np.arange(len(attribute.boxes))
        names.append(index_of)
    return names


def _verified(
    part: Part, at: Sequence[Ints], probes: Probe, names: Sequence[Ints], boxes: slice
) -> tuple[Ints, Ints]:
    rows_parts, boxes_parts = [], []
    numbers = np.arange(boxes.start, boxes.stop)
    for number in range(-1, len(part.attributes)):
        chosen = numbers[probes.probed[boxes] == number]
        low, widths = probes.low[chosen], probes.high[chosen] - probes.low[chosen]
        total = int(widths.sum())
        if not total:
            continue
        offsets = np.repeat(low - np.r_[0, np.cumsum(widths)[:-1]], widths)
        rows = np.arange(total) + offsets
        rows_parts.append(rows if number < 0 else probes.orders[number].take(rows))
        boxes_parts.append(np.repeat(chosen, widths))
    if not rows_parts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows, pairs = np.concatenate(rows_parts), np.concatenate(boxes_parts)
    for number in probes.by_share:
        keep = _accepted(part.attributes[number], names[number][pairs], at[number][rows])
        rows, pairs = rows[keep], pairs[keep]
    return rows, pairs


def _accepted(attribute: AttributeIndex, named: Ints, at: Ints) -> np.ndarray:
    """Which pairs pass one attribute; `named` is the index of the box there, -1 if any value passes."""
    present = at < attribute.blank
    held = np.zeros(len(at), bool)
    for bitmaps in (attribute.first, attribute.second):
        bitmap = bitmaps[named]
        held ^= np.where(
            bitmap == attribute.null, ~present, present & (bitmap <= at) & (bitmap < attribute.blank)
        )
    for boxes, bitmaps in attribute.more:
        bitmap = np.full(len(attribute.boxes), attribute.blank, np.int64)
        bitmap[boxes] = bitmaps
        bitmap = bitmap[named]
        held ^= np.where(
            bitmap == attribute.null, ~present, present & (bitmap <= at) & (bitmap < attribute.blank)
        )
    return held | (named < 0)


def _distinct(part: Part, rows: Ints, queries: Ints) -> tuple[Ints, Ints]:
    if part.boxes == part.queries or not len(rows):
        return rows, queries
    codes = np.unique(queries * (int(rows.max()) + 1) + rows)
    queries, rows = np.divmod(codes, int(rows.max()) + 1)
    return rows, queries

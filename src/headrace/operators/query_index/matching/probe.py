"""Matching pairs (row, query) by search: the batch is sorted by each attribute, and every box (conjunction of a query)
visits only the rows in its narrowest range.

The range of the attribute that keeps the fewest rows of this batch is the access predicate of a box: only its rows are
visited, and the other attributes are tested on them. The cost is that of the candidates, so it is for many selective
queries; for unselective ones bitmaps are cheaper. There are no tables, whatever the constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import AttributeIndex, Part
from headrace.operators.query_index.boxes.box_ranges import rank_type

_PAIRS: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """The probe of every box on a batch: attribute, and the range of rows in that attribute's order.

    `probed[b]` is -1 for a box that names no attribute, or none with a domain of one range: it visits all rows.
    """

    ranks: tuple[Ints, ...]
    """By attribute the rank of each row."""
    orders: Mapping[int, Ints]
    """The rows in the order of their ranks, by each attribute that is probed."""
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
    """Choose the narrowest range of every box; `at[i]` are the rows' ranks among the cuts of attribute i."""
    probed, low, high = (np.full(part.boxes, fill, np.int64) for fill in (-1, 0, rows))
    narrow, shares = list[Ints](), list[float]()
    for number, (attribute, here) in enumerate(zip(part.attributes, at, strict=True)):
        ranges = part.ranges[number]
        narrow.append(here.astype(rank_type(attribute), copy=False))
        counts = np.bincount(here, minlength=attribute.null + 1)
        below = np.zeros(len(counts) + 1, np.int64)
        counts.cumsum(out=below[1:])
        start, stop = below[ranges.low], below[ranges.high]
        widths = np.where(ranges.is_range, stop - start, rows)
        shares.append(float(widths[attribute.boxes].mean()) if len(attribute.boxes) else rows)
        better = widths < high - low
        probed[better], low[better], high[better] = number, start[better], stop[better]
    orders = {
        number: np.argsort(narrow[number], kind="stable")
        for number in np.flatnonzero(np.bincount(probed + 1)[1:]).tolist()
    }
    by_share = sorted(range(len(shares)), key=shares.__getitem__)
    return Probe(tuple(narrow), orders, probed, low, high, tuple(by_share))


def pairs_of(part: Part, probes: Probe) -> Iterator[tuple[Ints, Ints]]:
    """Matching pairs (row, query of the part), each once, some at a time."""
    edges = part.starts[:1]
    if probes.candidates > _PAIRS:
        visited = np.cumsum(probes.high - probes.low)[part.starts[1:] - 1]
        edges = part.starts[np.append(0, np.flatnonzero(np.diff(visited // _PAIRS)) + 1)]
    for low, high in zip(edges.tolist(), [*edges[1:].tolist(), part.boxes], strict=True):
        if low < high:
            rows, boxes = _verified(part, probes, slice(low, high))
            owners = boxes if part.boxes == part.queries else part.owners[boxes]
            yield _distinct(part, rows, owners)


def _verified(part: Part, probes: Probe, boxes: slice) -> tuple[Ints, Ints]:
    """Pairs of a row and a box that accepts it."""
    found = list[tuple[Ints, Ints]]()
    for number in range(-1, len(part.attributes)):
        chosen = np.flatnonzero(probes.probed[boxes] == number) + boxes.start
        low, widths = probes.low[chosen], probes.high[chosen] - probes.low[chosen]
        total = int(widths.sum())
        if not total:
            continue
        rows = np.arange(total) + np.repeat(low - (np.cumsum(widths) - widths), widths)
        if number >= 0:
            rows = probes.orders[number].take(rows)
        found.append(_tested(part, probes, number, rows, np.repeat(chosen, widths)))
    if len(found) == 1:
        return found[0]
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows_parts, boxes_parts = zip(*found, strict=True)
    return np.concatenate(rows_parts), np.concatenate(boxes_parts)


def _tested(part: Part, probes: Probe, probed: int, rows: Ints, boxes: Ints) -> tuple[Ints, Ints]:
    """The candidates that pass all attributes; by the probed one they were found, which decides it."""
    for number in probes.by_share:
        if number == probed:
            continue
        ranks, ranges = probes.ranks[number].take(rows), part.ranges[number]
        if ranges.are_all:
            keep = ranges.accept(boxes, ranks)
        else:
            keep = _accepted(part.attributes[number], part.named[number].take(boxes), ranks)
        if not keep.all():
            rows, boxes = rows[keep], boxes[keep]
    return rows, boxes


def _accepted(attribute: AttributeIndex, named: Ints, at: Ints) -> npt.NDArray[np.bool_]:
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

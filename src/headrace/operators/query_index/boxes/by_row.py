"""Row-major matching of rows with many queries: one bitmap per row of the boxes (conjunctions of a query) that contain
it, the AND of one table row per attribute.

The table of an attribute has for each rank the boxes that accept it. Tables grow with cuts times boxes, so they are for
constants that repeat; `fits` decides. For delivery and routing row by row, small batches, and signatures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import AttributeIndex, Part
from headrace.operators.query_index.boxes.by_column import Words

LARGEST: Final = 1 << 26
"""Bytes that the tables of a part may take."""
_WORKING_BYTES: Final = 1 << 19


def fits(part: Part) -> bool:
    """Whether the tables are small enough to be used."""
    words = width(part)
    return sum((attribute.null + 1) * words * 8 for attribute in part.attributes) <= LARGEST


def tables(part: Part) -> tuple[Words, ...]:
    """For each attribute, shape (ranks, words): bit b of a row is set if box b accepts the rank."""
    return tuple(_table(attribute, part.boxes) for attribute in part.attributes)


def _table(attribute: AttributeIndex, boxes: int) -> Words:
    words = -(-boxes // 64)
    table = np.zeros((attribute.null + 1, words), np.uint64)
    _flip(table, np.array([0]), np.arange(boxes))
    boxes_here = attribute.boxes
    _flip(table, np.zeros(len(boxes_here), np.int64), boxes_here)
    starts = [(attribute.first, boxes_here), (attribute.second, boxes_here)]
    starts += [(bitmaps, boxes_here[which]) for which, bitmaps in attribute.more]
    nulls = np.ones(boxes, bool)
    nulls[boxes_here] = False
    for bitmaps, owners in starts:
        at_null = bitmaps == attribute.null
        nulls[owners[at_null]] = True
        _flip(table, bitmaps[~at_null], owners[~at_null])
    np.bitwise_xor.accumulate(table[: attribute.blank], axis=0, out=table[: attribute.blank])
    table[attribute.blank :] = 0
    _flip(table, np.full(int(nulls.sum()), attribute.null), np.flatnonzero(nulls))
    return table


def _flip(table: Words, rows: Ints, boxes: Ints) -> None:
    flat = rows * table.shape[1] + (boxes >> 6)
    np.bitwise_xor.at(table.reshape(-1), flat, np.left_shift(np.uint64(1), (boxes & 63).astype(np.uint64)))


def width(part: Part) -> int:
    """Words of a row's bitmap."""
    return -(-part.boxes // 64)


def blocks_of(
    part: Part, tables: Sequence[Words], at: Sequence[Ints], rows: int, into: Words | None = None
) -> Iterator[Words]:
    """Bitmaps of boxes, (rows, words), for consecutive runs of rows that fit the cache; `at` as in `by_column`.

    With `into`, of the shape (all rows, words), they are written there.
    """
    words = width(part)
    step = max(64, _WORKING_BYTES // (8 * max(words, 1)) // 64 * 64)  # blocks begin at whole words of rows
    spare, held = (np.empty((min(step, rows), words), np.uint64) for _ in range(2))
    for low in range(0, rows, step):
        high = min(rows, low + step)
        bits = np.empty((high - low, words), np.uint64) if into is None else into[low:high]
        if not tables:
            bits[:] = _all_boxes(part)
        elif len(tables) == 1:
            bits[:] = _table_rows(tables[0], at[0][low:high], held)
        else:  # only the last AND writes to memory that may be strided
            accepted = _table_rows(tables[0], at[0][low:high], held)
            for table, here in zip(tables[1:-1], at[1:-1], strict=True):
                np.bitwise_and(accepted, _table_rows(table, here[low:high], spare), out=accepted)
            np.bitwise_and(accepted, _table_rows(tables[-1], at[-1][low:high], spare), out=bits)
        yield bits


def _table_rows(table: Words, ranks: Ints, into: Words) -> Words:
    """Rows of a table. Ranks are never out of range, and "clip" avoids a copy when the output is contiguous."""
    return table.take(ranks, axis=0, out=into[: len(ranks)], mode="clip")


def _all_boxes(part: Part) -> Words:
    """The bitmap of all boxes."""
    words = np.full(width(part), ~np.uint64(0))
    if part.boxes % 64:
        words[-1] = np.uint64((1 << (part.boxes % 64)) - 1)
    return words


def queries_of(part: Part, bits: Words) -> np.ndarray:
    """Bitmaps of boxes as truth values, (rows, queries of the part)."""
    boxes = np.unpackbits(bits.view(np.uint8), axis=1, count=part.boxes, bitorder="little").view(bool)
    if part.boxes == part.queries:
        return boxes
    joined: np.ndarray = np.logical_or.reduceat(boxes, part.starts[:-1], axis=1)
    return joined

"""Matching of a batch with all queries of an index: one bitmap of rows per query, by the fastest kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes import by_row
from headrace.operators.query_index.boxes.box_index import Part
from headrace.operators.query_index.boxes.by_column import LANES, Words, tiles_of
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching.few_rows import are_few, compared
from headrace.operators.query_index.matching.prepare import (
    Failed,
    Prepared,
    blocks,
    prepared,
    truths,
    words_of,
)
from headrace.operators.query_index.matching.probe import pairs_of, probe

Kernel = Choice["rows", "columns", "pairs", "comparisons"]

SAMPLE_ROWS: Final = 1024
SPARSE: Final = 1 / 2048
"""Pairs beat bitmaps when fewer than this share of all (row, query) pairs are visited: one pair costs about 30 words
(measured).
"""


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """`words[i]` is the bitmap of the rows that the query in slot `slots[i]` selects; slots ascend.

    `failed` holds, by slot, rows on which a query's predicate failed: they are rejected, and are not selected.
    """

    rows: int
    slots: Ints
    words: Words
    failed: Mapping[int, Failed]

    def rows_of(self, slot: int) -> np.ndarray:
        """The rows of one query as truth values; raises KeyError for a slot without a query."""
        index = int(np.searchsorted(self.slots, slot))
        if index == len(self.slots) or self.slots[index] != slot:
            raise KeyError(slot)
        return truths(self.words[index], self.rows)

    def counts(self) -> Ints:
        """How many rows each query selects."""
        counts: Ints = np.bitwise_count(self.words).sum(axis=1, dtype=np.int64)
        return counts

    def by_row(self) -> Words:
        """The same, row-major: bit i of row r is set if the query in `slots[i]` selects it."""
        turned = np.ascontiguousarray(truths(self.words, self.rows).T)
        words = np.zeros((self.rows, -(-len(self.slots) // LANES) * 8), np.uint8)
        packed = np.packbits(turned, axis=1, bitorder="little")
        words[:, : packed.shape[1]] = packed
        return words.view(np.uint64)


def match(
    index: QueryIndex, columns: Mapping[str, pa.Array], rows: int, kernel: Kernel | None = None
) -> Matches:
    """Match a batch with all queries of an index; all kernels give the same result, None chooses by the batch."""
    batch = prepared(index, columns, rows)
    slots = index.slots
    words = np.zeros((len(slots), -(-rows // LANES)), np.uint64)
    if rows:
        for number, compiled in enumerate(batch.parts):
            at = batch.at(number)
            _fill(words, slots, batch, number, at, kernel or chosen(compiled.part, at, rows))
        _patch(words, slots, batch)
    return Matches(rows, slots, words, batch.failed)


def chosen(part: Part, at: list[Ints], rows: int) -> Kernel:
    """The kernel for bitmaps by query: comparisons of few rows; pairs if queries are very selective, else column-major.

    Never row-major, which would have to be transposed: for row-major results use `route.route`.
    """
    if are_few(part, rows):
        return "comparisons"
    if rows < SAMPLE_ROWS:
        return "columns"
    sample = np.linspace(0, rows - 1, SAMPLE_ROWS).astype(np.int64)
    candidates = probe(part, [ranks[sample] for ranks in at], SAMPLE_ROWS).candidates
    return "pairs" if candidates < SPARSE * SAMPLE_ROWS * part.queries else "columns"


def _fill(words: Words, slots: Ints, batch: Prepared, number: int, at: list[Ints], kernel: Kernel) -> None:
    compiled = batch.parts[number]
    part = compiled.part
    target = np.searchsorted(slots, part.slots)
    live = np.isin(part.slots, slots)
    if batch.dead:
        live &= ~np.isin(part.slots, list(batch.dead))
    if kernel == "comparisons" and are_few(part, batch.rows):
        packed = np.packbits(compared(part, at, batch.rows)[live], axis=1, bitorder="little")
        words.view(np.uint8)[target[live], : packed.shape[1]] = packed
    elif kernel in ("columns", "comparisons"):
        for low, _, here, mask in blocks(at, batch.rows):
            column = slice(low // LANES, low // LANES + len(mask))
            for tile in tiles_of(compiled.plan, here, mask):
                is_live = live[tile.low : tile.high]
                words[target[tile.low : tile.high][is_live], column] = tile.words[is_live]
    elif kernel == "rows":
        done = 0
        for bits in by_row.blocks_of(part, compiled.tables, at, batch.rows):
            accepted = by_row.queries_of(part, bits).T
            packed = np.packbits(accepted[live], axis=1, bitorder="little")
            words.view(np.uint8)[target[live], done // 8 : done // 8 + packed.shape[1]] = packed
            done += len(bits)
    else:
        for rows, queries in pairs_of(part, probe(part, at, batch.rows)):
            is_live = live[queries]
            row = rows[is_live]
            bit = np.left_shift(np.uint64(1), (row & 63).astype(np.uint64))
            np.bitwise_or.at(words, (target[queries[is_live]], row >> 6), bit)


def _patch(words: Words, slots: Ints, batch: Prepared) -> None:
    for slot, bitmap in batch.decided.items():
        words[np.searchsorted(slots, slot)] = bitmap
    for slot, (rows, true) in batch.patches.items():
        index = np.searchsorted(slots, slot)
        mask = truths(words[index], batch.rows)
        mask[rows] = true
        words[index] = words_of(mask)

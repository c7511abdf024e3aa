"""Which rows of a batch does every standing query want? The answer as bitmaps, by whichever kernel suits the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes import by_row
from headrace.operators.query_index.boxes.box_index import Part
from headrace.operators.query_index.boxes.by_column import LANES, Words, tiles_of
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching.prepare import (
    Failed,
    Prepared,
    blocks,
    prepared,
    truths,
    words_of,
)
from headrace.operators.query_index.matching.probe import pairs_of, probe

Kernel = Choice["rows", "columns", "pairs"]

FEW_ROWS: Final = 1024
SPARSE: Final = 1 / 2048
"""Pairs beat bitmaps when fewer than this share of all (row, query) pairs are looked at: measured, one costs some 30 words."""


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """`words[i]` is the bitmap of the rows that the query in slot `slots[i]` wants; slots ascend.

    `failed` holds, by slot, rows on which a query's predicate failed: they belong to its rejects, and are not wanted.
    """

    rows: int
    slots: Ints
    words: Words
    failed: Mapping[int, Failed]

    def wanted(self, slot: int) -> np.ndarray:
        """The rows of one query as truth values; raises KeyError for a slot without a query."""
        place = int(np.searchsorted(self.slots, slot))
        if place == len(self.slots) or self.slots[place] != slot:
            raise KeyError(slot)
        return truths(self.words[place], self.rows)

    def counts(self) -> Ints:
        """How many rows each query wants."""
        found: Ints = np.bitwise_count(self.words).sum(axis=1, dtype=np.int64)
        return found

    def by_row(self) -> Words:
        """The same, row-major: bit i of row r says that the query in `slots[i]` wants it."""
        turned = np.ascontiguousarray(truths(self.words, self.rows).T)
        words = np.zeros((self.rows, -(-len(self.slots) // LANES) * 8), np.uint8)
        packed = np.packbits(turned, axis=1, bitorder="little")
        words[:, : packed.shape[1]] = packed
        return words.view(np.uint64)


def match(
    index: QueryIndex, columns: Mapping[str, pa.Array], rows: int, kernel: Kernel | None = None
) -> Matches:
    """Match a batch with all queries of an index; all kernels say the same, None chooses by the batch."""
    batch = prepared(index, columns, rows)
    slots = np.array(sorted(entry.slot.number for entry in index.entries()), np.int64)
    words = np.zeros((len(slots), -(-rows // LANES)), np.uint64)
    if rows:
        for number, (one, at) in enumerate(zip(batch.parts, batch.at, strict=True)):
            _fill(words, slots, batch, number, kernel or chosen(one.part, at, rows))
        _patch(words, slots, batch)
    return Matches(rows, slots, words, batch.failed)


def chosen(part: Part, at: list[Ints], rows: int) -> Kernel:
    """The kernel for bitmaps by query: pairs where queries are very selective, else column-major.

    Never row-major, which would have to be turned: who wants it row by row calls `routing.route`.
    """
    if rows < FEW_ROWS:
        return "columns"
    sample = np.linspace(0, rows - 1, FEW_ROWS).astype(np.int64)
    candidates = probe(part, [one[sample] for one in at], FEW_ROWS).candidates
    return "pairs" if candidates < SPARSE * FEW_ROWS * part.queries else "columns"


def _fill(words: Words, slots: Ints, batch: Prepared, number: int, kernel: Kernel) -> None:
    compiled, at = batch.parts[number], batch.at[number]
    part = compiled.part
    target = np.searchsorted(slots, part.slots)
    live = np.isin(part.slots, slots)
    if batch.dead:
        live &= ~np.isin(part.slots, list(batch.dead))
    if kernel == "columns":
        for low, _, here, mask in blocks(at, batch.rows):
            column = slice(low // LANES, low // LANES + len(mask))
            for tile in tiles_of(compiled.plan, here, mask):
                mine = live[tile.low : tile.high]
                words[target[tile.low : tile.high][mine], column] = tile.words[mine]
    elif kernel == "rows":
        done = 0
        for bits in by_row.blocks_of(part, compiled.tables, at, batch.rows):
            wanted = by_row.queries_of(part, bits).T
            packed = np.packbits(wanted[live], axis=1, bitorder="little")
            words.view(np.uint8)[target[live], done // 8 : done // 8 + packed.shape[1]] = packed
            done += len(bits)
    else:
        for rows, queries in pairs_of(part, at, probe(part, at, batch.rows)):
            mine = live[queries]
            row = rows[mine]
            bit = np.left_shift(np.uint64(1), (row & 63).astype(np.uint64))
            np.bitwise_or.at(words, (target[queries[mine]], row >> 6), bit)


def _patch(words: Words, slots: Ints, batch: Prepared) -> None:
    for slot, bitmap in batch.decided.items():
        words[np.searchsorted(slots, slot)] = bitmap
    for slot, (rows, true) in batch.patches.items():
        place = np.searchsorted(slots, slot)
        mask = truths(words[place], batch.rows)
        mask[rows] = true
        words[place] = words_of(mask)

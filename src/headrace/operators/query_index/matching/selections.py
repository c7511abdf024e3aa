"""Matching of a batch as pairs of a row and the slot of a condition that selects it, for readers that need the rows of each query
rather than bitmaps.

Of selective conditions pairs are found by search (`probe`); of others they are the bits of bitmaps of a block of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.by_column import tiles_of
from headrace.operators.query_index.index import Compiled, QueryIndex
from headrace.operators.query_index.matching.prepare import Failed, Prepared, blocks, prepared, truths
from headrace.operators.query_index.matching.probe import pairs_of, probe

DENSE: Final = 1 / 64
"""From this share of all (row, box) pairs on bitmaps are cheaper than a search, which visits each of its candidates."""

Pairs: TypeAlias = tuple[Ints, Ints]
"""Rows of the batch, and for each the slot of a condition that selects it."""


@dataclass(frozen=True, slots=True, eq=False)
class Selections:
    """The pairs of a batch; `failed` are, by slot, the rows on which a condition failed, which it does not select."""

    batch: Prepared

    @property
    def failed(self) -> Mapping[int, Failed]:
        """The failed rows of each condition that has some."""
        return self.batch.failed

    def pairs(self) -> Iterator[Pairs]:
        """All pairs, each once and in no order, a bounded number at a time."""
        batch = self.batch
        if not batch.rows:
            return
        exceptional = _exceptional_rows(batch)
        for number, compiled in enumerate(batch.parts):
            dead = np.isin(compiled.part.slots, list(batch.dead)) if batch.dead else None
            for rows, queries in _of_part(compiled, batch.at(number), batch.rows):
                live = slice(None) if dead is None else ~dead[queries]
                pairs = rows[live], compiled.part.slots[queries[live]]
                yield pairs if exceptional is None else _without_patched(pairs, exceptional, batch)
        for slot, (rows, is_true) in batch.patches.items():
            yield _of_slot(rows[is_true], slot)
        for slot, words in batch.decided.items():
            yield _of_slot(np.flatnonzero(truths(words, batch.rows)), slot)


def selections(index: QueryIndex, columns: Mapping[str, pa.Array], rows: int) -> Selections:
    """Match a batch with all conditions of an index. Columns by internal name, `rows` long."""
    return Selections(prepared(index, columns, rows))


def _of_slot(rows: Ints, slot: int) -> Pairs:
    return rows, np.full(len(rows), slot, np.int64)


def _of_part(compiled: Compiled, at: Sequence[Ints], rows: int) -> Iterator[Pairs]:
    """Rows and the queries of a part, by their place in it."""
    part = compiled.part
    if not part.boxes:
        return
    probes = probe(part, at, rows)
    if probes.candidates < DENSE * rows * part.boxes:
        yield from pairs_of(part, probes)
        return
    for low, high, here, mask in blocks(list(at), rows):
        for tile in tiles_of(compiled.plan, here, mask):
            queries, selected = truths(tile.words, high - low).nonzero()
            yield selected + low, queries + tile.low


def _exceptional_rows(batch: Prepared) -> np.ndarray | None:
    """Which rows a predicate itself decides, for some query."""
    if not batch.patches:
        return None
    exceptional = np.zeros(batch.rows, bool)
    for rows, _ in batch.patches.values():
        exceptional[rows] = True
    return exceptional


def _without_patched(pairs: Pairs, exceptional: np.ndarray, batch: Prepared) -> Pairs:
    """The pairs that boxes decide. Few rows are exceptional."""
    rows, slots = pairs
    keep = np.ones(len(rows), bool)
    for pair in np.flatnonzero(exceptional[rows]).tolist():
        patch = batch.patches.get(int(slots[pair]))
        keep[pair] = patch is None or rows[pair] not in patch[0]
    return rows[keep], slots[keep]

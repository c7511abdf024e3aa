"""Shared aggregation from matching pairs: every (row, query) that matches is folded like a row. Other strategies use it
for queries with rows that the index does not decide.

The cost is the number of matches, so it is for selective queries, for many groups of few rows, and for partials that
need the rows themselves. Pairs come from probing the sorted batch, or from bitmaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints, compact
from headrace.operators.query_index.boxes.by_column import Words, tiles_of
from headrace.operators.query_index.matching.few_rows import are_few, compared
from headrace.operators.query_index.matching.prepare import Prepared, blocks, truths, words_of
from headrace.operators.query_index.matching.probe import pairs_of, probe
from headrace.operators.shared_aggregation.query_cells import FoldInput, Part, gathered, taken

_PAIRS: Final = 1 << 20


def fold(batch: Prepared, number: int, fold_input: FoldInput, *, probing: bool) -> Iterator[Part]:
    """The cells of one part's queries; pairs by probing (by comparisons of few rows), or from bitmaps."""
    slots = batch.parts[number].part.slots
    by_query = _probed(batch, number) if probing else _from_bitmaps(batch, number)
    pairs = ((rows, slots[queries]) for rows, queries in by_query)
    special = np.array([*batch.dead, *batch.patches], np.int64)
    yield from combined(_without(pairs, special) if len(special) else pairs, fold_input)
    yield from fold_patched(batch, number, fold_input)


def _without(pairs: Iterable[tuple[Ints, Ints]], special: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of other slots."""
    for rows, slots in pairs:
        keep = ~np.isin(slots, special)
        yield rows[keep], slots[keep]


def fold_patched(batch: Prepared, number: int, fold_input: FoldInput) -> Iterator[Part]:
    """The cells of those queries of a part that have exceptional rows."""
    slots = batch.parts[number].part.slots
    patched = [slot for slot in slots.tolist() if slot in batch.patches and slot not in batch.dead]
    if patched:
        yield from fold_decided(
            {slot: words_of(_patched(batch, number, slot)) for slot in patched}, fold_input
        )


def fold_decided(decided: Mapping[int, Words], fold_input: FoldInput) -> Iterator[Part]:
    """The cells of queries whose rows are known, by slot."""
    selected = ((slot, np.flatnonzero(truths(bitmap, fold_input.rows))) for slot, bitmap in decided.items())
    pairs = ((rows, np.full(len(rows), slot)) for slot, rows in selected)
    yield from combined(pairs, fold_input)


def combined(pairs: Iterable[tuple[Ints, Ints]], fold_input: FoldInput) -> Iterator[Part]:
    """One part with distinct cells, from (rows, slots) pairs, each pair once."""
    parts: list[Part] = []
    for rows, slots in _by_size(pairs):
        codes, present = compact(slots * fold_input.count + fold_input.codes[rows], 2**62)
        parts.append(_lifted(rows, codes, present, fold_input))
    if len(parts) == 1:
        yield parts[0]
    elif parts:
        whole = gathered(parts, fold_input)
        codes, present = compact(whole.slots * fold_input.count + whole.codes, 2**62)
        with np.errstate(all="ignore"):
            cells = {
                partial_column: partial_column.partial.reduce(
                    whole.answer.cells[partial_column], codes, len(present)
                )
                for partial_column in fold_input.partial_columns
            }
        yield Part(*np.divmod(present, fold_input.count), cells)


def _lifted(rows: Ints, codes: Ints, present: Ints, fold_input: FoldInput) -> Part:
    with np.errstate(all="ignore"):
        cells = {
            partial_column: partial_column.partial.lift(
                taken(fold_input.arguments[partial_column], rows), codes, len(present)
            )
            for partial_column in fold_input.partial_columns
        }
    return Part(*np.divmod(present, fold_input.count), cells)


def _by_size(pairs: Iterable[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """Pairs in portions of about a million."""
    held: list[tuple[Ints, Ints]] = []
    size = 0
    for rows, slots in pairs:
        held.append((rows, slots))
        size += len(rows)
        if size >= _PAIRS:
            yield (
                np.concatenate([portion[0] for portion in held]),
                np.concatenate([portion[1] for portion in held]),
            )
            held, size = [], 0
    if size:
        yield (
            np.concatenate([portion[0] for portion in held]),
            np.concatenate([portion[1] for portion in held]),
        )


def _probed(batch: Prepared, number: int) -> Iterator[tuple[Ints, Ints]]:
    part, at = batch.parts[number].part, batch.at(number)
    if are_few(part, batch.rows):
        queries, rows = np.nonzero(compared(part, at, batch.rows))
        yield rows, queries
    else:
        yield from pairs_of(part, probe(part, at, batch.rows))


def _from_bitmaps(batch: Prepared, number: int) -> Iterator[tuple[Ints, Ints]]:
    compiled = batch.parts[number]
    for low, high, here, mask in blocks(batch.at(number), batch.rows):
        for tile in tiles_of(compiled.plan, here, mask):
            queries, rows = np.nonzero(truths(tile.words, high - low))
            yield rows + low, queries + tile.low


def _patched(batch: Prepared, number: int, slot: int) -> np.ndarray:
    """The rows that a query with patches selects."""
    compiled = batch.parts[number]
    query = int(np.flatnonzero(compiled.part.slots == slot)[0])
    selected = np.zeros(batch.rows, bool)
    for low, high, here, mask in blocks(batch.at(number), batch.rows):
        for tile in tiles_of(compiled.plan, here, mask):
            if tile.low <= query < tile.high:
                selected[low:high] = truths(tile.words[query - tile.low], high - low)
    rows, true = batch.patches[slot]
    selected[rows] = true
    return selected

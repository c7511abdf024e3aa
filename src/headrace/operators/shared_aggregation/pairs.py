"""Shared aggregation from matching pairs: every (row, query) that matches is folded like a row of its own.

The cost is what matches, so it is for selective queries, for many groups of few rows, and for partials that need the rows
themselves. Pairs come from probing the sorted batch, or out of bitmaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints, compact
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.operators.query_index.boxes.by_column import Words, tiles_of
from headrace.operators.query_index.matching.prepare import Prepared, blocks, truths, words_of
from headrace.operators.query_index.matching.probe import pairs_of, probe
from headrace.operators.shared_aggregation.query_cells import Asked, gathered, taken

_PAIRS: Final = 1 << 20
Part = tuple[Ints, Ints, Mapping[PartialColumn, Cells]]


def fold(batch: Prepared, number: int, question: Asked, *, probing: bool) -> Iterator[Part]:
    """The cells of one part's queries; pairs by probing, or out of bitmaps."""
    slots = batch.parts[number].part.slots
    special = np.array(sorted({*batch.dead, *batch.patches}), np.int64)
    found = _probed(batch, number) if probing else _from_bitmaps(batch, number)
    pairs = ((rows, slots[queries]) for rows, queries in found)
    plain = ((rows[keep], own[keep]) for rows, own in pairs for keep in [~np.isin(own, special)])
    yield from combined(plain, question)
    yield from fold_patched(batch, number, question)


def fold_patched(batch: Prepared, number: int, question: Asked) -> Iterator[Part]:
    """The cells of those queries of a part that have exceptional rows."""
    slots = batch.parts[number].part.slots
    patched = [slot for slot in slots.tolist() if slot in batch.patches and slot not in batch.dead]
    if patched:
        yield from fold_decided({slot: words_of(_patched(batch, number, slot)) for slot in patched}, question)


def fold_decided(decided: Mapping[int, Words], question: Asked) -> Iterator[Part]:
    """The cells of queries whose rows are known, by slot."""
    wanted = ((slot, np.flatnonzero(truths(bitmap, question.rows))) for slot, bitmap in decided.items())
    pairs = ((mine, np.full(len(mine), slot)) for slot, mine in wanted)
    yield from combined(pairs, question)


def combined(pairs: Iterable[tuple[Ints, Ints]], question: Asked) -> Iterator[Part]:
    """One part, whose cells are distinct, of (rows, slots) pairs, each pair once."""
    parts: list[Part] = []
    for rows, slots in _by_size(pairs):
        codes, present = compact(slots * question.count + question.codes[rows], 2**62)
        parts.append(_lifted(rows, codes, present, question))
    if len(parts) == 1:
        yield parts[0]
    elif parts:
        whole = gathered(parts, question)
        codes, present = compact(whole.slots * question.count + whole.codes, 2**62)
        with np.errstate(all="ignore"):
            cells = {
                partial_column: partial_column.partial.reduce(
                    whole.answer.cells[partial_column], codes, len(present)
                )
                for partial_column in question.partial_columns
            }
        yield *np.divmod(present, question.count), cells


def _lifted(rows: Ints, codes: Ints, present: Ints, question: Asked) -> Part:
    with np.errstate(all="ignore"):
        cells = {
            partial_column: partial_column.partial.lift(
                taken(question.arguments[partial_column], rows), codes, len(present)
            )
            for partial_column in question.partial_columns
        }
    return *np.divmod(present, question.count), cells


def _by_size(pairs: Iterable[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """Pairs in portions of about a million."""
    held: list[tuple[Ints, Ints]] = []
    size = 0
    for rows, slots in pairs:
        held.append((rows, slots))
        size += len(rows)
        if size >= _PAIRS:
            yield np.concatenate([one[0] for one in held]), np.concatenate([one[1] for one in held])
            held, size = [], 0
    if size:
        yield np.concatenate([one[0] for one in held]), np.concatenate([one[1] for one in held])


def _probed(batch: Prepared, number: int) -> Iterator[tuple[Ints, Ints]]:
    part, at = batch.parts[number].part, batch.at[number]
    yield from pairs_of(part, at, probe(part, at, batch.rows))


def _from_bitmaps(batch: Prepared, number: int) -> Iterator[tuple[Ints, Ints]]:
    compiled = batch.parts[number]
    for low, high, here, mask in blocks(batch.at[number], batch.rows):
        for tile in tiles_of(compiled.plan, here, mask):
            queries, rows = np.nonzero(truths(tile.words, high - low))
            yield rows + low, queries + tile.low


def _patched(batch: Prepared, number: int, slot: int) -> np.ndarray:
    """Which rows a query with patches wants."""
    compiled = batch.parts[number]
    query = int(np.flatnonzero(compiled.part.slots == slot)[0])
    wanted = np.zeros(batch.rows, bool)
    for low, high, here, mask in blocks(batch.at[number], batch.rows):
        for tile in tiles_of(compiled.plan, here, mask):
            if tile.low <= query < tile.high:
                wanted[low:high] = truths(tile.words[query - tile.low], high - low)
    rows, true = batch.patches[slot]
    wanted[rows] = true
    return wanted

"""Row-major matching of a batch with all queries of an index: for each row, one bitmap of the queries."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes import by_row
from headrace.operators.query_index.boxes.box_index import Part
from headrace.operators.query_index.boxes.by_column import LANES, Words, tiles_of
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching.prepare import Failed, Prepared, blocks, prepared, truths

_NO_SLOT = -1


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """Bit b of `words[row]` is set if the query in slot `slots[b]` selects the row.

    A query of several boxes has several bits, any of which is enough; bits of slot -1 are never set. `failed` as in
    `Matches`.
    """

    slots: Ints
    words: Words
    failed: Mapping[int, Failed]

    def of_row(self, row: int) -> Ints:
        """The slots of the queries that select a row, ascending."""
        return np.unique(self.slots[np.flatnonzero(truths(self.words[row], len(self.slots)))])


def route(index: QueryIndex, columns: Mapping[str, pa.Array], rows: int) -> Routed:
    """Match a batch row-major: the AND of one table row per attribute (parts whose tables would be too large: transposed)."""
    batch = prepared(index, columns, rows)
    owners = [_owners(compiled.part) for compiled in batch.parts]
    if batch.decided:
        owners.append(_padded(np.array(list(batch.decided), np.int64)))
    ends = np.cumsum([0, *(len(owner) // LANES for owner in owners)]).tolist()
    words = np.empty((rows, ends[-1]), np.uint64)
    for number, compiled in enumerate(batch.parts):
        target = words[:, ends[number] : ends[number + 1]]
        if by_row.fits(compiled.part):
            for _ in by_row.blocks_of(compiled.part, compiled.tables, batch.at(number), rows, target):
                pass
        else:
            target[:] = _transposed(batch, number)
    if batch.decided:
        words[:, ends[-2] :] = _packed(truths(np.array(list(batch.decided.values())), rows).T)
    routed = Routed(np.concatenate([np.empty(0, np.int64), *owners]), words, batch.failed)
    _correct(routed, batch)
    return routed


def _owners(part: Part) -> Ints:
    """The slot of each bit of a part's words."""
    fits = by_row.fits(part)
    return _padded(np.repeat(part.slots, np.diff(part.starts)) if fits else part.slots)


def _padded(slots: Ints) -> Ints:
    return np.pad(slots, (0, -len(slots) % LANES), constant_values=_NO_SLOT)


def _packed(selected: np.ndarray) -> Words:
    """Truth values (rows, queries) as words."""
    words = np.zeros((len(selected), -(-selected.shape[1] // LANES) * 8), np.uint8)
    packed = np.packbits(selected, axis=1, bitorder="little")
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint64)


def _transposed(batch: Prepared, number: int) -> Words:
    compiled = batch.parts[number]
    selected = np.zeros((batch.rows, compiled.part.queries), bool)
    for low, high, here, mask in blocks(batch.at(number), batch.rows):
        for tile in tiles_of(compiled.plan, here, mask):
            selected[low:high, tile.low : tile.high] = truths(tile.words, high - low).T
    return _packed(selected)


def _correct(routed: Routed, batch: Prepared) -> None:
    """Clear the bits of dropped queries, and set the values of exceptional rows."""
    dead = np.isin(routed.slots, np.array([_NO_SLOT, *sorted(batch.dead)], np.int64))
    if batch.dead:
        mask = _packed(~dead[None, :])
        np.bitwise_and(routed.words, mask, out=routed.words)
    for slot, (rows, true) in batch.patches.items():
        bits = np.flatnonzero(routed.slots == slot)
        if not len(bits):  # a query that no row satisfies, such as one with AND FALSE
            continue
        for bit in bits.tolist():
            routed.words[rows, bit >> 6] &= ~np.uint64(1 << (bit & 63))
        first = int(bits[0])
        routed.words[rows[true], first >> 6] |= np.uint64(1 << (first & 63))

"""Shared scan of all selections over a stream that store bitmaps (queries with BEGIN … END and materialize 'partial'):
a batch is matched with the conditions of all at once, and the positions of the rows that each selects are stored, as
bitmaps or lists.

A batch is matched by one index of all conditions. Its rows are cut by chunk of positions, and the bitmaps of rows
become bitmaps of positions: shifted by a few bits if the positions have no gap, which is nearly always so. Source:
PSoup, section 3.1 (new data on old queries, and vice versa: a backfill uses the same code).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Scanned
from headrace.operators.families.numbering import number_of
from headrace.operators.on_demand.row_bitmaps import CHUNK, CHUNK_BITS, Bytes, contained, slots_of_owners
from headrace.operators.query_index.index_cache import Conditions, Plans, none_yet
from headrace.operators.query_index.matching.match import Matches, match
from headrace.operators.query_index.matching.prepare import Failed
from headrace.operators.rows.row_pipeline import RowFilter

BITS: Final = "bits"
"""The section of containers."""


class StoredSelection(Protocol):
    """A query that needs the positions of rows that pass its conditions."""

    @property
    def id(self) -> str:
        """The id of its operator."""
        ...

    @property
    def steps(self) -> tuple[RowFilter, ...]:
        """Its conditions."""
        ...


@dataclass(frozen=True)
class SelectionPlan(Conditions[StoredSelection]):
    """The conditions of all selections over a stream, with their queries."""

    @cached_property
    def numbers(self) -> Ints:
        """The queries' numbers."""
        return np.array([number_of(query.id) for query in self.queries], np.int64)


_plans: Final = Plans(none_yet(SelectionPlan))


@dataclass(slots=True)
class SharedSelections:
    """The scan half of several selections over one stream."""

    plan: SelectionPlan
    tables: list[pa.Table] = field(default_factory=list)
    rejected: dict[int, list[Rejected]] = field(default_factory=dict)
    selected_rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    rows_in: int = 0

    @staticmethod
    def of(queries: tuple[StoredSelection, ...]) -> SharedSelections:
        """A scan for all the queries."""
        plan = _plans.of(queries)
        return SharedSelections(plan, selected_rows=np.zeros(len(queries), np.int64))

    def add(self, batch: Batch) -> None:
        """Match a batch, and store the positions that each query selects."""
        if (np.diff(batch.position) < 0).any():
            batch = batch.take(np.argsort(batch.position, kind="stable"))
        self.rows_in += batch.rows
        matches = match(self.plan.index, batch.columns, batch.rows)
        self._note(batch, matches.failed)
        indices = np.searchsorted(matches.slots, self.plan.slots)
        self.selected_rows += matches.counts()[indices]
        chunks = batch.position >> CHUNK_BITS
        edges = np.flatnonzero(np.diff(chunks)) + 1
        for low, high in zip([0, *edges.tolist()], [*edges.tolist(), batch.rows], strict=True):
            first, packed = _at_positions(matches, batch.position[low:high] & (CHUNK - 1), low, high)
            self.tables.append(
                contained(
                    self.plan.numbers,
                    packed[indices],
                    int(chunks[low]),
                    first,
                    int(batch.at[low:high].max()),
                    slots_of_owners(self.plan.numbers),
                )
            )

    def _note(self, batch: Batch, failed: Mapping[int, Failed]) -> None:
        for slot, rows in failed.items():
            rejects = Rejected(batch.at[rows.rows], batch.position[rows.rows], rows.reasons)
            self.rejected.setdefault(slot, []).append(rejects)

    def of_each(self) -> Iterator[tuple[str, Scanned]]:
        """What was scanned for each query, without its containers."""
        for index, query in enumerate(self.plan.queries):
            rejected = tuple(self.rejected.get(int(self.plan.slots[index]), ()))
            yield query.id, Scanned({}, rejected, self.rows_in, int(self.selected_rows[index]))


def _at_positions(matches: Matches, offsets: Ints, low: int, high: int) -> tuple[int, Bytes]:
    """The bitmaps of rows [low, high) by position: the first byte in the chunk, and a row for each bitmap.

    `offsets` are the rows' offsets in the chunk, ascending.
    """
    first, stop = int(offsets[0]) >> 3, (int(offsets[-1]) >> 3) + 1
    if int(offsets[-1] - offsets[0]) == high - low - 1:
        return first, _moved(matches.words.view(np.uint8), low, high, int(offsets[0]) & 7, stop - first)
    rows = matches.words.view(np.uint8)[:, low >> 3 : (high + 7) >> 3]
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, low & 7 : (low & 7) + high - low]
    spread = np.zeros((len(bits), (stop - first) * 8), np.uint8)
    spread[:, offsets - first * 8] = bits
    return first, np.packbits(spread, axis=1, bitorder="little")


def _moved(bitmaps: Bytes, low: int, high: int, by: int, size: int) -> Bytes:
    """Bits [low, high) of each row, shifted so that the first of them is bit `by` of the result, which has `size` bytes."""
    held = bitmaps[:, low >> 3 : (high + 7) >> 3].astype(np.uint16)
    if low & 7:
        held[:, 0] &= np.uint16(0xFF << (low & 7) & 0xFF)
    if high & 7:
        held[:, -1] &= np.uint16(0xFF >> (8 - (high & 7)))
    shift = by - (low & 7)
    moved = np.zeros((len(held), max(size, held.shape[1]) + 1), np.uint8)
    if shift >= 0:
        moved[:, : held.shape[1]] |= (held << np.uint16(shift) & np.uint16(0xFF)).astype(np.uint8)
        moved[:, 1 : held.shape[1] + 1] |= (held << np.uint16(shift) >> np.uint16(8)).astype(np.uint8)
    else:
        moved[:, : held.shape[1]] |= (held >> np.uint16(-shift)).astype(np.uint8)
        moved[:, : held.shape[1] - 1] |= (held[:, 1:] << np.uint16(8 + shift) & np.uint16(0xFF)).astype(
            np.uint8
        )
    return moved[:, :size]

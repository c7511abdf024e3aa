"""State of selections (queries with BEGIN … END): which archived rows each has selected, as bitmaps over positions, or
lists of positions where these are smaller; their encoding, reading and union.

Positions are cut into *chunks* of 2^16. A query's selection in a chunk is one *container*: the bitmap of the chunk between
the first and the last nonzero byte, or the positions themselves, two bytes each, if that is smaller. So a query that selects
one row in a thousand pays for its rows, and one that selects every third pays an eighth of a byte per row. Containers of one
query and chunk, from epochs that each read a part of it, are united; no two of them hold the same row.
Source: PSoup (Chandrasekaran, Franklin 2002), section 3.3, the Results Structure: bitmap or list, by space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import Ints, flat, slots_of
from headrace.operators.base.operator import SLOT
from headrace.time import Instant

CHUNK_BITS: Final = 16
CHUNK: Final = 1 << CHUNK_BITS
CHUNK_BYTES: Final = CHUNK // 8
OWNER: Final = "k0"
"""The column of the query's number in a family's state."""
_FORM: Final = "__form"
_FIRST: Final = "__first"
_UNTIL: Final = "__until"
_BITS: Final = "__bits"
BITMAP: Final = 0
LIST: Final = 1
Bytes: TypeAlias = npt.NDArray[np.uint8]
_ONE: Final = np.left_shift(np.uint8(1), np.arange(8, dtype=np.uint8))

SCHEMA: Final = pa.schema(
    [
        (SLOT, pa.int16()),
        (KEY, pa.int64()),
        (OWNER, pa.int64()),
        (_FORM, pa.int8()),
        (_FIRST, pa.int32()),
        (_UNTIL, pa.int64()),
        (_BITS, pa.large_binary()),
    ]
)
"""One container per row: its slot, chunk and owner; form; first byte; a bound `until` of its rows' event times; and its
bytes.
"""


@dataclass(frozen=True, slots=True)
class Containers:
    """Containers as arrays, in the order of `table`; `data[starts[i] : starts[i + 1]]` are the bytes of the i-th."""

    table: pa.Table
    owner: Ints
    chunk: Ints
    form: npt.NDArray[np.int8]
    first: npt.NDArray[np.int32]
    until: Ints
    starts: Ints
    data: Bytes

    @staticmethod
    def of(table: pa.Table) -> Containers:
        """The containers of a state table."""
        owner, chunk, form, first, until = (
            flat(table.column(name)).to_numpy() for name in (OWNER, KEY, _FORM, _FIRST, _UNTIL)
        )
        bits = flat(table.column(_BITS))
        _, offsets, data = bits.buffers()
        starts = np.frombuffer(offsets, np.int64, len(bits) + 1, bits.offset * 8)
        held = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return Containers(table, owner, chunk, form, first, until, starts, held)

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def sizes(self) -> Ints:
        """Bytes of each container."""
        sizes: Ints = np.diff(self.starts)
        return sizes

    def spread(self, rows: Ints) -> tuple[Ints, Ints, Bytes]:
        """The bytes of some containers, one by one: container (index in `rows`), byte of the chunk, and value."""
        parts = [self._bitmaps(rows), self._lists(rows)]
        return tuple(np.concatenate([part[i] for part in parts]) for i in range(3))  # type: ignore[return-value]

    def _bitmaps(self, rows: Ints) -> tuple[Ints, Ints, Bytes]:
        bitmaps = np.flatnonzero(self.form[rows] == BITMAP)
        sizes, picked = self._picked(rows[bitmaps])
        inside = np.arange(len(picked)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return (
            np.repeat(bitmaps, sizes),
            np.repeat(self.first[rows[bitmaps]], sizes) + inside,
            self.data[picked],
        )

    def _lists(self, rows: Ints) -> tuple[Ints, Ints, Bytes]:
        lists = np.flatnonzero(self.form[rows] == LIST)
        sizes, picked = self._picked(rows[lists])
        values = np.ascontiguousarray(self.data[picked]).view(np.uint16)
        return np.repeat(lists, sizes // 2), (values >> 3).astype(np.int64), _ONE[values & 7]

    def _picked(self, rows: Ints) -> tuple[Ints, Ints]:
        sizes = self.starts[rows + 1] - self.starts[rows]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        return sizes, np.arange(total) + np.repeat(self.starts[rows] - (ends - sizes), sizes)


def contained(
    owners: Ints, packed: Bytes, chunk: int, first: int, until: Instant, slots: npt.NDArray[np.int16]
) -> pa.Table:
    """One container for each owner that selects a row: `packed[i]` are bytes of the chunk from byte `first` on."""
    return _encoded(owners, np.full(len(owners), chunk), np.full(len(owners), until), slots, packed, first)


def _encoded(
    owners: Ints, chunks: Ints, until: Ints, slots: npt.NDArray[np.int16], packed: Bytes, first: int
) -> pa.Table:
    """One container for each row of `packed` that is not all zero, in the smaller of the two forms."""
    there = packed != 0
    some = np.flatnonzero(there.any(axis=1))
    if len(some) < len(packed):
        packed, there = packed[some], there[some]
        owners, chunks, until, slots = owners[some], chunks[some], until[some], slots[some]
    if not len(some):
        return SCHEMA.empty_table()
    low = there.argmax(axis=1)
    high = packed.shape[1] - there[:, ::-1].argmax(axis=1)
    counts = np.bitwise_count(packed).sum(axis=1, dtype=np.int64)
    listed = 2 * counts < high - low
    inside = np.arange(packed.shape[1])
    dense = np.flatnonzero(~listed)
    is_inside = (inside >= low[dense, None]) & (inside < high[dense, None])
    sparse = np.flatnonzero(listed)
    held = [packed[dense][is_inside], _positions(packed[sparse], first).view(np.uint8)]
    sizes = np.concatenate([(high - low)[dense], 2 * counts[sparse]])
    order = np.concatenate([dense, sparse])
    forms = np.repeat(np.array([BITMAP, LIST], np.int8), [len(dense), len(sparse)])
    firsts = np.where(forms == BITMAP, first + low[order], 0).astype(np.int32)
    return _table(
        slots[order], chunks[order], owners[order], forms, firsts, until[order], sizes, np.concatenate(held)
    )


def _positions(packed: Bytes, first: int) -> npt.NDArray[np.uint16]:
    """The offsets within the chunk of the bits that are set, row by row."""
    row, byte = np.nonzero(packed)
    bits = np.unpackbits(packed[row, byte][:, None], axis=1, bitorder="little")
    which, bit = np.nonzero(bits)
    positions: npt.NDArray[np.uint16] = ((first + byte[which]) * 8 + bit).astype(np.uint16)
    return positions


def _table(
    slots: npt.NDArray[np.int16],
    chunks: Ints,
    owners: Ints,
    forms: npt.NDArray[np.int8],
    firsts: npt.NDArray[np.int32],
    until: Ints,
    sizes: Ints,
    data: Bytes,
) -> pa.Table:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    bits = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    columns = [pa.array(column) for column in (slots, chunks, owners, forms, firsts, until)]
    return pa.table([*columns, bits], schema=SCHEMA)


def united(tables: Sequence[pa.Table]) -> pa.Table:
    """The same rows with one container for each owner and chunk. Single containers are passed through."""
    whole = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    if whole.num_rows < 2:
        return whole
    containers = Containers.of(whole.combine_chunks())
    order = np.lexsort([containers.chunk, containers.owner])
    owner, chunk = containers.owner[order], containers.chunk[order]
    fresh = np.r_[True, (owner[1:] != owner[:-1]) | (chunk[1:] != chunk[:-1])]
    code = np.cumsum(fresh) - 1
    several = np.bincount(code)[code] > 1
    if not several.any():
        return whole
    parts = [containers.table.take(pa.array(np.sort(order[~several])))]
    together = order[several]
    chunks = containers.chunk[together]
    parts += [_unite(containers, together[chunks == number]) for number in np.unique(chunks).tolist()]
    return pa.concat_tables(parts)


def _unite(containers: Containers, rows: Ints) -> pa.Table:
    """Containers of one chunk, those of one owner united; `rows` are in order of owners."""
    owners, first_of, code = np.unique(containers.owner[rows], return_index=True, return_inverse=True)
    low, high = CHUNK_BYTES, 0
    whose, byte, value = containers.spread(rows)
    if len(byte):
        low, high = int(byte.min()), int(byte.max()) + 1
    packed = np.zeros((len(owners), max(high - low, 1)), np.uint8)
    np.bitwise_or.at(packed.reshape(-1), code[whose] * packed.shape[1] + byte - low, value)
    until = np.full(len(owners), np.iinfo(np.int64).min)
    np.maximum.at(until, code, containers.until[rows])
    slots = flat(containers.table.column(SLOT)).to_numpy()[rows[first_of]]
    return _encoded(owners, containers.chunk[rows[first_of]], until, slots, packed, min(low, CHUNK_BYTES - 1))


def slots_of_owners(owners: Ints) -> npt.NDArray[np.int16]:
    """The slot of each query's containers: one slot per query, so that they can be united."""
    slots: npt.NDArray[np.int16] = slots_of([pa.array(owners)], len(owners))
    return slots

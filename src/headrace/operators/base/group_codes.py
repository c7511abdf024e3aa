"""Group codes (0, 1, …) of rows, for any key columns; stable hashes of values, and the slot of state that belongs to
each group; and conversions of Arrow columns to numpy arrays.

A group's identity is its key values: NULL is a value of its own, all NaN are one value, and -0.0 equals 0.0. Codes are
local to one call. Slots (0..255) never change, since state files are found by them (decision D7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.dataclass import dataclass
from headrace.operators.base.text_hash import hash_of_text, hashes_of_texts

SLOTS: Final = 256
"""A power of two: a slot is the last bits of a hash."""
Ints: TypeAlias = npt.NDArray[np.int64]
_WIDEST: Final = 2**62
_MANY: Final = 8
"""From this many rows per (block, group) pair on, counting all possible pairs is cheap."""


@dataclass(frozen=True, slots=True)
class Groups:
    """`codes[row]` in 0..count-1, and per group one value of each key column.

    `sizes` are the rows of each group if they were counted already; then `large` is how many groups, the first ones,
    have more rows than the `small` of `group`. With `live` the codes are sparse, and `live[g]` is the code of group g.
    """

    codes: Ints
    count: int
    keys: tuple[pa.Array, ...]
    sizes: Ints | None = None
    large: int | None = None
    live: Ints | None = None

    def dense(self) -> Groups:
        """The same with dense codes."""
        if self.live is None:
            return self
        rank = np.empty(int(self.live.max()) + 1, np.int64)
        rank[self.live] = np.arange(self.count)
        return replace(self, codes=rank.take(self.codes), live=None)

    def of_rows(self, rows: Ints) -> Groups:
        """The groups of some of the rows: those without any of these rows are left out."""
        groups = self.dense()
        codes, held = compact(groups.codes[rows], groups.count)
        return Groups(codes, len(held), tuple(picked(key, held) for key in groups.keys))


def group(
    columns: Sequence[pa.Array],
    rows: int,
    *,
    small: int | None = None,
    placed: bool = False,
    blocks: int = 1,
) -> Groups:
    """Group `rows` rows by equal values of the columns; without columns there is one group (none without rows).

    With `small`, groups of at most that many rows come last, and rows are counted, where both are free: for integers in
    a narrow range. With `placed` codes may be sparse (`live`), which saves a pass over the rows. If the rows are of
    several `blocks` and there are many rows per possible (block, group) pair, groups without rows may be included: the
    caller finds the pairs that occur.
    """
    if not columns:
        return Groups(np.zeros(rows, np.int64), 1 if rows else 0, ())
    if len(columns) == 1 and small is not None:
        narrow = _narrow(flat(columns[0]))
        if narrow is not None:
            if blocks > 1 and _MANY * narrow[2] * blocks <= rows:
                return _every(*narrow, columns[0].type)
            groups = _by_size(*narrow, columns[0].type, small)
            return groups if placed and narrow[2] <= rows else groups.dense()
    encoded = [_encode(normalise(flat(column))) for column in columns]
    codes, values = encoded[0]
    if len(encoded) == 1:
        return Groups(codes, len(values), (values,))
    return _combine(encoded, rows)


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array of a column that may be chunked."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def ints(table: pa.Table, name: str) -> Ints:
    """A table's column of integers or booleans as a numpy array."""
    values: Ints = flat(table.column(name)).to_numpy(zero_copy_only=False)
    return values


def picked(column: pa.Array, indices: Ints | slice) -> pa.Array:
    """The values at some indices; for plain numbers and times at the speed of memory."""
    if isinstance(indices, slice):
        return column[indices]
    kind = column.type
    if not column.null_count:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return pa.array(column.to_numpy().take(indices))
        if pa.types.is_timestamp(kind):
            return pa.array(column.view(pa.int64()).to_numpy().take(indices)).view(kind)
    return column.take(pa.array(indices))


_FEW: Final = 1 << 12


def picked_rows(table: pa.Table, indices: Ints) -> pa.Table:
    """The rows at some indices, in memory of one piece; few rows by one call for all columns."""
    if len(indices) <= _FEW:
        return table.take(pa.array(indices)).combine_chunks()
    columns = [picked(flat(column), indices) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def normalise(column: pa.Array) -> pa.Array:
    """Make equal doubles identical: one NaN, no negative zero."""
    if not pa.types.is_floating(column.type):
        return column
    values = column.to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, column.type, mask=mask)


def _encode(column: pa.Array) -> tuple[Ints, pa.Array]:
    if pa.types.is_struct(column.type):
        return _encode_struct(column)
    if pa.types.is_list(column.type):
        return _encode_lists(column)
    if pa.types.is_integer(column.type) and not column.null_count:
        integers = _encode_equal_integers(column) or _encode_narrow_integers(column)
        if integers is not None:
            return integers
    encoded = column.dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def texts_of_lists(column: pa.Array) -> pa.Array:
    """A text for each list, equal for equal lists. Row by row: lists cannot be keys, they are only carried along."""
    return pa.array([None if items is None else repr(items) for items in column.to_pylist()], pa.string())


def _encode_lists(column: pa.Array) -> tuple[Ints, pa.Array]:
    codes, texts = _encode(texts_of_lists(column))
    first = np.full(len(texts), len(column), np.int64)
    np.minimum.at(first, codes, np.arange(len(column)))
    return codes, column.take(pa.array(first))


def _encode_struct(column: pa.Array) -> tuple[Ints, pa.Array]:
    """Structs are equal when all their fields are; a NULL struct differs from a struct of NULLs."""
    groups = group([column.is_valid(), *column.flatten()], len(column))
    first = np.full(groups.count, len(column), np.int64)
    np.minimum.at(first, groups.codes, np.arange(len(column)))
    return groups.codes, column.take(pa.array(first))


def _narrow(column: pa.Array) -> tuple[Ints, int, int] | None:
    """(integers minus their minimum, the minimum, the span); None unless they are in a narrow range."""
    if not pa.types.is_integer(column.type) or column.null_count or len(column) < 1024:
        return None
    values = column.to_numpy()
    low, high = int(values.min()), int(values.max())
    if high - low >= 4 * len(values):
        return None
    return values.astype(np.int64, copy=False) - low, low, high - low + 1


def _every(local: Ints, low: int, span: int, kind: pa.DataType) -> Groups:
    """A group for each integer of the range."""
    return Groups(local, span, (pa.array(np.arange(low, low + span), kind),))


def _by_size(local: Ints, low: int, span: int, kind: pa.DataType, small: int) -> Groups:
    """Groups of narrow integers, those of more than `small` rows first; by counting, without a hash table."""
    sizes = np.bincount(local, minlength=span)
    live = first = np.flatnonzero(sizes > small)
    if small:
        small_groups = np.flatnonzero(sizes == 1 if small == 1 else (sizes > 0) & (sizes <= small))
        live = np.concatenate([first, small_groups])
    keys = (pa.array(live + low, kind),)
    if not small and len(live) == span:
        return Groups(local, span, keys, sizes, span)
    return Groups(local, len(live), keys, sizes.take(live), len(first), live)


def _encode_equal_integers(column: pa.Array) -> tuple[Ints, pa.Array] | None:
    """One integer that is repeated, such as the number of the only query of a state."""
    values = column.to_numpy()
    if not len(values) or values.item(0) != values.item(-1) or not (values == values[0]).all():
        return None
    return np.zeros(len(values), np.int64), pa.array([values.item(0)], column.type)


def _encode_narrow_integers(column: pa.Array) -> tuple[Ints, pa.Array] | None:
    """Integers in a narrow range need no hash table: about 1 ns a row instead of 10."""
    narrow = _narrow(column)
    if narrow is None:
        return None
    local, low, span = narrow
    present = np.zeros(span, bool)
    present[local] = True
    if present.all():
        return local, pa.array(np.arange(low, low + span), column.type)
    rank = np.cumsum(present) - 1
    return rank.take(local), pa.array(np.flatnonzero(present) + low, column.type)


def _combine(encoded: list[tuple[Ints, pa.Array]], rows: int) -> Groups:
    sizes = [len(values) for _, values in encoded]
    varying = [index for index, size in enumerate(sizes) if size != 1]
    if len(varying) == 1:  # such as the keys of one query, whose number is the first of them
        codes, one = encoded[varying[0]][0], np.zeros(sizes[varying[0]], np.int64)
        columns = (values if len(values) != 1 else values.take(pa.array(one)) for _, values in encoded)
        return Groups(codes, sizes[varying[0]], tuple(columns))
    span = 1
    for size in sizes:
        span *= max(size, 1)
    if span >= _WIDEST:
        return _combine_stepwise(encoded, rows)
    codes = encoded[0][0]
    for (local, _), size in zip(encoded[1:], sizes[1:], strict=True):
        codes = codes * size + local
    codes, present = compact(codes, span)
    parts: list[Ints] = []
    rest = present
    for size in reversed(sizes[1:]):
        rest, part = np.divmod(rest, size)
        parts.append(part)
    parts.append(rest)
    keys = tuple(
        values.take(pa.array(part)) for (_, values), part in zip(encoded, reversed(parts), strict=True)
    )
    return Groups(codes, len(present), keys)


def _combine_stepwise(encoded: list[tuple[Ints, pa.Array]], rows: int) -> Groups:
    codes = encoded[0][0]
    for local, values in encoded[1:]:
        codes, _ = compact(codes * max(len(values), 1) + local, _WIDEST)
    count = int(codes.max()) + 1 if rows else 0
    first = np.full(count, rows, np.int64)
    np.minimum.at(first, codes, np.arange(rows))
    picks = [values.take(pa.array(local[first])) for local, values in encoded]
    return Groups(codes, count, tuple(picks))


def compact(codes: Ints, span: int) -> tuple[Ints, Ints]:
    """Renumber codes densely: new codes, and for each new code the old one. `span` bounds the old codes."""
    if span <= max(4 * len(codes), 4096):
        present = np.zeros(span, bool)
        present[codes] = True
        live = np.flatnonzero(present)
        if len(live) == span:
            return codes, live
        rank = np.empty(span, np.int64)
        rank[live] = np.arange(len(live))
        return rank.take(codes), live
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_numpy()


def slots_of(keys: Sequence[pa.Array], count: int) -> npt.NDArray[np.int16]:
    """The stable slot of each of `count` groups, from the values of its keys alone."""
    mixed = np.zeros(count, np.uint64)
    for key in keys:
        mixed = _mix(mixed ^ _hash(normalise(flat(key))))
    return (mixed & np.uint64(SLOTS - 1)).astype(np.int16)


def hashes(column: pa.Array) -> Ints:
    """Stable 64-bit hashes of values: equal for values that are equal as group keys."""
    if pa.types.is_integer(column.type):  # cheaper to hash than to look up
        numbers: Ints = _hash(flat(column)).view(np.int64)
        return numbers
    encoded = normalise(flat(column)).dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    mixed: Ints = _hash(encoded.dictionary).view(np.int64)[codes]
    return mixed


def slot_of_name(name: str) -> int:
    """The stable slot of something that has a name."""
    return hash_of_text(name) % SLOTS


def _hash(column: pa.Array) -> npt.NDArray[np.uint64]:
    kind = column.type
    if pa.types.is_binary(kind):
        raw: npt.NDArray[Any] = column.fill_null(b"\0null").to_numpy(zero_copy_only=False)
        return _mix(hashes_of_texts(raw.astype(object)))
    if pa.types.is_string(kind) or pa.types.is_decimal(kind):
        texts: npt.NDArray[Any] = column.cast(pa.string()).fill_null("\0null").to_numpy(zero_copy_only=False)
        return _mix(hashes_of_texts(texts.astype(object)))
    if pa.types.is_integer(kind) and not column.null_count:
        return _mix(as_int64(column).view(np.uint64))
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        bits = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_null(kind):
        bits = np.zeros(len(column), np.uint64)
    else:
        bits = as_int64(column).view(np.uint64)
    return _mix(np.where(nulls, np.uint64(0x9E3779B97F4A7C15), bits))


def as_int64(column: pa.Array) -> Ints:
    """Integers, booleans, dates, timestamps and durations as int64; NULL as 0."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.view(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0)
    values: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


_STEPS: Final = tuple(
    (np.uint64(bits), np.uint64(factor))
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
)


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: every input bit moves every output bit."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    for bits, factor in _STEPS:
        value ^= value >> bits
        value *= factor
    value ^= value >> np.uint64(31)
    return value


def numbers_of_hashes(mixed: Ints) -> Ints:
    """The integers with these hashes: the inverse of `hashes`, whose every step is a permutation.

    >>> numbers_of_hashes(hashes(pa.array([0, 7, -(2**63)]))).tolist()
    [0, 7, -9223372036854775808]
    """
    value = mixed.view(np.uint64)
    with np.errstate(over="ignore"):
        value = value ^ (value >> np.uint64(31)) ^ (value >> np.uint64(62))
        value = value * np.uint64(0x319642B2D24D8EC3)
        value = (value ^ (value >> np.uint64(27)) ^ (value >> np.uint64(54))) * np.uint64(0x96DE1B173F119089)
        value = (value ^ (value >> np.uint64(30)) ^ (value >> np.uint64(60))) - np.uint64(0x9E3779B97F4A7C15)
    numbers: Ints = value.view(np.int64)
    return numbers

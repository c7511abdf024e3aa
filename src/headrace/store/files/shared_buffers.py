"""Columns of an Arrow table that share one buffer in memory: which do, the table without the repeated ones (which is
what `container` writes), and with them again; also a filter that keeps the sharing.

Counts of rows and of values that are never NULL, or the end of a window and its emission time, are made as one array under
several names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

SharedBuffers: TypeAlias = Sequence[Sequence[int]]
"""Pairs: the index of a column, and the index of the earlier column whose buffer it shares."""


def shared_buffers_of(table: pa.Table) -> list[list[int]]:
    """Columns of numbers, also of different types, that share the buffer of an earlier one."""
    first: dict[tuple[object, ...], int] = {}
    shared = []
    for index, column in enumerate(table.columns):
        if pa.types.is_primitive(column.type) and not pa.types.is_boolean(column.type):
            original = first.setdefault((column.type.bit_width, *map(_memory, column.chunks)), index)
            if original != index:
                shared.append([index, original])
    return shared


def equal_columns_of(table: pa.Table) -> list[list[int]]:
    """Columns of numbers without NULLs, in one chunk each, that have the same bytes as an earlier one, also of another type.

    Where rows were copied, as those of many small sections are, columns that were one memory are two.
    """
    seen: list[tuple[int, np.ndarray]] = []
    equal = []
    for index, column in enumerate(table.columns):
        numbers = _numbers(column)
        if numbers is None:
            continue
        original = next((other for other, those in seen if _are_equal(those, numbers)), None)
        if original is None:
            seen.append((index, numbers))
        else:
            equal.append([index, original])
    return equal


def _numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    kind = column.type
    plain = pa.types.is_primitive(kind) and not (pa.types.is_boolean(kind) or column.null_count)
    if not plain or column.num_chunks != 1:
        return None
    chunk = column.chunk(0)
    values = np.frombuffer(chunk.buffers()[1], f"u{kind.bit_width // 8}")
    return values[chunk.offset : chunk.offset + len(chunk)]


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Nearly always decided by the first number or the last."""
    if one.dtype != other.dtype or not len(one) or one[0] != other[0] or one[-1] != other[-1]:
        return False
    return np.array_equal(one, other)


def _memory(chunk: pa.Array) -> tuple[object, ...]:
    buffers = (None if buffer is None else buffer.address for buffer in chunk.buffers())
    return (len(chunk), chunk.offset, *buffers)


def without(table: pa.Table, shared_buffers: SharedBuffers) -> pa.Table:
    """The table without the columns that share an earlier one's buffer."""
    return table.select(_stored_columns(table.num_columns, shared_buffers))


def schema_without(schema: pa.Schema, shared_buffers: SharedBuffers) -> pa.Schema:
    """The schema of such a table."""
    return pa.schema(
        [schema.field(index) for index in _stored_columns(len(schema), shared_buffers)], schema.metadata
    )


def with_shared_buffers(
    batch: pa.RecordBatch, schema: pa.Schema, shared_buffers: SharedBuffers
) -> pa.RecordBatch:
    """A batch with the columns that `without` left out, under `schema`."""
    columns: list[pa.Array] = [None] * len(schema)
    for index, column in zip(_stored_columns(len(schema), shared_buffers), batch.columns, strict=True):
        columns[index] = column
    for index, original in shared_buffers:
        columns[index] = columns[original].view(schema.field(index).type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def filtered(table: pa.Table, mask: pa.Array) -> pa.Table:
    """The rows that a mask selects; columns that shared a buffer share one again."""
    shared_buffers = shared_buffers_of(table)
    if not shared_buffers:
        return table.filter(mask)
    batches = without(table, shared_buffers).filter(mask).to_batches()
    return pa.Table.from_batches(
        [with_shared_buffers(batch, table.schema, shared_buffers) for batch in batches], table.schema
    )


def _stored_columns(columns: int, shared_buffers: SharedBuffers) -> list[int]:
    dropped = {index for index, _ in shared_buffers}
    return [index for index in range(columns) if index not in dropped]

"""Columns of a table that are the same memory: written once, and one memory again when they are read.

Counts of rows and of values that are never NULL, or the end of a window and the instant at which it is told, are made as one
array under several names. To compress, move and read them several times would be work for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

SharedBuffers: TypeAlias = Sequence[Sequence[int]]
"""Pairs: the place of a column, and the place of the one before it whose memory it has."""


def shared_buffers_of(table: pa.Table) -> list[list[int]]:
    """Columns of numbers, also of different types, that are the memory of one before them."""
    first: dict[tuple[object, ...], int] = {}
    found = []
    for place, column in enumerate(table.columns):
        if pa.types.is_primitive(column.type) and not pa.types.is_boolean(column.type):
            original = first.setdefault((column.type.bit_width, *map(_memory, column.chunks)), place)
            if original != place:
                found.append([place, original])
    return found


def _memory(chunk: pa.Array) -> tuple[object, ...]:
    buffers = (None if buffer is None else buffer.address for buffer in chunk.buffers())
    return (len(chunk), chunk.offset, *buffers)


def without(table: pa.Table, shared_buffers: SharedBuffers) -> pa.Table:
    """The table without the columns that others are."""
    return table.select(_kept(table.num_columns, shared_buffers))


def schema_without(schema: pa.Schema, shared_buffers: SharedBuffers) -> pa.Schema:
    """The same of a schema."""
    return pa.schema([schema.field(place) for place in _kept(len(schema), shared_buffers)], schema.metadata)


def with_shared_buffers(
    batch: pa.RecordBatch, schema: pa.Schema, shared_buffers: SharedBuffers
) -> pa.RecordBatch:
    """A batch of a table without them, with them: as `schema` says."""
    columns: list[pa.Array] = [None] * len(schema)
    for place, column in zip(_kept(len(schema), shared_buffers), batch.columns, strict=True):
        columns[place] = column
    for place, original in shared_buffers:
        columns[place] = columns[original].view(schema.field(place).type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def filtered(table: pa.Table, mask: pa.Array) -> pa.Table:
    """The rows that a mask says; columns that were one memory are one again."""
    shared_buffers = shared_buffers_of(table)
    if not shared_buffers:
        return table.filter(mask)
    batches = without(table, shared_buffers).filter(mask).to_batches()
    return pa.Table.from_batches(
        [with_shared_buffers(batch, table.schema, shared_buffers) for batch in batches], table.schema
    )


def _kept(columns: int, shared_buffers: SharedBuffers) -> list[int]:
    dropped = {place for place, _ in shared_buffers}
    return [place for place in range(columns) if place not in dropped]

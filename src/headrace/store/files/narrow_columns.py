"""Columns of integers written with fewer bytes than their type has: as differences from the least value, in the narrowest type that
holds the greatest; a column of equal values needs none.

Numbers, instants and codes of a run mostly have a range of their own that needs few of their 64 bits. To subtract and to add one number
costs the time of a copy, where a compressor searches for repetitions that random values do not have.
Source: frame of reference (Goldstein, Ramakrishnan, Shaft 1998, "Compressing relations and indexes").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

Narrowed: TypeAlias = Sequence[Sequence[int]]
"""Of each such column: its index, the least value, and the bytes in which differences are written; 0 where all are 0."""
_TYPES: Final[dict[int, pa.DataType]] = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}
_WIDE: Final[dict[int, pa.DataType]] = {32: pa.int32(), 64: pa.int64()}


def narrowed(table: pa.Table) -> tuple[pa.Table, list[list[int]]]:
    """The table with narrower columns, as it is written, and what is to be known to widen them again."""
    columns, fields, narrow = list[pa.ChunkedArray | pa.Array](), list[pa.Field](), list[list[int]]()
    for index, (column, field) in enumerate(zip(table.columns, table.schema, strict=True)):
        values = _integers(column)
        least, size = (0, 8) if values is None else _range_of(values)
        is_last = index + 1 == table.num_columns and not columns
        size = 1 if is_last and not size else size  # a batch without columns has no rows
        if values is None or size >= values.itemsize:
            columns.append(column)
            fields.append(field)
            continue
        narrow.append([index, least, size])
        if size:
            columns.append(pa.array(_differences(values, least, _TYPES[size].to_pandas_dtype())))
            fields.append(field.with_type(_TYPES[size]))
    if not narrow:
        return table, narrow
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata)), narrow


def schema_narrowed(schema: pa.Schema, narrow: Narrowed) -> pa.Schema:
    """The schema of a table that `narrowed` has returned."""
    sizes = {index: size for index, _, size in narrow}
    fields = []
    for index, field in enumerate(schema):
        size = sizes.get(index)
        if size != 0:
            fields.append(field if size is None else field.with_type(_TYPES[size]))
    return pa.schema(fields, schema.metadata)


def widened(batch: pa.RecordBatch, schema: pa.Schema, narrow: Narrowed) -> pa.RecordBatch:
    """A batch of such a table as it was before, under `schema`."""
    columns: list[pa.Array] = []
    left, of_index = iter(batch.columns), {index: (least, size) for index, least, size in narrow}
    for index, field in enumerate(schema):
        if index not in of_index:
            columns.append(next(left))
            continue
        least, size = of_index[index]
        kind = np.dtype(f"i{field.type.bit_width // 8}")
        if size:
            values = next(left).to_numpy().astype(kind)
            values += kind.type(least)
        else:
            values = np.full(batch.num_rows, least, kind)
        columns.append(pa.array(values).view(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _integers(column: pa.ChunkedArray) -> np.ndarray | None:
    """The values of a column of integers or of times without NULLs, some at least; None of others."""
    kind = column.type
    is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    if not (is_time or pa.types.is_signed_integer(kind)) or column.null_count or not len(column):
        return None
    wide = _WIDE.get(kind.bit_width)
    if wide is None:
        return None
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    values: np.ndarray = whole.view(wide).to_numpy()
    return values


def _range_of(values: np.ndarray) -> tuple[int, int]:
    """The least of some values, and the bytes that the differences from it need."""
    least = int(values.min())
    bits = (int(values.max()) - least).bit_length()
    return least, next((size for size in (0, 1, 2, 4) if bits <= 8 * size), 8)


def _differences(values: np.ndarray, least: int, kind: type[np.unsignedinteger]) -> np.ndarray:
    """The differences from the least value: those of the last bits, since they fit these."""
    differences = values.astype(kind)
    differences -= kind(least & int(np.iinfo(kind).max))
    return differences

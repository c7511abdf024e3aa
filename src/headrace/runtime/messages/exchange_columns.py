"""Large tables of numbers in a blob's file: the buffers of each column one after another.

Nothing is copied to write them, and the reader maps each column in one piece, where record batches would have as many as there
are chunks. A column of zeros, as the high parts of most sums are, has no bytes, and columns that are one memory, as counts are, are
written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass

_ALIGNMENT: Final = 64
_LARGE: Final = 1 << 20
"""Bytes of a table from which it is written so."""
_BYTE: Final = 8
"""Bits."""

Buffers: TypeAlias = list[pa.Buffer]


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """Where a table of `rows` rows is: where each column begins, None for one of zeros; `schema` is encoded."""

    schema: bytes
    rows: int
    begins: tuple[int | None, ...]

    def read(self, data: pa.Buffer) -> pa.Table:
        """The table, as a view of `data`."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        columns = [
            _column(data, field.type, self.rows, begin)
            for field, begin in zip(schema, self.begins, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)


def are_plain(table: pa.Table) -> bool:
    """Whether a table is large, and all of its columns are numbers of whole bytes without NULLs."""
    return table.nbytes >= _LARGE and all(
        _width(column.type) and not column.null_count for column in table.columns
    )


def written(tables: Mapping[str, pa.Table]) -> tuple[dict[str, WrittenTable], Buffers]:
    """Where the columns of plain tables are in the buffers that follow."""
    parts, at, places = Buffers(), 0, dict[str, WrittenTable]()
    for name, table in tables.items():
        begins: list[int | None] = []
        known: dict[tuple[tuple[int, int], ...], int] = {}
        for column in table.columns:
            buffers = list(_buffers(column.chunks, _width(column.type)))
            if all(map(_is_zero, buffers)):
                begins.append(None)
                continue
            place = tuple((buffer.address, buffer.size) for buffer in buffers)
            begins.append(known.setdefault(place, at))
            if begins[-1] != at:
                continue
            size = sum(buffer.size for buffer in buffers)
            parts += [*buffers, pa.py_buffer(bytes(-size % _ALIGNMENT))]
            at += size + -size % _ALIGNMENT
        places[name] = WrittenTable(table.schema.serialize().to_pybytes(), table.num_rows, tuple(begins))
    return places, parts


def _width(kind: pa.DataType) -> int:
    """The bytes of a value; 0 of types whose values have other buffers, or no whole bytes."""
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or kind.bit_width % _BYTE:
        return 0
    return int(kind.bit_width // _BYTE)


def _buffers(chunks: Iterable[pa.Array], width: int) -> Iterator[pa.Buffer]:
    for chunk in chunks:
        yield chunk.buffers()[1].slice(chunk.offset * width, len(chunk) * width)


def _is_zero(buffer: pa.Buffer) -> bool:
    """Whether all bytes are zero: nearly always decided by the first word."""
    kind: Any = np.uint64 if buffer.size % np.dtype(np.uint64).itemsize == 0 else np.uint8
    numbers = np.frombuffer(buffer, kind)
    return not numbers[:1].any() and not numbers.any()


def _column(data: pa.Buffer, kind: pa.DataType, rows: int, begin: int | None) -> pa.Array:
    size = rows * _width(kind)
    values = pa.py_buffer(np.zeros(size, np.uint8)) if begin is None else data.slice(begin, size)
    return pa.Array.from_buffers(kind, rows, [None, values])

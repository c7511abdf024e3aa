"""The digest of a table's content: equal for equal rows, however Arrow has laid them out in memory.

Values under a null, the offset of a slice and the number of chunks do not count. A producer's repeated batch is compared with
the first one by its digest, also after an upgrade of Arrow: so it is made of values, not of an Arrow file.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BYTES: Final = 16


def content_digest(table: pa.Table) -> str:
    """Of the rows in their order, as 32 hexadecimal digits. The columns' names and types are the caller's to compare."""
    digest = blake2b(digest_size=_BYTES)
    digest.update(np.int64(table.num_rows).tobytes())
    for column in table.columns:
        array = (
            column.chunk(0)
            if column.num_chunks == 1
            else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
        )
        for part in _parts(array):
            digest.update(part)
    return digest.hexdigest()


def _parts(array: pa.Array) -> Iterator[bytes | memoryview]:
    """The mask of nulls, then the bytes of the other values."""
    valid = np.asarray(pc.is_valid(array)) if array.null_count else np.ones(len(array), bool)
    yield np.packbits(valid).tobytes()
    values = array.drop_null() if array.null_count else array
    kind = values.type
    if pa.types.is_struct(kind):
        for field in values.flatten():
            yield from _parts(field)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield np.asarray(pc.list_value_length(values)).astype(np.int64).tobytes()
        yield from _parts(values.flatten())
    elif pa.types.is_boolean(kind):
        yield np.packbits(np.asarray(values)).tobytes()
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield np.asarray(pc.binary_length(values)).astype(np.int64).tobytes()
        yield from _text(values)
    elif not pa.types.is_null(kind) and len(values):
        width = kind.bit_width // 8
        yield memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width]


def _text(values: pa.Array) -> Iterator[memoryview]:
    """The bytes of all strings, one after the other."""
    _, offsets, data = values.buffers()
    if data is not None and offsets is not None and len(values):
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        yield memoryview(data)[int(ends[0]) : int(ends[-1])]

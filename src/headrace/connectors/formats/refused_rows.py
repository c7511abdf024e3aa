"""Refused rows in an Arrow segment. Rows that a client sent as text, and that do not fit their stream, are rows of its segment
without values: two more columns have their text and the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.connectors.records.chunk import Chunk, Refused

_TEXT: Final = "headrace.refused.text"
_REASON: Final = "headrace.refused.reason"


def with_refused(table: pa.Table, rows: npt.NDArray[np.int64], refused: Sequence[Refused]) -> pa.Table:
    """The table with the refused rows among its own, in the order of their numbers; `rows` numbers those of the table."""
    if not refused:
        return table
    texts = [[one.text for one in refused], [one.reason for one in refused]]
    schema = table.schema.append(pa.field(_TEXT, pa.string())).append(pa.field(_REASON, pa.string()))
    own = [*table.columns, *(pa.nulls(table.num_rows, pa.string()) for _ in texts)]
    others = [
        *(pa.nulls(len(refused), kind) for kind in table.schema.types),
        *(pa.array(column, pa.string()) for column in texts),
    ]
    both = pa.concat_tables([pa.table(own, schema=schema), pa.table(others, schema=schema)])
    numbers = np.concatenate([rows, [one.row for one in refused]])
    return both.take(pa.array(np.argsort(numbers, kind="stable")))


def separated(chunk: Chunk, part: pa.RecordBatch, first: int) -> Chunk:
    """The chunk of the rows of `part`, which begin with number `first`, with those that were refused when they were sent."""
    if part.schema.names[-2:] != [_TEXT, _REASON]:
        return chunk
    texts, reasons = part.columns[-2:]
    places = np.flatnonzero(reasons.is_valid())
    if not len(places):
        return chunk
    sent = [Refused(first + at, str(texts[at]), str(reasons[at])) for at in places.tolist()]
    fits = ~np.isin(chunk.rows - first, places)
    refused = sorted((*chunk.refused, *sent), key=lambda one: one.row)
    return Chunk(chunk.batch.filter(pa.array(fits)), chunk.rows[fits], refused, chunk.numbers)

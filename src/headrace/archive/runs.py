"""Archive runs: every row of a stream, kept as plain Parquet in time order.

A run holds what one scan task read of one stream in one epoch: the stream's columns, and ours. `__position` is the row's
place in the stream's order of arrival, `__fate` what became of it: accepted (0) or late (1); `__at` is its event time in
microseconds, where that is not a column of its own. Spark, DuckDB and pandas read it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

POSITION: Final = "__position"
AT: Final = "__at"
FATE: Final = "__fate"
ACCEPTED: Final = 0
LATE: Final = 1
_ROW_GROUP: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the manifest keeps of a run: rows, late rows, least and greatest event time."""

    rows: int
    late: int
    low: int
    high: int


@dataclass(slots=True)
class RunWriter:
    """Collects a task's rows of one stream; `encode` gives the Parquet file."""

    schema: pa.Schema
    time: str | None = None
    tables: list[pa.Table] = field(default_factory=list)
    instants: list[npt.NDArray[np.int64]] = field(default_factory=list)
    late: int = 0

    def add(
        self,
        columns: Sequence[pa.Array],
        at: npt.NDArray[np.int64],
        position: npt.NDArray[np.int64],
        late: npt.NDArray[np.bool_] | None,
    ) -> None:
        """Take in a batch, whatever its fate."""
        fate = np.zeros(len(at), np.int8) if late is None else late.astype(np.int8)
        self.late += int(fate.sum())
        ours = {POSITION: pa.array(position), FATE: pa.array(fate)}
        if not has_own_time(self.schema, self.time):
            ours[AT] = pa.array(at)
        names = [*self.schema.names, *ours]
        self.tables.append(pa.table([*columns, *ours.values()], names=names))
        self.instants.append(at)

    def encode(self) -> tuple[pa.Buffer, RunFacts] | None:
        """The file's bytes, in the order (event time, position), and its facts; None when there were no rows."""
        if not self.tables:
            return None
        whole = pa.concat_tables(self.tables)
        at = np.concatenate(self.instants)
        if (at[1:] < at[:-1]).any():
            position = np.concatenate(
                [table.column(POSITION).combine_chunks().to_numpy() for table in self.tables]
            )
            whole = whole.take(pa.array(np.lexsort([position, at])))
        facts = RunFacts(len(at), self.late, int(at.min()), int(at.max()))
        out = pa.BufferOutputStream()
        packed = [name for name in whole.column_names if _is_packed(whole.schema.field(name).type)]
        pq.write_table(
            whole,
            out,
            compression="lz4",
            row_group_size=_ROW_GROUP,
            use_dictionary=[name for name in whole.column_names if _repeats(whole.schema.field(name).type)],
            column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
            write_statistics=packed,
        )
        return out.getvalue(), facts


def has_own_time(schema: pa.Schema, time: str | None) -> bool:
    """True when a timestamp column of the stream is its event time, so that `__at` would say it twice."""
    return time is not None and pa.types.is_timestamp(schema.field(time).type)


def _repeats(kind: pa.DataType) -> bool:
    """Texts and fates repeat; numbers are cheaper as they are."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_int8(kind))


def _is_packed(kind: pa.DataType) -> bool:
    """Integers and timestamps lie as bit-packed differences: smaller, and quicker to write than to compress."""
    return bool(pa.types.is_int32(kind) or pa.types.is_int64(kind) or pa.types.is_timestamp(kind))

"""Archive runs: every row of a stream, kept as plain Parquet in time order.

A run holds what one scan task read of one stream in one epoch: the stream's columns, and three of ours. `__position` is
the row's place in the stream's order of arrival, `__at` its event time in microseconds, `__fate` what became of it:
accepted (0) or late (1). Spark, DuckDB and pandas read it as it is.
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
    tables: list[pa.Table] = field(default_factory=list)
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
        names = [*self.schema.names, POSITION, AT, FATE]
        self.tables.append(
            pa.table([*columns, pa.array(position), pa.array(at), pa.array(fate)], names=names)
        )

    def encode(self) -> tuple[pa.Buffer, RunFacts] | None:
        """The file's bytes, in the order (event time, position), and its facts; None when there were no rows."""
        if not self.tables:
            return None
        whole = pa.concat_tables(self.tables)
        at = np.concatenate([table.column(AT).combine_chunks().to_numpy() for table in self.tables])
        if (at[1:] < at[:-1]).any():
            position = np.concatenate(
                [table.column(POSITION).combine_chunks().to_numpy() for table in self.tables]
            )
            whole = whole.take(pa.array(np.lexsort([position, at])))
        facts = RunFacts(len(at), self.late, int(at.min()), int(at.max()))
        out = pa.BufferOutputStream()
        ours = [POSITION, AT]
        pq.write_table(
            whole,
            out,
            compression="lz4",
            row_group_size=_ROW_GROUP,
            use_dictionary=[
                name for name in whole.column_names if name not in ours and _worth_a_dictionary(whole, name)
            ],
            column_encoding=dict.fromkeys(ours, "DELTA_BINARY_PACKED"),
            write_statistics=ours,
        )
        return out.getvalue(), facts


def _worth_a_dictionary(table: pa.Table, name: str) -> bool:
    """Texts repeat; numbers are cheaper as they are."""
    kind = table.schema.field(name).type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_int8(kind))

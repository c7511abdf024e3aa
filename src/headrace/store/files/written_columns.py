"""The columns of a section of a container that are written, and all of them again from these: without those that share the buffer of
another one, and narrow where values are in a narrow range.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.store.files.narrow_columns import Narrowed, schema_narrowed, widened
from headrace.store.files.shared_buffers import SharedBuffers, schema_without, with_shared_buffers


@dataclass(frozen=True, slots=True)
class WrittenColumns:
    """A section's schema, and what its entry in the index has about its columns: `narrow` numbers those that are left without the
    repeated ones.
    """

    schema: pa.Schema
    shared_buffers: SharedBuffers = ()
    narrow: Narrowed = ()

    @property
    def written(self) -> pa.Schema:
        """The schema of what is written."""
        distinct = self._distinct
        return schema_narrowed(distinct, self.narrow) if self.narrow else distinct

    @property
    def _distinct(self) -> pa.Schema:
        return schema_without(self.schema, self.shared_buffers) if self.shared_buffers else self.schema

    def restored(self, table: pa.Table) -> pa.Table:
        """All columns of rows that were written."""
        if not (self.narrow or self.shared_buffers):
            return table
        return pa.Table.from_batches([self.of_batch(batch) for batch in table.to_batches()], self.schema)

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same of a batch."""
        if self.narrow:
            batch = widened(batch, self._distinct, self.narrow)
        if self.shared_buffers:
            batch = with_shared_buffers(batch, self.schema, self.shared_buffers)
        return batch

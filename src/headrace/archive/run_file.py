"""Archive runs open for reading: the one way in which rows of an archive are read, whole, by row groups or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.archive import runs
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.store.files.checksums.chunk_checksums import ChunkChecksums

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run, from its bytes. Only what is asked for is compared with its checksums and decoded, in the calling thread.

    All that reads raises `CorruptStore` for bytes that are no run's.
    """

    file: pq.ParquetFile
    name: str
    checksums: ChunkChecksums | None = None

    @staticmethod
    def of(data: pa.Buffer, name: str, footer: pq.FileMetaData | None = None) -> RunFile:
        """Open the run of that name; with its footer, if that was read before."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - only where it is used

        checksums = ChunkChecksums.of(data, name)
        with _readable(name):
            return RunFile(pq.ParquetFile(pa.BufferReader(data), metadata=footer), name, checksums)

    @property
    def footer(self) -> pq.FileMetaData:
        """What its end has about its row groups and columns."""
        return self.file.metadata

    @property
    def rows_of_groups(self) -> tuple[int, ...]:
        """The number of rows of each row group."""
        footer = self.footer
        return tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))

    def time_column(self, time: str | None) -> str:
        """The column with event times: the stream's own, or the one that Headrace added."""
        is_own = time is not None and runs.has_own_time(self.file.schema_arrow, time)
        return time if is_own and time is not None else runs.AT

    def read(self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> pa.Table:
        """Columns of some row groups; by default all."""
        names = None if columns is None else list(columns)
        self._compare(names, range(self.footer.num_row_groups) if groups is None else groups)
        with _readable(self.name):
            if groups is None:
                return _as_read(self.file.read(names, use_threads=False))
            return _as_read(self.file.read_row_groups(list(groups), names, use_threads=False))

    def batches(
        self,
        rows: int,
        columns: Sequence[str],
        groups: Sequence[int] | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> Iterator[pa.RecordBatch]:
        """The same in batches of at most so many rows; of `part` (k, n) the k-th of n parts of about equal size."""
        numbers, low, high = self._within(groups, *part)
        passed = 0
        self._compare(columns, numbers)
        read = self.file.iter_batches(rows, numbers, list(columns), use_threads=False)
        while True:
            with _readable(self.name):
                batch = next(read, None)
            if batch is None:
                return
            first, after = max(0, low - passed), min(batch.num_rows, high - passed)
            passed += batch.num_rows
            if first < after:
                columns_read = batch.slice(first, after - first).columns
                yield pa.RecordBatch.from_arrays(columns_read, schema=runs.with_nullable(batch.schema))

    def _compare(self, columns: Sequence[str] | None, groups: Sequence[int]) -> None:
        if self.checksums is not None:
            self.checksums.compare(self.file, columns, groups)

    def _within(self, groups: Sequence[int] | None, part: int, parts: int) -> tuple[list[int], int, int]:
        """The row groups that have rows of a part, and which of their rows these are."""
        sizes = self.rows_of_groups
        numbers = list(range(len(sizes)) if groups is None else groups)
        total = sum(sizes[number] for number in numbers)
        low, high = total * part // parts, total * (part + 1) // parts
        chosen, first, passed = list[int](), 0, 0
        for number in numbers:
            before, passed = passed, passed + sizes[number]
            if before < high and passed > low:
                first = first if chosen else before
                chosen.append(number)
        return chosen, low - first, high - first


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raise `CorruptStore` with the name of a run whose bytes, which are in memory, cannot be decoded."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise CorruptStore(f"the archive run '{name}' is damaged: {error}") from error


def _as_read(table: pa.Table) -> pa.Table:
    return pa.Table.from_arrays(table.columns, schema=runs.with_nullable(table.schema))

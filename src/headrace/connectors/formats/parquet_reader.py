"""Reader of Parquet files: the rows of some row groups, in batches, with the columns that are asked for in the stream's
types. The event times of a row group are put off where its statistics suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa

from headrace.connectors.formats.typed_columns import fitted, matched
from headrace.connectors.records.chunk import Chunk, WholeFile
from headrace.connectors.records.ingest_record import WHOLE, IngestRecord
from headrace.dataclass import dataclass
from headrace.operators.base.batch import EventTimes
from headrace.operators.base.group_codes import Ints, as_int64, flat
from headrace.schema import Field, Schema
from headrace.time import Instant

if TYPE_CHECKING:
    import pyarrow.parquet as pq

BATCH: Final = 1 << 18
_ALONE: Final = 1 << 16
"""Rows of a row group that is read by itself; smaller ones are read together."""
_SMALL: Final = 1 << 18
"""Bytes of a file that is read as a whole: many short reads of it cost more than its bytes."""
_MICROSECONDS: Final = {"ms": 1000, "us": 1}
"""In a unit of a column whose statistics are used: those of nanoseconds would be rounded."""


@dataclass(frozen=True, slots=True)
class PutOff:
    """A column of event times that is not read of row groups of which it suffices between which instants they are.

    `is_enough` decides that by the least and the greatest; `read` returns those of a row group, by its index, if they are
    asked for after all.
    """

    column: str
    is_enough: Callable[[Instant, Instant], bool]
    read: Callable[[int], Ints]


def chunks(
    file: BinaryIO,
    record: IngestRecord,
    schema: Schema,
    columns: Sequence[str],
    put_off: PutOff | None = None,
) -> Iterator[Chunk]:
    """The rows of the record's row groups, `BATCH` at a time, with the columns asked for, or all but the one that is `put_off`."""
    first = 0
    try:
        source = _opened(pa.BufferReader(file.read()) if record.size <= _SMALL else file)
        groups = list(range(record.start, source.num_row_groups if record.end == WHOLE else record.end))
        metadata = source.metadata
        rows = lambda: sum(metadata.row_group(group).num_rows for group in groups)  # noqa: E731
        file_schema = source.schema_arrow
        indexes = dict(zip(columns, matched(file_schema, schema, columns, rows), strict=True))
        names = {name: file_schema.names[index] for name, index in indexes.items()}
        reader = _Reader(source, names, [schema.field(name) for name in columns], put_off)
        for part in _parts(metadata, groups):
            bounds = reader.enough(part[0], indexes) if len(part) == 1 else None
            begin = first
            for chunk in (
                reader.chunks(part, begin) if bounds is None else reader.later(part[0], bounds, begin)
            ):
                first += chunk.numbers
                yield chunk
    except (pa.ArrowException, OSError, ValueError, OverflowError) as problem:
        raise WholeFile(
            f"not a readable Parquet file from row {first} on: {first_line(problem)}"
        ) from problem


def _opened(file: BinaryIO | pa.NativeFile) -> pq.ParquetFile:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only where a file is read

    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def instants_of(file: BinaryIO, group: int, column: str) -> Ints:
    """A column of instants of one row group, in microseconds, by the name of the stream's column."""
    source = _opened(file)
    name = next(name for name in source.schema_arrow.names if name.lower() == column.lower())
    table = source.read_row_group(group, columns=[name], use_threads=False)
    return as_int64(flat(table.column(0).cast(pa.timestamp("us"))))


@dataclass(frozen=True, slots=True)
class _Reader:
    """A file, its names of the stream's columns that are read, and these; rows are numbered from the begin of the record."""

    source: pq.ParquetFile
    names: Mapping[str, str]
    fields: Sequence[Field]
    put_off: PutOff | None

    def chunks(self, groups: Sequence[int], first: int) -> Iterator[Chunk]:
        """The rows of some row groups, of which `first` is the number of the first one, with all columns."""
        for batch in self._batches(groups, self.fields):
            chunk = fitted(
                [batch.column(self.names[field.name]) for field in self.fields], self.fields, first
            )
            first += chunk.numbers
            yield chunk

    def later(self, group: int, bounds: tuple[Instant, Instant], first: int) -> Iterator[Chunk]:
        """The same of one row group without its event times, which are read later, or where a row is refused: its text has all columns."""
        put_off, begin = self.put_off, first
        assert put_off is not None
        fields = [field for field in self.fields if field.name != put_off.column]
        for batch in self._batches([group], fields):
            values = {field.name: batch.column(self.names[field.name]) for field in fields}
            chunk = fitted([*values.values()], fields, first)
            if chunk.refused:
                times = self.source.read_row_group(group, [self.names[put_off.column]], use_threads=False)
                values[put_off.column] = flat(times.column(0)).slice(first - begin, batch.num_rows)
                chunk = fitted([values[field.name] for field in self.fields], self.fields, first)
            else:
                chunk.times = EventTimes(
                    batch.num_rows, bounds, partial(self._instants, group, chunk.rows - begin)
                )
            first += chunk.numbers
            yield chunk

    def enough(self, group: int, indexes: Mapping[str, int]) -> tuple[Instant, Instant] | None:
        """The bounds of a row group's event times, if they suffice; `indexes` in the file are by the stream's columns."""
        if self.put_off is None:
            return None
        bounds = _bounds(self.source, group, indexes[self.put_off.column])
        return bounds if bounds is not None and self.put_off.is_enough(*bounds) else None

    def _batches(self, groups: Sequence[int], fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        names = [self.names[field.name] for field in fields]
        yield from self.source.iter_batches(BATCH, row_groups=groups, columns=names, use_threads=False)

    def _instants(self, group: int, rows: Ints) -> Ints:
        assert self.put_off is not None
        return self.put_off.read(group)[rows]


def _parts(metadata: pq.FileMetaData, groups: Sequence[int]) -> Iterator[Sequence[int]]:
    """Row groups that are read together: by their sizes alone, so that batches are the same ones on every read."""
    together: list[int] = []
    for group in groups:
        if metadata.row_group(group).num_rows < _ALONE:
            together.append(group)
            continue
        if together:
            yield together
            together = []
        yield [group]
    if together:
        yield together


def _bounds(source: pq.ParquetFile, group: int, index: int) -> tuple[Instant, Instant] | None:
    """The least and the greatest instant of a column in a row group by its statistics; None where they do not show both, or NULLs."""
    field, facts = source.schema_arrow.field(index), source.metadata.row_group(group)
    scale = _MICROSECONDS.get(field.type.unit) if pa.types.is_timestamp(field.type) else None
    by_path = {facts.column(number).path_in_schema: number for number in range(facts.num_columns)}
    if scale is None or field.name not in by_path:
        return None
    seen = facts.column(by_path[field.name]).statistics
    if seen is None or seen.physical_type != "INT64" or not seen.has_min_max:
        return None
    if seen.null_count != 0 or not facts.num_rows:
        return None
    return seen.min_raw * scale, seen.max_raw * scale


def first_line(problem: BaseException) -> str:
    """A library's message, without its stack."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)

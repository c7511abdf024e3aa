"""Container: many named Arrow tables and a small JSON header in one sequence of bytes.

State runs, result runs and the blobs that tasks exchange are containers. Reading is lazy and copies nothing: a table is a
view of the mapped file.

Layout: a 64-byte preamble; the record batches of all sections (columns that are one memory once, in groups equal columns, see
`shared_buffers`) and one copy of each distinct schema, as Arrow IPC messages, each aligned to 64 bytes; an index (`container_index`); a trailer with the
index's length and checksum, a version and a magic word. The index comes last, so that a writer never goes back. A section is
compared with its checksum when it is read first, one of a group with those of its blocks (`block_checksums`). In compressed containers
large sections and groups have narrow columns (`narrow_columns`), and LZ4 where a sample shows that it makes them smaller still.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore, StoreError
from headrace.store.files.checksums.block_checksums import BlockChecksums, compare, encoded_checksums
from headrace.store.files.container_index import (
    ALIGNMENT,
    MAGIC,
    PREAMBLE,
    TRAILER,
    VERSION,
    ContainerIndex,
    Entry,
    encoded,
    index_of,
)
from headrace.store.files.narrow_columns import narrowed
from headrace.store.files.shared_buffers import equal_columns_of, shared_buffers_of, without
from headrace.store.files.written_columns import WrittenColumns

_WORD: Final = 8
_COMPRESSED_FROM: Final = 1 << 18
"""Sections of fewer bytes are not worth a decompression."""
_SAMPLE: Final = 1 << 12
"""Rows that are compressed to learn what it saves."""
_WORTH: Final = 0.75
"""The share of the bytes that compression leaves, from which on it is not worth its time."""
_ALONE: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""Memory that another thread decompresses into belongs to that thread, and the next batch does not find it free."""
_DAMAGED: Final = (ValueError, pa.ArrowNotImplementedError, OSError)
"""What is raised over bytes that are not those that were written; Arrow's own complaint of them is a `ValueError`."""
PASSING: Final = pa.system_memory_pool()
"""Memory for short-lived batches: the C library reuses what the last batch has freed. Arrow's own allocator puts each size
elsewhere, in huge pages that the kernel has to clear first: a history read batch by batch took four times as long.
"""
_MERGED_BELOW: Final = 4 << 20
"""Bytes below which the chunks of a section are made one: opening many small batches costs more than copying them."""

_BATCHES: Final = 0
_STREAM: Final = 1
_SLICE: Final = 2
"""A section's body: record batches against a shared schema, or (dictionaries need it) a whole IPC stream, or rows of a
group, which small sections of one schema have together."""
_MANY: Final = 16
"""From so many sections of one schema on, the small ones are written as a group: a message costs more than their rows."""


def parts(
    tables: Mapping[str, pa.Table],
    header: Mapping[str, Any] | None = None,
    *,
    checksums: bool = True,
    compressed: bool = False,
    piece: int | None = None,
) -> list[Any]:
    """The bytes of a container as a list of buffers, ready for a gathering write.

    Without `checksums` of the sections (for blobs that live for one exchange) only the index is protected. `compressed` is for what is read seldom: large sections
    are smaller, and no longer views of the file when they are read; in batches of `piece` rows (`Container.batches`).
    """
    writer = _Writer(checksums, compressed, piece)
    writer.add_all(tables)
    return writer.finish(header or {})


@dataclass(frozen=True, slots=True, eq=False)
class Adjacent:
    """Sections that follow each other in one table: their names, and the number of rows of each."""

    table: pa.Table
    names: Sequence[str]
    rows: Sequence[int]

    def add_to(self, writer: _Writer) -> None:
        """As one group, if all are small and of fixed width; else section by section."""
        width = _width(self.table.schema.serialize().to_pybytes())
        if width and max(self.rows) * width < _COMPRESSED_FROM and len(self.names) >= _MANY:
            writer.add_group(self)
        else:
            writer.add_all(self.tables())

    def tables(self) -> dict[str, pa.Table]:
        """The rows of each."""
        ends = itertools.accumulate(self.rows)
        each = zip(self.names, ends, self.rows, strict=True)
        return {name: self.table.slice(end - rows, rows) for name, end, rows in each}


def streamed(
    portions: Iterable[Mapping[str, pa.Table] | Adjacent], *, piece: int | None = None
) -> Iterator[Any]:
    """The bytes of a container whose sections are given in portions, of which only one is in memory; with `piece` of a compressed one."""
    writer = _Writer(True, piece is not None, piece)
    for portion in portions:
        if isinstance(portion, Adjacent):
            portion.add_to(writer)
        else:
            writer.add_all(portion)
        yield from writer.written()
    yield from writer.finish({})


def _small_ones(tables: Mapping[str, pa.Table]) -> dict[str, bytes]:
    """Small sections of schemas that many of them have, by name: the encoded schema."""
    if len(tables) < _MANY:
        return {}
    schemas: dict[str, bytes] = {}
    last: tuple[pa.Schema | None, bytes, int] = None, b"", 0
    for name, table in tables.items():
        schema = table.schema
        if last[0] is None or not schema.equals(last[0], check_metadata=True):
            encoded = schema.serialize().to_pybytes()
            last = schema, encoded, _width(encoded)
        if _size(table, last[2]) < _COMPRESSED_FROM:
            schemas[name] = last[1]
    counts = Counter(schemas.values())
    return {
        name: schema
        for name, schema in schemas.items()
        if counts[schema] >= _MANY and not _has_dictionary(schema)
    }


@lru_cache(maxsize=1024)
def _width(schema: bytes) -> int:
    """Bytes of a row, rounded up, where all have the same; else 0."""
    if _has_dictionary(schema):
        return 0
    try:
        return sum(-(-field.type.bit_width // 8) for field in _schema(schema))
    except ValueError:  # a type whose values have no width of their own
        return 0


def _size(table: pa.Table, width: int) -> int:
    """Bytes of a table with rows of so many, or of any number if it is 0: to measure each column takes as long as to encode it."""
    size: int = table.num_rows * width if width else table.nbytes
    return size


def pack(
    tables: Mapping[str, pa.Table],
    header: Mapping[str, Any] | None = None,
    *,
    checksums: bool = True,
) -> bytes:
    """A container as one piece of bytes; `parts` saves a copy when it goes straight to a file."""
    return b"".join(parts(tables, header, checksums=checksums))


class _Writer:
    def __init__(self, checksums: bool, compressed: bool, piece: int | None) -> None:
        self._compressed, self._piece = compressed, piece
        self._parts: list[Any] = [PREAMBLE]
        self._at = len(PREAMBLE)
        self._checksums = checksums
        self._schemas: dict[bytes, int] = {}
        self._sections: dict[str, Entry] = {}
        self._groups: list[Entry] = []
        self._blocks: list[str] = []

    def add_all(self, tables: Mapping[str, pa.Table]) -> None:
        """Sections, the small ones of one schema together."""
        grouped = _small_ones(tables)
        for name, table in tables.items():
            if name not in grouped:
                self.add(name, table)
        for schema in dict.fromkeys(grouped.values()):
            names = [name for name, its_schema in grouped.items() if its_schema == schema]
            together = [tables[name] for name in names]
            self.add_group(
                Adjacent(pa.concat_tables(together), names, [table.num_rows for table in together])
            )

    def written(self) -> list[Any]:
        """What was added since the last call."""
        parts, self._parts = self._parts, []
        return parts

    def add_group(self, sections: Adjacent) -> None:
        """Small sections as one table."""
        self.add("", sections.table.combine_chunks(), plain=True)
        group = self._sections.pop("")
        start, number = 0, len(self._groups)
        for name, rows in zip(sections.names, sections.rows, strict=True):
            self._sections[name] = [_SLICE, group[1], rows, None, [[number, start]], None]
            start += rows
        self._groups.append(group)

    def add(self, name: str, table: pa.Table, *, plain: bool = False) -> None:
        schema = table.schema.serialize().to_pybytes()
        is_large, narrow = _size(table, _width(schema)) >= _COMPRESSED_FROM, list[list[int]]()
        shared_buffers = (equal_columns_of if plain else shared_buffers_of)(table) if is_large else []
        if shared_buffers:
            table = without(table, shared_buffers)
        if self._compressed and is_large and not _has_dictionary(schema):
            table, narrow = narrowed(table)
        if _has_dictionary(schema):
            kind, bodies = _STREAM, [_stream(table)]
        elif self._compressed and not plain and is_large:
            kind, bodies = _STREAM, [_stream(table.combine_chunks(), _compression_of(table), self._piece)]
        else:
            batches = table.to_batches()
            if len(batches) > 1 and table.nbytes < _MERGED_BELOW:
                batches = table.combine_chunks().to_batches()
            kind, bodies = _BATCHES, [batch.serialize(memory_pool=PASSING) for batch in batches]
        number = self._schemas.setdefault(schema, len(self._schemas))
        checksum = 0 if self._checksums and not plain else None
        if self._checksums and plain:
            self._blocks.append(encoded_checksums(bodies))
        places = []
        for body in bodies:
            if checksum is not None:
                checksum = zlib.crc32(body, checksum)
            places.append([self._put(body), body.size])
        self._sections[name] = [kind, number, table.num_rows, checksum, places, None]
        if shared_buffers or narrow:
            self._sections[name].append(shared_buffers)
        if narrow:
            self._sections[name].append(narrow)

    def finish(self, header: Mapping[str, Any]) -> list[Any]:
        schemas = [[self._put(schema), len(schema), zlib.crc32(schema)] for schema in self._schemas]
        index = encoded(header, schemas, self._groups, self._blocks, self._sections)
        self._parts += [index, TRAILER.pack(len(index), zlib.crc32(index), VERSION, MAGIC)]
        return self._parts

    def _put(self, body: Any) -> int:
        """Append bytes and the padding after them; where they begin."""
        offset, size = self._at, len(body)
        self._parts.append(body)
        padding = -size % ALIGNMENT
        if padding:
            self._parts.append(bytes(padding))
        self._at += size + padding
        return offset


@dataclass(frozen=True, slots=True)
class Section:
    """A section's entry in the index."""

    rows: int
    bytes: int


class Container:
    """The reader. Tables are views of the buffer given to `open`, and keep it alive.

    All that reads rows raises `CorruptStore` where they differ from their checksum, which is compared once.
    """

    __slots__ = ("_blocks", "_buffer", "_compared", "_groups", "_index", "_name", "header")

    def __init__(self, buffer: pa.Buffer, index: ContainerIndex, name: str) -> None:
        self._buffer, self._index, self._name = buffer, index, name
        self._groups: dict[int, pa.Table] = {}
        self._blocks: dict[int, BlockChecksums] = {}
        self._compared: set[str] = set()
        self.header: Mapping[str, Any] = index.header

    @staticmethod
    def open(buffer: pa.Buffer | bytes, name: str = "received bytes") -> Container:
        """Read the index. Errors call the container `name`; `CorruptStore` when it is not a whole one."""
        held = buffer if isinstance(buffer, pa.Buffer) else pa.py_buffer(buffer)
        if held.address % _WORD:
            # Cut out of other bytes at an unaligned offset: one copy is cheaper than kernels over unaligned numbers.
            held = pa.py_buffer(held.to_pybytes())
        return Container(held, index_of(held, name), name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._index.entry(name) is not None

    def sections(self) -> dict[str, Section]:
        """All sections in the order they were written."""
        return {
            name: Section(rows, self._bytes(kind, rows, places))
            for name, (kind, _, rows, _, places, *_) in self._index.sections.items()
        }

    def _bytes(self, kind: int, rows: int, places: list[list[int]]) -> int:
        """Bytes of a section's rows; of one in a group its share."""
        if kind != _SLICE:
            return sum(size for _, size in places)
        _, _, all_rows, _, pieces, *_ = self._index.groups[places[0][0]]
        whole = sum(size for _, size in pieces)
        return int(whole * rows // max(all_rows, 1))

    def schema(self, name: str) -> pa.Schema:
        """The schema of a section."""
        return self._schema_of(self._entry(name)[1])

    def _schema_of(self, number: int) -> pa.Schema:
        offset, size, expected = self._index.schemas[number]
        piece = self._piece(offset, size).to_pybytes()
        if zlib.crc32(piece) != expected:
            raise self._corrupt(f"the schema at byte {offset} has another checksum than the index records")
        try:
            return _schema(piece)
        except _DAMAGED as error:
            raise self._corrupt(f"the schema at byte {offset} cannot be read: {error}") from error

    def table(self, name: str) -> pa.Table:
        """A section's rows, without copying them."""
        kind, _, _, expected, places, *_ = entry = self._entry(name)
        if kind == _SLICE:
            return self._slice(name, entry, compared=True)
        compare(map(self._at, places), expected, name, self._name, self._compared)
        return self._read(name, entry)

    def view(self, name: str) -> pa.Table:
        """The same without reading and comparing the rows: for who needs their number or bytes."""
        entry = self._entry(name)
        return self._slice(name, entry) if entry[0] == _SLICE else self._read(name, entry)

    def _slice(self, name: str, entry: Entry, *, compared: bool = False) -> pa.Table:
        _, _, rows, _, [[group, start]], *_ = entry
        whole = self._group(group)
        if compared and (blocks := self._blocks_of(group)):
            blocks.compare_rows(whole, start, rows, name)
        return self._columns(self._index.groups[group]).restored(whole.slice(start, rows))

    def _group(self, number: int) -> pa.Table:
        """The rows of a group as they are written; not compared where that has checksums by block."""
        if number not in self._groups:
            if blocks := self._blocks_of(number):
                blocks.compare_heads(f"group {number}")
            else:
                self._compare_group(number)
            self._groups[number] = self._written(f"group {number}", self._index.groups[number])
        return self._groups[number]

    def _blocks_of(self, number: int) -> BlockChecksums | None:
        """The checksums of a group by block; None in files of earlier versions."""
        if number not in self._blocks and number < len(self._index.blocks):
            places = self._index.groups[number][4]
            self._blocks[number] = BlockChecksums(
                self._buffer, places, self._index.blocks[number], self._name
            )
        return self._blocks.get(number)

    def _compare_group(self, number: int) -> None:
        _, _, _, expected, places, *_ = self._index.groups[number]
        if blocks := self._blocks_of(number):
            blocks.compare_all(f"group {number}")
        else:
            compare(map(self._at, places), expected, f"group {number}", self._name, self._compared)

    def _columns(self, entry: Entry) -> WrittenColumns:
        return WrittenColumns(self._schema_of(entry[1]), *entry[6:])

    def groups(self, prefix: str = "") -> Iterator[tuple[pa.Table, list[tuple[str, int, int]]]]:
        """All rows as they are stored, of sections with a prefix: tables, each with its sections by name, first row in it, and rows."""
        together: dict[int, list[tuple[str, int, int]]] = {}
        named = {name: entry for name, entry in self._index.sections.items() if name.startswith(prefix)}
        for name, (kind, _, rows, _, places, *_) in named.items():
            if kind == _SLICE:
                together.setdefault(places[0][0], []).append((name, places[0][1], rows))
            else:
                yield self.table(name), [(name, 0, rows)]
        for number, sections in together.items():
            self._compare_group(number)
            yield self._columns(self._index.groups[number]).restored(self._group(number)), sections

    def _read(self, name: str, entry: Entry) -> pa.Table:
        try:
            return self._columns(entry).restored(self._written(name, entry))
        except _DAMAGED as error:
            raise self._corrupt(f"section '{name}' cannot be read: {error}") from error

    def _written(self, name: str, entry: Entry) -> pa.Table:
        """A section's rows with the columns that are written."""
        kind, _, rows, _, places, *_ = entry
        schema = self._columns(entry).written
        try:
            if kind == _STREAM:
                with pa.ipc.open_stream(self._at(places[0]), options=_ALONE) as stream:
                    batches = list(stream)
            else:
                batches = [pa.ipc.read_record_batch(self._at(place), schema) for place in places]
            table = pa.Table.from_batches(batches, schema)
        except _DAMAGED as error:
            raise self._corrupt(f"section '{name}' cannot be read: {error}") from error
        if table.num_rows != rows:
            raise self._corrupt(
                f"section '{name}' holds {table.num_rows} rows where the index records {rows}"
            )
        return table

    def batches(self, name: str) -> Callable[[], Iterator[pa.RecordBatch]]:
        """A function that reads a section's rows batch by batch, as written; of a compressed section one batch is in memory.

        It references this section alone, not the index of all others, so that thousands of files may wait to be read.
        """
        kind, number, _, expected, places, *_ = entry = self._entry(name)
        if kind != _STREAM or any(_is_dictionary(field.type) for field in self._schema_of(number)):
            whole = self.table(name).to_batches()
            return partial(iter, whole)
        body = self._at(places[0])
        compared = partial(compare, (body,), expected, name, self._name, self._compared)
        return partial(_pieces, body, name, self._name, self._columns(entry), compared)

    def tables(self) -> dict[str, pa.Table]:
        """All sections."""
        return {name: self.table(name) for name in self._index.sections}

    def views(self) -> dict[str, pa.Table]:
        """A view of each section."""
        return {name: self.view(name) for name in self._index.sections}

    def verify(self) -> None:
        """Read everything and compare checksums; `CorruptStore` names the first section that differs."""
        for number in range(len(self._index.schemas)):
            self._schema_of(number)
        for table, _ in self.groups():
            table.validate()

    def _entry(self, name: str) -> Entry:
        entry = self._index.entry(name)
        if entry is None:
            sections = ", ".join(self._index.sections) or "none"
            raise StoreError(f"there is no section '{name}' in {self._name}; there is: {sections}")
        return entry

    def _at(self, place: Sequence[int]) -> pa.Buffer:
        return self._piece(*place)

    def _piece(self, offset: int, size: int) -> pa.Buffer:
        if offset < 0 or size < 0 or offset + size > self._buffer.size:
            raise self._corrupt(f"bytes {offset} to {offset + size} are outside of its {self._buffer.size}")
        return self._buffer.slice(offset, size)

    def _corrupt(self, what: str) -> CorruptStore:
        return CorruptStore(f"the container '{self._name}' is damaged: {what}")


def _pieces(
    body: pa.Buffer, section: str, container: str, columns: WrittenColumns, compared: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    compared()
    try:
        with pa.ipc.open_stream(body, options=_ALONE, memory_pool=PASSING) as stream:
            for batch in stream:
                yield columns.of_batch(batch)
    except _DAMAGED as error:
        raise CorruptStore(
            f"the container '{container}' is damaged: section '{section}' cannot be read: {error}"
        ) from error


@lru_cache(maxsize=1024)
def _schema(encoded: bytes) -> pa.Schema:
    """Tasks meet the same few schemas again and again."""
    return pa.ipc.read_schema(pa.py_buffer(encoded))


@lru_cache(maxsize=1024)
def _has_dictionary(schema: bytes) -> bool:
    return any(_is_dictionary(field.type) for field in _schema(schema))


def _is_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_is_dictionary(kind.field(number).type) for number in range(kind.num_fields))


def _stream(table: pa.Table, compression: str | None = None, piece: int | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=True, compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, piece)
    return sink.getvalue()


def _compression_of(table: pa.Table) -> str | None:
    """LZ4 for rows of which it leaves few bytes, by a sample of them."""
    sample = table.slice(0, _SAMPLE)
    return "lz4" if _stream(sample, "lz4").size < _WORTH * _stream(sample).size else None

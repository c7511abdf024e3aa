"""Archive runs and their writer: the accepted and late rows of a stream as plain Parquet files, each in time order
(with random blocks, each part of the run is).

A run has what one scan task read of one stream in one epoch: the stream's columns, and these. `__position` is the row's
place in the stream's order of arrival, `__fate` is accepted (0) or late (1); `__at` is its event time in microseconds, where
that is not a column of its own; `__block` is its random part of the run, where the stream has blocks. Spark, DuckDB and
pandas read the file as it is. The metadata `headrace.shares` has for each row group of a run with blocks which share of the
run it ends: a prefix of the row groups is a uniform sample; `headrace.rows` is how many rows the run had, should some be dropped.
Small runs are joined in one file, row group by row group; `headrace.joined` then has the shares of all.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.store.files.checksums.chunk_checksums import finished

if TYPE_CHECKING:
    from headrace.archive.blocks import Blocks

POSITION: Final = "__position"
AT: Final = "__at"
FATE: Final = "__fate"
BLOCK: Final = "__block"
_OURS: Final = (POSITION, AT, FATE, BLOCK)
SHARES: Final = "headrace.shares"
ROWS: Final = "headrace.rows"
JOINED: Final = "headrace.joined"
ACCEPTED: Final = 0
_ROW_GROUP: Final = 1 << 16
"""Rows of a row group, the smallest part of a run that a backfill reads at a time."""
RUN_ROWS: Final = 1 << 20
"""About how many rows a run holds: enough to read well, few enough to be written while the next ones are read."""
Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(slots=True)
class RunWriter:
    """Collects a task's rows of one stream; returns Parquet files as they become full, and at the end the rest.

    Rows that arrive in time order are encoded at once, so that memory does not grow with them. From the first step back on
    rows are buffered, and sorted into runs of their own: every run is in the order (event time, position). With `blocks` a run
    has a row group for each of their parts, and each of these is in that order.
    """

    schema: pa.Schema
    time: str | None = None
    blocks: Blocks | None = None
    ordered: RunEncoder | None = None
    batches: list[tuple[pa.Table, Ints, Ints, Ints]] = field(default_factory=list)
    row_count: int = 0
    most_bytes: int | None = None
    """A run is full when it holds so much, whatever its rows."""
    buffered: int = 0
    """Bytes of `batches`."""
    gathers: bool = False
    """Whether also rows in order are buffered: what is not full is then one run."""
    with_nulls: set[str] = field(default_factory=set)
    """Columns that have had a NULL: all others are written as columns that have none, a sixth faster."""

    @property
    def held(self) -> int:
        """Bytes of the rows that wait, and of the unfinished file."""
        return self.buffered + (0 if self.ordered is None else self.ordered.written)

    def _is_full(self, rows: int) -> bool:
        return rows >= RUN_ROWS or (self.most_bytes is not None and self.held >= self.most_bytes)

    def add(
        self,
        columns: Sequence[pa.Array],
        at: Ints,
        position: Ints,
        late: npt.NDArray[np.bool_] | None,
        draw: Ints | None = None,
    ) -> list[pa.Buffer]:
        """Add a batch of accepted and late rows; the runs that became full. Rows with equal `draw` (by default the
        position) are in the same block.
        """
        draw = position if draw is None else draw
        fate = np.zeros(len(at), np.int8) if late is None else late.astype(np.int8)
        ours = {POSITION: pa.array(position), FATE: pa.array(fate)}
        if not has_own_time(self.schema, self.time):
            ours[AT] = pa.array(at)
        if self.blocks is not None:
            ours[BLOCK] = pa.array(self.blocks.of(draw))
        theirs = dict(zip(self.schema.names, columns, strict=True))
        follows = self.ordered is None or at[0] >= self.ordered.high
        waits = self.gathers or self.blocks is not None or self.batches or not follows
        if waits or bool((at[1:] < at[:-1]).any()):
            table = _table(theirs | ours, theirs)
            self.batches.append((table, at, position, draw))
            self.row_count += len(at)
            self.buffered += table.nbytes + at.nbytes + position.nbytes + draw.nbytes
            return self._sorted() if self._is_full(self.row_count) else []
        return self._in_order(theirs | ours, at)

    def _in_order(self, columns: Mapping[str, pa.Array], at: Ints) -> list[pa.Buffer]:
        """Append rows to the run of those in order; the runs that became full, or cannot have the first NULL of a column."""
        nulls = {name for name, column in columns.items() if column.null_count}
        done = [] if nulls <= self.with_nulls else self._ended()
        self.with_nulls |= nulls
        table = _table(columns, self.with_nulls)
        if self.ordered is None:
            self.ordered = RunEncoder(table.schema)
        self.ordered.write(table, at)
        return [*done, *(self._ended() if self._is_full(self.ordered.rows) else [])]

    def finish(self) -> list[pa.Buffer]:
        """The runs that were not full: none, one or two."""
        return [*self._ended(), *self._sorted()]

    def _ended(self) -> list[pa.Buffer]:
        """The run of rows that arrived in order."""
        run, self.ordered = self.ordered, None
        return [run.close()] if run is not None else []

    def _sorted(self) -> list[pa.Buffer]:
        """The buffered rows as a run; later rows may arrive in order again."""
        batches, self.batches, self.row_count, self.buffered = self.batches, [], 0, 0
        if not batches:
            return []
        at = np.concatenate([batch[1] for batch in batches])
        position = np.concatenate([batch[2] for batch in batches])
        rows = pa.concat_tables([batch[0] for batch in batches])
        if self.blocks is not None:
            draw = np.concatenate([batch[3] for batch in batches])
            return [randomised(rows, Order(at, position, draw), self.blocks)]
        order = np.lexsort([position, at])
        run = RunEncoder(rows.schema)
        run.write(rows.take(pa.array(order)), at[order])
        return [run.close()]


def _table(columns: Mapping[str, pa.Array], nullable: Container[str]) -> pa.Table:
    """Rows in which all other columns are without NULL: columns that cannot be are written faster."""
    fields = [pa.field(name, column.type, name in nullable) for name, column in columns.items()]
    return pa.Table.from_arrays([*columns.values()], schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class Order:
    """What determines where in a run rows are: event times, positions, and the numbers by which their parts are drawn."""

    at: Ints
    position: Ints
    draw: Ints


def randomised(
    rows: pa.Table, by: Order, blocks: Blocks, *, of: int | None = None, keep: float = 1.0
) -> pa.Buffer:
    """A run of rows in their random parts; of a run that was reduced, `of` is how many rows it had, and `keep` what remains."""
    at, population = by.at, len(by.at) if of is None else of
    run, parts = RunEncoder(rows.schema), blocks.parts(population)
    number = parts.number(by.draw)
    order = np.lexsort([by.position, at, number])
    edges = np.flatnonzero(np.diff(number[order])) + 1
    shares = []
    for part in np.split(order, edges) if len(order) else ():
        run.write(rows.take(pa.array(part)), at[part], row_group=RUN_ROWS)
        shares.append(float(parts.share(int(number[part[0]]))))
    return run.close({SHARES: json.dumps([*shares[:-1], keep]), ROWS: str(population)})


def joined(schema: pa.Schema, groups: Iterable[tuple[pa.Table, float | None]]) -> pa.Buffer:
    """One file of several runs: their row groups as they are, each with the share of its run that it ends, if its run has parts."""
    run, shares = RunEncoder(schema), list[float | None]()
    for rows, share in groups:
        run.append(rows)
        shares.append(share)
    return run.close({JOINED: json.dumps(shares)})


def with_nullable(schema: pa.Schema) -> pa.Schema:
    """The schema of rows as they are read: whether a file has a NULL in a column of the stream does not show."""
    return pa.schema([field if field.name in _OURS else field.with_nullable(True) for field in schema])


class RunEncoder:
    """One unfinished Parquet file; tables are appended in time order."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - only where it is used

        self._out = pa.BufferOutputStream()
        self._footer: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._out, schema, metadata_collector=self._footer, **_settings(schema)
        )
        self._schema, self._row_groups = schema, 0
        self.rows = 0
        self.high = -(1 << 63)

    def write(self, table: pa.Table, at: Ints, row_group: int | None = None) -> None:
        """Append rows as row groups; `at` are their event times, which never go back within a part."""
        size = row_group or _ROW_GROUP
        self._writer.write_table(table, row_group_size=size)
        self._row_groups += -(-table.num_rows // size)
        self.rows += len(at)
        self.high = max(self.high, int(at[-1]))

    @property
    def written(self) -> int:
        """Bytes of the file up to now."""
        return int(self._out.tell())

    def append(self, group: pa.Table) -> None:
        """Append a row group of another run."""
        self._writer.write_table(group, row_group_size=max(group.num_rows, 1))
        self._row_groups += 1

    def close(self, metadata: dict[str, str] | None = None) -> pa.Buffer:
        """The finished file."""
        if metadata is not None:
            self._writer.add_key_value_metadata(metadata)
        return finished(self._out, self._writer, self._footer, self._schema, self._row_groups)


@lru_cache(256)  # every epoch writes a run of each stream
def _settings(schema: pa.Schema) -> dict[str, Any]:
    """How the columns of runs are encoded: arguments of Arrow's writer."""
    packed = [field.name for field in schema if _is_packed(field.type)]
    doubles = [field.name for field in schema if pa.types.is_floating(field.type)]
    return {
        # Packed columns do not get smaller by compression, only slower to write.
        "compression": {field.name: "none" if field.name in packed else "lz4" for field in schema},
        # Nearly all fates are equal: compressing them takes half as long as a dictionary.
        "use_dictionary": [field.name for field in schema if _repeats(field.type) and field.name != FATE],
        "column_encoding": dict.fromkeys(packed, "DELTA_BINARY_PACKED")
        | dict.fromkeys(doubles, "BYTE_STREAM_SPLIT"),
        "write_statistics": [field.name for field in schema if field.name == BLOCK or _is_searched(field)],
    }


def has_own_time(schema: pa.Schema, time: str | None) -> bool:
    """True when a timestamp column of the stream is its event time, so that `__at` would repeat it."""
    return time is not None and pa.types.is_timestamp(schema.field(time).type)


def _repeats(kind: pa.DataType) -> bool:
    """Whether a dictionary pays: texts and tiny numbers repeat."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_int8(kind))


def _is_searched(field: pa.Field) -> bool:
    """Whether readers skip row groups by the column's bounds: not by places in the stream's order of arrival."""
    return field.name != POSITION and _is_packed(field.type)


def _is_packed(kind: pa.DataType) -> bool:
    """Whether values are bit-packed differences: smaller for integers and timestamps, and faster than compression."""
    return bool(pa.types.is_int32(kind) or pa.types.is_int64(kind) or pa.types.is_timestamp(kind))

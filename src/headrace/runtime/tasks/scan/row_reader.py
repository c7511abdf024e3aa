"""The reader of a scan task's rows: from ingest records, from results of other queries, or from the archive in a backfill.

All are batches of `Arrival`: the stream's columns, event time and position of each row, and which are late. A row is late
if its event time is below the punctuation with which its epoch began; the archive stores that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.archive import runs
from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord, SourceBatch
from headrace.connectors.sources.source_reader import always, read
from headrace.dataclass import dataclass
from headrace.operators.base.batch import EventTimes
from headrace.operators.base.group_codes import as_int64, flat, ints
from headrace.operators.base.operator import AT
from headrace.runtime.home.merged_runs import results_named
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.plan import derived_streams
from headrace.store.files.filesystem import Store
from headrace.time import Instant

_BATCH = 1 << 18


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch as it arrived. `late` is None when no row is; `rejects` are (position, raw text, reason)."""

    columns: list[pa.Array]
    times: EventTimes
    position: npt.NDArray[np.int64]
    late: npt.NDArray[np.bool_] | None = None
    rejects: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.times.rows

    @property
    def at(self) -> npt.NDArray[np.int64]:
        """The event time of each row, in microseconds."""
        return self.times.instants


def position_of(ordinal: int) -> int:
    """The position of the first row of an ingest record (decision D10): unique, increasing, independent of cuts."""
    return ordinal << 32


def arrivals(
    store: Store,
    split: Split,
    definition: StreamDefinition,
    columns: tuple[str, ...],
    punctuation: Instant,
    reads_times: Callable[[Instant, Instant], bool] = always,
) -> Iterator[Arrival]:
    """The rows of one split; `columns` are the stream's columns to read, in that order, `reads_times` as in `read`."""
    if split.archived is not None:
        yield from _from_archive(store, split, split.archived, definition, columns)
        return
    assert split.record is not None
    if definition.using == derived_streams.USING:
        yield _from_results(store, split, columns, punctuation)
        return
    record = IngestRecord.from_json(split.record)
    first = position_of(split.ordinal)
    reads = lambda low, high: low < punctuation or reads_times(low, high)  # noqa: E731
    for batch in read(record, definition, columns, root=store.root, reads_times=reads):
        yield _judged(batch, first, punctuation)


def _from_results(store: Store, split: Split, columns: tuple[str, ...], punctuation: Instant) -> Arrival:
    """The results of another query in one run; rows are numbered in the order of the run."""
    assert split.record is not None
    table = split.made
    if table is None:
        table = results_named(store, split.record)
    at = ints(table, AT) - split.record["shift"]
    late = at < punctuation
    position = np.arange(len(at)) + position_of(split.ordinal)
    columns_read = [flat(table.column(name)) for name in columns]
    return Arrival(columns_read, EventTimes.of(at), position, late if late.any() else None)


def _judged(batch: SourceBatch, first: int, punctuation: Instant) -> Arrival:
    late = None
    if batch.times.rows and batch.times.bounds[0] < punctuation:
        late = batch.at < punctuation
    rejects = _rejects(batch.rejects, first) if batch.rejects.num_rows else []
    return Arrival(batch.table.columns, batch.times, batch.rows + first, late, rejects)


def _rejects(table: pa.Table, first: int) -> list[tuple[int, str, str]]:
    columns = (table.column(name).to_pylist() for name in ("row", "text", "reason"))
    return [(first + row, text, reason) for row, text, reason in zip(*columns, strict=True)]


def _from_archive(
    store: Store, split: Split, name: str, definition: StreamDefinition, columns: tuple[str, ...]
) -> Iterator[Arrival]:
    file = RunFile.of(store.map(name), name)
    time = file.time_column(definition.time)
    stored_columns = list(dict.fromkeys([*columns, runs.POSITION, runs.FATE, time]))
    for batch in file.batches(_BATCH, stored_columns, split.row_groups, split.part):
        late = batch.column(runs.FATE).to_numpy() != runs.ACCEPTED
        yield Arrival(
            [batch.column(column) for column in columns],
            EventTimes.of(as_int64(batch.column(time))),
            batch.column(runs.POSITION).to_numpy(),
            late if late.any() else None,
        )

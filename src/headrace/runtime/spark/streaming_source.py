"""Any Spark streaming DataFrame as a source: Structured Streaming runs it, each micro-batch becomes one segment.

The callback has no shared state: it writes a file and passes a record. `foreachBatch` is at-least-once; a segment is named by
its batch, so a repetition finds it and passes the same record, which the driver recognizes by its batch number.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.sources.segment_files import (
    batch_name,
    batches_written,
    segment_record,
    write_segment,
)
from headrace.errors import EpochFailed, UserError
from headrace.runtime.spark.given_session import NOT_IMPORTED, cannot_import, our_python
from headrace.runtime.spark.spark_executor import epoch_failure
from headrace.store.files.filesystem import LocalStore
from headrace.time import Clock, now


def start(
    frame: DataFrame,
    definition: StreamDefinition,
    folder: Path,
    checkpoint: Path,
    on_record: Callable[[IngestRecord], None],
    *,
    available_now: bool = False,
    clock: Clock = now,
    root: Path | None = None,
    has_room: Callable[[], bool] = lambda: True,
) -> StreamingQuery:
    """Run the frame in append mode; `on_record` gets one record for each micro-batch with rows, maybe more than once.

    Records are passed again for all segments in `folder` first: those that were written but perhaps not recorded before a
    crash. `on_record` is called from Spark's thread and has to ignore a batch it has. With `available_now` the
    query ends when it has caught up. A micro-batch waits for `has_room`, which returns false if the query is being stopped. Raises `UserError` when the checkpoint of written segments is gone, or when the
    frame cannot run in append mode.
    """
    written = batches_written(folder)
    if written and not any((checkpoint / "offsets").glob("*")):
        raise UserError(
            f"stream '{definition.name}': its Spark checkpoint '{checkpoint}' is gone, but batches up to {written[-1]} were read",
            remedy="Put the checkpoint back. Without it Spark would read its source again from the start: make a new stream for that.",
        )
    for batch in written:
        on_record(segment_record(definition, folder / batch_name(batch), -1, clock(), batch=batch, root=root))

    def take(micro_batch: DataFrame, batch: int) -> None:
        if not has_room():
            raise BatchInterrupted
        try:
            rows = _write(micro_batch, folder, batch_name(batch))
        except Exception as problem:
            if is_interruption(problem):
                raise BatchInterrupted from None
            raise
        if rows:
            on_record(
                segment_record(definition, folder / batch_name(batch), rows, clock(), batch=batch, root=root)
            )

    writer = (
        frame.writeStream.outputMode("append")
        .foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
    )
    try:
        return (writer.trigger(availableNow=True) if available_now else writer).start()
    except AnalysisException as problem:
        raise UserError(
            f"stream '{definition.name}': Spark cannot run this DataFrame in append mode: {_first_line(problem)}",
            remedy="Pass rows that never change: aggregate in a query here, not in the DataFrame.",
        ) from problem


def await_end(query: StreamingQuery, definition: StreamDefinition) -> None:
    """Wait for the end of a query that stops when it has caught up.

    Raises `UserError` when its source did not start, and `EpochFailed` when it ended with another error.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException as problem:
        raise _failure(query, definition, problem) from None


def failure_of(query: StreamingQuery, definition: StreamDefinition) -> UserError | EpochFailed | None:
    """Why a query has ended; None for one that runs, or was stopped, or whose JVM is gone: epochs report that."""
    try:
        problem = query.exception()
    except Py4JError:
        return None
    return None if problem is None else _failure(query, definition, problem)


def _failure(
    query: StreamingQuery, definition: StreamDefinition, problem: StreamingQueryException
) -> UserError | EpochFailed:
    text = str(problem)
    if NOT_IMPORTED in text:
        return cannot_import()
    source = "its DataFrame" if definition.using == "spark" else f"its source '{definition.using}'"
    if _IN_CALLBACK in text:
        failure = epoch_failure(text.partition("\n SQLSTATE: ")[0])
        return EpochFailed(
            f"stream '{definition.name}': a micro-batch of {source} was not read: {failure}",
            lasting=failure.lasting,
        )
    reason = _first_line(problem).partition(_ENDED)[2] or _first_line(problem)
    reason = reason.partition(" SQLSTATE: ")[0]
    if query.lastProgress is None:
        return UserError(
            f"stream '{definition.name}': Spark cannot start {source}: {reason}",
            remedy="Check its options, and that what it reads is there.",
        )
    return EpochFailed(
        f"stream '{definition.name}': Spark has ended {source}: {reason}\n"
        "  Rows that were read are there; start again once the cause is removed."
    )


_IN_CALLBACK: Final = "[FOREACH_BATCH_USER_FUNCTION_ERROR]"
_ENDED: Final = "terminated with exception: "


class BatchInterrupted(Exception):
    """A micro-batch that ended since its query is being stopped.

    Spark recognises that by looking for the words of the message in all that Python reports, with a regular expression that
    recurs for each character: the whole of Py4J's error (two stack traces) overflows the stack of the JVM, which prints it.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
        )


def is_interruption(problem: BaseException) -> bool:
    """Whether the JVM ended a micro-batch by interrupting its thread."""
    return any(name in str(problem) for name in _INTERRUPTIONS)


_INTERRUPTIONS: Final = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)


def _write(micro_batch: DataFrame, folder: Path, name: str) -> int:
    """Write a micro-batch in one task, in the order of its partitions; how many rows."""
    where = str(folder)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, is_same = _write_batches(batches, Path(where), name)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "same": [is_same]})

    with our_python(micro_batch.sparkSession.sparkContext):
        written = micro_batch.coalesce(1).mapInArrow(write, "rows BIGINT, same BOOLEAN").collect()[0]
    if not written["same"]:
        warnings.warn(
            f"the micro-batch {folder / name} was repeated with other rows: its source is not repeatable. The "
            "first rows are stored, the others are ignored",
            RuntimeWarning,
            stacklevel=2,
        )
    return int(written["rows"])


def _write_batches(batches: Iterable[pa.RecordBatch], folder: Path, name: str) -> tuple[int, bool]:
    """Write a micro-batch unless that was done before; how many rows it has, and whether these are the ones that count."""
    waiting = (batch for batch in batches if batch.num_rows)
    first = next(waiting, None)
    if first is None:
        return 0, not (folder / name).exists()
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in chain([first], waiting):
            rows += batch.num_rows
            yield batch

    if (folder / name).exists():
        return _repeated(pa.Table.from_batches([first, *waiting]), folder, name)
    write_segment(folder, name, first.schema, counted())
    return rows, True


def _repeated(again: pa.Table, folder: Path, name: str) -> tuple[int, bool]:
    """Compare a micro-batch with the segment that an earlier attempt has written of it: the segment counts.

    It is made durable, as its writer may have been killed before.
    """
    LocalStore(folder).sync([name])
    with pa.OSFile(str(folder / name)) as file:
        there = pa.ipc.open_stream(file).read_all()
    is_same = again.equals(there) or _rows(again) == _rows(there)
    return there.num_rows, is_same


def _rows(table: pa.Table) -> Counter[str]:
    """The rows without their order, which a repetition may change."""
    return Counter(map(repr, table.to_pylist()))


def _first_line(problem: BaseException) -> str:
    return next(iter(str(problem).splitlines()), "")

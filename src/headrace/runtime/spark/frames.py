"""Spark DataFrames as input and output of a hub: streaming DataFrames, and Spark sources by name (kafka, …), as streams
that are started and stopped; and a stream's archive as a DataFrame.

The module is imported without Spark, and uses Spark objects only when it is given some.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.archive.blocks import blocks_for
from headrace.archive.runs import AT, BLOCK, FATE, POSITION
from headrace.catalog import system_streams
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.options import OURS
from headrace.errors import EpochFailed, HeadraceError, UserError, did_you_mean
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.epoch import push
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.home.file_names import file_name, segments
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.tasks.scan.row_reader import position_of
from headrace.schema import Field as SchemaField
from headrace.schema import Schema, from_arrow

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import DataFrame, SparkSession


_Value = TypeVar("_Value")
SPARK_STREAM = "spark"
"""The `using` of a stream that a program feeds with a streaming DataFrame."""
_NOT_NAMED: Final = (SPARK_STREAM, derived_streams.USING, union_streams.USING, system_streams.USING)
"""Values of `using` that no statement gives."""
_WITHOUT_SPARK: Final = (*OURS, SPARK_STREAM, system_streams.USING)


class StreamingFrames:
    """The streaming DataFrames of a hub: Spark runs each, and its micro-batches are segments of the ingest log."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._frames: dict[str, DataFrame] = {}
        self._running: dict[str, Any] = {}
        """Spark's queries, by stream."""
        self._stopped: dict[str, threading.Event] = {}
        """Set when the query of a stream is being stopped."""
        self.wait_for_room: Callable[[StreamDefinition, threading.Event], bool] = lambda *_: True
        """Returns when the disk has room for a micro-batch; false where reading is stopped before."""
        pipeline.source_notes += [self.missing, self._ended_in_words]

    def add(self, name: str, frame: DataFrame) -> None:
        """Store the frame of a stream for `start`."""
        self._frames[self._pipeline.stream_definition(name).name] = frame

    def logged(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Stop and remove the frames of streams that entries of the catalog drop."""
        dropped = {
            entry["name"].lower() for entry in entries if entry["do"] == "drop" and entry["kind"] == "stream"
        }
        for name in [name for name in (*self._frames, *self._running) if name.lower() in dropped]:
            self._frames.pop(name, None)
            self._end(name)

    def missing(self) -> dict[str, str]:
        """Streams of DataFrames that this program has not passed, each with a warning."""
        return {
            stream.name: f"{stream.name}: it gets no rows, its DataFrame is not there: this program has to call "
            f"hub.create_stream({stream.name!r}, frame, …) again after it has opened the home."
            for stream in self._pipeline.catalog.streams.values()
            if stream.using == SPARK_STREAM and stream.name not in self._frames
        }

    def ended(self) -> dict[str, HeadraceError]:
        """Streams whose source Spark has ended, each with the reason: a `UserError` where it did not start with its options."""
        running = list(self._defined(self._running))
        if not running:
            return {}
        from headrace.runtime.spark import streaming_source  # noqa: PLC0415 - pyspark only when a frame is there

        failures = {
            definition.name: streaming_source.failure_of(query, definition) for definition, query in running
        }
        return {name: failure for name, failure in failures.items() if failure is not None}

    def _ended_in_words(self) -> dict[str, str]:
        return {name: str(failure) for name, failure in self.ended().items()}

    def check(self, definition: StreamDefinition) -> None:
        """Try a stream that reads a Spark source by its name (kafka, …): one that cannot be opened is refused at CREATE."""
        if definition.using in _NOT_NAMED:
            raise UserError(
                f"there is no format '{definition.using}' of files or of Spark's",
                remedy="A program passes a streaming DataFrame: hub.create_stream(name, frame).",
            )
        if definition.using not in _WITHOUT_SPARK:
            if getattr(self._pipeline.loop.engine.executor, "spark", None) is None:
                raise UserError(
                    f"there is no format '{definition.using}' of files, and this hub runs without Spark, which might have it",
                    remedy=did_you_mean(definition.using, OURS),
                )
            named_source(self._pipeline.session(), definition)

    def _all(self) -> dict[str, DataFrame]:
        """Frames that were passed, and those of streams that name a Spark source."""
        frames = dict(self._frames)
        for stream in self._pipeline.catalog.streams.values():
            if stream.using not in _WITHOUT_SPARK:
                frames[stream.name] = named_source(self._pipeline.session(), stream)
        return frames

    def _defined(self, values: Mapping[str, _Value]) -> Iterator[tuple[StreamDefinition, _Value]]:
        """Values by stream, with its definition; without those of streams that are dropped meanwhile."""
        for name, value in list(values.items()):
            definition = self._pipeline.catalog.stream(name)
            if definition is not None:
                yield definition, value

    def start(self, *, available_now: bool = False) -> None:
        """Start every frame's query; with `available_now` each ends when it has caught up."""
        frames = self._all()
        for sentence in self.missing().values():
            warnings.warn(sentence, RuntimeWarning, stacklevel=3)
        if not frames:
            return
        from headrace.runtime.spark import streaming_source  # noqa: PLC0415 - pyspark only when a frame is there

        root = Path(self._pipeline.home.store.root)
        for definition, frame in self._defined(frames):
            name, stopped = definition.name, threading.Event()
            self._stopped[name] = stopped
            query = streaming_source.start(
                frame,
                definition,
                root / segments(name),
                root / "spark-checkpoints" / file_name(name),
                self._pipeline.loop.engine.intake.queue,
                available_now=available_now,
                root=root,
                has_room=partial(self.wait_for_room, definition, stopped),
            )
            self._running[name] = query
            if self._pipeline.catalog.stream(name) is None:  # dropped meanwhile
                self._end(name)

    def drain(self) -> None:
        """Ingest the rows that the frames' sources hold now.

        Raises `UserError` when a source does not start with its options, and `EpochFailed` when one ends with another error.
        """
        self.start(available_now=True)
        try:
            for definition, query in self._defined(self._running):
                from headrace.runtime.spark import streaming_source  # noqa: PLC0415 - as in `start`

                streaming_source.await_end(query, definition)
        except HeadraceError:
            self.stop()
            raise
        self._running.clear()

    def restart(self) -> None:
        """Start the frames of a session whose JVM was lost, on its replacement.

        Raises `EpochFailed` when a program made its DataFrames with the lost session.
        """
        ran = bool(self._running)
        self._running.clear()
        if self._frames:
            names = ", ".join(sorted(self._frames))
            raise EpochFailed(
                f"the JVM of Spark is gone, and with it the streaming DataFrames of {names}\n"
                "  Create them again and start again; the home is complete, and continues where it was.",
                lasting=True,
            )
        if ran:
            self.start()

    def stop(self) -> None:
        """Stop the frames' queries."""
        for stopped in list(self._stopped.values()):
            stopped.set()
        for name in list(self._running):
            self._end(name)

    def _end(self, name: str) -> None:
        """Stop the query of a stream, if it runs."""
        stopped, query = self._stopped.pop(name, None), self._running.pop(name, None)
        if stopped is not None:
            stopped.set()
        if query is not None:
            query.stop()


def named_source(session: SparkSession, definition: StreamDefinition) -> DataFrame:
    """A Spark streaming source by its name, with the stream's columns in their types.

    Sources of a fixed schema (kafka) refuse one from outside: they are opened without, and their columns cast.
    Raises `UserError` when Spark does not have the source, or it lacks a column.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is there
    from pyspark.errors import (  # noqa: PLC0415
        AnalysisException,
        PySparkException,
        UnsupportedOperationException,
    )

    reader = session.readStream.format(definition.using).options(**dict(definition.options))
    declared = ", ".join(f"`{field.name}` {field.type}" for field in definition.schema)
    columns = [f"CAST(`{field.name}` AS {field.type}) AS `{field.name}`" for field in definition.schema]
    try:
        try:
            return reader.schema(declared).load().selectExpr(*columns)
        except (AnalysisException, UnsupportedOperationException):
            fixed = session.readStream.format(definition.using).options(**dict(definition.options))
            return fixed.load().selectExpr(*columns)
    except (PySparkException, Py4JJavaError) as problem:
        text = _of_java(problem) if isinstance(problem, Py4JJavaError) else str(problem)
        raise UserError(
            f"Spark cannot open the source '{definition.using}': {next(iter(text.splitlines()), '')}",
            remedy="Check its name, options and columns, and that its package is on Spark's class path.",
        ) from None


def _of_java(problem: Py4JJavaError) -> str:
    """The message of an exception that PySpark has no class for."""
    thrown = problem.java_exception
    return str(thrown.getMessage() or thrown.toString())


def schema_of(frame: DataFrame) -> Schema:
    """The columns of a streaming DataFrame.

    Raises `UserError` for a frame that is not streaming, and for types that no column has.
    """
    if not getattr(frame, "isStreaming", False):
        raise UserError("the DataFrame is not streaming", remedy="Read it with spark.readStream.")
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - pyspark only when a frame is there

    return Schema(
        tuple(
            SchemaField(field.name, from_arrow(field.type))
            for field in to_arrow_schema(frame.schema, timezone="UTC")
        )
    )


def archive(pipeline: Pipeline, stream: str, fraction: float = 1.0) -> DataFrame:
    """Accepted rows of a stream's archive, in Spark; of a `fraction` as many blocks of each run as hold it.

    Raises `UserError` when the stream stores no copy, or has no blocks of which to read a part.
    """
    definition = push.require_stream(pipeline.catalog, stream)
    if definition.archive != "copy":
        raise UserError(f"the stream '{stream}' keeps no copy of its rows (archive '{definition.archive}')")
    if fraction < 1 and definition.blocks == 1:
        raise UserError(
            f"the archive of '{stream}' is in one piece",
            remedy="OPTIONS (blocks '16') gives it parts to read.",
        )
    entries = [
        ArchiveEntry.from_json(e)
        for e in pipeline.home.entries(pipeline.home.latest(), f"archive:{definition.name}")
    ]
    names = dict.fromkeys(name for entry in entries for name in entry.files)
    files = [str(Path(pipeline.home.store.root) / name) for name in names]
    session = pipeline.session()
    if not files:
        return session.createDataFrame(definition.schema.arrow().empty_table())
    rows = session.read.parquet(*files).where(f"{FATE} = 0")
    if any(entry.within for entry in entries):  # in a file there are rows that have expired, too
        first = min((entry.ordinals[0] for entry in entries if entry.ordinals), default=0)
        rows = rows.where(f"{POSITION} >= {position_of(first)}")
    if fraction < 1:
        rows = rows.where(f"{BLOCK} < {blocks_for(fraction, definition.blocks)}")
    return rows.drop(POSITION, AT, FATE, BLOCK)

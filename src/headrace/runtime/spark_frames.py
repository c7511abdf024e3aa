"""Spark DataFrames in and out: streaming frames as sources, archives as frames.

This is part of the edge to Spark: it is imported without it, and touches Spark objects only when it is handed some.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.archive.runs import AT, FATE, POSITION
from headrace.catalog.definitions import StreamDefinition
from headrace.catalog.journal import stream_to_json
from headrace.errors import UserError
from headrace.runtime import pushing
from headrace.runtime.standing import ArchiveEntry
from headrace.schema import Field as SchemaField
from headrace.schema import Schema, from_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.runtime.hub import Hub

SPARK_STREAM = "spark"
"""The `using` of a stream that a program feeds with a streaming DataFrame."""


class StreamingFrames:
    """The streaming DataFrames of a hub: Spark runs each, its micro-batches are segments in our ingest log."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._frames: dict[str, DataFrame] = {}
        self._running: list[Any] = []

    def create(self, name: str, frame: DataFrame, timestamp: str | None, options: Mapping[str, Any]) -> None:
        """Define the stream if it is new, and remember the frame for `start`.

        Raises `UserError` for a frame that is not streaming, or differs from the stream that is there.
        """
        if not frame.isStreaming:
            raise UserError("the DataFrame is not streaming", remedy="Read it with spark.readStream.")
        definition = StreamDefinition(name, _schema_of(frame), SPARK_STREAM, time=timestamp, **options)
        if timestamp is not None:
            definition.schema.field(timestamp)
        known = self._hub.catalog.stream(name)
        if known is None:
            self._hub.log({"do": "create_stream", "stream": stream_to_json(definition)})
        elif known != definition:
            raise UserError(
                f"the stream '{name}' exists and is different",
                remedy="Give it another name, or drop it first.",
            )
        self._frames[name] = frame

    def start(self, *, available_now: bool = False) -> None:
        """Start every frame's query; with `available_now` each ends when it has caught up."""
        from headrace.runtime.sources import spark_stream  # noqa: PLC0415 - pyspark only when a frame is there

        root = Path(self._hub.home.store.root)
        for name, frame in self._frames.items():
            definition = self._hub.stream_definition(name)
            query = spark_stream.start(
                frame,
                definition,
                root / "segments" / name,
                root / "spark-checkpoints" / name,
                self._hub.loop.engine.intake.queue,
                available_now=available_now,
            )
            self._running.append(query)

    def drain(self) -> None:
        """Take in what the frames' sources hold now."""
        if not self._frames:
            return
        self.start(available_now=True)
        for query in self._running:
            query.awaitTermination()
        self._running.clear()

    def stop(self) -> None:
        """Stop the frames' queries."""
        for query in self._running:
            query.stop()
        self._running.clear()


def _schema_of(frame: DataFrame) -> Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - pyspark only when a frame is there

    return Schema(
        tuple(SchemaField(field.name, from_arrow(field.type)) for field in to_arrow_schema(frame.schema))
    )


def archive(hub: Hub, stream: str) -> DataFrame:
    """Accepted rows of a stream's archive, in Spark.

    Raises `UserError` when the stream keeps no copy.
    """
    definition = pushing.require_stream(hub.catalog, stream)
    if definition.archive != "copy":
        raise UserError(f"the stream '{stream}' keeps no copy of its rows (archive '{definition.archive}')")
    entries = [
        ArchiveEntry.from_json(e) for e in hub.home.entries(hub.home.latest(), f"archive:{definition.name}")
    ]
    files = [str(Path(hub.home.store.root) / name) for entry in entries for name in entry.files]
    session = hub.session()
    if not files:
        return session.createDataFrame(definition.schema.arrow().empty_table())
    return session.read.parquet(*files).where(f"{FATE} = 0").drop(POSITION, AT, FATE)

"""The base class of the hub: an open home and the loop of its epochs, as statements, sinks, DataFrames and readers use
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.algebra.query import Query
from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.sources.known_files import describe_changes
from headrace.errors import HeadraceError, UserError
from headrace.observation import EpochObservation
from headrace.operators.base.operator import Operator
from headrace.runtime.epoch.loop import Loop
from headrace.runtime.epoch.push import When, punctuate, require_stream
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.results import result_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pipeline:
    """An open home and its loop. All methods may be called from any thread."""

    def __init__(
        self,
        path: Path,
        home: Home,
        loop: Loop,
        record: Callable[[Mapping[str, Any]], None],
        *,
        synopsis_bytes: int | None,
    ) -> None:
        self.path, self.home, self.loop = path, home, loop
        self.record = record
        """Writes a line of the log of epochs."""
        self.synopsis_bytes = synopsis_bytes
        self.is_closed = False
        self.last: EpochObservation | None = None
        self.closing_rejects: dict[str, tuple[str, ...]] = {}
        """Query → the reasons of the rows on which it failed in the last provisional closing, one a row."""
        self.closing_failures: dict[str, str] = {}
        """Query → the reason why it has no rows in the last provisional closing."""
        self.source_notes: list[Callable[[], Mapping[str, str]]] = [loop.engine.vacuuming.notes]
        """Each gives, by stream, what is wrong with its source; see `source_warnings`."""

    @property
    def plan(self) -> EpochPlan:
        """The plan of the current catalog: the next epoch's."""
        return self.loop.engine.logged.plan

    @property
    def catalog(self) -> Catalog:
        """The current catalog."""
        return self.home.catalog

    def require_open(self) -> None:
        """Refuse to write to a home that is closed: its lock is free, another program may hold it.

        Raises `UserError`.
        """
        if self.is_closed:
            raise UserError(
                f"the hub of {self.path} is closed",
                remedy="Open it again with hr.open, or do this before close().",
            )

    def log(self, *entries: Mapping[str, Any]) -> None:
        """Append entries to the query log, all or none; in force from the next epoch. A `StoreError` has their `outcome`.

        New queries do not wait for the epoch under way.
        """
        self.require_open()
        self.loop.log(*entries)

    def punctuate(
        self, stream: str, at: When = None, where: str | None = None, zone: str | None = None
    ) -> None:
        """Promise that no later row is below `at`, or matches the pattern `where`.

        `at` is in microseconds since 1970 UTC, or a datetime with a zone; times in `where` are in `zone`. Durable on return.
        """
        self.require_open()
        punctuate(self.home, self.loop.engine, stream, at, where, zone)

    def stream_definition(self, name: str) -> StreamDefinition:
        """A stream's definition.

        Raises `UserError` with similar names when there is none.
        """
        return require_stream(self.catalog, name)

    def source_warnings(self) -> dict[str, str]:
        """Stream → what is wrong with its source (files that changed after they were read, a DataFrame that is not there) or archive."""
        streams = self.catalog.streams.values()
        changed = self.loop.engine.intake.changed
        sentences = {
            stream.name: describe_changes(stream.name, files, text=stream.using in ("csv", "json"))
            for stream in streams
            if (files := changed.get(stream.name))
        }
        for note in self.source_notes:
            sentences |= note()
        return sentences

    def operator_and_query(self, name: str) -> tuple[Operator, Query]:
        """A query's operator in the newest plan, and its algebra."""
        catalog_query = self.catalog.require_query(name)
        return self.plan.operators[catalog_query.operator_id], bound(self.catalog, catalog_query)

    def follow_epochs(self, operator: str, *, from_start: bool) -> Iterator[result_log.EpochResults]:
        """An operator's results as epochs commit them; ends when the loop stops."""
        length = self.home.list_of(self.home.latest(), "results").length
        seen = 0 if from_start else length
        while True:
            alive, manifest = self.loop.is_running, self.loop.engine.published
            length = self.home.list_of(manifest, "results").length
            yield from result_log.epochs_of(self.home, manifest, operator, seen)
            fresh, seen = length > seen, length
            if self.loop.failure is not None:
                raise HeadraceError(f"the epoch loop failed: {self.loop.failure}") from self.loop.failure
            if not fresh and not alive:
                return
            if not fresh:
                self.loop.wait_for_epoch_after(manifest.epoch)

    def session(self) -> SparkSession:
        """The Spark session of the executor.

        Raises `UserError` when this hub runs without Spark.
        """
        spark = getattr(self.loop.engine.executor, "spark", None)
        if spark is None:
            raise UserError("this hub runs without Spark", remedy="Open it with hr.open(home).")
        return spark

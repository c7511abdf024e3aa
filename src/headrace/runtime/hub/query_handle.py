"""Handle of a standing query for a program: its answer now or at an earlier instant, its history, its results as epochs
commit them, its clients, its completeness, and its removal.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Query
from headrace.algebra.windows.window import CHANGE
from headrace.connectors.formats.rendering import to_html
from headrace.errors import UserError
from headrace.language.parser.durations import duration
from headrace.language.syntax.cursor import Cursor
from headrace.operators.base.operator import AT, Operator
from headrace.runtime.backfill.completeness import Completeness, completeness, plan_in_force
from headrace.runtime.delivery import on_demand_changelog
from headrace.runtime.delivery.client import Client, connect
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.invoke.subwindow import answer_within
from headrace.runtime.results import result_log
from headrace.runtime.results.result_log import visible
from headrace.runtime.results.time_merge import Part
from headrace.runtime.statements.execute import Statements
from headrace.schema import STAMP, Schema
from headrace.time import EPOCH, Duration, Instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.runtime.results import past_answer

Since = datetime | Instant | None


class QueryHandle:
    """One registered query, by name. Survives ALTER: it always refers to the query that has the name now."""

    def __init__(self, pipeline: Pipeline, statements: Statements, name: str) -> None:
        self._pipeline, self._statements, self.name = pipeline, statements, name

    def __repr__(self) -> str:
        return f"<standing query {self.name}>"

    def _repr_html_(self) -> str:
        """The current answer, which a notebook shows for a query at the end of a cell."""
        return to_html(self.invoke(), self.name)

    @property
    def schema(self) -> Schema:
        """The output columns."""
        return self._bound()[1].schema

    def invoke(self, last: timedelta | Duration | str | None = None) -> pa.Table:
        """The current answer, without a Spark job: zero rows with the schema when there is none yet.

        `last`: the answer of a shorter window than the query's, as a timedelta, in microseconds, or as text such as "10 MINUTES".

        Raises `UserError` where the query stores no such window.
        """
        operator, query = self._bound()
        length = None if last is None else length_of(last)
        return answer_within(self._pipeline.home, operator, query, length)

    def as_of(self, at: datetime | Instant) -> pa.Table:
        """The answer as it was at an instant of event time, from committed results.

        Of a relation the rows that held at it, of windows the last one that ended by it, of a stream its rows up to it.
        Raises `UserError` where results of then are not stored.
        """
        from headrace.runtime.results import past_answer  # noqa: PLC0415 - not in a run that only emits

        operator, query = self._bound()
        on_demand_changelog.require_changelog(self.name, operator)
        return past_answer.answer_as_of(self._pipeline.home, operator, query, instant_of(at))

    def timeline(self, buckets: int = 200) -> past_answer.Timeline | None:
        """How many results were emitted over time; None where there are none."""
        from headrace.runtime.results import past_answer  # noqa: PLC0415 - as above

        return past_answer.timeline(self._pipeline.home, self._bound()[0], buckets)

    def completeness(self) -> Completeness:
        """Whether it is live or still backfilling, and from when on its answers have every row."""
        home = self._pipeline.home
        manifest = home.latest()
        return completeness(
            plan_in_force(home, manifest), manifest, self._pipeline.catalog.require_query(self.name)
        )

    def history(self, since: Since = None) -> pa.Table:
        """All committed result rows with an emission instant at or after `since`, in order of emission.

        A relation's rows are its changes, with `__change` (+1, -1) and `__at`.
        """
        tables = list(self.history_in_parts(since))
        return pa.concat_tables(tables) if tables else _no_changes(self._bound()[1])

    @property
    def history_schema(self) -> pa.Schema:
        """The columns of `history`."""
        return _no_changes(self._bound()[1]).schema

    def history_in_parts(self, since: Since = None) -> Iterator[pa.Table]:
        """The rows of `history` in the same order, some ten thousand at a time: for one that is larger than memory.

        The rows that were committed when the first part is read; no instant is in two parts.
        """
        operator, query = self._bound()
        start = None if since is None else instant_of(since)
        for table in result_log.in_parts(
            self._parts(operator, start), operator.sort, query.schema.names, start
        ):
            yield visible(table, query, changes=True)

    def _parts(self, operator: Operator, start: Instant | None) -> list[Part]:
        selection = operator.on_request
        if selection is None:
            return result_log.retained_results(self._pipeline.home, operator.id, start)
        catalog_query = self._pipeline.catalog.require_query(self.name)
        again = on_demand_changelog.recomputed_changelog(self._pipeline.home, catalog_query, selection)
        return [Part.of(table) for table in again if table.num_rows]

    def follow(self, since: Since = None) -> Iterator[pa.Table]:
        """Result rows as epochs commit them, one table an epoch; with `since` earlier ones first.

        Ends when the hub stops running. Wait-free for the pipeline: a slow follower holds nothing back.
        """
        operator, query = self._bound()
        start = None if since is None else instant_of(since)
        for part in self._emitted(operator, past=start is not None):
            rows = result_log.ordered(result_log.at_or_after(part, start), operator.sort, query.schema.names)
            if rows.num_rows:
                yield visible(rows, query, changes=True)

    def _emitted(self, operator: Operator, *, past: bool) -> Iterator[pa.Table]:
        pipeline, selection = self._pipeline, operator.on_request
        if selection is not None:
            yield from on_demand_changelog.follow_changes(
                pipeline, pipeline.catalog.require_query(self.name), selection, with_history=past
            )
        else:
            yield from (part.table for part in self._pipeline.follow_epochs(operator.id, from_start=past))

    def client(self, name: str) -> Client:
        """A client of that name, which fetches what it has not acknowledged: see `headrace.connect`."""
        return connect(self._pipeline, self.name, name)

    def live(self) -> None:
        """Show the answer in a notebook, renewed with each epoch that has results, until the cell is interrupted."""
        from headrace.connectors.formats.notebook import show_live  # noqa: PLC0415 - only in notebooks

        show_live(self.name, self.invoke, self.follow())

    def drop(self) -> None:
        """Remove the query; its state is deleted with the next epoch."""
        self._statements.drop("query", self.name)

    def dataframe(self) -> DataFrame:
        """All committed results as a Spark DataFrame, for the rest of Spark."""
        return self._pipeline.session().createDataFrame(self.history())

    def _bound(self) -> tuple[Operator, Query]:
        return self._pipeline.operator_and_query(self.name)


def _no_changes(query: Query) -> pa.Table:
    """No rows, with the columns that rows would have."""
    table = result_log.empty(query)
    if query.emission != "relation" and not query.retracts_windows:
        return table
    for name, kind in ((CHANGE, pa.int8()), (AT, STAMP)):
        table = table.append_column(name, pa.array([], kind))
    return table


def length_of(last: timedelta | Duration | str) -> Duration:
    """Microseconds of a length of time, however it is written.

    Raises `UserError` for text that is none.
    """
    if isinstance(last, timedelta):
        return last // timedelta(microseconds=1)
    return duration(Cursor(last), "the length of the window") if isinstance(last, str) else last


def instant_of(since: datetime | Instant) -> Instant:
    """Microseconds of a datetime (naive ones are UTC) or an instant. Raises `UserError` for anything else."""
    if isinstance(since, datetime):
        aware = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(microseconds=1)
    if not isinstance(since, int | np.integer):
        raise UserError(
            f"since is a datetime or microseconds since 1970, not {type(since).__name__}",
            remedy="Write for example since=datetime(2024, 1, 1, tzinfo=UTC).",
        )
    return int(since)

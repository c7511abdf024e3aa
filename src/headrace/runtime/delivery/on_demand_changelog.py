"""Changelog of a query that stores only its selection, or nothing: recomputed from the archive for one reader; and the
refusal of sinks and clients for such a query.

`history()` and `follow()` of a relation give its changes. A query whose window waits for INVOKE stores none; a reader
runs the operator that emits them, over the same archive up to the same punctuation, in memory and for itself alone.
The pipeline does nothing for it; for frequent reads, or delivery of every change, there is `materialize 'complete'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

import pyarrow as pa

from headrace.algebra.expressions.series import AT, POSITION
from headrace.catalog.catalog import CatalogQuery
from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, UserError
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Operator, Sections, Step
from headrace.operators.on_demand.selection import Selection
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.planner.lowering.lower import lower
from headrace.runtime.backfill.archive_reader import ArchivedRun, archive_list_of
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.home.home import Home
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant

_MANY_RUNS: Final = 8


@dataclass(slots=True)
class OnDemandChangelog:
    """One reader's changes of a selection; a later manifest continues where an earlier one ended."""

    home: Home
    operator: Selection
    changelog_operator: Operator
    _replayed: int = -1
    _emitted_to: Instant = BEGINNING
    _state: list[Sections] = field(default_factory=list)

    @staticmethod
    def of(home: Home, catalog_query: CatalogQuery, operator: Selection) -> OnDemandChangelog:
        """From the beginning."""
        query = bound(home.catalog, catalog_query)
        return OnDemandChangelog(home, operator, lower(operator.query, query, operator.id))

    def until(self, manifest: Manifest) -> pa.Table | None:
        """The changes up to a manifest that were not returned yet, with system columns."""
        if self.operator.id not in manifest.operators:
            return None
        progress = manifest.operator(self.operator.id)
        max_event_time = manifest.stream(self.operator.stream).greatest
        with registered(callable_by_name(self.home.catalog.functions)):
            deltas = self._read(manifest, progress)
            ended = progress.emitted_to == FOREVER > self._emitted_to
            advance = Advance(
                self._emitted_to, max(progress.emitted_to, self._emitted_to), max_event_time, final=ended
            )
            step = self.changelog_operator.advance(self._state, deltas, advance)
            self._state += [step.state] if step.state else []
            self._emitted_to = advance.punctuation
            self._compact(advance)
        return step.results

    def closing(self, manifest: Manifest) -> Step:
        """The further changes if the stream ended there."""
        self.until(manifest)
        max_event_time = manifest.stream(self.operator.stream).greatest
        with registered(callable_by_name(self.home.catalog.functions)):
            return self.changelog_operator.advance(
                self._state, [], Advance(self._emitted_to, FOREVER, max_event_time, final=True)
            )

    def _read(self, manifest: Manifest, progress: OperatorProgress) -> list[Sections]:
        """Deltas of the archive entries that are new to this reader and counted by the query."""
        archive = archive_list_of(self.home, manifest, self.operator.stream)
        stream = self.home.catalog.stream(self.operator.stream)
        assert stream is not None
        start = max(progress.since, self._replayed, archive.first)
        scanner = self.changelog_operator.scanner({})
        stored = self.changelog_operator.columns - {
            AT,
            POSITION,
        }  # every row has these two besides its columns
        for entry in archive.entries[start - archive.first : progress.replayed - archive.first]:
            for piece in entry.pieces:
                run = ArchivedRun(self.home.store, piece, stream)
                keys = run.keys
                batch = Batch({column: run.column(column) for column in stored}, keys.at, keys.position)
                scanner.add(batch if keys.accepted is None else batch.where(keys.accepted))
        self._replayed = max(start, progress.replayed)
        deltas = scanner.finish().deltas
        return [deltas] if deltas else []

    def _compact(self, advance: Advance) -> None:
        if len(self._state) <= _MANY_RUNS:
            return
        by_name: dict[str, list[pa.Table]] = {}
        for sections in self._state:
            for name, table in sections.items():
                by_name.setdefault(name, []).append(table)
        after = Advance(advance.punctuation, advance.punctuation, advance.max_event_time)
        self._state = [
            {name: self.changelog_operator.compact(name, parts, after) for name, parts in by_name.items()}
        ]


def recomputed_changelog(home: Home, catalog_query: CatalogQuery, operator: Selection) -> list[pa.Table]:
    """All changes of a selection up to the newest epoch."""
    table = OnDemandChangelog.of(home, catalog_query, operator).until(home.latest())
    return [] if table is None else [table]


def closing_of_selections(pipeline: Pipeline) -> dict[str, pa.Table]:
    """By query, the further changes of selections if the streams ended here; without paused and backfilling ones, as for all.

    Rows on which an expression failed count among the hub's `closing_rejects`.
    """
    closing: dict[str, pa.Table] = {}
    home, manifest = pipeline.home, pipeline.home.latest()
    for catalog_query in pipeline.catalog.queries.values():
        name, operator = (
            catalog_query.definition.name,
            pipeline.plan.operators[catalog_query.operator_id],
        )
        progress = manifest.find_operator(operator.id)
        selection = operator.on_request
        if selection is None or progress is None or catalog_query.definition.paused:
            continue
        if progress.replayed < home.list_of(manifest, f"archive:{operator.stream}").length:
            continue
        step = OnDemandChangelog.of(home, catalog_query, selection).closing(manifest)
        if step.results is not None and step.results.num_rows:
            closing[name] = step.results
        if step.rejected:
            pipeline.closing_rejects[name] = tuple(
                reason for rejects in step.rejected for reason in rejects.reasons
            )
    return closing


def follow_changes(
    pipeline: Pipeline, catalog_query: CatalogQuery, operator: Selection, *, with_history: bool
) -> Iterator[pa.Table]:
    """The changes as epochs are committed; `with_history`: earlier ones first. Ends when the loop stops."""
    changelog = OnDemandChangelog.of(pipeline.home, catalog_query, operator)
    if not with_history:
        changelog.until(pipeline.home.latest())
    while True:
        alive, manifest = pipeline.loop.is_running, pipeline.home.latest()
        table = changelog.until(manifest)
        if table is not None:
            yield table
        if pipeline.loop.failure is not None:
            raise HeadraceError(f"the epoch loop failed: {pipeline.loop.failure}") from pipeline.loop.failure
        if pipeline.home.latest().epoch == manifest.epoch:
            if not alive:
                return
            pipeline.loop.wait_for_epoch_after(manifest.epoch)


def require_changelog(name: str, operator: Operator) -> None:
    """Raises `UserError` for a query that stores no changes to deliver."""
    selection = operator.on_request
    if selection is not None:
        raise UserError(
            f"the query '{name}' keeps its {'selection' if selection.materialize == 'partial' else 'text'} only,"
            " and delivers no changes",
            remedy=f"ALTER QUERY {name} SET (materialize 'complete'); or fetch its answer with INVOKE {name}.",
        )

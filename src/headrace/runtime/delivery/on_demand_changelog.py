"""What would a query have told, of which only the selection is kept, or nothing? Its changes, made when somebody looks.

`history()` and `follow()` of a relation give its changes. A query whose window waits for INVOKE keeps none; whoever
looks runs the operator that tells them, over the same archive up to the same punctuation, in memory and for himself alone.
The pipeline does nothing for it; who looks often, or must not miss anything, asks for `materialize 'complete'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headrace.algebra.expressions.series import AT, POSITION
from headrace.catalog.catalog import StandingQuery
from headrace.errors import HeadraceError, UserError
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Operator, Sections, Step, Turn
from headrace.operators.on_demand.selection import Selection
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.planner.lowering.lower import lower
from headrace.runtime.backfill.archive_reader import ArchivedRun, past_of
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.home.home import Home
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant

_MANY_RUNS: Final = 8
_IDLE_SECONDS: Final = 0.5


@dataclass(slots=True)
class Retelling:
    """One look at the changes of a selection; a later manifest goes on where an earlier one ended."""

    home: Home
    operator: Selection
    teller: Operator
    _place: int = -1
    _closed: Instant = BEGINNING
    _state: list[Sections] = field(default_factory=list)

    @staticmethod
    def of(home: Home, standing: StandingQuery, operator: Selection) -> Retelling:
        """From the beginning."""
        query = bound(home.catalog, standing)
        return Retelling(home, operator, lower(operator.query, query, operator.id))

    def until(self, manifest: Manifest) -> pa.Table | None:
        """The changes that are told up to a manifest and have not been given yet, with system columns."""
        if self.operator.id not in manifest.operators:
            return None
        standing = manifest.operators[self.operator.id]
        greatest = manifest.stream(self.operator.stream).greatest
        with registered(callable_by_name(self.home.catalog.functions)):
            deltas = self._read(manifest, standing)
            ended = standing.closed == FOREVER > self._closed
            turn = Turn(self._closed, max(standing.closed, self._closed), greatest, final=ended)
            step = self.teller.advance(self._state, deltas, turn)
            self._state += [step.state] if step.state else []
            self._closed = turn.now
            self._compact(turn)
        return step.results

    def closing(self, manifest: Manifest) -> Step:
        """What would be told beyond that if the stream ended there."""
        self.until(manifest)
        greatest = manifest.stream(self.operator.stream).greatest
        with registered(callable_by_name(self.home.catalog.functions)):
            return self.teller.advance(self._state, [], Turn(self._closed, FOREVER, greatest, final=True))

    def _read(self, manifest: Manifest, standing: OperatorProgress) -> list[Sections]:
        """What the teller makes of the archive entries that are new to it and counted by the query."""
        past = past_of(self.home, manifest, self.operator.stream)
        stream = self.home.catalog.stream(self.operator.stream)
        assert stream is not None
        start = max(standing.since, self._place, past.first)
        scanner = self.teller.scanner({})
        stored = self.teller.columns - {AT, POSITION}  # these two every row has beside its columns
        for entry in past.entries[start - past.first : standing.replayed - past.first]:
            for name in entry.files:
                run = ArchivedRun(self.home.store, name, stream)
                keys = run.keys
                batch = Batch({each: run.column(each) for each in stored}, keys.at, keys.position)
                scanner.add(batch if keys.accepted is None else batch.where(keys.accepted))
        self._place = max(start, standing.replayed)
        deltas = scanner.finish().deltas
        return [deltas] if deltas else []

    def _compact(self, turn: Turn) -> None:
        if len(self._state) <= _MANY_RUNS:
            return
        found: dict[str, list[pa.Table]] = {}
        for sections in self._state:
            for name, table in sections.items():
                found.setdefault(name, []).append(table)
        after = Turn(turn.now, turn.now, turn.greatest)
        self._state = [{name: self.teller.compact(name, tables, after) for name, tables in found.items()}]


def told_again(home: Home, standing: StandingQuery, operator: Selection) -> list[pa.Table]:
    """All that a selection would have told up to the newest epoch."""
    table = Retelling.of(home, standing, operator).until(home.latest())
    return [] if table is None else [table]


def closing_of_selections(pipeline: Pipeline) -> dict[str, pa.Table]:
    """By query, what selections would tell beyond that if the streams ended here; as for all, none that is paused or behind.

    Rows on which an expression failed count among the hub's `closing_rejects`.
    """
    found: dict[str, pa.Table] = {}
    home, manifest = pipeline.home, pipeline.home.latest()
    for standing in pipeline.catalog.queries.values():
        name, operator = standing.definition.name, pipeline.loop.engine.plan.operators[standing.operator_id]
        place = manifest.operators.get(operator.id)
        asked = operator.on_request
        if asked is None or place is None or standing.definition.paused:
            continue
        if place.replayed < home.list_of(manifest, f"archive:{operator.stream}").length:
            continue
        step = Retelling.of(home, standing, asked).closing(manifest)
        if step.results is not None and step.results.num_rows:
            found[name] = step.results
        if step.rejected:
            pipeline.closing_rejects[name] = tuple(
                reason for each in step.rejected for reason in each.reasons
            )
    return found


def follow_changes(
    pipeline: Pipeline, standing: StandingQuery, operator: Selection, *, past: bool
) -> Iterator[pa.Table]:
    """What it would tell, as epochs are committed; with `past` first what it would have told. Ends when the loop stops."""
    retelling = Retelling.of(pipeline.home, standing, operator)
    if not past:
        retelling.until(pipeline.home.latest())
    while True:
        alive, manifest = pipeline.loop.is_running, pipeline.home.latest()
        table = retelling.until(manifest)
        if table is not None:
            yield table
        if pipeline.loop.failure is not None:
            raise HeadraceError(f"the epoch loop failed: {pipeline.loop.failure}") from pipeline.loop.failure
        if pipeline.home.latest().epoch == manifest.epoch:
            if not alive:
                return
            with pipeline.loop.published:
                pipeline.loop.published.wait(_IDLE_SECONDS)


def require_told(name: str, operator: Operator) -> None:
    """Raises `UserError` for a query that tells nobody what changes: who must not miss anything needs one that does."""
    asked = operator.on_request
    if asked is not None:
        raise UserError(
            f"the query '{name}' keeps its {'selection' if asked.materialize == 'partial' else 'text'} only,"
            " and delivers no changes",
            remedy=f"ALTER QUERY {name} SET (materialize 'complete'); or fetch its answer with INVOKE {name}.",
        )

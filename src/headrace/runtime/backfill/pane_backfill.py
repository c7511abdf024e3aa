"""The start of new operators: the initial progress of each, and for a window that is changed at run time, or a stream
without an archive, the input of its backfill: panes of another query (copied here), the archive, or nothing.

A query whose window was changed emits the windows that end from then on, over all rows that are still stored: from panes of
another query that cover its window, else from the archive, else from whichever covers more; its progress has since when
its windows are complete. Panes are copied in an epoch of their own, right after the change: its input is the source
operator's state of the previous manifest, so no row is missed or counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator, Scanned
from headrace.operators.families.family import state_name
from headrace.operators.on_demand.selection import materializes_none
from headrace.operators.sharing.pane_transfer import can_give, needed_from, transferred
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.backfill.initial_progress import beyond, initial_progress
from headrace.runtime.backfill.pane_sources import PaneSources
from headrace.runtime.backfill.replay import Archives
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import PaneBackfill, Participants, Split
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.derived_streams import is_shared_join, tree_of
from headrace.runtime.plan.plan_files import load_plan
from headrace.runtime.progress.committed_progress import progress_of
from headrace.runtime.results import result_log
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING, FOREVER, Instant

if TYPE_CHECKING:
    from headrace.catalog.definitions import StreamDefinition
    from headrace.runtime.home.home import Home
    from headrace.store.files.filesystem import Store

NOTHING: Final = "nothing"
ARCHIVE: Final = "the archive"


@dataclass(slots=True)
class BackfillPlanner:
    """The initial progress of new operators, and the panes that some of them get in the next epoch."""

    home: Home
    due: dict[str, PaneBackfill] = field(default_factory=dict)
    _sources: PaneSources = field(default_factory=PaneSources)

    def published(self, plan_file: str, plan: EpochPlan) -> None:
        """Note that an epoch of a plan was published: its operators may be sources from now on."""
        self._sources.follow(plan_file, plan.operators)

    def progress_of_new(
        self, manifest: Manifest, published: Manifest, plan: EpochPlan, new_operators: Sequence[str]
    ) -> dict[str, OperatorProgress]:
        """The progress of new operators; `manifest` has that of streams, `published` that of source operators.

        They begin with the archive, or FROM NOW (or without an archive) with the next rows.
        """
        self.due = {name: backfill for name, backfill in self.due.items() if name in plan.planned}
        progress: dict[str, OperatorProgress] = {}
        retained_since = cache(lambda results: self._retained_since(manifest, plan.streams[results]))
        for name in new_operators:
            operator = plan.planned[name].operator
            progress[name] = self._initial_progress(manifest, published, plan, operator, retained_since)
        return progress

    def _initial_progress(
        self,
        manifest: Manifest,
        published: Manifest,
        plan: EpochPlan,
        operator: Operator,
        retained_since: Callable[[str], Instant],
    ) -> OperatorProgress:
        name, stream = operator.stream, plan.streams[operator.stream]
        if stream.using == union_streams.USING:
            return self._initial_progress_of_union(manifest, plan, operator, stream, retained_since)
        query = self.home.catalog.require_query(operator.query).definition
        archive, committed = self.home.list_of(manifest, f"archive:{name}"), manifest.stream(name)
        from_now = query.from_now and not query.continues
        from_archive = self._from_archive(manifest, stream, retained_since, from_now=from_now)
        if materializes_none(operator):  # its answers read the archive themselves
            return replace(
                from_archive, emitted_to=progress_of(committed).punctuation, replayed=archive.length
            )
        keeps_none = stream.archive == "none"
        new_operator = operator.over_panes
        if new_operator is None or not (query.continues or (keeps_none and not query.from_now)):
            return from_archive
        emitted_to = progress_of(committed).punctuation
        backfill, needed = (
            self._best(published, new_operator, emitted_to, archive.length),
            needed_from(new_operator, emitted_to),
        )
        if backfill is not None and (
            keeps_none or backfill.since <= needed or backfill.since <= from_archive.complete_since
        ):
            self.due[operator.id] = backfill
            return OperatorProgress(
                emitted_to,
                archive.length,
                archive.length,
                complete_since=backfill.since if backfill.since > needed else BEGINNING,
                backfilled_from=f"the panes of {backfill.source_operator.query}",
            )
        return self._without_panes(from_archive, archive, stream, new_operator, emitted_to)

    def _from_archive(
        self,
        manifest: Manifest,
        stream: StreamDefinition,
        retained_since: Callable[[str], Instant],
        *,
        from_now: bool = False,
    ) -> OperatorProgress:
        """The start of a stream's archive, or FROM NOW its end, with since when that has every row."""
        archive, committed = (
            self.home.list_of(manifest, f"archive:{stream.name}"),
            manifest.stream(stream.name),
        )
        progress = initial_progress(stream, archive, committed, from_now=from_now)
        if stream.using == derived_streams.USING and progress.complete_since == BEGINNING:
            return replace(progress, complete_since=retained_since(stream.name))
        return progress

    def _retained_since(self, manifest: Manifest, results: StreamDefinition) -> Instant:
        """The event time from which on a stream of results has every row: a first reader reads those that are retained."""
        producer = derived_streams.operator_of(results)
        since = result_log.retained_since(self.home, manifest, producer)
        if since == FOREVER:  # none are retained: from the next emission on
            progress = manifest.find_operator(producer)
            since = BEGINNING if progress is None else progress.emitted_to
        return since if since in (BEGINNING, FOREVER) else since - int(results.options["shift"])

    def _without_panes(
        self,
        from_archive: OperatorProgress,
        archive: RadixList,
        stream: StreamDefinition,
        new_operator: PaneAggregate,
        emitted_to: Instant,
    ) -> OperatorProgress:
        """The progress of an operator whose window was changed, over all that the archive has of it."""
        if stream.archive == "none":
            continues = self.home.catalog.require_query(new_operator.query).definition.continues
            return replace(from_archive, backfilled_from=NOTHING if continues else "")
        needed, complete_since = needed_from(new_operator, emitted_to), from_archive.complete_since
        first = self._first_entry(archive, needed)
        since = complete_since if complete_since > needed else BEGINNING
        return OperatorProgress(emitted_to, first, first, complete_since=since, backfilled_from=ARCHIVE)

    def after_failure(
        self, manifest: Manifest, plan: EpochPlan, operator: Operator, reason: str
    ) -> OperatorProgress:
        """The progress of an operator that failed to take over panes: it reads the archive instead, if there is one.

        What fails then fails its query, as in any other backfill.
        """
        name, stream, new_operator = operator.stream, plan.streams[operator.stream], operator.over_panes
        assert new_operator is not None
        archive, committed = self.home.list_of(manifest, f"archive:{name}"), manifest.stream(name)
        from_archive = initial_progress(stream, archive, committed, from_now=False)
        progress = self._without_panes(
            from_archive, archive, stream, new_operator, progress_of(committed).punctuation
        )
        source = progress.backfilled_from or NOTHING
        panes = manifest.operators[operator.id].backfilled_from
        return replace(progress, backfilled_from=f"{source}, since {panes} could not be taken over: {reason}")

    def _initial_progress_of_union(
        self,
        manifest: Manifest,
        plan: EpochPlan,
        operator: Operator,
        stream: StreamDefinition,
        retained_since: Callable[[str], Instant],
    ) -> OperatorProgress:
        """The start of the archives of all its inputs, or FROM NOW (or where one has no archive) their end."""
        shared = is_shared_join(
            operator.id
        )  # belongs to no single query, and none of its readers is FROM NOW
        from_now = not shared and self._begins_now(operator)
        progress, archives = progress_of(manifest.stream(stream.name)), Archives(self.home, manifest, plan)
        if from_now or stream.archive == "none":
            length = archives.length(stream.name)
            return OperatorProgress(progress.punctuation, length, length, complete_since=beyond(progress))
        inputs = [
            self._from_archive(manifest, plan.streams[union_input.stream], retained_since)
            for union_input in union_streams.inputs_of(stream)
        ]
        return OperatorProgress(complete_since=max(progress.complete_since for progress in inputs))

    def _begins_now(self, operator: Operator) -> bool:
        """Whether an operator sees later rows only: FROM NOW, and in a tree of joins that grows until it has all that may be joined."""
        definition = self.home.catalog.require_query(operator.query).definition
        grows = definition.growing_tree
        return definition.from_now or (grows is not None and tree_of(operator.id) == grows.number)

    def _first_entry(self, archive: RadixList, needed: Instant) -> int:
        """The first entry of the archive that has a row at or after `needed`."""
        for index, entry in archive.iterate(self.home.store.read, archive.start):
            if entry["greatest"] >= needed:
                return index
        return archive.length

    def _best(
        self, manifest: Manifest, new_operator: PaneAggregate, emitted_to: Instant, length: int
    ) -> PaneBackfill | None:
        """The panes that begin earliest, of queries that have folded all of the stream."""
        best: PaneBackfill | None = None
        for source_operator in self._source_operators(manifest, new_operator):
            progress = manifest.find_operator(source_operator.id)
            if progress is None or not can_give(source_operator, new_operator):
                continue
            if (
                progress.replayed != length
                or progress.group_punctuations
                or progress.emitted_to != emitted_to
            ):
                continue
            since = max(progress.complete_since, needed_from(source_operator, progress.emitted_to))
            if best is None or since < best.since:
                runs = tuple(run.name for run in manifest.state)
                best = PaneBackfill(source_operator, new_operator.id, since, progress.emitted_to, runs)
        return best

    def _source_operators(self, manifest: Manifest, new_operator: PaneAggregate) -> Collection[PaneAggregate]:
        """The operators over the same rows whose state is in the manifest."""
        if not manifest.plan:
            return ()
        if self._sources.plan != manifest.plan:  # an earlier driver published it
            self.published(manifest.plan, load_plan(self.home.store, manifest.plan))
        return self._sources.over_rows_of(new_operator)

    def next_epoch(self, manifest: Manifest) -> EpochWork | None:
        """The epoch that copies the panes that are due; None when there are none."""
        due, self.due = self.due, {}
        if not due:
            return None
        return EpochWork(
            "fill",
            tuple(
                (Split(backfill.source_operator.stream, 0, pane_backfill=backfill), 1)
                for backfill in due.values()
            ),
            Participants(frozenset(due)),
            punctuations={name: manifest.operator(name).emitted_to for name in due},
            replayed={name: manifest.operator(name).replayed for name in due},
        )


def backfilled_panes(store: Store, backfill: PaneBackfill, new_operator: PaneAggregate) -> Scanned:
    """The new operator's deltas, made in a scan task from the source operator's state."""
    prefix = f"{state_name(backfill.source_operator)}/"
    runs: list[Mapping[str, pa.Table]] = []
    for name in backfill.runs:
        sections = open_run(store, name)
        runs.append({s.removeprefix(prefix): sections[s] for s in sections if s.startswith(prefix)})
    return Scanned(
        transferred(backfill.source_operator, new_operator, runs, backfill.since, backfill.emitted_to),
        (),
        0,
        0,
    )

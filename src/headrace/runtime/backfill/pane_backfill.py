"""What is a window that joins at run time filled from: the panes of present queries, the archive, or nothing?

A query whose window was changed tells the windows that end from then on, over all rows that are still to be had: from the
panes of a present query where these hold all that is needed, else from the archive, else from whichever holds more, and says
since when its windows are complete. Panes travel as an epoch of their own, right after the change: the donor's state of the
manifest before is its input, so that nothing is missed or counted twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.operators.base.operator import Operator, Scanned
from headrace.operators.families.family import state_name
from headrace.operators.on_demand.selection import materializes_none
from headrace.operators.sharing.pane_transfer import can_give, needed_from, transferred
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.backfill.operator_progress import beyond, initial_progress
from headrace.runtime.backfill.pane_donors import PaneSources
from headrace.runtime.backfill.replay import Archives
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import PaneBackfill, Split
from headrace.runtime.plan import union_streams
from headrace.runtime.plan.plan_files import load_plan
from headrace.runtime.progress.punctuation import progress_of
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING, Instant

if TYPE_CHECKING:
    from headrace.catalog.definitions import StreamDefinition
    from headrace.runtime.home.home import Home
    from headrace.store.files.filesystem import Store

NOTHING: Final = "nothing"
ARCHIVE: Final = "the archive"


@dataclass(slots=True)
class BackfillPlanner:
    """Where newcomers stand, and the panes that are to be handed to some of them in the next epoch."""

    home: Home
    due: dict[str, PaneBackfill] = field(default_factory=dict)
    _known: PaneSources = field(default_factory=PaneSources)

    def published(self, plan_file: str, plan: EpochPlan) -> None:
        """An epoch of a plan was published: from now on its operators may give."""
        self._known.follow(plan_file, plan.operators)

    def begun(
        self, manifest: Manifest, published: Manifest, plan: EpochPlan, fresh: Sequence[str]
    ) -> dict[str, OperatorProgress]:
        """Where operators stand that were not there before; `manifest` says so of streams, `published` of donors.

        They begin with the archive, or FROM NOW (or without an archive) with what comes next.
        """
        self.due = {name: backfill for name, backfill in self.due.items() if name in plan.operators}
        found: dict[str, OperatorProgress] = {}
        for name in fresh:
            found[name] = self._initial_progress(manifest, published, plan, plan.operators[name])
        return found

    def _initial_progress(
        self, manifest: Manifest, published: Manifest, plan: EpochPlan, operator: Operator
    ) -> OperatorProgress:
        name, stream = operator.stream, plan.streams[operator.stream]
        query = self.home.catalog.require_query(operator.query).definition
        if stream.using == union_streams.USING:
            return self._initial_progress_of_union(manifest, plan, operator, stream)
        archive, known = self.home.list_of(manifest, f"archive:{name}"), manifest.stream(name)
        found = initial_progress(stream, archive, known, from_now=query.from_now and not query.continues)
        if materializes_none(operator):  # it need not read the past to answer over it
            return replace(found, emitted_to=progress_of(known).punctuation, replayed=archive.length)
        keeps_none = stream.archive == "none"
        new_operator = operator.over_panes
        if new_operator is None or not (query.continues or (keeps_none and not query.from_now)):
            return found
        closed = progress_of(known).punctuation
        backfill, needed = (
            self._best(published, new_operator, closed, archive.length),
            needed_from(new_operator, closed),
        )
        kept = found.complete_since
        if backfill is not None and (keeps_none or backfill.since <= needed or backfill.since <= kept):
            self.due[operator.id] = backfill
            return OperatorProgress(
                closed,
                archive.length,
                archive.length,
                complete_since=backfill.since if backfill.since > needed else BEGINNING,
                backfilled_from=f"the panes of {backfill.source_operator.query}",
            )
        if keeps_none:
            return replace(found, backfilled_from=NOTHING if query.continues else "")
        first = self._first_entry(archive, needed)
        complete = kept if kept > needed else BEGINNING
        return OperatorProgress(closed, first, first, complete_since=complete, backfilled_from=ARCHIVE)

    def _initial_progress_of_union(
        self, manifest: Manifest, plan: EpochPlan, operator: Operator, stream: StreamDefinition
    ) -> OperatorProgress:
        """With the past of all its streams, or FROM NOW (or where one keeps no archive) with what comes next."""
        query = self.home.catalog.require_query(operator.query).definition
        reached, end = progress_of(manifest.stream(stream.name)), Archives(self.home, manifest, plan)
        if query.from_now or stream.archive == "none":
            length = end.length(stream.name)
            return OperatorProgress(reached.punctuation, length, length, complete_since=beyond(reached))
        every = [
            initial_progress(
                plan.streams[each.stream],
                self.home.list_of(manifest, f"archive:{each.stream}"),
                manifest.stream(each.stream),
                from_now=False,
            )
            for each in union_streams.inputs_of(stream)
        ]
        return OperatorProgress(complete_since=max(each.complete_since for each in every))

    def _first_entry(self, archive: RadixList, needed: Instant) -> int:
        """The first entry of the archive that has a row from `needed` on."""
        for index, entry in archive.iterate(self.home.store.read, archive.start):
            if entry["greatest"] >= needed:
                return index
        return archive.length

    def _best(
        self, manifest: Manifest, new_operator: PaneAggregate, emitted_to: Instant, length: int
    ) -> PaneBackfill | None:
        """The panes that reach back furthest, of queries that have folded all of the stream."""
        best: PaneBackfill | None = None
        for source_operator in self._source_operators(manifest, new_operator):
            progress = manifest.operators.get(source_operator.id)
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
        """The operators over the same rows whose state the manifest names."""
        if not manifest.plan:
            return ()
        if self._known.plan != manifest.plan:  # it was published by a driver before this one
            self.published(manifest.plan, load_plan(self.home.store, manifest.plan))
        return self._known.over_rows_of(new_operator)

    def next_epoch(self, places: Mapping[str, OperatorProgress]) -> EpochWork | None:
        """The epoch that hands over the panes that are due; None when there are none."""
        due, self.due = self.due, {}
        if not due:
            return None
        return EpochWork(
            "fill",
            tuple(
                (Split(backfill.source_operator.stream, 0, pane_backfill=backfill), 1)
                for backfill in due.values()
            ),
            tuple(due),
            punctuations={name: places[name].emitted_to for name in due},
            replayed={name: places[name].replayed for name in due},
        )


def backfilled_panes(store: Store, backfill: PaneBackfill, new_operator: PaneAggregate) -> Scanned:
    """What a scan task makes of a donor's state: the taker's deltas."""
    prefix = f"{state_name(backfill.source_operator)}/"
    runs: list[Mapping[str, pa.Table]] = []
    for name in backfill.runs:
        sections = open_run(store, name)
        runs.append({s.removeprefix(prefix): t for s, t in sections.items() if s.startswith(prefix)})
    return Scanned(
        transferred(backfill.source_operator, new_operator, runs, backfill.since, backfill.emitted_to),
        (),
        0,
        0,
    )

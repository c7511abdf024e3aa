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
from headrace.operators.on_demand.selection import keeps_nothing
from headrace.operators.sharing.pane_transfer import can_give, needed_from, transferred
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.backfill.operator_progress import beyond, newcomer
from headrace.runtime.backfill.pane_donors import Donors
from headrace.runtime.backfill.replay import Past
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import Work
from headrace.runtime.messages.task_messages import Fill, Piece
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
class Filling:
    """Where newcomers stand, and the panes that are to be handed to some of them in the next epoch."""

    home: Home
    due: dict[str, Fill] = field(default_factory=dict)
    _known: Donors = field(default_factory=Donors)

    def published(self, plan_file: str, plan: EpochPlan) -> None:
        """An epoch of a plan was published: from now on its operators may give."""
        self._known.follow(plan_file, plan.operators)

    def begun(
        self, manifest: Manifest, published: Manifest, plan: EpochPlan, fresh: Sequence[str]
    ) -> dict[str, OperatorProgress]:
        """Where operators stand that were not there before; `manifest` says so of streams, `published` of donors.

        They begin with the archive, or FROM NOW (or without an archive) with what comes next.
        """
        self.due = {name: fill for name, fill in self.due.items() if name in plan.operators}
        found: dict[str, OperatorProgress] = {}
        for name in fresh:
            found[name] = self._newcomer(manifest, published, plan, plan.operators[name])
        return found

    def _newcomer(
        self, manifest: Manifest, published: Manifest, plan: EpochPlan, operator: Operator
    ) -> OperatorProgress:
        name, stream = operator.stream, plan.streams[operator.stream]
        query = self.home.catalog.require_query(operator.query).definition
        if stream.using == union_streams.USING:
            return self._newcomer_of_several(manifest, plan, operator, stream)
        archive, known = self.home.list_of(manifest, f"archive:{name}"), manifest.stream(name)
        found = newcomer(stream, archive, known, from_now=query.from_now and not query.continues)
        if keeps_nothing(operator):  # it need not read the past to answer over it
            return replace(found, closed=progress_of(known).punctuation, replayed=archive.length)
        keeps_none = stream.archive == "none"
        taker = operator.over_panes
        if taker is None or not (query.continues or (keeps_none and not query.from_now)):
            return found
        closed = progress_of(known).punctuation
        fill, needed = self._best(published, taker, closed, archive.length), needed_from(taker, closed)
        kept = found.complete_since
        if fill is not None and (keeps_none or fill.since <= needed or fill.since <= kept):
            self.due[operator.id] = fill
            return OperatorProgress(
                closed,
                archive.length,
                archive.length,
                complete_since=fill.since if fill.since > needed else BEGINNING,
                filled=f"the panes of {fill.donor.query}",
            )
        if keeps_none:
            return replace(found, filled=NOTHING if query.continues else "")
        first = self._first_entry(archive, needed)
        complete = kept if kept > needed else BEGINNING
        return OperatorProgress(closed, first, first, complete_since=complete, filled=ARCHIVE)

    def _newcomer_of_several(
        self, manifest: Manifest, plan: EpochPlan, operator: Operator, stream: StreamDefinition
    ) -> OperatorProgress:
        """With the past of all its streams, or FROM NOW (or where one keeps no archive) with what comes next."""
        query = self.home.catalog.require_query(operator.query).definition
        reached, end = progress_of(manifest.stream(stream.name)), Past(self.home, manifest, plan)
        if query.from_now or stream.archive == "none":
            length = end.length(stream.name)
            return OperatorProgress(reached.punctuation, length, length, complete_since=beyond(reached))
        every = [
            newcomer(
                plan.streams[each.stream],
                self.home.list_of(manifest, f"archive:{each.stream}"),
                manifest.stream(each.stream),
                from_now=False,
            )
            for each in union_streams.members_of(stream)
        ]
        return OperatorProgress(complete_since=max(each.complete_since for each in every))

    def _first_entry(self, archive: RadixList, needed: Instant) -> int:
        """The first entry of the archive that has a row from `needed` on."""
        for index, entry in archive.iterate(self.home.store.read, archive.start):
            if entry["greatest"] >= needed:
                return index
        return archive.length

    def _best(self, manifest: Manifest, taker: PaneAggregate, closed: Instant, length: int) -> Fill | None:
        """The panes that reach back furthest, of queries that have folded all of the stream."""
        best: Fill | None = None
        for donor in self._donors(manifest, taker):
            standing = manifest.operators.get(donor.id)
            if standing is None or not can_give(donor, taker):
                continue
            if standing.replayed != length or standing.ahead or standing.closed != closed:
                continue
            since = max(standing.complete_since, needed_from(donor, standing.closed))
            if best is None or since < best.since:
                runs = tuple(run.name for run in manifest.state)
                best = Fill(donor, taker.id, since, standing.closed, runs)
        return best

    def _donors(self, manifest: Manifest, taker: PaneAggregate) -> Collection[PaneAggregate]:
        """The operators over the same rows whose state the manifest names."""
        if not manifest.plan:
            return ()
        if self._known.plan != manifest.plan:  # it was published by a driver before this one
            self.published(manifest.plan, load_plan(self.home.store, manifest.plan))
        return self._known.over_rows_of(taker)

    def work(self, places: Mapping[str, OperatorProgress]) -> Work | None:
        """The epoch that hands over the panes that are due; None when there are none."""
        due, self.due = self.due, {}
        if not due:
            return None
        return Work(
            "fill",
            tuple((Piece(fill.donor.stream, 0, fill=fill), 1) for fill in due.values()),
            tuple(due),
            now={name: places[name].closed for name in due},
            replayed={name: places[name].replayed for name in due},
        )


def filled(store: Store, fill: Fill, taker: PaneAggregate) -> Scanned:
    """What a scan task makes of a donor's state: the taker's deltas."""
    prefix = f"{state_name(fill.donor)}/"
    runs: list[Mapping[str, pa.Table]] = []
    for name in fill.runs:
        sections = open_run(store, name)
        runs.append({s.removeprefix(prefix): t for s, t in sections.items() if s.startswith(prefix)})
    return Scanned(transferred(fill.donor, taker, runs, fill.since, fill.closed), (), 0, 0)

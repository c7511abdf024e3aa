"""Retention, as a change of the next manifest: it no longer lists results that are older than their query retains, failed
rows of the query from before the results that stay, and rejects of a stream from before its archive begins, if the stream
has a `retain`. Also the number of ingest records that no epoch needs any more.

Results are kept for the query's `retain`, behind the instant up to which it has emitted; results that a query over it or a
sink of this hub has not read are kept longer. Queries of one retention share result files, so a file expires as a whole; a
query without one keeps all. The net rows of a relation's expired changes up to NOW are stored in their place, for INVOKE: they are
computed again only when as many changes wait as there are net rows, so that the cost follows the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby, takewhile
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.window import CHANGE
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT
from headrace.operators.base.query_failures import ROW_FAILURES
from headrace.operators.output.output_stage import HIDDEN
from headrace.runtime.home import file_names
from headrace.runtime.home.background_write import Turns
from headrace.runtime.home.merged_runs import results_of
from headrace.runtime.home.run_cache import section_of
from headrace.runtime.ingest import ingest_summary
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.plan import derived_streams
from headrace.runtime.progress.failing_queries import FAILED_ROWS
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.progress.union_progress import committed_now
from headrace.runtime.results.result_log import SUMS, consolidated
from headrace.runtime.samples.joined_rejects import JOINED_FAILURES
from headrace.store.files.container import parts
from headrace.store.files.filesystem import Store
from headrace.store.logs.committed import NEW_STREAM
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles, RadixList
from headrace.store.maintenance.retention_classes import class_of, expired_of, with_expired
from headrace.time import BEGINNING, FOREVER, Instant

EVERY: Final = 8
"""Epochs between two retention passes."""
_FEWEST: Final = 64
"""The least number of changes for which net rows are computed."""


@dataclass(slots=True)
class _Walk:
    """Expired entries of a class, up to `stop`, whose changes are still too few to be added up."""

    stop: int
    rows: int = 0
    entries_of: dict[str, list[int]] = field(default_factory=dict)
    """The entries with results of each relation, by index: when they are read, their runs may have been merged."""
    unneeded: set[int] = field(default_factory=set)
    """Entries from `stop` on that stay only because another one of their epoch does: what is not needed once never is again."""

    def add(self, entries: Iterable[tuple[int, Mapping[str, Any]]], plan: EpochPlan, store: Store) -> None:
        """Add entries, each with its index."""
        for index, entry in entries:
            for operator, facts in answered(entry, store).items():
                retention = plan.retention_of(operator)
                if retention is not None and retention.adds_up:
                    self.entries_of.setdefault(operator, []).append(index)
                    self.rows += facts[0]


@dataclass(slots=True)
class Retention:
    """Retention of a home. A pass reads what has expired since the one before: what that has read is remembered."""

    holds: Callable[[], Mapping[str, int]] = dict
    """Operator → index of the first result that a client or sink has not received yet."""
    _walks: dict[str, _Walk] = field(default_factory=dict)
    """By retention class, under this plan and for these holders: with others, an expired entry may be needed."""
    _plan: EpochPlan | None = None
    _holders: frozenset[str] = frozenset()
    _turns: Turns = field(default_factory=Turns)

    def settled(
        self,
        planned: Manifest,
        read_ordinals: Mapping[str, Sequence[int]],
        plan: EpochPlan,
        intake: Intake,
        files: ListFiles,
    ) -> Manifest:
        """An epoch's manifest, with the number of settled ingest records; every `EVERY` epochs without what has expired."""
        store, sources = intake.home.store, index_of(plan).sources
        upto = intake.settled(sources, read_ordinals, in_place(planned, sources, store))
        planned = replace(planned, ingest=max(planned.ingest, upto))
        if not self._turns.is_due(planned.epoch, EVERY):
            return planned
        holds = self.holds()
        if plan is not self._plan or holds.keys() != self._holders:
            self._walks, self._plan, self._holders = {}, plan, frozenset(holds)
        without = RetentionPass(store, plan, planned, files, holds, self._walks).manifest_after()
        return ingest_summary.summarised(intake.summaries, without, files)


@dataclass(slots=True)
class RetentionPass:
    """One retention pass over a manifest. `holds`: operator → index of the first result that must stay.

    `walks` are those of the last pass; this one continues and replaces them.
    """

    store: Store
    plan: EpochPlan
    manifest: Manifest
    files: ListFiles
    holds: Mapping[str, int]
    walks: dict[str, _Walk]
    sums: dict[str, list[Any]] = field(init=False)
    oldest_epochs: dict[str, int] = field(init=False, default_factory=dict)
    _first_unread: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        sums = self.manifest.facts.get(SUMS, {})
        # An earlier version did not store the last instant.
        self.sums = {
            name: [*(*run, BEGINNING)[:3]] for name, run in sums.items() if name in self.plan.operators
        }

    def manifest_after(self) -> Manifest:
        """The manifest without what has expired."""
        facts, lists = dict(self.manifest.facts), dict[str, RadixList]()
        listed = self.manifest.lists.get("results")
        if listed is not None:
            before = expired_of(self.manifest, "results")
            after = {
                retention_class: self._first_retained(listed, retention_class, start)
                for retention_class, start in before.items()
            }
            facts = with_expired(facts, "results", after)
            lists["results"] = listed.drop_before(min(after.values(), default=0))
        if self.sums:
            facts[SUMS] = self.sums
        else:
            facts.pop(SUMS, None)
        dropped = {name for name in facts.get(FAILED_ROWS, {}) if name not in self.plan.operators}
        if dropped:
            rows = {name: rows for name, rows in facts[FAILED_ROWS].items() if name not in dropped}
            facts[FAILED_ROWS] = rows
        lists |= self._without_old_rejects()
        gone = {f"failures:{name}" for name in dropped} & self.manifest.lists.keys()
        marks = facts.get(JOINED_FAILURES, {})
        if not dropped.isdisjoint(marks):
            facts[JOINED_FAILURES] = {name: mark for name, mark in marks.items() if name not in dropped}
        return replace(self.manifest, lists=self.manifest.lists.changed(lists, gone), facts=facts)

    def _first_retained(self, listed: RadixList, retention_class: str, start: int) -> int:
        """Index of the first entry of a class that has to stay; relations' changes before it are added up."""
        walk = self.walks.pop(retention_class, None) or _Walk(start)
        first, self.oldest_epochs[retention_class] = self._end_of_others(listed), self.manifest.epoch
        end = first
        earlier = takewhile(lambda one: one[0] < end, listed.iterate(self.store.read, walk.stop))
        of_class = (one for one in earlier if class_of(one[1]) == retention_class)
        for epoch, entries in groupby(of_class, lambda one: one[1]["epoch"]):
            of_epoch = list(entries)
            # All of an epoch stay together: each state task has an entry, with instants of the same time.
            if not all(self._is_unneeded(walk, index, entry) for index, entry in of_epoch):
                first, self.oldest_epochs[retention_class] = of_epoch[0][0], epoch
                break
            walk.add(of_epoch, self.plan, self.store)
            walk.unneeded.clear()
        if self._added_up(walk, listed):
            self.walks[retention_class] = _Walk(first, unneeded=walk.unneeded)
            return first
        walk.stop = first
        self.walks[retention_class] = walk
        return start

    def _end_of_others(self, listed: RadixList) -> int:
        """Index after the entries of earlier epochs: those of this one may be others if it fails and runs again."""
        for index, entry in listed.iterate(self.store.read, reverse=True):
            if entry["epoch"] < self.manifest.epoch:
                return index + 1
        return listed.start

    def _is_unneeded(self, walk: _Walk, index: int, entry: Mapping[str, Any]) -> bool:
        """Whether no result of an entry has to stay."""
        if index not in walk.unneeded:
            facts_of = answered(entry, self.store)
            if any(self._is_needed(operator, facts, index) for operator, facts in facts_of.items()):
                return False
            walk.unneeded.add(index)
        return True

    def _is_needed(self, operator: str, facts: tuple[int, int, int], index: int) -> bool:
        progress = self.manifest.find_operator(operator)
        if progress is None or operator not in self.plan.operators:
            return False
        retention, emitted_to = self.plan.retention_of(operator), progress.emitted_to
        if retention is None or emitted_to in (BEGINNING, FOREVER) or index >= self._held(operator):
            return True
        return bool(facts[2] >= emitted_to - retention.length)

    def _held(self, operator: str) -> int:
        """Index of the first result of an operator that must stay: for a sink, or a query that reads it."""
        first = self._first_unread.get(operator)
        if first is None:
            stream = index_of(self.plan).results_of.get(operator)
            unread = FOREVER if stream is None else first_unread(self.manifest, stream.name, self.store)
            first = self._first_unread[operator] = min(self.holds.get(operator, FOREVER), unread)
        return first

    def _added_up(self, walk: _Walk, listed: RadixList) -> bool:
        """Add up the changes of relations that expire; False when they are too few yet, or more than a column can hold."""
        entries_of = walk.entries_of
        if not entries_of:
            return True
        if walk.rows < max(_FEWEST, sum(self.sums[name][1] for name in entries_of if name in self.sums)):
            return False
        indexes = {index for of_relation in entries_of.values() for index in of_relation}
        named = takewhile(lambda one: one[0] <= max(indexes), listed.iterate(self.store.read, min(indexes)))
        entry_at = {index: entry for index, entry in named if index in indexes}
        try:
            sums = {
                operator: self._sum(operator, [entry_at[index] for index in entries])
                for operator, entries in entries_of.items()
            }
        except ROW_FAILURES:  # these results are retained, and the epoch does not fail
            return False
        name = file_names.results_run(self.manifest.epoch, 0)
        net_rows = {operator: table for operator, (table, _) in sums.items()}
        self.store.write_once(name, parts(net_rows, compressed=True), durable=False)
        self.files.unsynced.append(name)
        self.sums |= {operator: [name, table.num_rows, last] for operator, (table, last) in sums.items()}
        return True

    def _sum(self, operator: str, entries: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, Instant]:
        """What a relation's expired changes add up to, and the instant from which on that is known.

        Net rows at `BEGINNING`, then the changes after NOW, which punctuation has passed: they are no part of R(NOW) yet.
        """
        tables = [results_of(self.store, entry, operator) for entry in entries]
        if operator in self.sums:
            tables.insert(0, section_of(self.store, self.sums[operator][0], operator))
        changes = pa.concat_tables(tables)
        shown = [
            column for column in changes.column_names if column not in (AT, CHANGE) and not _is_hidden(column)
        ]
        now = committed_now(self.manifest, self.plan.streams, self.plan.operators[operator].stream)
        at = ints(changes, AT)
        is_due = at <= now
        _, _, last = self.sums.get(operator, ["", 0, BEGINNING])
        bag = consolidated(changes.filter(pa.array(is_due)), shown, signed=True)
        first = pa.array(np.full(bag.num_rows, BEGINNING, np.int64))
        bag = bag.set_column(bag.column_names.index(AT), AT, first)
        whole = pa.concat_tables([bag.cast(changes.schema), changes.filter(pa.array(~is_due))])
        return whole, int(at.max(where=is_due, initial=last))

    def _without_old_rejects(self) -> dict[str, RadixList]:
        """The lists with expired rejects, without these: those of streams expire with the archive, failures with the query's results."""
        lists, shorter = self.manifest.lists, {}
        for owner in self.manifest.facts.get(FAILED_ROWS, {}):
            listed = lists.get(f"failures:{owner}")
            retention = self.plan.retention_of(derived_streams.owner_of(owner))
            oldest_epoch = self.oldest_epochs.get(str(retention))
            if listed is not None and owner in self.plan.operators and oldest_epoch is not None:
                shorter[f"failures:{owner}"] = self._since(listed, oldest_epoch)
        for stream in index_of(self.plan).sources:
            listed = lists.get(f"rejects:{stream.name}")
            if listed is not None and stream.retain is not None:
                archive = lists.get(f"archive:{stream.name}", RadixList())
                first = next(archive.iterate(self.store.read), None)
                since = self.manifest.epoch if first is None else first[1]["epoch"]
                shorter[f"rejects:{stream.name}"] = self._since(listed, since)
        return {name: listed for name, listed in shorter.items() if listed is not lists[name]}

    def _since(self, listed: RadixList, epoch: int) -> RadixList:
        """The list from an epoch on; the same object if that is all of it."""
        first = next(
            (index for index, entry in listed.iterate(self.store.read) if entry["epoch"] >= epoch),
            listed.length,
        )
        return listed if first == listed.start else listed.drop_before(first)


def first_unread(manifest: Manifest, results: str, store: Store) -> int:
    """Index of the first result in a stream of results that its readers have not read, or may read again."""
    return min((manifest.streams.get(results, NEW_STREAM).next, *oldest_ordinals(manifest, results, store)))


def in_place(manifest: Manifest, streams: Iterable[StreamDefinition], store: Store) -> dict[str, int]:
    """Streams that are read in place → the first ordinal that may be read again."""
    return {
        stream.name: min(oldest_ordinals(manifest, stream.name, store), default=FOREVER)
        for stream in streams
        if stream.archive == "in place"
    }


def oldest_ordinals(manifest: Manifest, stream: str, store: Store) -> Iterator[int]:
    """The ordinals of the oldest entry in a stream's archive; none without one."""
    for _, entry in manifest.lists.get(f"archive:{stream}", RadixList()).iterate(store.read):
        if entry["ordinals"]:
            yield from entry["ordinals"]
            return


def _is_hidden(name: str) -> bool:
    return name.startswith(HIDDEN)

"""Retention: results that are older than their query retains are removed, with the rejects of the same time.

Results are kept for the query's `retain`, behind the instant up to which it has emitted; results that a query over it or a
sink of this hub has not read are kept longer. Queries of one retention share result files, so a file expires as a whole; a
query without one keeps all. The net rows of a relation's expired changes are stored in their place, for INVOKE: they are
computed again only when as many changes wait as there are net rows, so that the cost follows the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.window import CHANGE
from headrace.catalog.definitions import StreamDefinition
from headrace.operators.base.operator import AT
from headrace.operators.base.query_failures import ROW_FAILURES
from headrace.operators.output.output_stage import HIDDEN
from headrace.runtime.home import file_names
from headrace.runtime.home.run_cache import section_of
from headrace.runtime.ingest import ingest_summary
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.results.result_log import SUMS, consolidated
from headrace.store.files.container import parts
from headrace.store.files.filesystem import Store
from headrace.store.logs.committed import NEW_STREAM
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles, RadixList
from headrace.store.maintenance.retention_classes import class_of, expired_of, with_expired
from headrace.time import BEGINNING, FOREVER

EVERY: Final = 8
"""Epochs between two retention passes."""
_FEWEST: Final = 64
"""The least number of changes for which net rows are computed."""


@dataclass(slots=True)
class RetentionPass:
    """One retention pass over a manifest. `holds`: operator → index of the first result that must stay."""

    store: Store
    plan: EpochPlan
    manifest: Manifest
    files: ListFiles
    holds: Mapping[str, int]
    sums: dict[str, list[Any]] = field(init=False)
    oldest_epochs: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        sums = self.manifest.facts.get(SUMS, {})
        self.sums = {name: run_and_rows for name, run_and_rows in sums.items() if name in self.plan.operators}
        self.holds = {**unread(self.manifest, self.plan, self.store), **self.holds}

    def manifest_after(self) -> Manifest:
        """The manifest without what has expired."""
        lists = dict(self.manifest.lists)
        facts = {**self.manifest.facts, SUMS: self.sums}
        listed = lists.get("results")
        if listed is not None:
            before = expired_of(self.manifest, "results")
            after = {
                retention_class: self._first_retained(listed, retention_class, start)
                for retention_class, start in before.items()
            }
            facts = with_expired({**facts, SUMS: self.sums}, "results", after)
            lists["results"] = listed.drop_before(min(after.values(), default=0))
        if not self.sums:
            facts.pop(SUMS)
        lists = self._without_old_rejects(lists)
        changed = {name: listed for name, listed in lists.items() if listed is not self.manifest.lists[name]}
        gone = self.manifest.lists.keys() - lists.keys()
        return replace(self.manifest, lists=self.manifest.lists.changed(changed, gone), facts=facts)

    def _first_retained(self, listed: RadixList, retention_class: str, start: int) -> int:
        """Index of the first entry of a class that has to stay; relations' changes before it are added up."""
        old: list[Mapping[str, Any]] = []
        first, self.oldest_epochs[retention_class] = listed.length, self.manifest.epoch
        for index, entry in listed.iterate(self.store.read, start):
            if class_of(entry) != retention_class:
                continue
            if any(self._is_needed(query, facts, index) for query, facts in answered(entry).items()):
                first, self.oldest_epochs[retention_class] = index, entry["epoch"]
                break
            old.append(entry)
        return first if self._added_up(old) else start

    def _is_needed(self, operator: str, facts: tuple[int, int, int], index: int) -> bool:
        progress = self.manifest.find_operator(operator)
        if progress is None or operator not in self.plan.operators:
            return False
        retention, emitted_to = self.plan.retention_of(operator), progress.emitted_to
        if (
            retention is None
            or emitted_to in (BEGINNING, FOREVER)
            or index >= self.holds.get(operator, FOREVER)
        ):
            return True
        return bool(facts[2] >= emitted_to - retention.length)

    def _added_up(self, old: list[Mapping[str, Any]]) -> bool:
        """Add up the changes of relations that expire; False when they are too few yet, or more than a column can hold."""
        files_of: dict[str, list[str]] = {}
        rows = 0
        for entry in old:
            for operator, facts in answered(entry).items():
                retention = self.plan.retention_of(operator)
                if retention is not None and retention.adds_up:
                    files_of.setdefault(operator, []).append(entry["name"])
                    rows += facts[0]
        if not files_of:
            return True
        if rows < max(_FEWEST, sum(self.sums[name][1] for name in files_of if name in self.sums)):
            return False
        try:
            net_rows = {operator: self._sum(operator, files) for operator, files in files_of.items()}
        except ROW_FAILURES:  # these results are retained, and the epoch does not fail
            return False
        name = file_names.results_run(self.manifest.epoch, 0)
        self.store.write_once(name, parts(net_rows, compressed=True), durable=False)
        self.files.unsynced.append(name)
        self.sums.update({operator: [name, table.num_rows] for operator, table in net_rows.items()})
        return True

    def _sum(self, operator: str, files: list[str]) -> pa.Table:
        tables = [section_of(self.store, name, operator) for name in files]
        if operator in self.sums:
            tables.insert(0, section_of(self.store, self.sums[operator][0], operator))
        changes = pa.concat_tables(tables)
        shown = [
            column for column in changes.column_names if column not in (AT, CHANGE) and not _is_hidden(column)
        ]
        bag = consolidated(changes, shown)
        insertions = pa.array(np.ones(bag.num_rows, np.int8)).cast(changes.schema.field(CHANGE).type)
        return bag.set_column(bag.column_names.index(CHANGE), CHANGE, insertions).cast(changes.schema)

    def _without_old_rejects(self, lists: dict[str, RadixList]) -> dict[str, RadixList]:
        """The lists without expired rejects: those of streams expire with the archive, failures with the query's results."""
        remaining = {}
        for name, listed in lists.items():
            kind, _, owner = name.partition(":")
            remaining[name] = listed
            if kind == "failures" and owner not in self.plan.operators:
                del remaining[name]
            elif kind == "failures" and (
                retention := self.plan.retention_of(derived_streams.owner_of(owner))
            ):
                oldest_epoch = self.oldest_epochs.get(str(retention))
                remaining[name] = listed if oldest_epoch is None else self._since(listed, oldest_epoch)
            elif kind == "rejects" and (stream := self.plan.streams.get(owner)) and stream.retain is not None:
                archive = lists.get(f"archive:{owner}", RadixList())
                first = next(archive.iterate(self.store.read), None)
                remaining[name] = self._since(
                    listed, self.manifest.epoch if first is None else first[1]["epoch"]
                )
        return remaining

    def _since(self, listed: RadixList, epoch: int) -> RadixList:
        for index, entry in listed.iterate(self.store.read):
            if entry["epoch"] >= epoch:
                return listed.drop_before(index)
        return listed.drop_before(listed.length)


def settled(
    planned: Manifest,
    taken: Mapping[str, Sequence[int]],
    plan: EpochPlan,
    intake: Intake,
    files: ListFiles,
    holds: Callable[[], Mapping[str, int]],
) -> Manifest:
    """An epoch's manifest, with the number of settled ingest records; every `EVERY` epochs without what has expired."""
    store = intake.home.store
    internal = (derived_streams.USING, union_streams.USING)
    sources = [stream for stream in plan.streams.values() if stream.using not in internal]
    upto = intake.settled(sources, taken, in_place(planned, sources, store))
    planned = replace(planned, ingest=max(planned.ingest, upto))
    if planned.epoch % EVERY:
        return planned
    without = RetentionPass(store, plan, planned, files, holds()).manifest_after()
    return ingest_summary.summarised(intake.summaries, without, files)


def unread(manifest: Manifest, plan: EpochPlan, store: Store) -> dict[str, int]:
    """Operators that queries read → index of the first result that these have not read, or may read again."""
    first_unread = {}
    for name, stream in plan.streams.items():
        if stream.using == derived_streams.USING:
            ordinals = [manifest.streams.get(name, NEW_STREAM).next, *oldest_ordinals(manifest, name, store)]
            first_unread[derived_streams.operator_of(stream)] = min(ordinals)
    return first_unread


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

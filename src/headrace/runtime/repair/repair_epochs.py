"""The next epoch that repairs answers from samples: slices of the archive's entries that queries have read in part, and the ledgers
of these queries after it.

A query is repaired while no row is shed for it, in the time that live epochs and backfills leave. Queries that wait at the same place
of one archive read it together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.backfill.backfill_scheduler import Chunk
from headrace.runtime.backfill.entry_slices import Weighed, first_slices, in_few_splits, slices_of
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import REPAIR, EpochWork
from headrace.runtime.messages.repair_ledger import RepairLedger, ledgers
from headrace.runtime.messages.task_messages import Participants
from headrace.runtime.repair.repair_facts import answered_to, is_calm, without_expired
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import FOREVER, Instant

Records = Callable[[StreamDefinition, Sequence[ArchiveEntry]], Mapping[int, Mapping[str, Any]]]
"""The ingest records of a stream's entries, where it is read in place."""


@dataclass(frozen=True, slots=True)
class Repairs:
    """What waits for repair in a home as of a manifest."""

    home: Home
    manifest: Manifest
    plan: EpochPlan

    def epoch(self, resting: Collection[str], size: Chunk, records: Records) -> EpochWork | None:
        """The work of the next epoch, of about so many rows; None where nothing can be repaired. Operators that are `resting` wait."""
        waiting = {
            operator: self._in_archive(operator, ledger)
            for operator, ledger in ledgers(self.manifest).items()
            if ledger.waits
            and operator in self.plan.repairing
            and operator not in resting
            and is_calm(self.manifest, self.plan, operator)
        }
        if not waiting:
            return None
        first = min(waiting, key=lambda operator: waiting[operator].position)
        stream, position = self.plan.operators[first].stream, waiting[first].position
        of_stream = {
            operator: ledger
            for operator, ledger in waiting.items()
            if self.plan.operators[operator].stream == stream
        }
        group = {operator: ledger for operator, ledger in of_stream.items() if ledger.position == position}
        later = [ledger.position for ledger in of_stream.values() if ledger.position > position]
        ends = [ledger.ranges[0][1] for ledger in group.values() if ledger.ranges]
        return self._reading(stream, group, _until(ends, later), size, records)

    def _reading(
        self,
        stream: str,
        group: Mapping[str, RepairLedger],
        until: tuple[int, int],
        size: Chunk,
        records: Records,
    ) -> EpochWork:
        """The work of operators at one place of an archive; they read at most up to `until`."""
        position = next(iter(group.values())).position
        chosen: list[Weighed] = []
        relations: Mapping[str, str] = {}
        rows = max(size.rows, size.enough or 0)
        while position < until:
            entry = self._entry(stream, position[0])
            if chosen and entry.relations != relations:
                break
            relations = entry.relations
            left = self._slices(stream, entry, records)[position[1] :]
            stops_in_it = until[0] == position[0]
            left = left[: until[1] - position[1]] if stops_in_it else left
            total = sum(weight for _, weight in chosen)
            taken = first_slices(left, rows - total) if total < rows else ()
            chosen += taken
            is_whole = len(taken) == len(left) and not stops_in_it
            position = (position[0] + 1, 0) if is_whole else (position[0], position[1] + len(taken))
            if not is_whole:
                break
        return EpochWork(
            REPAIR,
            tuple(in_few_splits([(replace(split, repairs=True), weight) for split, weight in chosen])),
            Participants(frozenset(group)),
            punctuations={operator: self._emitted_to(operator) for operator in group},
            relations=relations,
            repaired={
                operator: self._after(operator, ledger, position) for operator, ledger in group.items()
            },
        )

    def _slices(self, stream: str, entry: ArchiveEntry, records: Records) -> list[Weighed]:
        definition = self.plan.streams[stream]
        accepted = replace(entry, rejects=(), rejected=())
        return slices_of(self.home.store, accepted, definition, records(definition, [entry]), {})

    def _after(self, operator: str, ledger: RepairLedger, position: tuple[int, int]) -> RepairLedger:
        """The ledger once an operator has read its archive up to a position."""
        read = ledger.from_entry(*position)
        since = self._since(operator, read)
        windows = self.plan.operators[operator].emission_windows
        assert windows is not None
        damage = replace(ledger.damage, since=since)
        answered = answered_to(self.manifest, self.plan, operator)
        return replace(
            read,
            since=since,
            repaired=ledger.repaired + sum(map(len, damage.repaired(windows, answered))),
            lost=ledger.lost + sum(map(len, damage.lost(windows, answered))),
        )

    def _since(self, operator: str, ledger: RepairLedger) -> Instant:
        """The punctuation before the first entry that is left."""
        if not ledger.ranges:
            return FOREVER
        return self._entry(self.plan.operators[operator].stream, ledger.ranges[0][0]).before

    def _emitted_to(self, operator: str) -> Instant:
        return self.manifest.operator(operator).emitted_to

    def _in_archive(self, operator: str, ledger: RepairLedger) -> RepairLedger:
        """The ledger without entries that the vacuum has dropped since it was written."""
        stream, manifest = self.plan.operators[operator].stream, self.manifest
        return without_expired(ledger, manifest, stream, manifest, self.home.store.read)

    def _entry(self, stream: str, number: int) -> ArchiveEntry:
        listed: RadixList = self.home.list_of(self.manifest, f"archive:{stream}")
        return ArchiveEntry.from_json(next(listed.iterate(self.home.store.read, number))[1])


def _until(ends: Sequence[int], later: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Where operators stop that begin together: at the end of the first range, or where others join them."""
    return min([*((end, 0) for end in ends), *later], default=(0, 0))

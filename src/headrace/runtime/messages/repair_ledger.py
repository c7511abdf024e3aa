"""The ledger of a query WITH SHEDDING (repair): the archive's entries that it has read in part, how far they are repaired, and how many
of its windows were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.operators.panes.damage import Damage, Span
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant

REPAIRS: Final = "repairs"
"""In a manifest's facts: operator → its `RepairLedger`, of those that were ever answered from samples."""


@dataclass(frozen=True, slots=True)
class RepairLedger:
    """What of a query waits for repair: ranges [start, stop) of entries of its stream's archive, oldest first.

    `slices` of the first entry were read. The instants are as in `Damage`, after the last epoch that has advanced the query.
    `repaired` and `lost` count windows, since the query exists.
    """

    number: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    slices: int = 0
    since: Instant = FOREVER
    spans: tuple[Span, ...] = ()
    lost_to: Instant = BEGINNING
    repaired: int = 0
    lost: int = 0

    @property
    def waits(self) -> bool:
        """Whether anything is left to repair, or to give up."""
        return self.since < FOREVER

    @property
    def entries(self) -> int:
        """How many entries of the archive are to be read."""
        return sum(stop - start for start, stop in self.ranges)

    @property
    def position(self) -> tuple[int, int]:
        """The next entry, and how many of its slices were read; after all entries if there is none."""
        return (self.ranges[0][0], self.slices) if self.ranges else (1 << 62, 0)

    @property
    def damage(self) -> Damage:
        """The damage around an epoch that changes nothing of it."""
        return Damage(self.number, self.since, self.since, self.spans, self.lost_to)

    def shedding(self, punctuation: Instant) -> RepairLedger:
        """The ledger in an epoch that sheds rows, and begins at a punctuation."""
        if self.waits:
            return self
        return replace(self, number=self.number + 1, since=punctuation, spans=(), lost_to=BEGINNING, slices=0)

    def damaged(self, entry: int, low: Instant, high: Instant) -> RepairLedger:
        """With one more entry that was read in part, of event times from `low` to `high`."""
        ranges = list(self.ranges)
        if ranges and ranges[-1][1] == entry:
            ranges[-1] = ranges[-1][0], entry + 1
        else:
            ranges.append((entry, entry + 1))
        return replace(self, ranges=tuple(ranges), spans=_with(self.spans, low, high))

    def from_entry(self, entry: int, slices: int = 0) -> RepairLedger:
        """Without the entries before one, of which slices were read."""
        ranges = tuple((max(start, entry), stop) for start, stop in self.ranges if stop > entry)
        is_it = bool(ranges) and ranges[0][0] == entry
        return replace(self, ranges=ranges, slices=slices if is_it else 0)

    def as_json(self) -> dict[str, Any]:
        """The fact of the manifest."""
        value = {name: getattr(self, name) for name in self.__slots__}
        return {**value, **{name: [list(pair) for pair in value[name]] for name in ("ranges", "spans")}}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> RepairLedger:
        """The inverse."""
        pairs = {name: tuple((low, high) for low, high in value[name]) for name in ("ranges", "spans")}
        return RepairLedger(**{**value, **pairs})


def ledgers(manifest: Manifest) -> dict[str, RepairLedger]:
    """The ledger of each operator that has one."""
    return {
        operator: RepairLedger.from_json(value) for operator, value in manifest.facts.get(REPAIRS, {}).items()
    }


def _with(spans: tuple[Span, ...], low: Instant, high: Instant) -> tuple[Span, ...]:
    """The union with one more span, which may begin before the others."""
    if high < low:
        return spans
    union: list[Span] = []
    for span in sorted((*spans, (low, high))):
        if union and span[0] <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], span[1])
        else:
            union.append(span)
    return tuple(union)

"""The admission of waiting input to an epoch, per stream, by files, rows, bytes and latency; and the division of an epoch's
splits among scan tasks.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate, pairwise
from typing import Any, Final

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import bytes_per_epoch, files_per_epoch
from headrace.dataclass import dataclass
from headrace.runtime.messages.task_messages import Split
from headrace.time import BEGINNING, Instant

_FIXED: Final = 300_000
"""What a scan task costs without any rows, in rows: 10 ms."""
_OF_A_TASK: Final = 0.05
"""Seconds of scanning that are enough for a task of its own: it costs a fifth of them."""
_MEASURED: Final = 2_000
"""Rows of an epoch from which on it shows what a row takes, and the least of a task."""
_FADING: Final = 0.8
"""The weight of earlier measurements."""
_FEW_EPOCHS: Final = 10
"""So many easy epochs take about as long as a job of their rows."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An ingest record that waits: its ordinal, stream, size, and the record itself."""

    ordinal: int
    stream: str
    rows: int | None
    bytes: int
    record: Mapping[str, Any]

    @staticmethod
    def of(ordinal: int, record: IngestRecord) -> Pending:
        """A record of the ingest log as it waits."""
        rows = record.rows_hint if record.rows_hint >= 0 else None
        length = record.size
        if record.end >= 0 and record.format in ("csv", "json"):
            length = record.end - record.start
        return Pending(ordinal, record.stream, rows, length, record.to_json())

    @property
    def weight(self) -> int:
        """An estimate of its rows, by which tasks get a similar size."""
        return 1 + (self.rows or self.bytes // 32)


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits of one epoch for each stream; `maxFilesPerTrigger` and `maxBytesPerTrigger` of the stream also apply."""

    rows: int = 4_000_000
    bytes: int = 256 << 20

    def at_most(self, rows: int | None) -> Admission:
        """The limits with fewer rows; None: the same."""
        return self if rows is None else replace(self, rows=min(self.rows, rows))

    def for_easy(self, waiting: Sequence[Pending], easy: int | None) -> Admission:
        """The limits for the waiting records of a stream, where epochs of at most `easy` rows take little besides their rows.

        A few such epochs are faster than one large one.
        """
        if easy is None:
            return self
        weights = list(accumulate(record.weight for record in waiting))
        if not weights or not easy < weights[-1] <= _FEW_EPOCHS * easy:
            return self
        fitting = waiting[: bisect_right(weights, easy)]
        return replace(self, rows=min(self.rows, max(1, sum(record.rows or 0 for record in fitting))))

    def take(self, waiting: Sequence[Pending], stream: StreamDefinition) -> list[Pending]:
        """The first records of one stream that fit; at least one when any waits, but for a limit of no rows."""
        if not waiting or self.rows <= 0:
            return []
        files, most = files_per_epoch(stream), min(self.bytes, bytes_per_epoch(stream) or self.bytes)
        admitted: list[Pending] = []
        rows = size = 0
        opened: set[str] = set()
        for record in waiting:
            uri = str(record.record.get("uri", record.ordinal))
            over = rows + (record.rows or 0) > self.rows or size + record.bytes > most
            if admitted and (over or (files is not None and uri not in opened and len(opened) >= files)):
                break
            admitted.append(record)
            opened.add(uri)
            rows, size = rows + (record.rows or 0), size + record.bytes
        return admitted


@dataclass(slots=True)
class TaskSize:
    """The rows that are enough for a scan task, by what recent epochs took for a row; separately of live epochs and of backfills."""

    _seconds: dict[bool, float] = field(default_factory=dict)
    """Of a row, in one task."""

    def saw(self, *, replay: bool, rows: int, seconds: float) -> None:
        """Record an epoch whose scan tasks took so many seconds together."""
        if rows >= _MEASURED:
            of_a_row = seconds / rows
            before = self._seconds.get(replay, of_a_row)
            self._seconds[replay] = _FADING * before + (1 - _FADING) * of_a_row

    def rows(self, *, replay: bool) -> int | None:
        """The rows; None before an epoch of the kind was measured."""
        of_a_row = self._seconds.get(replay)
        return max(_MEASURED, int(_OF_A_TASK / of_a_row)) if of_a_row else None


def gathered_at(
    stream: StreamDefinition, waiting: Sequence[Pending], admitted: Sequence[Pending], now: Instant
) -> Instant:
    """When the rows `admitted` have waited for others as long as `latency` allows.

    At once where more rows wait than one epoch takes, or the clock was set back since they arrived.
    """
    arrival = int(admitted[0].record.get("arrival", BEGINNING))
    is_full = len(admitted) < len(waiting)
    return BEGINNING if is_full or arrival > now else arrival + stream.latency


def in_parts(splits: Sequence[tuple[Split, int]], enough: int, cores: int) -> list[tuple[Split, int]]:
    """Runs of the archive that have more than a core's share of all rows in parts of about equal size, which are `enough` rows for a task."""
    share = max(1, -(-sum(weight for _, weight in splits) // cores))
    divided: list[tuple[Split, int]] = []
    for split, weight in splits:
        parts = 1 if split.archived is None else min(weight // enough, -(-weight // share))
        if parts > 1:
            divided += [(replace(split, part=(part, parts)), weight // parts) for part in range(parts)]
        else:
            divided.append((split, weight))
    return divided


def packed(splits: Sequence[tuple[Split, int]], tasks: int) -> list[tuple[Split, ...]]:
    """Splits in at most `tasks` groups, each in order, of which the heaviest has the least weight that is possible."""
    if tasks == 1 or len(splits) <= 1:
        return [tuple(split for split, _ in splits)] if splits else []
    passed = list(accumulate((weight for _, weight in splits), initial=0))
    most = max(weight for _, weight in splits)
    weights = range(max(most, passed[-1] // tasks), passed[-1] + 1)
    weight = weights[bisect_left(weights, x=True, key=lambda weight: len(_cuts(passed, 0, weight)) <= tasks)]
    cuts = _even_cuts(passed, tasks, weight)
    return [tuple(split for split, _ in splits[low:high]) for low, high in pairwise([0, *cuts])]


def _cuts(passed: Sequence[int], first: int, weight: int) -> list[int]:
    """One past the last split of each group from split `first` on, if groups have this weight at most; `passed[i]` is that of the first
    i splits.
    """
    cuts = [first]
    while cuts[-1] < len(passed) - 1:
        cuts.append(bisect_right(passed, passed[cuts[-1]] + weight) - 1)
    return cuts[1:]


def _even_cuts(passed: Sequence[int], tasks: int, weight: int) -> list[int]:
    """As `_cuts`, for `tasks` groups of about the same weight, which may be wrong: as many as there are splits for."""
    cuts = [0]
    for left in range(tasks, 0, -1):
        first = cuts[-1]
        if first == len(passed) - 1:
            break
        share = passed[first] + (passed[-1] - passed[first]) // left
        stop = min(bisect_left(passed, share), bisect_right(passed, passed[first] + weight) - 1)
        stop = max(stop, first + 1)
        while len(_cuts(passed, stop, weight)) > left - 1:
            stop += 1
        cuts.append(stop)
    return cuts[1:]


def balanced(splits: Sequence[tuple[Split, int]], cores: int, tasks: int) -> list[tuple[Split, ...]]:
    """Splits `packed` in `tasks` groups, or in one a core if these end first: large files are even on some numbers only.

    Between equals the most: cores take groups as they become free, so that weights may be wrong.
    """
    many = packed(splits, tasks)
    if tasks <= cores:
        return many
    weights = {id(split): weight for split, weight in splits}
    return min(many, packed(splits, cores), key=lambda groups: _end(groups, weights, cores))


def _end(groups: Sequence[Sequence[Split]], weights: Mapping[int, int], cores: int) -> int:
    """When the last of the cores has done its groups, each taking the next one as it becomes free; in rows."""
    busy = [0] * cores
    for group in groups:
        heapq.heapreplace(busy, busy[0] + _FIXED + sum(weights[id(split)] for split in group))
    return max(busy)


def together(groups: Sequence[tuple[Split, ...]], streams: Collection[str]) -> list[tuple[Split, ...]]:
    """The groups with all splits of each of `streams` in the first that has one: one task must read all of their rows."""
    first: dict[str, int] = {}
    groups_after: list[list[Split]] = [[] for _ in groups]
    for number, splits in enumerate(groups):
        for split in splits:
            index = first.setdefault(split.stream, number) if split.stream in streams else number
            groups_after[index].append(split)
    return [tuple(group) for group in groups_after if group]

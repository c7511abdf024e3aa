"""The archived rows of one stream that a question reads: prefixes of the runs of a manifest, continued where the last ones ended; in
place of many runs a sample of them, as long as it has the share that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.archive import runs
from headrace.archive.in_flight import LEAST_BYTES, announced, ranges_of
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, as_int64, flat, ints
from headrace.runtime.backfill.archive_entries import ArchiveEntry, spanning
from headrace.runtime.home.block_draws import blocks_of_runs
from headrace.runtime.home.home import Home
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.invoke.questions.clauses import Side
from headrace.runtime.invoke.questions.whole_groups import WholeGroups
from headrace.runtime.reduction.segments import copy_of, segments_of
from headrace.runtime.samples import run_samples
from headrace.runtime.samples.run_samples import RunSample, samples_of
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant

_TIME: Final = "__time"
_AT_ONCE: Final = 1 << 19
"""Rows that are read together, at least: more do not fit in the caches of a processor."""
_prefixes: Final[Recent[tuple[str, str, int], Prefixes]] = Recent(4096)
"""By home, file and first row group."""
_footers: Final[Recent[tuple[str, str], Any]] = Recent(64)
"""Of files in which runs are joined."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Row groups of a file, of the run with a number, and how many rows they have."""

    name: str
    prefixes: Prefixes
    groups: range
    number: int
    rows: int


@dataclass(slots=True)
class ArchivedRun:
    """One run, or a sample of many, and the index of the prefix of it that was read."""

    name: str
    prefixes: Prefixes
    number: int
    """Of the runs that the question has opened."""
    between: tuple[Instant, Instant] | None = None
    """The event times of all rows of a run of which some are not there: its file has those of the rows that are left."""
    first: int | None = None
    """The first entry of the archive list whose rows a sample has; None for a run."""
    shares: tuple[float, ...] = ()
    """The shares that may be read, ascending: those of its prefixes, and of a sample about those of the runs."""
    done: int = -1
    is_cached: bool = False
    """Whether its sums were known without reading it."""

    @property
    def identity(self) -> str:
        """What no other run has: its file and first row group."""
        return f"{self.name} {self.prefixes.first}"

    @property
    def sampled(self) -> int:
        """Rows that are in the sample."""
        return self.prefixes.rows[self.done] if self.done >= 0 else 0

    @property
    def read(self) -> int:
        """Rows that were read."""
        return 0 if self.is_cached else self.sampled

    @property
    def is_whole(self) -> bool:
        """Whether every row that is stored was read."""
        return self.first is None and self.done == len(self.prefixes.shares) - 1

    def recall(self) -> None:
        """Count it as read: its sums are known."""
        self.done, self.is_cached = len(self.prefixes.shares) - 1, True

    def is_exceeded(self, share: float) -> bool:
        """Whether this is a sample, and has less than a share: its runs have the rest."""
        return self.first is not None and share > self.prefixes.shares[-1]

    def is_short_of(self, share: float) -> bool:
        """Whether more is to be read for a share."""
        return self.is_exceeded(share) or self.prefixes.holding(share) > self.done

    def read_on(self, reach: int) -> Extent:
        """The row groups after those that were read, up to the end of a prefix, which counts as read."""
        before, groups = self.sampled, self.prefixes.groups_up_to(reach, self.done)
        self.done = reach
        return Extent(self.name, self.prefixes, groups, self.number, self.sampled - before)

    def rows_at(self, share: float) -> int:
        """Rows that are in the sample when at least a share has been read."""
        if self.is_exceeded(share):
            return round(share * self.prefixes.population)
        return max(self.prefixes.rows[self.prefixes.holding(share)], self.sampled)


@dataclass(slots=True)
class ArchivedRows:
    """The runs of a stream that may have rows between two instants."""

    home: Home
    side: Side
    columns: Sequence[str]
    """The stream's columns that are needed; among them the key where keys are drawn."""
    begin: Instant
    end: Instant
    without: tuple[Instant, Instant] | None = None
    """From the first to before the second, rows are not read."""
    runs: list[ArchivedRun] = field(default_factory=list)
    opened: int = 0
    """How many runs were opened, also those in whose place others are read."""
    replaced: set[int] = field(default_factory=set)
    """The numbers of the samples in whose place their runs are read: what was read of them does not count."""
    recall: Callable[[Sequence[ArchivedRun]], None] = lambda _: None
    """Called with the runs that are opened in place of a sample."""
    manifest: Manifest = field(default_factory=lambda: Manifest(0, 0))
    whole_groups: WholeGroups | None = None
    """Of which groups every row is stored; None where that is not known."""
    copied: str | None = None
    """What the copy that REDUCED BY names has, as text; None where the archive itself is read."""

    def open(self, manifest: Manifest) -> ArchivedRows:
        """Find the runs of a manifest."""
        self.manifest, stream, read = manifest, self.side.stream.name, self.home.store.read
        copy = copy_of(manifest, stream, self.side.scan.reducer)
        self.whole_groups = WholeGroups.of(self.home, self.side, copy)
        copy = copy if self.side.scan.reducer else None
        segments = [
            self._opened(segment.file, between=(segment.low, segment.high))
            for segment in (segments_of(manifest, stream) if copy is None else copy.segments)
        ]
        self.runs = [run for run in segments if not self._is_bounded or self._may_have(*self._times(run))]
        listed = self.home.list_of(manifest, f"archive:{stream}")
        if copy is not None:
            self.copied = f"{copy.reduction}: {len(copy.segments):,} segments"
            listed = listed.drop_before(copy.next)
        every = range(listed.start, listed.length)
        asked = spanning(listed, self.begin, self.end, read) if self._is_bounded else every
        position = asked.start
        for first, sample in self._samples():
            if not asked.start <= first < asked.stop:
                continue
            self.runs += self._runs_of(islice(listed.iterate(read, position), first - position))
            if self._may_have(sample.low, sample.high):
                self.runs.append(self._opened(sample.file, between=(sample.low, sample.high), first=first))
            position = first + run_samples.GROUP
        self.runs += self._runs_of(islice(listed.iterate(read, position), max(asked.stop - position, 0)))
        return self

    def _samples(self) -> Iterator[tuple[int, RunSample]]:
        """The samples of which all rows are asked for, or none, each with its first entry; no samples where keys are drawn."""
        if self.side.key is not None:
            return
        for first, sample in samples_of(self.home, self.manifest, self.side.stream.name):
            between = sample.low, sample.high
            if self._has_all_between(*between) or not self._may_have(*between):
                yield first, sample

    def _runs_of(self, entries: Iterable[tuple[int, Mapping[str, Any]]]) -> list[ArchivedRun]:
        """The runs of some entries of the archive list that may have rows which are asked for."""
        of_entries = [ArchiveEntry.from_json(value) for _, value in entries]
        runs_of_entries = [
            self._opened(piece.file, own=piece.groups)
            for entry in of_entries
            if self._may_have(entry.before, entry.greatest)
            for piece in entry.pieces
        ]
        return [run for run in runs_of_entries if not self._is_bounded or self._may_have(*self._times(run))]

    def _opened(
        self,
        file: str,
        *,
        own: tuple[int, ...] | None = None,
        between: tuple[Instant, Instant] | None = None,
        first: int | None = None,
    ) -> ArchivedRun:
        prefixes, self.opened = _prefixes_of(self.home, file, own), self.opened + 1
        blocks = blocks_of_runs(self.side.stream)
        shares: tuple[float, ...] = ()
        if first is not None and blocks is not None:
            parts = blocks.parts(prefixes.population // run_samples.GROUP)
            shares = tuple(float(parts.share(number)) for number in range(parts.halvings + parts.blocks))
        higher = (share for share in shares if share > prefixes.shares[-1])
        return ArchivedRun(file, prefixes, self.opened - 1, between, first, (*prefixes.shares, *higher))

    def _in_place_of(self, sample: ArchivedRun) -> list[ArchivedRun]:
        """The runs of a sample, which are read from now on."""
        assert sample.first is not None
        listed = self.home.list_of(self.manifest, f"archive:{self.side.stream.name}")
        entries = islice(listed.iterate(self.home.store.read, sample.first), run_samples.GROUP)
        opened = self._runs_of(entries)
        self.runs = [other for run in self.runs for other in (opened if run is sample else (run,))]
        self.replaced.add(sample.number)
        self.recall(opened)
        return opened

    def _times(self, run: ArchivedRun) -> tuple[Instant, Instant]:
        """The least and the greatest event time of a run, of late rows too."""
        if run.between is not None:
            return run.between
        return run.prefixes.range_of(self._time_column)

    @property
    def _time_column(self) -> str:
        """The column of files with event times."""
        time, schema = self.side.stream.time, self.side.stream.schema.arrow()
        has_own_time = time is not None and runs.has_own_time(schema, time)
        return time if has_own_time and time is not None else runs.AT

    def _may_have(self, low: Instant, high: Instant) -> bool:
        """Whether some of the rows from one instant to another are asked for."""
        elsewhere = self.without is not None and self.without[0] <= low and high < self.without[1]
        return high >= self.begin and low <= self.end and not elsewhere

    def _has_all_between(self, low: Instant, high: Instant) -> bool:
        """Whether all of the rows from one instant to another are asked for."""
        elsewhere = self.without is not None and high >= self.without[0] and low < self.without[1]
        return self.begin <= low and high <= self.end and not elsewhere

    @property
    def rows(self) -> int:
        """Rows of all runs, also those that the archive has dropped."""
        return sum(run.prefixes.population for run in self.runs)

    @property
    def read(self) -> int:
        """Rows that were read."""
        return sum(run.read for run in self.runs)

    @property
    def sampled(self) -> int:
        """Rows that are in the sample."""
        return sum(run.sampled for run in self.runs)

    def has_all_of(self, run: ArchivedRun) -> bool:
        """Whether every accepted row of a run is asked for."""
        return not self._is_bounded or self._has_all_between(*self._times(run))

    @property
    def is_whole(self) -> bool:
        """Whether every row that is stored was read."""
        return all(run.is_whole for run in self.runs)

    @property
    def least_read(self) -> float:
        """The least share of a run that is in the sample."""
        return min((run.prefixes.shares[run.done] for run in self.runs), default=1.0)

    @property
    def least_stored(self) -> float:
        """The least share of a run that the archive still has."""
        return min((run.shares[-1] for run in self.runs), default=1.0)

    def shares(self) -> list[float]:
        """The shares that may be read of some run, ascending."""
        return sorted({share for run in self.runs for share in run.shares}) or [1.0]

    def rows_at(self, share: float) -> int:
        """Rows that are in the sample when of each run at least a share has been read."""
        return sum(run.rows_at(share) for run in self.runs)

    def further(self, share: float, is_due: Callable[[], bool]) -> Iterator[Batch]:
        """Read on up to a share of each run: accepted rows between the instants."""
        yield from map(self.batch, self.extents(share, is_due))

    def extents(self, share: float, is_due: Callable[[], bool]) -> Iterator[list[Extent]]:
        """What is to be read up to a share of each run, in parts of some size; it counts as read from then on.

        Runs that would follow are left when time `is_due`.
        """
        waiting: list[Extent] = []
        for run in self._announced(self.runs, share):
            if run.done >= 0 and is_due():
                break
            pieces = self._announced(self._in_place_of(run), share) if run.is_exceeded(share) else (run,)
            for piece in pieces:
                waiting.append(piece.read_on(piece.prefixes.holding(share)))
                if sum(extent.rows for extent in waiting) >= _AT_ONCE:
                    yield waiting
                    waiting = []
        if waiting:
            yield waiting

    def _announced(self, some: Sequence[ArchivedRun], share: float) -> Iterator[ArchivedRun]:
        """The runs of which more is to be read for a share, each after that of it, and of a few that follow, was announced."""
        columns = self._stored_columns(self._time_column)
        short = (run for run in some if run.is_short_of(share))
        return announced(short, lambda run: self._announce(run, share, columns))

    def _announce(self, run: ArchivedRun, share: float, columns: Sequence[str]) -> int:
        """Announce what is read next of a run; returns its bytes."""
        if run.is_exceeded(share):
            return 0
        prefixes = run.prefixes
        groups = prefixes.groups_up_to(prefixes.holding(share), run.done)
        ranges = ranges_of(prefixes.footer, columns, groups)
        size = sum(length for _, length in ranges)
        if size >= LEAST_BYTES:
            self.home.store.will_need(run.name, ranges)
        return size

    def batch(self, extents: Sequence[Extent]) -> Batch:
        """The accepted rows between the instants of some extents, with columns named as in the question.

        A row's `position` is the number of its run; where keys are drawn it is that of the row.
        """
        tables = [self._read(list(of_file)) for _, of_file in groupby(extents, key=attrgetter("name"))]
        first = extents[0]
        if len(extents) == 1:
            return self._batch(tables[0], np.broadcast_to(np.array([first.number]), first.rows))
        numbers = np.repeat([extent.number for extent in extents], [extent.rows for extent in extents])
        return self._batch(pa.concat_tables(tables), numbers)

    def _read(self, extents: Sequence[Extent]) -> pa.Table:
        """The row groups of one file; event times as `__at`."""
        name, footer = extents[0].name, extents[0].prefixes.footer
        file = RunFile.of(self.home.store.map(name), name, footer)
        time = file.time_column(self.side.stream.time)
        names = self._stored_columns(time)
        table = file.read(names, [number for extent in extents for number in extent.groups])
        return table.append_column(_TIME, table.column(time)) if self._needs_time else table

    def _stored_columns(self, time: str) -> list[str]:
        """The columns of files that are read; `time` is the one with event times."""
        timed = [time] if self._needs_time else []
        placed = [runs.POSITION] if self.side.key is not None else []
        return sorted({*self.columns, runs.FATE, *timed, *placed})

    @property
    def _needs_time(self) -> bool:
        return self._is_bounded or self.side.key is not None

    @property
    def _is_bounded(self) -> bool:
        return (self.begin, self.end) != (BEGINNING, FOREVER) or self.without is not None

    def _batch(self, table: pa.Table, numbers: Ints) -> Batch:
        columns = {f"{self.side.scan.alias}.{name}": flat(table.column(name)) for name in self.columns}
        accepted = ints(table, runs.FATE) == runs.ACCEPTED
        position = ints(table, runs.POSITION) if self.side.key is not None else numbers
        if not self._needs_time:
            return Batch(columns, np.broadcast_to(np.zeros(1, np.int64), table.num_rows), position).where(
                accepted
            )
        at = as_int64(flat(table.column(_TIME)))
        asked = accepted & (at >= self.begin) & (at <= self.end)
        if self.without is not None:
            asked &= (at < self.without[0]) | (at >= self.without[1])
        return Batch(columns, at, position).where(asked)


def _prefixes_of(home: Home, name: str, own: tuple[int, ...] | None) -> Prefixes:
    """The prefixes of a run, from its footer or the cache; runs that are joined in a file have one footer."""
    key = str(home.store.root), name, -1 if own is None else own[0]
    prefixes = _prefixes.get(key)
    if prefixes is None:
        footer = _footers.get(key[:2]) if own is not None else None
        prefixes = Prefixes.of(footer or RunFile.of(home.store.map(name), name).footer, own)
        _prefixes.put(key, prefixes)
        if own is not None and footer is None:
            _footers.put(key[:2], prefixes.footer)
    return prefixes

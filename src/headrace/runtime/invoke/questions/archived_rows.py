"""The archived rows of one stream that a question reads: prefixes of the runs of a manifest, continued where the last ones ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.archive import runs
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import as_int64, flat, ints
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.backfill.vacuum import segments_of
from headrace.runtime.home.home import Home
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.invoke.questions.clauses import Side
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant

_TIME: Final = "__time"
_AT_ONCE: Final = 1 << 22
"""Rows that are in memory at a time, about."""
_prefixes: Final[Recent[tuple[str, str], Prefixes]] = Recent(4096)


@dataclass(slots=True)
class ArchivedRun:
    """One run, and the index of the prefix of it that was read."""

    name: str
    prefixes: Prefixes
    between: tuple[Instant, Instant] | None = None
    """The event times of all rows of a run that was reduced: its file has those of the rows that are left."""
    done: int = -1
    is_cached: bool = False
    """Whether its sums were known without reading it."""

    @property
    def sampled(self) -> int:
        """Rows that are in the sample."""
        return self.prefixes.rows[self.done] if self.done >= 0 else 0

    @property
    def read(self) -> int:
        """Rows that were read."""
        return 0 if self.is_cached else self.sampled


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

    def open(self, manifest: Manifest) -> ArchivedRows:
        """Find the runs of a manifest."""
        name = self.side.stream.name
        archived_runs = [
            ArchivedRun(segment.file, _prefixes_of(self.home, segment.file), (segment.low, segment.high))
            for segment in segments_of(manifest, name)
        ]
        for value in self.home.entries(manifest, f"archive:{name}"):
            entry = ArchiveEntry.from_json(value)
            if self._may_have(entry.before, entry.greatest):
                archived_runs += [ArchivedRun(file, _prefixes_of(self.home, file)) for file in entry.files]
        self.runs = [
            run for run in archived_runs if not self._is_bounded or self._may_have(*self._times(run))
        ]
        return self

    def _times(self, run: ArchivedRun) -> tuple[Instant, Instant]:
        """The least and the greatest event time of a run, of late rows too."""
        if run.between is not None:
            return run.between
        time, schema = self.side.stream.time, self.side.stream.schema.arrow()
        has_own_time = time is not None and runs.has_own_time(schema, time)
        return run.prefixes.range_of(time if has_own_time and time is not None else runs.AT)

    def _may_have(self, low: Instant, high: Instant) -> bool:
        """Whether some of the rows from one instant to another are asked for."""
        elsewhere = self.without is not None and self.without[0] <= low and high < self.without[1]
        return high >= self.begin and low <= self.end and not elsewhere

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
        if not self._is_bounded:
            return True
        low, high = self._times(run)
        elsewhere = self.without is not None and high >= self.without[0] and low < self.without[1]
        return self.begin <= low and high <= self.end and not elsewhere

    @property
    def is_whole(self) -> bool:
        """Whether every row that is stored was read."""
        return all(run.done == len(run.prefixes.shares) - 1 for run in self.runs)

    @property
    def least_read(self) -> float:
        """The least share of a run that is in the sample."""
        return min((run.prefixes.shares[run.done] for run in self.runs), default=1.0)

    @property
    def least_stored(self) -> float:
        """The least share of a run that the archive still has."""
        return min((run.prefixes.shares[-1] for run in self.runs), default=1.0)

    def shares(self) -> list[float]:
        """The shares that some run has a prefix of, ascending."""
        return sorted({share for run in self.runs for share in run.prefixes.shares}) or [1.0]

    def rows_at(self, share: float) -> int:
        """Rows that are in the sample when of each run at least a share has been read."""
        return sum(max(run.prefixes.rows[run.prefixes.holding(share)], run.sampled) for run in self.runs)

    def further(self, share: float, is_due: Callable[[], bool]) -> Iterator[Batch]:
        """Read on up to a share of each run: accepted rows between the instants, with columns named as in the question.

        A row's `position` is the number of its run; where keys are drawn it is that of the row. Runs that would follow are
        left when time `is_due`.
        """
        waiting: list[tuple[int, pa.Table]] = []
        for number, run in enumerate(self.runs):
            reach = run.prefixes.holding(share)
            if reach <= run.done:
                continue
            if run.done >= 0 and is_due():
                break
            waiting.append((number, self._read(run, reach)))
            run.done = reach
            if sum(table.num_rows for _, table in waiting) >= _AT_ONCE:
                yield self._batch(waiting)
                waiting = []
        if waiting:
            yield self._batch(waiting)

    def _read(self, run: ArchivedRun, reach: int) -> pa.Table:
        """The row groups after those that were read, up to the end of a prefix; event times as `__at`."""
        first = run.prefixes.groups[run.done] if run.done >= 0 else 0
        file = RunFile.of(self.home.store.map(run.name), run.prefixes.footer)
        time = [file.time_column(self.side.stream.time)] if self._needs_time else []
        placed = [runs.POSITION] if self.side.key is not None else []
        names = sorted({*self.columns, runs.FATE, *time, *placed})
        table = file.read(names, range(first, run.prefixes.groups[reach]))
        return table.append_column(_TIME, table.column(time[0])) if time else table

    @property
    def _needs_time(self) -> bool:
        return self._is_bounded or self.side.key is not None

    @property
    def _is_bounded(self) -> bool:
        return (self.begin, self.end) != (BEGINNING, FOREVER) or self.without is not None

    def _batch(self, tables: Sequence[tuple[int, pa.Table]]) -> Batch:
        table = pa.concat_tables([table for _, table in tables])
        columns = {f"{self.side.scan.alias}.{name}": flat(table.column(name)) for name in self.columns}
        accepted = ints(table, runs.FATE) == runs.ACCEPTED
        if self.side.key is not None:
            position = ints(table, runs.POSITION)
        else:
            position = np.repeat([number for number, _ in tables], [table.num_rows for _, table in tables])
        if not self._needs_time:
            return Batch(columns, np.zeros(table.num_rows, np.int64), position).where(accepted)
        at = as_int64(flat(table.column(_TIME)))
        asked = accepted & (at >= self.begin) & (at <= self.end)
        if self.without is not None:
            asked &= (at < self.without[0]) | (at >= self.without[1])
        return Batch(columns, at, position).where(asked)


def _prefixes_of(home: Home, name: str) -> Prefixes:
    """The prefixes of a run, from its footer or the cache."""
    key = str(home.store.root), name
    prefixes = _prefixes.get(key)
    if prefixes is None:
        prefixes = Prefixes.of(home.store.map(name))
        _prefixes.put(key, prefixes)
    return prefixes

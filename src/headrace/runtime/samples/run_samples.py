"""Samples of archive runs, one file for 64 epochs of a stream with blocks: which part of the rows it has, its writer, and the list of
a manifest that names it.

A question opens every run of a stream, and reads little of each. A sample has the rows of 64 entries of the archive list whose hashes are
the least, in the parts of a run of so many rows; so a question opens one file in their place, and the runs themselves only
where its error asks for more rows than the sample has. The list of samples has an item for every 64 entries, empty where these are few
rows. A sample is a copy: it is written whole before a manifest names it, and where one is missing the runs are read. Source: OSCAR,
copies of set sizes (OnWriteReplicate), of runs in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import Final

import pyarrow as pa

from headrace.archive import runs
from headrace.archive.blocks import Parts
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.operators.base.group_codes import as_int64, flat, ints
from headrace.runtime.backfill.archive_entries import ArchiveEntry, Piece
from headrace.runtime.home import file_names
from headrace.runtime.home.block_draws import blocks_of_runs, draws_of
from headrace.runtime.home.home import Home
from headrace.runtime.samples.periodic_write import PeriodicWrite
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles, RadixList
from headrace.time import Instant

GROUP: Final = 64
"""Entries of the archive list that have one sample."""
ROWS: Final = 1 << 18
"""Rows of a sample, at most: ten of them give ten groups an error of one percent."""
SHARE: Final = 0.25
"""The share of the rows that a sample has, at most: what it costs to write and to store."""
LEAST_ROWS: Final = 1024
"""Rows of a sample, at least: fewer are read from the runs."""


@dataclass(frozen=True, slots=True)
class RunSample:
    """A file with a sample of `rows` rows, whose event times are from `low` to `high`, also of those that are not in it."""

    file: str
    rows: int
    low: Instant
    high: Instant


def list_of_samples(stream: str) -> str:
    """The name of the list with a stream's samples."""
    return f"samples:{stream}"


def samples_of(home: Home, manifest: Manifest, stream: str) -> list[tuple[int, RunSample]]:
    """The samples of entries of which none has expired, each with the index of its first entry; oldest first."""
    start = home.list_of(manifest, f"archive:{stream}").start
    listed = home.list_of(manifest, list_of_samples(stream))
    return [
        (number * GROUP, RunSample(**value))
        for number, value in listed.iterate(home.store.read)
        if value and number * GROUP >= start
    ]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was written: the item `number` of a stream's list of samples. `created` identifies the stream."""

    stream: str
    created: int
    number: int
    sample: RunSample | None

    def settled(self, planned: Manifest, home: Home, lists: ListFiles) -> Manifest:
        """The manifest with the sample; without it where the stream is another one, or the file was collected meanwhile."""
        is_there = self.created == home.created(self.stream) and self.stream in planned.streams
        lacks_file = self.sample is not None and not home.store.exists(self.sample.file)
        name = list_of_samples(self.stream)
        listed = planned.lists.get(name, RadixList())
        if not is_there or lacks_file or listed.length > self.number:
            return planned
        item = {} if self.sample is None else asdict(self.sample)
        listed = listed.append([*({} for _ in range(listed.length, self.number)), item], lists.write)
        listed = listed.drop_before(home.list_of(planned, f"archive:{self.stream}").start // GROUP)
        return replace(planned, lists=planned.lists.changed({name: listed}))


def due(home: Home, manifest: Manifest, stream: StreamDefinition) -> int | None:
    """The number of the next sample of a stream; None where its entries are not complete, or there are no blocks."""
    if stream.blocks == 1:
        return None
    archive = home.list_of(manifest, f"archive:{stream.name}")
    number = max(home.list_of(manifest, list_of_samples(stream.name)).length, -(-archive.start // GROUP))
    return number if (number + 1) * GROUP <= archive.length else None


@dataclass(frozen=True, slots=True)
class Sampler:
    """The writer of samples as of a manifest."""

    home: Home
    manifest: Manifest

    def next(self, streams: Sequence[StreamDefinition]) -> list[Sampled]:
        """Write the next sample, durably; none where none is due."""
        for stream in streams:
            number = due(self.home, self.manifest, stream)
            if number is not None:
                try:
                    sample = self._written(stream, number * GROUP)
                except CorruptStore:  # a damaged run is for its readers and the check to report
                    sample = None
                return [Sampled(stream.name, self.home.created(stream.name), number, sample)]
        return []

    def _written(self, stream: StreamDefinition, first: int) -> RunSample | None:
        """The sample of the entries from the first on; None where they have few rows."""
        store, blocks = self.home.store, blocks_of_runs(stream)
        assert blocks is not None
        archive = self.home.list_of(self.manifest, f"archive:{stream.name}")
        entries = [
            ArchiveEntry.from_json(value) for _, value in islice(archive.iterate(store.read, first), GROUP)
        ]
        pieces = [piece for entry in entries for piece in entry.pieces]
        prefixes = [self._prefixes(piece) for piece in pieces]
        rows = sum(of_run.population for of_run in prefixes)
        parts = blocks.parts(rows)
        last = last_part(parts, rows)
        if last is None:
            return None
        files = [piece.file for piece in pieces]
        tables = [self._rows(stream, *run, parts, last) for run in zip(files, prefixes, strict=True)]
        table = pa.concat_tables(tables).combine_chunks()
        time = _time_of(stream)
        at, position = as_int64(flat(table.column(time))), ints(table, runs.POSITION)
        by = runs.Order(at, position, draws_of(stream, table.column, position))
        buffer = runs.randomised(table, by, blocks, of=rows, keep=float(parts.share(last)))
        name = file_names.sample(stream.name, first)
        store.write_once(name, [buffer])
        ranges = [of_run.range_of(time) for of_run in prefixes]
        return RunSample(name, rows, min(low for low, _ in ranges), max(high for _, high in ranges))

    def _prefixes(self, piece: Piece) -> Prefixes:
        data = self.home.store.map(piece.file)
        return Prefixes.of(RunFile.of(data, piece.file).footer, piece.groups)

    def _rows(
        self, stream: StreamDefinition, name: str, prefixes: Prefixes, parts: Parts, last: int
    ) -> pa.Table:
        """The rows of a run that are in the first parts: of its own parts, which are larger, some of the last one."""
        share = float(parts.share(last))
        file = RunFile.of(self.home.store.map(name), name, prefixes.footer)
        table = file.read(groups=prefixes.groups_up_to(prefixes.holding(share)))
        draw = draws_of(stream, table.column, ints(table, runs.POSITION))
        return table.filter(pa.array(parts.number(draw) <= last))


def last_part(parts: Parts, rows: int) -> int | None:
    """The last part of a run of so many rows that a sample of it has; None where that would be few rows."""
    numbers = range(parts.halvings + parts.blocks)
    fitting = [number for number in numbers if parts.share(number) <= min(SHARE, ROWS / max(rows, 1))]
    return fitting[-1] if fitting and parts.share(fitting[-1]) * rows >= LEAST_ROWS else None


def _time_of(stream: StreamDefinition) -> str:
    """The stored column with event times."""
    time = stream.time
    return time if time is not None and runs.has_own_time(stream.schema.arrow(), time) else runs.AT


class Sampling(PeriodicWrite):
    """The samples of a home while its epochs run."""

    thread = "headrace-sampling"

    def due(
        self, manifest: Manifest, streams: Sequence[StreamDefinition]
    ) -> Callable[[], list[Sampled]] | None:
        """That of the first stream with complete entries."""
        waiting = [stream for stream in streams if due(self.home, manifest, stream) is not None]
        return partial(Sampler(self.home, manifest).next, waiting) if waiting else None

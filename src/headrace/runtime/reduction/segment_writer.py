"""The writer of segments: of the rows of some files of an archive it keeps the share that is wanted, or of rows with other counts other
shares, each as a segment of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.archive import runs
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.catalog.reductions import Counted
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.operators.base.group_codes import as_int64, flat, ints
from headrace.runtime.backfill.archive_entries import Piece
from headrace.runtime.home import file_names
from headrace.runtime.home.block_draws import blocks_of_runs, draws_of
from headrace.runtime.home.home import Home
from headrace.runtime.home.run_cache import section_of
from headrace.runtime.reduction.counts import Counts, strata, times
from headrace.runtime.reduction.segments import Segment
from headrace.store.files.container import parts
from headrace.store.logs.manifest import Manifest
from headrace.time import Instant

_COUNTS: Final = "counts"
_REDUCED: Final = "reduced"
"""The sections of a file with counts."""


@dataclass(frozen=True, slots=True)
class SegmentWriter:
    """Writes segments of a stream's archive, durably, as of a manifest."""

    home: Home
    manifest: Manifest
    stream: StreamDefinition

    def written(
        self, pieces: Sequence[Piece], rows: int, between: tuple[Instant, Instant], keep: float
    ) -> Segment:
        """One segment of several files with so many rows between two instants, of which each has the share `keep`."""
        store = self.home.store
        tables = [_prefix(store.map(piece.file), piece, keep) for piece in pieces]
        return self._segment(pa.concat_tables(tables).combine_chunks(), rows, between, keep)

    def counted(
        self, pieces: Sequence[Piece], keep: float, by: Counted, counts: str
    ) -> tuple[tuple[Segment, ...], str]:
        """A segment for each share that the counts of rows give them, at most `keep`; and the file with the counts after them."""
        store = self.home.store
        rows = pa.concat_tables([_prefix(store.map(piece.file), piece, 1.0) for piece in pieces])
        rows = rows.combine_chunks()
        at = times(rows, time_of(self.stream))
        before = read_counts(self.home, by, counts) if counts else Counts()
        after, shares = before.with_rows(by, rows, at)
        segments = []
        for share, has_share in strata(np.minimum(shares, keep)):
            of_share = at[has_share]
            between = int(of_share.min()), int(of_share.max())
            segments.append(self._segment(rows.filter(pa.array(has_share)), len(of_share), between, share))
        name = file_names.row_counts(self.stream.name, self.manifest.epoch)
        punctuation = self.manifest.stream(self.stream.name).punctuation
        remaining = after.since(by, punctuation)
        sections = {_COUNTS: remaining.table, _REDUCED: remaining.reduced}
        store.write_once(name, parts({part: table for part, table in sections.items() if table is not None}))
        return tuple(segments), name

    def _segment(self, table: pa.Table, rows: int, between: tuple[Instant, Instant], keep: float) -> Segment:
        low, high = between
        blocks = blocks_of_runs(self.stream)
        assert blocks is not None
        draws = draws_of(self.stream, table.column, ints(table, runs.POSITION))
        remains = blocks.within(draws, keep)
        draws, table = draws[remains], table.filter(pa.array(remains))
        block = pa.field(runs.BLOCK, pa.int16(), nullable=False)
        table = table.append_column(block, pa.array(blocks.of(draws)))
        at, position = as_int64(flat(table.column(time_of(self.stream)))), ints(table, runs.POSITION)
        by = runs.Order(at, position, draws)
        buffer = runs.randomised(table, by, blocks, of=rows, keep=keep)
        name = file_names.archive_run(self.stream.name, self.manifest.epoch, 0)
        self.home.store.write_once(name, [buffer])
        return Segment(name, rows, table.num_rows, keep, low, high)


def read_counts(home: Home, by: Counted, file: str) -> Counts:
    """The counts of a file."""
    return Counts(
        section_of(home.store, file, _COUNTS),
        section_of(home.store, file, _REDUCED) if by.columns else None,
    )


def time_of(stream: StreamDefinition) -> str:
    """The stored column with event times."""
    time = stream.time
    return time if time is not None and runs.has_own_time(stream.schema.arrow(), time) else runs.AT


def prefixes_of(home: Home, piece: Piece) -> Prefixes:
    """The prefixes of a run. Raises `CorruptStore` with the name of a damaged one."""
    return Prefixes.of(RunFile.of(home.store.map(piece.file), piece.file).footer, piece.groups)


def bytes_of(home: Home, piece: Piece) -> int:
    """The bytes of a run: of its file, or of its own row groups in one where runs are joined; 0 where that is damaged, as its readers report."""
    if piece.groups is None:
        return int(home.store.map(piece.file).size)
    try:
        footer = prefixes_of(home, piece).footer
    except CorruptStore:
        return 0
    return sum(
        footer.row_group(number).column(column).total_compressed_size
        for number in piece.groups
        for column in range(footer.num_columns)
    )


def _prefix(data: pa.Buffer, piece: Piece, keep: float) -> pa.Table:
    """The first row groups of a run, which have all rows of a share; without blocks, which may be others than the stream has now."""
    run = RunFile.of(data, piece.file)
    prefixes = Prefixes.of(run.footer, piece.groups)
    rows = run.read(groups=prefixes.groups_up_to(prefixes.holding(keep)))
    return rows.drop_columns([runs.BLOCK]) if runs.BLOCK in rows.column_names else rows

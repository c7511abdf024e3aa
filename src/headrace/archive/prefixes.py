"""Prefixes of archive runs: the row groups at a run's start that hold a share of its rows at random, and their number of rows.

A run in one piece has one prefix, all of it. Source: OSCAR, RandomizeThenSort (a scan reads the first n blocks of each run).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from headrace.archive.runs import JOINED, ROWS, SHARES
from headrace.dataclass import dataclass
from headrace.time import BEGINNING, FOREVER, Instant

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The prefixes of one run, ascending: each has a share of the rows, and a number of row groups with so many rows.

    The last prefix is all that is stored; its share is 1 but for a run that was reduced. `population` is how many rows the run had.
    """

    shares: tuple[float, ...]
    groups: tuple[int, ...]
    rows: tuple[int, ...]
    population: int
    footer: pq.FileMetaData
    first: int = 0
    """The run's first row group: another one than 0 where runs are joined in one file."""

    @staticmethod
    def of(footer: pq.FileMetaData, own: Sequence[int] | None = None) -> Prefixes:
        """The prefixes of a run, from its footer; of a run that is joined with others, `own` are its row groups."""
        if own is not None:
            return Prefixes._of_joined(own, json.loads(footer.metadata[JOINED.encode()]), footer)
        count = footer.num_row_groups
        metadata = footer.metadata or {}
        if SHARES.encode() not in metadata:
            return Prefixes((1.0,), (count,), (footer.num_rows,), footer.num_rows, footer)
        if not count:  # of a run that was reduced no row is left
            share, population = json.loads(metadata[SHARES.encode()])[-1], int(metadata[ROWS.encode()])
            return Prefixes((share,), (0,), (0,), population, footer)
        rows = tuple(accumulate(footer.row_group(number).num_rows for number in range(count)))
        shares = tuple(json.loads(metadata[SHARES.encode()]))
        return Prefixes(shares, tuple(range(1, count + 1)), rows, int(metadata[ROWS.encode()]), footer)

    @property
    def has_parts(self) -> bool:
        """Whether the run has random parts, one in each row group."""
        return SHARES.encode() in (self.footer.metadata or {})

    @staticmethod
    def _of_joined(
        own: Sequence[int], shares_of_all: Sequence[float | None], footer: pq.FileMetaData
    ) -> Prefixes:
        rows = tuple(accumulate(footer.row_group(number).num_rows for number in own))
        shares = tuple(share for number in own if (share := shares_of_all[number]) is not None)
        if not shares:
            return Prefixes((1.0,), (len(own),), (sum(rows[-1:]),), sum(rows[-1:]), footer, own[0])
        return Prefixes(shares, tuple(range(1, len(own) + 1)), rows, rows[-1], footer, own[0])

    def groups_up_to(self, prefix: int, after: int = -1) -> range:
        """The row groups of a prefix, without those of another one before it."""
        start = self.groups[after] if after >= 0 else 0
        return range(self.first + start, self.first + self.groups[prefix])

    def range_of(self, column: str) -> tuple[Instant, Instant]:
        """The least and the greatest value of a column of instants without NULL, of all that is stored; where files do not have
        them, those of all instants.
        """
        number = self.footer.schema.to_arrow_schema().get_field_index(column)
        of_groups = [
            self.footer.row_group(group).column(number).statistics
            for group in self.groups_up_to(len(self.groups) - 1)
        ]
        if not of_groups or any(of_group is None or not of_group.has_min_max for of_group in of_groups):
            return BEGINNING, FOREVER
        return min(of_group.min_raw for of_group in of_groups), max(
            of_group.max_raw for of_group in of_groups
        )

    def holding(self, share: float) -> int:
        """The index of the shortest prefix that has at least this share."""
        return min(bisect_left(self.shares, share), len(self.shares) - 1)

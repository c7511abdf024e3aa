"""Slices of an archive entry, which backfills read one after the other between live epochs: the row groups of its files in
order, or its ingest records where the source is read in place.

How an entry is cut depends on its files alone, so that the number of slices read is a position in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.backfill.archive_entries import ArchiveEntry, splits_of
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.messages.task_messages import Split
from headrace.store.files.filesystem import Store

Weighed: TypeAlias = tuple[Split, int]
"""A split, and its rows."""
_row_groups: Final[Recent[tuple[str, str], tuple[int, ...]]] = Recent(256)


def slices_of(
    store: Store, entry: ArchiveEntry, stream: StreamDefinition, records: Mapping[int, Mapping[str, Any]]
) -> list[Weighed]:
    """The slices of an entry, each with its rows (an estimate where the source is read in place)."""
    splits = splits_of(entry, stream, records)
    unknown = entry.rows // max(1, len(splits)) + 1
    return list(
        chain.from_iterable(
            [(split, unknown)]
            if split.archived is None
            else [
                (replace(split, row_groups=(number,)), rows)
                for number, rows in enumerate(rows_of_groups(store, split.archived))
            ]
            for split in splits
        )
    )


def rows_of_groups(store: Store, name: str) -> tuple[int, ...]:
    """The number of rows of each row group of an archive run."""
    key = str(store.root), name
    rows = _row_groups.get(key)
    if rows is None:
        rows = RunFile.of(store.map(name)).rows_of_groups
        _row_groups.put(key, rows)
    return rows


def first_slices(slices: Sequence[Weighed], rows: int) -> Sequence[Weighed]:
    """The first slices of at most so many rows; at least one."""
    total = 0
    for number, (_, weight) in enumerate(slices):
        total += weight
        if number and total > rows:
            return slices[:number]
    return slices


def in_one_split(slices: Sequence[Weighed]) -> list[Weighed]:
    """Slices with the row groups of each file in one split."""
    merged: list[Weighed] = []
    for _, group in groupby(slices, lambda slice_: replace(slice_[0], row_groups=None)):
        members = list(group)
        numbers = tuple(number for split, _ in members for number in split.row_groups or ())
        merged.append((replace(members[0][0], row_groups=numbers or None), sum(rows for _, rows in members)))
    return merged

"""Slices of an archive entry, which backfills read one after the other between live epochs: the row groups of its files in
order, or its ingest records where the source is read in place.

How an entry is cut depends on its files alone, so that the number of slices read is a position in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeAlias

from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.backfill.archive_entries import ArchiveEntry, splits_of
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.messages.task_messages import RejectsFile, Split
from headrace.store.files.filesystem import Store

Weighed: TypeAlias = tuple[Split, int]
"""A split, and its rows."""
_REST: Final = 0.125
"""A rest of an entry that has this share of the rows of a slice is read with it."""
_row_groups: Final[Recent[tuple[str, str], tuple[int, ...]]] = Recent(256)


def slices_of(
    store: Store,
    entry: ArchiveEntry,
    stream: StreamDefinition,
    records: Mapping[int, Mapping[str, Any]],
    rejects: Mapping[int, RejectsFile],
) -> list[Weighed]:
    """The slices of an entry, each with its rows (an estimate where the source is read in place)."""
    splits = splits_of(entry, stream, records, rejects)
    unknown = entry.rows // max(1, len(splits)) + 1
    return list(
        chain.from_iterable(
            [(split, unknown)]
            if split.archived is None
            else [
                (replace(split, row_groups=(number,)), rows)
                for number, rows in enumerate(rows_of_groups(store, split.archived))
                if split.row_groups is None or number in split.row_groups
            ]
            for split in splits
        )
    )


def rows_of_groups(store: Store, name: str) -> tuple[int, ...]:
    """The number of rows of each row group of an archive run."""
    key = str(store.root), name
    rows = _row_groups.get(key)
    if rows is None:
        rows = RunFile.of(store.map(name), name).rows_of_groups
        _row_groups.put(key, rows)
    return rows


def first_slices(slices: Sequence[Weighed], rows: int) -> Sequence[Weighed]:
    """The first slices of at most so many rows; at least one, and all if few rows would be left for another epoch."""
    total, left = 0, sum(weight for _, weight in slices)
    for number, (_, weight) in enumerate(slices):
        if number and total + weight > rows and left > _REST * total:
            return slices[:number]
        total, left = total + weight, left - weight
    return slices


def in_few_splits(slices: Sequence[Weighed]) -> list[Weighed]:
    """Slices with the row groups of a file in one split."""
    merged: list[Weighed] = []
    for split, rows in slices:
        if merged and _is_of_same_file(merged[-1][0], split):
            last, before = merged[-1]
            numbers = (*(last.row_groups or ()), *(split.row_groups or ()))
            merged[-1] = replace(last, row_groups=numbers), before + rows
        else:
            merged.append((split, rows))
    return merged


def _is_of_same_file(one: Split, other: Split) -> bool:
    return one.row_groups is not None and replace(one, row_groups=other.row_groups) == other

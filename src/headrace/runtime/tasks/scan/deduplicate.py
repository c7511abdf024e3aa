"""Elimination of repeated rows by key, exact, with keys stored only as long as punctuation requires.

A row repeats an earlier row that counted if their keys are equal (NULL is a value) and their event times differ by at
most WITHIN. Rows below the punctuation are late and not compared, so a key is needed while its row is less than WITHIN
below the punctuation: the state is bounded by the rows of that much event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.definitions import Deduplication, StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.runtime.home.run_cache import open_run
from headrace.store.files.container import parts
from headrace.store.files.filesystem import Store
from headrace.store.logs.committed import KeysFile
from headrace.time import BEGINNING, FOREVER, Duration, Instant

_AT: Final = "__at"
_SECTION: Final = "keys"
MOST_FILES: Final = 8


@dataclass(slots=True)
class Repeats:
    """Keys of earlier rows, and of the rows of this task that counted."""

    rule: Deduplication
    seen: list[pa.Table]
    new: list[pa.Table] = field(default_factory=list)

    def first(self, columns: Mapping[str, pa.Array], at: Ints, late: np.ndarray | None) -> np.ndarray:
        """Which rows of a batch, in order of arrival, repeat none. Late rows are kept."""
        is_first = np.ones(len(at), bool)
        rows = np.arange(len(at)) if late is None else np.flatnonzero(~late)
        if not len(rows):
            return is_first
        batch = pa.table(
            [flat(columns[key]).take(pa.array(rows)) for key in self.rule.keys], names=list(self.rule.keys)
        )
        batch = batch.append_column(_AT, pa.array(at[rows]))
        low, high = int(at[rows].min()) - self.rule.within, int(at[rows].max()) + self.rule.within
        candidates = [
            near for table in (*self.seen, *self.new) if (near := _between(table, low, high)).num_rows
        ]
        rows_of_keys = pa.concat_tables([*candidates, batch])
        before = rows_of_keys.num_rows - len(rows)
        codes = group([flat(rows_of_keys.column(key)) for key in self.rule.keys], rows_of_keys.num_rows).codes
        counts = counting(codes, ints(rows_of_keys, _AT), self.rule.within, before)[before:]
        is_first[rows] = counts
        if counts.any():
            self.new.append(batch.filter(pa.array(counts)))
        return is_first

    def fresh(self, punctuation: Instant) -> tuple[pa.Table, bool] | None:
        """Keys and event times of this task's rows that counted; with all earlier ones once these are in many files."""
        if not self.new:
            return None
        merges = len(self.seen) >= MOST_FILES
        tables = (
            [_between(table, horizon(self.rule, punctuation), FOREVER) for table in self.seen]
            if merges
            else []
        )
        return pa.concat_tables([*tables, *self.new]), merges


def counting(codes: Ints, at: Ints, within: Duration, before: int) -> np.ndarray:
    """Which rows count, in order of arrival: those without an earlier row of their key that counted within WITHIN.

    The first `before` rows counted already. Rows farther than WITHIN from every other of their key count at once; the others
    form clusters, and each round decides the first open row of each cluster.
    """
    order = np.lexsort((at, codes))
    near = (np.diff(codes[order]) == 0) & (np.diff(at[order]) <= within)
    cluster = np.empty(len(at), np.int64)
    cluster[order] = np.cumsum(np.r_[True, ~near]) - 1
    counts = np.zeros(len(at), bool)
    counts[:before] = True
    if not within:
        _, first = np.unique(cluster, return_index=True)
        counts[first] = True
        return counts
    open_rows = np.arange(len(at))
    while len(open_rows):
        _, indices = np.unique(cluster[open_rows], return_index=True)
        leaders = open_rows[indices]
        leader_of_cluster = np.full(int(cluster.max()) + 1, -1, np.int64)
        leader_of_cluster[cluster[leaders]] = leaders
        leader = leader_of_cluster[cluster[open_rows]]
        counts[leaders] = True
        close = np.abs(at[open_rows] - at[leader]) <= within
        open_rows = open_rows[~close]
    return counts


def _between(table: pa.Table, low: int, high: int) -> pa.Table:
    at = table.column(_AT)
    return table.filter(pc.and_(pc.greater_equal(at, low), pc.less_equal(at, high)))


def max_event_time_of(keys: pa.Table) -> int:
    """The maximum event time of keys."""
    return int(pc.max(keys.column(_AT)).as_py())


def encode_keys(keys: pa.Table) -> Iterable[Any]:
    """The parts of a file of keys."""
    return parts({_SECTION: keys})


def open_keys(store: Store, name: str) -> pa.Table:
    """The keys of a file."""
    return open_run(store, name)[_SECTION]


def retained_files(
    definition: StreamDefinition,
    earlier: Sequence[KeysFile],
    new: Sequence[KeysFile],
    punctuation: Instant,
) -> tuple[KeysFile, ...]:
    """The files of keys that a later row may repeat: those with a row less than WITHIN below the punctuation.

    `earlier` are of earlier epochs, `new` of this one; a new file that has all keys replaces the others.
    """
    assert definition.deduplicate is not None
    files = [*([] if any(file.whole for file in new) else earlier), *new]
    return tuple(file for file in files if file.greatest >= horizon(definition.deduplicate, punctuation))


def horizon(rule: Deduplication, punctuation: Instant) -> Instant:
    """The least event time of rows that a row at or above the punctuation may repeat."""
    return BEGINNING if punctuation == BEGINNING else punctuation - rule.within

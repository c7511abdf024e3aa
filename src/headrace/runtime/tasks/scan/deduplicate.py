"""Which rows repeat an earlier one? Exact elimination by key, with keys kept only as long as punctuation allows.

A row repeats one that counted before it if their keys are equal (NULL being a value) and their event times no further
apart than WITHIN. Rows below the punctuation are late before they are anything else, so a key is needed while its row
lies less than WITHIN below the punctuation: the state is bounded by the rows of that much event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.definitions import Deduplication, StreamDefinition
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
    """What was seen, and the rows of this task that counted."""

    rule: Deduplication
    seen: list[pa.Table]
    new: list[pa.Table] = field(default_factory=list)

    def first(self, columns: Mapping[str, pa.Array], at: Ints, late: np.ndarray | None) -> np.ndarray:
        """Which rows of a batch, in order of arrival, repeat none. Late ones stay as they are."""
        keep = np.ones(len(at), bool)
        rows = np.arange(len(at)) if late is None else np.flatnonzero(~late)
        if not len(rows):
            return keep
        mine = pa.table(
            [flat(columns[key]).take(pa.array(rows)) for key in self.rule.keys], names=list(self.rule.keys)
        )
        mine = mine.append_column(_AT, pa.array(at[rows]))
        low, high = int(at[rows].min()) - self.rule.within, int(at[rows].max()) + self.rule.within
        known = [near for table in (*self.seen, *self.new) if (near := _between(table, low, high)).num_rows]
        whole = pa.concat_tables([*known, mine])
        before = whole.num_rows - len(rows)
        codes = group([flat(whole.column(key)) for key in self.rule.keys], whole.num_rows).codes
        counted = counting(codes, ints(whole, _AT), self.rule.within, before)[before:]
        keep[rows] = counted
        if counted.any():
            self.new.append(mine.filter(pa.array(counted)))
        return keep

    def fresh(self, punctuation: Instant) -> tuple[pa.Table, bool] | None:
        """Keys and event times of this task's rows that counted; with all others, when these have come to many files."""
        if not self.new:
            return None
        whole = len(self.seen) >= MOST_FILES
        tables = (
            [_between(table, horizon(self.rule, punctuation), FOREVER) for table in self.seen]
            if whole
            else []
        )
        return pa.concat_tables([*tables, *self.new]), whole


def counting(codes: Ints, at: Ints, within: Duration, before: int) -> np.ndarray:
    """Which rows count, in order of arrival: those with none of their key that counted within reach before them.

    The first `before` rows counted already. Rows out of reach of every other of their key count at once; what is left
    lies in clusters, and each round settles the first open row of each cluster.
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
    left = np.arange(len(at))
    while len(left):
        _, place = np.unique(cluster[left], return_index=True)
        leaders = left[place]
        reach = np.full(int(cluster.max()) + 1, -1, np.int64)
        reach[cluster[leaders]] = leaders
        leader = reach[cluster[left]]
        counts[leaders] = True
        close = np.abs(at[left] - at[leader]) <= within
        left = left[~close]
    return counts


def _between(table: pa.Table, low: int, high: int) -> pa.Table:
    at = table.column(_AT)
    return table.filter(pc.and_(pc.greater_equal(at, low), pc.less_equal(at, high)))


def max_event_time_of(keys: pa.Table) -> int:
    """The greatest event time among keys."""
    return int(pc.max(keys.column(_AT)).as_py())


def encode_keys(keys: pa.Table) -> Iterable[Any]:
    """The parts of a file of keys."""
    return parts({_SECTION: keys})


def open_keys(store: Store, name: str) -> pa.Table:
    """The keys of a file."""
    return open_run(store, name)[_SECTION]


def retained_files(
    definition: StreamDefinition,
    known: Sequence[KeysFile],
    new: Sequence[KeysFile],
    punctuation: Instant,
) -> tuple[KeysFile, ...]:
    """The files of keys that a row to come may repeat: those with a row less than WITHIN below the punctuation.

    `known` were there, `new` are of this epoch; one that holds all the others replaces them.
    """
    assert definition.deduplicate is not None
    files = [*([] if any(file.whole for file in new) else known), *new]
    return tuple(file for file in files if file.greatest >= horizon(definition.deduplicate, punctuation))


def horizon(rule: Deduplication, punctuation: Instant) -> Instant:
    """The least event time that a row to come, at or above the punctuation, may repeat."""
    return BEGINNING if punctuation == BEGINNING else punctuation - rule.within

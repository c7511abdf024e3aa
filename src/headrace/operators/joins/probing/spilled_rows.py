"""Sections of a join's state with the rows that constraints have finished, for joins that spill them: the rows of a side in order of (key
hash, time), and the filter of their keys.

Files of state are mapped, so what is not read takes no memory. Of spilled rows an epoch reads the filter, and the rows of those new keys that
pass it: rows of other keys are opened again only when runs of state are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.adaptive.constraints.key_filter import KeyFilter
from headrace.operators.base.group_codes import SLOTS, Ints, flat, ints
from headrace.operators.base.operator import SLOT, Sections
from headrace.operators.joins.probing.stems import Combinations, Stem
from headrace.operators.rows.sorted_rows import HASH, Sorted, in_order, spread
from headrace.time import Duration

_ROWS: Final = "_spilled"
_KEYS: Final = "_spilled_keys"
_WORD: Final = "word"


def rows_of(section: str) -> str:
    """The section with the spilled rows of a side, which has a section of stored ones."""
    return f"{section}{_ROWS}"


def keys_of(section: str) -> str:
    """The section with the filter of their keys."""
    return f"{section}{_KEYS}"


def are_spilled(section: str) -> bool:
    """Whether a section's rows stay on disk."""
    return section.endswith(_ROWS)


def are_keys(section: str) -> bool:
    """Whether a section is a filter of keys."""
    return section.endswith(_KEYS)


def are_searched(section: str) -> bool:
    """Whether a section has rows that are stored, and neither rows on disk nor a filter."""
    return not are_spilled(section) and not are_keys(section)


def spilled(section: str, rows: pa.Table) -> dict[str, pa.Table]:
    """The sections of the spilled rows of a side, in order; none without rows."""
    if not rows.num_rows:
        return {}
    keys = KeyFilter.of(ints(rows, HASH), _slots(rows))
    return {rows_of(section): rows, keys_of(section): _table(keys)}


def united(tables: Sequence[pa.Table]) -> pa.Table:
    """One filter for several."""
    return tables[0] if len(tables) == 1 else _table(reduce(KeyFilter.united, map(_filter, tables)))


def with_keys(runs: Sequence[Sections], section: str, hashes: Ints, range_: Duration | None) -> list[Sorted]:
    """The spilled rows of a side with any of these key hashes: at most one piece."""
    searched, parts = np.unique(hashes), list[pa.Table]()
    slots = (searched.view(np.uint64) % np.uint64(SLOTS)).astype(np.int16)
    for run in runs:
        if len(searched) and rows_of(section) in run:
            candidates = searched[_filter(run[keys_of(section)]).may_have(searched, slots)]
            rows = run[rows_of(section)]
            known = ints(rows, HASH)
            low, high = (known.searchsorted(candidates, side) for side in ("left", "right"))
            _, found = spread(low, high - low, 0, len(candidates))
            parts += [rows.take(pa.array(found))] if len(found) else []
    return [replace(Sorted.of(in_order(parts), range_), is_spilled=True)] if parts else []


def count_read(combinations: Combinations, stems: Mapping[int, Stem]) -> int:
    """How many combinations have a spilled row."""
    of_spilled = np.zeros(combinations.count, bool)
    for side, rows in combinations.rows.items():
        for start, piece in zip(stems[side].starts.tolist(), stems[side].pieces, strict=False):
            if piece.is_spilled:
                of_spilled |= (rows >= start) & (rows < start + piece.rows)
    return int(of_spilled.sum())


def _slots(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.asarray(flat(table.column(SLOT)).to_numpy(zero_copy_only=False), np.int16)


def _filter(table: pa.Table) -> KeyFilter:
    return KeyFilter(_slots(table), ints(table, _WORD).view(np.uint64))


def _table(keys: KeyFilter) -> pa.Table:
    return pa.table({SLOT: pa.array(keys.slots), _WORD: pa.array(keys.words.view(np.int64))})

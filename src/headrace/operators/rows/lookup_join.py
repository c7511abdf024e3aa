"""Hash index of a stored relation's rows by their keys, for lookup joins and semijoins; it is probed with whole batches
of a stream's rows, for the pairs of equal keys.

NULL keys never match. A relation's key need not be unique: each row is joined with every match, in the relation's row order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat, group, normalise


@dataclass(frozen=True, slots=True)
class Index:
    """A relation's rows by key: `order[starts[c]:starts[c+1]]` are the rows of key code c."""

    keys: tuple[pa.Array, ...]
    order: Ints
    starts: Ints


def build(keys: Sequence[pa.Array], rows: int) -> Index:
    """Index `rows` rows by their key columns; without key columns every row matches."""
    usable = np.ones(rows, bool)
    for key in keys:
        usable &= ~flat(key).is_null().to_numpy(zero_copy_only=False)
    live = np.flatnonzero(usable)
    groups = group([flat(key).take(pa.array(live)) for key in keys], len(live))
    by_code = np.argsort(groups.codes, kind="stable")
    starts = np.zeros(groups.count + 1, np.int64)
    np.cumsum(np.bincount(groups.codes, minlength=groups.count), out=starts[1:])
    return Index(groups.keys, live[by_code], starts)


def probe(index: Index, keys: Sequence[pa.Array], rows: int) -> tuple[Ints, Ints]:
    """Pairs (probing row, relation row) of equal keys, in order of probing rows."""
    codes = _codes(index, keys, rows)
    matching = np.flatnonzero(codes >= 0)
    hits = codes[matching]
    counts = index.starts[hits + 1] - index.starts[hits]
    left = np.repeat(matching, counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left, index.order[np.repeat(index.starts[hits], counts) + within]


def _codes(index: Index, keys: Sequence[pa.Array], rows: int) -> Ints:
    """The index code of each probing row, -1 where nothing matches."""
    if not keys:
        return np.zeros(rows, np.int64) if len(index.order) else np.full(rows, -1)
    if len(keys) == 1:
        matches = pc.index_in(normalise(keys[0]), value_set=index.keys[0], skip_nulls=True)
        single: Ints = pc.fill_null(matches, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return single
    stacked = [
        pa.concat_arrays([indexed, normalise(flat(other)).cast(indexed.type)])
        for indexed, other in zip(index.keys, keys, strict=True)
    ]
    size = len(index.keys[0])
    together = group(stacked, size + rows)
    code_of_group = np.full(together.count, -1, np.int64)
    code_of_group[together.codes[:size]] = np.arange(size)
    codes = code_of_group[together.codes[size:]]
    for key in keys:
        codes[flat(key).is_null().to_numpy(zero_copy_only=False)] = -1
    return codes

"""Ranks of an attribute's values among its cuts: the sorted constants with which indexed conditions compare it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import AttributeIndex
from headrace.operators.query_index.boxes.box_ranges import rank_type
from headrace.operators.query_index.predicates.order_keys import absent, keys_of
from headrace.operators.scalar.values.datum import raw

_NARROW: Final = (1 << 16) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The keys of an attribute's values in a batch, which all parts of an index rank among their own cuts.

    With `low`, the least of integers of a small range, `keys` are what these exceed it by, at most `span`, in 16 bits, and
    `span` + 1 of NULL: a wide copy of a column costs more in new pages of memory than all searches. `nulls` is where the
    attribute is NULL, None if nowhere.
    """

    keys: Ints | pa.Array
    nulls: np.ndarray | None
    low: int | None = None
    span: int = 0

    @staticmethod
    def of(values: pa.Array) -> Keys:
        """The keys of a column."""
        keys = raw(values) if pa.types.is_integer(values.type) else keys_of(values)
        nulls = absent(values)
        if isinstance(keys, np.ndarray) and len(keys):
            low, high = int(keys.min()), int(keys.max())
            if high - low < min(_NARROW, 4 * len(keys) + 64):
                above = np.subtract(
                    keys, low, out=np.empty(len(keys), np.uint16), dtype=np.int64, casting="unsafe"
                )
                if nulls is not None:
                    above[nulls] = high - low + 1
                return Keys(above, nulls, low, high - low)
        return Keys(keys, nulls)


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The rank of each row, as `rank_type`: `table[keys[row]]`, or without a table `keys[row]`."""

    keys: np.ndarray
    table: np.ndarray | None = None

    def of(self, rows: np.ndarray | slice) -> np.ndarray:
        """The ranks of some rows."""
        keys = self.keys[rows]
        return keys if self.table is None else self.table.take(keys)


def cut_ranks(attribute: AttributeIndex, values: Keys) -> Ranks:
    """How many cuts are at or below each value; `attribute.null` where it is NULL."""
    narrow = rank_type(attribute)
    if isinstance(values.keys, np.ndarray) and values.low is not None:
        # one search a value of the range, not one a row
        range_ = np.arange(values.low, values.low + values.span + 1)
        ranks = np.searchsorted(attribute.cuts, range_, side="right").astype(narrow)
        return Ranks(values.keys, np.append(ranks, narrow(attribute.null)))
    if isinstance(values.keys, np.ndarray):
        ranks = np.searchsorted(attribute.cuts, values.keys, side="right").astype(narrow)
    else:
        ranks = _bytes(attribute, values.keys).astype(narrow)
    if values.nulls is not None:
        ranks[values.nulls] = attribute.null
    return Ranks(ranks)


def _bytes(attribute: AttributeIndex, keys: pa.Array) -> Ints:
    if attribute.points is not None:
        point = pc.index_in(keys, value_set=attribute.points).fill_null(len(attribute.points))
        at = pc.index_in(attribute.points, value_set=attribute.cuts).to_numpy(zero_copy_only=False) + 1
        table: Ints = np.r_[at, 0].astype(np.int64)  # others are in some gap; all gaps are equivalent
        ranks: Ints = table.take(point.to_numpy(zero_copy_only=False))
        return ranks
    encoded = keys.dictionary_encode()
    distinct, k = encoded.dictionary, len(attribute.cuts)
    order = pc.sort_indices(pa.concat_arrays([attribute.cuts, distinct])).to_numpy()
    is_cut = order < k
    below = np.cumsum(is_cut)  # stable: a cut comes before the value equal to it
    rank_of = np.empty(len(distinct), np.int64)
    rank_of[order[~is_cut] - k] = below[~is_cut]
    rows = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return rank_of.take(rows) if len(rank_of) else np.zeros(len(keys), np.int64)

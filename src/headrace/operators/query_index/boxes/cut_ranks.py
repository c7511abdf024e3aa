"""Ranks of an attribute's values among its cuts: the sorted constants with which indexed conditions compare it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import AttributeIndex
from headrace.operators.query_index.predicates.order_keys import absent, keys_of

_NARROW: Final = 1 << 16


def cut_ranks(attribute: AttributeIndex, values: pa.Array) -> Ints:
    """How many cuts are at or below each value; `attribute.null` where it is NULL."""
    keys = keys_of(values)
    ranks = _whole(attribute, keys) if isinstance(keys, np.ndarray) else _bytes(attribute, keys)
    nulls = absent(values)
    if nulls is not None:
        ranks[nulls] = attribute.null
    return ranks


def _whole(attribute: AttributeIndex, keys: Ints) -> Ints:
    cuts = attribute.cuts
    if not len(keys):
        return keys
    low, high = int(keys.min()), int(keys.max())
    if high - low < min(_NARROW, 4 * len(keys) + 64):  # one search a value of the range, not one a row
        table = np.searchsorted(cuts, np.arange(low, high + 1), side="right")
        return table.take(keys - low)
    return np.searchsorted(cuts, keys, side="right").astype(np.int64, copy=False)


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

"""Sort keys of columns: integers that sort as the values do in Spark, where -0.0 equals 0.0; and a last key that puts
-0.0 first among rows that are otherwise equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.base.group_codes import Ints, flat, normalise, texts_of_lists


def sort_rank(values: pa.Array, descending: bool, nulls_first: bool) -> Ints:
    """Integers in Spark's order: NaN above every number, -0.0 equal to 0.0, NULLs first or last as `nulls_first` requires."""
    values = normalise(flat(values))
    if not values.null_count and (pa.types.is_integer(values.type) or pa.types.is_timestamp(values.type)):
        whole: Ints = values.cast(pa.int64()).to_numpy()
        return ~whole if descending else whole
    if pa.types.is_floating(values.type):
        return _rank_of_doubles(values, descending, nulls_first)
    if pa.types.is_struct(values.type):
        return _rank_of_structs(values, descending, nulls_first)
    if pa.types.is_list(values.type):
        values = texts_of_lists(
            values
        )  # ORDER BY refuses lists; this only makes the order of otherwise equal rows deterministic
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    encoded = values.dictionary_encode()
    words = encoded.dictionary
    rank_of_word = np.empty(len(words), np.int64)
    rank_of_word[pc.sort_indices(words).to_numpy()] = np.arange(len(words))
    ranks = (
        rank_of_word[pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)]
        if len(words)
        else np.zeros(len(values), int)
    )
    ranks = -ranks if descending else ranks
    ranks[nulls] = -(len(words) + 1) if nulls_first else len(words) + 1
    return ranks


def zero_signs(columns: Iterable[pa.Array]) -> list[Ints]:
    """The last sort keys: rows that differ only in the sign of a zero are ordered too, -0.0 first."""
    doubles = [flat(column) for column in columns if pa.types.is_floating(column.type)]
    signs = [(~np.signbit(column.to_numpy(zero_copy_only=False))).astype(np.int64) for column in doubles]
    return [sign for sign in signs if sign.any() and not sign.all()]


def _rank_of_doubles(values: pa.Array, descending: bool, nulls_first: bool) -> Ints:
    """Their bits as integers, those below zero in the other order: no double has the bits of a NULL's rank."""
    bits = values.cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.int64)
    limits = np.iinfo(np.int64)
    ranks: Ints = bits ^ ((bits >> 63) & limits.max)
    ranks = ~ranks if descending else ranks
    if values.null_count:
        ranks[values.is_null().to_numpy(zero_copy_only=False)] = limits.min if nulls_first else limits.max
    return ranks


def _rank_of_structs(values: pa.Array, descending: bool, nulls_first: bool) -> Ints:
    """By the first field, ties by the next, and so on; NULLs inside come first."""
    keys = [sort_rank(field, False, True) for field in values.flatten()]
    order = np.lexsort(keys[::-1])
    steps = np.zeros(len(values), np.int64)
    for key in keys:
        ranked = key[order]
        steps[1:] |= ranked[1:] != ranked[:-1]
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.cumsum(steps)
    ranks = -ranks if descending else ranks
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    ranks[nulls] = -len(values) - 1 if nulls_first else len(values) + 1
    return ranks

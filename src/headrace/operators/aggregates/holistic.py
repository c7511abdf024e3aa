"""Exact holistic aggregates (percentile, mode, most frequent values, heavy hitters, norms of value counts), computed
for all groups from histograms of their distinct values.

Holistic aggregates (Li 2008, section 6.3) have no partial of constant size. Their state is a histogram: a pane stores
every distinct value of a group once, with its count. Histograms combine by adding counts, so windows are made of panes
and blocks as for any other aggregate, and repeated values cost nothing. All groups are computed at once.
"""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Lowered
from headrace.operators.aggregates.synopsis_calls import as_json
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.sort_ranks import sort_rank
from headrace.schema import to_arrow


@dataclass(frozen=True, slots=True)
class Histogram:
    """Values with their counts: group `owner[i]` has `values[i]` `counts[i]` times.

    A value may have several entries; NULL does not count.
    """

    owner: Ints
    values: pa.Array
    counts: Ints

    def take(self, rows: Ints) -> Histogram:
        """Some of the entries, by index."""
        return Histogram(self.owner[rows], self.values.take(pa.array(rows)), self.counts[rows])


def lower_by_value(call: AggregateCall, histogram: Histogram, rows: int) -> Lowered:
    """The aggregate of each of `rows` groups; NULL where a group has no value."""
    if pa.types.is_null(histogram.values.type):
        return Lowered(pa.nulls(rows, to_arrow(call.type)))
    ordered = _ordered(histogram)
    if call.function == "top_k":
        return Lowered(_most_frequent(ordered, rows, call.most or 0))
    if call.function in ("l1_norm", "l2_norm"):
        return Lowered(_norm(call.function, ordered, rows))
    if call.function == "heavy_hitters":
        assert call.share is not None
        return Lowered(_heavy_hitters(ordered, rows, Fraction(str(call.share))))
    if call.function == "mode":
        return Lowered(_mode(ordered, rows).cast(to_arrow(call.type)))
    if call.distinct:
        ordered = Histogram(ordered.owner, ordered.values, np.ones_like(ordered.counts))
    assert call.share is not None
    return Lowered(_percentile(ordered, rows, call.share))


def _ordered(histogram: Histogram) -> Histogram:
    """One entry for each value of a group, by group and then ascending (NaN last), without NULLs."""
    histogram = histogram.take(np.flatnonzero(histogram.values.is_valid().to_numpy(zero_copy_only=False)))
    if pa.types.is_floating(histogram.values.type):
        zero = pa.scalar(0.0, histogram.values.type)
        histogram = Histogram(
            histogram.owner, pc.add(histogram.values, zero), histogram.counts
        )  # -0.0 is 0.0
    rank = sort_rank(histogram.values, False, True)
    order = np.lexsort((rank, histogram.owner))
    if not len(order):
        return histogram
    owner, rank = histogram.owner[order], rank[order]
    first = np.flatnonzero(np.r_[True, (owner[1:] != owner[:-1]) | (rank[1:] != rank[:-1])])
    counts = np.add.reduceat(histogram.counts[order], first)
    return Histogram(owner[first], histogram.values.take(pa.array(order[first])), counts)


def _heavy_hitters(histogram: Histogram, rows: int, share: Fraction) -> pa.Array:
    """The values that are at least this share of their group, the most frequent first, as a JSON array."""
    number = np.zeros(rows, np.int64)
    np.add.at(number, histogram.owner, histogram.counts)
    heavy = np.flatnonzero(histogram.counts * share.denominator >= share.numerator * number[histogram.owner])
    heavy = heavy[np.lexsort((heavy, -histogram.counts[heavy], histogram.owner[heavy]))]
    encoded = histogram.values.take(pa.array(heavy)).dictionary_encode()
    words = [json.dumps(word, ensure_ascii=False) for word in encoded.dictionary.to_pylist()]
    texts = pa.array(words, pa.string()).take(encoded.indices)
    ends = np.searchsorted(histogram.owner[heavy], np.arange(rows + 1))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts)
    joined = pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
    return pc.if_else(pa.array(number > 0), joined, pa.scalar(None, pa.string()))


def _percentile(histogram: Histogram, rows: int, share: float) -> pa.Array:
    """Spark's exact percentile: the value at (n - 1) * share, interpolated between its two neighbours."""
    number = np.zeros(rows, np.int64)
    np.add.at(number, histogram.owner, histogram.counts)
    some = np.flatnonzero(number)
    before = (np.cumsum(number) - number)[some]
    upto = np.cumsum(histogram.counts)
    position = (number[some] - 1) * share
    low, high = np.floor(position), np.ceil(position)
    indices = [np.searchsorted(upto, before + part.astype(np.int64), side="right") for part in (low, high)]
    lower, upper = (_doubles(histogram.values.take(pa.array(index))) for index in indices)
    with np.errstate(all="ignore"):
        between = lower + (position - low) * (upper - lower)
    values = np.zeros(rows)
    values[some] = np.where((low == high) | (lower == upper), lower, between)
    return pa.array(values, mask=number == 0)


def _doubles(values: pa.Array) -> np.ndarray:
    if pa.types.is_decimal(values.type):
        return np.array([float(value) for value in values.to_pylist()], np.float64)
    doubles: np.ndarray = values.cast(pa.float64(), safe=False).to_numpy()
    return doubles


def _most_frequent(histogram: Histogram, rows: int, most: int) -> pa.Array:
    """The most frequent texts of each group with their counts, as JSON."""
    items: list[list[tuple[str, int]]] = [[] for _ in range(rows)]
    order = np.lexsort((np.arange(len(histogram.owner)), -histogram.counts, histogram.owner))
    owner = histogram.owner[order]
    rank = np.arange(len(order)) - np.searchsorted(owner, owner)
    order = order[rank < most]
    texts = histogram.values.take(pa.array(order)).to_pylist()
    pairs = zip(texts, histogram.counts[order].tolist(), strict=True)
    for group, pair in zip(histogram.owner[order].tolist(), pairs, strict=True):
        items[group].append(pair)
    return as_json(items)


def _norm(function: str, histogram: Histogram, rows: int) -> pa.Array:
    """The sum of the counts of values, or the root of the sum of their squares."""
    counts = histogram.counts if function == "l1_norm" else histogram.counts.astype(np.float64) ** 2
    total = np.zeros(rows, counts.dtype)
    np.add.at(total, histogram.owner, counts)
    return pa.array(total if function == "l1_norm" else np.sqrt(total), mask=total == 0)


def _mode(histogram: Histogram, rows: int) -> pa.Array:
    """The most frequent value of each group; among equals the least."""
    order = np.lexsort((np.arange(len(histogram.owner)), -histogram.counts, histogram.owner))
    owner = histogram.owner[order]
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else order
    entry = np.full(rows, -1, np.int64)
    entry[owner[first]] = order[first]
    return histogram.values.take(pa.array(entry, mask=entry < 0))

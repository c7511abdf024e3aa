"""Buckets with sizes of their own as bytes, with the number of doublings of what is newer: times, then sizes, then that number, all as one
sequence that never rises (`delta_coding`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.buckets import Buckets
from headrace.synopses.histograms.delta_coding import decode, encode


def encoded_older(bases: Ints, buckets: Buckets, doubled: int) -> pa.Array:
    """One binary per key; no bucket of a key is newer than its base."""
    many, owners = np.diff(buckets.offsets), buckets.owners()
    offsets = 2 * buckets.offsets + np.arange(buckets.keys + 1)
    rank = np.arange(len(owners)) - buckets.offsets[:-1][owners]
    last = bases.copy()
    last[many > 0] = buckets.times[buckets.offsets[1:][many > 0] - 1]
    upto = np.cumsum(buckets.sizes)
    values = np.empty(offsets[-1], np.int64)
    values[offsets[:-1][owners] + rank] = buckets.times
    before = np.r_[0, upto][buckets.offsets[:-1]]
    values[offsets[:-1][owners] + many[owners] + rank] = last[owners] - (upto - before[owners])
    values[offsets[1:] - 1] = last - buckets.totals() - doubled
    return encode(bases, offsets, values).cast(pa.binary())


def decoded_older(bases: Ints, coded: pa.Array) -> tuple[Buckets, Ints]:
    """The buckets that were coded with these bases, and the doublings."""
    offsets, values = decode(bases, coded.cast(pa.large_binary()))
    many = (np.diff(offsets) - 1) // 2
    owners = np.repeat(np.arange(len(many)), many)
    begins = np.r_[0, np.cumsum(many)]
    rank = np.arange(len(owners)) - begins[:-1][owners]
    at = offsets[:-1][owners] + rank
    sums, earlier = values[at + many[owners]], values[at + many[owners] - 1]
    ends = offsets[1:] - 1
    lower = np.where(many > 0, values[np.maximum(ends - 1, 0)], bases)
    return Buckets(begins, values[at], earlier - sums), lower - values[ends]

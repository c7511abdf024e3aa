"""Delta coding of the times of buckets: differences between neighbours, seven bits per byte.

Neighbouring buckets have close times, so most differences take one byte or two (section 3 of the paper).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.synopses.arrays import Ints

_BITS = 7


def encode(bases: Ints, offsets: Ints, times: Ints) -> pa.Array:
    """One binary per key: its times, `times[offsets[key]:offsets[key + 1]]`, newest first and none above `bases[key]`."""
    many = np.diff(offsets)
    before = np.r_[0, times[:-1]] if len(times) else times
    before[offsets[:-1][many > 0]] = bases[many > 0]
    steps = before - times
    width = np.ones(len(steps), np.int64)
    for shift in range(_BITS, 64, _BITS):
        width += steps >> shift > 0
    starts = np.cumsum(width) - width
    coded = np.zeros(int(width.sum()), np.uint8)
    for digit in range(int(width.max(initial=0))):
        more = np.flatnonzero(width > digit)
        part = (steps[more] >> (_BITS * digit)) & 127
        coded[starts[more] + digit] = part | np.where(width[more] > digit + 1, 128, 0)
    ends = np.r_[0, np.cumsum(width)][offsets].astype(np.int64)
    return pa.Array.from_buffers(
        pa.large_binary(), len(bases), [None, pa.py_buffer(ends), pa.py_buffer(coded)]
    )


def decode(bases: Ints, coded: pa.Array) -> tuple[Ints, Ints]:
    """The offsets and times that were coded with these bases."""
    bounds = np.frombuffer(coded.buffers()[1], np.int64)[coded.offset : coded.offset + len(coded) + 1]
    if not len(coded) or bounds[0] == bounds[-1]:
        return np.zeros(len(coded) + 1, np.int64), np.empty(0, np.int64)
    raw = np.frombuffer(coded.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
    ends = np.flatnonzero(raw < 128)
    starts = np.r_[0, ends[:-1] + 1]
    width = ends - starts + 1
    steps = np.zeros(len(ends), np.int64)
    for digit in range(int(width.max())):
        more = np.flatnonzero(width > digit)
        steps[more] |= (raw[starts[more] + digit].astype(np.int64) & 127) << (_BITS * digit)
    offsets = np.searchsorted(ends, bounds - bounds[0])
    many = np.diff(offsets)
    distance = np.cumsum(steps)
    earlier = np.r_[0, distance][offsets[:-1]]
    return offsets, np.repeat(bases + earlier, many) - distance

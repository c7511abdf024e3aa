"""How do the times of buckets lie in few bytes? As differences from one to the next, seven bits a byte.

Neighbouring buckets are near each other, so most differences take one byte or two: the delta coding of the paper's section 3.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.synopses.rows.arrays import Ints

_BITS = 7


def encode(bases: Ints, offsets: Ints, times: Ints) -> pa.Array:
    """One binary a key: its times, `times[offsets[key]:offsets[key + 1]]`, newest first and none above `bases[key]`."""
    many = np.diff(offsets)
    before = np.r_[0, times[:-1]] if len(times) else times
    before[offsets[:-1][many > 0]] = bases[many > 0]
    steps = before - times
    width = np.ones(len(steps), np.int64)
    for shift in range(_BITS, 64, _BITS):
        width += steps >> shift > 0
    starts = np.cumsum(width) - width
    found = np.zeros(int(width.sum()), np.uint8)
    for place in range(int(width.max(initial=0))):
        more = np.flatnonzero(width > place)
        part = (steps[more] >> (_BITS * place)) & 127
        found[starts[more] + place] = part | np.where(width[more] > place + 1, 128, 0)
    ends = np.r_[0, np.cumsum(width)][offsets].astype(np.int64)
    return pa.Array.from_buffers(
        pa.large_binary(), len(bases), [None, pa.py_buffer(ends), pa.py_buffer(found)]
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
    for place in range(int(width.max())):
        more = np.flatnonzero(width > place)
        steps[more] |= (raw[starts[more] + place].astype(np.int64) & 127) << (_BITS * place)
    offsets = np.searchsorted(ends, bounds - bounds[0])
    many = np.diff(offsets)
    gone = np.cumsum(steps)
    earlier = np.r_[0, gone][offsets[:-1]]
    return offsets, np.repeat(bases + earlier, many) - gone

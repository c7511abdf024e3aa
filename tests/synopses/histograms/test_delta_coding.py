"""Times of buckets come back from their bytes as they went in, and take few."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.synopses.histograms.delta_coding import decode, encode


@given(st.lists(st.lists(st.integers(0, 2**60), max_size=8), max_size=6), st.integers(0, 3))
def test_times_survive_being_coded(keys: list[list[int]], gap: int) -> None:
    newest_first = [sorted(times, reverse=True) for times in keys]
    offsets = np.r_[0, np.cumsum([len(times) for times in keys], dtype=np.int64)]
    times = np.array([time - 2**59 for key in newest_first for time in key], np.int64)
    bases = np.array([(key[0] if key else 7) - 2**59 + gap for key in newest_first], np.int64)
    coded = encode(bases, offsets, times)
    for start in range(len(keys) + 1):
        found_offsets, decoded = decode(bases[start:], coded[start:])
        assert decoded.tolist() == times[offsets[start] :].tolist()
        assert (found_offsets == offsets[start:] - offsets[start]).all()


def test_neighbouring_times_take_a_byte_or_two_instead_of_eight() -> None:
    times = np.cumsum(np.random.default_rng(1).integers(0, 200, 10_000))[::-1].copy()
    coded = encode(times[:1], np.array([0, len(times)]), times)
    assert len(coded[0].as_py()) < 1.5 * len(times)

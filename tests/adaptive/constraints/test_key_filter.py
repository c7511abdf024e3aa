"""The filter of spilled keys: no key that is there is missed, few others pass, also of a part of the slots and of united filters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.key_filter import KeyFilter


def slots_of(hashes: np.ndarray) -> np.ndarray:
    return (hashes.view(np.uint64) % np.uint64(256)).astype(np.int16)


def filter_of(hashes: np.ndarray) -> KeyFilter:
    return KeyFilter.of(hashes, slots_of(hashes))


KEYS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300).map(lambda keys: np.array(keys, np.int64))


@given(there=KEYS, others=KEYS, slot=st.integers(0, 255))
def test_every_key_that_is_there_passes(there: np.ndarray, others: np.ndarray, slot: int) -> None:
    keys = filter_of(there)
    assert keys.may_have(there, slots_of(there)).all()
    of_slot = keys.slots == slot
    part = KeyFilter(keys.slots[of_slot], keys.words[of_slot])
    own = there[slots_of(there) == slot]
    assert part.may_have(own, slots_of(own)).all()
    both = keys.united(filter_of(others))
    assert both.may_have(np.concatenate([there, others]), slots_of(np.concatenate([there, others]))).all()
    assert len(both.words) <= len(keys.words) + len(filter_of(others).words)


@pytest.mark.parametrize("rows", [100, 5_000, 300_000])
def test_few_other_keys_pass_from_few_bytes(rows: int) -> None:
    drawn = np.random.default_rng(rows).integers(-(2**63), 2**63 - 1, 2 * rows)
    keys, others = filter_of(drawn[:rows]), drawn[rows:]
    assert keys.may_have(others, slots_of(others)).mean() < 0.04
    assert keys.words.nbytes <= max(8 * 256, 2.6 * rows)


def test_slots_without_rows_have_no_key() -> None:
    keys = filter_of(np.array([256 * 7 + 3], np.int64))
    asked = np.array([3, 4], np.int64)
    assert not keys.may_have(asked[1:], slots_of(asked[1:])).any()
    assert filter_of(np.empty(0, np.int64)).may_have(asked, slots_of(asked)).tolist() == [False, False]

"""Hashes of texts: those of pandas, by which the slots of stored state were chosen, also without pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.group_codes import SLOTS, slot_of_name
from headrace.operators.base.text_hash import hash_of_text, hashes_of_texts


@given(st.text(max_size=40).filter(lambda text: text.isprintable()))
def test_a_single_text_has_the_hash_of_pandas(text: str) -> None:
    expected = int(pd.util.hash_array(np.array([text], object), categorize=False)[0])
    assert hash_of_text(text) == expected == int(hashes_of_texts(np.array([text], object))[0])


def test_the_slots_of_names_never_change() -> None:
    assert [slot_of_name(name) for name in ("", "dear", "a name of more than eight bytes", "größe")] == [
        int(pd.util.hash_array(np.array([name], object), categorize=False)[0] % SLOTS)
        for name in ("", "dear", "a name of more than eight bytes", "größe")
    ]

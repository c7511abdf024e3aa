"""The entries of an archive list that may have rows of a part of the time, found by bisection."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.runtime.backfill.archive_entries import ArchiveEntry, spanning
from headrace.store.logs import radix_list
from headrace.store.logs.radix_list import RadixList


@given(
    greatest=st.lists(st.integers(0, 100), min_size=1, max_size=60),
    dropped=st.integers(0, 60),
    bounds=st.tuples(st.integers(-5, 105), st.integers(-5, 105)),
    old=st.booleans(),
)
@example(greatest=[50] + 20 * [1], dropped=0, bounds=(40, 60), old=False)
@example(greatest=20 * [1] + [50, 50], dropped=0, bounds=(0, 20), old=False)
def test_no_entry_with_rows_of_the_time_is_left_out_and_few_others_are_in(
    greatest: list[int], dropped: int, bounds: tuple[int, int], old: bool
) -> None:
    """Greatest event times go back and forth, punctuation does not; entries of earlier versions have no greatest one so far."""
    latest, (begin, end) = list(accumulate(greatest, max)), sorted(bounds)
    before = [0, *(max(at - 7, 0) for at in latest)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(radix_list, "FANOUT", 3)
        files: dict[str, bytes] = {}

        def write(data: bytes) -> str:
            files[f"{len(files)}"] = data
            return f"{len(files) - 1}"

        entries = [
            ArchiveEntry(
                number, (), (), (), 1, 0, before[number], 0, at, latest=None if old else latest[number]
            )
            for number, at in enumerate(greatest)
        ]
        listed = RadixList().append([entry.as_json() for entry in entries], write)
        listed = listed.drop_before(min(dropped, len(greatest)))
        asked = spanning(listed, begin, end, files.__getitem__)
        needed = [
            number
            for number in range(listed.start, listed.length)
            if greatest[number] >= begin and before[number] <= end
        ]
        assert set(needed) <= set(asked)
        assert not old or not asked or asked.start == listed.start
        if not old:
            assert all(latest[number] >= begin and before[number] <= end for number in asked)

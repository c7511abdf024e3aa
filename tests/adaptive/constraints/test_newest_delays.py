"""The newest delays against a list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.newest_delays import NewestDelays


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 5), st.integers(0, 4))), max_size=60))
def test_sums_and_the_largest_are_those_of_a_list(steps: list[tuple[int, int] | None]) -> None:
    """None leaves out the oldest. Delays repeat."""
    newest, known = NewestDelays(), list[tuple[int, int]]()
    for step in steps:
        if step is not None:
            newest.add(*step)
            known.append(step)
        elif known:
            newest.leave_oldest()
            known.pop(0)
        assert (newest.epochs, newest.pairs) == (len(known), sum(pairs for pairs, _ in known))
        assert newest.largest == max((delay for _, delay in known), default=0)
        if known:
            assert newest.oldest == known[0][0]


def test_the_largest_of_many_epochs_is_known_without_reading_them() -> None:
    """After falling delays all of them could be the largest next; after a large one no earlier one could."""
    newest = NewestDelays()
    for delay in range(1000, 0, -1):
        newest.add(1, delay)
    assert len(newest._descending) == 1000
    newest.add(1, 5000)
    assert list(newest._descending) == [5000]

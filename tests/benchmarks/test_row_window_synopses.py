"""SWJ finds what loops over windows of the last rows find, and stores what the thesis counts: rows that pass, and placeholders for others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.row_window_synopses import RowsSynopsis, Swj


@given(data=st.data(), windows=st.tuples(*[st.integers(1, 5)] * 3))
def test_results_are_those_of_loops_over_the_last_rows_that_pass(
    data: st.DataObject, windows: tuple[int, int, int]
) -> None:
    """A window counts rows that fail too: without placeholders it would reach further back."""
    swj, every = Swj(windows), [list[tuple[int, int, bool]]() for _ in windows]
    for _ in range(data.draw(st.integers(1, 25), "rows")):
        stream, passes = data.draw(st.integers(0, 2)), data.draw(st.booleans())
        one, other = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
        every[stream].append((one, other, passes))
        keys = [np.array([one]), np.array([other])] if stream == 0 else [np.array([one])]
        found = swj.arrive(stream, keys, np.array([passes]))
        held = [
            [row for row in rows[-window:] if row[2]] for rows, window in zip(every, windows, strict=True)
        ]
        held[stream] = [every[stream][-1]] if passes else []
        assert found == sum(
            1 for a in held[0] for b in held[1] for c in held[2] if a[0] == b[0] and a[1] == c[0]
        )


def test_a_filter_that_cannot_be_pushed_below_the_window_halves_what_is_stored() -> None:
    """Q11c: S1 [Rows 50,000] AND S1.B > 10, of which half pass: 25,000 rows and as many placeholders."""
    synopsis = RowsSynopsis(50_000)
    for _ in range(8):
        synopsis.add(np.arange(10_000), np.arange(10_000) % 2 == 0)
    assert (synopsis.stored, synopsis.placeholders) == (25_000, 25_000)


def test_the_plateau_of_experiment_6_1() -> None:
    """Arrivals 5:1:1, filters of a half on the two small ones, [Rows 50000]: the first window is full at 70,000 rows, all at 350,000, and
    from there 50,000 + 2 * 25,000 rows are stored.
    """
    swj, sizes = Swj((50_000, 50_000, 50_000)), []
    half = np.arange(1000) % 2 == 0
    for _ in range(60):
        swj.synopses[0].add(np.arange(5000), np.ones(5000, bool))
        for stream in (1, 2):
            swj.synopses[stream].add(np.arange(1000), half)
        sizes.append((swj.synopses[0].stored, *swj.stored))
    assert [row[0] for row in sizes].index(50_000) + 1 == 70_000 // 7000
    assert [row[1] for row in sizes].index(100_000) + 1 == 350_000 // 7000
    assert sizes[-1] == (50_000, 100_000, 50_000)

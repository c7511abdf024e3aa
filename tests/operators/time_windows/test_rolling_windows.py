"""Rolling windows over intervals of panes equal windows combined from their panes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.windows.window import TimeSlide
from headrace.operators.window_assembly import assemble
from headrace.time import SECOND
from tests.operators.time_windows.test_pane_aggregate import both, query, rows


@given(data=st.data())
def test_many_windows_at_once_are_each_what_the_reference_says(data: st.DataObject) -> None:
    slide = data.draw(st.integers(1, 4))
    window = TimeSlide(data.draw(st.integers(1, 4 * slide)) * SECOND, slide * SECOND)
    times = data.draw(st.lists(st.integers(-20, 200), min_size=1, max_size=25))
    keys = data.draw(st.lists(st.sampled_from(("a", "b", "c")), min_size=len(times), max_size=len(times)))
    generated = rows(
        [at * SECOND for at in times],
        [{"k": k, "big": at, "y": 0.5 * at} for k, at in zip(keys, times, strict=True)],
    )
    calls = [
        (name, column, False)
        for name, column in (("count", None), ("sum", "big"), ("min", "big"), ("max", "k"), ("avg", "y"))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_ROLLED_WINDOWS", data.draw(st.integers(9, 60)))
        answered, right = both(query(window, ("k",), calls, bounds=True), [generated], slack=0)
    assert answered == right


@pytest.mark.parametrize("length", [1, 2, 5, 7])
def test_a_long_epoch_of_short_windows_is_rolled_over(length: int) -> None:
    stretches: list[int] = []
    original = assemble.rolling

    def spy(*arguments: Any) -> Any:
        stretches.append(arguments[-1])
        return original(*arguments)

    generated = rows(
        [at * SECOND for at in range(300)], [{"k": "ab"[at % 2], "big": at} for at in range(300)]
    )
    wanted = query(TimeSlide(length * SECOND, 2 * SECOND), ("k",), [("sum", "big", False)], bounds=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "rolling", spy)
        patch.setattr(assemble, "_ROLLED_WINDOWS", 40)
        answered, right = both(wanted, [generated], slack=0)
    assert answered == right
    if length <= 2:
        assert not stretches, "a window that is its pane is emitted from the pane's rows"
    else:
        assert len(stretches) >= 3


def test_windows_of_two_panes_are_made_by_the_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[int] = []
    original = assemble._chunk

    def spy(*arguments: Any) -> Any:
        chunks.append(len(arguments[3]))
        return original(*arguments)

    monkeypatch.setattr(assemble, "_chunk", spy)
    generated = rows([at * SECOND for at in range(3000)], [{"k": "a", "big": at} for at in range(3000)])
    wanted = query(TimeSlide(2 * SECOND, SECOND), ("k",), [("max", "big", False)], bounds=True)
    answered, right = both(wanted, [generated], slack=0)
    assert answered == right
    assert max(chunks) > 2000, "in chunks of 64 they took forty times as long"


def test_years_of_nothing_between_two_rows_are_skipped() -> None:
    generated = rows([0, 100_000_000 * SECOND], [{"k": "a"}, {"k": "b"}])
    wanted = query(TimeSlide(3 * SECOND, SECOND), ("k",), [("count", None, False)], bounds=True)
    answered, right = both(wanted, [generated], slack=0)
    assert len(right) == 6
    assert answered == right


def test_sparse_groups_are_not_made_dense() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_DENSE_CELLS", 0)
        patch.setattr(assemble, "rolling", None)  # calling it would fail
        generated = rows([at * SECOND for at in range(40)], [{"k": str(at)} for at in range(40)])
        wanted = query(TimeSlide(3 * SECOND, SECOND), ("k",), [("count", None, False)], bounds=True)
        answered, right = both(wanted, [generated], slack=0)
    assert answered == right

"""When standing tasks are worth their cores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.runtime.messages.task_messages import PaneBackfill, ScanMessage, Split
from headrace.runtime.spark.standing.pace import Pace, is_small

PANES = PaneBackfill(None, "q1", 0, 0, ())  # type: ignore[arg-type]
SCAN = ScanMessage("home", "plan", 1, 0, (), {}, (0,), ())


def paced(*epochs: tuple[float, float, bool]) -> Pace:
    """After epochs (began, ended, small)."""
    pace = Pace()
    for began, ended, small in epochs:
        pace.saw(small=small, began=began, ended=ended)
    return pace


@pytest.mark.parametrize(
    ("epochs", "now", "is_due"),
    [
        ([], 0.0, False),
        ([(0.0, 0.1, True)], 0.2, False),
        ([(0.0, 0.1, True), (0.2, 0.3, True)], 0.4, True),
        ([(0.0, 0.1, True), (0.2, 0.3, True)], 2.3, True),
        ([(0.0, 0.1, True), (0.2, 0.3, True)], 2.4, False),  # the next one is long after
        ([(0.0, 0.1, True), (3.0, 3.1, True)], 3.2, False),
        ([(0.0, 0.1, True), (0.2, 0.3, False)], 0.4, False),  # a large one
        ([(0.0, 0.1, True), (0.2, 0.9, True)], 1.0, False),  # a long one
        ([(0.0, 0.1, False), (0.2, 0.3, True), (0.4, 0.5, True)], 0.6, True),
        ([(0.0, 9.0, True), (9.1, 9.2, True), (9.3, 9.4, True)], 9.5, True),
    ],
)
def test_three_small_and_short_epochs_in_a_row_are_frequent(
    epochs: list[tuple[float, float, bool]], now: float, is_due: bool
) -> None:
    assert paced(*epochs).is_due(now) is is_due


@pytest.mark.parametrize(("took", "was_long"), [(0.5, False), (0.51, True)])
def test_an_epoch_with_few_rows_may_take_long(took: float, was_long: bool) -> None:
    assert paced((0.0, 9.0, True), (10.0, 10.0 + took, True)).was_long is was_long


def test_each_failure_in_a_row_doubles_the_wait() -> None:
    pace, waits = Pace(), []
    for _ in range(9):
        pace.failed(100.0)
        waits.append(pace.not_before - 100.0)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    for _ in range(3):
        pace.saw(small=True, began=399.0, ended=399.0)
    assert not pace.is_due(399.9)
    assert pace.is_due(400.0)


def test_failures_count_no_more_after_a_hundred_epochs() -> None:
    pace = Pace()
    for _ in range(4):
        pace.failed(0.0)
    for _ in range(99):
        pace.succeeded()
    assert pace.failures == 4
    pace.succeeded()
    assert pace.failures == 0
    pace.failed(10.0)
    assert pace.not_before == 15.0


@pytest.mark.parametrize(
    ("scans", "small"),
    [
        ([], True),
        ([SCAN], True),
        ([replace(SCAN, weight=400_000)], True),
        ([replace(SCAN, weight=400_001)], False),
        ([SCAN, replace(SCAN, replay=True)], True),
        ([replace(SCAN, splits=(Split("s", 0, pane_backfill=PANES),))], False),
    ],
)
def test_a_small_epoch_has_few_rows_and_copies_no_panes(scans: list[ScanMessage], small: bool) -> None:
    assert is_small(scans) is small

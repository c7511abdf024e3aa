"""A rate that is the noise of a difference is left out of a report, and said to be."""

from __future__ import annotations

import pytest

from benchmarks.suite.queries import tells


@pytest.mark.parametrize(
    ("seconds", "idle", "told"), [(-0.4, 3.0, False), (0.2, 3.0, False), (1.6, 3.0, True), (9.0, 3.0, True)]
)
def test_a_run_tells_a_rate_when_it_took_its_time_beyond_an_empty_one(
    seconds: float, idle: float, told: bool
) -> None:
    assert tells({"seconds": seconds, "idle": idle}) is told


def test_a_run_of_which_nothing_is_subtracted_always_tells() -> None:
    assert tells({"seconds": 0.01})

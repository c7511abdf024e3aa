"""Listeners to epochs: an epoch is published before they are called, so an error in one ends neither the loop nor the others."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.observation import EpochObservation
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.hub.state_budget import StateBudget, Step
from tests.runtime.delivery.actions.receiving import until

STREAM = "CREATE STREAM s (a BIGINT, t TIMESTAMP) USING push TIMESTAMP BY t"
ROW = [{"a": 1, "t": datetime(2024, 1, 1, tzinfo=UTC)}]


def test_the_loop_continues_after_an_error_in_a_listener(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def fails(_: EpochObservation) -> None:
        raise KeyError("q")

    with open_hub(tmp_path / "home", local=True) as hub, caplog.at_level(logging.ERROR):
        hub.execute(STREAM)
        hub.on_epoch(fails)
        hub.on_epoch(lambda epoch: seen.append(epoch.rows))
        hub.start()
        for rows in (1, 2):
            hub.push("s", ROW)
            until(lambda rows=rows: sum(seen) == rows)
        assert hub.loop.is_running
        hub.stop()
    assert "a listener to epochs failed" in caplog.text
    assert "KeyError: 'q'" in caplog.text


def test_a_query_that_is_dropped_before_it_stores_less_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next epoch chooses again among the queries that are left."""
    take = StateBudget._take
    kept = "CREATE QUERY {} OPTIONS (materialize 'complete') AS SELECT a FROM s WHERE a > -5 BEGIN NOW - INTERVAL 1 HOUR END NOW"

    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM)
        for name in ("gone", "left"):
            hub.execute(kept.format(name))

        def after_a_drop(budget: StateBudget, steps: list[Step]) -> None:
            if hub.catalog.query("gone") is not None:
                hub.execute("DROP QUERY gone")
                steps = [Step(steps[0].epoch, "gone", "partial", steps[0].state_bytes)]
            take(budget, steps)

        monkeypatch.setattr(StateBudget, "_take", after_a_drop)
        budget = StateBudget(hub, 1)
        for _ in range(12):
            hub.push("s", ROW)
            hub.loop.drain()
            assert hub.last is not None
            budget.saw(hub.last)
        assert {step.query for step in budget.steps} == {"left"}

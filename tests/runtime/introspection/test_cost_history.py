"""The cost of a query epoch by epoch is what EXPLAIN attributes to it over all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.cost_history import CostPoint, cost_history
from headrace.runtime.introspection.explain import explained
from headrace.time import SECOND

ALERT = "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v > {} GROUP BY k"


def test_costs_of_epochs_are_those_that_explain_attributes(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register_many({f"a{n}": ALERT.format(n) for n in range(0, 50, 10)})
        hub.register("SELECT SUM(n) AS n FROM (SELECT k, n FROM a0) AS inner_one [RANGE 1 MINUTE]", "nested")
        for start in (0, 40):
            hub.push(
                "s", [{"k": "ab"[at % 2], "v": at % 50, "at": at * SECOND} for at in range(start, start + 40)]
            )
            assert hub.loop.step() is not None
            graph = explained(hub.home)
            assert graph.seen is not None
            newest = {cost.name: cost_history(hub.home, graph, cost.name, 1) for cost in graph.costs}
            if start == 0:
                every = {cost.name: cost_history(hub.home, graph, cost.name, 100) for cost in graph.costs}
                assert graph.seen.epochs == 1
                for cost in graph.costs:
                    (point,) = every[cost.name]
                    assert point == CostPoint(
                        graph.seen.last,
                        pytest.approx(cost.nanoseconds),  # type: ignore[arg-type]
                        cost.seen.rows_in,
                        cost.seen.rows_kept,
                        cost.seen.results,
                        cost.state_rows,
                    )
                assert len({point.nanoseconds for (point,) in every.values()}) > 3
        assert [len(points) for points in newest.values()] == [1] * 6
        assert len(cost_history(hub.home, graph, "a0", 100)) == graph.seen.epochs

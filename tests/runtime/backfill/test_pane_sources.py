"""A registration asks only the queries over its own rows for panes, however many others there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.language.binder.query_binder import bind_query
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.runtime.backfill import pane_backfill
from headrace.runtime.backfill.pane_sources import PaneSources
from headrace.runtime.hub.opening import open_hub
from headrace.time import SECOND
from tests.language.catalog import Catalog

BIDS = "SELECT auction, COUNT(*) AS n FROM bids [RANGE 1 HOUR SLIDE 1 HOUR] WHERE price > {} GROUP BY auction"
ALERT = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE {} SECONDS] WHERE v > {} GROUP BY k"


def operator(number: int, condition: int) -> PaneAggregate:
    made = lower(f"n{number}", bind_query(BIDS.format(condition), Catalog()), f"q{number}")
    assert isinstance(made, PaneAggregate)
    return made


def test_donors_follow_plans_by_what_changes() -> None:
    known = PaneSources()
    first = {f"q{n}": operator(n, n % 3) for n in range(9)}
    known.follow("one", first)
    assert [each.id for each in known.over_rows_of(operator(20, 1))] == ["q1", "q4", "q7"]
    assert not known.over_rows_of(operator(20, 5))
    second = {name: each for name, each in first.items() if name not in {"q4", "q8"}} | {"q9": operator(9, 1)}
    second["q1"] = replace(second["q1"], query="renamed")
    known.follow("two", second)
    assert {each.id: each.query for each in known.over_rows_of(operator(20, 1))} == {
        "q1": "renamed",
        "q7": "n7",
        "q9": "n9",
    }
    known.follow("three", {})
    assert not known.over_rows_of(operator(20, 1))


def test_one_more_query_asks_only_those_over_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    can_give = pane_backfill.can_give

    def asking(source_operator: PaneAggregate, new_operator: PaneAggregate) -> bool:
        asked.append(source_operator.query)
        return can_give(source_operator, new_operator)

    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push OPTIONS (archive 'none') TIMESTAMP BY at"
        )
        hub.register_many({f"a{n}": ALERT.format(60, n) for n in range(60)})
        rows: list[dict[str, Any]] = [{"k": "a", "v": each, "at": each * SECOND} for each in range(90)]
        hub.push("s", rows)
        hub.loop.drain()
        monkeypatch.setattr(pane_backfill, "can_give", asking)
        hub.register(ALERT.format(60, 70), "other")
        assert asked == []
        hub.register(ALERT.format(60, 30).replace("COUNT(*)", "SUM(1)"), "alike")
        assert asked == ["a30"]
        hub.loop.drain()
        hub.register(ALERT.format(60, 70).replace("AS n", "AS m"), "again")
        assert asked == ["a30", "other"]
    with open_hub(tmp_path / "home", local=True) as hub:  # who comes after a restart finds them too
        asked.clear()
        hub.register(ALERT.format(60, 30).replace("AS n", "AS o"), "later")
        assert asked[0] == "a30"

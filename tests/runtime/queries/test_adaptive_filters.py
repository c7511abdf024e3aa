"""Conjunctions of costly conditions in an order that adapts from epoch to epoch: answers, what is recorded, and what is shown."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.errors import UserError
from headrace.observation import FilterObservation
from headrace.runtime.epoch import task_orders
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.plan.adaptive.filter_orders import FILTER_ORDERS, FilterOrders, filter_orders

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
EPOCHS, ROWS = 6, 400
QUERY = "SELECT v, t FROM s WHERE t RLIKE 'a[0-4]' AND t RLIKE 'b[0-4]' AND odd(v) AND v >= 0"
WINDOWS = "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 60 SECONDS SLIDE 30 SECONDS] WHERE "


def rows(epoch: int) -> list[dict[str, Any]]:
    """In the first epochs nearly all rows lack `b[0-4]`, then nearly all lack `a[0-4]`."""
    drawn = random.Random(epoch)

    def digit(often: bool) -> int:
        return drawn.randrange(5) if drawn.random() < (0.9 if often else 0.1) else drawn.randrange(5, 10)

    def row(number: int) -> dict[str, Any]:
        a, b = digit(epoch < EPOCHS // 2), digit(epoch >= EPOCHS // 2)
        at = START + dt.timedelta(seconds=epoch * ROWS + number)
        return {"at": at, "v": drawn.randrange(-3, 30), "t": f"a{a} b{b}"}

    return [row(number) for number in range(ROWS)]


def odd(value: int) -> bool | None:
    """Fails on 7, NULL on 8."""
    if value == 7:
        raise ValueError("seven")
    return None if value == 8 else value % 2 == 1


def prepared(path: Path) -> Hub:
    hub = open_hub(path, local=True)
    hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT, t STRING) USING push TIMESTAMP BY at")
    hub.register_function("odd", odd, ["BIGINT"], "BOOLEAN")
    return hub


def expected() -> tuple[list[tuple[int, str]], int]:
    """The rows that are kept, and the number of those that are rejected."""
    kept, rejected = [], 0
    for row in (row for epoch in range(EPOCHS) for row in rows(epoch)):
        v, text = row["v"], row["t"]
        others = text[1] in "01234" and text[4] in "01234" and v >= 0
        kept += [(v, text)] if others and v not in (7, 8) and v % 2 else []
        rejected += others and v == 7
    return kept, rejected


def answers(hub: Hub) -> tuple[list[tuple[int, str]], int]:
    values = hub.query("q").history().to_pylist()
    return [(row["v"], row["t"]) for row in values], hub.status()["rejected"].get("q", 0)


def orders(hub: Hub) -> list[tuple[int, ...]]:
    return [chosen.order for chosen in filter_orders(hub.home.latest()).values()]


def run(hub: Hub, epochs: range) -> list[tuple[int, ...]]:
    """Run epochs; the order after each."""
    seen = []
    for epoch in epochs:
        hub.push("s", rows(epoch))
        hub.run_once()
        seen += orders(hub)
    return seen


@pytest.fixture
def _whole_samples(monkeypatch) -> None:
    """Every row is sampled, a window is as long as an epoch, and no clock decides."""
    monkeypatch.setattr(FilterObservation, "costs", lambda *_: (100.0, 100.0, 2000.0, 5.0))
    for module in ("operators.rows.ordered_filter", "adaptive.settling.settled_order"):
        monkeypatch.setattr(f"headrace.{module}.UNSETTLED_SHARE", 1)
    monkeypatch.setattr("headrace.adaptive.settling.settled_order.BUDGET", 99)
    monkeypatch.setattr("headrace.adaptive.settling.settled_order.WINDOW", ROWS)


@pytest.mark.usefixtures("_whole_samples")
def test_the_order_follows_the_data_and_answers_do_not(tmp_path: Path) -> None:
    with prepared(tmp_path / "home") as hub:
        hub.register(QUERY, "q")
        seen = run(hub, range(EPOCHS))
        assert answers(hub) == expected()
    first, last = seen[EPOCHS // 2 - 1], seen[-1]
    assert first.index(1) < first.index(0)
    assert last.index(0) < last.index(1)


@pytest.mark.parametrize("seed", range(4))
def test_answers_and_rejects_are_the_same_under_random_orders(tmp_path: Path, monkeypatch, seed: int) -> None:
    """Another order for each epoch, in a query of rows and one of windows; a restart after each third epoch."""
    drawn = random.Random(seed)

    def shuffled(manifest: Any) -> dict[str, OrderInForce]:
        orders = {name: chosen.order for name, chosen in filter_orders(manifest).items()}
        return {
            name: OrderInForce(tuple(drawn.sample(order, len(order))), 1 / 16)
            for name, order in orders.items()
        }

    with prepared(tmp_path / "plain") as hub:
        hub.register(WINDOWS + QUERY.partition("WHERE ")[2], "w")
        run(hub, range(EPOCHS))
        windows = hub.query("w").history().to_pylist()
    monkeypatch.setattr(task_orders, "filter_orders", shuffled)
    with prepared(tmp_path / "home") as hub:
        hub.register(QUERY, "q")
        hub.register(WINDOWS + QUERY.partition("WHERE ")[2], "w")
        run(hub, range(3))
    with open_hub(tmp_path / "home", local=True) as hub:
        run(hub, range(3, EPOCHS))
        assert answers(hub) == expected()
        assert hub.query("w").history().to_pylist() == windows


def test_an_order_is_in_the_manifest_and_there_after_a_restart(tmp_path: Path) -> None:
    with prepared(tmp_path / "home") as hub:
        hub.register(QUERY, "q")
        run(hub, range(2))
        before = hub.home.latest().facts[FILTER_ORDERS]
        assert [sorted(order) for _, order, *_ in before] == [[0, 1, 2, 3]]
    with open_hub(tmp_path / "home", local=True) as hub:
        assert hub.home.latest().facts[FILTER_ORDERS] == before
        run(hub, range(2, 3))
        log = hub.execute("EXPLAIN ADAPTIVE q")[0].message
    assert f"order {', '.join(str(index + 1) for index in before[0][1])}" in log


def test_an_epoch_that_is_run_again_evaluates_in_the_same_order(tmp_path: Path, monkeypatch) -> None:
    """The tasks of both attempts get the order that the manifest before has, whatever was observed by the first."""
    with prepared(tmp_path / "home") as hub:
        hub.register(QUERY, "q")
        run(hub, range(1))
        given: list[dict[str, OrderInForce]] = []
        plain, failures = LocalExecutor.run, [True]

        def failing(self: Any, scans: Any, states: Any) -> Any:
            receipts = plain(self, scans, states)
            given.extend(scan.filter_orders for scan in scans)
            if scans and failures:
                failures.pop()
                raise OSError("lost")
            return receipts

        monkeypatch.setattr(LocalExecutor, "run", failing)
        hub.push("s", rows(1))
        hub.run_once()
        assert len(given) == 2
        assert given[0] == given[1] != {}


@pytest.mark.usefixtures("_whole_samples")
def test_explain_adaptive_shows_terms_orders_and_the_reason_of_a_change(tmp_path: Path) -> None:
    with prepared(tmp_path / "home") as hub:
        hub.register(QUERY, "q")
        run(hub, range(EPOCHS))
        lines = hub.execute("EXPLAIN ADAPTIVE q")[0].message.splitlines()
        with pytest.raises(UserError, match="nobody"):
            hub.execute("EXPLAIN ADAPTIVE nobody")
    assert lines[0].endswith("of 4 terms, in an order that adapts (A-Greedy):")
    assert sum("rlike(t, 'a[0-4]')" in line and "drops" in line for line in lines) == 1
    assert sum(line.startswith("  time: ") and line.count(" %") == 4 for line in lines) == 1
    changes = [line for line in lines if ", before term" in line]
    assert changes
    assert "terms evaluated a row" in "\n".join(lines)


@pytest.mark.usefixtures("_whole_samples")
def test_the_log_has_what_each_choice_took(tmp_path: Path, monkeypatch) -> None:
    """By a clock of which each reading is a second later: an optimization is counted in the epochs after which the order was violated."""
    seconds = itertools.count()
    clock = lambda: 1_000_000_000 * next(seconds)  # noqa: E731
    monkeypatch.setattr("headrace.adaptive.settling.settled_order.perf_counter_ns", clock)
    with prepared(tmp_path / "home") as hub:
        hub.register(QUERY, "q")
        hub.execute("CREATE STREAM other (v BIGINT) USING push; CREATE QUERY idle AS SELECT v FROM other")
        seen = run(hub, range(EPOCHS))
        hub.push("other", [{"v": 1}])
        hub.run_once()
        lines = last_lines(tmp_path / "home", EPOCHS + 9)
        text = hub.execute("EXPLAIN ADAPTIVE q")[0].message
    spent = [tuple(part) for line in lines for part in line.get("choices", {}).values()]
    assert len(spent) == EPOCHS, "none of the epoch without a row of the stream"
    assert "choices" not in lines[-1]
    changed = sum(after != before for before, after in pairwise(seen))
    assert {window for window, _ in spent} == {1_000_000_000}
    assert changed <= sum(again == 1_000_000_000 for _, again in spent) < EPOCHS
    assert "profile windows" in text
    assert sum(window + again for window, again in spent) >= EPOCHS * 1_000_000_000


def test_a_query_without_costly_conditions_does_not_adapt(tmp_path: Path) -> None:
    with prepared(tmp_path / "home") as hub:
        hub.register("SELECT v FROM s WHERE v > 3 AND t = 'a' AND v < 9", "q")
        run(hub, range(2))
        assert FILTER_ORDERS not in hub.home.latest().facts
        assert "nothing in q adapts" in hub.execute("EXPLAIN ADAPTIVE q")[0].message


def test_orders_of_few_conjunctions_are_recorded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("headrace.runtime.plan.adaptive.recorded_orders.MOST", 2)
    with prepared(tmp_path / "home") as hub:
        for number in range(3):
            hub.register(f"SELECT v FROM s WHERE t RLIKE 'a{number}' AND t RLIKE 'b'", f"q{number}")
        run(hub, range(1))
        assert len(orders(hub)) == 2


def test_what_was_observed_without_a_sample_changes_nothing() -> None:
    assert FilterOrders().decided(None, {}) is None  # type: ignore[arg-type]

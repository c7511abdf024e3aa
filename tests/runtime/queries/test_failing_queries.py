"""One query fails: the others answer, it is named and suspended with the reason, and it catches up when it is resumed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import QueryFailed
from headrace.operators.base.operator import Advance
from headrace.operators.row_windows.tuple_slides import TupleSlides
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.scan import scan_task
from headrace.time import SECOND

STREAM = (
    "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push OPTIONS (maxAhead '100000 days')"
    " TIMESTAMP BY at"
)


BAD = "SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 1 ROW]"
"""No other query of these tests has this kind of window: its kernels are those that fail."""
REASON = "ArrowCapacityError: array cannot contain more than 2147483646 bytes"


def _full() -> pa.ArrowException:
    return pa.lib.ArrowCapacityError("array cannot contain more than 2147483646 bytes")


@pytest.fixture
def broken_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Arrow raises where results outgrow a column, without the gigabytes: from second 100 on, as windows close."""
    ended = TupleSlides.ended

    def fails(self: Any, runs: Any, deltas: Any, step: Advance) -> Any:
        if min(step.punctuation, step.max_event_time) >= 100 * SECOND:
            raise _full()
        return ended(self, runs, deltas, step)

    monkeypatch.setattr(TupleSlides, "ended", fails)


@pytest.fixture
def broken_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same at the end of the stream."""
    ended = TupleSlides.ended

    def fails(self: Any, runs: Any, deltas: Any, step: Advance) -> Any:
        if step.final:
            raise _full()
        return ended(self, runs, deltas, step)

    monkeypatch.setattr(TupleSlides, "ended", fails)


@pytest.fixture
def broken_scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as rows are scanned, where one has the value 7."""
    scanner = TupleSlides.scanner

    class Fails:
        def __init__(self, inner: Any) -> None:
            self.inner, self.finish = inner, inner.finish

        def add(self, batch: Any) -> None:
            if 7 in batch.columns["v"].to_pylist():
                raise _full()
            self.inner.add(batch)

    monkeypatch.setattr(TupleSlides, "scanner", lambda self, relations: Fails(scanner(self, relations)))


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=2)


def rows(low: int, high: int) -> pa.Table:
    at = pa.array(np.arange(low, high) * SECOND).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"k": ["ab"[n % 2] for n in range(low, high)], "v": range(low, high), "at": at})


def states(hub: Hub) -> dict[str, str]:
    table = hub.execute("SHOW QUERIES")[0].table
    assert table is not None
    return {row["name"]: row["state"] for row in table.to_pylist()}


def test_a_query_with_more_than_can_be_sent_fails_alone_and_catches_up_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_task, "_MANY_ROWS", 1)
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        wide = hub.register("SELECT rpad(k, 2500, ' ') AS w FROM s", "wide")
        count = hub.register("SELECT k, COUNT(*) AS n FROM s GROUP BY k", "count")
        monkeypatch.setattr(scan_task, "MOST_BYTES", 10_000)
        hub.push("s", rows(0, 40))
        hub.catch_up()
        assert [row["n"] for row in count.invoke().to_pylist()] == [20, 20]
        assert states(hub) == {"wide": "failed", "count": "live"}
        assert "more than 10,000" in hub.status()["failed"]["wide"]
        described = hub.execute("DESCRIBE EXTENDED wide")[0].table
        assert described is not None
        assert any("10,000" in str(row["value"]) for row in described.to_pylist())
    with opened(tmp_path) as hub:  # not again, after it is opened
        hub.push("s", rows(40, 50))
        assert [row["n"] for row in hub.query("count").invoke().to_pylist()] == [20, 20]
        hub.catch_up()
        assert [row["n"] for row in hub.query("count").invoke().to_pylist()] == [25, 25]
        monkeypatch.undo()
        hub.execute("RESUME QUERIES WHERE state = 'failed'")
        hub.catch_up()
        assert states(hub) == {"wide": "live", "count": "live"}
        assert hub.status()["failed"] == {}
        wide = hub.query("wide")
        assert [len(row["w"]) for row in wide.invoke().to_pylist()] == [2500] * 50


@pytest.mark.usefixtures("broken_kernel")
def test_a_query_that_fails_as_its_windows_close_is_suspended_and_the_others_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        hub.register(BAD, "bad")
        good = hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND]", "good")
        over = hub.register("SELECT SUM(n) AS n FROM good", "over")
        for low in range(0, 200, 50):
            hub.push("s", rows(low, low + 50))
            hub.catch_up()
        assert good.history().num_rows == 199
        assert over.invoke().to_pylist() == [{"n": 199}]
        assert states(hub) == {"bad": "failed", "good": "live", "over": "live"}
        assert hub.status()["failed"]["bad"] == REASON
        hub.finish(seal=True)
        assert good.history().num_rows == 200


@pytest.mark.usefixtures("broken_end")
@pytest.mark.parametrize("seal", [False, True])
def test_a_query_that_fails_at_the_end_of_the_streams_is_named_and_the_others_end(
    tmp_path: Path, seal: bool
) -> None:
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        hub.register(BAD, "bad")
        good = hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND]", "good")
        hub.push("s", rows(99, 101))
        closing = hub.run_once(seal=seal)
        ended = good.history().num_rows + (closing["good"].num_rows if "good" in closing else 0)
        assert ended == 2
        assert hub.status()["failed"] == {"bad": REASON}
        assert states(hub)["bad"] == ("failed" if seal else "live")


@pytest.mark.usefixtures("broken_scanner")
def test_of_queries_that_scan_together_only_the_one_that_fails_is_left_out(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        for number in range(16):
            hub.register(f"SELECT k, v FROM s WHERE v > {number}", f"q{number}")
        hub.register(f"{BAD} WHERE v > 3", "bad")
        hub.push("s", rows(0, 20))
        hub.catch_up()
        assert {name for name, state in states(hub).items() if state == "failed"} == {"bad"}
        for number in range(16):
            assert hub.query(f"q{number}").invoke().num_rows == 19 - number
        assert hub.query("bad").invoke().num_rows == 0


@pytest.mark.usefixtures("broken_kernel")
def test_a_failed_query_with_another_text_runs_again(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        query = hub.register(BAD, "q")
        hub.push("s", rows(0, 200))
        hub.catch_up()
        assert states(hub) == {"q": "failed"}
        hub.execute("ALTER QUERY q AS SELECT COUNT(*) AS n FROM s")
        hub.catch_up()
        assert states(hub) == {"q": "live"}
        assert query.invoke().to_pylist() == [{"n": 200}]


@pytest.mark.usefixtures("broken_kernel")
def test_a_tested_query_that_fails_says_why() -> None:
    with pytest.raises(QueryFailed, match="cannot contain"):
        hr.test(BAD, s=rows(99, 101))


def test_rows_that_no_kernel_can_hold_are_rejected_with_the_reason_and_the_others_stay(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        queries = {
            "padded": "SELECT rpad(k, CASE WHEN v = 3 THEN 2147483647 ELSE 2 END, ' ') AS t FROM s",
            "before": "SELECT lpad(k, CASE WHEN v = 3 THEN 2147483647 ELSE 2 END, ' ') AS t FROM s",
            "often": "SELECT repeat(k, CASE WHEN v = 3 THEN 2147483647 ELSE 2 END) AS t FROM s",
            "constant": "SELECT repeat('ab', 2147483647) AS t FROM s WHERE v = 3",
            "far": "SELECT DISTINCT date_add(DATE'2024-01-01', 2147483647) AS t FROM s [RANGE 1 DAY]",
        }
        for name, text in queries.items():
            hub.register(text, name)
        hub.push("s", rows(0, 9))
        hub.catch_up()
        counts = {name: hub.query(name).invoke().num_rows for name in queries}
        assert counts == {"padded": 8, "before": 8, "often": 8, "constant": 0, "far": 1}
        assert sorted(hub.status()["rejected"].values()) == [1, 1, 1, 1]
        assert set(states(hub).values()) == {"live"}


@pytest.mark.parametrize("window", ["[RANGE TUMBLING 1 MINUTE]", "[RANGE 1 SECOND]", "[ROWS 3 SLIDE 3]"])
@pytest.mark.parametrize("average", ["AVG(price)", "AVG(DISTINCT price)"])
def test_an_average_of_decimals_that_does_not_fit_rejects_its_group_alone(
    window: str, average: str, tmp_path: Path
) -> None:
    """Of DECIMAL(38, 10) it is a DECIMAL(38, 14), which has four digits fewer before the point."""
    prices = [Decimal(10) ** 27, Decimal(10) ** 27, Decimal("0.5")]
    with opened(tmp_path) as hub:
        hub.execute(
            "CREATE STREAM t (k STRING, price DECIMAL(38, 10), at TIMESTAMP) USING push TIMESTAMP BY at"
        )
        hub.register(f"SELECT k, {average} AS mean FROM t {window} GROUP BY k", "q")
        at = pa.array([0, 1, 2], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        hub.push(
            "t", pa.table({"k": ["a", "a", "b"], "price": pa.array(prices, pa.decimal128(38, 10)), "at": at})
        )
        hub.run_once(seal=True)
        answer = hub.query("q").history().to_pylist()
        assert {(row["k"], row["mean"]) for row in answer} == {("b", Decimal("0.5"))}
        assert hub.status()["rejected"]["q"] > 0
        assert states(hub) == {"q": "live"}


def test_a_date_that_python_does_not_have_is_text_in_a_tested_answer() -> None:
    answer = hr.test("SELECT DISTINCT date_add(DATE'2024-01-01', 2000000000) AS d FROM s", s=rows(0, 2))
    assert answer == [{"d": "+5477838-01-06"}]

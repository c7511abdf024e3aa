"""Aggregates of join sides in the engine: numbers beyond 64 bits, bounded state, few windows at a time, and what is refused them; the
laws of their answers are in tests/laws/test_join_aggregates.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.catalog.catalog import registration
from headrace.errors import UserError
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.join_aggregate import JoinAggregate
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.epoch_planner import make_plan
from headrace.time import BEGINNING, SECOND

SCRIPT = """
CREATE STREAM a (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE STREAM b (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at"""
TUMBLING = "[RANGE TUMBLING 10 SECONDS]"
TWO = f"a x {TUMBLING} JOIN b y {TUMBLING} ON x.k = y.k"
SLIDING = "a x [RANGE 20 SECONDS SLIDE 10 SECONDS] JOIN b y [RANGE 30 SECONDS SLIDE 10 SECONDS] ON x.k = y.k"


LARGE = 2**31 - 1
"""The largest INT."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path / "home", LocalExecutor(), tasks=2)
    hub.execute(SCRIPT)
    yield hub
    hub.close()


def push(hub: Hub, stream: str, k: np.ndarray, v: np.ndarray, at: np.ndarray) -> None:
    """Times are seconds."""
    times = pa.array(at * SECOND, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    hub.push(stream, pa.table({"k": pa.array(k, pa.int64()), "v": pa.array(v, pa.int32()), "at": times}))


def one_key(hub: Hub, rows: int, value: int, at: int) -> None:
    """Rows of one key in both streams."""
    for name in "ab":
        push(hub, name, np.full(rows, 1), np.full(rows, value), np.full(rows, at))


def ended(hub: Hub) -> None:
    """The windows below second 1000 close."""
    one_key(hub, 1, 0, 1000)
    hub.catch_up()


def operator_of(hub: Hub, name: str) -> JoinAggregate:
    operator, _ = hub.operator_and_query(name)
    assert isinstance(operator, JoinAggregate)
    return operator


def test_billions_of_pairs_are_counted_and_averaged_exactly(hub: Hub) -> None:
    """70,000 rows of one key on both sides: 4.9 billion pairs, whose sum is beyond a BIGINT, and is reported."""
    hub.register(f"SELECT COUNT(*) AS n, AVG(x.v) AS m, MAX(y.v) AS t FROM {TWO}", "means")
    hub.register(f"SELECT SUM(x.v) AS s FROM {TWO}", "total")
    hub.register(f"SELECT SUM(x.v) AS s, SUM(-y.v) AS t FROM {TWO} WHERE x.v > 0", "small")
    one_key(hub, 70_000, 2**31 - 1, 5)
    one_key(hub, 1000, 7, 15)
    ended(hub)
    assert hub.query("means").history().to_pylist() == [
        {"n": 70_000**2, "m": 2.0**31 - 1, "t": 2**31 - 1},
        {"n": 1_000_000, "m": 7.0, "t": 7},
    ]
    assert hub.query("total").history().to_pylist() == [{"s": 7_000_000}]
    assert hub.query("small").history().to_pylist() == [{"s": 7_000_000, "t": -7_000_000}]
    assert list(hub.status()["rejected"].values()) == [1, 1]


def test_billions_of_products_are_summed_without_pairs(hub: Hub) -> None:
    """70,000 rows of one key on both sides; of the other key one product of 4.6e18 does not fit an INT, and is reported."""
    hub.register(f"SELECT COUNT(*) AS n, SUM(CAST(x.v AS BIGINT) * y.v) AS s FROM {TWO}", "wide")
    hub.register(f"SELECT x.k, COUNT(*) AS n, SUM(x.v * y.v) AS s FROM {TWO} GROUP BY x.k", "narrow")
    one_key(hub, 70_000, 30_000, 5)
    for name in "ab":
        push(hub, name, np.full(2, 2), np.array([2**31 - 1, 1]), np.full(2, 6))
    ended(hub)
    whole = 70_000**2 * 30_000**2
    assert hub.query("wide").history().to_pylist() == [{"n": 70_000**2 + 4, "s": whole + 2**62}]
    narrow = sorted(hub.query("narrow").history().to_pylist(), key=lambda row: row["k"])
    assert narrow == [{"k": 1, "n": 70_000**2, "s": whole}, {"k": 2, "n": 3, "s": 2**32 - 1}]
    assert list(hub.status()["rejected"].values()) == [1]


def test_billions_of_sums_are_summed_without_pairs(hub: Hub) -> None:
    """70,000 rows of one key on both sides; of the other key one sum of 2 * 10^9 and more does not fit an INT, and is reported."""
    hub.register(
        f"SELECT COUNT(*) AS n, SUM(CAST(x.v AS BIGINT) + y.v) AS s, AVG(x.v - CAST(y.v AS BIGINT)) AS m FROM {TWO}",
        "wide",
    )
    hub.register(f"SELECT x.k, COUNT(*) AS n, SUM(x.v + y.v) AS s FROM {TWO} GROUP BY x.k", "narrow")
    one_key(hub, 70_000, 30_000, 5)
    for name in "ab":
        push(hub, name, np.full(2, 2), np.array([LARGE, 1 - LARGE]), np.full(2, 6))
    ended(hub)
    whole = 70_000**2 * 60_000
    assert hub.query("wide").history().to_pylist() == [{"n": 70_000**2 + 4, "s": whole + 4, "m": 0.0}]
    narrow = sorted(hub.query("narrow").history().to_pylist(), key=lambda row: row["k"])
    assert narrow[0] == {"k": 1, "n": 70_000**2, "s": whole}
    assert narrow[1] == {"k": 2, "n": 2, "s": 2}, "twice the largest, and twice the least, do not fit"
    assert list(hub.status()["rejected"].values()) == [2]


def test_a_product_that_fails_is_rejected_once_however_many_windows_hold_it(hub: Hub) -> None:
    """The windows that end at seconds 20, 30 and 40 hold some of the pairs, and close together."""
    hub.register(f"SELECT x.window_end AS e, COUNT(*) AS n, SUM(x.v * y.v) AS s FROM {SLIDING}", "q")
    for name, times in (("a", (12, 12, 25)), ("b", (15, 15, 5))):
        push(hub, name, np.full(3, 1), np.array([LARGE, 2, 3]), np.array(times))
    ended(hub)
    rows = hub.query("q").history().sort_by("e").to_pylist()
    assert [(row["n"], row["s"]) for row in rows] == [(2, 4 + 6), (4, 4 + 6 + 6 + 9), (1, 6)]
    assert list(hub.status()["rejected"].values()) == [5], "of the largest with itself, 2 and 3"


def test_groups_of_keys_with_and_without_products_that_fail(hub: Hub) -> None:
    """Of key 1 one pair of four fails, of key 2 none; and each pair is one with each of two rows of a third stream."""
    hub.execute("CREATE STREAM c (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at")
    three = f"{TWO} JOIN c z {TUMBLING} ON z.k = x.k"
    aggregates = "COUNT(*) AS n, SUM(x.v * y.v) AS s, MAX(z.v) AS m"
    hub.register(f"SELECT {aggregates} FROM {three}", "whole")
    hub.register(f"SELECT x.v > 0 AS up, {aggregates} FROM {three} GROUP BY x.v > 0", "by_column")
    for name, of_one in (("a", (LARGE, 0)), ("b", (LARGE, 1)), ("c", (7, 8))):
        push(hub, name, np.array([1, 1, 2]), np.array([*of_one, 5]), np.full(3, 5))
    push(hub, "c", np.zeros(1), np.zeros(1), np.full(1, 1000))
    ended(hub)
    assert hub.query("whole").history().to_pylist() == [{"n": 7, "s": 2 * LARGE + 25, "m": 8}]
    by_column = sorted(hub.query("by_column").history().to_pylist(), key=lambda row: row["up"])
    assert by_column == [
        {"up": False, "n": 4, "s": 0, "m": 8},
        {"up": True, "n": 3, "s": 2 * LARGE + 25, "m": 8},
    ]


def test_rows_that_were_stored_open_and_then_closed_are_paired_once(hub: Hub) -> None:
    """A run has them open, a later one closed, when the second window that holds them closes."""
    hub.register(f"SELECT x.k, COUNT(*) AS n, SUM(x.v * y.v) AS s FROM {SLIDING} GROUP BY x.k", "q")
    for at, key, values in ((5, 1, (2**31 - 1, 2)), (15, 9, (1,)), (25, 9, (1,))):
        for name in "ab":
            push(hub, name, np.full(len(values), key), np.array(values), np.full(len(values), at))
        hub.catch_up()
    ended(hub)
    rows = [row for row in hub.query("q").history().to_pylist() if row["k"] == 1]
    assert rows == [{"k": 1, "n": 1, "s": 4}] * 2


def test_products_of_a_former_version_keep_their_pairs(hub: Hub) -> None:
    """Their state is rows of a join and its pairs, as that of sums of two sides was; that of aggregates of sides alone has not changed."""
    texts = {"products": "SUM(x.v * y.v)", "sums": "SUM(x.v - y.v)", "of_one": "SUM(x.v)"}
    for name, aggregate in texts.items():
        hub.register(f"SELECT {aggregate} AS s FROM {TWO}", name)
    for layout, of_pairs in ((2, {"products", "sums"}), (3, {"sums"}), (4, set())):
        entries = [{**registration(hub.catalog.queries[name].definition), "layout": layout} for name in texts]
        operators = make_plan(hub.catalog.apply_all(entries)).operators.values()
        made = {operator.query: operator.makes_pairs for operator in operators if operator.join_signature}
        assert {name for name, makes_pairs in made.items() if makes_pairs} == of_pairs
        assert made.keys() == texts.keys()


def test_groups_of_many_keys_are_one_row_whatever_task_has_the_keys(hub: Hub) -> None:
    for name, text in {
        "total": f"SELECT COUNT(*) AS n, SUM(x.v) AS s FROM {TWO}",
        "by value": f"SELECT y.v, COUNT(*) AS n FROM {TWO} GROUP BY y.v",
        "by key": f"SELECT y.k, COUNT(*) AS n FROM {TWO} GROUP BY y.k",
        "most": f"SELECT x.k, COUNT(*) AS n FROM {TWO} GROUP BY x.k ORDER BY n DESC, x.k LIMIT 3",
    }.items():
        hub.register(text, name.replace(" ", "_"))
    for name in "ab":
        push(hub, name, np.arange(100), np.arange(100) % 2, np.full(100, 5))
    ended(hub)
    assert hub.query("total").history().to_pylist() == [{"n": 100, "s": 50}]
    assert hub.query("by_value").history().to_pylist() == [{"v": 0, "n": 50}, {"v": 1, "n": 50}]
    assert hub.query("by_key").history().num_rows == 100
    assert operator_of(hub, "by_key").sides[0].panes.single_slot is None, "keys are spread over the tasks"
    assert hub.query("most").history().to_pylist() == [{"k": key, "n": 1} for key in range(3)]


def test_state_holds_the_groups_of_open_windows_alone(hub: Hub) -> None:
    """A hundred rows of each key an epoch, of ten keys; two and three panes of each side stay."""
    hub.register(f"SELECT x.k, COUNT(*) AS n FROM {SLIDING} GROUP BY x.k", "q")
    rows = []
    for epoch in range(30):
        for name in "ab":
            push(hub, name, np.arange(1000) % 10, np.zeros(1000), np.full(1000, 10 * epoch))
        hub.catch_up()
        rows.append(hub.status()["last_epoch"]["operators"][operator_of(hub, "q").id]["state_rows"])
    assert max(rows) < 400
    assert hub.query("q").history().num_rows == 10 * 29


def test_many_windows_are_emitted_a_few_at_a_time(hub: Hub) -> None:
    hub.register(f"SELECT x.k, COUNT(*) AS n FROM {TWO} GROUP BY x.k", "q")
    at = np.arange(100) * 10
    for name in "ab":
        push(hub, name, np.zeros(100), np.zeros(100), at)
    operator = operator_of(hub, "q")
    for name in "ab":
        push(hub, name, np.zeros(1), np.zeros(1), np.array([1000]))
    hub.catch_up()
    assert hub.query("q").history().num_rows == 100
    scanned = panes_of(operator, at)
    advance = Advance(BEGINNING, 1000 * SECOND, 1000 * SECOND)
    limit = operator.emission_limit([], [scanned], advance, EmissionCap(10, 10))
    assert limit is not None
    assert 0 < limit <= 200 * SECOND


def panes_of(operator: JoinAggregate, at: np.ndarray) -> dict[str, pa.Table]:
    """The deltas of a row of both sides at each of some seconds."""
    scanner = operator.scanner({})
    for number, name in enumerate("xy"):
        columns = {f"{name}.k": pa.array(np.zeros(len(at), np.int64)), f"{name}.v": pa.array(at, pa.int32())}
        scanner.add(Batch(columns, at * SECOND, placed(np.arange(len(at)), number)))
    return dict(scanner.finish().deltas)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT COUNT(*) AS n FROM {TWO} WHERE x.v < y.v",
        f"SELECT SUM(CAST(x.v AS DOUBLE) + y.v) AS s FROM {TWO}",
        f"SELECT SUM(x.v + y.v + x.k) AS s FROM {TWO}",
        f"SELECT MIN(x.v - y.v) AS s FROM {TWO}",
        f"SELECT SUM(x.v % y.v) AS s FROM {TWO}",
        f"SELECT MAX(x.v * y.v) AS s FROM {TWO}",
        f"SELECT SUM(CAST(x.v AS FLOAT) * CAST(y.v AS FLOAT)) AS s FROM {TWO}",
        f"SELECT SUM(CAST(x.v AS DECIMAL(9, 2)) * CAST(y.v AS DECIMAL(9, 2))) AS s FROM {TWO}",
        f"SELECT SUM(DISTINCT x.v * y.v) AS s FROM {TWO}",
        f"SELECT SUM(x.v * y.v) FILTER (WHERE x.v > 0) AS s FROM {TWO}",
        f"SELECT SUM(CAST(x.v * y.v AS DOUBLE)) AS s FROM {TWO}",
        f"SELECT COUNT(*) FILTER (WHERE x.v > y.v) AS n FROM {TWO}",
        f"SELECT COUNT(DISTINCT x.v) AS n FROM {TWO}",
        f"SELECT MEDIAN(x.v) AS m FROM {TWO}",
        f"SELECT x.v + y.v AS w, COUNT(*) AS n FROM {TWO} GROUP BY x.v + y.v",
        "SELECT x.k, COUNT(*) AS n FROM a x [RANGE 10 SECONDS] JOIN b y [RANGE 10 SECONDS] ON x.k = y.k GROUP BY x.k",
        f"SELECT COUNT(*) AS n FROM {TWO.replace('x.k = y.k', 'x.k < y.k')}",
        f"SELECT COUNT(*) AS n FROM {TWO} JOIN a z {TUMBLING} ON z.v = y.v",
        f"SELECT COUNT(*) AS n FROM {TWO} WHERE 1 = 1",
        f"SELECT name, COUNT(*) AS n FROM {TWO} JOIN names ON names.k = x.k GROUP BY name",
        f"SELECT COUNT(*) AS n FROM {TWO} WHERE x.k IN (SELECT k FROM names)",
        f"SELECT COUNT(*) FILTER (WHERE x.v > AVG(x.v)) AS n FROM {TWO}",
        f"SELECT APPROX_COUNT_DISTINCT(x.v) AS n FROM {TWO}",
        f"SELECT x.k, x.v FROM {TWO}",
    ],
)
def test_what_needs_pairs_makes_them(hub: Hub, tmp_path: Path, text: str) -> None:
    file = tmp_path / "names.csv"
    file.write_text("k,name\n1,one\n")
    hub.execute(
        f"CREATE RELATION names (k BIGINT, name STRING) USING csv OPTIONS (path '{file}', header 'true')"
    )
    hub.register(text, "q")
    assert any(operator.makes_pairs for operator in hub.loop.engine.plan.operators.values())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"SELECT x.v > 0 AS up, y.k FROM {TWO} WHERE x.v > 0", {"up": True, "k": 1}),
        (f"SELECT COUNT(*) FILTER (WHERE x.v > y.k) AS n FROM {TWO} WHERE x.v > y.k", {"n": 1}),
        (
            f"SELECT y.v > 0 AS up, SUM(x.v + y.k) AS s FROM {TWO} WHERE y.v > 0 GROUP BY y.v > 0",
            {"up": True, "s": 8},
        ),
        (
            "SELECT x.v > 0 AS up FROM a x [RANGE 1 HOUR], b y [ROWS 9] WHERE x.k = y.k AND x.v > 0",
            {"up": True},
        ),
        (
            f"SELECT x.v > 0 AS up, y.k FROM a x {TUMBLING} LEFT JOIN b y {TUMBLING} ON x.k = y.k WHERE x.v > 0",
            {"up": True, "k": 1},
        ),
        (
            "SELECT x.v > 0 AS up FROM a x [ROWS 3] LEFT JOIN b y [ROWS 3] ON x.k = y.k WHERE x.v > 0",
            {"up": True},
        ),
    ],
)
def test_a_condition_that_the_join_tests_may_be_read_above_it(
    hub: Hub, text: str, answer: dict[str, object]
) -> None:
    """The pairs had no column that only such a condition reads, and the query failed."""
    query = hub.register(text, "q")
    one_key(hub, 1, 7, 5)
    hub.catch_up()
    hub.finish(seal=True)
    assert answer in [{name: row[name] for name in answer} for row in query.history().to_pylist()]


def joined_alone(hub: Hub) -> int:
    """How many queries aggregate their join without making its pairs."""
    return sum(isinstance(operator, JoinAggregate) for operator in hub.plan.operators.values())


def test_what_was_only_checked_or_refused_does_not_decide_whether_a_join_is_shared(hub: Hub) -> None:
    """Eight aggregates of one join have it each; the next ones share its pairs. A refused script registers none of its queries."""
    create = "CREATE QUERY {} AS SELECT SUM(x.v) AS s FROM {} GROUP BY x.k;"
    for number in range(12):
        script = create.format(f"refused{number}", TWO) + "CREATE QUERY other AS SELECT z FROM gone"
        with pytest.raises(UserError, match="there is no stream, relation or query 'gone'"):
            hub.execute_or_refuse(script)
    hub.execute("".join(create.format(f"q{number}", TWO) for number in range(3)))
    assert joined_alone(hub) == 3

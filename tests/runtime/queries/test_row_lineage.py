"""Many queries over the same rows, whose plans follow the data: each answers as it does alone, and orders follow a switch.

CACQ gives each row two bitmaps: the operators that it has passed, and the queries that still want it. Here the first is the place in the order
of the epoch, which all rows of a batch have in common; the second is a row's bitmap in the query index.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.row_matching import route
from headrace.observation import FilterObservation
from headrace.operators.query_index.index import QueryIndex
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive.filter_orders import filter_orders
from headrace.runtime.plan.adaptive.join_orders import join_orders
from headrace.time import SECOND
from tests.examples import examples
from tests.operators.query_index.predicates import batches, bound

KEYS, EPOCHS = 200, 6
STREAMS = ("a", "b", "c", "d")
FROM = (
    "FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS], d [RANGE 10 SECONDS]"
    " WHERE a.k = b.k AND a.k = c.k AND a.k = d.k"
)
JOINS = [
    f"SELECT a.k, a.n, c.n AS cn {FROM} AND {where}" for where in ("a.n % 2 = 0", "c.n % 3 = 0", "a.k > 50")
]
COSTLY = [
    f"SELECT k, t FROM d WHERE t RLIKE 'p[0-4]' AND t RLIKE 'q[0-4]' AND k >= {least}" for least in (0, 20)
]
INDEXED = [f"SELECT k, n FROM a WHERE k % 5 = {n % 5} AND n > {n}" for n in range(14)]
COUNTS = [
    f"SELECT COUNT(*) AS n FROM a [RANGE TUMBLING 60 SECONDS] WHERE n > {n} AND k < 150" for n in range(14)
]
TEXTS = {f"q{number}": text for number, text in enumerate([*JOINS, *COSTLY, *INDEXED, *COUNTS])}


def push(hub: Hub, epoch: int) -> None:
    """Of `a` and `d` all keys. First `b` has few of the keys and `q[0-4]` is rare, then `c` and `p[0-4]`."""
    rng, switched = np.random.default_rng(epoch), epoch >= EPOCHS // 2
    for stream in STREAMS:
        keys = np.arange(0, KEYS, 10 if stream == ("c" if switched else "b") else 1)
        p, q = (
            np.where(rng.random(len(keys)) < often, 1, 7) for often in (0.1, 0.9)[:: 1 if switched else -1]
        )
        at = pa.array([epoch * 30 * SECOND] * len(keys)).cast(pa.timestamp("us", tz="UTC"))
        text = [f"p{one} q{other}" for one, other in zip(p, q, strict=True)]
        hub.push(stream, pa.table({"k": keys, "n": rng.integers(0, 30, len(keys)), "t": text, "at": at}))


def answers(folder: Path, texts: dict[str, str]) -> tuple[dict[str, list], list[dict[str, tuple[int, ...]]]]:
    """The history of each query, and after each epoch the orders of conjunctions and of sides of joins."""
    orders = []
    with Hub(folder, LocalExecutor(), tasks=2) as hub:
        for stream in STREAMS:
            hub.execute(
                f"CREATE STREAM {stream} (k BIGINT, n BIGINT, t STRING, at TIMESTAMP) USING push TIMESTAMP BY at"
            )
        hub.register_many(texts)
        for epoch in range(EPOCHS):
            push(hub, epoch)
            hub.run_once()
            latest = hub.home.latest()
            orders.append(
                {name: seen.order for name, seen in (filter_orders(latest) | join_orders(latest)).items()}
            )
        found = {name: sorted(map(str, hub.query(name).history().to_pylist())) for name in texts}
    return found, orders


@pytest.fixture
def _whole_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is sampled, a window is as long as an epoch, and no clock decides."""
    monkeypatch.setattr(FilterObservation, "costs", lambda seen, _: (100.0,) * (len(seen.order) - 1) + (5.0,))
    for module in (
        "operators.rows.ordered_filter",
        "operators.joins.probing.two_phases",
        "runtime.plan.adaptive.join_orders",
        "adaptive.settling.settled_order",
    ):
        monkeypatch.setattr(f"headrace.{module}.UNSETTLED_SHARE", 1)
    monkeypatch.setattr("headrace.adaptive.settling.settled_order.BUDGET", 99)
    monkeypatch.setattr("headrace.adaptive.settling.settled_order.WINDOW", KEYS)


@pytest.mark.usefixtures("_whole_samples")
def test_queries_together_answer_as_each_alone_and_orders_follow_the_data(tmp_path: Path) -> None:
    together, orders = answers(tmp_path / "all", TEXTS)
    for name, text in TEXTS.items():
        alone, _ = answers(tmp_path / name, {name: text})
        assert together[name] == alone[name], text
        assert alone[name], text
    before, after = orders[EPOCHS // 2 - 1], orders[-1]
    followed = [name for name in before if before[name] != after[name]]
    assert sum("/" in name for name in followed) >= 1, "sides of joins"
    assert sum("/" not in name for name in followed) == len(COSTLY), "conjunctions"


@examples(60)
@given(st.lists(st.tuples(st.integers(-3, 6), st.integers(-3, 6)), min_size=2, max_size=70), batches())
def test_the_queries_that_want_a_row_are_those_that_each_condition_has_left(
    bounds: list[tuple[int, int]], columns: dict[str, pa.Array]
) -> None:
    """A row's bitmap after two attributes is the AND of its bitmaps after each, in any order of them."""
    texts = [(f"i > {low}", f"b <= {high}") for low, high in bounds]
    kinds = [
        [first for first, _ in texts],
        [then for _, then in texts],
        [" AND ".join(both) for both in texts],
    ]
    indexes = [QueryIndex().changed({f"q{n}": bound(text) for n, text in enumerate(kind)}) for kind in kinds]
    rows = len(columns["i"])
    routed = [route(index, columns, rows) for index in indexes]
    for row in range(rows):
        first, then, both = (
            {n for n in range(len(texts)) if index.entry(f"q{n}").slot in set(seen.of_row(row).tolist())}
            for index, seen in zip(indexes, routed, strict=True)
        )
        assert both == first & then

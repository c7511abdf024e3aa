"""Sketches that get coarser when memory is short: the budget holds by the bytes of the files after every epoch, each answer is within the bound that
it states, the queries whose accuracy is worth least pay, and windows of later rows get the small error again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.overload.memory import CALM, SOFT
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.plan.adaptive.overload_control import doubled_errors
from tests.examples import examples
from tests.overload.test_memory_of_a_hub import suspended, used

STREAM = "CREATE STREAM s (at TIMESTAMP, k BIGINT, v BIGINT) USING push TIMESTAMP BY at"
EVERY = 4_000
"""Microseconds from row to row: 500 of them in a pane of two seconds."""
GRAPH = "1 AT 1 TIMES, 0.9 AT 4 TIMES, 0.6 AT 8 TIMES"
WORTH_MORE = "1 AT 1 TIMES, 0.5 AT 2 TIMES, 0 AT 3 TIMES"
AGGREGATES = {
    "n": "APPROX_COUNT_DISTINCT(v) WITHIN 5 PERCENT",
    "mid": "APPROX_PERCENTILE(v, 0.5) WITHIN 2 PERCENT",
    "norm": "L2_NORM(v) WITHIN 12 PERCENT",
    "top": "APPROX_TOP_K(v % 50, 3) WITHIN 5 PERCENT",
    "rows": "APPROX_COUNT(*) WITHIN 2 PERCENT",
}
SLIDES = {"rows": "100 MILLISECONDS"}
"""Counts have histograms where a window has more panes than these have buckets."""
EXACT = "SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY k"
LENGTH = 20
"""Seconds of a window."""


def text(name: str, graph: str = GRAPH, length: int = LENGTH) -> str:
    """A query of one sketch, whose error may grow along a graph; without one it may not."""
    quality = f" WITH QOS (error ({graph}))" if graph else ""
    return (
        f"SELECT window_end, k, {AGGREGATES[name]} AS a, ERROR_BOUND(a) AS bound"
        f" FROM s [RANGE {length} SECONDS SLIDE {SLIDES.get(name, '2 SECONDS')}] GROUP BY k{quality}"
    )


def value(number: np.ndarray) -> np.ndarray:
    """Of rows by their numbers: some of them often."""
    drawn = number * 2654435761 % 1009
    return np.where(number % 5 == 0, drawn % 7, drawn)


def rows(first: int, count: int) -> pa.Table:
    number = np.arange(first, first + count)
    at = pa.array(number * EVERY).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"at": at, "k": number % 2, "v": value(number)})


def push(hub: Hub, first: int, count: int) -> int:
    hub.push("s", rows(first, count))
    hub.catch_up()
    return first + count


@contextmanager
def opened(home: Path, queries: dict[str, str], memory: int | None) -> Iterator[Hub]:
    with open_hub(home, local=True, memory=memory) as hub:
        hub.execute(STREAM)
        for name, query in queries.items():
            hub.register(query, name)
        yield hub


def by_name(hub: Hub) -> dict[str, int]:
    """How often errors are doubled."""
    names = {query.operator_id: query.definition.name for query in hub.catalog.queries.values()}
    return {names[operator]: times for operator, times in doubled_errors(hub.home.latest()).items()}


def answers(hub: Hub, name: str) -> list[dict[str, Any]]:
    return hub.query(name).history().to_pylist()


def mean_bound(found: Sequence[dict[str, Any]]) -> float:
    return float(np.mean([row["bound"] for row in found]))


def exactly(aggregate: str, window_end: Any, k: int, length: int = LENGTH) -> float:
    """Of the rows in the window, from their numbers."""
    end = round(window_end.timestamp() * 1_000_000)
    number = np.arange(max(0, -(-(end - length * 1_000_000) // EVERY)), -(-end // EVERY))
    values = value(number[number % 2 == k])
    counts = np.unique(values, return_counts=True)[1].astype(float)
    if aggregate == "rows":
        return len(values)
    if aggregate == "n":
        return len(counts)
    return float(np.percentile(values, 50)) if aggregate == "mid" else float(np.sqrt((counts**2).sum()))


def assert_within_bounds(aggregate: str, found: Sequence[dict[str, Any]], length: int = LENGTH) -> None:
    assert found
    for row in found:
        if aggregate == "top":
            _assert_frequent(row, length)
        else:
            wanted = exactly(aggregate, row["window_end"], row["k"], length)
            assert abs(row["a"] - wanted) <= row["bound"] * (1 + 1e-9) + 1e-9, (row, wanted)


def _assert_frequent(row: dict[str, Any], length: int) -> None:
    """No count is too small, or too large by more than the bound."""
    end = round(row["window_end"].timestamp() * 1_000_000)
    number = np.arange(max(0, -(-(end - length * 1_000_000) // EVERY)), -(-end // EVERY))
    held = np.bincount(value(number[number % 2 == row["k"]]) % 50, minlength=50)
    for item in json.loads(row["a"]):
        assert 0 <= item["count"] - held[int(item["item"])] <= row["bound"]


def unlimited(folder: Path, name: str, epochs: int) -> int:
    """The bytes of a query without a budget; of histograms, which are small next to the panes that wait to be counted in them, the most."""
    with opened(folder, {"q": text(name)}, None) as hub:
        first, sizes = 0, []
        for _ in range(epochs):
            first = push(hub, first, 1000)
            sizes.append(used(hub)["q"])
        return max(sizes) if name == "rows" else sizes[-1]


@pytest.mark.parametrize("name", AGGREGATES)
def test_a_sketch_pays_with_its_error_states_it_and_returns_to_the_small_one(
    tmp_path: Path, name: str
) -> None:
    """The same query without a permission would be suspended."""
    whole = unlimited(tmp_path / "whole", name, 14)
    limit = int((1.2 if name == "rows" else 0.85) * whole)
    with opened(tmp_path / "home", {"q": text(name)}, limit) as hub:
        first, most = 0, 0
        for _ in range(28):
            first = push(hub, first, 1000)
            assert sum(used(hub).values()) <= limit
            most = max(most, by_name(hub).get("q", 0))
        assert 1 <= most <= 3
        assert not suspended(hub)
        coarse = answers(hub, "q")
        assert_within_bounds(name, coarse)
        assert mean_bound(coarse[-20:]) > 1.3 * mean_bound(coarse[8:20])
        level = by_name(hub)["q"]
        (explained,) = hub.execute("EXPLAIN QUERY q")
        assert (
            "utility by error: 1 at 1 times, 0.9 at 4 times, 0.6 at 8 times the error of WITHIN"
            in explained.message
        )
        assert f"memory: synopses with {2**level} times the error until there is room" in explained.message
        (explained,) = hub.execute("EXPLAIN ALL")
        assert f"query q, synopses with {2**level} times the error" in explained.message
        assert f"query q, synopses with {2**level} times the error" in hub.status()["memory"]["given_up"]
        utility = hub.status()["overload"]["queries"]["q"]["utility"]
        assert utility == pytest.approx({1: 1 - 0.1 / 3, 2: 0.9, 3: 0.6}[level])
    with open_hub(tmp_path / "home", local=True, memory=100 * whole) as hub:
        assert by_name(hub) == {"q": level}, "a fact of the manifest"
        for _ in range(CALM * (level + 1) + 30):
            first = push(hub, first, 1000)
        assert not by_name(hub)
        fine = answers(hub, "q")[len(coarse) :]
        assert_within_bounds(name, fine)
    with opened(tmp_path / "exact", {"q": text(name, "")}, None) as hub:
        push(hub, 0, first)
        wanted = {(row["window_end"], row["k"]): row for row in answers(hub, "q")}
    last = [wanted[row["window_end"], row["k"]] for row in fine[-8:]]
    if name == "rows":
        assert all(row["bound"] <= 0.02 * row["a"] * 1.02 for row in fine[-8:])
    else:
        assert mean_bound(fine[-8:]) == pytest.approx(mean_bound(last), rel=0.3), "windows of later rows"


def test_the_query_whose_accuracy_is_worth_least_pays_and_one_without_a_permission_never(
    tmp_path: Path,
) -> None:
    queries = {"cheap": text("mid"), "dear": text("mid", WORTH_MORE, 22), "strict": text("mid", "", 24)}
    with opened(tmp_path / "whole", queries, None) as hub:
        first = 0
        for _ in range(12):
            first = push(hub, first, 1000)
        whole, wanted = sum(used(hub).values()), answers(hub, "strict")
    with opened(tmp_path / "home", queries, int(1.15 * whole)) as hub:
        first, seen = 0, []
        for _ in range(12):
            first = push(hub, first, 1000)
            seen.append(by_name(hub))
        assert not suspended(hub)
        assert {name for levels in seen for name in levels} == {"cheap"}
        assert answers(hub, "strict") == wanted


def test_sketches_of_few_values_stay_as_they_are(tmp_path: Path) -> None:
    """They would not be smaller, and are exact."""
    query = text("n", GRAPH, 600).replace("GROUP BY k", "GROUP BY k, v")
    with opened(tmp_path / "home", {"q": query}, 700_000) as hub:
        first, seen = 0, list[tuple[float, dict[str, int]]]()
        while not suspended(hub):
            assert first < 20_000
            first = push(hub, first, 100)
            seen.append((sum(used(hub).values()) / 700_000, by_name(hub)))
        assert any(part > SOFT for part, _ in seen)
        assert not any(levels for _, levels in seen)
        assert {row["bound"] for row in answers(hub, "q")} <= {0}


@examples(6)
@given(data=st.data())
def test_within_the_budget_after_every_epoch_whatever_is_asked_and_restarted(data: st.DataObject) -> None:
    """Every answer is within the bound that it has, also of queries that are suspended and run again, and the bound is at most that of the coarsest."""
    names = data.draw(
        st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=3, unique=True), "queries"
    )
    counts = data.draw(st.lists(st.integers(0, 1500), min_size=2, max_size=10), "rows of epochs")
    limit = data.draw(st.integers(20_000, 400_000), "limit")
    restarts = data.draw(st.sets(st.integers(1, len(counts))), "restarts")
    queries = {name: text(name) for name in names} | {"exact": EXACT}
    with tempfile.TemporaryDirectory() as folder:
        home, first = Path(folder) / "home", 0
        hub = open_hub(home, local=True, memory=limit)
        try:
            hub.execute(STREAM)
            for name, query in queries.items():
                hub.register(query, name)
            for number, count in enumerate(counts):
                if number in restarts:
                    levels = by_name(hub)
                    hub.close()
                    hub = open_hub(home, local=True, memory=limit)
                    assert by_name(hub) == levels
                if count:
                    first = push(hub, first, count)
                hub.catch_up()
                assert sum(used(hub).values()) <= limit
            for name in names:
                found = answers(hub, name)
                if found:
                    assert_within_bounds(name, found)
                if name == "norm":
                    assert all(row["bound"] <= 8 * 0.12 * row["a"] * (1 + 1e-9) for row in found)
                if name == "n":
                    assert all(row["bound"] <= 1.4 * 8 * 0.05 * row["a"] + 1 for row in found)
        finally:
            hub.close()


RELATION = (
    "SELECT k, APPROX_COUNT(*) WITHIN 1 PERCENT AS a, ERROR_BOUND(a) AS bound FROM s [RANGE 20 SECONDS] GROUP BY k"
    f" WITH QOS (error ({GRAPH}))"
)
"""At every instant."""


def held_last(changelog: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """By group, the row that was inserted last."""
    return {row["k"]: row for row in changelog if row["__change"] > 0}


def test_a_relation_at_every_instant_pays_with_its_error(tmp_path: Path) -> None:
    """Ten thousand rows of two groups: the budget is kept after every epoch, and the answer of now states how far it may be off."""
    sizes = list[int]()
    with opened(tmp_path / "whole", {"q": RELATION}, None) as hub:
        for epoch in range(20):
            push(hub, 500 * epoch, 500)
            sizes.append(used(hub)["q"])
        fine = held_last(answers(hub, "q"))
    limit, most = int(1.3 * max(sizes)), 0
    with opened(tmp_path / "home", {"q": RELATION}, limit) as hub:
        for epoch in range(20):
            push(hub, 500 * epoch, 500)
            assert sum(used(hub).values()) <= limit
            most = max(most, by_name(hub).get("q", 0))
        assert most >= 1
        assert not suspended(hub)
        coarse = held_last(answers(hub, "q"))
    wanted = LENGTH * 1_000_000 // EVERY // 2
    for k in (0, 1):
        assert abs(fine[k]["a"] - wanted) <= fine[k]["bound"] + 1
        assert abs(coarse[k]["a"] - wanted) <= coarse[k]["bound"] + 1
        assert coarse[k]["bound"] > 1.3 * fine[k]["bound"]

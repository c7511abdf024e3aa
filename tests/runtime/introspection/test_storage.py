"""The classes of storage that EXPLAIN shows, against what queries store: forty queries over 6 and 48 epochs of the same size."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from headrace.planner.storage.extent import Growth
from headrace.planner.storage.query_storage import QueryStorage, storage_of
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.explain import explained
from headrace.runtime.plan.bound_queries import bound

START, ROWS, FIRST, LAST = 1_704_067_200_000_000, 100, 6, 48
"""Ten seconds of event time are an epoch. Rows are counted after so many epochs."""
OBSERVED = 4
"""Epochs before each count: the largest of their states counts, since runs are reviewed by and by."""


@dataclass(frozen=True)
class Case:
    """A query, how what it stores besides final answers has to grow, and whether its state does over these rows; `provisional`: whether
    its answers may be retracted.
    """

    text: str
    growth: Growth
    grows: bool = False
    provisional: bool = False


WINDOW = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
CASES = {
    # scenarios 1 to 4 of the paper: a selection; a self-join; the least of a group, over rows that only come, and over answers that change
    "selection": Case("SELECT k, v FROM s WHERE v > 10", "nothing"),
    "self_join": Case("SELECT a.k, b.u FROM s a JOIN s b ON a.u = b.u", "stream", grows=True),
    "least": Case("SELECT k, MIN(v) AS n FROM s GROUP BY k", "values", provisional=True),
    "least_of_changes": Case(
        "SELECT MIN(n) AS n FROM (SELECT u, COUNT(*) AS n FROM s GROUP BY u) c",
        "values",
        grows=True,
        provisional=True,
    ),
    # rows of a stream
    "union": Case("SELECT k, v FROM s UNION ALL SELECT k, v FROM t", "nothing"),
    "related": Case("SELECT s.k, r.name FROM s JOIN r ON s.k = r.k", "nothing"),
    "distinct": Case("SELECT DISTINCT k FROM s", "values"),
    "distinct_of_all": Case("SELECT DISTINCT u FROM s", "values", grows=True),
    # groups without a window
    "total": Case("SELECT SUM(v) AS n FROM s", "fixed", provisional=True),
    "groups_of_all": Case("SELECT u, MIN(v) AS n FROM s GROUP BY u", "values", grows=True, provisional=True),
    "median": Case("SELECT PERCENTILE(v, 0.5) AS n FROM s", "values", provisional=True),
    "median_of_all": Case("SELECT PERCENTILE(u, 0.5) AS n FROM s", "values", grows=True, provisional=True),
    "different": Case("SELECT COUNT(DISTINCT u) AS n FROM s", "values", grows=True, provisional=True),
    "approximate": Case(
        "SELECT APPROX_PERCENTILE(u, 0.5) WITHIN 5 PERCENT AS n FROM s [LANDMARK SLIDE 10 SECONDS]", "fixed"
    ),
    "approximate_at_instants": Case(
        "SELECT APPROX_PERCENTILE(u, 0.5) WITHIN 5 PERCENT AS n FROM s",
        "values",
        grows=True,
        provisional=True,
    ),
    "approximately_recent": Case(
        "SELECT APPROX_COUNT(*) WITHIN 5 PERCENT AS n FROM s [RANGE 10 SECONDS]", "window", provisional=True
    ),
    "emitted_groups": Case("ISTREAM(SELECT k, SUM(v) AS n FROM s GROUP BY k)", "values"),
    # relations at every instant
    "recent": Case("SELECT k, v FROM s [RANGE 10 SECONDS]", "window", provisional=True),
    "recent_groups": Case(
        "SELECT k, SUM(v) AS n FROM s [RANGE 10 SECONDS] GROUP BY k", "window", provisional=True
    ),
    "emitted": Case("ISTREAM(SELECT k, SUM(v) AS n FROM s [RANGE 10 SECONDS] GROUP BY k)", "window"),
    "last_rows": Case("SELECT k, v FROM s [ROWS 50]", "fixed", provisional=True),
    "last_of_each": Case("SELECT k, v FROM s [PARTITION BY k ROWS 5]", "values", provisional=True),
    "last_of_all": Case("SELECT u, v FROM s [PARTITION BY u ROWS 5]", "values", grows=True, provisional=True),
    "between": Case(
        "SELECT k, SUM(v) AS n FROM s BEGIN NOW - INTERVAL 20 SECONDS END NOW GROUP BY k",
        "window",
        provisional=True,
    ),
    # windows
    "tumbling": Case(f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k", "window"),
    "median_of_window": Case(f"SELECT k, PERCENTILE(u, 0.5) AS n FROM s {WINDOW} GROUP BY k", "window"),
    "landmark": Case("SELECT k, MAX(v) AS m FROM s [LANDMARK SLIDE 10 SECONDS] GROUP BY k", "values"),
    "landmark_rows": Case("SELECT k, v FROM s [LANDMARK SLIDE 1000 SECONDS]", "stream", grows=True),
    "session": Case(
        "SELECT k, COUNT(*) AS n FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(at), INTERVAL 5 SECONDS) "
        "GROUP BY k, window_start, window_end",
        "window",
    ),
    "delta": Case("SELECT k, COUNT(*) AS c FROM s [DELTA 30 ON v] GROUP BY k", "window"),
    "revised": Case(
        f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k WITH REVISIONS",
        "stream",
        grows=True,
        provisional=True,
    ),
    "revised_for_a_while": Case(
        f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k WITH REVISIONS FOR INTERVAL 20 SECONDS",
        "window",
        provisional=True,
    ),
    # joins
    "joined": Case("SELECT a.k, b.u FROM s a JOIN t b ON a.u = b.u", "stream", grows=True),
    "outer_joined": Case("SELECT a.k, b.u FROM s a LEFT JOIN t b ON a.u = b.u", "stream", grows=True),
    "joined_windows": Case(
        "SELECT a.k, b.u FROM s [RANGE 10 SECONDS] a JOIN t [RANGE 10 SECONDS] b ON a.u = b.u",
        "window",
        provisional=True,
    ),
    "joined_in_an_interval": Case(
        "SELECT a.k, b.u FROM s a JOIN t b ON a.u = b.v AND b.at BETWEEN a.at - INTERVAL 5 SECONDS AND a.at + INTERVAL 5 SECONDS",
        "window",
    ),
    "joined_groups": Case(
        f"SELECT a.k, COUNT(*) AS n FROM s {WINDOW} a JOIN t {WINDOW} b ON a.u = b.u GROUP BY a.k", "window"
    ),
    # queries over queries
    "over_groups": Case("SELECT MIN(n) AS m FROM least", "values", provisional=True),
}


def rows(epoch: int) -> pa.Table:
    numbers = np.arange(epoch * ROWS, (epoch + 1) * ROWS)
    return pa.table(
        {
            "k": (numbers * 7919 % 10).astype("int64"),
            "v": (numbers * 31 % 100).astype("int64"),
            "u": numbers.astype("int64"),
            "at": pa.array(START + numbers * 100_000, pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[QueryStorage, list[int]]]:
    """What each query is classified as, and its rows of state after `FIRST` and `LAST` epochs."""
    folder = tmp_path_factory.mktemp("storage")
    (folder / "r.csv").write_text("k,name\n1,a\n2,b\n")
    columns = "(k BIGINT, v BIGINT, u BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
    seen: dict[str, list[int]] = defaultdict(list)
    with open_hub(folder / "home", local=True) as hub:
        hub.execute(f"CREATE STREAM s {columns} CREATE STREAM t {columns}")
        hub.execute(
            f"CREATE RELATION r (k BIGINT, name STRING) USING csv OPTIONS (path '{folder}/r.csv', header 'true');"
        )
        hub.execute("".join(f"CREATE QUERY {name} AS {case.text};" for name, case in CASES.items()))
        for epoch in range(LAST):
            for stream in "st":
                hub.push(stream, rows(epoch))
            hub.run_once()
            if any(end - OBSERVED <= epoch < end for end in (FIRST, LAST)):
                for cost in explained(hub.home).costs:
                    seen[cost.name].append(int(cost.state_rows))
        classified = {name: storage_of(bound(hub.catalog, hub.catalog.require_query(name))) for name in CASES}
    return {
        name: (classified[name], [max(seen[name][:OBSERVED]), max(seen[name][OBSERVED:])]) for name in CASES
    }


@pytest.mark.parametrize("name", CASES)
def test_state_grows_as_explain_shows(name: str, measured: dict[str, tuple[QueryStorage, list[int]]]) -> None:
    case, (storage, (first, last)) = CASES[name], measured[name]
    assert storage.growth == case.growth, "\n".join(storage.lines())
    if case.grows:
        assert last >= 5 * first > 0, "eight times the rows"
    else:
        assert last <= 2 * first
    assert (storage.provisional.growth != "nothing") == case.provisional

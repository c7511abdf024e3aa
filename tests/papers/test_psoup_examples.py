"""PSoup (Chandrasekaran, Franklin 2002): examples shaped like the paper's drawings, and its query texts, executed.

The paper's time is a number; here it is a second of 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

MODES = ("none", "partial", "complete")
STAMP = pa.timestamp("us", tz="UTC")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as opened:
        opened.execute(
            "CREATE STREAM r (id BIGINT, a BIGINT, b BIGINT, ts TIMESTAMP) USING push TIMESTAMP BY ts"
        )
        yield opened


def arrive(hub: Hub, *rows: tuple[int, int | None, int | None], stream: str = "r", shift: int = 0) -> None:
    """(id, a, b), each at the second of its id."""
    number, a, b = (list(column) for column in zip(*rows, strict=True))
    at = pa.array([(each + shift) * SECOND for each in number], pa.int64()).cast(STAMP)
    kinds = pa.int64()
    hub.push(
        stream,
        pa.table({"id": pa.array(number, kinds), "a": pa.array(a, kinds), "b": pa.array(b, kinds), "ts": at}),
    )
    hub.catch_up()


def create(hub: Hub, name: str, text: str) -> None:
    for mode in MODES:
        hub.execute(f"CREATE QUERY {name}_{mode} OPTIONS (materialize '{mode}') AS {text}")


def ids(hub: Hub, name: str) -> list[Any]:
    """The first column of the answer, which is the same in every mode."""
    found = [hub.query(f"{name}_{mode}").invoke().column(0).to_pylist() for mode in MODES]
    assert found[0] == found[1] == found[2]
    return found[0]


def test_a_new_query_sees_old_tuples_and_new_tuples_are_seen_by_it(hub: Hub) -> None:
    """Figures 2 and 3: query 24 over tuples 48 to 52, then tuples 53 and 54."""
    arrive(hub, (48, 3, 8), (49, 7, 9), (50, 0, 4), (51, 4, 2), (52, 6, 5))
    create(hub, "q24", "SELECT id FROM r WHERE r.a < 5 AND r.b > 3 BEGIN NOW - INTERVAL 10 SECONDS END NOW")
    assert ids(hub, "q24") == [48, 50]
    hub.catch_up()
    assert ids(hub, "q24") == [48, 50]
    arrive(hub, (53, 1, 7), (54, 5, 7))
    assert ids(hub, "q24") == [48, 50, 53]


def test_conjunctions_of_the_five_operators_hold_exactly(hub: Hub) -> None:
    """Figure 6's probe of the predicate index, with a query without factors and one that contradicts itself."""
    factors = ["a < 5", "a <= 5", "a = 5", "a >= 5", "a > 5", "true", "a < 5 AND a > 5"]
    for number, factor in enumerate(factors, 1):
        create(hub, f"q{number}", f"SELECT id FROM r WHERE {factor} BEGIN NOW - INTERVAL 100 SECONDS END NOW")
    arrive(hub, (4, 4, 0), (5, 5, 0), (6, 6, 0), (7, None, 0))
    wanted = {4: {1, 2, 6}, 5: {2, 3, 4, 6}, 6: {4, 5, 6}, 7: {6}}
    for number in range(1, 8):
        assert ids(hub, f"q{number}") == [row for row, queries in wanted.items() if number in queries]


def test_a_factor_may_compare_two_columns_with_a_constant_between(hub: Hub) -> None:
    create(hub, "wide", "SELECT id FROM r WHERE a > b + 2 BEGIN NOW - INTERVAL 100 SECONDS END NOW")
    create(hub, "near", "SELECT id FROM r WHERE a <= b - 1 BEGIN NOW - INTERVAL 100 SECONDS END NOW")
    arrive(hub, (1, 5, 2), (2, 4, 2), (3, 1, 2), (4, None, 1))
    assert (ids(hub, "wide"), ids(hub, "near")) == ([1], [3])


@pytest.mark.parametrize("window", ["[RANGE TUMBLING 5 SECONDS]", "[RANGE 5 SECONDS]"])
def test_factors_on_a_relation_do_not_count_against_a_row_of_the_stream(window: str, hub: Hub) -> None:
    """A select over a stream and a relation, and one over the stream alone with the same factor on it."""
    limits = hub.path.parent / "limits.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2]), "low": pa.array([3, 9])}), limits)
    hub.execute(f"CREATE RELATION limits (id BIGINT, low BIGINT) USING parquet OPTIONS (path '{limits}')")
    hub.execute(f"CREATE QUERY alone AS SELECT COUNT(*) AS n FROM r {window} WHERE r.a < 5")
    hub.execute(
        f"CREATE QUERY both AS SELECT COUNT(*) AS n FROM r {window} JOIN limits ON r.b = limits.id WHERE r.a < 5 AND limits.low < 5"
    )
    arrive(hub, (1, 4, 1), (2, 4, 2), (3, 7, 1), (4, 2, 1), (30, 9, 9))
    histories = {name: hub.query(name).history() for name in ("alone", "both")}
    if "TUMBLING" in window:
        assert histories["alone"]["n"].to_pylist()[0] == 3
        assert histories["both"]["n"].to_pylist()[0] == 2
    else:
        assert max(histories["alone"]["n"].to_pylist()) == 3
        assert max(histories["both"]["n"].to_pylist()) == 2


WINDOWS = {
    "sliding": ("NOW - INTERVAL 10 SECONDS", "NOW", range(10, 21), range(30, 41)),
    "snapshot": (
        "TIMESTAMP '1970-01-01 00:00:05'",
        "TIMESTAMP '1970-01-01 00:00:15'",
        range(5, 16),
        range(5, 16),
    ),
    "landmark": ("TIMESTAMP '1970-01-01 00:00:05'", "NOW", range(5, 21), range(5, 21)),
    "lagging": ("NOW - INTERVAL 10 SECONDS", "NOW - INTERVAL 5 SECONDS", range(10, 16), range(30, 36)),
    "future": ("TIMESTAMP '1970-01-01 00:00:30'", "TIMESTAMP '1970-01-01 00:00:50'", (), (40,)),
    "shrinking": ("NOW - INTERVAL 10 SECONDS", "TIMESTAMP '1970-01-01 00:00:12'", range(10, 13), ()),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_window_is_applied_when_it_is_asked_for_and_moves_with_now_alone(kind: str, hub: Hub) -> None:
    """Rows at 1 to 20; then NOW is 40, by a row that no window but those up to NOW holds."""
    begin, end, first, then = WINDOWS[kind]
    create(hub, "q", f"SELECT id FROM r WHERE b = 0 BEGIN {begin} END {end}")
    arrive(hub, *((each, 0, 0) for each in range(1, 21)))
    assert ids(hub, "q") == list(first)
    arrive(hub, (40, 0, 0))
    there = {*range(1, 21), 40}
    at_40 = {40} if kind == "landmark" else set()
    assert set(ids(hub, "q")) == (set(then) | at_40) & there


def test_one_clause_under_two_windows_is_one_condition_in_the_index(hub: Hub) -> None:
    """The window is separate from the standing query clause (WindowsTable)."""
    from headrace.operators.on_demand.selection import Selection
    from headrace.operators.on_demand.shared_selections import SharedSelections

    where = "SELECT id FROM r WHERE a > 3 AND b < 9"
    hub.execute(f"CREATE QUERY short AS {where} BEGIN NOW - INTERVAL 2 SECONDS END NOW")
    hub.execute(f"CREATE QUERY long AS {where} BEGIN NOW - INTERVAL 9 SECONDS END NOW")
    arrive(hub, *((each, 5, 5) for each in range(1, 8)))
    members = tuple(hub.operator_and_query(name)[0] for name in ("short", "long"))
    assert all(isinstance(each, Selection) for each in members)
    plan = SharedSelections.of(members).plan
    assert plan.slots.tolist() == [0, 0]
    assert len(plan.index) == 1
    assert hub.query("short").invoke()["id"].to_pylist() == [5, 6, 7]
    assert hub.query("long").invoke()["id"].to_pylist() == [1, 2, 3, 4, 5, 6, 7]


LOGICAL = {
    "[ROWS 4]": lambda rows: rows[-4:],
    "[PARTITION BY b ROWS 2]": lambda rows: [
        row for b in (0, 1, 2) for row in [r for r in rows if r[2] == b][-2:]
    ],
}
"""Windows that count tuples, of all and of each group (logical windows, the adaptation of section 2)."""


@pytest.mark.parametrize("window", LOGICAL)
def test_logical_windows_hold_so_many_tuples_whatever_the_time(window: str, hub: Hub) -> None:
    hub.execute(f"CREATE QUERY rows AS SELECT id, a FROM r {window}")
    hub.execute(f"CREATE QUERY sums AS SELECT COUNT(*) AS n, SUM(a) AS total FROM r {window} WHERE a > 3")
    rows: list[tuple[int, int, int]] = []
    for number, value in enumerate(VALUES, 1):
        rows.append((number * (1 + number % 3 * 50), value, number % 3))
    rows.sort()
    for count, row in enumerate(rows, 1):
        arrive(hub, row)
        held = LOGICAL[window](rows[:count])
        values = hub.query("rows").invoke().to_pylist()
        assert sorted((each["id"], each["a"]) for each in values) == sorted(
            (each[0], each[1]) for each in held
        )
        passing = [each[1] for each in held if each[1] > 3]
        (invoked,) = hub.query("sums").invoke().to_pylist()
        assert invoked == {"n": len(passing), "total": sum(passing) if passing else None}


VALUES = (5, 12, 7, 20, 3, 9, 15, 2, 11, 19, 8, 4, 22, 6, 10, 21, 1, 13, 14, 16, 23, 25, 24, 17, 18, 0, 26)
"""Figure 12: the leaves t1 to t27 of the ranked tree."""


def test_max_over_a_window_of_two_queries_that_share_no_tree(hub: Hub) -> None:
    """Figure 12 and PQ-5: A over [t8, t20] is 22; B must not count 20, 15, 19, 22 and 21."""
    window = "BEGIN TIMESTAMP '1970-01-01 00:00:08' END TIMESTAMP '1970-01-01 00:00:20'"
    create(hub, "a", f"SELECT MAX(a) AS top FROM r {window}")
    create(hub, "b", f"SELECT MAX(a) AS top FROM r WHERE a NOT IN (20, 15, 19, 22, 21) {window}")
    arrive(hub, *((number, value, 0) for number, value in enumerate(VALUES, 1)))
    assert (ids(hub, "a"), ids(hub, "b")) == ([22], [16])


def test_every_window_of_the_tree_s_leaves_answers_as_recomputed(hub: Hub) -> None:
    """All five aggregates over [t_i, t_20], for every i: averages come of sums and counts."""
    for low in range(1, 21):
        window = f"BEGIN TIMESTAMP '1970-01-01 00:00:{low:02}' END TIMESTAMP '1970-01-01 00:00:20'"
        hub.execute(
            f"CREATE QUERY w{low} AS SELECT COUNT(*) AS n, SUM(a) AS s, AVG(a) AS m, MIN(a) AS l, MAX(a) AS h FROM r {window}"
        )
    arrive(hub, *((number, value, 0) for number, value in enumerate(VALUES[:9], 1)))
    arrive(hub, *((number, value, 0) for number, value in enumerate(VALUES[9:], 10)))
    for low in range(1, 21):
        held = VALUES[low - 1 : 20]
        meant = {"n": len(held), "s": sum(held), "m": sum(held) / len(held), "l": min(held), "h": max(held)}
        assert hub.query(f"w{low}").invoke().to_pylist() == [meant]


STREAM = "CREATE STREAM d_s (a BIGINT, b BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
TEXTS = {
    "PQ-1": "SELECT * FROM d_s WHERE d_s.a < 4 AND d_s.b > 2 BEGIN NOW - INTERVAL 10 SECONDS END NOW",
    "PQ-6": "SELECT COUNT(*) AS downloads FROM d_s WHERE a BETWEEN 1 AND 3 BEGIN NOW - INTERVAL 1 HOUR END NOW",
    "PQ-7": "SELECT a, b FROM d_s WHERE b > 3 BEGIN NOW - INTERVAL 30 MINUTES END NOW",
    "PQ-8": "SELECT a FROM d_s WHERE b IN (3, 5) BEGIN TIMESTAMP '1970-01-01 00:00:02' END TIMESTAMP '1970-01-01 00:00:30'",
}
ROWS = [(1, 3, 1), (3, 3, 2), (2, 5, 12), (9, 9, 13), (3, 5, 29)]
"""(a, b, second)."""
ANSWERS: dict[str, Sequence[dict[str, Any]]] = {
    "PQ-1": [{"a": 3, "b": 5}],
    "PQ-6": [{"downloads": 4}],
    "PQ-7": [{"a": 2, "b": 5}, {"a": 3, "b": 5}, {"a": 9, "b": 9}],
    "PQ-8": [{"a": 2}, {"a": 3}, {"a": 3}],
}


@pytest.mark.parametrize("mode", MODES)
def test_the_query_texts_of_the_paper_answer(mode: str, tmp_path: Path) -> None:
    """PQ-1 as printed; PQ-6 to PQ-8 are its examples in words: downloads of the last hour, recent postings, a recharge."""
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(STREAM)
        for name, text in TEXTS.items():
            hub.execute(f"CREATE QUERY `{name}` OPTIONS (materialize '{mode}') AS {text}")
        at = pa.array([second * SECOND for *_, second in ROWS], pa.int64()).cast(STAMP)
        hub.push("d_s", pa.table({"a": [a for a, *_ in ROWS], "b": [b for _, b, _ in ROWS], "at": at}))
        hub.catch_up()
        for name, rows in ANSWERS.items():
            found = [
                {key: value for key, value in row.items() if key != "at"}
                for row in hub.query(name).invoke().to_pylist()
            ]
            assert found == list(rows), name


@pytest.mark.parametrize(
    ("where", "test"),
    [
        ("r.a < 5 AND r.a > s.b AND s.b > 1", lambda a, b: a < 5 and a > b > 1),
        ("(r.a >= 2) AND (r.a < s.b) AND (s.b = 3)", lambda a, b: a >= 2 and a < b and b == 3),
    ],
    ids=["PQ-3", "PQ-4"],
)
def test_a_join_of_two_streams_over_the_last_seconds_is_what_loops_find_whenever_it_is_asked(
    where: str, test: Callable[[int, int], bool], hub: Hub
) -> None:
    hub.execute("CREATE STREAM s (id BIGINT, a BIGINT, b BIGINT, ts TIMESTAMP) USING push TIMESTAMP BY ts")
    rng = np.random.default_rng(7)
    rows = [(second, int(rng.integers(6)), int(rng.integers(6))) for second in range(60)]
    bounds = "BEGIN NOW - INTERVAL 10 SECONDS END NOW"
    text = f"CREATE QUERY q23 AS SELECT r.id, s.id AS other FROM r, s WHERE {where} {bounds}"
    seen: list[tuple[str, int, int, int]] = []
    for index, start in enumerate(range(0, 60, 5)):
        if index == 4:
            hub.execute(text)  # a new query reads the archives of both streams
        name = "rs"[index % 2]
        arrive(hub, *rows[start : start + 5], stream=name)
        seen += [(name, *row) for row in rows[start : start + 5]]
        if index < 4:
            continue
        now = start + 4
        recent = [row for row in seen if now - 10 <= row[1] <= now]
        expected = sorted(
            (one[1], other[1])
            for one in recent
            for other in recent
            if (one[0], other[0]) == ("r", "s") and test(one[2], other[3])
        )
        values = hub.query("q23").invoke().to_pylist()
        assert sorted((row["id"], row["other"]) for row in values) == expected


SPANS = {
    "BEGIN TIMESTAMP '1970-01-01 00:00:50' END TIMESTAMP '1970-01-01 00:01:00'": {(50, 54), (55, 54)},
    "BEGIN TIMESTAMP '1970-01-01 00:00:49' END TIMESTAMP '1970-01-01 00:00:54'": {
        (50, 49),
        (50, 54),
        (52, 49),
    },
    "BEGIN NOW - INTERVAL 6 SECONDS END NOW": {(50, 49), (50, 54), (52, 49), (55, 49), (55, 54)},
    "BEGIN TIMESTAMP '1970-01-01 00:00:50' END NOW": {(50, 54), (55, 54)},
    "BEGIN TIMESTAMP '1970-01-01 00:00:49' END NOW - INTERVAL 1 SECOND": {(50, 49), (50, 54), (52, 49)},
    "BEGIN NOW - INTERVAL 5 SECONDS END NOW - INTERVAL 1 SECOND": {(50, 54)},
    "BEGIN NOW - INTERVAL 6 SECONDS END TIMESTAMP '1970-01-01 00:00:53'": {(50, 49), (52, 49)},
}
"""Windows at second 55, and the pairs of Figures 4 and 5 (G2) whose earliest and latest tuples are in them."""


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("registered", ["before", "between", "after"])
def test_a_pair_is_in_a_window_by_its_earliest_and_its_latest_tuple(
    span: str, registered: str, hub: Hub
) -> None:
    """One at whose END the latest tuple is later has it not, though its earliest is inside."""
    hub.execute("CREATE STREAM s (id BIGINT, a BIGINT, b BIGINT, ts TIMESTAMP) USING push TIMESTAMP BY ts")
    text = f"CREATE QUERY q23 AS SELECT r.id, s.id AS other FROM r, s WHERE r.a < 5 AND r.a > s.b AND s.b > 1 {span}"
    if registered == "before":
        hub.execute(text)
    arrive(hub, (49, 0, 2), (51, 0, 1), stream="s")
    arrive(hub, (50, 4, 0), (52, 3, 0), (53, 7, 0))
    if registered == "between":
        hub.execute(text)
    arrive(hub, (54, 0, 3), stream="s")
    arrive(hub, (55, 4, 0))
    if registered == "after":
        hub.execute(text)
        hub.catch_up()
    assert {(row["id"], row["other"]) for row in hub.query("q23").invoke().to_pylist()} == SPANS[span]


def test_a_client_that_was_away_for_an_hour_asks_and_gets_what_holds_now(hub: Hub) -> None:
    create(hub, "q", "SELECT id FROM r WHERE a = 1 BEGIN NOW - INTERVAL 5 SECONDS END NOW")
    for minute in range(60):
        arrive(hub, (60 * minute, 1, 0), (60 * minute + 1, 0, 0))
    assert ids(hub, "q") == [3540]

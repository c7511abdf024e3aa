"""Which queries read one join, and what a shared join outlives: the laws of its answers are in tests/laws/test_many_joins.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from headrace.algebra.expressions.expression_text import show
from headrace.catalog.catalog import registration
from headrace.operators.joins.window_join import WindowJoin
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.epoch_planner import make_plan
from headrace.time import SECOND

SCRIPT = """
CREATE STREAM a (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE STREAM b (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE STREAM forgotten (k BIGINT, v BIGINT, at TIMESTAMP) USING push OPTIONS (archive 'none') TIMESTAMP BY at"""
PAIRS = "SELECT x.k, x.v, y.v AS w FROM a x [RANGE {r} SECONDS], b y [RANGE {s} SECONDS] WHERE x.k = y.k AND x.v < {v}"


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=2)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = opened(tmp_path)
    hub.execute(SCRIPT)
    yield hub
    hub.close()


def pairs(r: int = 5, s: int = 6, v: int = 9) -> str:
    return PAIRS.format(r=r, s=s, v=v)


def push(hub: Hub, stream: str, *rows: tuple[int, int, int]) -> None:
    """Rows are (k, v, second)."""
    at = pa.array([SECOND * row[2] for row in rows], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    k, v = (pa.array([row[place] for row in rows], pa.int64()) for place in (0, 1))
    hub.push(stream, pa.table({"k": k, "v": v, "at": at}))


def joins(hub: Hub) -> list[str]:
    """The joins of the plan."""
    operators = hub.loop.engine.plan.operators.values()
    return [operator.id for operator in operators if isinstance(operator, WindowJoin)]


def reads(hub: Hub, name: str) -> str:
    """The join that a query reads."""
    operator, _ = hub.operator_and_query(name)
    return operator.stream.removeprefix("@")


def changes(hub: Hub, name: str) -> list[tuple[int, ...]]:
    """Changes of a query, as they were emitted."""
    rows = hub.query(name).history()
    return sorted(zip(*(rows.column(column).to_pylist() for column in rows.column_names), strict=True))


def inserted(hub: Hub, name: str) -> list[tuple[int, ...]]:
    """The rows that a query has inserted."""
    rows = hub.query(name).history().to_pylist()
    return sorted(tuple(row[column] for column in "kvw") for row in rows if row["__change"] > 0)


def test_the_first_has_its_own_join_and_the_others_share_one(hub: Hub) -> None:
    for number, text in enumerate(
        (
            pairs(),
            pairs(7, 5, 3),
            "SELECT q.v FROM b q [RANGE 8 SECONDS] JOIN a p [RANGE 5 SECONDS] ON q.k = p.k",
            (
                "SELECT COUNT(*) AS n FROM a x [RANGE 6 SECONDS SLIDE 2 SECONDS], b y [RANGE 8 SECONDS SLIDE 2 SECONDS]"
                " WHERE y.k = x.k"
            ),
        )
    ):
        hub.register(text, f"q{number}")
    first, *others = (reads(hub, f"q{number}") for number in range(4))
    assert len(set(others)) == 1
    assert first != others[0]
    assert len(joins(hub)) == 2


@pytest.mark.parametrize(
    "text",
    [
        pairs(9),
        "SELECT x.v FROM a x [RANGE 5 SECONDS], b y [RANGE 6 SECONDS] WHERE x.v = y.v",
        "SELECT x.v FROM a x [RANGE 5 SECONDS], a y [RANGE 6 SECONDS] WHERE x.k = y.k",
        "SELECT x.v FROM a x [RANGE 5 SECONDS], b y [RANGE 6 SECONDS] WHERE x.k < y.k",
        "SELECT x.v FROM a x [RANGE 5 SECONDS], b y WHERE x.k = y.k",
        (
            "SELECT x.v FROM a x [RANGE 5 SECONDS], b y [RANGE 6 SECONDS], a z [RANGE 6 SECONDS]"
            " WHERE x.k = y.k AND y.k = z.k"
        ),
    ],
)
def test_another_graph_is_another_join(hub: Hub, text: str) -> None:
    for number in range(3):
        hub.register(pairs(v=number), f"q{number}")
    hub.register(text, "other")
    assert reads(hub, "other") not in {reads(hub, f"q{number}") for number in range(3)}


def test_cross_joins_without_conditions_share_their_pairs(hub: Hub) -> None:
    """Those with conditions do not: of a pair of rare rows each query makes only its own."""
    windows = "FROM a x [RANGE {r} SECONDS], b y [RANGE 6 SECONDS]"
    texts = [f"SELECT x.k, x.v, y.v AS w {windows.format(r=r)}" for r in (5, 6, 7)]
    texts += [
        f"SELECT x.k, x.v, y.v AS w {windows.format(r=5)} WHERE {test}" for test in ("x.v < y.v", "x.v = 1")
    ]
    for number, text in enumerate(texts):
        hub.register(text, f"q{number}")
    push(hub, "a", (1, 1, 10), (2, 2, 11), (9, 9, 40))
    push(hub, "b", (3, 1, 15), (4, 2, 17), (9, 9, 40))
    hub.catch_up()
    assert reads(hub, "q1") == reads(hub, "q2")
    assert len({reads(hub, f"q{number}") for number in range(5)}) == 4
    assert [inserted(hub, f"q{number}") for number in range(5)] == [
        [(1, 1, 1), (2, 2, 1)],
        [(1, 1, 1), (2, 2, 1), (2, 2, 2)],
        [(1, 1, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2)],
        [],
        [(1, 1, 1)],
    ]


def test_queries_from_now_or_without_an_archive_or_sharing_have_their_own_join(hub: Hub) -> None:
    for number in range(2):
        hub.register(pairs(v=number), f"q{number}")
    hub.execute(
        f"CREATE QUERY now FROM NOW AS {pairs()}; CREATE QUERY alone OPTIONS (sharing 'off') AS {pairs()}"
    )
    hub.register(pairs().replace("a x", "forgotten x"), "no")
    hub.register(pairs(v=3).replace("a x", "forgotten x"), "archive")
    operator_ids = {name: hub.operator_and_query(name)[0].id for name in ("now", "alone", "no", "archive")}
    assert {name: reads(hub, name) for name in operator_ids} == {
        name: f"{id_}.inner" for name, id_ in operator_ids.items()
    }


def test_a_query_that_comes_late_reads_the_matches_that_are_there(hub: Hub) -> None:
    for number in range(2):
        hub.register(pairs(v=number), f"q{number}")
    push(hub, "a", (1, 1, 10), (2, 2, 11))
    push(hub, "b", (1, 5, 12), (2, 6, 30), (2, 7, 13))
    hub.catch_up()
    hub.register(pairs(5, 5), "late")
    hub.catch_up()
    push(hub, "a", (1, 3, 14), (3, 3, 40))
    push(hub, "b", (3, 3, 41))
    hub.catch_up()
    assert reads(hub, "late") == reads(hub, "q1")
    assert inserted(hub, "late") == [(1, 1, 5), (1, 3, 5), (2, 2, 7)]


def test_the_join_outlives_its_founder_and_ends_with_its_last_reader(hub: Hub) -> None:
    for number in range(4):
        hub.register(pairs(), f"q{number}")
    push(hub, "a", (1, 1, 10))
    hub.catch_up()
    shared = reads(hub, "q1")
    hub.execute("DROP QUERY q0; DROP QUERY q1")
    push(hub, "b", (1, 5, 12), (9, 9, 40))
    push(hub, "a", (9, 9, 40))
    hub.catch_up()
    assert inserted(hub, "q2") == [(1, 1, 5)]
    assert changes(hub, "q2") == changes(hub, "q3")
    hub.execute("DROP QUERY q2; DROP QUERY q3")
    assert joins(hub) == []
    for number in range(2):
        hub.register(pairs(), f"new{number}")
    hub.catch_up()
    assert reads(hub, "new1") not in ("", shared)
    assert changes(hub, "new1") == changes(hub, "new0")


def test_a_home_is_opened_with_the_joins_that_were_chosen(tmp_path: Path) -> None:
    hub = opened(tmp_path)
    hub.execute(SCRIPT)
    for number in range(3):
        hub.register(pairs(v=9 - number), f"q{number}")
    hub.execute("DROP QUERY q0")
    chosen, plan = {name: reads(hub, name) for name in ("q1", "q2")}, joins(hub)
    hub.close()
    again = opened(tmp_path)
    assert {name: reads(again, name) for name in ("q1", "q2")} == chosen
    assert joins(again) == plan
    again.close()


def test_the_same_text_again_changes_nothing(hub: Hub) -> None:
    for number in range(3):
        hub.register(pairs(v=number), f"q{number}")
    before = {name: hub.operator_and_query(name)[0].id for name in ("q0", "q1", "q2")}
    for number in range(3):
        hub.execute(
            f"CREATE QUERY q{number} AS {pairs(v=number)}; ALTER QUERY q{number} AS {pairs(v=number)}"
        )
    assert {name: hub.operator_and_query(name)[0].id for name in before} == before


def test_many_in_one_script_share_as_one_by_one(hub: Hub) -> None:
    hub.register_many({f"q{number}": pairs(v=number) for number in range(20)})
    assert len({reads(hub, f"q{number}") for number in range(1, 20)}) == 1
    assert len(joins(hub)) == 2


def test_paused_readers_do_not_stop_the_join_of_the_others(hub: Hub) -> None:
    for number in range(3):
        hub.register(pairs(), f"q{number}")
    hub.execute("PAUSE QUERY q1")
    push(hub, "a", (1, 1, 10), (9, 9, 40))
    push(hub, "b", (1, 5, 12), (9, 9, 40))
    hub.catch_up()
    assert inserted(hub, "q2") == [(1, 1, 5)]
    hub.execute("PAUSE QUERY q2")
    push(hub, "a", (1, 2, 50), (9, 9, 80))
    push(hub, "b", (1, 6, 51), (9, 9, 80))
    hub.catch_up()
    hub.execute("RESUME QUERY q1; RESUME QUERY q2")
    hub.catch_up()
    assert changes(hub, "q1") == changes(hub, "q2") == changes(hub, "q0")


def test_explain_names_the_shared_join_and_what_it_costs(hub: Hub) -> None:
    for number in range(3):
        hub.register(pairs(v=number), f"q{number}")
    text = hub.explain("q2")
    assert "chosen by: shared join" in text
    assert "read pairs of a JOIN b (shared)" in text
    assert "a JOIN b (shared)" in hub.explain()


def test_explain_counts_what_a_join_looked_up_and_compared(hub: Hub) -> None:
    """Three rows of `a` meet four of `b`, of which two have the key of one of them."""
    hub.register(pairs(), "q")
    push(hub, "a", (1, 1, 10), (2, 1, 10), (3, 1, 10))
    hub.catch_up()
    push(hub, "b", (1, 5, 10), (1, 6, 10), (7, 5, 10), (8, 5, 10))
    hub.catch_up()
    assert "probes, 1 rows compared" in hub.explain("q")


def test_rows_are_stored_and_matches_found_once_for_all_queries(hub: Hub) -> None:
    """Of three queries and of sixty: the shared join stores the same rows, and compares each pair of a key once."""
    seen = []
    for count in (3, 60):
        hub.register_many({f"of{count}_{number}": pairs(5, 6, number) for number in range(count)})
        push(hub, "a", *((key, 0, 10 * count) for key in range(30)))
        push(hub, "b", *((key, 1, 10 * count) for key in range(30)))
        hub.catch_up()
        last = hub.status()["last_epoch"]["operators"][reads(hub, "of3_2")]
        seen.append((last["delta_rows"], last["candidates"], last["results"]))
    assert seen == [(61, 30, 31), (61, 30, 30)]  # with one that marks the beginning


def calls(hub: Hub) -> int:
    """Calls of functions, of Python and from it, until all that was pushed is answered."""
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        hub.catch_up()
    finally:
        sys.setprofile(None)
    return made


def test_rows_that_no_reader_selects_cost_as_much_whatever_the_number_of_readers(tmp_path: Path) -> None:
    """Of 20 queries and of 200, which all join these rows and reject all pairs; and one row that all of them want."""
    made = {}
    for count in (20, 200):
        hub = Hub(tmp_path / str(count), LocalExecutor(), tasks=1)
        hub.execute(SCRIPT)
        hub.register_many({f"q{n}": f"{pairs(5, 6, 3)} AND y.v - x.v = {5 + n}" for n in range(count)})
        for second in range(10, 100, 10):
            push(hub, "a", (1, 0, second))
            push(hub, "b", (1, 1, second))
            made[count] = calls(hub)
        assert hub.status()["last_epoch"]["operators"][reads(hub, "q7")]["candidates"] == 1
        push(hub, "a", (1, 0, 200), (2, 0, 220))
        push(hub, "b", (1, 7, 200), (2, 8, 220))
        hub.catch_up()
        assert [inserted(hub, f"q{n}") for n in (1, 2, 3)] == [[], [(1, 0, 7)], []]
        hub.close()
    assert made[200] < 1.15 * made[20], made


def test_aggregates_of_pairs_in_windows_of_their_own_are_one_family(hub: Hub) -> None:
    """Each was alone in an earlier version; its state is found under that name."""
    groups = pairs(5, 6, 3).replace("x.k, x.v, y.v AS w", "x.k, COUNT(*) AS n") + " GROUP BY x.k"
    for number, range_ in enumerate((8, 5, 6, 7)):
        hub.register(groups.replace("5 SECONDS", f"{range_} SECONDS"), f"g{number}")
    operators = [hub.operator_and_query(f"g{number}")[0] for number in range(1, 4)]
    assert len({operator.family_key for operator in operators}) == 1
    former = [operator.former_states for operator in operators]
    assert len(set(former)) == 3, "by the end of a row, which the windows decide"
    assert operators[0].family_key not in {name for names in former for name in names}


def required(hub: Hub, join: str) -> list[str]:
    """What a join requires of the rows of each side."""
    operator = hub.loop.engine.plan.operators[join]
    assert isinstance(operator, WindowJoin)
    return [" AND ".join(show(test.predicate) for test in side.filters) for side in operator.spec.sides]


def test_queries_that_are_registered_together_join_the_rows_that_any_of_them_selects(hub: Hub) -> None:
    """Of ten queries the first has a join of its own; of the others every one has `y.v > 2` and some of `x.v < 0` to `x.v < 9`."""
    hub.register_many({f"q{number}": f"{pairs(v=number)} AND y.v > 2" for number in range(10)})
    shared = reads(hub, "q9")
    assert {reads(hub, f"q{number}") for number in range(1, 10)} == {shared}
    assert required(hub, shared) == ["(s0.v <= 8)", "(s1.v >= 3)"]
    assert "only where (s0.v <= 8)" in hub.explain("q9")
    push(hub, "a", (1, 4, 10), (2, 50, 10), (3, 8, 10), (9, 99, 40))
    push(hub, "b", (1, 2, 11), (1, 3, 11), (2, 9, 11), (3, 7, 11), (9, 0, 40))
    hub.catch_up()
    last = hub.status()["last_epoch"]["operators"][shared]
    assert (last["delta_rows"], last["candidates"]) == (6, 2)  # with one that marks the beginning
    answers = {number: inserted(hub, f"q{number}") for number in (4, 5, 8, 9)}
    assert answers == {4: [], 5: [(1, 4, 3)], 8: [(1, 4, 3)], 9: [(1, 4, 3), (3, 8, 7)]}


def test_a_query_that_selects_other_rows_reads_a_join_of_all_rows(hub: Hub) -> None:
    """Its past too: the join that others read has not found it."""
    hub.register_many({f"q{number}": pairs(v=number) for number in range(1, 10)})
    push(hub, "a", (1, 4, 10), (2, 50, 10), (9, 9, 40))
    push(hub, "b", (1, 3, 11), (2, 9, 11), (9, 9, 40))
    hub.catch_up()
    narrow = reads(hub, "q9")
    hub.register(pairs(v=8), "like them")
    hub.register_many({f"r{number}": pairs(v=60 + number) for number in range(10)})
    hub.register(pairs(v=99), "other")
    hub.catch_up()
    assert reads(hub, "like them") == narrow
    assert {reads(hub, name) for name in ("other", "r0", "r9")} == {reads(hub, "other")} != {narrow}
    assert required(hub, reads(hub, "other")) == ["", ""]
    assert [inserted(hub, name) for name in ("like them", "other", "r0")] == [
        [(1, 4, 3)],
        [(1, 4, 3), (2, 50, 9)],
        [(1, 4, 3), (2, 50, 9)],
    ]


def test_a_query_with_a_join_of_its_own_among_others_changes_nothing_for_them(hub: Hub) -> None:
    """In one script: five readers, a query that shares nothing, and five more."""
    create = [f"CREATE QUERY q{number} AS {pairs(v=number)}" for number in range(11)]
    create[6] = create[6].replace(" AS ", " OPTIONS (sharing 'off') AS ", 1)
    hub.execute(";".join(create))
    shared = reads(hub, "q1")
    assert {reads(hub, f"q{number}") for number in range(1, 11) if number != 6} == {shared}
    assert required(hub, shared) == ["(s0.v <= 10)", ""]
    assert len(joins(hub)) == 3
    for number in range(2):
        hub.register(pairs(40, 40, number), f"long{number}")
    long = pairs(40, 40)
    hub.execute(f"CREATE QUERY own OPTIONS (sharing 'off') AS {long}; CREATE QUERY long2 AS {long}")
    assert reads(hub, "long2") == reads(hub, "long1")


def test_a_factor_that_all_have_is_in_the_join_and_not_above_it_over_restarts_and_without_its_founder(
    tmp_path: Path,
) -> None:
    hub = opened(tmp_path)
    hub.execute(SCRIPT)
    text = "SELECT x.k, x.v, y.v AS w FROM a x [RANGE 5 SECONDS], b y [RANGE 6 SECONDS] WHERE x.k = y.k AND y.v IN (3, 5) AND x.v <> 4"
    hub.register_many({f"q{number}": text for number in range(9)})
    before = required(hub, reads(hub, "q8"))
    push(hub, "a", (1, 1, 10), (1, 4, 10))
    hub.catch_up()
    hub.close()
    again = opened(tmp_path)
    again.execute("DROP QUERY q0; DROP QUERY q1")
    push(again, "a", (9, 9, 40))
    push(again, "b", (1, 2, 11), (1, 3, 11), (1, 5, 11), (9, 9, 40))
    again.catch_up()
    assert required(again, reads(again, "q8")) == before == ["(s0.v <> 4)", "((s1.v >= 3) AND (s1.v <= 5))"]
    above = again.explain("q8").split("WindowJoin")[0]
    assert "in(s1.v, 3, 5)" in above, f"the join tests the bounds of these alone: {above}"
    assert "<> 4" not in above, "tested once for each row"
    assert inserted(again, "q8") == [(1, 1, 3), (1, 1, 5)]
    again.close()


def within(seconds: int, v: int = 9) -> str:
    return (
        f"SELECT x.k, x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.v < {v}"
        f" AND y.at BETWEEN x.at AND x.at + INTERVAL '{seconds}' SECOND"
    )


def test_a_shared_join_of_bare_streams_expires_the_rows_that_no_interval_needs(hub: Hub) -> None:
    """Ten rows of each stream every twenty seconds, of which pairs need five: merges leave those of a few epochs."""
    for number, seconds in enumerate((5, 6, 7)):
        hub.register(within(seconds, 9 - number), f"q{number}")
    shared, rows = reads(hub, "q2"), []
    for epoch in range(30):
        for name in "ab":
            push(hub, name, *((key, 1, 20 * epoch) for key in range(10)))
        hub.catch_up()
        rows.append(hub.status()["last_epoch"]["operators"][shared]["state_rows"])
    assert reads(hub, "q1") == shared
    assert max(rows) < 300
    assert len(changes(hub, "q2")) == 300


def test_intervals_of_other_classes_have_their_own_join(hub: Hub) -> None:
    for number, seconds in enumerate((5, 6, 60, 61)):
        hub.register(within(seconds), f"q{number}")
    push(hub, "a", (1, 1, 10), (2, 1, 10))
    push(hub, "b", (1, 5, 16), (2, 6, 70), (3, 7, 100))
    hub.catch_up()
    assert len(joins(hub)) == 4
    assert [len(changes(hub, f"q{number}")) for number in range(4)] == [0, 1, 2, 2]


def test_windows_on_both_sides_of_a_size_class_share_the_wider_join(hub: Hub) -> None:
    """Classes end at 8.4 and at 16.8 seconds."""
    for number, ranges in enumerate(((8, 7), (9, 8), (7, 9), (8, 8), (10, 11), (40, 8))):
        hub.register(pairs(*ranges), f"q{number}")
    push(hub, "a", (1, 1, 10), (2, 2, 2), (3, 3, 20), (9, 9, 30))
    push(hub, "b", (1, 5, 18), (1, 6, 20), (2, 7, 12), (3, 8, 10), (9, 9, 30))
    hub.catch_up()
    assert {reads(hub, f"q{number}") for number in range(1, 5)} == {reads(hub, "q1")}
    assert len(joins(hub)) == 3
    joined = [[(row[0], row[2]) for row in inserted(hub, f"q{number}")] for number in range(5)]
    assert joined == [[(1, 5)], [(1, 5)], [], [(1, 5)], [(1, 5), (1, 6), (2, 7), (3, 8)]]


COUNTS = (
    "SELECT x.k, COUNT(*) AS n, SUM(x.v) AS s FROM a x [RANGE TUMBLING 10 SECONDS] JOIN b y [RANGE TUMBLING 10 SECONDS]"
    " ON x.k = y.k AND x.v < {v} GROUP BY x.k"
)


def test_some_aggregates_make_no_pairs_and_many_share_them(hub: Hub) -> None:
    hub.register_many({f"q{number}": COUNTS.format(v=number) for number in range(20)})
    assert len(joins(hub)) == 1
    assert not {reads(hub, f"q{number}") for number in range(8)} & set(joins(hub))
    hub.register(COUNTS.format(v=15), "later")
    assert {reads(hub, f"q{number}") for number in range(8, 20)} == {reads(hub, "later")} == set(joins(hub))
    push(hub, "a", (1, 1, 1), (1, 5, 2), (2, 9, 3))
    push(hub, "b", (1, 0, 4), (1, 0, 5), (2, 0, 6), (9, 9, 30))
    push(hub, "a", (9, 9, 30))
    hub.catch_up()
    answers = {number: changes(hub, f"q{number}") for number in (2, 6, 8, 19)}
    assert answers == {
        2: [(1, 2, 2)],
        6: [(1, 4, 12)],
        8: [(1, 4, 12)],
        19: [(1, 4, 12), (2, 1, 9)],
    }


def test_aggregates_read_pairs_that_are_made_for_others(hub: Hub) -> None:
    for number in range(2):
        hub.register(COUNTS.format(v=number).replace("x.v <", "y.v > x.v +"), f"q{number}")
    hub.register(COUNTS.format(v=5), "sum")
    assert reads(hub, "sum") == reads(hub, "q1")


def test_an_aggregate_that_an_earlier_version_registered_keeps_its_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = opened(tmp_path)
    hub.execute(SCRIPT)
    with monkeypatch.context() as earlier:
        earlier.setattr("headrace.catalog.catalog.LAYOUT", 1)
        hub.register(COUNTS.format(v=30), "q")
    push(hub, "a", (1, 1, 1), (1, 5, 2))
    push(hub, "b", (1, 0, 4))
    hub.catch_up()
    hub.close()
    again = opened(tmp_path)
    push(again, "b", (1, 0, 5), (9, 9, 30))
    push(again, "a", (9, 9, 30))
    again.catch_up()
    assert joins(again) == [reads(again, "q")]
    assert changes(again, "q") == [(1, 4, 12)]
    again.execute(f"ALTER QUERY q AS {COUNTS.format(v=3)}")
    again.catch_up()
    assert joins(again) == []
    assert changes(again, "q") == [(1, 2, 2)]
    again.close()


def test_shared_joins_of_an_earlier_version_store_what_all_their_readers_need(hub: Hub) -> None:
    """Intervals of any length read one join of bare streams, whose name had no size classes."""
    for number, seconds in enumerate((5, 60)):
        hub.register(within(seconds), f"q{number}")
    definitions = [hub.catalog.queries[f"q{number}"].definition for number in range(2)]
    entries = [
        {**registration(replace(definition, join="jearlier")), "layout": 1} for definition in definitions
    ]
    join = make_plan(hub.catalog.apply_all(entries)).operators["jearlier"]
    assert isinstance(join, WindowJoin)
    assert [side.lookback for side in join.spec.sides] == [None, None]


def test_short_windows_do_not_read_the_join_of_much_longer_ones(hub: Hub) -> None:
    for number in range(2):
        hub.register(pairs(40, 40, number), f"q{number}")
    hub.register(pairs(5, 6), "short")
    assert reads(hub, "short") != reads(hub, "q1")


def test_queries_leave_the_shared_join_and_read_it_again_while_rows_come(tmp_path: Path) -> None:
    """AQP-13: sharing of synopses is switched while queries run, is in force after a restart, and changes no answer."""
    texts = {
        "pairs": pairs(),
        "fewer": pairs(6, 5, 4),
        "lagging": "SELECT x.k, x.v, y.v AS w FROM a x, b y WHERE x.k = y.k"
        " BEGIN NOW - INTERVAL 8 SECONDS END NOW - INTERVAL 2 SECONDS",
        "groups": "SELECT x.k, COUNT(*) AS n FROM a x [RANGE 5 SECONDS], b y [RANGE 6 SECONDS] WHERE x.k = y.k GROUP BY x.k",
    }
    names = list(texts)

    def run(folder: Path, *, switching: bool) -> dict[str, list[tuple[object, ...]]]:
        hub, own = opened(folder), list[bool]()
        hub.execute(SCRIPT)
        for name, text in texts.items():
            hub.register(text, name)
        for epoch in range(8):
            push(hub, "a", *((n % 3, n % 5, 4 * epoch + n) for n in range(4)))
            push(hub, "b", *((n % 3, n % 7, 4 * epoch + n + 1) for n in range(4)))
            hub.catch_up()
            if switching:
                name = names[epoch % 4]
                for mode, is_alone in (("off", True), ("on", False)) if epoch % 3 else (("off", True),):
                    hub.execute(f"ALTER QUERY {name} SET (sharing '{mode}')")
                    hub.catch_up()
                    assert (not hub.catalog.require_query(name).definition.join) or not is_alone
                    own.append(reads(hub, name).startswith(hub.catalog.require_query(name).operator_id))
                if epoch % 5 == 4:
                    hub.close()
                    hub = opened(folder)
        assert not switching or {*own} == {False, True}, "by itself, and reading what others read"
        answers = {
            name: sorted(map(tuple, (row.values() for row in hub.query(name).invoke().to_pylist())), key=repr)
            for name in names
        }
        hub.close()
        return answers

    kept = run(tmp_path / "kept", switching=False)
    assert all(kept.values())
    assert run(tmp_path / "switched", switching=True) == kept

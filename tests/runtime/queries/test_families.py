"""Queries of one shape keep their state together, and each answers as if it were alone, whatever the others do (law 6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.families.family import QueryRowCounts
from headrace.operators.families.family_operator import FamilyOperator
from headrace.operators.families.numbering import number_of
from headrace.operators.joins import changelog_join
from headrace.operators.sharing import scan_sharing
from headrace.planner.lowering import lower
from headrace.runtime.epoch import engine
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import bound_queries
from headrace.time import SECOND
from tests.examples import examples
from tests.runtime.rig import Rig, answers, cut, expected, faults_once_tidy, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
SHAPES = (
    "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [{window}] {where} GROUP BY k {rest}",
    "SELECT COUNT(*) AS n, SUM(x) AS total FROM s [{window}] {where} {rest}",
    "SELECT k, MAX(y) AS n, SUM(x) AS total FROM s [{window}] {where} GROUP BY k {rest}",
    "SELECT g, COUNT(DISTINCT k) AS n, SUM(x) AS total FROM s [{window}] {where} GROUP BY g {rest}",
    "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE {extent} SECONDS] {where} GROUP BY k {rest}",
    "SELECT COUNT(*) AS n, SUM(x) AS total FROM s [RANGE {extent} SECONDS] {where} {rest}",
    "SELECT g, COUNT(DISTINCT k) AS n, SUM(x) AS total FROM s [RANGE {extent} SECONDS] {where} GROUP BY g {rest}",
    "SELECT k, MAX(y) AS n, SUM(x) AS total FROM s [PARTITION BY k ROWS {extent}] {where} GROUP BY k {rest}",
    "SELECT k, MIN(x) AS n, SUM(x) AS total FROM s {where} GROUP BY k {rest}",
    "SELECT k, x AS n, g AS total FROM s [ROWS {extent}] {where}",
    "SELECT DISTINCT k, g FROM s [RANGE {extent} SECONDS] {where}",
    "SELECT k, x AS n, g AS total FROM s [RANGE {extent} SECONDS] {where}",
    (
        "SELECT MAX(c.n) AS n, SUM(c.total) AS total FROM (SELECT k, COUNT(*) AS n, SUM(x) AS total"
        " FROM s [RANGE {extent} SECONDS] {where} GROUP BY k) AS c"
    ),
    (
        "SELECT c.k, c.n, c.total FROM (SELECT k, COUNT(*) AS n, SUM(x) AS total"
        " FROM s [RANGE {extent} SECONDS] {where} GROUP BY k) AS c WHERE c.n > 1"
    ),
    (
        "SELECT a.k, COUNT(*) AS n, SUM(a.x) AS total FROM s [RANGE 7 SECONDS] AS a"
        " WHERE a.k IN (SELECT b.k FROM s [RANGE {extent} SECONDS] AS b {where}) GROUP BY a.k"
    ),
)
WINDOWS = (
    [f"RANGE {4 * n + 2} SECONDS SLIDE 4 SECONDS" for n in (0, 1, 2, 5)],
    [f"RANGE {n} SECONDS SLIDE 1 SECONDS" for n in (1, 3, 9, 14, 25)],
    [f"RANGE {3 * n} SECONDS SLIDE 3 SECONDS" for n in (1, 2, 4)],
    ["LANDMARK SLIDE 5 SECONDS", "RANGE 5 SECONDS SLIDE 5 SECONDS", "RANGE 10 SECONDS SLIDE 5 SECONDS"],
)
"""Windows over the same panes, and a landmark."""
OVER_RESULTS = range(12, len(SHAPES))
"""Those over SELECTs."""
AT_INSTANTS = range(4, 12)
EXTENTS = (1, 2, 3, 5, 8, 9, 30)
WHERE = ("", "WHERE x > 0", "WHERE x BETWEEN -2 AND 6", "WHERE k = 'a'", "WHERE g IS NULL OR y < 0")
REST = ("", "HAVING SUM(x) > 3", "HAVING 6 / SUM(x) > 1", "ORDER BY total DESC, n LIMIT 2")


def families(hub: Hub) -> dict[str, list[str]]:
    """Operators by the family they are in."""
    queries_of: dict[str, list[str]] = {}
    for operator in hub.loop.engine.plan.operators.values():
        queries_of.setdefault(str(operator.family_key), []).append(operator.id)
    return queries_of


def text(
    shape: int, where: str, rest: str, extent: int = 5, window: str = "RANGE 10 SECONDS SLIDE 4 SECONDS"
) -> str:
    return SHAPES[shape].format(where=where, rest=rest, extent=extent, window=window)


def assert_each_as_alone(hub: Hub, files: list[list[dict[str, object]]]) -> None:
    for name, rows in answers(hub, hub.run_once()).items():
        assert rows == expected(hub.operator_and_query(name)[1], files), name


@examples(24, shares_fixtures=True)
@given(data=st.data())
def test_members_come_go_rest_and_catch_up_without_the_others_noticing(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_sharing, "MOST_SEPARATE_FILTERS", data.draw(st.sampled_from((0, 12))))
    rows = made_rows(data.draw(st.integers(0, 10**6)), 40, disorder=3 * SECOND)
    files = cut(rows, *range(8, 40, 8))
    rig = Rig(tmp_path_factory.mktemp("home"), ONE_FILE)
    shape = data.draw(st.integers(0, len(SHAPES) - 1))
    windows = st.sampled_from(data.draw(st.sampled_from(WINDOWS)))
    created = 0
    with rig.hub(2, {}):
        pass
    for file in files[:-1]:
        rig.drop(file)
        with rig.hub(data.draw(st.integers(1, 3))) as hub:
            present = [query.definition.name for query in hub.catalog.queries.values()]
            for _ in range(data.draw(st.integers(0, 3))):
                where, rest = data.draw(st.sampled_from(WHERE)), data.draw(st.sampled_from(REST))
                wanted = text(shape, where, rest, data.draw(st.sampled_from(EXTENTS)), data.draw(windows))
                hub.execute(f"CREATE QUERY m{created} AS {wanted}")
                created += 1
            if present:
                doing = data.draw(st.sampled_from(("PAUSE", "RESUME", "DROP", "nothing")))
                if doing != "nothing":
                    hub.execute(f"{doing} QUERY {data.draw(st.sampled_from(present))}")
            for _ in range(data.draw(st.integers(0, 4))):
                hub.loop.step()
    rig.drop(files[-1])
    with rig.hub(2) as hub:
        for query in hub.catalog.queries.values():
            if query.definition.paused:
                hub.execute(f"RESUME QUERY {query.definition.name}")
        assert_each_as_alone(hub, files)
        assert not faults_once_tidy(hub)


def test_queries_that_differ_in_where_having_and_select_list_are_one_family(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    queries = {f"m{n}": text(0, where, "HAVING SUM(x) > 3") for n, where in enumerate(WHERE)}
    queries["shown"] = (
        "SELECT SUM(x) AS t, COUNT(*) + 1 AS n FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS] GROUP BY k"
    )
    with rig.hub(2, queries) as hub:
        together = families(hub)
    assert sorted(len(members) for members in together.values()) in ([6], [1, 5])


def test_rows_of_a_dropped_member_leave_the_state_and_those_of_others_stay(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(5, 200), *range(10, 200, 10))
    rig.drop(*files[:10])
    queries = {f"m{n}": text(0, where, "") for n, where in enumerate(WHERE)}
    with rig.hub(1, queries) as hub:
        hub.catch_up()
        gone = number_of(hub.operator_and_query("m0")[0].id)
        assert gone in members_at_rest(hub)
        hub.execute("DROP QUERY m0")
        rig.drop(*files[10:])
        hub.catch_up()
        assert gone not in members_at_rest(hub)
        assert len(members_at_rest(hub)) == len(WHERE) - 1
        assert_each_as_alone(hub, files)


def members_at_rest(hub: Hub) -> set[int]:
    runs = [open_run(hub.home.store, run.name) for run in hub.home.latest().state]
    tables = [table for run in runs for name, table in run.items() if name.startswith("f")]
    return {number for table in tables for number in QueryRowCounts.of(table).numbers.tolist()}


def test_a_row_that_fails_for_one_query_is_reported_to_that_query_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop([{"k": "a", "g": 1, "x": 0, "y": 1.0, "at": 0}, {"k": "b", "g": 1, "x": 2, "y": 1.0, "at": 0}])
    queries = {
        "fails": text(0, "", "HAVING 6 / SUM(x) > 1"),
        "fine": text(0, "", "HAVING SUM(x) >= 0"),
        "fails_too": text(0, "WHERE 1 / x > 0", ""),
    }
    with rig.hub(1, queries) as hub:
        rig.drop([{"k": "c", "g": 1, "x": 2, "y": 1.0, "at": 90 * SECOND}])
        hub.catch_up()
        refused = hub.status()["rejected"]
        refused = {name: refused.get(name, 0) for name in queries}
        assert refused == {"fine": 0, "fails": 2, "fails_too": 1}
        assert [row[1]["k"] for row in answers(hub)["fine"]] == ["a", "b"] * 2


def test_a_query_of_another_range_joins_the_family_and_is_filled_from_its_panes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {**ONE_FILE, "archive": "none"})
    files = cut(made_rows(9, 120), 60, 90)
    ranges = {"before": 26, "longer": 14, "shorter": 6}
    texts = {
        name: text(0, "", "", window=f"RANGE {length} SECONDS SLIDE 4 SECONDS")
        for name, length in ranges.items()
    }
    with rig.hub(2, {"before": texts["before"]}) as hub:
        rig.drop(files[0])
        hub.catch_up()
        for name in ("longer", "shorter"):
            hub.execute(f"CREATE QUERY {name} AS {texts[name]}")
        hub.catch_up()
        assert [len(ids) for ids in families(hub).values()] == [3]
        begun = {}
        for name in ("longer", "shorter"):
            operator = hub.operator_and_query(name)[0]
            assert hub.home.latest().operators[operator.id].backfilled_from == "the panes of before"
            begun[name] = hub.home.latest().operators[operator.id].emitted_to
        rig.drop(*files[1:])
        for name, answered in answers(hub, hub.run_once()).items():
            whole = expected(hub.operator_and_query(name)[1], files)
            assert answered == [row for row in whole if row[0] > begun.get(name, row[0] - 1)], name


@pytest.mark.parametrize(
    ("shape", "extents"),
    [(shape, EXTENTS) for shape in (*AT_INSTANTS, *OVER_RESULTS)] + [(OVER_RESULTS[-1], EXTENTS[-1:])],
)
def test_a_home_whose_queries_stored_their_rows_apart_goes_on_with_them_together(
    shape: int, extents: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cut(made_rows(4, 60, disorder=3 * SECOND), 20, 40)
    rig = Rig(tmp_path, ONE_FILE)
    texts = {f"m{extent}": text(shape, "", "", extent) for extent in extents}
    bound_queries._lowered.clear()
    with monkeypatch.context() as before, rig.hub(2, {}) as hub:
        before.setattr(FamilyOperator, "in_family", lambda operator: operator)
        hub.register_many(texts)
        rig.drop(files[0])
        hub.run_once()
        assert list(families(hub)) == ["None"]
    bound_queries._lowered.clear()
    for file, tasks in zip(files[1:], (2, 3), strict=True):
        rig.drop(file)
        with rig.hub(tasks) as hub:
            assert all(len(queries) == len(extents) for queries in families(hub).values())
            assert "None" not in families(hub)
            assert_each_as_alone(hub, files[: files.index(file) + 1])
            assert not faults_once_tidy(hub)


@pytest.mark.parametrize("shape", OVER_RESULTS)
def test_a_home_whose_readers_of_results_had_a_family_for_each_stream_goes_on_with_one(
    shape: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cut(made_rows(4, 60, disorder=3 * SECOND), 20, 40)
    rig = Rig(tmp_path, ONE_FILE)
    texts = {f"m{extent}": text(shape, "", "", extent) for extent in EXTENTS}
    bound_queries._lowered.clear()
    with monkeypatch.context() as before, rig.hub(2, {}) as hub:
        before.setattr(FamilyOperator, "among_readers_of", lambda operator, _: operator)
        hub.register_many(texts)
        rig.drop(files[0])
        hub.run_once()
        assert len(families(hub)) > len(EXTENTS)
    monkeypatch.setattr(engine, "is_readable", lambda *_: False)  # another version wrote the plan
    with rig.hub(2) as hub:
        assert len(families(hub)) <= 3
        rig.drop(*files[1:])
        hub.run_once()
        assert_each_as_alone(hub, files)
        assert not faults_once_tidy(hub)


def test_rows_of_queries_with_one_hash_are_not_joined_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog_join, "mixed_bits", lambda _: 0)
    files = cut(made_rows(4, 60, disorder=3 * SECOND), 20, 40)
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(2, {f"m{extent}": text(OVER_RESULTS[-1], "", "", extent) for extent in EXTENTS}) as hub:
        rig.drop(*files)
        hub.run_once()
        assert_each_as_alone(hub, files)


CROWDS = (
    "SELECT k, x AS n, g FROM s WHERE x > {n} - 5",
    "SELECT k, 6 / (x - {n}) AS n FROM s WHERE 6 / (x + {n}) > 0",
    "SELECT s.k, names.name, x + {n} AS n FROM s LEFT JOIN names ON s.g = names.id WHERE 6 / x > 0 AND x > {n} - 5",
    "SELECT k, x AS n FROM base WHERE x > {n} - 5",
    "SELECT k, COUNT(*) AS n FROM base WHERE x > {n} - 5 GROUP BY k",
    "SELECT k, x AS n FROM s [RANGE {n} SECONDS] WHERE g IN (SELECT id FROM names)",
    "SELECT names.name, COUNT(*) AS n FROM s [ROWS {n}] JOIN names ON s.g = names.id GROUP BY names.name",
    "SELECT k, PERCENTILE(x, 0.5) AS n FROM s [RANGE {n} SECONDS] GROUP BY k HAVING 6 / SUM(x) > 0",
    "SELECT k, SUM(x) AS n FROM s [ROWS 4 SLIDE {n}] GROUP BY k HAVING 6 / SUM(x) > 0",
    "SELECT k, SUM(x) AS n FROM s [RANGE {n} SECONDS SLIDE 2 ROWS PA k] GROUP BY k HAVING 6 / SUM(x) > 0",
    "SELECT k, SUM(x) AS n FROM s [PARTITION BY k SESSION {n} SECONDS] GROUP BY k HAVING 6 / SUM(x) > 0",
    (
        "SELECT c.k, SUM(c.x) AS n FROM (SELECT k, x FROM s [RANGE {n} SECONDS] WHERE 6 / x > 0) AS c"
        " GROUP BY c.k HAVING 6 / SUM(c.x) > 0"
    ),
    "SELECT c.k, 6 / c.x AS n FROM (SELECT k, x FROM s [RANGE {n} SECONDS]) AS c WHERE 6 / c.x < {n}",
    (
        "SELECT c.k, SUM(c.x) AS n FROM (SELECT k, SUM(x) AS x FROM s [RANGE {n} SECONDS SLIDE {n} SECONDS] GROUP BY k)"
        " [RANGE 40 SECONDS SLIDE 20 SECONDS] AS c GROUP BY c.k HAVING 6 / SUM(c.x) > 0"
    ),
    (
        "SELECT a.k, SUM(a.x) AS n FROM s [RANGE {n} SECONDS] AS a"
        " WHERE a.x > {n} - 5 AND a.k IN (SELECT b.k FROM s [RANGE {n} SECONDS] AS b WHERE 6 / b.x > 0)"
        " GROUP BY a.k HAVING 6 / SUM(a.x) > 0"
    ),
    "SELECT a.k, b.g AS n FROM s [RANGE {n} SECONDS] AS a, base AS b WHERE a.k = b.k AND 6 / (a.x + b.x) < {n}",
)
"""Some with an expression or a HAVING that fails on some rows, of some of the queries only."""


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_crowd_answers_and_rejects_as_each_query_does_alone(
    crowd: str, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cut(made_rows(6, 60, disorder=3 * SECOND), 15, 30, 45)
    texts = {f"m{extent}": crowd.format(n=extent) for extent in EXTENTS}
    texts |= {"copy": crowd.format(n=3), "other": crowd.format(n=3).replace("6 /", "8 /")}
    seen = []
    for together in (True, False):
        bound_queries._lowered.clear()
        with monkeypatch.context() as alone:
            if not together:
                alone.setattr(FamilyOperator, "in_family", lambda operator: operator)
                alone.setattr(lower, "in_family", lambda operator: operator)
            rig = Rig(tmp_path / str(together), ONE_FILE)
            with rig.hub(tasks, {}) as hub:
                hub.execute("CREATE QUERY base AS SELECT k, g, x FROM s [RANGE 9 SECONDS]")
                hub.register_many(texts)
                sizes = [len(queries) for name, queries in families(hub).items() if name != "None"]
                assert (max(sizes, default=0) >= len(texts) // 8) == together
                for file in files:
                    rig.drop(file)
                    hub.run_once()
                answered = answers(hub, hub.run_once())
                rejected = {name: hub.status()["rejected"].get(name, 0) for name in texts}
                seen.append(({name: answered[name] for name in texts}, rejected))
    bound_queries._lowered.clear()
    assert seen[0] == seen[1]

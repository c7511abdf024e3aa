"""Registering queries: many at once are one entry of the log, and each costs what it adds, not what is there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.plan import bound_queries, epoch_planner, plan_files
from headrace.runtime.plan.plan_files import load_plan
from tests.runtime.rig import QUERIES, Rig, cut, faults_once_tidy, made_rows


def queries(names: range) -> str:
    return "".join(f"CREATE QUERY m{n} AS SELECT k, x + {n} AS v FROM s WHERE x > {n};" for n in names)


def test_queries_registered_in_one_script_are_one_chunk_of_the_log_and_one_plan(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        before = len(list((rig.home / "querylog").iterdir()))
        hub.catch_up()
        plans = len(list((rig.home / "plans").iterdir()))
        hub.execute(queries(range(50)))
        assert len(list((rig.home / "querylog").iterdir())) == before + 1
        hub.catch_up()
        assert (
            len(list((rig.home / "plans").iterdir())) == plans + 2
        )  # its head, and a segment of fifty operators
        assert len(hub.catalog.queries) == 50


@pytest.mark.parametrize("options", ["", "OPTIONS (retain '3 DAYS') "])
def test_a_registration_writes_what_it_adds_to_the_plan_and_not_what_is_there(
    tmp_path: Path, options: str
) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        written = []
        for first, stop in ((0, 400), (400, 401), (401, 402)):
            before = set((rig.home / "plans").iterdir()) if (rig.home / "plans").exists() else set()
            hub.execute(queries(range(first, stop)).replace(" AS SELECT", f" {options}AS SELECT"))
            hub.catch_up()
            written.append(sum(file.stat().st_size for file in set((rig.home / "plans").iterdir()) - before))
        assert max(written[1:]) < written[0] / 20


def test_whatever_comes_and_goes_the_plan_in_files_is_the_plan(tmp_path: Path) -> None:
    random, rig = Random(7), Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        engine, known = hub.loop.engine, list[int]()
        for step in range(30):
            if known and random.random() < 0.4:
                some = random.sample(known, random.randint(1, min(len(known), 9)))
                hub.execute("".join(f"DROP QUERY m{n};" for n in some))
                known = [n for n in known if n not in some]
            else:
                new = [step * 40 + n for n in range(random.choice((1, 1, 2, 30)))]
                hub.execute(queries(range(new[0], new[-1] + 1)))
                known += new
            if random.random() < 0.1:
                plan_files.clear_caches()
            hub.catch_up()
            manifest = hub.home.latest()
            assert manifest.plan is not None
            assert (
                load_plan(hub.home.store, manifest.plan)
                == engine.plan
                == epoch_planner.make_plan(hub.catalog)
            )
            assert len(manifest.facts["plan segments"]) < 12
            assert set(manifest.operators) == {f"q{q.generation}" for q in hub.catalog.queries.values()}
            engine.housekeeping.grace = -1
            engine.collect()
    with rig.hub(1, {}) as hub:
        assert len(hub.catalog.queries) == len(known)
        assert faults_once_tidy(hub) == []


def test_a_query_over_a_query_comes_and_goes_with_its_stream(tmp_path: Path) -> None:
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute("CREATE QUERY a AS SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] GROUP BY k;")
        plain = hub.loop.engine.plan
        hub.execute("CREATE QUERY b AS SELECT MAX(n) AS top FROM a [RANGE TUMBLING 10 SECONDS];")
        assert len(hub.loop.engine.plan.streams) == len(plain.streams) + 1
        assert hub.loop.engine.plan == epoch_planner.make_plan(hub.catalog)
        hub.execute("CREATE OR REPLACE QUERY b AS SELECT MIN(n) AS top FROM a [RANGE TUMBLING 10 SECONDS];")
        assert hub.loop.engine.plan == epoch_planner.make_plan(hub.catalog)
        hub.execute("DROP QUERY b")
        assert hub.loop.engine.plan == plain


def test_only_what_is_new_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []
    bind_query = bound_queries.bind_query

    def counting(text: str, *more: object, **named: object) -> object:
        bound.append(text if isinstance(text, str) else more[1][text.span.start : text.span.end])  # type: ignore[index]
        return bind_query(text, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(bound_queries, "bind_query", counting)
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute(queries(range(20)))
        bound.clear()
        hub.execute("CREATE QUERY late AS SELECT k FROM s WHERE x > 100")
        hub.execute("DROP QUERY m3")
        assert set(bound) == {"SELECT k FROM s WHERE x > 100"}


def test_what_a_script_says_means_the_same_as_its_text_alone(tmp_path: Path) -> None:
    texts = {
        **QUERIES,
        "named": "SELECT k, x + 1, upper(k), COUNT(*) FROM s [RANGE TUMBLING 5 SECONDS] GROUP BY k, x + 1, upper(k)",
        "inner": "SELECT COUNT(*) FROM (SELECT k, x * 2 AS y FROM s WHERE x > 1) AS t [RANGE TUMBLING 5 SECONDS]",
    }
    with Rig(tmp_path).hub(1, {}) as hub:
        bound_queries._bound.clear()
        hub.execute(";\n".join(f"CREATE QUERY q_{name} AS {text}" for name, text in texts.items()))
        bound = {name: bound_queries.bind_text(hub.catalog, text) for name, text in texts.items()}
        bound_queries._bound.clear()
        assert bound == {name: bound_queries.bind_text(hub.catalog, text) for name, text in texts.items()}


def test_a_query_is_bound_again_when_what_it_names_is_another(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        hub.register_function("twice", lambda x: 2 * x, parameters=["BIGINT"], result="BIGINT")
        text = "SELECT twice(x) AS v FROM s"
        assert str(bound_queries.bind_text(hub.catalog, text).schema.field("v").type) == "BIGINT"
        hub.register_function("twice", str, parameters=["BIGINT"], result="STRING")
        assert str(bound_queries.bind_text(hub.catalog, text).schema.field("v").type) == "STRING"


def test_registrations_before_a_mistake_stand_and_the_mistake_is_placed(tmp_path: Path) -> None:
    with Rig(tmp_path).hub(1, {}) as hub:
        with pytest.raises(UserError, match="nowhere"):
            hub.execute(
                queries(range(3)) + "CREATE QUERY wrong AS SELECT nowhere FROM s;" + queries(range(3, 5))
            )
        assert sorted(hub.catalog.queries) == ["m0", "m1", "m2"]


def test_a_query_may_read_one_that_waits_to_be_registered(tmp_path: Path) -> None:
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute(
            "CREATE QUERY a AS SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] GROUP BY k;"
            "CREATE QUERY b AS SELECT MAX(n) AS top FROM a [RANGE TUMBLING 10 SECONDS];"
        )
        assert sorted(hub.catalog.queries) == ["a", "b"]
        with pytest.raises(UserError, match="exists and differs"):
            hub.execute("CREATE QUERY c AS SELECT k FROM s; CREATE QUERY c AS SELECT x FROM s;")


def test_many_are_registered_from_a_program_all_or_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        texts = {f"m{n}": f"SELECT k FROM s WHERE x > {n}" for n in range(50)}
        with pytest.raises(UserError, match=r"nowhere.*\(in the query 'wrong'\)"):
            hub.register_many({**texts, "wrong": "SELECT nowhere FROM s"})
        assert not hub.catalog.queries
        before = len(list((rig.home / "querylog").iterdir()))
        handles = hub.register_many(texts, from_now=True)
        assert [handle.name for handle in handles] == list(texts)
        assert all(query.definition.from_now for query in hub.catalog.queries.values())
        assert len(list((rig.home / "querylog").iterdir())) == before + 1
        hub.register("SELECT k FROM m1", "after")


def test_a_registration_is_reported_only_once_it_is_durable(tmp_path: Path) -> None:
    with Rig(tmp_path).hub(1, {}) as hub:
        script = (
            queries(range(5))
            + "SHOW QUERIES;"
            + queries(range(5, 7))
            + "CREATE QUERY bad AS SELECT nowhere FROM s"
        )
        registered = 0
        outcomes = hub.execute_each(parse_script(script), script, lambda _: True)
        for outcome in islice(outcomes, 8):
            registered += outcome.kind == "create"
            assert hub.home.query_log.length >= 1 + registered  # the first entry is the stream's
        with pytest.raises(UserError, match="nowhere"):
            next(outcomes)
        assert registered == 7
        stopped = parse_script(queries(range(7, 9)) + "SHOW QUERIES;" + queries(range(9, 11)))
        assert len(list(hub.execute_each(stopped, "", lambda _: False))) == 2
        assert sorted(hub.catalog.queries) == sorted(f"m{n}" for n in range(9))


def test_one_more_among_many_is_live_in_the_next_epoch(tmp_path: Path) -> None:
    """An epoch that begins after the registration answers it: of windows that end in it, of rows that come in it."""
    files = cut(made_rows(3, 60), *range(10, 60, 10))
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    window = "[RANGE TUMBLING 1 SECOND]"
    with rig.hub(1, {}) as hub:
        hub.register_many(
            {f"m{n}": f"SELECT k, COUNT(*) AS n FROM s {window} WHERE x > {n} GROUP BY k" for n in range(500)}
        )
        for file in files[:3]:
            rig.drop(file)
            hub.loop.step()
        came = sum(map(len, files[:3]))
        hub.register(f"SELECT k, COUNT(*) AS n FROM s {window} GROUP BY k", "windows", from_now=True)
        hub.register("SELECT k, x FROM s", "rows", from_now=True)
        rig.drop(files[3])
        assert hub.loop.step() is not None
        history = hub.query("rows").history()
        assert history["x"].to_pylist() == [row["x"] for row in files[3]]
        assert hub.query("windows").history().num_rows
        assert sum(hub.query("windows").history()["n"].to_pylist()) <= len(files[3]) < came


KINDS = (
    "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE x > {n} GROUP BY k",
    "SELECT k, x FROM s WHERE x > {n}",
    "SELECT SUM(v) AS total FROM m{over} [RANGE TUMBLING 10 SECONDS] WHERE v > {n}",
    "SELECT a.k FROM s a [RANGE 4 SECONDS SLIDE 2 SECONDS], s b [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE a.k = b.k AND a.x > {n}",
)


def steps_of(action: Callable[[], object]) -> int:
    """How many lines an action runs, each turn of a loop counted."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return note

    sys.settrace(note)
    try:
        action()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(("kind", "most"), list(zip(KINDS, (1.05, 1.05, 1.05, 1.3), strict=True)))
def test_a_registration_costs_the_same_among_ten_and_among_a_thousand(
    tmp_path: Path, kind: str, most: float
) -> None:
    """Its own text, its plan and its entry in the log, counted by the lines that run; a join looks for those of its graph."""
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute(queries(range(10)))

        def register(name: str, n: int) -> Callable[[], object]:
            return lambda: hub.register(kind.format(n=n, over=n % 10), name)

        register("first", 0)()
        register("again", 1)()
        few = steps_of(register("few", 2))
        hub.execute(queries(range(10, 1000)))
        hub.register_many({f"same{n}": kind.format(n=100 + n, over=n % 10) for n in range(50)})
        many = steps_of(register("many", 3))
        assert many < most * few

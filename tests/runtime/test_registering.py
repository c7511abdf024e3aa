"""Registering queries: many at once are one entry of the log, and each costs what it adds, not what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime import planning
from tests.runtime.rig import Rig


def queries(names: range) -> str:
    return "".join(f"CREATE QUERY m{n} AS SELECT k, x + {n} AS v FROM s WHERE x > {n};" for n in names)


def test_queries_registered_in_one_script_are_one_chunk_of_the_log_and_one_plan(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        before = len(list((rig.home / "querylog").iterdir()))
        plans = len(list((rig.home / "plans").iterdir()))
        hub.execute(queries(range(50)))
        assert len(list((rig.home / "querylog").iterdir())) == before + 1
        assert len(list((rig.home / "plans").iterdir())) == plans + 1
        assert len(hub.catalog.queries) == 50


def test_only_what_is_new_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []
    bind_query = planning.bind_query

    def counting(text: str, *more: object, **named: object) -> object:
        bound.append(text)
        return bind_query(text, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "bind_query", counting)
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute(queries(range(20)))
        bound.clear()
        hub.execute("CREATE QUERY late AS SELECT k FROM s WHERE x > 100")
        hub.execute("DROP QUERY m3")
        assert set(bound) == {"SELECT k FROM s WHERE x > 100"}


def test_a_query_is_bound_again_when_what_it_names_is_another(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        hub.register_function("twice", lambda x: 2 * x, parameters=["BIGINT"], result="BIGINT")
        text = "SELECT twice(x) AS v FROM s"
        assert str(planning.bind_text(hub.catalog, text).schema.field("v").type) == "BIGINT"
        hub.register_function("twice", str, parameters=["BIGINT"], result="STRING")
        assert str(planning.bind_text(hub.catalog, text).schema.field("v").type) == "STRING"


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

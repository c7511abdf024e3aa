"""The time zone of a request: one that does not exist is refused on each route that takes one, and by each way to a hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import UserError
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.statements.change_batch import as_written
from tests.server.serving import STREAM, Served, served

HOURS = "CREATE QUERY hours AS SELECT k, hour(at) AS h FROM s"
MESSAGE = "there is no time zone 'Mars'"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("zones") / "home") as running:
        status, outcomes = running.post("/v1/statements", STREAM)
        assert status == 200, outcomes
        yield running


def message_of(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["message"]


def test_an_unknown_zone_of_a_request_is_the_problem_that_it_is_in_a_script(hub: Served) -> None:
    for route in ("statements", "check"):
        found = hub.post(f"/v1/{route}?zone=Mars", HOURS)
        assert message_of(found) == (400, MESSAGE)
        assert found[1]["error"]["remedy"] == "Zones are named as in 'UTC' or 'Europe/Berlin'."
        assert message_of(hub.post(f"/v1/{route}", "SET TIME ZONE 'Mars'")) == (400, MESSAGE)
        written = HOURS.replace(" AS SELECT", " OPTIONS (timeZone 'Mars') AS SELECT")
        assert message_of(hub.post(f"/v1/{route}", written)) == (400, MESSAGE)
    assert message_of(hub.post("/v1/statements?zone=", HOURS)) == (400, "there is no time zone ''")
    assert hub.get("/v1/queries")["queries"] == []


def test_a_zone_of_a_request_has_one_name_for_utc(hub: Served) -> None:
    assert hub.post("/v1/statements?zone=Z", HOURS)[0] == 200
    assert hub.post("/v1/statements", HOURS)[1][0]["message"] == "query hours is there already"
    assert hub.post("/v1/statements", "DROP QUERY hours")[0] == 200


def test_a_client_in_python_gets_the_same_error(hub: Served) -> None:
    with hr.connect(hub.url) as remote:
        with pytest.raises(UserError, match=MESSAGE):
            remote.execute(HOURS, zone="Mars")
        remote.execute(HOURS, zone="Asia/Tokyo")
        (shown,) = remote.execute("SHOW CREATE QUERY hours")
        assert shown.table is not None
        assert "OPTIONS ('timeZone' 'Asia/Tokyo')" in str(shown.table.to_pylist())
        remote.execute("DROP QUERY hours")


def test_no_definition_with_an_unknown_zone_is_stored(tmp_path: Path) -> None:
    patterns = (
        "CREATE STREAM p (k STRING, at TIMESTAMP) USING push TIMESTAMP BY at PUNCTUATED BY PATTERNS OF (k);"
    )
    with hr.open(tmp_path / "home", local=True) as own:
        own.execute(STREAM + patterns)
        with pytest.raises(UserError, match=MESSAGE):
            own.execute_or_refuse(HOURS, zone="Mars", permit=as_written)
        with pytest.raises(UserError, match=MESSAGE):
            parse_script(HOURS, "Mars")
        with pytest.raises(UserError, match=MESSAGE):
            own.punctuate("p", where="k = 'a' AND at < TIMESTAMP '2024-01-01 00:00:00'", zone="Mars")
        assert not own.catalog.queries

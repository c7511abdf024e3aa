"""A second terminal: the shell of a home that another process runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.building import headrace
from tests.server.serving import STREAM, Served, served


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "home") as running:
        yield running


def test_a_shell_changes_what_another_process_runs_and_sees_the_answer(hub: Served) -> None:
    text = STREAM + "CREATE QUERY total AS SELECT COUNT(*) AS n FROM s"
    done = headrace("shell", "--home", hub.home, "-e", text)
    assert (done.returncode, done.stderr) == (0, "Stream s created.\nQuery total registered.\n")
    hub.post("/v1/streams/s/rows", '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}\n')
    for _ in range(200):
        done = headrace("shell", "--home", hub.home, "-e", "INVOKE total")
        if done.stdout == "# total\nn\n1\n":
            break
    assert done.stdout == "# total\nn\n1\n"
    assert headrace("shell", "--home", hub.home, "-e", "DROP QUERY total").returncode == 0
    assert hub.curl("/v1/queries/total")[0] == 404


def test_a_mistake_has_its_place_in_what_was_typed(hub: Served) -> None:
    done = headrace(
        "shell", "--home", hub.home, "-e", "SHOW STREAMS;\n  CREATE QUERY x AS SELECT 1 FROM nothing"
    )
    assert done.returncode == 2
    assert "line 2, column 35: there is no stream, relation or query 'nothing'" in done.stderr
    assert "\n    CREATE QUERY x AS SELECT 1 FROM nothing\n" in done.stderr


@pytest.mark.parametrize(
    "last", ["CREATE QUERY z AS SELECT 1 FROM nothing", "SHOW STREAMS; DROP QUERY nobody"]
)
def test_the_remedy_of_a_script_that_is_rolled_back_does_not_list_what_it_defines(
    hub: Served, last: str
) -> None:
    made = STREAM.replace("STREAM s", "STREAM i4") + "CREATE QUERY i5 AS SELECT COUNT(*) AS n FROM i4;"
    status, problem = hub.post("/v1/statements", f"{made} {last}")
    assert status in (400, 404)
    assert "there is no" in problem["error"]["message"]
    assert "i4" not in problem["error"]["remedy"]
    assert "i5" not in problem["error"]["remedy"]
    assert hub.curl("/v1/queries/i5")[0] == 404


def test_a_time_zone_set_in_the_shell_is_the_shells(hub: Served) -> None:
    create = "CREATE STREAM z (at TIMESTAMP) USING push; CREATE QUERY noon AS SELECT COUNT(*) AS n FROM z WHERE at > TIMESTAMP'2024-01-01 12:00:00'"
    assert (
        headrace("shell", "--home", hub.home, "-e", f"SET TIME ZONE 'Asia/Tokyo'; {create}").returncode == 0
    )
    assert "exists and differs" in headrace("shell", "--home", hub.home, "-e", create).stderr

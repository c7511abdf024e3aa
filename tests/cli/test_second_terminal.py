"""A second terminal: the shell of a home that another process runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.remote.remote_hub import RemoteHub
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


def bids(folder: Path, name: str, text: str) -> Path:
    """A script about files of bids, with the stream and the query named after the test."""
    path = folder / "script.cql"
    path.write_text(
        f"CREATE STREAM {name} (price DOUBLE, at TIMESTAMP) USING csv OPTIONS (path '{folder}/bids', header 'true') TIMESTAMP BY at;\n"
        + text.replace("NAME", name)
    )
    (folder / "bids").mkdir()
    (folder / "bids" / "1.csv").write_text("price,at\n1.5,2024-01-01T12:30:00Z\n2.5,2024-01-01T13:30:00Z\n")
    return path


def test_a_run_beside_a_hub_is_carried_out_by_it(hub: Served, tmp_path: Path) -> None:
    sums = "CREATE QUERY sums AS SELECT SUM(price) AS s FROM NAME;\nINVOKE sums;\n"
    past = "CREATE QUERY past AS SELECT COUNT(*) AS n FROM NAME WHERE at > TIMESTAMP'2024-01-01 22:00:00';"
    text = f"{sums}SET TIME ZONE 'Asia/Tokyo';\n{past}\nINVOKE past;"
    done = headrace("run", bids(tmp_path, "b1", text), "--home", hub.home, "--once")
    assert (done.returncode, done.stdout) == (0, "# sums\ns\n4.0\n\n# past\nn\n1\n"), done.stderr
    assert "has read all input" in done.stderr
    assert headrace("shell", "--home", hub.home, "-e", "INVOKE sums").stdout == "# sums\ns\n4.0\n"


def test_once_waits_until_the_hub_has_read_what_is_there(hub: Served, tmp_path: Path) -> None:
    path = bids(tmp_path, "b2", "CREATE QUERY count_of_b2 AS SELECT COUNT(*) AS n FROM NAME;")
    for more in range(2, 6):
        assert headrace("run", path, "--home", hub.home, "--once", "--quiet").returncode == 0
        shown = headrace("shell", "--home", hub.home, "-e", "INVOKE count_of_b2").stdout
        assert shown == f"# count_of_b2\nn\n{more}\n"
        (tmp_path / "bids" / f"{more}.csv").write_text("price,at\n9,2024-01-01T14:30:00Z\n")


def test_a_mistake_of_a_run_beside_a_hub_has_its_place_in_the_script(hub: Served, tmp_path: Path) -> None:
    path = bids(tmp_path, "b3", "SHOW STREAMS;\nINVOKE nobody;")
    done = headrace("run", path, "--home", hub.home)
    assert done.returncode == 2
    assert f"line 3, column 1: there is no query 'nobody' (in {path}, line 3)" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--output", "there"),
        ("--once", "--seal"),
        ("--engine", "spark"),
        ("--memory", "1 GB"),
        ("--cores", "1"),
    ],
)
def test_what_only_the_process_of_the_home_can_do_is_refused(hub: Served, tmp_path: Path, options) -> None:
    path = bids(tmp_path, "b4", "")
    done = headrace("run", path, "--home", hub.home, *options)
    assert done.returncode == 2
    assert "another process runs the home" in done.stderr
    assert "Leave it out" in done.stderr
    assert "b4" not in headrace("shell", "--home", hub.home, "-e", "SHOW STREAMS").stdout


def test_once_beside_a_hub_whose_epochs_are_paused_is_refused(hub: Served, tmp_path: Path) -> None:
    hub.post("/v1/epochs/pause", "")
    try:
        done = headrace("run", bids(tmp_path, "b5", ""), "--home", hub.home, "--once", "--engine", "local")
    finally:
        hub.post("/v1/epochs/resume", "")
    assert done.returncode == 2
    assert "epochs are paused" in done.stderr


def test_a_signal_ends_the_wait_for_a_hub_and_not_the_hub(hub: Served, tmp_path: Path, monkeypatch) -> None:
    def signalled(_: RemoteHub) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    monkeypatch.setattr(RemoteHub, "catch_up", signalled)
    began = time.monotonic()
    done = headrace("run", bids(tmp_path, "b6", ""), "--home", hub.home, "--once")
    assert done.returncode == 128 + signal.SIGTERM
    assert "Stopped; the hub on" in done.stderr
    assert time.monotonic() - began < 20
    assert "b6" in headrace("shell", "--home", hub.home, "-e", "SHOW STREAMS").stdout


def test_a_time_zone_set_in_the_shell_is_the_shells(hub: Served) -> None:
    create = "CREATE STREAM z (at TIMESTAMP) USING push; CREATE QUERY noon AS SELECT COUNT(*) AS n FROM z WHERE at > TIMESTAMP'2024-01-01 12:00:00'"
    assert (
        headrace("shell", "--home", hub.home, "-e", f"SET TIME ZONE 'Asia/Tokyo'; {create}").returncode == 0
    )
    assert "exists and differs" in headrace("shell", "--home", hub.home, "-e", create).stderr

"""Files that grow or are replaced after they were read: named in a warning, and with `appended 'read'` read on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.run_command import RunOptions, run_script
from headrace.cli.signals import Interrupts
from headrace.connectors.sources.known_files import KnownFile, end_of_lines
from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest import ingest_summary


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    (tmp_path / "in").mkdir()
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        yield hub


def made(hub: Hub, folder: Path, options: str = "", using: str = "csv") -> None:
    hub.execute(
        f"CREATE STREAM s (a INT, b STRING) USING {using} OPTIONS (path '{folder}'{options});"
        "CREATE QUERY q AS SELECT a, b FROM s"
    )


def rows(hub: Hub) -> list[int]:
    hub.catch_up()
    return [row["a"] for row in hub.query("q").history().to_pylist()]


def test_a_file_that_grew_is_named_in_a_warning(hub: Hub, tmp_path: Path) -> None:
    """In status and SHOW STREAMS, counted; and again by the next program that opens the home."""
    path = tmp_path / "in/a.csv"
    path.write_text("1,x\n")
    made(hub, tmp_path / "in")
    assert rows(hub) == [1]
    assert hub.status()["sources"] == {}
    with path.open("a") as file:
        file.write("2,y\n")
    assert rows(hub) == [1]
    warning = hub.status()["sources"]["s"]
    assert warning.startswith(f"s: '{path}' grew after it was read, and the change is not in the stream.")
    assert "appended 'read'" in warning
    assert hub.status()["changed_files"] == {"s": 1}
    assert hub.execute("SHOW STREAMS")[0].table.column("warning").to_pylist() == [warning]
    hub.close()
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as again:
        assert rows(again) == [1]
        assert again.status()["sources"] == {"s": warning}
        path.unlink()
        again.catch_up()
        assert again.status()["sources"] == {}


def test_a_file_that_was_replaced_is_named_in_a_warning(hub: Hub, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"in/{name}.csv").write_text("1,x\n")
    made(hub, tmp_path / "in")
    assert rows(hub) == [1, 1]
    (tmp_path / "in/new").write_text("7,z\n")
    (tmp_path / "in/new").replace(tmp_path / "in/a.csv")
    assert rows(hub) == [1, 1]
    assert "'{}' was replaced after".format(tmp_path / "in/a.csv") in hub.status()["sources"]["s"]
    (tmp_path / "in/b.csv").write_text("")
    rows(hub)
    assert "s: 2 files changed after they were read" in hub.status()["sources"]["s"]
    assert hub.status()["changed_files"] == {"s": 2}


def test_the_end_of_a_run_names_files_that_grew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,x\n")
    script = tmp_path / "script.cql"
    script.write_text(
        f"CREATE STREAM s (a INT, b STRING) USING csv OPTIONS (path '{path}'); CREATE QUERY q AS SELECT a FROM s;"
    )
    options = RunOptions(script=script, once=True, home=tmp_path / "home", local=True, style="csv")
    assert run_script(options, Interrupts()) == 0
    assert "grew" not in capsys.readouterr().err
    with path.open("a") as file:
        file.write("2,y\n")
    assert run_script(options, Interrupts()) == 0
    assert f"'{path}' grew after it was read" in capsys.readouterr().err


@pytest.mark.parametrize("using", ["csv", "json"])
@pytest.mark.parametrize("archive", ["copy", "in place"])
def test_appended_lines_are_read(hub: Hub, tmp_path: Path, using: str, archive: str) -> None:
    """Once each, as soon as their line feed is there; also after the home was opened again, and by a later query."""
    path = tmp_path / "in/a"
    line = (lambda a: f"{a},x\n") if using == "csv" else (lambda a: json.dumps({"a": a, "b": "x"}) + "\n")
    header = "a,b\n" if using == "csv" else ""
    path.write_text(header + line(1) + line(2)[:-2])
    made(
        hub,
        tmp_path / "in",
        f", appended 'read', archive '{archive}'" + (", header 'true'" if using == "csv" else ""),
        using,
    )
    assert rows(hub) == [1]
    with path.open("a") as file:
        file.write(line(2)[-2:] + line(3) + line(4)[:3])
    assert rows(hub) == [1, 2, 3]
    assert rows(hub) == [1, 2, 3]
    hub.close()
    with path.open("a") as file:
        file.write(line(4)[3:])
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as again:
        assert rows(again) == [1, 2, 3, 4]
        again.register("SELECT a FROM s", "later")
        again.catch_up()
        assert sorted(again.query("later").history().column("a").to_pylist()) == [1, 2, 3, 4]
        assert again.status()["sources"] == {}
        path.write_text(header)
        again.catch_up()
        assert "was replaced" in again.status()["sources"]["s"]


def test_what_is_appended_while_the_hub_runs_is_read(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "in/a.csv"
    path.write_text("1,x\n")
    made(hub, tmp_path / "in", ", appended 'read'")
    followed: list[int] = []
    with hub.running():
        for batch in hub.query("q").follow(since=0):
            followed += batch.column("a").to_pylist()
            if len(followed) == 3:
                break
            with path.open("a") as file:
                file.write(f"{len(followed) + 1},x\n")
    assert followed == [1, 2, 3]


def test_a_compressed_file_does_not_grow(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "in/a.csv.gz"
    path.write_bytes(gzip.compress(b"1,x\n2,y"))
    made(hub, tmp_path / "in", ", appended 'read'")
    assert sorted(rows(hub)) == [1, 2]
    with path.open("ab") as file:
        file.write(gzip.compress(b"\n3,z\n"))
    assert sorted(rows(hub)) == [1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("appended 'yes'", "option appended is 'yes'"),
        ("appended 'read', multiLine 'true'", "cannot both be given"),
    ],
)
def test_what_cannot_be_appended_is_refused(hub: Hub, tmp_path: Path, options: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        made(hub, tmp_path / "in", f", {options}")
    with pytest.raises(UserError, match="a parquet source has no option 'appended'"):
        made(hub, tmp_path / "in", ", appended 'read'", "parquet")


def test_lines_end_where_their_last_feed_is(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"b" * 200_000)
    assert end_of_lines(str(path), 0, 200_002) == 2
    assert end_of_lines(str(path), 2, 200_002) == 2
    path.write_bytes(b"a\n" + b"b" * 200_000 + b"\n")
    assert end_of_lines(str(path), 2, 200_003) == 200_003


def test_a_summary_of_an_older_version_is_read(hub: Hub) -> None:
    """It has a file's arrival and no size: such a file is known, and never reported as changed."""
    file = KnownFile(5, 10, 20)
    assert KnownFile.from_json(file.to_json()) == file
    assert KnownFile.from_json(5) == KnownFile(5)
    summary = ingest_summary.StreamSummary(0, {"a": file})
    content: Any = summary.as_json()
    assert content["seen"] == {"a": [5, 10, 20]}

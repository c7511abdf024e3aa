"""`headrace run --once`: answers, exit codes, messages."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import __version__
from headrace.operators.row_windows.tuple_slides import TupleSlides
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.cli.building import apart, bid, environment, headrace, put, script


def test_the_answers_stand_in_order_of_window_then_group_not_of_columns(tmp_path) -> None:
    put(
        tmp_path / "bids",
        "1.csv",
        bid(1, 2, 150),
        bid(2, 1, 150),
        bid(3, 1, 151.5),
        bid(4, 3, 5),
        bid(70, 1, 101),
    )
    done = headrace("run", script(tmp_path), "--once")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "n,auction,top\n2,1,151.5\n1,2,150.0\n1,1,101.0\n"


def test_each_format_has_its_file_per_query_also_without_rows(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 2, 150))
    none = "CREATE QUERY none AS SELECT auction FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE price > 1000;"
    path = script(tmp_path, none)
    for style in ("csv", "json", "parquet", "table"):
        done = headrace("run", path, "--once", "--format", style, "--output", tmp_path / "out", "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    out = tmp_path / "out"
    assert (out / "dear.csv").read_text() == "n,auction,top\n1,2,150.0\n"
    assert (out / "none.csv").read_text() == "auction\n"
    assert json.loads((out / "dear.json").read_text()) == {"n": 1, "auction": 2, "top": 150.0}
    assert (out / "none.json").read_bytes() == b""
    assert pq.read_table(out / "dear.parquet").to_pylist() == [{"n": 1, "auction": 2, "top": 150.0}]
    assert pq.read_table(out / "none.parquet").column_names == ["auction"]
    assert "(1 row)" in (out / "dear.table").read_text()
    assert len(list(out.iterdir())) == 8  # nothing unfinished is left


def test_several_answers_on_one_screen_are_distinguished(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 2, 150))
    done = headrace("run", script(tmp_path, "SHOW STREAMS;", "EXPLAIN QUERY dear;"), "--once")
    assert "# SHOW STREAMS\nname,using,event_time" in done.stdout
    assert "query dear\n" in done.stdout
    assert done.stdout.endswith("# dear\nn,auction,top\n1,2,150.0\n")


def test_several_answers_in_json_are_json_to_the_last_line(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 2, 150))
    path = script(tmp_path, "SHOW QUERIES;", "EXPLAIN QUERY dear;")
    done = headrace("run", path, "--once", "--format", "json")
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["answer"] for answer in parsed if "answer" in answer] == ["SHOW QUERIES", "dear"]
    assert any("pane" in answer.get("text", "") for answer in parsed)
    assert parsed[-1] == {"n": 1, "auction": 2, "top": 150.0}


def test_an_invoke_waits_until_all_input_present_is_committed(tmp_path) -> None:
    for name in "1234":
        put(tmp_path / "bids", f"{name}.csv", bid(60 * int(name), 1, 100 + int(name)))
    done = headrace("run", script(tmp_path, "INVOKE dear;"), "--once")
    invoked, answers = done.stdout.split("\n\n")
    assert invoked == "# dear\nn,auction,top\n1,1,102.0"  # 4:00 less the slack has passed 3:00
    assert answers == "# dear\nn,auction,top\n1,1,101.0\n1,1,102.0\n1,1,103.0\n1,1,104.0\n"


def test_the_closing_of_a_once_run_is_provisional_and_seal_makes_it_final(tmp_path) -> None:
    path, home = script(tmp_path), tmp_path / "home"
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101))
    first = headrace("run", path, "--once", "--home", home)
    put(tmp_path / "bids", "2.csv", bid(2, 1, 102))
    again = headrace("run", path, "--once", "--home", home)
    sealed = headrace("run", path, "--once", "--seal", "--home", home)
    put(tmp_path / "bids", "3.csv", bid(3, 1, 103))
    after = headrace("run", path, "--once", "--home", home)
    assert first.stdout == "n,auction,top\n1,1,101.0\n"
    assert again.stdout == sealed.stdout == after.stdout == "n,auction,top\n2,1,102.0\n"
    assert "1 row came late" in after.stderr


def test_late_rows_are_counted_with_the_slack_that_would_have_kept_all(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(90, 1, 101))
    put(tmp_path / "bids", "2.csv", bid(80, 1, 102), bid(86, 1, 102))
    done = headrace("run", path := script(tmp_path), "--once", "--quiet")
    assert (
        done.stderr
        == "bids: 1 row came late and is in no answer; SLACK INTERVAL 10 SECONDS would have kept all.\n"
    )
    path.write_text(path.read_text().replace("SLACK INTERVAL 5 SECONDS", "SLACK INTERVAL 10 SECONDS"))
    assert headrace("run", path, "--once", "--quiet").stderr == ""


def test_rejected_rows_are_counted_with_a_reason_and_a_place(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(2, "x", 102), bid(3, "y", 103))
    home = tmp_path / "home"
    ran = headrace("run", script(tmp_path), "--once", "--home", home, "--quiet")
    assert ran.stdout == "n,auction,top\n1,1,101.0\n"
    assert ran.stderr.startswith("bids: 2 rows rejected, for instance: ")
    assert "'x'" in ran.stderr
    rejects = home / "rejects" / "stream" / "bids"
    assert f"see {rejects}" in ran.stderr
    assert len(list(rejects.glob("*.parquet"))) == 1
    gone = headrace("run", script(tmp_path), "--once", "--quiet")
    assert "run with --home DIR to keep them" in gone.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;", "headrace: line 1, column 9: expected FROM and a stream"),
        ("SHOW STREAMS;\nINVOKE nobody;", "headrace: line 2, column 1: there is no query 'nobody'"),
        ("CREATE QUERY q AS SELECT a FROM nowhere [NOW];", "nowhere"),
    ],
)
def test_a_mistake_in_a_script_is_placed_and_exits_with_2(tmp_path, text, message) -> None:
    path = tmp_path / "wrong.cql"
    path.write_text(text)
    done = headrace("run", path, "--once", "--quiet")
    assert done.returncode == 2
    assert message in done.stderr
    assert f"in {path}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.cql", "--once"], "cannot read the script missing.cql: No such file or directory"),
        (["run", "empty.cql", "--once", "--format", "parquet"], "parquet is not for the screen"),
        (["run", "empty.cql", "--seal"], "--end-of-stream ends the streams"),
        (["run", "empty.cql", "--once", "--output", "empty.cql/out"], "cannot make the folder empty.cql/out"),
        (["run", "empty.cql", "--once", "--home", "empty.cql"], "is a file"),
        (["run", "latin.cql", "--once"], "latin.cql is not UTF-8: byte 3 cannot be read"),
        (["run", "empty.cql", "--cores", "0"], "'0' is not a number of at least 1"),
        (["run"], "the following arguments are required: SCRIPT"),
        (["walk"], "invalid choice: 'walk'"),
        (["check", "--home", "nowhere"], "there is no home in nowhere"),
        (["shell", "--home", "nowhere", "-e", "SHOW STREAMS"], "there is no home in nowhere"),
    ],
)
def test_a_mistake_in_the_command_is_one_message_and_exits_with_2(tmp_path, arguments, message) -> None:
    (tmp_path / "empty.cql").write_text("")
    (tmp_path / "latin.cql").write_bytes(b"-- \xe4")
    done = headrace(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith(("headrace: ", "Starting\nheadrace: ", "Starting on"))
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.cql", None, "cannot read the script none.cql: No such file or directory"),
        (".", None, "cannot read the script .: Is a directory"),
        ("latin.cql", b"-- \xe4", "latin.cql is not UTF-8: byte 3 cannot be read"),
        ("wrong.cql", b"\nSELCT 1", "(in wrong.cql, line 2)"),
        ("unknown.cql", b"DROP STREAM nosuch", "there is no stream 'nosuch' (in unknown.cql, line 1)"),
    ],
)
def test_a_mistake_in_a_script_that_is_served_is_the_users(tmp_path, name, text, message) -> None:
    """Before a home is made, unless the script has to be run to find it."""
    if text is not None:
        (tmp_path / name).write_bytes(text)
    done = headrace("serve", name, "--no-auth", "--port", "0", "--engine", "local", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert (tmp_path / "headrace-home").exists() == (name == "unknown.cql")


def test_a_trace_comes_only_with_debug(tmp_path) -> None:
    public = ("serve", "--host", "0.0.0.0", "--no-auth")
    plain, traced = headrace(*public), headrace(*public, "--debug")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in traced.stderr
    assert plain.returncode == traced.returncode == 2


def test_what_is_not_the_users_mistake_exits_with_1(tmp_path, monkeypatch, capsys) -> None:
    from headrace.cli.main import main
    from headrace.runtime.hub import check

    def broken(_):
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(check, "check", broken)
    assert main(["check"]) == 1
    said = capsys.readouterr().err
    assert "not your mistake: ZeroDivisionError: by nought" in said
    assert "--debug" in said


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"headrace {__version__}\n"


def test_the_version_is_printed_without_loading_arrow_or_spark() -> None:
    done = apart("--version")
    assert (done.returncode, done.stdout) == (0, f"headrace {__version__}\n")
    program = "import headrace, headrace.cli.main, sys; print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert loaded.stdout == "[]\n"


def test_a_home_that_was_run_is_whole_and_a_damaged_one_exits_with_1(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101))
    home = tmp_path / "home"
    headrace("run", script(tmp_path), "--once", "--home", home)
    whole = headrace("check", "--home", home)
    assert whole.returncode == 0, whole.stdout
    assert whole.stdout.endswith(f"{home} is whole\n")
    victim = next((home / "state").glob("*.run"))
    victim.write_bytes(victim.read_bytes()[:-20])
    broken = headrace("check", "--home", home)
    assert broken.returncode == 1
    assert f"FAULT state/{victim.name}" in broken.stdout


@pytest.mark.spark
def test_a_run_on_spark_gives_what_a_run_without_it_gives(tmp_path) -> None:
    for name in range(3):
        put(tmp_path / "bids", f"{name}.csv", *(bid(20 * name + i, i % 3, 99 + i) for i in range(20)))
    path = script(tmp_path)
    on_spark = apart("run", path, "--once", "--cores", "2", local=False)
    assert on_spark.returncode == 0, on_spark.stderr
    assert on_spark.stdout == headrace("run", path, "--once").stdout
    assert len(on_spark.stdout.splitlines()) > 3


def test_rows_that_fail_as_the_last_windows_close_provisionally_are_counted_and_reported(tmp_path) -> None:
    """Nothing is committed by a closing that is provisional, so no reject file has them."""
    put(tmp_path / "bids", "1.csv", bid(1, 2, 150), bid(2, 1, 150), bid(3, 1, 151.5), bid(90, 7, 150))
    odd = (
        "CREATE QUERY odd AS SELECT auction, 6 / (COUNT(*) - 1) AS part"
        " FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY auction;"
    )
    done = headrace("run", script(tmp_path, odd), "--once", "--home", tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert "odd: its expressions failed on 1 row, for instance" in done.stderr  # of the window that is over
    assert "odd: its expressions failed on 1 row as its last windows closed, for instance: " in done.stderr
    assert "DIVIDE_BY_ZERO" in done.stderr or "division by zero" in done.stderr.lower()
    sealed = headrace("run", script(tmp_path, odd), "--once", "--seal", "--home", tmp_path / "sealed")
    assert "odd: its expressions failed on 2 rows, for instance" in sealed.stderr
    assert "as its last windows closed" not in sealed.stderr


def test_status_counts_the_rows_that_fail_in_a_provisional_closing(tmp_path) -> None:
    with Hub(tmp_path, LocalExecutor(), tasks=2) as hub:
        hub.execute(
            "CREATE STREAM s (v INT, at TIMESTAMP) USING push TIMESTAMP BY at;"
            "CREATE QUERY q AS SELECT v, 6 / (COUNT(*) - 1) AS part FROM s [RANGE TUMBLING 1 MINUTE] GROUP BY v;"
            "CREATE QUERY over AS SELECT 6 / part AS whole FROM (SELECT v, 0 * COUNT(*) AS part"
            " FROM s [RANGE TUMBLING 1 MINUTE] GROUP BY v) AS t;"
        )
        hub.push("s", [{"v": v, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)} for v in (1, 2, 2, 3)])
        assert hub.run_once()["q"].num_rows == 1
        assert hub.status()["closing_rejected"] == {"q": 2, "over": 3}
        assert hub.status()["rejected"] == {}


@pytest.mark.parametrize("style", ["table", "csv", "json"])
def test_a_date_that_python_does_not_have_is_printed_and_the_other_answers_too(tmp_path, style) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 2, 150), bid(90, 7, 150))
    far = (
        "CREATE QUERY far AS SELECT date_add(DATE'2024-01-01', 2000000000) AS d FROM bids WHERE auction = 7;"
    )
    path, home = script(tmp_path, far), tmp_path / "home"
    done = headrace("run", path, "--once", "--home", home, "--format", style)
    assert done.returncode == 0, done.stderr
    assert "+5477838-01-06" in done.stdout
    assert "dear" in done.stdout
    assert "+5477838-01-06" in headrace("shell", "--home", home, "-e", "INVOKE far").stdout
    assert "+5477838-01-06" in headrace("fetch", "far", "--home", home).stdout


@pytest.mark.parametrize("output", [False, True])
def test_a_query_that_fails_is_named_the_others_answer_and_the_run_exits_with_1(
    tmp_path, monkeypatch, output
) -> None:
    """What Arrow raises where results outgrow a column, without the gigabytes."""

    def full(*_):
        raise pa.lib.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    monkeypatch.setattr(TupleSlides, "ended", full)
    put(tmp_path / "bids", "1.csv", bid(1, 2, 150), bid(90, 7, 150))
    bad = "CREATE QUERY bad AS SELECT COUNT(*) AS n FROM bids [RANGE 5 SECONDS SLIDE 1 ROW];"
    more = ("--output", tmp_path / "out") if output else ()
    done = headrace("run", script(tmp_path, bad), "--once", "--home", tmp_path / "home", *more)
    assert done.returncode == 1
    assert "bad failed, and the others continue: ArrowCapacityError: array cannot contain" in done.stderr
    answer = (tmp_path / "out" / "dear.csv").read_text() if output else done.stdout
    assert "1,2,150.0" in answer
    shown = headrace("shell", "--home", tmp_path / "home", "-e", "SHOW QUERIES WHERE state = 'failed'").stdout
    assert "bad,failed" in shown

"""psql, as a person uses it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.postgres.wire import PSQL, needs_psql, until, with_rows
from tests.server.serving import Served

pytestmark = needs_psql


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with with_rows(tmp_path_factory.mktemp("served") / "home") as running:
        yield running


def psql(
    hub: Served, *commands: str, typed: str | None = None, options: tuple[str, ...] = ("-A", "-t")
) -> str:
    done = typed_into(hub, *commands, typed=typed, options=options)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    return done.stdout


def typed_into(
    hub: Served, *commands: str, typed: str | None = None, options: tuple[str, ...] = ("-A", "-t")
) -> subprocess.CompletedProcess[str]:
    assert PSQL is not None
    asked = [part for command in commands for part in ("-c", command)]
    url = f"postgresql://anyone@127.0.0.1:{hub.postgres}/headrace"
    return subprocess.run(
        [PSQL, "-X", url, *options, *asked], input=typed, capture_output=True, text=True, timeout=60
    )


def test_results_answers_streams_and_relations_are_tables(hub: Served, tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("k,name\na,ants\n")
    psql(
        hub, f"CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path '{file}', header 'true')"
    )
    assert psql(hub, "SELECT * FROM q") == "a|1\n"
    assert psql(hub, "SELECT * FROM answers.q") == "a|1\n"
    assert psql(hub, "SELECT * FROM answers.total") == "2\n"
    assert (
        psql(hub, "SELECT k, v, at FROM s ORDER BY v DESC")
        == "b|2|2024-01-01 00:00:12.5+00\na|1|2024-01-01 00:00:01+00\n"
    )
    assert psql(hub, "SELECT n.name, q.n FROM q JOIN names n USING (k) WHERE q.n > 0 LIMIT 1") == "ants|1\n"
    changes = "SELECT n, __change, __at FROM total WHERE __change = 1 ORDER BY __at, n LIMIT 1"
    assert psql(hub, changes).startswith(("0|1|", "1|1|", "2|1|"))


def test_a_stream_has_its_accepted_rows(hub: Served) -> None:
    psql(hub, "CREATE STREAM timed (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
    for value, minute, accepted in ((1, 1, 1), (2, 0, 1), (3, 2, 2)):
        psql(hub, f"INSERT INTO timed VALUES ({value}, '2024-01-01T00:0{minute}:00Z')")
        until(lambda: psql(hub, "SELECT count(*) FROM timed") == f"{accepted}\n")  # noqa: B023
    assert psql(hub, "SELECT v FROM timed ORDER BY v") == "1\n3\n"
    assert "|3|1|0|" in psql(hub, "SHOW STREAMS LIKE 'timed'")
    psql(hub, "CREATE STREAM unkept (v BIGINT) USING push OPTIONS (archive 'none')")
    done = typed_into(hub, "SELECT * FROM unkept")
    assert "keeps no copy of its rows" in done.stderr


def test_statements_of_the_hub_are_answered_as_tables(hub: Served) -> None:
    assert psql(hub, "INVOKE total") == "2\n"
    assert psql(hub, "SHOW STREAMS LIKE 's'").startswith("s|push|at|")
    assert "k|STRING" in psql(hub, "DESCRIBE s")
    assert "total" in psql(hub, "EXPLAIN QUERY total")
    assert psql(hub, "INVOKE total", options=()) == " n \n---\n 2\n(1 row)\n\n"


def test_queries_are_made_paused_altered_and_dropped(hub: Served) -> None:
    done = typed_into(
        hub,
        "CREATE QUERY mine AS SELECT k FROM s WHERE v > 1",
        "PAUSE QUERY mine",
        "RESUME QUERY mine",
        "ALTER QUERY mine SET (owner 'me')",
        "DROP QUERY mine",
    )
    assert (done.returncode, done.stdout) == (0, "CREATE\nPAUSE\nRESUME\nALTER\nDROP\n")
    assert "NOTICE:  query mine registered" in done.stderr


def test_a_mistake_is_shown_where_it_is(hub: Served) -> None:
    done = typed_into(hub, "CREATE QUERY bad AS\n  SELECT nope FROM s")
    assert done.returncode == 1
    assert done.stderr.splitlines()[:3] == [
        "ERROR:  there is no column 'nope'",
        "LINE 2:   SELECT nope FROM s",
        "                 ^",
    ]
    assert "HINT:" in done.stderr
    done = typed_into(hub, "SELECT k,\n  nope FROM q")
    assert done.stderr.splitlines()[1:3] == ["LINE 2:   nope FROM q", "          ^"]


@pytest.mark.parametrize(
    "command",
    [
        r"\d",
        r"\dt",
        r"\d+",
        r"\dt+",
        r"\dv answers.*",
        r"\dn",
        r"\l",
        r"\du",
        r"\df",
        r"\di",
        r"\dT",
        r"\dx",
        r"\dp",
        r"\dm",
        r"\ds",
        r"\db",
        r"\dRp",
        r"\conninfo",
    ],
)
def test_commands_of_psql_are_understood(hub: Served, command: str) -> None:
    done = typed_into(hub, command)
    assert (done.returncode, done.stderr.replace("Did not find any relations.\n", "")) == (0, ""), command
    if command in (r"\d", r"\dt"):
        for line in ("public|q|table|headrace", "public|s|table|headrace", "public|total|table|headrace"):
            assert line in done.stdout.splitlines()
    if command == r"\dv answers.*":
        assert "answers|q|view|headrace" in done.stdout.splitlines()


def test_a_table_is_described(hub: Served) -> None:
    shown = psql(hub, r"\d s", options=("-A",)).splitlines()
    assert shown[0] == 'Table "public.s"'
    assert [line.split("|")[:2] for line in shown[2:5]] == [
        ["k", "text"],
        ["v", "bigint"],
        ["at", "timestamp with time zone"],
    ]
    assert "n|bigint" in psql(hub, r"\d answers.q", options=("-A",))
    assert "__at|timestamp with time zone" in psql(hub, r"\d+ total", options=("-A",))


def test_rows_are_copied_and_inserted_into_streams(hub: Served) -> None:
    csv = "v,at\n1,2024-01-01T00:00:01Z\n2,2024-01-01T00:00:02Z\n"
    assert psql(hub, "COPY tail FROM STDIN (FORMAT csv, HEADER)", typed=csv) == "COPY 2\n"
    plain = "2024-01-01 00:00:03+00\t3\n2024-01-01 00:00:04+00\t\\N\n"
    assert psql(hub, "COPY tail (at, v) FROM STDIN", typed=plain) == "COPY 2\n"
    assert psql(hub, r"\copy tail from pstdin with csv", typed="5,2024-01-01T00:00:05Z\n") == "COPY 1\n"
    assert (
        psql(
            hub,
            "INSERT INTO tail VALUES (6, '2024-01-01 00:00:06Z'), (7, '2024-01-01T00:00:07Z')",
        )
        == "INSERT 0 2\n"
    )
    assert psql(hub, "INSERT INTO tail (at) SELECT max(at) FROM s") == "INSERT 0 1\n"
    until(lambda: psql(hub, "SELECT count(*), sum(v) FROM all_of_tail") == "8|24\n")


@pytest.mark.parametrize(
    ("copy", "typed"),
    [
        ("(v, at) FROM STDIN (FORMAT csv, HEADER true, DELIMITER ',', NULL '')", "a,b\n1,{at}\n"),
        ("(at) FROM STDIN CSV", "{at}\n"),
        ("(v, at) FROM STDIN WITH CSV HEADER QUOTE AS '\"'", 'at,v\n1,"{at}"\n'),
        ("FROM STDIN (FORMAT csv, HEADER false, ENCODING 'UTF8')", "1,{at}\n"),
        (r"(v, at) FROM STDIN (DELIMITER E'\t', NULL '\N')", "\\x31\t{at}\n\\."),
        ("(at, v) FROM STDIN (HEADER)", "any\n{at}\t\\061\r\n\\.\r\n"),
    ],
)
def test_options_and_columns_of_copy_are_those_of_postgresql(hub: Served, copy: str, typed: str) -> None:
    counted = "SELECT count(*), coalesce(sum(coalesce(v, 100)), 0) FROM all_of_tail"
    count, total = map(int, psql(hub, counted).split("|"))
    assert psql(hub, f"COPY tail {copy}", typed=typed.format(at="2024-01-02T00:00:00Z")) == "COPY 1\n"
    v = 100 if copy.startswith("(at) ") else 1
    until(lambda: psql(hub, counted) == f"{count + 1}|{total + v}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COPY tail FROM STDIN (FORMAT csv, NULL 'nil')", "COPY does not take NULL NIL"),
        ("COPY tail FROM STDIN (FORMAT binary)", "COPY does not take FORMAT BINARY"),
        ("COPY tail FROM STDIN (DELIMITER '|')", "COPY does not take DELIMITER |"),
        ("COPY tail (v, v) FROM STDIN", 'column "v" specified more than once'),
        ("INSERT INTO tail (v, V) VALUES (1, 2)", 'column "V" specified more than once'),
        ("INSERT INTO tail (at) VALUES (now(), 2)", "INSERT has more expressions than target columns"),
    ],
)
def test_rows_of_another_form_are_refused(hub: Served, text: str, message: str) -> None:
    before = psql(hub, "SHOW STREAMS LIKE 'tail'")
    assert typed_into(hub, text, typed="").stderr.splitlines()[0] == f"ERROR:  {message}"
    assert psql(hub, "SHOW STREAMS LIKE 'tail'") == before


@pytest.mark.parametrize(
    "text",
    ["INSERT INTO tail (v) VALUES (^nope)", "INSERT INTO tail ^DEFAULT VALUES", "INSERT INTO tail SELECT ^x"],
)
def test_a_mistake_of_an_insert_is_shown_where_it_is(hub: Served, text: str) -> None:
    lines = typed_into(hub, text.replace("^", "")).stderr.splitlines()
    assert lines[1:3] == [f"LINE 1: {text.replace('^', '')}", " " * (8 + text.index("^")) + "^"]


def test_of_rows_that_do_not_fit_none_is_pushed(hub: Served) -> None:
    before = psql(hub, "SHOW STREAMS LIKE 's'")
    done = typed_into(
        hub, "COPY s FROM STDIN CSV", typed="a,1,2024-01-01T00:00:02Z\nb,x,2024-01-01T00:00:02Z\n"
    )
    assert done.returncode == 1
    assert "column v: 'x' is not a BIGINT" in done.stderr
    done = typed_into(hub, "INSERT INTO s VALUES ('a', 'x', now())")
    assert "ERROR:  " in done.stderr
    assert psql(hub, "SHOW STREAMS LIKE 's'") == before


def test_the_cursor_of_psql_reads_large_results_in_parts(hub: Served) -> None:
    numbers = psql(
        hub, "SELECT i FROM generate_series(1, 1000) t(i)", options=("-A", "-t", "-v", "FETCH_COUNT=64")
    )
    assert numbers.splitlines() == [str(number) for number in range(1, 1001)]


def test_results_are_copied_out(hub: Served, tmp_path: Path) -> None:
    assert psql(hub, "COPY (SELECT k, v, at FROM s ORDER BY v) TO STDOUT") == (
        "a\t1\t2024-01-01 00:00:01+00\nb\t2\t2024-01-01 00:00:12.5+00\n"
    )
    assert psql(hub, "COPY q (n, k) TO STDOUT (FORMAT csv, HEADER)") == "n,k\n1,a\n"
    assert psql(hub, "COPY answers.total TO STDOUT") == "2\n"
    odd = "SELECT 'a\tb\\', NULL, '', 'x,\"y\"', E'two\nlines'"
    assert psql(hub, f"COPY ({odd}) TO STDOUT") == 'a\\tb\\\\\t\\N\t\tx,"y"\ttwo\\nlines\n'
    assert psql(hub, f"COPY ({odd}) TO STDOUT CSV") == 'a\tb\\,,"","x,""y""","two\nlines"\n'
    psql(hub, rf"\copy (SELECT i FROM generate_series(1, 30000) t(i)) TO '{tmp_path}/numbers.csv' CSV")
    assert (tmp_path / "numbers.csv").read_text().splitlines() == [str(number) for number in range(1, 30_001)]


def test_a_query_is_followed_on_the_terminal_until_ctrl_c(hub: Served) -> None:
    assert PSQL is not None
    url = f"postgresql://anyone@127.0.0.1:{hub.postgres}/headrace"
    psql(hub, "CREATE STREAM live (v BIGINT) USING push; CREATE QUERY of_live AS SELECT v FROM live")
    terminal, its_end = os.openpty()  # psql writes each row at once on a terminal, not into a pipe
    following = subprocess.Popen(
        [
            PSQL,
            "-X",
            "-q",
            url,
            *("-c", "SET statement_timeout = '100ms'"),
            *("-c", "COPY (FOLLOW of_live) TO STDOUT"),
        ],
        stdout=its_end,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(its_end)
    try:
        for value in ("1", "2", "3"):
            psql(hub, f"INSERT INTO live VALUES ({value})")
            assert select.select([terminal], [], [], 60)[0]
            assert os.read(terminal, 100).decode() == f"{value}\r\n"
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=30)
        assert "canceling statement due to user request" in err
    finally:
        following.kill()
        following.communicate()
        os.close(terminal)

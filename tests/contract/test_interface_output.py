"""§5 of the interface: the bytes of answers, the closing of a run, and other processes during it."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from tests.cli.building import headrace
from tests.contract.running import STREAM, Home, all_answers, lines, registered, spelled

TYPED = """CREATE STREAM s (i INT, l BIGINT, d DOUBLE, f FLOAT, m DECIMAL(10,3), b BOOLEAN, t STRING, day DATE, at TIMESTAMP,
  bin BINARY, n TIMESTAMP_NTZ) USING csv OPTIONS (path 's', header 'true') TIMESTAMP BY at;
"""
COLUMNS = "i,l,d,f,m,b,t,day,at,bin,n"
# input line: output line
CELLS = {
    "1,1,1,1,1,true,plain,2024-02-29,2023-11-14T22:13:20Z,abc,2023-11-14 22:13:20":
        "1,1,1.0,1.0,1.000,true,plain,2024-02-29,2023-11-14T22:13:20Z,616263,2023-11-14T22:13:20Z",
    ",,,,,,,,2023-11-14T22:13:20.000001Z,,": ",,,,,,,,2023-11-14T22:13:20.000001Z,,",
    '-1,-9223372036854775808,1e300,0.1,1.5,false,"",1969-12-31,2023-11-14T22:13:20.5Z,,2023-11-14T22:13:20.000001':
        '-1,-9223372036854775808,1e+300,0.1,1.500,false,"",1969-12-31,2023-11-14T22:13:20.500000Z,,2023-11-14T22:13:20.000001Z',
    ',,NaN,NaN,-0.0005,,"a,b",,2023-11-14T23:13:21+01:00,,':
        ',,NaN,NaN,-0.001,,"a,b",,2023-11-14T22:13:21Z,,',
    ',,Infinity,-Infinity,1234567.891,,"q""q",,2023-11-14 22:13:22,,':
        ',,Infinity,-Infinity,1234567.891,,"q""q",,2023-11-14T22:13:22Z,,',
    ",,-0.0,1e-7,0,TRUE, sp ,0001-01-01,2023-11-14 22:13:23.123456,,": ",,-0.0,1e-07,0.000,true, sp ,0001-01-01,2023-11-14T22:13:23.123456Z,,",
    ",,1e16,16777216,,False,ü,9999-12-31,2023-11-14T22:13:24.1200Z,,": ",,1e+16,16777216.0,,false,ü,9999-12-31,2023-11-14T22:13:24.120000Z,,",
    ",,123456789012345680,3.4e38,,,NULL,,2023-11-15,,": ",,1.2345678901234568e+17,3.4e+38,,,NULL,,2023-11-15T00:00:00Z,,",
    ",,5e-324,1e-45,,,\\N,,2023-11-16T00:00:00,,": ",,5e-324,1e-45,,,\\N,,2023-11-16T00:00:00Z,,",
    ",,0.1,,,,1,,1600-01-01T00:00:00Z,,": ",,0.1,,,,1,,1600-01-01T00:00:00Z,,",
}  # fmt: skip
VALUES = {
    "SELECT d / 3 AS x, m * 2 AS y, m / 3 AS z, m + 1.25 AS w, -d AS neg, l / 2 AS h FROM s WHERE t IN ('plain', 'a,b')":
        "x,y,z,w,neg,h 0.3333333333333333,2.000,0.333333,2.250,-1.0,0.5 NaN,-0.002,-0.000333,1.249,NaN,",
    "SELECT MAX(d) AS top, SUM(m) AS s, AVG(m) AS a, AVG(l) AS al, COUNT(t) AS c, MIN(t) AS least FROM s WHERE i IS NOT NULL":
        'top,s,a,al,c,least 1e+300,2.500,1.2500000,-4.611686018427388e+18,2,""',
    "SELECT d, COUNT(*) AS n FROM s GROUP BY d":  # -0.0 and 0.0 are one key, NaN is the greatest
        "d,n ,1 0.0,1 5e-324,1 0.1,1 1.0,1 1e+16,1 1.2345678901234568e+17,1 1e+300,1 Infinity,1 NaN,1",
    "SELECT b, COUNT(*) AS n FROM s GROUP BY b": "b,n ,6 false,2 true,2",
    "SELECT COUNT(*) AS n, t FROM s GROUP BY t HAVING length(t) < 3": 'n,t 1,"" 1,1 1,\\N 1,ü',
    "SELECT COUNT(*), SUM(i) + 1, b IS NULL FROM s GROUP BY b IS NULL":
        "count(1),(sum(i)|+|1),(b|IS|NULL) 4,1,false 6,,true",
}  # fmt: skip


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("typed"))
    (home.folder / "s").mkdir()
    (home.folder / "s" / "1.csv").write_text("\n".join([COLUMNS, *CELLS]) + "\n")
    queries = {"all": "SELECT * FROM s"} | {f"q{number}": text for number, text in enumerate(VALUES)}
    return {
        style: home.answers(TYPED + registered(queries), style=style) for style in ("csv", "json", "table")
    }


def test_every_cell_is_written_as_the_interface_says_in_order_of_time(typed) -> None:
    *later, first = CELLS.values()
    assert typed["csv"]["all"].split("\n") == [COLUMNS, first, *later, ""]


@pytest.mark.parametrize("query", VALUES)
def test_results_have_the_type_the_name_and_the_order_that_spark_gives_them(typed, query) -> None:
    expected = lines(VALUES[query]).replace("|", " ")
    assert typed["csv"][f"q{list(VALUES).index(query)}"] == expected


def test_json_lines_keep_nulls_and_types(typed) -> None:
    rows = [json.loads(line) for line in typed["json"]["all"].splitlines()]
    assert all(list(row) == COLUMNS.split(",") for row in rows)
    assert typed["json"]["all"].splitlines()[1] == (
        '{"i":1,"l":1,"d":1.0,"f":1.0,"m":1.000,"b":true,"t":"plain","day":"2024-02-29","at":"2023-11-14T22:13:20Z",'
        '"bin":"616263","n":"2023-11-14T22:13:20Z"}'
    )
    assert set(rows[2].values()) == {None, "2023-11-14T22:13:20.000001Z"}


FILES = ("a,1,@1 b,2,@12", ",3,@25")
EMPTY = {
    "SELECT window_end AS `the end`, k, COUNT(*) FROM s [RANGE TUMBLING 10 SECONDS] WHERE v > 9 GROUP BY k": '"the|end",k,count(1)',
    "SELECT k, v FROM s WHERE v > 9": "k,v",
    "SELECT k, SUM(v) AS t FROM s WHERE v > 9 GROUP BY k": "k,t",
    "SELECT k FROM s BEGIN TIMESTAMP '1980-01-01' END TIMESTAMP '1981-01-01'": "k",
    "SELECT k FROM s LATE": "k",
}  # fmt: skip


def test_a_file_has_its_header_also_without_rows(tmp_path) -> None:
    answered = all_answers(tmp_path, FILES, tuple(EMPTY))
    assert answered == {
        query: lines(header).replace("|", " ").replace('"', "") for query, header in EMPTY.items()
    }


def test_before_there_is_any_input_every_file_is_a_header(tmp_path) -> None:
    queries = (
        "SELECT COUNT(*) AS n FROM s",
        "SELECT k FROM s",
        "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 DAY]",
    )
    (tmp_path / "s").mkdir()
    assert list(all_answers(tmp_path, (), queries).values()) == ["n\n", "k\n", "n\n"]


def test_parquet_has_types_and_rows(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, FILES[0])
    done = home.once(
        STREAM.format(slack=0) + "CREATE QUERY q AS SELECT * FROM s;", "--output", "o", "--format", "parquet"
    )
    assert done.returncode == 0
    assert [str(kind) for kind in pq.read_table(tmp_path / "o" / "q.parquet").schema.types] == [
        "string", "int64", "timestamp[us, tz=UTC]",
    ]  # fmt: skip


def test_structs_are_json_text(tmp_path) -> None:
    rows = all_answers(
        tmp_path, FILES, ("SELECT window, COUNT(v) AS n FROM s GROUP BY window(at, '20 seconds')",)
    )
    first, second = ('"{""start"":""@0"",""end"":""@20""}",2', '"{""start"":""@20"",""end"":""@40""}",1')
    assert list(rows.values()) == [lines(f"window,n {first} {second}")]


ANSWERING = {
    "windows": "SELECT window_end, k, SUM(v) AS t FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k",
    "parts": "SELECT k, SUM(v) AS t FROM s [PARTITION BY k ROWS 1 SLIDE 1] GROUP BY k",
    "relation": "SELECT k, SUM(v) AS t FROM s [RANGE 13 SECONDS] GROUP BY k",
    "stream": "SELECT k, v FROM s WHERE v <> 2",
    "bounds": "SELECT COUNT(*) AS n FROM s BEGIN NOW - INTERVAL 13 SECONDS END NOW",
}
INVOKED = {  # punctuation and NOW are 25
    "windows": "window_end,k,t @20,b,2",
    "parts": "k,t a,1 b,2",
    "relation": "k,t ,3 b,2",
    "stream": "k,v a,1 ,3",
    "bounds": "n 2",
}
CLOSED = INVOKED | {"windows": "window_end,k,t @10,a,1 @20,b,2 @30,,3", "parts": "k,t a,1 b,2 ,3"}


def test_invoke_answers_by_kind_and_the_closing_is_provisional(tmp_path) -> None:
    home = Home(tmp_path)
    for number, rows in enumerate(FILES):
        home.put(number, rows)
    script = STREAM.format(slack=0) + registered(ANSWERING)
    assert home.answers(script) == {name: lines(rows) for name, rows in CLOSED.items()}
    for name, rows in INVOKED.items():
        assert home.shell(f"INVOKE {name}").stdout == f"# {name}\n{lines(rows)}", name
    home.put(9, "c,4,@26")
    answered = home.answers("-- nothing")
    assert answered["windows"] == lines("window_end,k,t @10,a,1 @20,b,2 @30,,3 @30,c,4")
    assert home.answers("-- nothing") == answered  # and a run without news changes nothing


def test_an_invoke_in_a_once_script_comes_after_all_input(tmp_path) -> None:
    home = Home(tmp_path)
    for number, rows in enumerate(FILES):
        home.put(number, rows)
    done = home.once(STREAM.format(slack=0) + registered({"n": "SELECT COUNT(*) AS n FROM s"}) + "INVOKE n;")
    assert done.stdout == "# n\nn\n3\n\n# n\nn\n3\n"


def test_answers_of_several_queries_of_a_home_are_distinguished_whoever_made_them(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, FILES[0])
    two = registered({"a": "SELECT k FROM s WHERE v = 1", "b": "SELECT k FROM s WHERE v = 2"})
    assert home.once(STREAM.format(slack=0) + two).stdout == "# a\nk\na\n\n# b\nk\nb\n"
    assert home.once("-- nothing").stdout == "# a\nk\na\n\n# b\nk\nb\n"


def test_beside_a_writer_others_may_look_but_not_write(tmp_path) -> None:
    from headrace.runtime.hub.opening import open_hub

    home = Home(tmp_path)
    home.put(1, FILES[0])
    home.once(STREAM.format(slack=0) + registered(ANSWERING))
    with open_hub(tmp_path / "home", local=True):
        assert home.shell("INVOKE stream").stdout == "# stream\nk,v\na,1\n"
        assert home.shell("SHOW QUERIES; EXPLAIN QUERY windows").returncode == 0
        assert headrace("check", "--home", tmp_path / "home").returncode == 0
        for refused in (home.shell("DROP QUERY stream"), home.once("-- nothing")):
            assert refused.returncode == 2
            assert "is in use by process" in refused.stderr
    assert home.shell("DROP QUERY stream").returncode == 0


def test_times_in_these_tests_are_spelled_right() -> None:
    assert spelled("@-3.5 @61 a@b") == "1969-12-31T23:59:56.500000Z 1970-01-01T00:01:01Z a@b"


def test_invoke_gives_the_last_window_of_each_partition_whatever_is_left_of_it(tmp_path) -> None:
    home = Home(tmp_path)
    queries = {
        "sums": "SELECT SUM(v) AS t FROM s [PARTITION BY k ROWS 2 SLIDE 2]",  # the key is not selected
        "big": "SELECT k, SUM(v) AS t FROM s [PARTITION BY k ROWS 2 SLIDE 2] GROUP BY k HAVING SUM(v) > 5",
        "last": "SELECT k, v FROM s [PARTITION BY k ROWS 1 SLIDE 2]",
        "rows": "SELECT window_id, SUM(v) AS t FROM s [ROWS 3 SLIDE 2]",
        "ends": "SELECT k, SUM(v) AS t FROM s [RANGE 3 SECONDS SLIDE 2 ROWS PA k] GROUP BY k HAVING SUM(v) > 5",
        "end": "SELECT window_end, SUM(v) AS t FROM s [RANGE 3 SECONDS SLIDE 2 ROWS]",
        "arrived": "SELECT window_id, SUM(v) AS t FROM s [ROWS 3 SLIDE 2 WATTR row_num]",
        "delta": "SELECT k, SUM(v) AS t FROM s [PARTITION BY k DELTA 2 ON v] GROUP BY k",
        "session": "SELECT k, SUM(v) AS t FROM s [PARTITION BY k SESSION 1 SECOND] GROUP BY k",
        "none": "SELECT k FROM s [ROWS 90 SLIDE 90]",
    }
    home.put(1, "a,9,@1 a,8,@2 b,5,@3 b,6,@4 ,1,@4")
    home.put(2, "a,1,@5 a,2,@6 b,9,@7 ,7,@8")
    home.put(3, "c,1,@99")
    home.once(STREAM.format(slack=0) + registered(queries))
    expected = {
        "sums": "t 11 3 8",  # in order of emission: b at 4, a at 6, no key at 8
        "big": "k,t b,11 ,8",
        "last": "k,v b,6 a,2 ,7",
        "rows": "window_id,t 4,12",
        "ends": "k,t b,11 ,7",
        "end": "window_end,t @7,12",
        "arrived": "window_id,t 5,17",
        "delta": "k,t a,17 b,11 ,1",
        "session": "k,t a,3 b,9 ,7",
        "none": "k",
    }
    for restarted in (False, True):
        if restarted:
            home.once("-- nothing")
        for name, rows in expected.items():
            assert home.shell(f"INVOKE {name}").stdout == f"# {name}\n{lines(rows)}", name

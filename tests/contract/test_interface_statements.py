"""§1 of the interface: what statements do, again and again on one home; options; what is rejected."""

from __future__ import annotations

import pytest

from tests.contract.running import HEADER, STREAM, Home, lines

FIRST = STREAM.format(slack=0)
SUMS = "CREATE QUERY sums AS SELECT k, SUM(v) AS t FROM s GROUP BY k;"
RELATION = "CREATE RELATION r (k STRING, name STRING) USING csv OPTIONS (path 'r.csv', header 'true');"


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    made.put(1, "a,1,@0 b,2,@5")
    (tmp_path / "r.csv").write_text("k,name\na,old\n")
    done = made.once(FIRST + RELATION + SUMS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "k,t\na,1\nb,2\n", "")
    return made


EQUAL = {
    "the very same": FIRST + RELATION + SUMS,
    "other spacing, case and comments": """create  stream s(k string,v bigint,at timestamp) -- again
        using CSV options (PATH 's', header 'true', Order 'name', maxfilespertrigger '1') timestamp by at slack 0 seconds;
        CREATE QUERY sums AS select k, sum( v ) AS t -- the same
        FROM s group by k;""",
    "a length written in another unit": FIRST.replace("0 SECONDS", "0 MINUTES"),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_a_create_equal_as_parsed_does_nothing(home, name) -> None:
    done = home.once(EQUAL[name])
    assert (done.returncode, done.stdout, done.stderr) == (0, "k,t\na,1\nb,2\n", "")


DIFFERENT = {
    FIRST.replace("INTERVAL 0", "INTERVAL 5"): "the stream 's' exists and differs in SLACK (0 SECONDS there, 5 SECONDS here)",
    FIRST.replace("v BIGINT", "v INT"): "differs in columns (k STRING, v BIGINT, at TIMESTAMP there, k STRING, v INT, at TIMESTAMP here)",
    FIRST.replace("'1'", "'2'"): "differs in option maxFilesPerTrigger ('1' there, '2' here)",
    FIRST.replace(", order 'name'", ""): "differs in option order ('name' there, none here)",
    RELATION.replace("name STRING", "name STRING, x INT"): "the relation 'r' exists and differs in columns (k STRING, name",
    SUMS.replace("SUM(v)", "SUM(v + 1)"): "the query 'sums' exists and differs in text ('SELECT k, SUM(v) AS t",
    "CREATE QUERY sums FROM NOW AS SELECT k, SUM(v) AS t FROM s GROUP BY k;": "differs in FROM NOW (False there, True here)",
    "CREATE STREAM sums (k STRING) USING push;": "there is a query named 'sums' already",
}  # fmt: skip


@pytest.mark.parametrize("text", DIFFERENT)
def test_a_create_that_differs_is_an_error_that_names_the_difference(home, text) -> None:
    done = home.once(text)
    assert done.returncode == 2
    assert DIFFERENT[text] in done.stderr


def test_texts_inside_quotes_are_never_the_same(home) -> None:
    one = "CREATE QUERY q AS SELECT v FROM s WHERE k = 'a  b';"
    assert home.once(one).returncode == 0
    assert "differs in text" in home.once(one.replace("a  b", "a b")).stderr


def test_queries_are_replaced_altered_renamed_paused_resumed_and_dropped(home) -> None:
    steps = [
        ("CREATE OR REPLACE QUERY sums AS SELECT COUNT(*) AS n FROM s;", "n 2"),
        ("ALTER QUERY sums AS SELECT MAX(v) AS top FROM s;", "top 2"),
        ("ALTER QUERY sums RENAME TO best;", "top 2"),
        ("PAUSE QUERY best;", "top 2"),
    ]
    for statement, answer in steps:
        done = home.once(statement)
        assert (done.returncode, done.stdout) == (0, lines(answer)), done.stderr
    home.put(2, "c,9,@9")
    assert home.once("-- nothing").stdout == "top\n2\n"
    assert home.once("RESUME QUERY best; INVOKE best;").stdout == "# best\ntop\n9\n\n# best\ntop\n9\n"
    assert home.once("DROP STREAM s;").returncode == 2
    assert home.once("DROP QUERY best;").stdout == ""
    assert "there is no query 'best'" in home.once("DROP QUERY best;").stderr


def test_a_query_answers_over_the_archive_and_from_now_skips_the_past(home) -> None:
    (home.folder / "s" / "001.csv").unlink()
    script = "CREATE QUERY all AS SELECT k FROM s; CREATE QUERY new FROM NOW AS SELECT k FROM s;"
    assert home.answers(script)["all"] == "k\na\nb\n"
    home.put(2, "c,9,@9")
    answered = home.answers(script)
    assert (answered["all"], answered["new"]) == ("k\na\nb\nc\n", "k\nc\n")


def test_a_row_meets_the_version_of_a_relation_it_was_ingested_under_also_in_backfill(home) -> None:
    join = " AS SELECT s.k, v, name FROM s LEFT JOIN r ON s.k = r.k;"
    assert home.answers(f"CREATE QUERY live{join}")["live"] == "k,v,name\na,1,old\nb,2,\n"
    (home.folder / "r.csv").write_text("k,name\na,new\nb,too\n")
    home.put(2, "a,3,@6")
    expected = "k,v,name\na,1,old\nb,2,\na,3,old\n"
    assert home.answers("-- nothing")["live"] == expected  # a relation is read when a statement asks for it
    home.put(3, "a,4,@7 b,5,@8")
    answered = home.answers(f"REFRESH RELATION r; CREATE QUERY filled{join}")
    assert answered["live"] == answered["filled"] == expected + "a,4,new\nb,5,too\n"


def test_a_relation_is_made_of_something_that_is_there(home) -> None:
    done = home.once(RELATION.replace("RELATION r", "RELATION other").replace("r.csv", "nowhere.csv"))
    assert done.returncode == 2
    assert f"relation 'other': there is nothing at '{home.folder / 'nowhere.csv'}'" in done.stderr


def test_a_relative_path_is_resolved_when_the_stream_is_made(home) -> None:
    home.put(2, "c,9,@9")
    from tests.cli.building import headrace

    elsewhere = home.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.cql").write_text("-- nothing")
    done = headrace("run", "x.cql", "--once", "--home", home.folder / "home", "--quiet", cwd=elsewhere)
    assert done.stdout == "k,t\na,1\nb,2\nc,9\n"


def test_a_stream_that_lost_its_folder_keeps_nothing_else_from_running(tmp_path) -> None:
    home = Home(tmp_path)
    lost = "CREATE STREAM lost (k STRING) USING csv OPTIONS (path 'gone/x');"
    refused = home.once(lost)
    assert refused.returncode == 2
    assert "line 1, column 1" in refused.stderr
    assert f"nor the folder '{tmp_path / 'gone'}' it would be in" in refused.stderr
    assert home.once("SHOW STREAMS;").returncode == 0
    (tmp_path / "gone").mkdir()
    assert home.once(lost).returncode == 0
    (tmp_path / "gone").rmdir()
    after = home.once("SHOW STREAMS;")
    assert (after.returncode, "lost" in after.stdout) == (0, True)
    assert after.stderr.count("lost: there is no") == 1


def test_a_stream_whose_path_is_not_there_yet_waits_and_says_so_once(tmp_path) -> None:
    home = Home(tmp_path)
    ran = home.once(FIRST + SUMS)
    assert (ran.returncode, ran.stdout) == (0, "k,t\n")
    assert ran.stderr.count(f"s: there is no '{tmp_path / 's'}' yet; the stream waits for it.") == 1
    home.put(1, "a,1,@0")
    assert home.once(FIRST + SUMS).stderr == ""
    assert home.once(FIRST + SUMS).stdout == "k,t\na,1\n"


BAD = "a,1,@1 a,x,@2 a,3 a,4,@5,6 a,5, b,1.0,@6 b,2,@3000000000 ,9,@9 c,99999999999999999999,@10"
REJECTED = {  # options: rows of the stream, how many are rejected
    "": ("a,1 ,9", 7),
    ", mode 'PERMISSIVE'": ("a,1 a, a,4 b, ,9 c,", 3),
    ", maxAhead '40000 DAYS'": ("a,1 ,9 b,2", 6),
}


@pytest.mark.parametrize("options", REJECTED)
def test_records_that_are_not_rows_are_rejected_counted_and_readable(tmp_path, options) -> None:
    home, (rows, count) = Home(tmp_path), REJECTED[options]
    home.put(1, BAD)
    script = FIRST.replace("'1')", f"'1'{options})") + "CREATE QUERY q AS SELECT k, v FROM s;"
    done = home.once(script + "CREATE QUERY no AS SELECT text FROM s REJECTS;", "--output", "out")
    assert (tmp_path / "out" / "q.csv").read_text() == lines(f"k,v {rows}")
    assert done.stderr.startswith(f"s: {count} rows rejected, for instance: ")
    assert (tmp_path / "out" / "no.csv").read_text().count("\n") == count + 1


@pytest.mark.parametrize(
    ("header", "rows", "answer"),
    [("v,x,k,at", "1,q,a,@1", "a,1"), ("at,V,K", "@1,1,a", "a,1"), (HEADER, '"",1,@1', '"",1')],
)
def test_csv_columns_are_found_by_name(tmp_path, header, rows, answer) -> None:
    home = Home(tmp_path)
    home.put(1, rows, header)
    assert home.once(FIRST + "CREATE QUERY q AS SELECT k, v FROM s;").stdout == lines(f"k,v {answer}")


def test_a_row_on_which_one_query_fails_leaves_that_query_alone(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, "a,1,@1 b,0,@2 c,2,@3")
    done = home.once(
        FIRST + "CREATE QUERY f AS SELECT k, 10 / v AS x FROM s; CREATE QUERY g AS SELECT k, v FROM s;"
    )
    assert done.stdout == "# f\nk,x\na,10.0\nc,5.0\n\n# g\nk,v\na,1\nb,0\nc,2\n"
    assert done.stderr.startswith("f: its expressions failed on 1 row, for instance: division by zero; see ")


MISTAKES = {
    FIRST.replace("header 'true'", "header 'yes'"): "option header is 'yes'",
    FIRST.replace("maxFilesPerTrigger '1'", "maxFiles '1'"): "a csv source has no option 'maxFiles'",
    FIRST.replace("'1'", "'0'"): "Write a whole number of at least 1",
    FIRST.replace("order 'name'", "order 'size'"): "files cannot be read in the order 'size'",
    FIRST.replace("'1')", "'1', maxAhead '1 MONTH')"): "MONTH has no fixed length",
    "REFRESH RELATION nobody;": "there is no relation 'nobody'",
    "SELECT k FROM s;": "a SELECT is not a statement of its own",
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_refused_with_its_place(tmp_path, text) -> None:
    done = Home(tmp_path).once(text)
    assert done.returncode == 2
    assert MISTAKES[text] in done.stderr
    assert done.stderr.startswith("headrace: line ")

"""§3 and §4 of the interface: which rows a window holds, when it emits, and in what order; computed by hand."""

from __future__ import annotations

import pytest

from tests.contract.running import STREAM, Home, all_answers, lines, registered

# Slack 0, an epoch a file. Late: x at 13 and the row at -3. Not late: a,6 at 14 (equal to the punctuation).
FILES = (
    "a,1,@0 b,2,@5 a,3,@10 ,4,@10 a,5,@14",
    "a,6,@14 x,7,@13 b,8,@20 a,9,@18 ,10,@-3",
    "c,11,@61",
)
EVERY = "window_start, window_end, COUNT(*) AS n, SUM(v) AS t"
RELATION = "CREATE RELATION r (k STRING, name STRING) USING csv OPTIONS (path 'r.csv', header 'true');\n"
OFFSET = "ORIGIN TIMESTAMP '1970-01-01 00:00:01'"
FROM_TO = "BEGIN TIMESTAMP '1970-01-01 00:00:05' END TIMESTAMP '1970-01-01 00:00:14'"

ANSWERS = {
    # a window end every slide, whether or not it divides the range; one row for each group that has a row, NULL first
    "SELECT window_end, k, SUM(v) AS t FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k": """window_end,k,t
        @5,a,1 @10,a,1 @10,b,2 @15,,4 @15,a,14 @15,b,2 @20,,4 @20,a,23 @25,a,9 @25,b,8 @30,b,8 @65,c,11 @70,c,11""",
    f"SELECT {EVERY} FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS]": """window_start,window_end,n,t
        @-6,@4,1,1 @-2,@8,2,3 @2,@12,3,9 @6,@16,4,18 @10,@20,5,27 @14,@24,4,28 @18,@28,2,17 @54,@64,1,11 @58,@68,1,11""",
    f"SELECT {EVERY} FROM s [RANGE 3 SECONDS SLIDE 7 SECONDS]": """window_start,window_end,n,t
        @4,@7,1,2 @18,@21,2,17 @60,@63,1,11""",
    f"SELECT {EVERY} FROM s [RANGE TUMBLING 7 SECONDS]": """window_start,window_end,n,t
        @0,@7,2,3 @7,@14,2,7 @14,@21,4,28 @56,@63,1,11""",
    f"SELECT {EVERY} FROM s [RANGE 10 SECONDS SLIDE 20 SECONDS {OFFSET}]": """window_start,window_end,n,t
        @-9,@1,1,1 @11,@21,4,28""",
    # HOP, TUMBLE and window() start at multiples of the slide
    f"SELECT {EVERY} FROM HOP(TABLE s, DESCRIPTOR(at), INTERVAL 4 SECONDS, INTERVAL 10 SECONDS)": """window_start,window_end,n,t
        @-8,@2,1,1 @-4,@6,2,3 @0,@10,2,3 @4,@14,3,9 @8,@18,4,18 @12,@22,4,28 @16,@26,2,17 @20,@30,1,8 @52,@62,1,11
        @56,@66,1,11 @60,@70,1,11""",
    f"SELECT {EVERY} FROM TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL 7 SECONDS)": """window_start,window_end,n,t
        @0,@7,2,3 @7,@14,2,7 @14,@21,4,28 @56,@63,1,11""",
    "SELECT window.start, window.end, COUNT(*) AS n FROM s GROUP BY window(at, '10 seconds', '4 seconds', '1 second')": """
        start,end,n
        @-7,@3,1 @-3,@7,2 @1,@11,3 @5,@15,5 @9,@19,5 @13,@23,4 @17,@27,2 @53,@63,1 @57,@67,1 @61,@71,1""",
    # without aggregates a row is in every window that holds it
    "SELECT window_end, k, v FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] WHERE v IN (1, 4, 11)": """window_end,k,v
        @10,a,1 @20,,4 @20,a,1 @30,,4 @70,c,11 @80,c,11""",
    f"SELECT {EVERY} FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v < 20 EMIT EMPTY": """window_start,window_end,n,t
        @0,@10,2,3 @10,@20,5,27 @20,@30,1,8 @30,@40,0, @40,@50,0, @50,@60,0, @60,@70,1,11""",
    "SELECT window_end, k, MAX(v) AS top FROM s [LANDMARK SLIDE 40 SECONDS] GROUP BY k": """window_end,k,top
        @40,,4 @40,a,9 @40,b,8 @80,,4 @80,a,9 @80,b,8 @80,c,11""",
    # rows, in stream order: 1 2 3 4 5 6 9 8 11
    f"SELECT {EVERY} FROM s [ROWS 3 SLIDE 2]": """window_start,window_end,n,t
        @0,@5,2,3 @5,@10,3,9 @10,@14,3,15 @14,@20,3,23""",
    f"SELECT {EVERY} FROM s [ROWS 3 SLIDE 2] WHERE v <> 3": """window_start,window_end,n,t
        @0,@5,2,3 @5,@10,2,6 @10,@14,3,15 @14,@20,3,23""",
    "SELECT window_id, COUNT(*) AS n FROM s [ROWS 2 SLIDE 4]": "window_id,n 1,2 2,2",
    "SELECT window_end, k, SUM(v) AS t FROM s [PARTITION BY k ROWS 2 SLIDE 2] GROUP BY k": """window_end,k,t
        @10,a,4 @14,a,11 @20,b,10""",
    "SELECT k, v, window_id FROM s [PARTITION BY k ROWS 3 SLIDE 2] WHERE v > 3": "k,v,window_id a,5,2 a,6,2 b,8,1",
    # windows that end at rows hold end - range < t <= end; by arrival the rows are 1 2 3 4 5 6 8 9 11
    f"SELECT {EVERY} FROM s [RANGE 10 SECONDS SLIDE 1 ROW]": """window_start,window_end,n,t
        @-10,@0,1,1 @-5,@5,2,3 @0,@10,3,9 @4,@14,5,20 @8,@18,5,27 @10,@20,4,28 @51,@61,1,11""",
    f"SELECT {EVERY} FROM s [RANGE 10 SECONDS SLIDE 4 ROWS]": """window_start,window_end,n,t
        @0,@10,3,9 @10,@20,4,28""",
    f"SELECT {EVERY} FROM s [RANGE 10 SECONDS RATTR at, SLIDE 4 ROWS SATTR row_num]": """window_start,window_end,n,t
        @0,@10,3,9 @8,@18,5,27""",
    "SELECT window_end, k, SUM(v) AS t FROM s [RANGE 10 SECONDS SLIDE 2 ROWS SATTR rank(at) PA k] GROUP BY k": """
        window_end,k,t @10,a,3 @14,a,14 @20,b,8""",
    "ISTREAM(SELECT k, v FROM s [RANGE 10 SECONDS SLIDE 4 ROWS])": "k,v ,4 a,3 b,2 a,5 a,6 a,9 b,8",
    "DSTREAM(SELECT k, v FROM s [RANGE 10 SECONDS SLIDE 4 ROWS])": "k,v ,4 a,3 b,2",
    f"SELECT {EVERY} FROM s [ROWS 3 SLIDE 2 WATTR row_num]": """window_start,window_end,n,t
        @0,@5,2,3 @5,@10,3,9 @10,@14,3,15 @14,@18,3,23""",
    f"SELECT {EVERY} FROM s [DELTA 3 ON v]": """window_start,window_end,n,t
        @0,@10,4,10 @14,@14,2,11 @18,@61,3,28""",
    # sessions: rows at most a gap from each other are together; WHERE of session_window comes first, that of a bracket after
    f"SELECT {EVERY} FROM s [SESSION 4 SECONDS]": """window_start,window_end,n,t
        @0,@4,1,1 @5,@9,1,2 @10,@24,6,35 @61,@65,1,11""",
    f"SELECT {EVERY} FROM s [SESSION 4 SECONDS] WHERE v <> 9": """window_start,window_end,n,t
        @0,@4,1,1 @5,@9,1,2 @10,@24,5,26 @61,@65,1,11""",
    "SELECT session_window.start, session_window.end, SUM(v) AS t FROM s WHERE v <> 9 GROUP BY session_window(at, '4 seconds')": """
        start,end,t @0,@4,1 @5,@9,2 @10,@18,18 @20,@24,8 @61,@65,11""",
    "SELECT k, window_end, SUM(v) AS t FROM s GROUP BY k, session_window(at, '5 seconds')": """k,window_end,t
        a,@5,1 b,@10,2 ,@15,4 a,@23,23 b,@25,8 c,@66,11""",
    "SELECT k, v FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(at), INTERVAL 4 SECONDS) WHERE v > 4": """k,v
        a,5 a,6 a,9 b,8 c,11""",
    # CUMULATE: windows that begin together, here every 20 seconds, and end every 10 seconds
    f"SELECT {EVERY} FROM CUMULATE(TABLE s, DESCRIPTOR(at), INTERVAL 10 SECONDS, INTERVAL 20 SECONDS)": """
        window_start,window_end,n,t @0,@10,2,3 @0,@20,7,30 @20,@30,1,8 @20,@40,1,8 @60,@70,1,11 @60,@80,1,11""",
    # relations at NOW, which is 61
    "SELECT k, v FROM s [RANGE 41 SECONDS]": "k,v b,8 c,11",
    "SELECT k, v FROM s [RANGE 40 SECONDS]": "k,v c,11",
    "SELECT COUNT(*) AS n, SUM(v) AS t FROM s [NOW]": "n,t 1,11",
    "SELECT COUNT(*) AS n, SUM(v) AS t FROM s [ROWS 3]": "n,t 3,28",
    "SELECT k, v FROM s [ROWS 4] WHERE k = 'a'": "k,v a,6 a,9",
    "SELECT k, SUM(v) AS t FROM s [PARTITION BY k ROWS 2] GROUP BY k": "k,t ,4 a,15 b,10 c,11",
    "SELECT k, SUM(v) AS t FROM s [RANGE UNBOUNDED] GROUP BY k": "k,t ,4 a,24 b,10 c,11",
    "SELECT k, SUM(v) AS t FROM s [ROWS UNBOUNDED] GROUP BY k": "k,t ,4 a,24 b,10 c,11",
    "SELECT SUM(v) AS t FROM s": "t 49",
    "SELECT SUM(v) AS t, COUNT(*) AS n FROM s WHERE v > 100": "t,n ,0",
    "SELECT SUM(v) AS t FROM s HAVING COUNT(*) > 100": "t",
    "SELECT DISTINCT k FROM s [RANGE 43 SECONDS]": "k a b c",
    # streams of a relation's changes
    "SELECT k, v FROM s": "k,v a,1 b,2 ,4 a,3 a,5 a,6 a,9 b,8 c,11",
    "SELECT ISTREAM(k, COUNT(*) AS n) FROM s [RANGE 10 SECONDS] GROUP BY k": """k,n
        a,1 b,1 ,1 a,2 a,1 a,3 a,4 b,1 a,3 a,1 c,1""",
    "SELECT DSTREAM(k, COUNT(*) AS n) FROM s [RANGE 10 SECONDS] GROUP BY k": """k,n
        a,1 a,2 a,1 b,1 a,3 ,1 a,4 a,3 a,1 b,1 c,1""",
    "ISTREAM(SELECT k, v FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS])": "k,v a,1 b,2 ,4 a,3 a,5 a,6 a,9 b,8 c,11",
    "DSTREAM(SELECT k, v FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS])": "k,v a,1 b,2 ,4 a,3 a,5 a,6 a,9 b,8 c,11",
    "SELECT DSTREAM(k, v) FROM s [ROWS 2]": "k,v a,1 b,2 ,4 a,3 a,5 a,6 a,9",
    "SELECT DSTREAM(k, v) FROM s [PARTITION BY k ROWS 1]": "k,v a,1 a,3 a,6 b,2",
    "SELECT RSTREAM(k, v) FROM s [NOW]": "k,v a,1 b,2 ,4 a,3 a,5 a,6 a,9 b,8 c,11",
    "SELECT RSTREAM(k, COUNT(*) AS n) FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": """k,n
        a,1 b,1 ,1 a,4 b,1 c,1""",
    # BEGIN … END: both ends included; both it and the bracket apply
    f"SELECT k, v FROM s {FROM_TO}": "k,v ,4 a,3 a,5 a,6 b,2",
    f"SELECT k, SUM(v) AS t FROM s WHERE v <> 5 {FROM_TO} GROUP BY k": "k,t ,4 a,9 b,2",
    f"SELECT k, v FROM s [RANGE 47 SECONDS] {FROM_TO}": "k,v a,5 a,6",
    f"SELECT window_end, k, SUM(v) AS t FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] {FROM_TO} GROUP BY k": """window_end,k,t
        @10,b,2 @15,,4 @15,a,14 @15,b,2 @20,,4 @20,a,14""",
    f"SELECT {EVERY} FROM s [ROWS 3 SLIDE 2] {FROM_TO}": """window_start,window_end,n,t
        @0,@5,1,2 @5,@10,3,9 @10,@14,3,15 @14,@20,1,6""",
    "SELECT k, v FROM s BEGIN NOW - INTERVAL 41 SECONDS END NOW - INTERVAL 41 SECONDS": "k,v b,8",
    f"SELECT k, v FROM s {FROM_TO} ORDER BY v DESC LIMIT 3": "k,v a,6 a,5 ,4",
    # the order of rows: emission instant, ORDER BY, GROUP BY keys with nulls first, columns
    "SELECT COUNT(*) AS n, v % 2 AS odd, k FROM s [RANGE TUMBLING 20 SECONDS] GROUP BY k, v % 2": """n,odd,k
        1,0, 1,0,a 4,1,a 1,0,b 1,0,b 1,1,c""",
    "SELECT k, SUM(v) AS t FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k ORDER BY t DESC": """k,t
        b,2 a,1 a,23 ,4 b,8 c,11""",
    "SELECT k, SUM(v) AS t FROM s [RANGE TUMBLING 20 SECONDS] GROUP BY k ORDER BY k DESC": "k,t b,2 a,24 ,4 b,8 c,11",
    "SELECT k, COUNT(*) AS n FROM s GROUP BY k ORDER BY n DESC, k LIMIT 3": "k,n a,5 b,2 ,1",
    "SELECT window_end, k, SUM(v) AS t FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k ORDER BY t DESC, k LIMIT 1": """
        window_end,k,t @10,b,2 @20,a,24 @30,a,23 @40,b,8 @70,c,11 @80,c,11""",
    "SELECT k, SUM(v) AS t FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k HAVING SUM(v) > 5": "k,t a,23 b,8 c,11",
    "SELECT DISTINCT v % 2 AS odd FROM s [RANGE TUMBLING 10 SECONDS]": "odd 0 1 0 1 0 1",
    # relations: several matches, none, and NULL keys that never match
    "SELECT s.k, v, name FROM s JOIN r ON s.k = r.k": """k,v,name
        a,1,Anna a,1,Anton b,2, a,3,Anna a,3,Anton a,5,Anna a,5,Anton a,6,Anna a,6,Anton a,9,Anna a,9,Anton b,8,""",
    "SELECT name, SUM(v) AS t FROM s [RANGE TUMBLING 10 SECONDS] LEFT JOIN r ON s.k = r.k GROUP BY name": """name,t
        ,2 Anna,1 Anton,1 ,4 Anna,23 Anton,23 ,8 ,11""",
    "SELECT k, v FROM s LATE": "k,v ,10 x,7",
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    (folder / "r.csv").write_text("k,name\na,Anna\na,Anton\nb,\n,nobody\n")
    return all_answers(folder, FILES, tuple(ANSWERS), before=RELATION)


@pytest.mark.parametrize("query", ANSWERS)
def test_a_query_answers_what_the_interface_says(answers, query) -> None:
    assert answers[query] == lines(ANSWERS[query])


OVER_QUERIES = {
    "w": ("SELECT k, SUM(v) AS t FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k", "k,t a,1 b,2 ,4 a,23 b,8 c,11"),
    "windows": (  # a result of the window that ends at 20 is in the windows that hold 19.999999
        "SELECT window_end, k, SUM(t) AS u, COUNT(*) AS n FROM w [RANGE TUMBLING 20 SECONDS] GROUP BY k",
        "window_end,k,u,n @20,,4,1 @20,a,24,2 @20,b,2,1 @40,b,8,1 @80,c,11,1",
    ),
    "big": ("SELECT k, v * 2 AS d FROM s WHERE v > 2", "k,d ,8 a,6 a,10 a,12 a,18 b,16 c,22"),
    "sums": ("SELECT k, SUM(d) AS t FROM big GROUP BY k", "k,t ,8 a,46 b,16 c,22"),
    "seen": (
        "SELECT ISTREAM(k, COUNT(*) AS n) FROM s [RANGE 10 SECONDS] GROUP BY k",
        "k,n a,1 b,1 ,1 a,2 a,1 a,3 a,4 b,1 a,3 a,1 c,1",
    ),
    "counted": (
        "SELECT window_end, COUNT(*) AS n FROM seen [RANGE TUMBLING 10 SECONDS]",
        "window_end,n @10,2 @20,5 @30,3 @70,1",
    ),
}  # fmt: skip


def test_a_query_reads_the_results_of_another_at_their_times(tmp_path) -> None:
    home = Home(tmp_path)
    for number, rows in enumerate(FILES):
        home.put(number, rows)
    answered = home.answers(
        STREAM.format(slack=0) + registered({name: text for name, (text, _) in OVER_QUERIES.items()})
    )
    assert answered == {name: lines(expected) for name, (_, expected) in OVER_QUERIES.items()}


REFUSED = {
    "SELECT COUNT(*) FROM s [RANGE 1 MONTH SLIDE 1 DAY]": "MONTH has no fixed length",
    "SELECT COUNT(*) FROM s GROUP BY window(at, '1 year')": "YEAR has no fixed length",
    "SELECT COUNT(*) FROM s GROUP BY window(at, '5 seconds', '10 seconds')": "slide of window() cannot be longer",
    "SELECT COUNT(*) FROM HOP(TABLE s, DESCRIPTOR(at), INTERVAL 9 SECONDS, INTERVAL 5 SECONDS)": "slide of HOP cannot be",
    "SELECT RSTREAM(k) FROM s [RANGE 10 SECONDS]": "RSTREAM needs a window with SLIDE, or [NOW]",
    "SELECT k, v AS K FROM s": "two columns of the select list are called 'K'",
    "SELECT COUNT(*) FROM s WITH REVISIONS": "WITH REVISIONS is not available for a relation",
    "SELECT COUNT(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] BEGIN NOW - INTERVAL 1 HOUR END NOW": "NOW moves on",
    "SELECT k FROM s BEGIN TIMESTAMP '2020-01-02' END TIMESTAMP '2020-01-01'": "ends before it begins",
}  # fmt: skip


@pytest.mark.parametrize("query", REFUSED)
def test_what_has_no_answer_is_refused_when_it_is_registered(tmp_path, query) -> None:
    done = Home(tmp_path).once(STREAM.format(slack=0) + f"CREATE QUERY q AS {query};")
    assert done.returncode == 2
    assert REFUSED[query] in done.stderr


BEFORE_1970 = {
    "SELECT window_id, window_end, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS]": """window_id,window_end,n
        -1,@-10,1 0,@0,2 1,@10,1""",
    "SELECT window_start, window_end, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 7 SECONDS]": """
        window_start,window_end,n @-17,@-7,2 @-10,@0,2 @-3,@7,2""",
    "SELECT window.start, COUNT(*) AS n FROM s GROUP BY window(at, '7 seconds')": "start,n @-14,2 @-7,1 @0,1",
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS]": "n 3",
}  # fmt: skip


def test_times_before_1970_are_times_like_all_others(tmp_path) -> None:
    answered = all_answers(tmp_path, ("a,1,@-13 b,2,@-10 a,3,@-0.000001 c,4,@0",), tuple(BEFORE_1970))
    assert answered == {query: lines(rows) for query, rows in BEFORE_1970.items()}

"""§2 of the interface: order, punctuation, lateness, and the warnings about rows that came late."""

from __future__ import annotations

import pytest

from tests.contract.running import STREAM, Home, lines

SEEN = "CREATE QUERY seen AS SELECT k, v FROM s; CREATE QUERY late AS SELECT k, v FROM s LATE;"

# name: slack, files (an epoch each), rows that count, late rows, the warning about them
CASES = {
    "equal to the punctuation is in time": (5, ["a,1,@10", "a,2,@5"], "a,2 a,1", "", ""),
    "a microsecond below it is late": (5, ["a,1,@10", "a,2,@4.999999"], "a,1", "a,2", "1 row came late and is in no answer; SLACK INTERVAL 5000001 MICROSECONDS"),
    "never late relative to its own epoch": (0, ["a,1,@100 a,2,@1 a,3,@50"], "a,2 a,3 a,1", "", ""),
    "all earlier epochs count, not only the last": (0, ["a,1,@10", "a,2,@30 a,3,@20", "a,4,@25 a,5,@30"], "a,1 a,3 a,2 a,5", "a,4", "1 row came late and is in no answer; SLACK INTERVAL 5 SECONDS"),
    "a late row moves nothing": (0, ["a,1,@10", "a,2,@9", "a,3,@9.5 a,4,@10"], "a,1 a,4", "a,2 a,3", "2 rows came late and are in no answer; SLACK INTERVAL 1 SECOND"),
    "the slack told would have kept all": (5, ["a,1,@10", "a,2,@-7.5"], "a,1", "a,2", "1 row came late and is in no answer; SLACK INTERVAL 17500 MILLISECONDS"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_late_below_the_punctuation_its_epoch_began_with(tmp_path, name) -> None:
    slack, files, counted, late, warning = CASES[name]
    home = Home(tmp_path)
    for number, rows in enumerate(files):
        home.put(number, rows)
    done = home.once(STREAM.format(slack=slack) + SEEN, "--output", "out")
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "out" / "seen.csv").read_text() == lines(f"k,v {counted}")
    assert (tmp_path / "out" / "late.csv").read_text() == lines(f"k,v {late}")
    assert done.stderr == (f"s: {warning} would have kept all.\n" if warning else "")


def test_the_slack_that_is_reported_does_keep_all(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, "a,1,@10")
    home.put(2, "a,2,@-7.5")
    script = STREAM.replace("{slack} SECONDS", "17500 MILLISECONDS") + SEEN
    assert home.once(script).stderr == ""


def test_late_rows_are_counted_before_where_and_enter_no_query_live_or_registered_later(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, "a,1,@10")
    home.put(2, "z,2,@3 a,3,@12")
    picky = "CREATE QUERY picky AS SELECT v FROM s WHERE k = 'a';"
    done = home.once(STREAM.format(slack=0) + picky)
    assert done.stdout == "v\n1\n3\n"
    assert "s: 1 row came late" in done.stderr
    later = home.once("CREATE QUERY later AS SELECT k, SUM(v) AS t FROM s GROUP BY k; INVOKE later;")
    assert later.stdout.startswith("# later\nk,t\na,4\n")
    assert later.stderr == ""  # they were reported in the run they came in
    shown = home.shell("SHOW STREAMS").stdout
    assert "s,csv,at,0 SECONDS,3,1,0,1970-01-01T00:00:12Z,1.0,0\n" in shown


def test_a_late_row_that_every_query_takes_in_is_no_setback(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, "a,1,@30")
    home.put(2, "z,2,@3")
    mended = "CREATE QUERY mended AS SELECT k, v FROM s [RANGE TUMBLING 10 SECONDS] WITH REVISIONS;"
    done = home.once(STREAM.format(slack=0) + mended)
    assert "z,2" in done.stdout
    assert done.stderr == ""
    home.put(3, "y,3,@4")
    both = home.once("CREATE QUERY plain AS SELECT k, v FROM s;")
    warning = (
        "s: 1 row came late and is in no answer but of queries WITH REVISIONS; SLACK INTERVAL 27 SECONDS"
    )
    assert both.stderr.startswith(warning)


def test_after_seal_every_row_is_late_and_no_slack_is_promised(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, "a,1,@10")
    assert home.once(STREAM.format(slack=0) + SEEN, "--seal").returncode == 0
    home.put(2, "a,2,@99")
    done = home.once(STREAM.format(slack=0) + SEEN, "--output", "out")
    assert (
        done.stderr == "s: 1 row came late and is in no answer; the stream was ended for good with --seal.\n"
    )
    assert (tmp_path / "out" / "seen.csv").read_text() == "k,v\na,1\n"


def test_punctuation_taken_from_the_data(tmp_path) -> None:
    home = Home(tmp_path)
    home.put(1, "a,1,@10 p,0,@20 b,2,@15")
    home.put(2, "c,3,@19 d,4,@20 e,5,@30")
    stream = STREAM.replace("SLACK INTERVAL {slack} SECONDS", "PUNCTUATED BY k = 'p'")
    windows = "CREATE QUERY w AS SELECT window_end, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS];"
    done = home.once(stream + windows + "INVOKE w;", "--output", "out")
    assert done.stdout == lines("window_end,n @20,2")
    assert (tmp_path / "out" / "w.csv").read_text() == lines("window_end,n @20,2 @30,2 @40,1")
    assert done.stderr == "s: 1 row came late and is in no answer; its PUNCTUATED BY promised too early.\n"


@pytest.mark.parametrize(("order", "last"), [("", "b"), (", order 'name'", "c")])
def test_ties_stand_in_the_order_of_files(tmp_path, order, last) -> None:
    import os

    home = Home(tmp_path)
    home.put(0, "")
    (tmp_path / "s" / "000.csv").unlink()
    for name, modified in (("b", 1001), ("a", 1001), ("c", 1000)):
        file = tmp_path / "s" / f"{name}.csv"
        file.write_text(lines(f"k,v,at {name},1,@0"))
        os.utime(file, (modified, modified))
    script = STREAM.format(slack=0).replace(", order 'name'", order)
    assert home.once(script + "CREATE QUERY q AS SELECT k FROM s [ROWS 1];").stdout == f"k\n{last}\n"

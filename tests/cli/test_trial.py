"""`hr.test`: a query tried on rows, without a JVM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import headrace as hr

START = datetime(2124, 1, 1, tzinfo=UTC)  # rows of the future are as good as any
ROWS = [{"at": START + timedelta(seconds=20 * i), "k": "ab"[i % 2], "v": i} for i in range(6)]


def test_windows_come_in_order_with_all_that_the_streams_end_would_close() -> None:
    got = hr.test(
        "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k", s=ROWS
    )
    assert got == [
        {"k": "a", "n": 2, "s": 2},
        {"k": "b", "n": 1, "s": 1},
        {"k": "a", "n": 1, "s": 4},
        {"k": "b", "n": 2, "s": 8},
    ]


def test_a_source_without_timestamps_is_a_relation() -> None:
    query = "SELECT r.name, s.v FROM s JOIN r ON s.k = r.k WHERE s.v < 2"
    assert hr.test(query, s=ROWS, r=[{"k": "a", "name": "first"}]) == [{"name": "first", "v": 0}]


def test_pandas_frames_and_arrow_tables_do_as_well() -> None:
    table = pa.Table.from_pylist(ROWS)
    query = "SELECT COUNT(*) AS n FROM s [RANGE 1 DAY SLIDE 1 DAY]"
    assert hr.test(query, s=table) == hr.test(query, s=table.to_pandas()) == [{"n": 6}]
    assert hr.test(query, s=table.slice(0, 0)) == []


def test_a_source_may_have_any_name_and_each_its_own() -> None:
    assert hr.test("SELECT COUNT(*) AS n FROM tested", tested=ROWS) == [{"n": 6}]
    with pytest.raises(hr.UserError, match="two of the sources s, S have the same name"):
        hr.test("SELECT COUNT(*) AS n FROM s", s=ROWS, S=ROWS)


def test_a_mistake_is_placed_in_the_query() -> None:
    with pytest.raises(hr.UserError, match="line 1, column 8: there is no column 'w'"):
        hr.test("SELECT w FROM s [RANGE 1 DAY SLIDE 1 DAY]", s=ROWS)
    with pytest.raises(hr.UserError, match="'s' has no rows, so its columns are unknown"):
        hr.test("SELECT v FROM s", s=[])


@pytest.mark.parametrize("window", ["[RANGE 1 DAY SLIDE 1 DAY]", "[ROWS 24 SLIDE 24]", ""])
def test_different_pairs_are_counted_where_no_value_is_null(window: str) -> None:
    rows = [
        {
            "at": START + timedelta(seconds=i),
            "k": ["a", None, "b"][i % 3],
            "v": [0, 1, None, 1][i % 4],
            "i": i,
        }
        for i in range(24)
    ]
    pairs = {(row["k"], row["v"]) for row in rows if row["k"] is not None and row["v"] is not None}
    few = {(row["k"], row["v"]) for row in rows[:7] if row["k"] is not None and row["v"] is not None}
    assert len(pairs) > len(few) > 1
    text = (
        f"SELECT COUNT(DISTINCT k, v) AS n, COUNT(DISTINCT k, v) FILTER (WHERE i < 7) AS few FROM s {window}"
    )
    assert hr.test(text, s=rows) == [{"n": len(pairs), "few": len(few)}]

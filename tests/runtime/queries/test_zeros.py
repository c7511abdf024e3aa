"""-0.0 and 0.0 are one value: in ORDER BY, LIMIT, MIN and MAX as in groups; which came first does not show."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

import headrace as hr

START = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = [
    {"k": key, "v": value, "at": START + timedelta(seconds=place)}
    for place, (key, value) in enumerate([("b", -0.0), ("c", 0.0), ("a", 1.0), ("d", -0.0)])
]


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("ORDER BY v DESC, k", "abcd"),
        ("ORDER BY v, k DESC", "dcba"),
        ("ORDER BY v DESC, k LIMIT 2", "ab"),
        ("ORDER BY v, k LIMIT 2", "bc"),
        ("ORDER BY v LIMIT 3", "bcd"),
    ],
)
def test_zeros_of_both_signs_tie_in_an_order(order: str, keys: str) -> None:
    """The expected orders are those that Spark gives for the same rows in batch."""
    answer = hr.test(f"SELECT k, v FROM s [RANGE TUMBLING 1 MINUTE] {order}", s=ROWS)
    assert "".join(row["k"] for row in answer) == keys


def test_rows_that_differ_in_the_sign_of_a_zero_alone_stand_in_one_way() -> None:
    for rows in itertools.permutations(ROWS[:3]):
        again = [{**row, "at": START} for row in rows]
        answer = hr.test("SELECT v FROM s [RANGE TUMBLING 1 MINUTE] ORDER BY v LIMIT 2", s=again)
        assert [str(row["v"]) for row in answer] == ["-0.0", "0.0"]


@pytest.mark.parametrize("window", ["[RANGE TUMBLING 1 MINUTE]", "[RANGE 1 MINUTE]", "[ROWS 2 SLIDE 2]"])
def test_the_extremes_of_zeros_do_not_depend_on_their_order(window: str) -> None:
    answers = set()
    for rows in (ROWS[:2], [{**ROWS[0], "v": 0.0}, {**ROWS[1], "v": -0.0}]):
        answer = hr.test(f"SELECT MIN(v) AS low, MAX(v) AS top FROM s {window}", s=rows)
        answers.add(str(answer[-1]))
    assert answers == {"{'low': 0.0, 'top': 0.0}"}

"""Importance by the value of an output column: rows count as their answers do, wherever a condition on rows can express that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.quality_of_service import Importance
from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from headrace.overload.shedding import intervals_of
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.laws.test_shedding import CATALOG
from tests.overload.floods import STREAM

LOSS = "loss (1 AT 0 PERCENT, 0.5 AT 90 PERCENT)"


def importance(selected: str, value: str, keys: str = "") -> Importance:
    grouped = f" GROUP BY {keys}" if keys else ""
    text = f"SELECT {selected} FROM s [RANGE TUMBLING 5 SECONDS]{grouped} WITH SHEDDING WITH QOS ({LOSS}, value {value})"
    quality = bind_query(text, CATALOG).quality
    assert quality is not None
    assert quality.importance is not None
    return quality.importance


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, int, float, float]:
    """A key over x, what x is there, and the scale and offset that it has."""
    number = st.integers(-6, 6)
    scale, offset = draw(number.filter(bool)), draw(number)
    half, minus = draw(st.booleans()), draw(st.booleans())
    text, by, added = f"x * {scale} + ({offset})", float(scale), float(offset)
    if draw(st.booleans()):
        text, by, added = f"{offset} - ({text})", -by, offset - added
    if half:
        text, by, added = f"({text}) / 2", by / 2, added / 2
    if minus:
        text, by, added = f"-({text})", -by, -added
    if draw(st.booleans()):
        text = f"CAST({text} AS DOUBLE)"
    return text, draw(st.integers(-40, 40)), by, added


@given(
    line=lines(),
    bounds=st.lists(st.integers(-40, 40), min_size=1, max_size=3, unique=True).map(sorted),
    values=st.lists(st.none() | st.integers(-60, 60), min_size=1, max_size=20),
)
def test_a_row_counts_as_the_key_of_its_group(
    line: tuple[str, int, float, float], bounds: list[int], values: list[int | None]
) -> None:
    text, _, scale, offset = line
    levels = (0.1, 0.7, 0.3, 1.0)[: len(bounds)]
    below = ", ".join(f"{level} BELOW {bound}" for level, bound in zip(levels, bounds, strict=True))
    by_input = importance(f"{text} AS p, COUNT(*) AS n", f"p ({below}, 0.5 OTHERWISE)", text)
    by_output = Importance("p", tuple(map(float, bounds)), (*levels, 0.5))
    answers = [None if x is None else scale * x + offset for x in values]
    of_rows = [by_input.levels[each] for each in intervals_of(pa.array(values, pa.int64()), by_input)]
    of_answers = [by_output.levels[each] for each in intervals_of(pa.array(answers, pa.float64()), by_output)]
    assert of_rows == of_answers
    assert (by_input.column, by_input.answers) == ("x", "p")


def test_it_is_what_the_input_column_would_have_stated() -> None:
    by_input = importance("x * 2 AS p, COUNT(*) AS n", "x (0.1 BELOW 10, 1 OTHERWISE)", "x * 2")
    by_output = importance("x * 2 AS p, COUNT(*) AS n", "p (0.1 BELOW 20, 1 OTHERWISE)", "x * 2")
    assert replace(by_output, answers="") == by_input


def test_a_value_at_a_bound_is_in_the_upper_interval_also_where_values_fall() -> None:
    by_input = importance("10 - x AS p, COUNT(*) AS n", "p (0.1 BELOW 5, 1 OTHERWISE)", "10 - x")
    levels = [by_input.levels[each] for each in intervals_of(pa.array([4, 5, 6]), by_input)]
    assert levels == [1, 1, 0.1]


def test_the_column_of_the_stream_comes_first() -> None:
    assert importance("x * 2 AS x, COUNT(*) AS n", "x (0.1 BELOW 10, 1 OTHERWISE)", "x * 2").bounds == (10.0,)


def test_an_extreme_is_propagated_to_its_rows_where_beyond_it_answers_count_more() -> None:
    greatest = importance("MAX(x + 1) AS top", "top (0.1 BELOW 10, 0.5 BELOW 20, 1 OTHERWISE)")
    assert (greatest.column, greatest.bounds, greatest.levels) == ("x", (9.0, 19.0), (0.1, 0.5, 1.0))
    least = importance("MIN(x) AS low", "low (1 BELOW 10, 0.1 OTHERWISE)")
    assert (least.column, least.levels) == ("x", (1.0, 0.1))


@pytest.mark.parametrize(
    ("selected", "value", "keys", "reason"),
    [
        ("COUNT(*) AS n", "n (0.1 BELOW 9, 1 OTHERWISE)", "", "'n' is of many rows together"),
        ("SUM(x) AS t", "t (0.1 BELOW 9, 1 OTHERWISE)", "", "'t' is of many rows together"),
        ("MAX(x) FILTER (WHERE g = 1) AS t", "t (0.1 BELOW 9, 1 OTHERWISE)", "", "of many rows together"),
        ("MAX(x) AS t", "t (1 BELOW 9, 0.1 OTHERWISE)", "", "no row is greater than a MAX"),
        ("MIN(x) AS t", "t (0.1 BELOW 9, 1 OTHERWISE)", "", "no row is less than a MIN"),
        ("x % 7 AS p, COUNT(*) AS n", "p (0.1 BELOW 5, 1 OTHERWISE)", "x % 7", "has no inverse"),
        ("x * g AS p, COUNT(*) AS n", "p (0.1 BELOW 5, 1 OTHERWISE)", "x * g", "has no inverse"),
        ("x * 0 AS p, COUNT(*) AS n", "p (0.1 BELOW 5, 1 OTHERWISE)", "x * 0", "has no inverse"),
        ("6 / x AS p, COUNT(*) AS n", "p (0.1 BELOW 5, 1 OTHERWISE)", "6 / x", "has no inverse"),
        (
            "CAST(y AS INT) AS p, COUNT(*) AS n",
            "p (0.1 BELOW 5, 1 OTHERWISE)",
            "CAST(y AS INT)",
            "no inverse",
        ),
        ("k AS p, COUNT(*) AS n", "p (0.1 BELOW 5, 1 OTHERWISE)", "k", "has no inverse"),
        ("COUNT(*) AS n", "m (0.1 BELOW 5, 1 OTHERWISE)", "", "no such output column"),
    ],
)
def test_where_the_value_of_an_answer_is_no_condition_on_rows_it_is_refused(
    selected: str, value: str, keys: str, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        importance(selected, value, keys)


def test_explain_shows_both_columns(tmp_path: Path) -> None:
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute(STREAM)
        hub.execute(
            "CREATE QUERY q AS SELECT 100 - v AS rest, COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND] GROUP BY 100 - v"
            f" WITH SHEDDING WITH QOS ({LOSS}, value rest (1 BELOW 20, 0.1 OTHERWISE))"
        )
        plan = hub.execute("EXPLAIN QUERY q")[0].message
        assert "importance of rows, by rest of answers: 0.1 where v <= 80, 1 where v > 80" in plan

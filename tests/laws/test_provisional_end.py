"""The law of the provisional end: what every query would answer if the streams ended here is what it answers when they do.

Queries over queries are drawn, of any depth: windows, relations and streams of the ones below, alone and joined. One run ends
its streams provisionally, another one of the same statements and epochs for good, as `--seal` does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.runtime.delivery.output_files import emitted_rows
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.examples import examples
from tests.laws.two_streams import Row, epochs, opened, script, table
from tests.runtime.rig import answer

_SLIDES = ("RANGE TUMBLING 1 SECOND", "RANGE 3 SECONDS SLIDE 2 SECONDS", "LANDMARK SLIDE 2 SECONDS")
_INSTANTS = ("NOW", "RANGE 2 SECONDS", "RANGE UNBOUNDED", "PARTITION BY k, v ROWS 2")
"""Rows of one instant have no order in a query's results; two of a partition by all columns are the same."""
_SESSION = "PARTITION BY k SESSION 1 SECOND"


@dataclass(frozen=True)
class Level:
    """A query with the columns k and v, and whether its answer is a relation: then it is read without a window."""

    text: str
    is_relation: bool = False


@st.composite
def sources(draw: st.DrawFn, alias: str, depth: int, windows: Sequence[str]) -> str:
    """Something in FROM: a stream, or a query over others, under one of the windows."""
    below = draw(levels(depth - 1)) if depth else None
    text = draw(st.sampled_from("ab")) if below is None else f"({below.text})"
    bracket = "" if below is not None and below.is_relation else f" [{draw(st.sampled_from(windows))}]"
    return f"{text} {alias}{bracket}" if below is None else f"{text} AS {alias}{bracket}"


@st.composite
def levels(draw: st.DrawFn, depth: int) -> Level:
    """A query over queries of less depth."""
    kind = draw(st.sampled_from(("windows", "relation", "relation", "emitted", "stream", "pairs")))
    what = "k, COUNT(*) AS v", "k, SUM(v) AS v", "k, MAX(v) AS v"
    if kind == "windows":
        below = draw(levels(depth - 1).filter(lambda level: not level.is_relation)) if depth else None
        source = f"({below.text}) AS t" if below is not None else draw(st.sampled_from("ab"))
        window = draw(st.sampled_from((*_SLIDES, _SESSION)))
        return Level(f"SELECT {draw(st.sampled_from(what))} FROM {source} [{window}] GROUP BY k")
    if kind == "stream":
        below = draw(levels(depth - 1).filter(lambda level: not level.is_relation)) if depth else None
        source = f"({below.text}) AS t" if below is not None else draw(st.sampled_from("ab"))
        return Level(f"SELECT k, v + 1 AS v FROM {source} WHERE v >= 0")
    if kind == "pairs":
        left, right = (draw(sources(name, depth if name == "x" else 0, _INSTANTS)) for name in "xy")
        return Level(f"SELECT x.k, y.v FROM {left}, {right} WHERE x.k = y.k", is_relation=True)
    grouped = f"SELECT {draw(st.sampled_from(what))} FROM {draw(sources('t', depth, _INSTANTS))} GROUP BY k"
    if kind == "relation":
        return Level(grouped, is_relation=True)
    emitted = draw(st.sampled_from(("ISTREAM", "DSTREAM")))
    return Level(f"SELECT {emitted}(k, v) FROM ({grouped}) AS g")


def _ended(
    queries: Sequence[str], epochs: Sequence[tuple[list[Row], list[Row]]], tasks: int, *, seal: bool
) -> dict[str, Any]:
    """What each query shows and has emitted once the streams have ended, for good or provisionally."""
    with tempfile.TemporaryDirectory() as folder, opened(folder, tasks) as hub:
        hub.execute(script(folder, (SECOND, 0)))
        for number, text in enumerate(queries):
            hub.register(text, f"q{number}")
        for epoch in epochs:
            for name, part in zip("ab", epoch, strict=True):
                if part:
                    hub.push(name, table(part))
            hub.catch_up()
        closing = hub.finish(seal=seal)
        return {name: _shown(hub, name, closing) for name in (f"q{n}" for n in range(len(queries)))}


def _shown(hub: Hub, name: str, closing: Mapping[str, pa.Table]) -> tuple[Any, str]:
    operator, query = hub.operator_and_query(name)
    rows = emitted_rows(hub.home, hub.home.latest(), operator, query, closing.get(name))
    return rows.to_pylist(), repr(answer(hub, name, closing or None))


def _assert_law(queries: Sequence[str], epochs: Sequence[tuple[list[Row], list[Row]]], tasks: int) -> None:
    provisional = _ended(queries, epochs, 1, seal=False)
    final = _ended(queries, epochs, tasks, seal=True)
    for text, answered, expected in zip(queries, provisional.values(), final.values(), strict=True):
        assert repr(answered) == repr(expected), text


@examples(40)
@given(data=st.data())
def test_a_provisional_end_answers_what_the_final_one_does_at_any_depth(data: st.DataObject) -> None:
    depths = st.integers(1, 3).flatmap(levels).map(lambda level: level.text)
    queries = data.draw(st.lists(depths, min_size=1, max_size=3, unique=True), "queries")
    _assert_law(queries, data.draw(epochs(), "epochs"), data.draw(st.integers(1, 3), "tasks"))


_CLOSING = "(SELECT k, COUNT(*) AS v FROM a [RANGE TUMBLING 1 SECOND] GROUP BY k)"
_OVER_CLOSING_ROWS = {
    "all": f"SELECT COUNT(*) AS n FROM {_CLOSING} AS t",
    "the last seconds": f"SELECT SUM(v) AS n FROM {_CLOSING} AS t [RANGE 2 SECONDS]",
    "sessions": "SELECT COUNT(*) AS n FROM (SELECT k, COUNT(*) AS v FROM a [PARTITION BY k SESSION 1 SECOND] GROUP BY k) AS t",
    "insertions": f"SELECT COUNT(*) AS n FROM (SELECT ISTREAM(k, v) FROM (SELECT k, SUM(v) AS v FROM {_CLOSING} AS t GROUP BY k) AS u) AS w",
    "retractions": "SELECT COUNT(*) AS n FROM (SELECT DSTREAM(k, v) FROM a [RANGE 2 SECONDS]) AS t",
    "a join": f"SELECT t.v, b.v AS w FROM {_CLOSING} AS t [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE t.v = b.v",
    "a union": f"SELECT k, v FROM {_CLOSING} AS t [ROWS 3] UNION ALL SELECT k, v FROM b [ROWS 3]",
    "bounds": f"SELECT k, v FROM {_CLOSING} AS t BEGIN NOW - INTERVAL 1 SECOND END NOW",
    "insertions within bounds": "SELECT ISTREAM(k, v) FROM a BEGIN NOW - INTERVAL 3 SECONDS END NOW",
}  # fmt: skip


@pytest.mark.parametrize("name", _OVER_CLOSING_ROWS)
def test_a_relation_over_closing_rows_holds_them_at_the_provisional_end(name: str) -> None:
    epochs = [([{"k": "a", "v": 1, "d": None, "at": n * SECOND} for n in (1, 2, 3)], [])]
    epochs += [([], [{"k": "a", "v": 1, "d": None, "at": 2 * SECOND}])]
    _assert_law([_OVER_CLOSING_ROWS[name]], epochs, 1)


def test_results_that_end_move_now_beyond_what_punctuation_has_expired() -> None:
    """Punctuation has retracted the last window's row after NOW; at the end a later window makes that a part of the answer."""
    windows = f"(SELECT k, COUNT(*) AS v FROM {_CLOSING} AS t [RANGE TUMBLING 1 SECOND] GROUP BY k)"
    query = f"SELECT k, COUNT(*) AS v FROM {windows} AS t [NOW] GROUP BY k"
    of_a = [(None, 7.0), (None, 2.0), (None, 6.0), ("a", 8.5), ("c", 7.5)]
    rows = [{"k": k, "v": 1, "d": None, "at": int(at * SECOND)} for k, at in of_a]
    _assert_law([query], [(rows, []), ([{"k": "a", "v": 1, "d": None, "at": 4 * SECOND}], [])], 1)


def test_a_query_over_a_registered_one_holds_its_closing_rows_at_the_provisional_end() -> None:
    windows = "SELECT k, COUNT(*) AS v FROM a [RANGE TUMBLING 1 SECOND] GROUP BY k"
    queries = [windows, "SELECT k, SUM(v) AS v FROM q0 GROUP BY k", "SELECT MAX(v) AS n FROM q1"]
    _assert_law(queries, [([{"k": "a", "v": 1, "d": None, "at": n * SECOND} for n in (1, 2, 3)], [])], 1)


def test_the_tested_query_sees_the_closing_rows_of_the_one_in_its_from() -> None:
    rows = table([{"k": "a", "v": 1, "d": None, "at": n * SECOND} for n in (1, 2, 3)])
    assert hr.test(_OVER_CLOSING_ROWS["all"], a=rows) == [{"n": 3}]

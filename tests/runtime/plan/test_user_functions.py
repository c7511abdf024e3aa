"""Python functions in queries: registered once, used in any clause, there again in the next run."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow.compute as pc
import pytest

from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def fill(hub: Hub, seconds: range) -> None:
    """One row a second."""
    hub.push("s", [{"at": START + dt.timedelta(seconds=s), "v": s} for s in seconds])


def prepared(path: Path) -> Hub:
    """A hub with two functions: one by row, one by array."""
    hub = open_hub(path, local=True)
    hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
    hub.register_function("triple", lambda v: 3 * v, ["BIGINT"], "BIGINT")
    hub.register_function(
        "is_even", lambda v: pc.equal(pc.bit_wise_and(v, 1), 0), ["BIGINT"], "BOOLEAN", by_row=False
    )
    return hub


def test_a_function_stands_wherever_a_scalar_does(tmp_path: Path) -> None:
    """In WHERE, as a group key, inside an aggregate and above it."""
    with prepared(tmp_path / "home") as hub:
        hub.register(
            "SELECT triple(v % 2) AS k, triple(SUM(triple(v))) AS t FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] "
            "WHERE NOT is_even(v) GROUP BY triple(v % 2)",
            "q",
        )
        fill(hub, range(11))
        hub.run_once()
        assert hub.query("q").history().to_pylist() == [{"k": 3, "t": 9 * (1 + 3 + 5 + 7 + 9)}]


def test_it_is_there_in_the_next_run(tmp_path: Path) -> None:
    """The body is in the query log, not in the program."""
    with prepared(tmp_path / "home") as hub:
        hub.register("SELECT triple(v) AS t FROM s", "q")
    with open_hub(tmp_path / "home", local=True) as hub:
        fill(hub, range(2))
        hub.run_once()
        assert hub.query("q").history()["t"].to_pylist() == [0, 3]


def test_a_row_on_which_it_fails_is_rejected_alone(tmp_path: Path) -> None:
    """The other rows are answered, the failure is counted."""
    with prepared(tmp_path / "home") as hub:
        hub.register_function("picky", lambda v: 6 // (v - 1), ["BIGINT"], "BIGINT")
        hub.register("SELECT picky(v) AS p FROM s", "q")
        fill(hub, range(3))
        hub.run_once()
        assert hub.query("q").history()["p"].to_pylist() == [-6, 6]
        assert sum(hub.status()["rejected"].values()) == 1


def test_names_of_built_in_functions_are_taken(tmp_path: Path) -> None:
    """And a name has to be one."""
    with prepared(tmp_path / "home") as hub:
        with pytest.raises(UserError, match="'upper' is a built-in function"):
            hub.register_function("upper", str, ["STRING"], "STRING")
        with pytest.raises(UserError, match="no name for a function"):
            hub.register_function("a b", str, ["STRING"], "STRING")


def test_what_is_no_function_and_types_that_are_no_list_are_refused(tmp_path: Path) -> None:
    with prepared(tmp_path / "home") as hub:
        with pytest.raises(UserError, match="'five' is made of a Python function, not of 5"):
            hub.register_function("five", 5, ["BIGINT"], "BIGINT")  # type: ignore[arg-type]
        with pytest.raises(UserError, match=r"(?s)a list of types, not the text 'BIGINT'.*Pass \['BIGINT'\]"):
            hub.register_function("same", lambda v: v, "BIGINT", "BIGINT")


def test_another_body_is_called_for_later_rows_only(tmp_path: Path) -> None:
    """A row keeps the result that it had."""
    with prepared(tmp_path / "home") as hub:
        hub.register_function("times", lambda v: v * 2, ["BIGINT"], "BIGINT")
        hub.register("SELECT times(v) AS t FROM s", "q")
        fill(hub, [1])
        hub.run_once()
        hub.register_function("times", lambda v: v * 3, ["BIGINT"], "BIGINT")
        fill(hub, [1])
        hub.run_once()
        assert hub.query("q").history()["t"].to_pylist() == [2, 3]


def test_what_cannot_be_pickled_is_refused(tmp_path: Path) -> None:
    """A function that holds an open file cannot travel."""
    with (
        prepared(tmp_path / "home") as hub,
        (tmp_path / "x").open("w") as file,
        pytest.raises(UserError, match="cannot be sent to tasks"),
    ):
        hub.register_function("writes", file.write, ["STRING"], "BIGINT")


def test_it_is_called_where_levels_of_queries_are_asked_at_once(tmp_path: Path) -> None:
    """INVOKE of what is made of relations, and the answers as if the streams ended here: rows go from one query to the next in the driver."""
    with prepared(tmp_path / "home") as hub:
        hub.register(
            "SELECT triple(v) AS t FROM (SELECT v FROM s [ROWS 2]) r WHERE NOT is_even(triple(v))", "held"
        )
        hub.register(
            "SELECT triple(x.v) AS t FROM s x [ROWS 1], s y [RANGE 2 SECONDS] WHERE triple(x.v) > y.v", "met"
        )
        hub.register("SELECT SUM(v) AS v FROM s [RANGE TUMBLING 3 SECONDS]", "sums")
        hub.register("SELECT triple(v) AS t FROM sums WHERE v > 0", "over")
        fill(hub, range(8))
        hub.catch_up()
        assert hub.query("held").invoke()["t"].to_pylist() == [21]
        assert hub.query("met").invoke()["t"].to_pylist() == [21, 21, 21]
        closing = hub.run_once()
        assert closing["over"]["t"].to_pylist() == [3 * (6 + 7)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT triple(v) AS t FROM (SELECT v FROM s [ROWS 1]) r",
        "SELECT SUM(v) AS t FROM (SELECT v FROM s [ROWS 1]) r WHERE triple(v) > 0",
        "SELECT x.v FROM s x [ROWS 1], s y [RANGE 2 SECONDS] WHERE triple(x.v) = triple(y.v)",
    ],
)
def test_rows_that_come_and_go_are_computed_by_one_body(tmp_path: Path, text: str) -> None:
    """A row would be retracted as another one than was inserted, and what was inserted would stay."""
    with prepared(tmp_path / "home") as hub:
        hub.register(text, "q")
        hub.register("SELECT triple(v) AS t FROM s [ROWS 1]", "once")
        fill(hub, range(3))
        hub.catch_up()
        with pytest.raises(UserError, match="'triple' cannot be replaced while q calls it"):
            hub.register_function("triple", lambda v: 4 * v, ["BIGINT"], "BIGINT")
        hub.register_function("triple", lambda v: 3 * v, ["BIGINT"], "BIGINT")
        hub.drop_query("q")
        hub.register_function("triple", lambda v: 4 * v, ["BIGINT"], "BIGINT")
    with prepared(tmp_path / "home2") as hub:
        hub.register(text, "q")
    with open_hub(tmp_path / "home2", local=True) as hub:
        hub.register_function("triple", lambda v: 3 * v, ["BIGINT"], "BIGINT")

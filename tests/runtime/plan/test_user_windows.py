"""Windows of a user's class in queries: registered once, there again in the next run, and kept to their contract."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.algebra.windows.cumulate import Cumulate
from headrace.errors import UserError
from headrace.examples.windows import Months, SameHour, Shifts
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.plan.code_fingerprint import fingerprint

DAY = 86_400_000_000
START = dt.datetime(2024, 1, 30, tzinfo=dt.UTC)
DAYS = "SELECT window_start, window_end, COUNT(*) AS n, SUM(v) AS t FROM s [WINDOW {}]"


def day(number: float) -> dt.datetime:
    return START + dt.timedelta(days=number)


def rows(*days: int) -> list[dict[str, Any]]:
    return [{"at": day(number), "v": number} for number in days]


def local_class(length: int) -> type[hr.UserWindow]:
    """A class that no module has: it can only travel by value."""

    class Blocks(hr.UserWindow):
        def __init__(self, times: int = 1) -> None:
            self.length = times * length

        def wids(self, at: Any, *columns: Any) -> Any:
            return np.arange(len(at)), at // self.length

        def bounds(self, windows: Any) -> Any:
            return windows * self.length, (windows + 1) * self.length

        def holds(self, window: int, at: int, *values: Any) -> bool:
            return at // self.length == window

    return Blocks


def prepared(path: Path, **more: Any) -> Hub:
    hub = open_hub(path, **(more or {"local": True}))
    hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
    hub.register_window("blocks", local_class(2 * DAY))
    return hub


def test_months_are_as_long_as_they_are() -> None:
    answer = hr.test(DAYS.format("months(1)"), s=rows(0, 1, 2, 30, 31, 60, 91), months=Months)
    assert [(row["window_end"] - row["window_start"]).days for row in answer] == [31, 29, 31, 30]
    assert [row["t"] for row in answer] == [0 + 1, 2 + 30, 31 + 60, 91]
    both = hr.test(DAYS.format("months(2)"), s=rows(0, 3), months=Months)
    assert [(row["n"], row["t"]) for row in both] == [(1, 0), (2, 3), (1, 3)]


def test_the_rows_of_a_window_need_not_follow_each_other() -> None:
    hours = [{"at": day(d) + dt.timedelta(hours=h), "v": 100 * d + h} for d in (0, 1, 2) for h in (7, 8, 9)]
    query = "SELECT window_end, v FROM s [WINDOW same_hour(3)] WHERE v >= 8"
    answer = hr.test(query, s=hours, same_hour=SameHour)
    at_eight = [row["v"] for row in answer if row["window_end"] == day(2) + dt.timedelta(hours=9)]
    assert at_eight == [8, 108, 208]


def test_a_window_may_depend_on_a_column() -> None:
    class Levels(hr.UserWindow):
        """A day of rows of one level, 0 or 1."""

        def wids(self, at: Any, *columns: Any) -> Any:
            (level,) = columns
            return np.arange(len(at)), 2 * (at // DAY) + level.to_numpy()

        def bounds(self, windows: Any) -> Any:
            return windows // 2 * DAY, (windows // 2 + 1) * DAY

        def holds(self, window: int, at: int, *values: Any) -> bool:
            return window == 2 * (at // DAY) + values[0]

    times = [1_700_000_000_000_000 + n * 40_000_000_000 for n in range(9)]
    assert hr.check_window(Levels(), times, [[n % 2 for n in range(9)]]) == 9
    answer = hr.test(
        "SELECT SUM(v) AS t FROM s [WINDOW levels() ON v % 2]", s=rows(0, 0, 1, 3, 3), levels=Levels
    )
    assert [row["t"] for row in answer] == [0, 1, 6]


def test_it_is_there_in_the_next_run_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each push is an epoch; the class is in the query log, not in the program."""
    with prepared(tmp_path / "home") as hub:
        hub.register(DAYS.format("blocks(2)"), "q")
        hub.push("s", rows(0, 1))
        hub.run_once()
    with open_hub(tmp_path / "home", local=True, tasks=3) as hub:
        hub.register_window("blocks", local_class(2 * DAY))  # the same code: nothing happens
        hub.push("s", rows(2, 3, 9))
        hub.run_once(seal=True)
        whole = hub.query("q").history()
        assert (whole["n"].to_pylist(), whole["t"].to_pylist()) == ([4, 1], [0 + 1 + 2 + 3, 9])
        assert hub.query("q").invoke()["t"].to_pylist() == [9]


@pytest.mark.spark
def test_a_class_of_the_program_reaches_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    with prepared(tmp_path / "home", spark=spark, tasks=2) as hub:
        hub.register(DAYS.format("blocks()"), "q")
        hub.push("s", rows(0, 1, 2))
        hub.run_once(seal=True)
        assert hub.query("q").history()["n"].to_pylist() == [2, 1]


def test_another_class_does_not_take_the_place_of_one_in_use(tmp_path: Path) -> None:
    with prepared(tmp_path / "home") as hub:
        hub.register_window("blocks", local_class(1_000_000))  # no query uses it yet
        hub.register(DAYS.format("blocks()"), "q")
        with pytest.raises(UserError, match="in use by the query 'q'"):
            hub.register_window("Blocks", local_class(2_000_000))
        hub.query("q").drop()
        hub.register_window("blocks", local_class(2_000_000))


def test_what_is_no_kind_of_window_is_refused(tmp_path: Path) -> None:
    class Half(hr.UserWindow):
        def wids(self, at: Any, *columns: Any) -> Any:
            return at, at

    with prepared(tmp_path / "home") as hub:
        with pytest.raises(UserError, match="no name for a window"):
            hub.register_window("a b", Months)
        with pytest.raises(UserError, match="does not define bounds, holds"):
            hub.register_window("half", Half)
        with pytest.raises(UserError, match="made of a class"):
            hub.register_window("months", Months(1))  # type: ignore[arg-type]
        with pytest.raises(UserError, match="there is no window 'month'"):
            hub.register(DAYS.format("month(1)"), "q")
        with pytest.raises(UserError, match="built-in window"):
            hub.register_window("Cumulate", Months)
        hub.register_window("months", Months)
        with pytest.raises(UserError, match="line 1, column 68: a window of months has at least one"):
            hub.register(DAYS.format("months(0)"), "q")


def test_a_row_on_which_it_fails_is_rejected_alone(tmp_path: Path) -> None:
    class Picky(Months):
        def wids(self, at: Any, *columns: Any) -> Any:
            if (columns[0].to_numpy() == 1).any():
                raise ValueError("not this one")
            return super().wids(at)

    with prepared(tmp_path / "home") as hub:
        hub.register_window("picky", Picky)
        hub.register(DAYS.format("picky(1) ON v"), "q")
        hub.register("SELECT COUNT(*) AS n FROM s", "other")
        hub.push("s", rows(0, 1, 2, 40))
        hub.run_once(seal=True)
        assert hub.query("q").history()["t"].to_pylist() == [0, 2, 40]
        assert hub.query("other").invoke()["n"].to_pylist() == [4]
        assert sum(hub.status()["rejected"].values()) == 1


def test_explain_shows_its_class_and_what_cannot_be_rendered_is_refused() -> None:
    with pytest.raises(UserError, match="which windows of months hold no row is not known"):
        hr.test(DAYS.format("months(1)") + " EMIT EMPTY", s=rows(0), months=Months)
    with pytest.raises(UserError, match="WITH REVISIONS is not available"):
        hr.test(DAYS.format("months(1)") + " WITH REVISIONS", s=rows(0), months=Months)


# ---------------------------------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize(
    "kind",
    [
        Cumulate(5_000_000, 60_000_000, 7),
        Months(1),
        Months(3),
        SameHour(1),
        SameHour(4),
        Shifts(7_200_000_000, 3_600_000_000, 5),
    ],
    ids=["cumulate", "a-month", "three-months", "same-hour", "same-hour-of-four", "shifts"],
)
def test_the_examples_keep_the_contract(kind: hr.UserWindow) -> None:
    assert hr.check_window(kind) > 100


class Broken(Shifts):
    """Tumbling, an hour long; each test breaks one rule."""

    def __init__(self) -> None:
        super().__init__(3_600_000_000, 3_600_000_000)


class LeavesOut(Broken):
    def wids(self, at: Any, *columns: Any) -> Any:
        row, window = super().wids(at)
        return row[window != 0], window[window != 0]


class NamesTwice(Broken):
    def wids(self, at: Any, *columns: Any) -> Any:
        row, window = super().wids(at)
        return np.r_[row, row[:1]], np.r_[window, window[:1]]


class OneTooMany(Broken):
    def wids(self, at: Any, *columns: Any) -> Any:
        row, window = super().wids(at)
        return np.r_[row, row], np.r_[window, window + 1]


class TooShort(Broken):
    def bounds(self, windows: Any) -> Any:
        return windows * 3_600_000_000, windows * 3_600_000_000 + 3_500_000_000


class Neighbours(Broken):
    """A row is in a window because of another row: the windows of a batch, not of a row."""

    def wids(self, at: Any, *columns: Any) -> Any:
        row, window = super().wids(at)
        return (row[:-1], window[:-1]) if len(at) == 1 else (row, window)


class Floats(Broken):
    def wids(self, at: Any, *columns: Any) -> Any:
        return np.arange(len(at)), at / 3_600_000_000


class OutOfRange(Broken):
    def wids(self, at: Any, *columns: Any) -> Any:
        row, window = super().wids(at)
        return row + 1, window


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (LeavesOut, "holds a row at .*, but wids leaves it out"),
        (NamesTwice, "twice for row"),
        (OneTooMany, "outside its bounds"),
        (TooShort, "outside its bounds"),
        (Neighbours, "depend on the other rows"),
        (Floats, "arrays of integers"),
        (OutOfRange, "names row"),
    ],
)
def test_the_check_finds_each_way_to_break_the_contract(kind: type[Broken], broken: str) -> None:
    assert hr.check_window(Broken()) > 100
    with pytest.raises(UserError, match=broken):
        hr.check_window(kind())


def test_a_fingerprint_distinguishes_code_and_nothing_else() -> None:
    assert fingerprint(local_class(5)) == fingerprint(local_class(5))
    assert fingerprint(local_class(5)) != fingerprint(local_class(6))
    assert fingerprint(LeavesOut) != fingerprint(Neighbours)

"""Questions over the archive that name the error or the time they accept: the least is read that gives it, and the rest is refused with the reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.archive.run_file import RunFile
from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import answer
from headrace.runtime.invoke.questions.answer import Accepted, asked
from headrace.runtime.invoke.questions.clauses import question_of
from headrace.runtime.plan.bound_queries import bind_text
from headrace.runtime.samples import joined_runs
from headrace.runtime.statements.outcome import Outcome
from headrace.store.logs import radix_list
from headrace.time import SECOND
from tests.runtime.epoch.work import disk_calls

START = 1_700_000_000 * SECOND
ROWS = 120_000


@contextmanager
def opened(path: Path, blocks: int = 16) -> Iterator[Hub]:
    with open_hub(path, local=True) as hub:
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, k STRING, v DOUBLE, n BIGINT) USING push"
            f" OPTIONS (blocks '{blocks}') TIMESTAMP BY at"
        )
        yield hub


def rows(first: int, count: int, seed: int = 1) -> pa.Table:
    """Rows in order of time: two large groups and a rare one; v grows, so that runs differ."""
    rng, number = np.random.default_rng(seed + first), np.arange(first, first + count)
    return pa.table(
        {
            "at": pa.array(START + number * 1000).cast(pa.timestamp("us", tz="UTC")),
            "k": np.where(rng.random(count) < 0.0005, "rare", np.where(rng.random(count) < 0.3, "a", "b")),
            "v": rng.gamma(2.0, 10.0, count) + number / 20_000,
            "n": pa.array(number % 7, mask=number % 11 == 0),
        }
    )


def filled(hub: Hub, runs: int = 4) -> pa.Table:
    tables = [rows(number * (ROWS // runs), ROWS // runs) for number in range(runs)]
    for table in tables:
        hub.push("s", table)
        hub.catch_up()
    return pa.concat_tables(tables)


def ask(hub: Hub, text: str) -> Outcome:
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    return outcome


@pytest.fixture(scope="module")
def asked_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, pa.Table]]:
    with opened(tmp_path_factory.mktemp("past") / "home") as hub:
        yield hub, filled(hub)


WITH_ALL = (
    "SELECT k, COUNT(*) AS c, SUM(v) AS total, AVG(v) AS mean, AVG(n) FILTER (WHERE v > 15) AS high FROM s"
)


def test_all_that_is_asked_exactly_is_exact(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, past = asked_of
    outcome = ask(hub, f"{WITH_ALL} WHERE v > 5 GROUP BY k WITHIN 0 PERCENT")
    assert f"read {ROWS:,} of {ROWS:,} archived rows" in outcome.message
    frame = past.to_pandas()
    frame = frame[frame.v > 5]
    found = {row["k"]: row for row in outcome.table.to_pylist()}
    assert set(found) == {"a", "b", "rare"}
    for k, of in frame.groupby("k"):
        row = found[k]
        assert row["c"] == len(of)
        assert row["total"] == pytest.approx(of.v.sum(), rel=1e-9)
        assert row["mean"] == pytest.approx(of.v.mean(), rel=1e-9)
        assert row["high"] == pytest.approx(of[of.v > 15].n.mean(), rel=1e-9)
        assert [row[f"{name}_error"] for name in ("c", "total", "mean", "high")] == [0, 0, 0, 0]
        assert row["kept"] == 1


@pytest.mark.parametrize("percent", [20, 5, 2])
def test_the_answer_has_the_error_and_fewer_rows_would_not_give_it(
    asked_of: tuple[Hub, pa.Table], percent: int
) -> None:
    hub, past = asked_of
    outcome = ask(hub, f"SELECT SUM(v) AS total, AVG(v) AS mean FROM s WHERE v > 25 WITHIN {percent} PERCENT")
    (row,) = outcome.table.to_pylist()
    v = past["v"].to_numpy()
    v = v[v > 25]
    for name, truth in (("total", v.sum()), ("mean", v.mean())):
        assert 0 < row[f"{name}_error"] <= percent / 100 * row[name]
        assert abs(row[name] - truth) <= 2 * row[f"{name}_error"]
    assert row["kept"] < {20: 0.07, 5: 0.13, 2: 0.5}[percent]
    if percent < 20:  # half as much would have had too great an error
        assert row["total_error"] * 2 > percent / 100 * row["total"]


def test_a_rare_group_makes_it_read_all(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, _ = asked_of
    outcome = ask(hub, "SELECT k, COUNT(*) AS c FROM s GROUP BY k WITHIN 1 PERCENT")
    found = {row["k"]: row for row in outcome.table.to_pylist()}
    assert found["rare"]["kept"] == 1
    assert found["rare"]["c_error"] == 0


@pytest.mark.parametrize("select", ["COUNT(*)", "SUM(v)", "AVG(v)", "PERCENTILE(v, 0.5)", "10 * COUNT(*)"])
def test_what_no_row_of_a_sample_has_is_read_on_for(asked_of: tuple[Hub, pa.Table], select: str) -> None:
    """One row in 120,000: a sample without it shows no variance, which is no certainty."""
    hub, past = asked_of
    v = np.sort(past["v"].to_numpy())
    outcome = ask(hub, f"SELECT {select} AS c FROM s WHERE v > {v[-2]} WITHIN 90 PERCENT")
    expected = {"COUNT(*)": 1, "10 * COUNT(*)": 10}.get(select, v[-1])
    assert outcome.table.to_pylist() == [{"c": pytest.approx(expected), "c_error": 0, "kept": 1}]


def test_a_count_of_every_row_may_have_missed_some(asked_of: tuple[Hub, pa.Table]) -> None:
    (row,) = ask(asked_of[0], "SELECT COUNT(*) AS c FROM s WHERE v > 0 WITHIN 2 PERCENT").table.to_pylist()
    assert row["c"] == ROWS
    assert 40 < row["c_error"] < 200
    assert row["kept"] < 0.1


def test_between_two_instants_other_runs_are_not_read(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, past = asked_of
    outcome = ask(
        hub,
        "SELECT COUNT(*) AS c, AVG(v) AS mean FROM s"
        " BEGIN TIMESTAMP '2023-11-14 22:13:40' END TIMESTAMP '2023-11-14 22:13:44.999' WITHIN 3 PERCENT",
    )
    (row,) = outcome.table.to_pylist()
    assert f"of {ROWS // 4:,} archived rows" in outcome.message
    assert row["c"] == pytest.approx(5000, abs=2 * row["c_error"] + 1e-9)
    assert row["mean"] == pytest.approx(past["v"].to_numpy()[20_000:25_000].mean(), abs=2 * row["mean_error"])
    exact = ask(hub, "SELECT COUNT(*) AS c FROM s BEGIN NOW - INTERVAL 1 SECOND END NOW WITHIN 0 PERCENT")
    assert exact.table.to_pylist() == [{"c": 1001.0, "c_error": 0.0, "kept": 1.0}]


def test_without_rows_there_is_nothing_to_read(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        found = ask(hub, "SELECT COUNT(*) AS c, AVG(v) AS mean FROM s WITHIN 2 PERCENT").table.to_pylist()
        assert found == [{"c": 0.0, "c_error": 0.0, "mean": None, "mean_error": None, "kept": 1.0}]
        assert ask(hub, "SELECT k, COUNT(*) AS c FROM s GROUP BY k WITHIN 2 PERCENT").table.num_rows == 0


def test_an_archive_in_one_piece_is_read_whole_and_late_rows_are_in_no_answer(tmp_path: Path) -> None:
    with opened(tmp_path / "home", blocks=1) as hub:
        hub.push("s", rows(10_000, 20_000))
        hub.catch_up()
        hub.push("s", rows(0, 500))  # late
        hub.catch_up()
        (row,) = ask(hub, "SELECT COUNT(*) AS c FROM s WITHIN 50 PERCENT").table.to_pylist()
        assert row == {"c": 20_000.0, "c_error": 0.0, "kept": 1.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT MAX(v) AS m FROM s WITHIN 2 PERCENT", "for MAX"),
        ("SELECT COUNT(DISTINCT k) AS m FROM s WITHIN 2 PERCENT", "for COUNT DISTINCT"),
        ("SELECT v FROM s WITHIN 2 PERCENT", "WITHIN is not available"),
        ("SELECT abs(SUM(v)) AS m FROM s WITHIN 2 PERCENT", "error of an expression"),
        ("SELECT SUM(DISTINCT n) AS m FROM s WITHIN 2 PERCENT", "for SUM DISTINCT"),
        ("SELECT STDDEV(v) AS m FROM s WITHIN 2 PERCENT", "for STDDEV_SAMP"),
        ("SELECT PERCENTILE(v, 1.0) AS m FROM s WITHIN 2 PERCENT", "PERCENTILE 0 or 1"),
        ("SELECT DISTINCT COUNT(*) AS m FROM s WITHIN 2 PERCENT", "DISTINCT"),
        (
            "SELECT COUNT(*) AS m FROM (SELECT k FROM s GROUP BY k) AS q WITHIN 2 PERCENT",
            "not those of its blocks",
        ),
        ("SELECT COUNT(*) AS m FROM s IN 0 SECONDS", "longer than nothing"),
        ("SELECT COUNT(*) AS m FROM s WITHIN 2 PERCENT IN 5", "unit|seconds|length|SECONDS"),
        (
            "SELECT COUNT(*) AS m FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WITHIN 2 PERCENT",
            "window that slides",
        ),
        ("SELECT COUNT(*) AS m FROM s [RANGE 1 MINUTE] WITHIN 2 PERCENT", "window of its own"),
        ("SELECT COUNT(*) AS m FROM s LATE WITHIN 2 PERCENT", "late"),
        ("SELECT k, COUNT(*) AS m FROM s GROUP BY k HAVING COUNT(*) > 1 WITHIN 2 PERCENT", "HAVING"),
        ("SELECT COUNT(*) AS m FROM s x, s y WHERE x.k = y.k WITHIN 2 PERCENT", "drawn by the key"),
        ("SELECT COUNT(*) AS m FROM s WITHIN 200 PERCENT", "at most 100"),
        ("SELECT COUNT(*) AS m FROM s WITHIN two PERCENT", "a number of percent"),
        ("SELECT COUNT(*) AS m FROM s", "not a statement of its own"),
    ],
)
def test_what_a_part_of_the_rows_does_not_answer_is_refused(
    asked_of: tuple[Hub, pa.Table], text: str, reason: str
) -> None:
    with pytest.raises(UserError, match=reason) as refused:
        asked_of[0].execute(text)
    assert refused.value.span is not None
    assert refused.value.remedy or "IN 5" in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT COUNT(*) AS m FROM a, b WHERE a.g = b.g", "drawn by the key"),
        ("SELECT COUNT(*) AS m FROM a, b WHERE a.k = b.g", "drawn by the key"),
        ("SELECT COUNT(*) AS m FROM a, b WHERE CAST(a.k AS INT) = CAST(b.k AS INT)", "drawn by the key"),
        ("SELECT COUNT(*) AS m FROM a, c WHERE a.k = c.k", "drawn by the key"),
        ("SELECT COUNT(*) AS m FROM a LEFT JOIN b ON a.k = b.k", "with a join"),
        ("SELECT COUNT(*) AS m FROM a, b, b AS d WHERE a.k = b.k AND b.k = d.k", "more than two"),
        ("SELECT COUNT(DISTINCT g) AS m FROM a", "for COUNT DISTINCT"),
        ("SELECT PERCENTILE(g, 0.5) AS m FROM a", "over blocks by key"),
        ("SELECT COUNT(*) AS m FROM (SELECT g FROM a GROUP BY g) AS q", "not those of its blocks"),
        (
            "SELECT COUNT(*) AS m FROM (SELECT CAST(k AS INT) AS i FROM a GROUP BY CAST(k AS INT)) AS q",
            "not those of its blocks",
        ),
        ("SELECT MAX(n) AS m FROM (SELECT COUNT(*) AS n FROM a GROUP BY k) AS q", "for MAX"),
        ("SELECT COUNT(*) AS m FROM (SELECT DISTINCT k FROM a) AS q", "DISTINCT"),
    ],
)
def test_what_a_sample_of_keys_does_not_answer_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        for name, options in (
            ("a", "blocks '4', blocksBy 'k'"),
            ("b", "blocks '4', blocksBy 'k'"),
            ("c", "blocks '4'"),
        ):
            hub.execute(
                f"CREATE STREAM {name} (at TIMESTAMP, k STRING, g BIGINT) USING push OPTIONS ({options}) TIMESTAMP BY at"
            )
        with pytest.raises(UserError, match=reason) as refused:
            hub.execute(f"{text} WITHIN 5 PERCENT")
        assert refused.value.remedy


def test_a_stream_without_a_copy_has_no_past_to_ask(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, v INT) USING push OPTIONS (archive 'none') TIMESTAMP BY at"
        )
        with pytest.raises(UserError, match="keeps no copy"):
            hub.execute("SELECT COUNT(*) AS c FROM s WITHIN 2 PERCENT")


def test_within_after_a_function_of_the_last_clause_is_the_questions(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, _ = asked_of
    text = "SELECT upper(k) AS u, COUNT(*) AS c FROM s WHERE k <> 'rare' GROUP BY upper(k) WITHIN 5 PERCENT"
    assert sorted(ask(hub, text).table["u"].to_pylist()) == ["A", "B"]


def test_a_ratio_and_a_percentile_have_errors_that_hold(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, past = asked_of
    outcome = ask(
        hub,
        "SELECT SUM(v) / COUNT(n) AS ratio, PERCENTILE(v, 0.9) AS high FROM s WHERE v > 5 WITHIN 3 PERCENT",
    )
    (row,) = outcome.table.to_pylist()
    frame = past.to_pandas()
    frame = frame[frame.v > 5]
    for name, truth in (("ratio", frame.v.sum() / frame.n.count()), ("high", frame.v.quantile(0.9))):
        assert 0 < row[f"{name}_error"] <= 0.03 * row[name]
        assert abs(row[name] - truth) <= 2 * row[f"{name}_error"]
    assert row["kept"] < 0.3
    assert "error at most" in outcome.message


class Slow:
    """A machine on which a row takes so long to read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds_per_row: float) -> None:
        self.now, self.rows, read = 100.0, 0, RunFile.read

        def slowly(file: RunFile, *args: object) -> pa.Table:
            table = read(file, *args)  # type: ignore[arg-type]
            self.rows += table.num_rows
            self.now += seconds_per_row * table.num_rows
            return table

        monkeypatch.setattr(RunFile, "read", slowly)

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("within", "microseconds"), [(0, 10), (0, 20), (5, 10)])
def test_what_fits_the_time_is_read_and_no_more_than_the_error_needs(
    asked_of: tuple[Hub, pa.Table], monkeypatch: pytest.MonkeyPatch, within: int, microseconds: int
) -> None:
    """Half a second is for 50,000 rows, or on a machine with half of the speed for 25,000."""
    home = asked_of[0].home
    clock = Slow(monkeypatch, microseconds * 1e-6)
    query = bind_text(home.catalog, "SELECT SUM(v) AS total FROM s WHERE v > 25")
    accepted = Accepted(Fraction(within, 100), SECOND // 2)
    found = asked(home, home.latest(), query, accepted, clock)
    (row,) = found.table.to_pylist()
    assert found.read == clock.rows
    assert found.error == row["total_error"] / row["total"]
    if within:
        assert clock.now - 100 < 0.4
        assert 0 < found.error <= 0.05
    else:
        assert 0.25 < clock.now - 100 <= 0.55
        assert found.read < ROWS
        assert f"error at most {100 * found.error:.2g} %" in str(found)


def test_when_the_time_is_over_the_runs_that_follow_keep_what_was_read_of_them(
    asked_of: tuple[Hub, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine slows down in the middle of a step: runs of different shares are strata of one answer."""
    hub, past = asked_of
    home = hub.home
    question = question_of(bind_text(home.catalog, "SELECT SUM(v) AS total FROM s"), home.catalog.stream)
    sample = answer._sample(home, home.latest(), question)
    sample.extend(0.125, lambda: False)
    calls = iter([False, False, True])
    sample.extend(0.5, lambda: next(calls))
    (source,) = sample.sources
    assert [run.prefixes.shares[run.done] for run in source.runs] == [0.5, 0.5, 0.125, 0.125]
    (row,) = answer._asked(question, sample, *sample.answer()).table.to_pylist()
    assert abs(row["total"] - past["v"].to_numpy().sum()) <= 2 * row["total_error"]


def test_a_missing_group_is_announced_with_its_greatest_size(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, _ = asked_of
    outcome = ask(hub, "SELECT k, COUNT(*) AS c FROM s WHERE k <> 'rare' GROUP BY k WITHIN 20 PERCENT")
    assert "a group that is missing has at most " in outcome.message
    assert [row["k"] for row in outcome.table.to_pylist()] == ["a", "b"]
    assert "missing" not in ask(hub, "SELECT COUNT(*) AS c FROM s WHERE v > 3 WITHIN 20 PERCENT").message


def test_rows_that_fail_are_left_out_and_counted(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, past = asked_of
    outcome = ask(hub, "SELECT SUM(1 / n) AS total FROM s WITHIN 0 PERCENT")
    n = past["n"].to_pandas().dropna()
    assert f"{(n == 0).sum():,} rows on which an expression failed are left out" in outcome.message
    assert outcome.table["total"][0].as_py() == pytest.approx((1 / n[n != 0]).sum(), rel=1e-9)


def test_explain_shows_what_a_question_would_read(asked_of: tuple[Hub, pa.Table]) -> None:
    hub, _ = asked_of
    (outcome,) = hub.execute("EXPLAIN SELECT COUNT(*) AS c FROM s WITHIN 2 PERCENT")
    assert outcome.table is not None
    lines = outcome.table["plan"].to_pylist()
    assert lines[0] == "question over the archive: historical, answered once"
    assert lines[1] == "  sample of rows"
    assert lines[2].startswith(f"  reads s: 4 runs, {ROWS:,} rows; samples from ")


@pytest.mark.parametrize(
    ("select", "name", "column"),
    [
        ("COUNT(*) AS kept", "kept", 8),
        ("SUM(v) AS x, AVG(v) AS X_Error", "X_Error", 21),
        ("SUM(v) AS x_error, AVG(v) AS x", "x_error", 8),
    ],
)
@pytest.mark.parametrize("explain", ["", "EXPLAIN "])
def test_a_column_with_the_name_of_one_that_the_answer_has_is_refused_at_its_place(
    asked_of: tuple[Hub, pa.Table], select: str, name: str, column: int, explain: str
) -> None:
    with pytest.raises(UserError) as refused:
        asked_of[0].execute(f"{explain}SELECT {select} FROM s WITHIN 2 PERCENT")
    assert refused.value.line_and_column == (1, column + len(explain))
    assert f"the column '{name}' has the name of " in refused.value.message
    assert "AS name" in str(refused.value)


def test_of_one_row_of_a_group_the_error_is_not_known_and_more_is_read(tmp_path: Path) -> None:
    """Each of 400 groups has 20 rows: of the first sample most groups have some rows, several only one."""
    with opened(tmp_path / "home") as hub:
        table = rows(0, 8000)
        keys = np.array([f"k{number % 400}" for number in range(8000)])
        hub.push("s", table.set_column(1, "k", pa.array(keys)))
        hub.catch_up()
        home = hub.home
        query = bind_text(home.catalog, "SELECT k, AVG(v) AS mean, COUNT(*) AS c FROM s GROUP BY k")
        question = question_of(query, home.catalog.stream)
        sample = answer._sample(home, home.latest(), question)
        sample.extend(0.0625, lambda: False)
        found = answer._asked(question, sample, *sample.answer()).table.to_pylist()
        alone = [row for row in found if row["c"] < 2 / sample.share - 1e-6]
        assert len(alone) > 20
        assert {row["mean_error"] for row in alone} == {np.inf}
        assert all(0 < row["mean_error"] < np.inf for row in found if row not in alone)
        outcome = ask(hub, "SELECT k, AVG(v) AS mean FROM s GROUP BY k WITHIN 90 PERCENT")
        assert all(row["mean_error"] <= 0.9 * row["mean"] for row in outcome.table.to_pylist())
        assert outcome.table["kept"][0].as_py() > 0.5


def test_what_is_no_number_is_the_answer_and_not_null(tmp_path: Path) -> None:
    """A sum with NaN is NaN whatever the other rows have, one with an infinity may still become NaN; without values it is NULL."""
    nan, inf = float("nan"), float("inf")
    with opened(tmp_path / "home", 4) as hub:
        table = rows(0, 4000)
        v = table["v"].to_numpy().copy()
        k = np.array(["plain", "nan", "inf", "null"])[np.arange(4000) % 4]
        v[k == "nan"] = np.where(np.arange(1000) % 5 == 0, nan, v[k == "nan"])
        v[k == "inf"] = np.where(np.arange(1000) % 5 == 0, inf, v[k == "inf"])
        columns = {"at": table["at"], "k": k, "v": pa.array(v, mask=k == "null"), "n": table["n"]}
        hub.push("s", pa.table(columns))
        hub.catch_up()
        text = "SELECT k, SUM(v) AS total, AVG(v) AS mean, PERCENTILE(v, 0.95) AS high FROM s GROUP BY k"
        exact = {row["k"]: row for row in ask(hub, f"{text} WITHIN 0 PERCENT").table.to_pylist()}
        for name in ("total", "mean", "high"):
            assert np.isnan(exact["nan"][name])
            assert exact["inf"][name] == inf
            assert exact["null"][name] is None
            assert 0 < exact["plain"][name] < inf
            assert [exact[group][f"{name}_error"] for group in ("nan", "inf", "plain")] == [0, 0, 0]
            assert exact["null"][f"{name}_error"] is None
        home = hub.home
        question = question_of(bind_text(home.catalog, text), home.catalog.stream)
        sample = answer._sample(home, home.latest(), question)
        sample.extend(0.25, lambda: False)
        part = {row["k"]: row for row in answer._asked(question, sample, *sample.answer()).table.to_pylist()}
        for name in ("total", "mean"):
            assert np.isnan(part["nan"][name])
            assert part["nan"][f"{name}_error"] == 0
            assert (part["inf"][name], part["inf"][f"{name}_error"]) == (inf, inf)
            assert (part["null"][name], part["null"][f"{name}_error"]) == (None, inf)
            assert 0 < part["plain"][f"{name}_error"] < part["plain"][name]


def test_a_question_about_a_part_of_the_time_reads_few_parts_of_a_long_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of the archive is searched: the files of it that are read grow with the logarithm of its length."""
    monkeypatch.setattr(radix_list, "FANOUT", 4)
    monkeypatch.setattr(joined_runs, "LARGE", 0)
    read: dict[int, int] = {}
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS (blocks '4') TIMESTAMP BY at SLACK INTERVAL 30 SECONDS"
        )
        for number in range(256):
            at = 10 * number + (25 if number % 7 == 0 else 0)
            hub.push("s", [{"at": dt.datetime.fromtimestamp(1_700_000_000 + at, dt.UTC), "v": number}])
            hub.catch_up()
            if number + 1 in (64, 256):
                begin, end = (
                    dt.datetime.fromtimestamp(1_700_000_000 + 10 * number - back, dt.UTC).strftime("%F %T")
                    for back in (300, 200)
                )
                with disk_calls() as calls:
                    (outcome,) = hub.execute(
                        f"SELECT COUNT(*) AS n, SUM(v) AS total FROM s BEGIN TIMESTAMP '{begin}' END TIMESTAMP '{end}'"
                        " WITHIN 0 PERCENT"
                    )
                times = {one: 10 * one + (25 if one % 7 == 0 else 0) for one in range(number + 1)}
                asked = [one for one, at in times.items() if 10 * number - 300 <= at <= 10 * number - 200]
                assert outcome.table.to_pylist()[0]["n"] == len(asked)
                assert outcome.table.to_pylist()[0]["total"] == sum(asked)
                read[number + 1] = calls["read"]
    assert read[256] <= read[64] + 12, read
    assert read[256] < 50, read

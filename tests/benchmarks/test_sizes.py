"""Contenders have the same rows, or parts of them whose costs are separated; no time is extrapolated over more than tenfold."""

from __future__ import annotations

import pytest

from benchmarks import contenders, runs
from benchmarks.contenders import BYTEWAX, DUCKDB, FARTHEST, FLINK, HEADRACE, POLARS, SPARK_PANES, Contender
from benchmarks.costs import costs
from benchmarks.protocol import SLIDES
from benchmarks.runs import Measurement, in_turn
from benchmarks.suite import queries, windows
from benchmarks.thresholds import Ratio

EVERYONE = [each for each in vars(contenders).values() if isinstance(each, Contender)]
WANTED = 20_000_000


def test_everyone_has_all_rows_or_sizes_from_which_all_rows_are_near_enough() -> None:
    assert len(EVERYONE) > 10
    whole = 0
    for who in EVERYONE:
        for task in SLIDES:
            sizes = who.sizes(task, WANTED)
            whole += sizes == (WANTED,)
            assert sizes == (WANTED,) or len(set(sizes)) > 1
            assert max(sizes) * FARTHEST >= WANTED
    assert whole > len(EVERYONE)


def test_the_ways_to_run_many_queries_have_the_same_rows_by_the_same_rule() -> None:
    for entry in (*queries.OURS, *queries.RIVALS):
        sizes = contenders.sizes(entry.parts, queries.ROWS)
        assert sizes == (queries.ROWS,) or len(set(sizes)) > 1
        assert max(sizes) * FARTHEST >= queries.ROWS


@pytest.mark.parametrize(
    ("parts", "said"), [((0.02, 0.05), "too far to extrapolate"), ((0.5,), "two sizes"), ((0.09,), "too far")]
)
def test_parts_that_would_make_a_guess_are_refused(parts: tuple[float, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Contender("slow", "none", "csv", "no limit", parts={"tumbling": parts})
    with pytest.raises(ValueError, match=said):
        queries.Entry("slow", "one by one", 10, parts)


def test_a_fixed_cost_and_a_cost_per_row_are_distinguished() -> None:
    cost = costs([(1000, 3.0), (1000, 3.2), (1000, 90.0), (2000, 4.2), (4000, 6.2)])
    assert cost.fixed == pytest.approx(2.2, rel=0.01)
    assert cost.per_row == pytest.approx(0.001, rel=0.01)
    assert cost.seconds(40_000) == pytest.approx(42.2, rel=0.01)
    with pytest.raises(ValueError, match="at most 40,000 rows"):
        cost.seconds(40_001)


@pytest.mark.parametrize("measured", [[(1000, 1.0), (2000, 4.0)], [(1000, 4.0), (2000, 1.0)]])
def test_noise_makes_no_cost_negative(measured: list[tuple[int, float]]) -> None:
    cost = costs(measured)
    assert min(cost.fixed, cost.per_row) == 0.0
    assert max(cost.fixed, cost.per_row) > 0


def test_a_slow_contender_s_rate_is_that_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runs, "run", lambda who, task, rows: Measurement(rows, 5.0 + rows / 1000, 1.0, 100.0, 3)
    )
    ours, slow = in_turn([(HEADRACE, "sliding"), (BYTEWAX, "sliding")], 100_000, 2)
    assert ours.sizes == [100_000]
    assert slow.sizes == [2500, 5000, 10_000]
    assert slow.seconds == pytest.approx(ours.seconds)
    assert slow.rate == pytest.approx(ours.rate)
    assert slow.as_dict()["extrapolated"] == "10x"
    assert slow.as_dict()["fixed_seconds"] == pytest.approx(5.0)
    assert ours.as_dict().keys() == slow.as_dict().keys()


def test_a_size_without_a_right_answer_is_not_made_up_for_by_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(who: Contender, task: str, rows: int) -> Measurement:
        if rows == 10_000:
            raise runs.expected.WrongAnswer("expected 3 result rows, found 2")
        return Measurement(rows, 1.0, 1.0, 100.0, 3)

    monkeypatch.setattr(runs, "run", run)
    assert in_turn([(BYTEWAX, "sliding")], 100_000, 2) == []


def test_a_peer_that_cannot_be_run_here_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("HEADRACE_BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path))
    here, absent = runs.present([(HEADRACE, "tumbling"), (FLINK, "tumbling")])
    assert here == [(HEADRACE, "tumbling")]
    assert absent == [
        "flink is left out: it is built from Java sources, and the PATH has no mvn and no javac."
    ]


@pytest.mark.parametrize("task", [windows.tumbling, windows.sliding])
def test_batch_yardsticks_experts_plans_and_memory_settings_are_in_the_page(task, monkeypatch) -> None:
    monkeypatch.setattr(runs, "run", lambda who, task, rows: Measurement(rows, 2.0, 1.0, 100.0, 3))
    monkeypatch.setattr(windows, "present", lambda entries: (list(entries), ["flink is left out: why."]))
    monkeypatch.setattr(windows, "versions_of", lambda peer: {})
    page = task(WANTED, 1)
    shown = {row["contender"] for row in page.table}
    assert {DUCKDB.name, POLARS.name, FLINK.name} <= shown
    assert SPARK_PANES.name in shown or task is windows.tumbling
    notes = " ".join(page.notes)
    assert all(f"{name}: " in notes for name in shown)
    assert "flink is left out: why." in notes


def test_the_page_of_many_queries_has_every_way_and_compares_equal_numbers_of_queries(monkeypatch) -> None:
    def run(entry: queries.Entry, rows: int) -> dict[str, float]:
        took = {"seconds": 2.0 + rows * entry.queries / 1e6, "one_more_ms": 2.0, "register_seconds": 5.0}
        return {**took, "rows": rows, "result_rows": entry.queries, "peak_pss_mb": 100.0}

    grown = queries._Growth(Ratio("memory", 1.0, 1.1, at_most=True), "Memory.")
    monkeypatch.setattr(queries, "_run", run)
    monkeypatch.setattr(queries, "_memory", lambda rows: grown)
    monkeypatch.setattr(queries, "_present", lambda entries: (list(entries), ["flink is left out: why."]))
    monkeypatch.setattr(queries, "versions_of", lambda peer: {})
    page = queries.queries(WANTED, 2)
    assert len(page.table) == len(queries.OURS) + len(queries.RIVALS)
    assert {tuple(row) for row in page.table} == {tuple(page.table[0])}
    same = [ratio for ratio in page.ratios if ratio.what.startswith("10 queries to")]
    assert len(same) == len(queries.QUERY_BY_QUERY)
    assert all(ratio.value == pytest.approx(1.0) for ratio in same)
    assert page.chart == page.picture
    assert "flink is left out: why." in page.notes

"""A wrong answer of a peer does not count and is reported; one of Headrace ends the measurement."""

from __future__ import annotations

import pytest

from benchmarks import runs
from benchmarks.contenders import FLINK, HEADRACE, SPARK, Contender
from benchmarks.expected import WrongAnswer
from benchmarks.runs import Measurement, in_turn
from benchmarks.thresholds import best_rate, rate_of

ENTRIES = [(HEADRACE, "sliding"), (SPARK, "sliding"), (FLINK, "sliding")]


def always_wrong(monkeypatch: pytest.MonkeyPatch, *wrong: Contender) -> None:
    def run(who: Contender, task: str, rows: int) -> Measurement:
        if who in wrong:
            raise WrongAnswer("expected 3 result rows, found 2")
        return Measurement(rows, 2.0, 1.0, 100.0, 3)

    monkeypatch.setattr(runs, "run", run)


def test_a_peer_without_a_right_answer_has_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    always_wrong(monkeypatch, FLINK)
    series = in_turn(ENTRIES, 1000, 2)
    assert [one.contender for one in series] == [HEADRACE.name, SPARK.name]
    assert best_rate(series, (SPARK.name, FLINK.name), "sliding") == 500
    with pytest.raises(WrongAnswer, match="right answer of flink at sliding"):
        rate_of(series, FLINK.name, "sliding")


def test_our_own_wrong_answer_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    always_wrong(monkeypatch, HEADRACE)
    with pytest.raises(WrongAnswer, match="found 2"):
        in_turn(ENTRIES, 1000, 2)


def test_who_is_named_twice_runs_twice_a_round_and_has_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    always_wrong(monkeypatch)
    ours, theirs = in_turn([ENTRIES[0], ENTRIES[0], ENTRIES[1]], 1000, 2)
    assert (len(ours.runs), len(theirs.runs)) == (4, 2)

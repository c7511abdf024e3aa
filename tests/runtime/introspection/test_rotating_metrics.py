"""A line of `epochs.jsonl` is as long for ten thousand queries as for a thousand, and nothing that was measured is left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.observation import DelayObservation, EpochObservation, OperatorObservation
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.introspection.explain import explained
from headrace.runtime.introspection.rotating_metrics import (
    A_SECOND,
    MOST,
    RotatingMetrics,
    lines_per_rotation,
    of_operators,
)
from headrace.runtime.messages import operator_observations
from headrace.time import SECOND
from tests.runtime.rig import Row


def epoch(number: int, names: Sequence[str]) -> EpochObservation:
    """Every operator with figures of its own: its number, and that of the epoch."""
    observed = {
        name: OperatorObservation(number, int(name[1:]), state_rows=7, results=number * int(name[1:]))
        for name in names
    }
    return EpochObservation(number, "epoch", operators=observed)


def names(count: int) -> list[str]:
    return [f"q{n}" for n in range(count)]


def results(lines: Sequence[dict[str, Any]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update({name: metrics["results"] for name, metrics in line["operators"].items()})
    return counts


def test_few_operators_are_all_in_every_line() -> None:
    rotating = RotatingMetrics(4)
    for number in range(3):
        assert rotating.line(epoch(number, names(4))) == epoch(number, names(4)).as_dict()


def test_delays_of_joins_are_in_the_lines_of_these_joins() -> None:
    rotating = RotatingMetrics(2)
    observed = {name: DelayObservation(1, (0,) * 4, rows=(1, 1)) for name in names(5)}
    lines: list[Any] = [
        rotating.line(replace(epoch(number, names(5)), delays=observed)) for number in range(3)
    ]
    assert [line["delays"].keys() for line in lines] == [line["operators"].keys() for line in lines]
    assert [len(line["delays"]) for line in lines] == [5, 2, 2]
    (one,) = {json.dumps(fields) for line in lines for fields in line["delays"].values()}
    assert DelayObservation.of(json.loads(one)) == DelayObservation(1, (0,) * 4, rows=(1, 1))


def test_of_many_each_has_its_turn_and_the_sums_are_what_was_measured() -> None:
    rotating, count, epochs = RotatingMetrics(4), 20, 41
    lines: list[Any] = [rotating.line(epoch(number, names(count))) for number in range(epochs)]
    assert len(lines[0]["operators"]) == count  # they are new
    assert [len(line["operators"]) for line in lines[1:]] == [4] * (epochs - 1)
    assert {line["omitted_operators"] for line in lines[1:]} == {16}
    assert {counters.get("epochs", 1) for line in lines[6:] for counters in line["operators"].values()} == {5}
    for name, total in results(lines).items():  # each was last reported in the last five lines
        last = max(index for index, line in enumerate(lines) if name in line["operators"])
        assert last >= epochs - lines_per_rotation(count, 4)
        assert total == int(name[1:]) * sum(range(last + 1))


@given(
    st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.sampled_from((1, 100)),
)
def test_the_lines_of_an_operator_add_up_to_the_epochs_that_measured_it(
    drawn: list[set[int]], most: int, many: int
) -> None:
    """Operators are measured in any epochs; thirty more without any are time enough to log all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_observations, "MANY", many)
        rotating = RotatingMetrics(most)
        seen = [epoch(number, [f"q{n}" for n in sorted(of)]) for number, of in enumerate(drawn, 1)]
        lines: list[Any] = [rotating.line(one) for one in seen]
        assert len(rotating._epochs) <= len(drawn)
        lines += [rotating.line(epoch(0, ())) for _ in range(30)]
        assert not rotating._epochs, "an epoch is kept no longer than one of its operators waits"
    measured = Counter[str]()
    epochs = Counter[str]()
    for one in seen:
        measured.update({name: metrics.results for name, metrics in one.operators.items()})
        epochs.update(one.operators.keys())
    assert results(lines) == measured
    for name, count in epochs.items():
        logged = [line["operators"][name] for line in lines if name in line["operators"]]
        assert sum(metrics.get("epochs", 1) for metrics in logged) == count


def test_lines_of_frequent_epochs_get_shorter_and_their_sums_stay_whole() -> None:
    """A hundred operators, fifty epochs a second, for a minute; then one epoch a second."""
    rotating, count = RotatingMetrics(), 100
    often: list[Any] = [rotating.line(epoch(1, names(count)), number / 50) for number in range(3000)]
    rarely: list[Any] = [rotating.line(epoch(1, names(count)), 60 + number) for number in range(1, 5)]
    lengths = [len(line["operators"]) for line in often]
    assert lengths[:100] == [count] * 100, "short runs have all operators in each line"
    assert sum(lengths[1500:]) == pytest.approx(30 * A_SECOND, rel=0.1)
    assert [len(line["operators"]) for line in rarely] == [count] * 4
    assert results([*often, *rarely]) == {name: 3004 * int(name[1:]) for name in names(count)}


def test_who_is_new_is_reported_at_once_and_who_is_gone_when_its_turn_comes() -> None:
    rotating = RotatingMetrics(2)
    rotating.line(epoch(1, names(6)))
    rotating.line(epoch(2, names(6)))
    lines: list[Any] = [rotating.line(epoch(number, ["q3", "q4", "q5", "q7"])) for number in (3, 4, 5)]
    assert "q7" in lines[0]["operators"]
    gone = [line["operators"]["q2"] for line in lines if "q2" in line["operators"]]
    assert [(counters["results"], counters.get("epochs", 1)) for counters in gone] == [(2 * 2, 1)]


def test_a_reader_sees_every_operator_as_if_each_line_had_all() -> None:
    rotating, count = RotatingMetrics(4), 20
    lines: list[Any] = [rotating.line(epoch(10, names(count))) for _ in range(30)]
    for some_lines in (lines[:1], lines[:3], lines[-5:], lines[-12:]):
        observed = of_operators(some_lines, names(count))
        assert len(observed) == count
        for name, (observation, state_rows) in observed.items():
            assert (observation.rows_in, observation.results) == (
                10 * len(some_lines),
                10 * int(name[1:]) * len(some_lines),
            )
            assert state_rows == 7
    assert of_operators(lines, ["q3"]).keys() == {"q3"}


def test_an_operator_that_came_later_is_not_counted_for_epochs_before() -> None:
    rotating = RotatingMetrics(2)
    lines: list[Any] = [rotating.line(epoch(1, names(6))) for _ in range(4)]
    lines += [rotating.line(epoch(1, [*names(6), "q9"])) for _ in range(2)]
    assert of_operators(lines, ["q9"])["q9"][0].rows_in == 2
    assert of_operators(lines, ["q1"])["q1"][0].rows_in == 6


def test_explain_all_attributes_all_costs_when_lines_report_in_turn(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        alert = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE v > {} GROUP BY k"
        hub.register_many({f"a{n}": alert.format(n) for n in range(20)})
        hub.log_of_epochs._rotation.most = 3
        for minute in range(9):
            rows: list[Row] = [
                {"k": "a", "v": second % 30, "at": (60 * minute + second) * SECOND} for second in range(60)
            ]
            hub.push("s", rows)
            hub.loop.drain()
        report = explained(hub.home)
        assert report.seen is not None
        assert len(report.costs) == 20
        total = sum(cost.nanoseconds for cost in report.costs)
        assert total == pytest.approx(report.seen.nanoseconds / report.seen.epochs)
        line = last_lines(hub.path, 1)[0]
        assert len(line["operators"]) == 3
        status = hub.status()["last_epoch"]["operators"]
        assert len(status) == 20  # the process that runs reports all
        shown = {cost.name: cost.seen.selectivity for cost in report.costs}
        assert shown["a0"] == pytest.approx(29 / 30)
        assert shown["a19"] == pytest.approx(10 / 30)


def test_a_line_about_ten_thousand_queries_is_no_longer_than_one_about_a_thousand() -> None:
    lengths = []
    for count in (1000, 10_000):
        rotating = RotatingMetrics()
        for number in range(2):
            line = rotating.line(epoch(100 + number, names(count)))
        lengths.append(len(json.dumps(line)))
    assert lengths[1] < 1.1 * lengths[0]
    assert lengths[1] < 250 * MOST

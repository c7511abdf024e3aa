"""What is read of a hub after a flood: its archive, also where runs are joined in one file, and the seconds of the flood with their delays and shares."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import headrace as hr
from benchmarks.floods import spark_flood
from benchmarks.floods.flood_source import Source
from benchmarks.floods.flooded_queries import QUERIES, STREAM
from benchmarks.floods.spark_flood import Flooded, Moment, Published, archived, moments_of


def test_the_archive_is_the_rows_pushed_also_where_runs_are_joined(tmp_path: Path) -> None:
    with hr.open(tmp_path, local=True) as hub:
        hub.execute(STREAM)
        hub.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND]")
        source = Source(hub)
        for _ in range(140):
            source.push(3, 0.0)
            hub.catch_up()
        for _ in range(200):
            if any(entry.get("within") for entry in spark_flood.entries_of(hub)):
                break
            time.sleep(0.02)
            source.push(3, 0.0)
            hub.catch_up()
        assert any(entry.get("within") for entry in spark_flood.entries_of(hub))
        assert archived(hub) == source.checksum
        source.checksum.rows -= 1
        assert archived(hub) != source.checksum


def test_each_batch_is_answered_by_the_epoch_with_its_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four batches one a second, the first two are answered by one epoch, the third by another from an eighth of the alerts' rows, the last one by none."""
    with hr.open(tmp_path, local=True) as hub:
        hub.execute(STREAM)
        for name, query in QUERIES.items():
            hub.execute(f"CREATE QUERY {name} AS {query.text} {query.stated}")
        operator = hub.catalog.require_query("alert0").operator_id
        entries = [{"epoch": 7, "rows": 30}, {"epoch": 9, "rows": 10, "shares": {operator: [0.125]}}]
        monkeypatch.setattr(spark_flood, "entries_of", lambda hub: entries)
        monkeypatch.setattr(spark_flood.time, "perf_counter", lambda: 104.5)
        published = Published([7, 9], [104.0, 105.5], [30, 10])
        due = [(99.0, 10), (100.0, 10), (101.0, 10), (102.0, 10), (103.0, 10)]
        moments = moments_of(hub, due, 1, published)
    assert [moment.at for moment in moments] == [0, 1, 2, 3]
    assert [moment.delay for moment in moments[:3]] == [4.0, 3.0, 3.5]
    assert moments[3].delay == 1.5, "until now"
    assert moments[1].utility == len(QUERIES)
    alert = QUERIES["alert0"]
    assert moments[2].utility == pytest.approx(
        sum(query.utility(3.5, (1.0,)) for query in QUERIES.values())
        - alert.utility(3.5, (1.0,))
        + alert.utility(3.5, (0.125,))
    )
    assert moments[2].kept["alerts"] == pytest.approx((3 + 0.125) / 4)
    assert (moments[3].utility, moments[3].kept["reports"]) == (0, 0)


def test_the_utility_is_that_of_the_first_seconds(tmp_path: Path) -> None:
    moments = [Moment(second + 0.0, 1.0 + second, 10.0 - second, {}) for second in range(4)]
    done = Flooded(1.0, 5.0, None, 0, moments, None)  # type: ignore[arg-type]
    assert (done.utility(2.0), done.utility(100.0), done.greatest_delay) == (9.5, 8.5, 4.0)

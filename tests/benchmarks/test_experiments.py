"""The experiments run at a small size: every answer is compared, and what does not depend on the machine holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import panes_runner
from benchmarks.suite.joins import joins
from benchmarks.suite.joins_unions import late_joins, skewed_joins
from benchmarks.suite.skew import Union, state_rows
from benchmarks.suite.slack import band, blocks
from benchmarks.suite.window_id import buffering, panes_alone


@pytest.mark.parametrize(
    ("experiment", "rows"), [(band, 20_000), (blocks, 10_000), (skewed_joins, 20_000), (late_joins, 20_000)]
)
def test_bars_of_counted_experiments_hold_at_a_small_size(experiment, rows: int) -> None:
    page = experiment(rows, 1)
    assert not [str(ratio) for ratio in page.ratios if not ratio.passed]
    assert page.picture.drawn


@pytest.mark.parametrize(("experiment", "rows"), [(buffering, 16_000), (joins, 20_000)])
def test_timed_experiments_find_equal_answers_at_a_small_size(experiment, rows: int) -> None:
    page = experiment(rows, 1)
    assert page.table
    assert all(ratio.value > 0 for ratio in page.ratios)


def test_panes_and_copies_find_equal_answers_at_a_small_size() -> None:
    table, ratios = panes_alone(2000, 1)
    assert table
    assert all(ratio.value > 0 for ratio in ratios)


@pytest.mark.spark
def test_the_pipeline_over_panes_answers_as_spark_s_window(spark: SparkSession, tmp_path: Path) -> None:
    rows = panes_runner.write(tmp_path / "rows", 130_000)
    assert min(panes_runner.timed(spark, tmp_path / "run", rows, 5)) > 0


def test_our_state_hardly_grows_where_sources_come_apart_and_a_merge_grows_with_them() -> None:
    together, apart = (state_rows(Union((30, 30), (0, late), 100, 20, 20, 40)) for late in (0, 30))
    assert apart.ours[0] <= 2.5 * together.ours[0]
    assert apart.in_order[0] - together.in_order[0] >= 25 * 30

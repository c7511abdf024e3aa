"""Every plan answers as numpy does at a small size, also the ones that few people write; the default path is what a reader types."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import data, expected, queries_data
from benchmarks.contenders import DUCKDB
from benchmarks.peers.spark import queries as spark_queries
from benchmarks.peers.spark import runner as spark_runner
from benchmarks.protocol import SLIDES, Request
from benchmarks.runs import run
from benchmarks.suite import default, queries

ROWS = 30_000


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BENCH_DATA", str(tmp_path / "data"))


@pytest.fixture
def duckdb_of_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB is installed for other tests; no environment of its own is made."""
    for module in ("benchmarks.runs", "benchmarks.suite.queries", "benchmarks.suite.default"):
        monkeypatch.setattr(f"{module}.python_of", lambda peer: Path(sys.executable))


@pytest.mark.parametrize("task", sorted(SLIDES))
@pytest.mark.usefixtures("duckdb_of_this_python")
def test_duckdb_answers_windows_from_panes(task: str) -> None:
    assert run(DUCKDB, task, ROWS).result_rows > 900


@pytest.mark.parametrize("way", ["conditional", "join"])
@pytest.mark.usefixtures("duckdb_of_this_python")
def test_duckdb_answers_many_queries_in_one_pass(way: str) -> None:
    assert queries._run(queries.Entry("duckdb", way, 20), ROWS)["result_rows"] > 1000


@pytest.mark.spark
@pytest.mark.parametrize("plan", ["plain", "panes"])
def test_spark_s_plans_answer_alike_in_batch(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    rows = data.rows(ROWS).folder
    asked = Request("sliding", rows, ROWS, tmp_path / "answer", {"plan": plan})
    spark_runner.run_batch(spark, asked, rows, asked.output)
    assert expected.check(asked.output, "sliding", ROWS) > 900


@pytest.mark.spark
@pytest.mark.parametrize("way", ["one by one", "conditional", "join", "numpy"])
def test_spark_s_ways_to_run_many_queries_answer_alike(spark: SparkSession, tmp_path: Path, way: str) -> None:
    entry = queries.Entry("spark", way, 3)
    spark_queries.run(
        spark,
        way,
        queries_data.folder(ROWS),
        tmp_path,
        [list(factors) for factors in queries_data.predicates(3)],
    )
    answers, total = queries._theirs(tmp_path, entry, ROWS)
    queries._compare(entry, ROWS, answers)
    assert total > 500


@pytest.mark.usefixtures("duckdb_of_this_python")
def test_the_default_path_measures_each_step_in_a_process_without_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "none of the three: Arrow would warn, and the run fail")
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if path))
    seen: list[dict[str, str]] = []
    of_process = default.subprocess.run
    monkeypatch.setattr(
        default.subprocess,
        "run",
        lambda *given, **named: (seen.append(named["env"]), of_process(*given, **named))[1],
    )
    source = data.rows(ROWS)
    steps = default._run(default.LOCAL, source)
    assert tuple(steps) == default.STEPS
    assert min(steps.values()) > 0
    assert default._run(default.DUCKDB, source)["run"] > 0
    assert all(kept.keys() <= set(default._KEPT) for kept in seen)

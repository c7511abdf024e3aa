"""Spark's own streaming sources feed streams: frames pushed by a program, and sources named in CREATE STREAM."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import EpochFailed, UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.spark import streaming_source
from headrace.schema import Schema

pytestmark = pytest.mark.spark


@pytest.fixture
def hub(spark: SparkSession, tmp_path: Path) -> Iterator[Hub]:
    """A hub on the shared session."""
    with open_hub(tmp_path / "home", spark=spark) as hub:
        yield hub


def written(spark: SparkSession, folder: Path, first: int, last: int) -> None:
    """Rows (at, k) with one row a second, as a new file of the folder."""
    rows = spark.range(first, last).selectExpr("timestamp_seconds(id) AS at", "id % 3 AS k")
    rows.coalesce(1).write.mode("append").orc(str(folder))


def counts(hub: Hub, name: str) -> dict[int, int]:
    """Rows per key in the committed windows."""
    totals: dict[int, int] = {}
    for row in hub.query(name).history().to_pylist():
        totals[row["k"]] = totals.get(row["k"], 0) + row["n"]
    return totals


QUERY = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"


def test_a_streaming_dataframe_is_a_stream(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    """Files that come between two runs are read once each; the checkpoint and the ingest log agree."""
    folder = tmp_path / "in"
    written(spark, folder, 0, 120)
    frame = spark.readStream.schema("at TIMESTAMP, k BIGINT").orc(str(folder))
    hub.create_stream("s", frame, timestamp="at")
    hub.register(QUERY, "q")
    hub.run_once()
    assert counts(hub, "q") == {0: 20, 1: 20, 2: 20}
    written(spark, folder, 120, 241)
    hub.run_once()
    assert counts(hub, "q") == {0: 80, 1: 80, 2: 80}


def test_a_spark_source_can_be_named(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    """USING takes the name of any streaming source Spark has."""
    folder = tmp_path / "in"
    written(spark, folder, 0, 121)
    hub.execute(
        f"CREATE STREAM s (at TIMESTAMP, k BIGINT) USING orc OPTIONS (path '{folder}') TIMESTAMP BY at"
    )
    hub.register(QUERY, "q")
    hub.run_once()
    assert counts(hub, "q") == {0: 40, 1: 40, 2: 40}


def test_a_source_spark_does_not_have_is_refused_at_create(hub: Hub) -> None:
    """No kafka connector ships with Spark: the message has the remedy."""
    with pytest.raises(UserError, match="Spark cannot open the source 'kafka'") as refused:
        hub.execute("CREATE STREAM s (value BINARY) USING kafka OPTIONS (subscribe 'bids')")
    assert "class path" in str(refused.value)
    assert hub.catalog.stream("s") is None


@pytest.mark.parametrize("name", ["nosuch", "org.example.source"])
def test_a_source_spark_has_never_heard_of_is_refused_at_create(hub: Hub, name: str) -> None:
    with pytest.raises(
        UserError, match=f"cannot open the source '{name}'.*Failed to find the data"
    ) as refused:
        hub.execute(f"CREATE STREAM s (value BINARY) USING `{name}`")
    assert "class path" in str(refused.value)
    assert hub.catalog.stream("s") is None


def test_a_source_of_fixed_columns_gives_its_own_reason(hub: Hub) -> None:
    with pytest.raises(UserError, match=r'Set a port to read from with option\("port"'):
        hub.execute("CREATE STREAM s (value STRING) USING socket OPTIONS (host 'localhost')")


REFUSED = (
    "stream 's': Spark cannot start its source 'text': Invalid value 'x' for option 'maxFilesPerTrigger'"
)


def of_refused_option(hub: Hub, folder: Path) -> None:
    hub.execute(
        f"CREATE STREAM s (value STRING) USING text OPTIONS (path '{folder}', maxFilesPerTrigger 'x')"
    )


def test_an_option_that_a_source_refuses_at_its_start_is_the_users_mistake(hub: Hub, tmp_path: Path) -> None:
    of_refused_option(hub, tmp_path)
    with pytest.raises(UserError, match=REFUSED) as refused:
        hub.run_once()
    assert len(str(refused.value).splitlines()) == 2


def test_a_source_that_ended_while_the_hub_runs_is_a_warning_of_its_stream(hub: Hub, tmp_path: Path) -> None:
    of_refused_option(hub, tmp_path)
    with hub.running():
        until(lambda: bool(hub.source_warnings()))
        assert hub.source_warnings()["s"].startswith(REFUSED)
        assert hub.frames.ended()["s"].exit_code == 2


def test_micro_batches_are_written_by_this_python_unless_one_was_chosen(
    hub: Hub, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(spark, tmp_path / "in", 0, 121)
    pythons: list[str] = []
    frame = spark.readStream.schema("at TIMESTAMP, k BIGINT").orc(str(tmp_path / "in"))
    planned = type(frame).mapInArrow

    def seen(self: DataFrame, *arguments: object) -> DataFrame:
        pythons.append(spark.sparkContext.pythonExec)
        return planned(self, *arguments)

    monkeypatch.setattr(type(frame), "mapInArrow", seen)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    hub.create_stream("s", frame, timestamp="at")
    hub.register(QUERY, "q")
    hub.run_once()
    assert pythons == [sys.executable]
    assert spark.sparkContext.pythonExec == "python3"
    assert counts(hub, "q") == {0: 40, 1: 40, 2: 40}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'headrace'"),
            r"^Spark's Python workers cannot import headrace\n.*PYSPARK_PYTHON=",
        ),
        (ValueError("no more"), r"stream 's'.*ValueError: no more$"),
    ],
)
def test_a_micro_batch_that_fails_is_one_message(
    hub: Hub,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    message: str,
) -> None:
    def fails(*_: object) -> int:
        raise error

    written(spark, tmp_path / "in", 0, 121)
    monkeypatch.setattr(streaming_source, "_write", fails)
    frame = spark.readStream.schema("at TIMESTAMP, k BIGINT").orc(str(tmp_path / "in"))
    hub.create_stream("s", frame, timestamp="at")
    with pytest.raises(EpochFailed, match=message):
        hub.run_once()


def test_a_batch_dataframe_is_refused(hub: Hub, spark: SparkSession) -> None:
    """Only streaming frames have a future."""
    with pytest.raises(UserError, match="not streaming"):
        hub.create_stream("s", spark.range(3))


def test_the_archive_is_a_dataframe(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    """All accepted rows, for the rest of Spark."""
    written(spark, tmp_path / "in", 0, 10)
    hub.execute(
        f"CREATE STREAM s (at TIMESTAMP, k BIGINT) USING orc OPTIONS (path '{tmp_path}/in') TIMESTAMP BY at"
    )
    hub.run_once()
    assert hub.archive("s").count() == 10
    assert hub.archive("s").columns == ["at", "k"]


COLUMNS = "at TIMESTAMP, k BIGINT"


def frame_of(spark: SparkSession, folder: Path, through: Callable) -> DataFrame:
    """A streaming frame over a folder's files, one a batch, that a function of Arrow batches sees go by."""
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1").orc(str(folder))
    return source.mapInArrow(through, COLUMNS)


def until(fulfilled: Callable[[], bool]) -> None:
    """Wait for what has to come; only a run that hangs ends here."""
    for _ in range(2400):
        if fulfilled():
            return
        time.sleep(0.05)
    raise AssertionError("nothing came")


def counting_reads(file: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Path(file).open("a") as counter:
            counter.write("read\n")
        yield from batches

    return seen


def test_callbacks_of_two_live_frames_run_at_once_and_every_micro_batch_is_read_once(
    hub: Hub, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, meeting = streaming_source._write, threading.Barrier(2, timeout=120)

    def met(batch: DataFrame, folder: Path, name: str) -> int:
        meeting.wait()  # for the callback of the other frame, which has to be under way
        return write(batch, folder, name)

    monkeypatch.setattr(streaming_source, "_write", met)
    for name in ("s", "t"):
        written(spark, tmp_path / name, 0, 60)
        frame = frame_of(spark, tmp_path / name, counting_reads(f"{tmp_path}/{name}.reads"))
        hub.create_stream(name, frame, timestamp="at")
        hub.register(QUERY.replace("FROM s", f"FROM {name}"), f"of_{name}")
    with hub.running():
        for name in ("s", "t"):
            written(spark, tmp_path / name, 60, 121)
        until(lambda: all(hub.status()["streams"][name].get("rows") == 121 for name in ("s", "t")))
    for name in ("s", "t"):
        assert counts(hub, f"of_{name}") == {0: 40, 1: 40, 2: 40}
        batches = list((hub.path / "segments" / name).glob("batch-*.arrow"))
        assert len(batches) == 2
        assert len((tmp_path / f"{name}.reads").read_text().splitlines()) == len(batches)


def slow_until(file: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(f"{file}.begun").touch()
        while not Path(file).exists():
            time.sleep(0.02)
        yield from batches

    return waits


def test_a_hub_that_is_closed_in_the_middle_of_a_micro_batch_neither_loses_nor_doubles_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First while its job runs, which is cancelled; then while the callback thinks, for which Spark waits."""
    written(spark, tmp_path / "in", 0, 121)
    go, frame = tmp_path / "go", frame_of(spark, tmp_path / "in", slow_until(f"{tmp_path}/go"))

    def opened() -> Hub:
        hub = open_hub(tmp_path / "home", spark=spark)
        hub.create_stream("s", frame, timestamp="at")
        return hub

    with opened() as hub:
        hub.register(QUERY, "q")
        with hub.running():
            until((tmp_path / "go.begun").exists)
        assert hub.status()["streams"].get("s", {}).get("rows", 0) == 0
    go.touch()
    write, entered, thought = streaming_source._write, threading.Event(), threading.Event()

    def thinking(batch: DataFrame, folder: Path, name: str) -> int:
        entered.set()
        thought.wait(120)
        return write(batch, folder, name)

    with monkeypatch.context() as patched, opened() as hub:
        patched.setattr(streaming_source, "_write", thinking)
        with hub.running():
            assert entered.wait(120)
            threading.Timer(0.5, thought.set).start()
    assert thought.is_set()
    with opened() as hub:
        hub.run_once()
        assert counts(hub, "q") == {0: 40, 1: 40, 2: 40}
        assert hub.status()["streams"]["s"]["rows"] == 121


def test_a_dropped_stream_of_a_dataframe_is_stopped_and_forgotten(
    hub: Hub, spark: SparkSession, tmp_path: Path
) -> None:
    """While it runs; another stream continues, and the hub starts again without it."""
    for name in ("s", "t"):
        written(spark, tmp_path / name, 0, 60)
        frame = spark.readStream.schema(COLUMNS).orc(str(tmp_path / name))
        hub.create_stream(name, frame, timestamp="at")
        hub.register(QUERY.replace("FROM s", f"FROM {name}"), f"of_{name}")
    with hub.running():
        until(lambda: hub.status()["streams"]["s"].get("rows") == 60)
        dropped = hub.frames._running["s"]
        hub.execute("DROP QUERY of_s; DROP STREAM S")
        assert not dropped.isActive
        assert hub.source_warnings() == {}
        written(spark, tmp_path / "t", 60, 121)
        until(lambda: hub.status()["streams"]["t"].get("rows") == 121)
    hub.catch_up()
    with hub.running():
        assert list(hub.frames._running) == ["t"]


def test_streams_that_are_dropped_at_any_time_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a statement that another thread executes while the frames are started or have been: a batch that waits for room ends."""
    ended: list[str] = []
    has_room: dict[str, Callable[[], bool]] = {}

    class Query:
        def __init__(self, name: str) -> None:
            self.name = name

        def stop(self) -> None:
            ended.append(self.name)

        def exception(self) -> None:
            return None

        def awaitTermination(self) -> None:
            return None

    def start(frame: Any, definition: Any, *_: Any, **named: Any) -> Query:
        has_room[definition.name] = named["has_room"]
        if definition.name == "during":
            hub.execute("DROP STREAM during; DROP STREAM last")
        return Query(definition.name)

    monkeypatch.setattr(streaming_source, "start", start)
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.frames.wait_for_room = lambda _, stopped: not stopped.is_set()
        for name in ("before", "during", "last", "stays"):
            hub._statements.create_stream(name, Schema.of_arrow(pa.schema([("v", pa.int64())])), "spark", {})
            hub.frames.add(name, cast("DataFrame", object()))
        hub.execute("DROP STREAM before")
        hub.catch_up()
        assert ended == ["during"]
        hub.start()
        assert list(hub.frames._running) == ["stays"]
        assert hub.source_warnings() == {}
        assert has_room["stays"]()
        hub.execute("DROP STREAM stays")
        assert ended == ["during", "stays"]
        assert not has_room["stays"]()
        hub.stop()


def test_the_results_of_a_query_are_a_dataframe_as_the_readme_says(hub: Hub, spark: SparkSession) -> None:
    hub.execute("CREATE STREAM s (at TIMESTAMP, k BIGINT) USING push TIMESTAMP BY at")
    hub.register(QUERY, "q")
    hub.push("s", spark.sql("SELECT timestamp_seconds(id) AS at, id % 3 AS k FROM range(121)").toArrow())
    hub.run_once()
    frame = hub.query("q").dataframe()
    assert frame.columns == ["k", "n"]
    assert {tuple(row) for row in frame.groupBy("k").sum("n").collect()} == {(0, 40), (1, 40), (2, 40)}


def test_a_call_passes_the_checks_of_the_statement(hub: Hub, spark: SparkSession) -> None:
    """The frame of Spark's rate source: a TIMESTAMP and a BIGINT; nothing that is refused leaves a stream."""
    frame = spark.readStream.format("rate").load()
    nested = frame.selectExpr("timestamp AS at", "array(value) AS many")
    for columns, keywords, said in (
        (frame, {"timestamp": "value"}, "'value' is BIGINT, not a TIMESTAMP"),
        (frame, {"slack": -5}, "slack is -5"),
        (frame, {"no_such": 1}, "no keyword 'no_such'"),
        (nested, {"timestamp": "at"}, "rows of a stream are flat"),
    ):
        with pytest.raises(UserError, match=said):
            hub.create_stream("s", columns, **keywords)
    assert hub.catalog.stream("s") is None
    hub.create_stream("s", frame, timestamp="timestamp_millis(value)", slack="2 seconds")
    hub.create_stream("S", frame, timestamp="timestamp_millis(value)", slack="2000 milliseconds")
    with pytest.raises(UserError, match="exists and differs in SLACK"):
        hub.create_stream("s", frame, timestamp="timestamp_millis(value)")


def test_a_home_whose_dataframe_is_not_there_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """In status, in SHOW STREAMS, and as a warning when the epochs begin; not once it was pushed."""
    frame = spark.readStream.format("rate").load()
    with open_hub(tmp_path / "home", spark=spark) as hub:
        hub.create_stream("s", frame, timestamp="timestamp")
        assert hub.status()["sources"] == {}
    with open_hub(tmp_path / "home", spark=spark) as hub:
        (warning,) = hub.execute("SHOW STREAMS")[0].table.column("warning").to_pylist()
        assert "hub.create_stream('s', frame, …) again" in warning
        assert hub.status()["sources"] == {"s": warning}
        with pytest.warns(RuntimeWarning, match="its DataFrame is not there"):
            hub.catch_up()
        hub.create_stream("s", frame, timestamp="timestamp")
        assert hub.status()["sources"] == {}


def test_spark_recognises_a_batch_that_is_interrupted_without_overflowing_its_stack(
    spark: SparkSession,
) -> None:
    """Spark's own expression, on what Python reports: the whole error of Py4J overflows, ours is found in it."""
    pattern = spark._jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution.PROXY_ERROR()
    whole = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling o1.collect\n"
        + "\tat java.base/java.lang.Thread.run(Thread.java:1583)\n" * 2000
        + "Caused by: java.lang.InterruptedException\n"
    )
    with pytest.raises(Py4JJavaError, match="StackOverflowError"):
        pattern.findFirstIn(whole)
    assert streaming_source.is_interruption(RuntimeError(whole))
    assert not streaming_source.is_interruption(RuntimeError("the disk is full"))
    interrupted = streaming_source.BatchInterrupted()
    interrupted.__suppress_context__ = True
    reported = "".join(traceback.format_exception(interrupted))
    assert pattern.findFirstIn(reported).isDefined()

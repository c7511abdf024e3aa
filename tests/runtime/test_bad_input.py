"""Bad input and bad luck through the whole path: each is told or counted, and what is right is still answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.errors import EpochFailed, StoreError, UserError
from headrace.observation import EpochFailure
from headrace.runtime import spark_executor
from headrace.runtime.executor import LocalExecutor
from headrace.runtime.hub import Hub
from headrace.runtime.sources.records import SourceChanged
from headrace.runtime.spark_executor import SparkExecutor
from headrace.runtime.supervisor import Retries
from headrace.time import DAY, HOUR, SECOND, now
from tests.runtime.rig import QUERIES, SCHEMA, Rig, answer, answers, cut, expected, made_rows

FEW = {name: QUERIES[name] for name in ("tumble", "slide", "now", "some")}
ONE_FILE = {"maxFilesPerTrigger": "1"}
ROWS = made_rows(41, 40)
GOOD = [dict(row) for row in ROWS]


def refused(hub: Hub, of: str = "rejects:s") -> list[str]:
    """The reasons of all rejects of a stream, or failures of an operator."""
    entries = hub.home.entries(hub.home.latest(), of)
    return [
        reason
        for entry in entries
        for reason in pq.read_table(hub.path / entry["name"]).column("reason").to_pylist()
    ]


def counts(hub: Hub) -> tuple[int, int, int]:
    known = hub.status()["streams"]["s"]
    return known["rows"], known["late"], known["rejected"]


def assert_right(hub: Hub, *epochs: list[dict[str, Any]]) -> None:
    for name, rows in answers(hub, hub.run_once()).items():
        assert rows == expected(hub.operator_and_query(name)[1], epochs), name


# -- records and files --------------------------------------------------------------------------------------------------


CSV = """k,v,at
a,1,1970-01-01 00:00:01
b,one,1970-01-01 00:00:02
c,3
d,4,1970-01-01 00:00:04,more
e,5,yesterday
f,6,
"g,7,1970-01-01 00:00:07
h,8,1970-01-01 00:00:08
"""


def test_malformed_lines_are_set_aside_with_a_reason_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text(CSV)
    (folder / "2.csv").write_text("k,v,at\nz,9,1970-01-01 00:00:09\n")
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(
            f"CREATE STREAM s (k STRING, v INT, at TIMESTAMP) USING csv OPTIONS (path '{folder}', header 'true')"
            " TIMESTAMP BY at; CREATE QUERY q AS SELECT k, v FROM s"
        )
        hub.run_once()
        rows, late, rejected = counts(hub)
        answered = [row["k"] for row in hub.query("q").history().to_pylist()]
        assert answered[0] == "a"
        assert answered[-1] == "z"
        assert rows == len(answered)
        assert late == 0
        assert rejected == len(refused(hub)) >= 5
        assert any("INT" in reason and "one" in reason for reason in refused(hub))


def test_lines_that_are_no_json_cost_only_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    good = [json.dumps({"v": n, "at": f"1970-01-01T00:00:0{n}Z"}) for n in range(1, 5)]
    (folder / "1.json").write_text(
        "\n".join([good[0], "{", "[]", good[1], '{"v": {}, "at": 1}', "", *good[2:]]) + "\n"
    )
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(
            f"CREATE STREAM s (v INT, at TIMESTAMP) USING json OPTIONS (path '{folder}') TIMESTAMP BY at;"
            "CREATE QUERY q AS SELECT v FROM s"
        )
        hub.run_once()
        assert [row["v"] for row in hub.query("q").history().to_pylist()] == [1, 2, 3, 4]
        assert counts(hub) == (4, 0, 3)


def test_a_schema_that_changes_midway_costs_the_files_that_do_not_fit(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD[:20])
    whole = pq.read_table(rig.source / "000000.parquet").slice(0, 3)
    pq.write_table(whole.drop_columns(["g"]), rig.source / "000001.parquet")
    place = whole.column_names.index("x")
    pq.write_table(whole.set_column(place, "x", pa.array(["1", "2", "3"])), rig.source / "000002.parquet")
    (rig.source / "000003.parquet").write_bytes(b"PAR1 nonsense PAR1")
    rig.written = 4
    rig.drop(GOOD[20:])
    with rig.hub(2, FEW) as hub:
        assert_right(hub, GOOD[:20], [], [], [], GOOD[20:])
        assert counts(hub) == (40, 0, 7)
        told = refused(hub)
        assert sum("column g is missing" in each for each in told) == 3
        assert sum("column x is" in each for each in told) == 3
        assert sum("not a readable Parquet file" in each for each in told) == 1


def test_each_record_of_a_csv_file_whose_header_lacks_a_column_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("k,v\n" + "".join(f"a,{n}\n" for n in range(100)))
    (folder / "2.csv").write_text("at,v,k\n1970-01-01T00:00:01Z,7,b\n")
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(
            "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING csv"
            f" OPTIONS (path '{folder}', header 'true', order 'name') TIMESTAMP BY at;"
            "CREATE QUERY q AS SELECT v FROM s; CREATE QUERY no AS SELECT text, reason FROM s REJECTS"
        )
        hub.run_once()
        assert hub.query("q").history().to_pylist() == [{"v": 7}]
        assert counts(hub) == (1, 0, 100)
        kept = hub.query("no").history().to_pylist()
        assert sorted(row["text"] for row in kept) == sorted(f"a,{n}" for n in range(100))
        assert {row["reason"] for row in kept} == {
            f"{folder}/1.csv: schema changed: column at is missing in the header"
        }


def test_a_file_that_changes_after_it_was_listed_stops_the_stream_until_it_is_put_back(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*cut(GOOD, 10, 20))
    changed = rig.source / "000001.parquet"
    with rig.hub(2, FEW) as hub:
        hub.loop.step()
        before, kept = changed.stat(), changed.read_bytes()
        pq.write_table(pq.read_table(changed).slice(1), changed)
        for _ in range(2):
            with pytest.raises(
                SourceChanged, match=r"(?s)000001\.parquet' has changed since it was listed.*Put the old"
            ):
                hub.loop.step()
        changed.unlink()
        with pytest.raises(SourceChanged, match="found that it is gone"):
            hub.loop.step()
        changed.write_bytes(kept)
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert_right(hub, *cut(GOOD, 10, 20))
        assert counts(hub) == (40, 0, 0)


def test_null_and_absurd_event_times_are_rejected_and_old_ones_are_not(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    instants = [None, 2**62, -(2**62), 253402300799999999, now() + 2 * DAY, -62135596800000000, now() + HOUR]
    table = pa.Table.from_pylist([{**GOOD[0], "at": None} for _ in instants], SCHEMA)
    absurd = pa.array(instants, pa.int64()).cast(SCHEMA.field("at").type)
    pq.write_table(table.set_column(4, "at", absurd), rig.source / "000000.parquet")
    with rig.hub(2, {"ever": QUERIES["ever"]}) as hub:
        hub.run_once()
        assert counts(hub) == (2, 0, 5)
        assert hub.query("ever").invoke().to_pylist()[0]["n"] == 2


def test_a_row_on_which_one_query_fails_is_counted_there_and_no_other_query_notices(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*cut(GOOD, 15))
    with rig.hub(2, {**FEW, "odd": "SELECT k, 10 / x AS part FROM s"}) as hub:
        closing = hub.run_once()
        zeros = sum(row["x"] == 0 for row in GOOD)
        assert zeros > 0
        operator = hub.operator_and_query("odd")[0].id
        assert hub.status()["rejected"] == {operator: zeros}
        assert len(refused(hub, f"failures:{operator}")) == zeros
        for name in FEW:
            assert answer(hub, name, closing) == expected(hub.operator_and_query(name)[1], cut(GOOD, 15)), (
                name
            )


# -- clocks and disks ---------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_moves_no_punctuation_back_and_loses_no_row(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    clock = iter(range(10**9))
    jumps = [now(), now() + 400 * DAY, now() - 400 * DAY, now() + DAY, 60 * SECOND, now()]
    with Hub(rig.home, LocalExecutor(), clock=lambda: jumps[next(clock) // 3 % len(jumps)], tasks=2) as hub:
        hub.execute(rig.script(FEW))
        reached = []
        for part in cut(GOOD, *range(4, 40, 4)):
            rig.drop(part)
            hub.catch_up()
            reached.append(hub.status()["streams"]["s"]["punctuation"])
        assert reached == sorted(reached)
        assert_right(hub, *cut(GOOD, *range(4, 40, 4)))
        assert counts(hub) == (40, 0, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few hundred kilobytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this machine lets nobody mount a small disk: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(42, 300), *range(6, 300, 6))
    rig.drop(*files)
    with Hub(small_disk / "home", LocalExecutor(), tasks=2, retries=Retries(())) as hub:
        hub.execute(rig.script(FEW))
        with pytest.raises(StoreError, match=r"disk of the home .* is full.*Free some space"):
            hub.run_once()
        assert 0 < counts(hub)[0] < 300
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    with Hub(small_disk / "home", LocalExecutor(), tasks=3) as hub:
        assert_right(hub, *files)
        assert hub.check().faults == 0


def test_a_full_disk_that_clears_is_waited_for(small_disk: Path, tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(42, 300), *range(6, 300, 6))
    rig.drop(*files)
    with Hub(small_disk / "home", LocalExecutor(), tasks=2, retries=Retries((0.01, 0.01))) as hub:
        hub.execute(rig.script(FEW))

        def clear(failure: EpochFailure) -> None:
            assert "is full" in failure.message
            if failure.attempt == 2:
                subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)

        hub.on_failure(clear)
        assert_right(hub, *files)
        assert hub.status()["failures"]["count"] == 2
        assert (hub.path / "epochs.jsonl").read_text().count('"kind": "failure"') == 2
        assert hub.check().faults == 0


def test_a_home_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match=r"cannot open the home .*Not a directory"),
        Rig(tmp_path / "rig").hub(),
    ):
        Hub(tmp_path / "file" / "home", LocalExecutor())


# -- tasks and workers --------------------------------------------------------------------------------------------------


class Harmed(SparkExecutor):
    """What its tasks do first is for the test to say; it runs in the workers."""

    harm = staticmethod(lambda: None)

    def _job(self, scans: Any, orders: dict[int, bytes]) -> Any:
        harm = self.harm

        def scan(messages: Any) -> Any:
            harm()
            yield from spark_executor._scan(messages)

        parts = self._context.parallelize([spark_executor.pickle.dumps(each) for each in scans], len(scans))
        blobs = parts.mapPartitions(scan).partitionBy(len(orders), spark_executor._owner)
        return blobs.mapPartitionsWithIndex(spark_executor._State(orders)).collect()


@pytest.mark.spark
def test_a_killed_worker_costs_a_retry_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    rig, marks = Rig(tmp_path, ONE_FILE), str(tmp_path / "killed")
    rig.drop(*cut(GOOD, 20))
    executor = Harmed(spark)

    def die_once() -> None:
        try:
            os.close(os.open(marks, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    executor.harm = die_once
    with Hub(rig.home, executor, tasks=2) as hub:
        hub.execute(rig.script(FEW))
        assert_right(hub, *cut(GOOD, 20))
        assert Path(marks).exists()
        assert counts(hub) == (40, 0, 0)


@pytest.mark.spark
def test_a_worker_that_always_dies_fails_the_epoch_with_a_reason_and_nothing_is_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    executor = Harmed(spark)
    executor.harm = lambda: os.kill(os.getpid(), signal.SIGKILL)
    with Hub(rig.home, executor, tasks=2, retries=Retries(())) as hub:
        hub.execute(rig.script(FEW))
        epoch = hub.home.latest().epoch
        with pytest.raises(
            EpochFailed, match=r"a Python worker died in every attempt.*\n.*Nothing of the epoch"
        ):
            hub.run_once()
        assert hub.home.latest().epoch == epoch
        executor.harm = lambda: None
        assert_right(hub, GOOD)


@pytest.mark.spark
def test_an_error_nobody_expected_reaches_the_user_in_the_tasks_own_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    executor = Harmed(spark)

    def fail() -> None:
        raise ModuleNotFoundError("No module named 'something'")

    executor.harm = fail
    with Hub(rig.home, executor, tasks=2) as hub:
        hub.execute(rig.script(FEW))
        with pytest.raises(EpochFailed, match=r"ModuleNotFoundError: No module named 'something'$"):
            hub.run_once()
        assert hub.status()["failures"]["count"] == 0  # it would fail again


@pytest.mark.spark
def test_a_users_mistake_found_in_a_task_is_not_retried_and_keeps_its_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    tried = tmp_path / "tried"
    executor = Harmed(spark)

    def note() -> None:
        with open(tried, "a") as file:  # noqa: PTH123 - runs in a worker
            file.write("once\n")

    executor.harm = note
    with Hub(rig.home, executor, tasks=3) as hub:
        hub.execute(rig.script(FEW))
        hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())
        (rig.source / "000000.parquet").unlink()
        with pytest.raises(SourceChanged, match="found that it is gone") as told:
            hub.run_once()
        assert isinstance(told.value, UserError)
        assert tried.read_text() == "once\n"


def test_a_failing_loop_tells_whoever_follows_and_whoever_stops(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD)
    with rig.hub(2, FEW) as hub:
        hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())
        (rig.source / "000000.parquet").unlink()
        hub.start()
        with pytest.raises(Exception, match="found that it is gone"):
            list(hub.query("some").follow())
        with pytest.raises(SourceChanged):
            hub.stop()


def test_ctrl_c_in_the_middle_of_epochs_leaves_a_home_that_goes_on(tmp_path: Path) -> None:
    from tests.runtime.killing import Assassin

    assassin = Assassin(tmp_path, 43)
    assassin.arrive(60)
    for delay in (0.0, 0.03, 0.11):
        runner = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.victim", str(tmp_path), "2", "local", str(3 * SECOND)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert runner.stdout is not None
        for _ in range(4):
            assert runner.stdout.readline()
        time.sleep(delay)
        told = pressed_until_it_ends(runner)
        assert "KeyboardInterrupt" in told
        assert faults_of_now(tmp_path) == 0
    assassin.assert_nothing_happened()


def pressed_until_it_ends(runner: subprocess.Popen[str]) -> str:
    """Ctrl-C, again if need be: Python loses the one that meets the callback of a weak reference."""
    for _ in range(20):
        runner.send_signal(signal.SIGINT)
        try:
            return runner.communicate(timeout=5)[1]
        except subprocess.TimeoutExpired:
            continue
    runner.kill()
    raise AssertionError("it cannot be interrupted")


def faults_of_now(folder: Path) -> int:
    from headrace.runtime.checking import check

    return check(folder / "home").faults

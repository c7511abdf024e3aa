"""A push that fails is repeated with its producer and sequence, and its rows count once: at whatever call it failed or died."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.records.ingest_record import PUNCTUATION, IngestRecord
from headrace.connectors.records.producers import COMPARED
from headrace.connectors.sources import segment_files
from headrace.connectors.sources.rate_source import rate_record
from headrace.connectors.sources.segment_files import batch_name, segment_record, write_segment
from headrace.errors import AlreadyPublished, PushFailed, StoreError, UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.store.files.disk import Disk
from headrace.store.logs.manifest import SUMMARISED
from headrace.store.logs.record_log import INGEST_LOG, RecordLog
from headrace.time import DAY, HOUR, SECOND, now
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

SCRIPT = (
    "CREATE STREAM p (v BIGINT) USING push; CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(v) AS total FROM p"
)
FIRST, ROWS = [{"v": 1}], [{"v": 10}, {"v": 20}]
ONCE = [{"n": 3, "total": 31}]


@dataclass
class BreakingDisk(FaultyDisk):
    """Every call from one on fails as on a full disk."""

    broken_from: int | None = None

    def _call(self, name: str, partly: Callable[[], object] | None = None) -> Any:
        if self.broken_from is not None and len(self.trace) >= self.broken_from:
            self.full_at = len(self.trace)
        return super()._call(name, partly)


@contextmanager
def opened(home: Path) -> Iterator[Hub]:
    with Hub(home, LocalExecutor(), tasks=2, retries=Retries(())) as hub:
        yield hub


@contextmanager
def on(hub: Hub, disk: Disk) -> Iterator[None]:
    """What the hub writes goes to that disk."""
    own, hub.home.store._disk = hub.home.store._disk, disk
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace.store.files.filesystem.Disk", lambda: disk)  # of the segments' store
        try:
            yield
        finally:
            hub.home.store._disk = own


@pytest.fixture(params=["file", "record"])
def home(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one pushed batch, in the ingest log and not read yet; rows have a file, or are in the record of the log."""
    if request.param == "file":
        monkeypatch.setattr(segment_files, "IN_RECORD", 0)
    with opened(tmp_path / "home") as hub:
        hub.execute(SCRIPT)
        hub.push("p", FIRST, producer="loader", sequence=0)
    return tmp_path / "home"


def again(home: Path, name: str) -> Path:
    """The same home in another place."""
    return Path(shutil.copytree(home, home.with_name(name)))


def total(hub: Hub) -> list[dict[str, Any]]:
    hub.run_once()
    return hub.query("q").invoke().to_pylist()


def trace_of_a_push(home: Path) -> list[str]:
    disk = FaultyDisk()
    with opened(again(home, "traced")) as hub, on(hub, disk):
        hub.push("p", ROWS, producer="loader", sequence=7)
    has_file = segment_files.IN_RECORD == 0
    assert (
        disk.trace.count("link") + disk.trace.count("name") == 1 + has_file
    )  # the log's chunk, after a segment
    return disk.trace


def outcome_of_a_push(hub: Hub, disk: Disk) -> str:
    """Its error, or how many rows it acknowledged."""
    with on(hub, disk):
        try:
            return f"{hub.push('p', ROWS, producer='loader', sequence=7)} rows"
        except PushFailed as error:
            failed = error
    assert (failed.stream, failed.producer, failed.sequence) == ("p", "loader", 7)
    assert "hub.push('p', rows, producer='loader', sequence=7)" in str(failed)
    return failed.outcome


@pytest.mark.parametrize("lasting", [False, True])
def test_after_an_error_at_any_call_the_repeated_push_counts_once(home: Path, lasting: bool) -> None:
    outcomes = set()
    calls = trace_of_a_push(home)
    for number in range(len(calls)):
        disk = BreakingDisk(broken_from=number) if lasting else BreakingDisk(full_at=number)
        with opened(again(home, f"home{number}")) as hub:
            outcome = outcome_of_a_push(hub, disk)
            outcomes.add(outcome)
            assert hub.pushed("p", "loader") == (0 if outcome == "absent" else 7), (number, outcome)
            assert hub.push("p", ROWS, producer="loader", sequence=7) == 2
            assert total(hub) == ONCE, (number, outcome)
    assert outcomes == ({"absent", "unknown"} if lasting else {"absent", "2 rows"})


def test_rows_of_a_push_in_doubt_are_read_also_when_nobody_repeats_it(home: Path) -> None:
    calls = trace_of_a_push(home)
    disk = BreakingDisk(broken_from=len(calls) - 1)  # the chunk has its name, and its folder is never synced
    with opened(home) as hub:
        with on(hub, disk), pytest.raises(PushFailed, match="outcome: unknown"):
            hub.push("p", ROWS)
        assert total(hub) == ONCE


def test_a_push_in_doubt_that_a_takeover_has_found_is_acknowledged(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch fails for the same reason as the append, and its next attempt reads the log before the push asks."""
    disk, find_out = BreakingDisk(broken_from=len(trace_of_a_push(home)) - 1), Intake.find_out
    with opened(home) as hub:

        def after_a_takeover(intake: Intake, record: IngestRecord) -> str:
            disk.broken_from = None
            hub.loop.engine.take_over()
            return find_out(intake, record)

        monkeypatch.setattr(Intake, "find_out", after_a_takeover)
        assert outcome_of_a_push(hub, disk) == "2 rows"
        assert total(hub) == ONCE


def test_rows_in_doubt_of_a_dropped_stream_are_not_those_of_the_next_of_its_name(home: Path) -> None:
    disk = BreakingDisk(broken_from=len(trace_of_a_push(home)) - 1)
    with opened(home) as hub:
        with on(hub, disk), pytest.raises(PushFailed, match="outcome: unknown"):
            hub.push("p", ROWS)
        hub.execute(f"DROP QUERY q; DROP STREAM p; {SCRIPT}")
        hub.push("p", [{"v": 5}])
        assert total(hub) == [{"n": 1, "total": 5}]


def test_rows_in_doubt_are_durable_before_an_epoch_that_reads_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog's log is in doubt too, and both are read again."""
    disk = BreakingDisk(broken_from=len(trace_of_a_push(home)) - 1)
    with opened(home) as hub:
        with on(hub, disk), pytest.raises(PushFailed, match="outcome: unknown"):
            hub.push("p", ROWS)
        settled, settle = list[str](), RecordLog.settle
        monkeypatch.setattr(RecordLog, "settle", lambda log: (settled.append(log._name), settle(log)))
        hub.home.in_doubt = True
        hub.loop.engine.find_out()
        assert INGEST_LOG in settled
        assert total(hub) == ONCE


def test_a_push_whose_append_another_thread_gave_up_is_appended_by_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a thread that was to append the records of others too."""
    took = threading.Event()

    def interrupted(*_: Any) -> None:
        monkeypatch.setattr(Intake, "_is_fresh", is_fresh)
        took.set()
        raise KeyboardInterrupt

    with opened(home) as hub, ThreadPoolExecutor(1) as pool:
        intake, is_fresh = hub.loop.engine.intake, Intake._is_fresh
        with intake.lock:
            push = pool.submit(hub.push, "p", ROWS)
            while not intake._arrivals:
                took.wait(0.001)
            monkeypatch.setattr(Intake, "_is_fresh", interrupted)
            with pytest.raises(KeyboardInterrupt):
                intake._log_arrivals()
        assert push.result(60) == 2
        assert total(hub) == ONCE


@pytest.mark.parametrize("power", [False, True])
def test_killed_at_any_call_the_next_process_asks_and_repeats(home: Path, power: bool) -> None:
    """In a new process, also after a power cut, which may undo all that was never synced."""
    pushed = set()
    for number, fault in enumerate(kill_points(trace_of_a_push(home))):
        place, graves = again(home, f"home{number}"), home.with_name(f"graves{number}")
        graves.mkdir()
        disk = FaultyDisk(fault=fault, graves=str(graves))
        with suppress(SimulatedCrash), opened(place) as hub, on(hub, disk):
            hub.push("p", ROWS, producer="loader", sequence=7)
        if power:
            disk.lose_power(str(place))
        with opened(place) as hub:
            pushed.add(hub.pushed("p", "loader"))
            hub.push("p", ROWS, producer="loader", sequence=7)
            assert total(hub) == ONCE, fault
    assert pushed == {0, 7}


def test_what_the_next_process_says_is_there_survives_a_power_cut(home: Path) -> None:
    """It was killed after the log's chunk had its name, and before the name was durable: its next reader makes it so."""
    calls = trace_of_a_push(home)
    disk = BreakingDisk(broken_from=len(calls) - 1)
    with opened(home) as hub, suppress(PushFailed), on(hub, disk):
        hub.push("p", ROWS, producer="loader", sequence=7)
    disk.broken_from = disk.full_at = None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace.store.files.filesystem.Disk", lambda: disk)
        with opened(home) as hub:
            assert hub.pushed("p", "loader") == 7
    disk.lose_power(str(home))
    with opened(home) as hub:
        assert hub.pushed("p", "loader") == 7
        assert total(hub) == ONCE


def test_a_second_driver_takes_what_the_first_has_logged_as_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's append comes after the second has read the log, and its program repeats with the second."""
    monkeypatch.setattr("headrace.runtime.hub.hub.HomeLock", lambda _: nullcontext())
    with opened(home) as first:
        append = first.home.ingest_log.append
        seconds: list[Hub] = []

        def overtaken(_: Any, records: Any, after: Any) -> int:
            seconds.append(Hub(home, LocalExecutor(), tasks=2, retries=Retries(())))
            return append(records, after=after)

        with monkeypatch.context() as patched:
            patched.setattr(type(first.home.ingest_log), "append", overtaken)
            assert first.push("p", ROWS, producer="loader", sequence=7) == 2
        (second,) = seconds
        with second:
            assert second.pushed("p", "loader") == 0  # not known to it yet
            assert second.push("p", ROWS, producer="loader", sequence=7) == 2
            with pytest.raises(UserError, match="there already, with other rows"):
                second.push("p", FIRST, producer="loader", sequence=7)
            assert total(second) == ONCE
            with pytest.raises(PushFailed, match="another process has taken over") as raised:
                first.push("p", ROWS, producer="loader", sequence=8)
            assert raised.value.outcome == "absent"
            assert isinstance(raised.value.__cause__, AlreadyPublished)
            assert second.push("p", ROWS, producer="loader", sequence=8) == 2
            assert total(second) == [{"n": 5, "total": 61}]


def test_threads_that_push_the_same_batches_have_them_counted_once(home: Path) -> None:
    batches = [[{"v": number}] for number in range(20)]
    with opened(home) as hub, hub.running():

        def push(_: int) -> list[int]:
            return [hub.push("p", rows, producer="many", sequence=n) for n, rows in enumerate(batches)]

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(push, range(6))) == [[1] * 20] * 6
    with opened(home) as hub:
        assert total(hub) == [{"n": 21, "total": 1 + sum(range(20))}]


LOADER = """
import sys
from pathlib import Path
from headrace.runtime.hub.opening import open_hub

with open_hub(Path(sys.argv[1]), local=True) as hub:
    last = hub.pushed("p", "file")
    for number in range(0 if last is None else last + 1, 60):
        hub.push("p", [{"v": number}] * 2, producer="file", sequence=number)
        print(number, flush=True)
        if number % 9 == 8:
            hub.run_once()
"""


@pytest.mark.parametrize("home", ["record"], indirect=True)
def test_a_loader_that_is_killed_again_and_again_loads_every_row_once(home: Path) -> None:
    for lines in (1, 9, 10, 4, None):
        loader = subprocess.Popen(
            [sys.executable, "-c", LOADER, str(home)], stdout=subprocess.PIPE, text=True
        )
        assert loader.stdout is not None
        if lines is not None:
            for _ in range(lines):
                assert loader.stdout.readline()
            loader.kill()
        loader.communicate()
        assert loader.returncode == (0 if lines is None else -signal.SIGKILL)
    with opened(home) as hub:
        assert hub.pushed("p", "file") == 59
        assert total(hub) == [{"n": 1 + 120, "total": 1 + 2 * sum(range(60))}]


def test_a_call_without_a_number_gets_one_that_its_error_names(home: Path) -> None:
    with opened(home) as hub:
        disk = BreakingDisk(broken_from=len(trace_of_a_push(home)) - 1)
        with on(hub, disk), pytest.raises(PushFailed) as raised:
            hub.push("p", ROWS)
        again = {"producer": raised.value.producer, "sequence": raised.value.sequence}
        assert hub.push("p", ROWS, **again) == 2
        assert hub.push("p", ROWS, **again) == 2
        assert total(hub) == ONCE
        hub.push("p", ROWS)  # another call is another batch, whatever its rows
        assert total(hub) == [{"n": 5, "total": 61}]


def test_producers_survive_the_log_they_were_read_from(tmp_path: Path) -> None:
    """The log's chunks are summed up and dropped; old numbers are acknowledged, newer ones compared."""
    batches = 3 * COMPARED
    with opened(tmp_path) as hub:
        hub.execute(SCRIPT)
        for number in range(batches):
            hub.push("p", [{"v": number}], producer="loader", sequence=number)
            if number % 8 == 7:
                hub.run_once()
        hub.push("p", [{"v": 0}], producer="loader", sequence=batches + 5)
        for _ in range(9):
            hub.push("p", [{"v": 0}], producer="other", sequence=hub.loop.engine.manifest.epoch)
            hub.run_once()
        hub.loop.engine.collect()
        assert hub.home.latest().facts[SUMMARISED]["upto"] >= batches
        assert hub.home.ingest_log.start > COMPARED
        counted = total(hub)
    with opened(tmp_path) as hub:
        assert hub.pushed("p", "loader") == batches + 5
        for number in (0, 1, COMPARED, batches - 1):
            assert hub.push("p", [{"v": number}], producer="loader", sequence=number) == 1
        with pytest.raises(UserError, match=f"batch {batches - 1} .* is there already, with other rows"):
            hub.push("p", [{"v": -1}], producer="loader", sequence=batches - 1)
        with pytest.raises(UserError, match=rf"batch {batches + 1} .*left out(.|\n)*above {batches + 5}"):
            hub.push("p", [{"v": -1}], producer="loader", sequence=batches + 1)
        assert total(hub) == counted


def test_a_producer_is_forgotten_when_its_stream_says(tmp_path: Path) -> None:
    day = [0]
    with Hub(tmp_path, LocalExecutor(), clock=lambda: now() + day[0] * DAY, tasks=2) as hub:
        hub.execute(SCRIPT.replace("push;", "push OPTIONS (rememberProducers '3 DAYS');"))
        for day[0], there, sequence in ((0, None, 0), (2, 0, 1), (4, 1, 1), (8, None, 1)):
            assert hub.pushed("p", "loader") == there
            hub.push("p", ROWS, producer="loader", sequence=sequence)
        assert total(hub)[0]["n"] == 6
        with pytest.raises(UserError, match="rememberProducers"):
            hub.execute("CREATE STREAM r (v BIGINT) USING push OPTIONS (rememberProducers 'long')")


def test_a_number_and_its_producer_are_checked(home: Path) -> None:
    with opened(home) as hub:
        for producer, sequence, message in (
            ("loader", None, "the sequence is None"),
            ("loader", -1, "the sequence is -1"),
            ("loader", True, "the sequence is True"),
            (None, 3, "the producer is None"),
            ("", 3, "the producer is ''"),
        ):
            with pytest.raises(UserError, match=message):
                hub.push("p", ROWS, producer=producer, sequence=sequence)
        with pytest.raises(UserError, match="there is no stream 'x'"):
            hub.pushed("x", "loader")
        hub.execute("DROP QUERY q; DROP STREAM p; " + SCRIPT)
        assert hub.pushed("p", "loader") is None
        hub.push("p", FIRST, producer="loader", sequence=0)
        assert total(hub) == [{"n": 1, "total": 1}]


@pytest.mark.parametrize("home", ["file"], indirect=True)
def test_segments_that_failed_pushes_leave_are_collected(home: Path) -> None:
    with opened(home) as hub:
        folder = home / "segments" / "p"
        link = trace_of_a_push(home).index("link")  # of the chunk, after the segment
        with on(hub, BreakingDisk(full_at=link)), pytest.raises(PushFailed, match="outcome: absent"):
            hub.push("p", ROWS, producer="loader", sequence=7)
        hub.push("p", ROWS, producer="loader", sequence=7)
        assert len(list(folder.iterdir())) == 3
        assert not hub.loop.engine.collect().deleted  # it may be of a push under way
        hub.loop.engine.housekeeping.grace = -HOUR
        (gone,) = hub.loop.engine.collect().deleted
        assert gone.startswith("segments/p/push-")
        assert len(list(folder.iterdir())) == 2
        assert total(hub) == ONCE


# -- what else is repeated ----------------------------------------------------------------------------------------------


def test_a_micro_batch_that_could_not_be_logged_is_logged_once(home: Path) -> None:
    """Spark's callback pushes a record; the log fails at any call, and Spark repeats the batch."""

    def take(hub: Hub) -> None:
        folder = hub.path / "segments" / "p"
        table = pa.table({"v": pa.array([10, 20], pa.int64())})
        with suppress(AlreadyPublished):
            write_segment(folder, batch_name(0), table.schema, table.to_batches())
        path, stream = folder / batch_name(0), hub.stream_definition("p")
        hub.loop.engine.intake.queue(segment_record(stream, path, 2, 5, batch=0, root=hub.path))

    def listen(hub: Hub) -> int:
        return hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())

    disk = FaultyDisk()
    with opened(again(home, "traced")) as hub:
        take(hub)
        with on(hub, disk):
            assert listen(hub) == 1
    for number in range(len(disk.trace)):
        with opened(again(home, f"home{number}")) as hub:
            take(hub)
            with on(hub, BreakingDisk(broken_from=number)), suppress(StoreError):
                listen(hub)
            take(hub)
            listen(hub)
            take(hub)
            assert total(hub) == ONCE, number


def test_a_refresh_that_failed_at_any_call_is_repeated_without_harm(home: Path, tmp_path: Path) -> None:
    """The relation has the rows of its file, and a version that failed is collected."""
    source = tmp_path / "names.json"
    source.write_text('{"id": 1, "name": "old"}\n')
    create = f"CREATE RELATION names (id BIGINT, name STRING) USING json OPTIONS (path '{source}');"
    join = "CREATE QUERY named AS SELECT names.name, COUNT(*) AS n FROM p JOIN names ON p.v = names.id GROUP BY names.name"
    with opened(home) as hub:
        hub.execute(create + join)
    source.write_text('{"id": 1, "name": "new"}\n')
    disk = FaultyDisk()
    with opened(again(home, "traced")) as hub, on(hub, disk):
        hub.execute("REFRESH RELATION names")
    assert disk.trace.count("link") == 2
    for number in range(len(disk.trace)):
        with opened(again(home, f"home{number}")) as hub:
            with on(hub, BreakingDisk(broken_from=number)), suppress(StoreError):
                hub.execute("REFRESH RELATION names")
            hub.execute("REFRESH RELATION names")
            hub.run_once()
            assert hub.query("named").invoke().to_pylist() == [{"name": "new", "n": 1}], number
            assert hub.check().faults == 0


@contextmanager
def another_appends_first(hub: Hub, record: IngestRecord | None = None) -> Iterator[None]:
    """Once, before the next append: a promise for the stream p, or that record, by a driver that was replaced."""
    append = RecordLog.append

    def overtaken(log: RecordLog, *args: Any, **how: Any) -> int:
        patched.undo()
        first = record or IngestRecord("p", "promise", PUNCTUATION, 0, 0, 0, 0, now())
        append(RecordLog(hub.home.store, INGEST_LOG), [first.to_json()])
        return append(log, *args, **how)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RecordLog, "append", overtaken)
        yield


@pytest.mark.parametrize("name", ["f", "g"])
def test_a_file_of_another_stream_is_not_taken_as_there_when_another_append_was_first(
    home: Path, tmp_path: Path, name: str
) -> None:
    """Of a dropped stream of the same name, or of one that reads the same folder: its name is in the log that was read."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("1\n2\n")
    os.utime(tmp_path / "in", (10**9, 10**9))  # the folder is not listed again unless it changes
    create = f"CREATE STREAM {{0}} (v BIGINT) USING csv OPTIONS (path '{tmp_path}/in'); CREATE QUERY of_{{0}} AS SELECT v FROM {{0}};"
    with opened(home) as hub:
        hub.execute(create.format("f"))
        hub.run_once()
    with opened(home) as hub:
        if name == "f":
            hub.execute("DROP QUERY of_f; DROP STREAM f")
        hub.execute(create.format(name))
        with another_appends_first(hub):
            hub.run_once()
        hub.run_once()
        assert hub.query(f"of_{name}").history().column("v").to_pylist() == [1, 2]


def test_rows_of_a_rate_are_logged_once_when_another_append_was_first(home: Path) -> None:
    clock = [now()]

    def again() -> Hub:
        return Hub(home, LocalExecutor(), clock=lambda: clock[0], tasks=2)

    with again() as hub:
        hub.execute("CREATE STREAM r (at TIMESTAMP, n BIGINT) USING rate OPTIONS (rowsPerSecond '1')")
        hub.execute("CREATE QUERY of_r AS SELECT n FROM r")
        hub.run_once()
    started = clock[0]
    with again() as hub:
        clock[0] += 2 * SECOND
        before = hub.home.ingest_log.length
        with another_appends_first(hub):
            hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())
        assert hub.home.ingest_log.length == before + 2
        hub.run_once()
        assert hub.query("of_r").history().column("n").to_pylist() == [0, 1, 2]
    with again() as hub:
        clock[0] += 2 * SECOND
        with another_appends_first(hub, rate_record(hub.stream_definition("r"), started, 3, 4, clock[0])):
            hub.run_once()
        hub.run_once()
        assert hub.query("of_r").history().column("n").to_pylist() == [0, 1, 2, 3, 4]

"""An epoch reads pushed rows while they are appended to the log, and counts once they are there: whatever becomes of the append."""

from __future__ import annotations

import datetime as dt
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.sources import segment_files
from headrace.connectors.sources.segment_files import as_rows, record_with_rows
from headrace.errors import PushFailed
from headrace.observation import EpochObservation
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest import ingest_queue, live_input
from headrace.runtime.ingest.admission import Pending
from headrace.runtime.ingest.appends import Append, Arrival
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.record_log import INGEST_LOG, RecordLog
from tests.store.faults import FaultyDisk, Trouble

SCRIPT = """CREATE STREAM p (v BIGINT) USING push; CREATE STREAM other (v BIGINT) USING push;
CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(v) AS total FROM p;
CREATE QUERY rows AS SELECT v FROM p; CREATE QUERY others AS SELECT v FROM other"""
LONG = 60.0
"""Seconds after which a test that waits in vain fails."""
FULL = 28


@dataclass
class Watched(LocalExecutor):
    """Sets an event when an epoch with rows has been computed, and is not published yet."""

    computed: threading.Event = field(default_factory=threading.Event)
    epochs: int = 0

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        receipts = super().run(scans, states)
        if any(message.splits for message in scans):
            self.epochs += 1
            self.computed.set()
        return receipts


@contextmanager
def opened(home: Path) -> Iterator[tuple[Hub, Watched]]:
    executor = Watched()
    with Hub(home, executor, tasks=2, retries=Retries(())) as hub:
        if not hub.home.catalog.streams:
            hub.execute(SCRIPT)
            hub.run_once()
        yield hub, executor


def log_on(hub: Hub, disk: Disk) -> None:
    """Appends to the ingest log go to that disk, and nothing else does."""
    hub.home.ingest_log._store = LocalStore(hub.home.store.root, disk)
    hub.home.ingest_log._files._store = hub.home.ingest_log._store


def answer(hub: Hub) -> tuple[int, int | None]:
    hub.run_once()
    row = hub.query("q").invoke().to_pylist()[0]
    return row["n"], row["total"]


def emitted(hub: Hub, query: str = "rows") -> list[int]:
    return hub.query(query).history().column("v").to_pylist()


class Meanwhile:
    """Runs a step in another thread once an append makes its first call, which waits until the epoch has been computed."""

    def __init__(self, hub: Hub, executor: Watched, pool: ThreadPoolExecutor) -> None:
        self.hub, self.executor, self.pool = hub, executor, pool
        self.step: Future[EpochObservation | None] | None = None

    def __call__(self, _: str) -> None:
        if self.step is None:
            self.executor.computed.clear()
            self.step = self.pool.submit(self.hub.loop.step)
            assert self.executor.computed.wait(LONG), "no epoch began during the append"

    def seen(self) -> EpochObservation | None:
        assert self.step is not None
        return self.step.result(LONG)


@contextmanager
def stepping(hub: Hub, executor: Watched, disk: FaultyDisk) -> Iterator[Meanwhile]:
    with ThreadPoolExecutor(1) as pool:
        meanwhile = disk.before_call = Meanwhile(hub, executor, pool)
        log_on(hub, disk)
        yield meanwhile
        log_on(hub, Disk())


def test_rows_are_read_during_their_append_and_answered_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    append = RecordLog.append

    with opened(tmp_path / "home") as (hub, executor):

        def slow(log: RecordLog, *arguments: Any, **options: Any) -> int:
            assert executor.computed.wait(LONG), "no epoch began during the append"
            happened.append(f"computed {executor.epochs}")
            first = append(log, *arguments, **options)
            happened.append(f"logged {first}, published {hub.home.latest().epoch - began}")
            return first

        monkeypatch.setattr(RecordLog, "append", slow)
        began = hub.home.latest().epoch
        with hub.running():
            followed = hub.query("rows").follow(0)
            for number in range(3):
                executor.computed.clear()
                hub.push("p", [{"v": number}])
                assert next(followed).column("v").to_pylist() == [number]
        assert happened == [
            line
            for number in range(3)
            for line in (f"computed {number + 1}", f"logged {number}, published {number}")
        ]
        assert answer(hub) == (3, 3)
        assert executor.epochs == 3


def test_what_waits_is_read_before_what_is_being_appended(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as (hub, executor):
        hub.push("p", [{"v": 1}])
        hub.push("other", [{"v": 2}])
        with stepping(hub, executor, FaultyDisk()) as meanwhile:
            hub.push("p", [{"v": 3}])
            seen = meanwhile.seen()
        assert seen is not None
        assert seen.rows == 3
        assert hub.loop.step() is None
        assert (emitted(hub), emitted(hub, "others")) == ([1, 3], [2])


def calls_of_an_append(home: Path) -> int:
    disk = FaultyDisk()
    with opened(home) as (hub, _):
        log_on(hub, disk)
        hub.push("p", [{"v": 1}])
        log_on(hub, Disk())
    assert disk.trace.count("link") == 1
    return len(disk.trace)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt])
def test_of_an_append_that_fails_an_epoch_has_nothing_unless_it_is_there(
    tmp_path: Path, when: Any, lasting: bool, error: Any
) -> None:
    calls, discarded = calls_of_an_append(tmp_path / "traced"), 0
    for number in range(calls):
        with opened(tmp_path / f"home{number}") as (hub, executor):
            hub.push("p", [{"v": 1}], producer="me", sequence=0)
            assert answer(hub) == (1, 1)
            hub.push("p", [{"v": 10}], producer="me", sequence=1)  # waits, and is read all the same
            began, epochs = hub.home.latest(), executor.epochs
            disk = FaultyDisk(trouble=Trouble(number, error, when, lasting))
            with stepping(hub, executor, disk) as meanwhile:
                with suppress(PushFailed, KeyboardInterrupt):
                    hub.push("p", [{"v": 100}], producer="me", sequence=2)
                seen = meanwhile.seen()
                published, is_there = hub.home.latest(), len(list(hub.home.ingest_log.read())) == 3
            assert published.incarnation == began.incarnation
            assert hub.loop.supervisor.failed == 0
            assert seen is not None
            assert published.epoch == began.epoch + 1
            discarded += executor.epochs > epochs + 1
            assert seen.rows == 2 or executor.epochs > epochs + 1
            assert is_there or seen.rows == 1, "rows count that are in no log"
            assert hub.push("p", [{"v": 100}], producer="me", sequence=2) == 1
            assert answer(hub) == (3, 111), (number, seen.rows)
            assert emitted(hub) == [1, 10, 100]
        with opened(tmp_path / f"home{number}") as (hub, _):
            assert answer(hub) == (3, 111)
    assert discarded > 2


def test_records_that_get_other_ordinals_are_read_again(tmp_path: Path) -> None:
    """Another writer appends first, so that rows have other positions than the epoch has given them."""
    with opened(tmp_path / "home") as (hub, executor):
        hub.push("other", [{"v": 5}])
        hub.run_once()
        of_another = next(record for _, record in hub.home.ingest_log.read())
        disk = FaultyDisk()
        with stepping(hub, executor, disk) as meanwhile:
            waits = disk.before_call

            def overtake(call: str) -> None:
                assert waits is not None
                waits(call)
                disk.before_call = waits
                RecordLog(LocalStore(hub.home.store.root), INGEST_LOG).append(
                    [{**of_another, "uri": "push-of-another", "producer": "another"}]
                )

            disk.before_call = overtake
            assert hub.push("p", [{"v": 7}]) == 1
            seen = meanwhile.seen()
        assert executor.epochs > 2
        assert seen is None or seen.rows == 2
        assert answer(hub) == (1, 7)
        assert (emitted(hub), emitted(hub, "others")) == ([7], [5, 5])


def test_what_a_discarded_epoch_has_counted_for_queries_does_not_count(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as (hub, executor):
        rounds, operator = hub.loop.engine.rounds, hub.home.catalog.query("q").operator_id
        rounds.failing.attempts[operator] = 2
        with stepping(hub, executor, FaultyDisk(full_at=1)) as meanwhile, pytest.raises(PushFailed):
            hub.push("p", [{"v": 1}])
        assert meanwhile.seen() is None
        assert executor.epochs == 1
        assert rounds.failing.attempts == {operator: 2}
        assert rounds._accepted == "", "as after a take-over"
        assert hub.push("p", [{"v": 1}]) == 1
        assert answer(hub) == (1, 1)
        assert rounds.failing.attempts == {}


def test_rows_that_have_a_file_are_read_once_they_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To sync a large one takes longer than an epoch may wait."""
    monkeypatch.setattr(segment_files, "IN_RECORD", 0)
    with opened(tmp_path / "home") as (hub, _):
        shown, append = list[Append | None](), RecordLog.append
        intake = hub.loop.engine.intake

        def watched(log: RecordLog, *arguments: Any, **options: Any) -> int:
            shown.append(intake.under_way)
            return append(log, *arguments, **options)

        monkeypatch.setattr(RecordLog, "append", watched)
        hub.push("p", [{"v": 1}])
        assert shown == [None]
        assert answer(hub) == (1, 1)


def test_a_step_reads_ahead_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else pushes that fail one after the other would keep the loop from its end."""
    with opened(tmp_path / "home") as (hub, executor):
        hub.push("p", [{"v": 1}])
        wanted = hub.loop.engine.intake._waiting.pop("p")[0]
        always = property(lambda _: Append((wanted,)), lambda *_: None)
        monkeypatch.setattr(Intake, "under_way", always)
        assert hub.loop.step() is None
        assert executor.epochs == 1


def test_an_interrupt_after_the_append_leaves_a_record_that_is_read_and_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "home") as (hub, _):
        enqueue: Callable[..., None] = Intake._enqueue

        def interrupted(*arguments: Any) -> None:
            monkeypatch.setattr(Intake, "_enqueue", enqueue)
            raise KeyboardInterrupt

        monkeypatch.setattr(Intake, "_enqueue", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hub.push("p", [{"v": 1}], producer="me", sequence=0)
        assert hub.loop.engine.intake.under_way is None
        assert answer(hub) == (1, 1)
        assert hub.push("p", [{"v": 1}], producer="me", sequence=0) == 1
        assert answer(hub) == (1, 1)


@pytest.mark.parametrize("are_logged", [False, True])
def test_an_append_whose_thread_was_interrupted_at_its_end_is_not_read_again(
    tmp_path: Path, are_logged: bool
) -> None:
    with opened(tmp_path / "home") as (hub, executor):
        hub.push("p", [{"v": 1}])
        intake = hub.loop.engine.intake
        (read,) = intake.waiting("p")
        assert answer(hub) == (1, 1)
        intake.under_way = Append((read,), are_logged)
        assert answer(hub) == (1, 1)
        assert executor.epochs == 1
        ahead = replace(read, ordinal=read.ordinal + 1)
        intake.under_way = Append((ahead,))  # never logged
        assert answer(hub) == (1, 1)
        assert intake.under_way is None
        hub.push("p", [{"v": 10}])
        assert answer(hub) == (2, 11)


def interrupt_queueing(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """The next record that is queued is interrupted, before or after it is."""
    enqueue: Callable[..., None] = Intake._enqueue

    def interrupted(*arguments: Any) -> None:
        monkeypatch.setattr(Intake, "_enqueue", enqueue)
        if after:
            enqueue(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Intake, "_enqueue", interrupted)


@pytest.mark.parametrize("after", [False, True])
def test_in_a_running_hub_an_interrupted_push_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    with opened(tmp_path / "home") as (hub, _), hub.running():
        for number in range(5):
            interrupt_queueing(monkeypatch, after=after)
            with pytest.raises(KeyboardInterrupt):
                hub.push("p", [{"v": number}], producer="me", sequence=number)
            hub.catch_up()
            hub.push("p", [{"v": number}], producer="me", sequence=number)
        hub.catch_up()
        assert sorted(emitted(hub)) == list(range(5))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("second", ["p", "other"])
def test_a_push_after_an_interrupted_one_does_not_hide_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, after: bool
) -> None:
    with opened(tmp_path / "home") as (hub, _):
        interrupt_queueing(monkeypatch, after=after)
        with pytest.raises(KeyboardInterrupt):
            hub.push("p", [{"v": 1}], producer="me", sequence=0)
        hub.push(second, [{"v": 100}], producer="you", sequence=0)
        assert hub.push("p", [{"v": 1}], producer="me", sequence=0) == 1
        hub.run_once()
        assert emitted(hub) + emitted(hub, "others") == [1, 100]
        assert len(list(hub.home.ingest_log.read())) == 2


class Interrupted(Append):
    """The thread of the append is interrupted once all of its records are queued."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "are_logged" and value:
            raise KeyboardInterrupt
        super().__setattr__(name, value)


@pytest.mark.parametrize("are_queued", [False, True])
def test_a_push_in_an_append_that_another_thread_left_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_queued: bool
) -> None:
    with opened(tmp_path / "home") as (hub, _), ThreadPoolExecutor(1) as pool:
        intake = hub.loop.engine.intake
        with intake.lock:
            waits = pool.submit(hub.push, "p", [{"v": 2}])
            while not intake._arrivals:
                time.sleep(0.001)
            with monkeypatch.context() as patched:
                if are_queued:
                    patched.setattr(ingest_queue, "Append", Interrupted)
                else:
                    interrupt_queueing(patched, after=False)
                with pytest.raises(KeyboardInterrupt):
                    hub.push("p", [{"v": 1}])
            hub.push("other", [{"v": 100}])
        assert waits.result(LONG) == 1
        hub.run_once()
        assert sorted(emitted(hub)) == [1, 2]


class FullDisk(Disk):
    """Refuses all writes while it is full."""

    is_full = False

    def write(self, descriptor: int, parts: Any) -> int:
        if FullDisk.is_full:
            raise OSError(FULL, os.strerror(FULL))
        return super().write(descriptor, parts)


@pytest.mark.parametrize("pushes", [1, 40])
def test_pushes_that_a_full_disk_refuses_do_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pushes: int
) -> None:
    monkeypatch.setattr("headrace.store.files.filesystem.Disk", FullDisk)  # of tasks, too
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2, retries=Retries(()), disk=FullDisk()) as hub:
        hub.execute(SCRIPT)
        hub.run_once()
        with hub.running():
            monkeypatch.setattr(FullDisk, "is_full", True)
            for number in range(pushes):
                with pytest.raises(PushFailed, match="is full"):
                    hub.push("p", [{"v": number}])
            monkeypatch.setattr(FullDisk, "is_full", False)
            assert hub.loop.is_running
            assert hub.loop.supervisor.failed == 0
            hub.push("p", [{"v": 7}])
            hub.catch_up()
        assert emitted(hub) == [7]


def test_an_epoch_leaves_a_push_to_the_thread_that_waits_for_it(tmp_path: Path) -> None:
    """Else an append that fails would be an epoch that fails."""
    with opened(tmp_path / "home") as (hub, _):
        intake, definition = hub.loop.engine.intake, hub.home.catalog.stream("p")
        assert definition is not None
        record = record_with_rows(definition, as_rows(definition, [{"v": 5}]), "one", 0)
        assert record is not None
        arrival = Arrival(record, definition, ())
        intake._arrivals.append(arrival)
        assert hub.loop.step() is None
        assert list(intake._arrivals) == [arrival]
        assert not list(hub.home.ingest_log.read())


def test_an_epoch_over_a_backlog_reads_nothing_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "home") as (hub, executor):
        hub.push("p", [{"v": number} for number in range(5)])
        monkeypatch.setattr(live_input, "_FEW_ROWS", 4)
        disk = FaultyDisk(full_at=1)
        with stepping(hub, executor, disk) as meanwhile, pytest.raises(PushFailed):
            hub.push("p", [{"v": 100}])
        seen = meanwhile.seen()
        assert seen is not None
        assert (seen.rows, executor.epochs) == (5, 1)


def test_epochs_without_new_rows_wait_for_no_append(tmp_path: Path) -> None:
    """An append of an earlier step that took nothing: ordinals of results are not those of the log."""
    with opened(tmp_path / "home") as (hub, _):
        hub.execute("""CREATE STREAM t (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at;
            CREATE QUERY below AS SELECT COUNT(*) AS n FROM t [RANGE TUMBLING 5 SECONDS];
            CREATE QUERY above AS SELECT SUM(n) AS s FROM below""")
        hub.push("t", [{"at": dt.datetime.fromtimestamp(second, dt.UTC), "v": 1} for second in (0, 10, 20)])
        hub.run_once()
        hub.loop.engine._append = Append((Pending(0, "p", 1, 1, {}),))
        hub.loop.seal()
        assert hub.query("above").invoke().column("s").to_pylist() == [3]


def test_an_interrupt_between_records_of_an_append_queues_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of several threads: the first is queued when the second is interrupted."""
    with opened(tmp_path / "home") as (hub, _):
        enqueue: Callable[..., None] = Intake._enqueue
        intake, others = hub.loop.engine.intake, hub.home.catalog.stream("p")
        assert others is not None

        def interrupted(*arguments: Any) -> None:
            enqueue(*arguments)
            monkeypatch.setattr(Intake, "_enqueue", enqueue)
            raise KeyboardInterrupt

        monkeypatch.setattr(Intake, "_enqueue", interrupted)
        for number in (5, 6):
            record = record_with_rows(others, as_rows(others, [{"v": number}]), f"one-{number}", 0)
            assert record is not None
            record = replace(
                record, producer=f"thread-{number}", sequence=0, digest=f"{number}"
            )  # as each push
            intake._arrivals.append(Arrival(record, others, (), may_wait=True))
        with pytest.raises(KeyboardInterrupt):
            intake.log_queued()
        assert answer(hub) == (2, 11)
        assert sorted(emitted(hub)) == [5, 6]


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_pushes_that_fail_at_random_count_once_in_a_running_hub(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    with opened(tmp_path / "home") as (hub, _), hub.running():
        for number in range(60):
            for _ in range(50):
                faulty = draw.random() < 0.4
                disk = FaultyDisk(
                    trouble=Trouble(draw.randrange(8), FULL, draw.choice(["before", "after"]))
                    if faulty
                    else None
                )
                log_on(hub, disk)
                with suppress(PushFailed):
                    hub.push("p", [{"v": number}], producer="me", sequence=number)
                    break
            else:
                raise AssertionError(f"batch {number} was refused 50 times")
        log_on(hub, Disk())
        hub.catch_up()
        assert sorted(emitted(hub)) == list(range(60))
    with opened(tmp_path / "home") as (hub, _):
        assert answer(hub) == (60, sum(range(60)))

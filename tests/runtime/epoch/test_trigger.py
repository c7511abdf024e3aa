"""When an epoch begins: at once when there is something for it, without a beat; what arrives meanwhile is the next one."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.sources.segment_files import as_rows
from headrace.errors import PushFailed, StoreError, UserError
from headrace.runtime.epoch import loop
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest import pushed_rows
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.store.logs.record_log import INGEST_LOG, RecordLog
from headrace.time import SECOND, now

SCRIPT = "CREATE STREAM p (v BIGINT) USING push; CREATE QUERY q AS SELECT v FROM p"
LONG = 60.0
"""Seconds after which a test that waits in vain fails."""


@pytest.fixture(autouse=True)
def nobody_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who wait for an epoch are woken, or wait in vain."""
    monkeypatch.setattr(loop, "_WAIT_SECONDS", 10 * LONG)


class Held(LocalExecutor):
    """An executor whose epochs with rows last until they are released."""

    def __init__(self) -> None:
        self.began, self.released = threading.Semaphore(0), threading.Semaphore(0)

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        if scans:
            self.began.release()
            assert self.released.acquire(timeout=LONG)
        return super().run(scans, states)


def opened(folder: Path, executor: LocalExecutor | None = None, clock: Any = now) -> Hub:
    return Hub(folder, executor or LocalExecutor(), clock=clock, tasks=2, retries=Retries(()))


def followed(hub: Hub) -> Iterator[list[int]]:
    """What each epoch answers."""
    for table in hub.query("q").follow(0):
        yield table.column("v").to_pylist()


def steps_of(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each step that the loop takes, whether it lists files."""
    steps: list[bool] = []
    step = type(hub.loop.engine).step

    def counted(engine: Any, **how: Any) -> Any:
        steps.append(how["polls"])
        return step(engine, **how)

    monkeypatch.setattr(type(hub.loop.engine), "step", counted)
    return steps


def test_rows_begin_an_epoch_and_an_idle_loop_takes_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as hub, ThreadPoolExecutor(1) as pool:
        hub.execute(SCRIPT)
        steps = steps_of(hub, monkeypatch)
        with hub.running():
            answers = followed(hub)
            for number in range(20):
                hub.push("p", [{"v": number}])
                assert pool.submit(next, answers).result(LONG) == [number]
            assert hub.loop._patience() is None
    # A push may come between the wake-up for the one before and the end of its epoch: then one step finds nothing.
    assert len(steps) <= 2 * 20 + 2


def test_statements_and_promises_begin_an_epoch(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute("CREATE STREAM p (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        with hub.running():
            for statement in (
                lambda: hub.execute(
                    "CREATE QUERY n AS SELECT COUNT(*) AS n FROM p [RANGE TUMBLING 1 SECOND]"
                ),
                lambda: hub.punctuate("p", 5 * SECOND),
                lambda: hub.execute("DROP QUERY n"),
            ):
                epoch = hub.loop.engine.published.epoch
                statement()
                waited = threading.Thread(target=hub.loop.wait_for_epoch_after, args=(epoch,), daemon=True)
                waited.start()
                waited.join(LONG)
                assert hub.loop.engine.published.epoch > epoch


def test_files_are_listed_at_their_own_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many epochs rows begin: here none but the first lists files."""
    monkeypatch.setattr(loop, "POLL_SECONDS", 10 * LONG)
    (tmp_path / "in").mkdir()
    with opened(tmp_path / "home") as hub, ThreadPoolExecutor(1) as pool:
        hub.execute(SCRIPT)
        hub.execute(f"CREATE STREAM f (v BIGINT) USING csv OPTIONS (path '{tmp_path}/in')")
        steps = steps_of(hub, monkeypatch)
        with hub.running():
            answers = followed(hub)
            for number in range(5):
                hub.push("p", [{"v": number}])
                assert pool.submit(next, answers).result(LONG) == [number]
            patience = hub.loop._patience()
            assert patience is not None
            assert patience > LONG
    assert steps.count(True) == 1


def test_a_push_returns_while_an_epoch_is_under_way_and_its_rows_are_the_next_epoch(tmp_path: Path) -> None:
    executor = Held()
    with opened(tmp_path, executor) as hub, ThreadPoolExecutor(2) as pool:
        hub.execute(SCRIPT)
        with hub.running():
            answers = followed(hub)
            hub.push("p", [{"v": 0}])
            assert executor.began.acquire(timeout=LONG)
            for number in (1, 2):
                pool.submit(hub.push, "p", [{"v": number}], producer="me", sequence=number).result(LONG)
            assert pool.submit(hub.pushed, "p", "me").result(LONG) == 2
            pool.submit(hub.punctuate, "p", 0).result(LONG)
            executor.released.release(2)
            assert pool.submit(next, answers).result(LONG) == [0]
            assert pool.submit(next, answers).result(LONG) == [1, 2]


def test_pushes_under_way_are_one_append_and_each_counts_once(tmp_path: Path) -> None:
    with opened(tmp_path) as hub, ThreadPoolExecutor(6) as pool:
        hub.execute(SCRIPT)
        intake = hub.loop.engine.intake
        with intake.lock:
            pushes = [pool.submit(hub.push, "p", [{"v": number}]) for number in range(6)]
            while len(intake._arrivals) < 6:
                threading.Event().wait(0.001)
        assert [push.result(LONG) for push in pushes] == [1] * 6
        assert [len(chunk.records) for chunk in RecordLog(hub.home.store, INGEST_LOG).chunks()] == [6]
        hub.catch_up()
        assert sorted(v for values in followed(hub) for v in values) == list(range(6))


def test_one_producer_s_batches_under_way_are_logged_in_turn_and_a_repeated_one_once(tmp_path: Path) -> None:
    with opened(tmp_path) as hub, ThreadPoolExecutor(6) as pool:
        hub.execute(SCRIPT)
        intake = hub.loop.engine.intake
        with intake.lock:
            pushes = [pool.submit(pushed_rows.ingest, intake, *_batch(hub, 7)) for _ in range(4)]
            while len(intake._arrivals) < 4:
                threading.Event().wait(0.001)
        for push in pushes:
            push.result(LONG)
        assert [len(chunk.records) for chunk in RecordLog(hub.home.store, INGEST_LOG).chunks()] == [1]


def _batch(hub: Hub, sequence: int) -> tuple[Any, ...]:
    """What a push of one row is once it has been read."""
    definition = hub.stream_definition("p")
    table = as_rows(definition, [{"v": sequence}])
    return definition, table, pushed_rows.content_digest(table), "me", sequence


def test_an_append_that_fails_fails_for_each_of_its_pushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as hub, ThreadPoolExecutor(3) as pool:
        hub.execute(SCRIPT)
        intake = hub.loop.engine.intake
        with monkeypatch.context() as broken:

            def refuse(*_: Any, **__: Any) -> int:
                raise StoreError("no", outcome="absent")

            broken.setattr(RecordLog, "append", refuse)
            with intake.lock:
                pushes = [pool.submit(hub.push, "p", [{"v": number}]) for number in range(3)]
                while len(intake._arrivals) < 3:
                    threading.Event().wait(0.001)
            failures = [push.exception(LONG) for push in pushes]
        for number, failure in enumerate(failures):
            assert isinstance(failure, PushFailed)
            assert failure.outcome == "absent"
            hub.push("p", [{"v": 9}])  # another batch does not take its number
            hub.push("p", [{"v": number}], producer=failure.producer, sequence=failure.sequence)
        hub.catch_up()
        assert sorted(v for values in followed(hub) for v in values) == [0, 1, 2, 9, 9, 9]


def test_an_append_that_took_effect_and_failed_acknowledges_each_of_its_pushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first that asks finds the records of all; so must those that ask after it."""
    with opened(tmp_path) as hub, ThreadPoolExecutor(3) as pool:
        hub.execute(SCRIPT)
        intake, append = hub.loop.engine.intake, RecordLog.append
        with monkeypatch.context() as broken:

            def forget(*args: Any, **how: Any) -> int:
                append(*args, **how)
                raise StoreError("no answer", outcome="unknown")

            broken.setattr(RecordLog, "append", forget)
            with intake.lock:
                pushes = [pool.submit(hub.push, "p", [{"v": number}]) for number in range(3)]
                while len(intake._arrivals) < 3:
                    threading.Event().wait(0.001)
            assert [push.result(LONG) for push in pushes] == [1, 1, 1]
        hub.catch_up()
        assert sorted(v for values in followed(hub) for v in values) == [0, 1, 2]


def test_rows_of_a_stream_that_is_dropped_during_the_push_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when another stream of that name is there by then: its columns are others."""
    with opened(tmp_path) as hub:
        for again in ("", "CREATE STREAM p (w BIGINT) USING push"):
            hub.execute("CREATE STREAM p (v BIGINT) USING push")
            write = pushed_rows._written

            def dropped_before(*args: Any, write: Any = write, again: str = again, **how: Any) -> Any:
                hub.execute(f"DROP STREAM p; {again}")
                return write(*args, **how)

            with monkeypatch.context() as patched:
                patched.setattr(pushed_rows, "_written", dropped_before)
                with pytest.raises(UserError, match="stream 'p' was dropped meanwhile"):
                    hub.push("p", [{"v": 1}])
            assert hub.home.ingest_log.length == 0


def test_a_row_whose_push_is_under_way_holds_the_heartbeat_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has arrived in time, but is in the log only after the clock has passed its time and the delay."""
    clock = [100 * SECOND]
    with opened(tmp_path, clock=lambda: clock[0]) as hub, ThreadPoolExecutor(2) as pool:
        hub.execute(
            "CREATE STREAM p (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at"
            " HEARTBEAT EVERY INTERVAL 1 SECOND DELAY INTERVAL 1 SECOND"
        )
        hub.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM p [RANGE TUMBLING 1 SECOND]")
        hub.catch_up()
        entered, go = threading.Event(), threading.Event()
        append = RecordLog.append

        def slow(*args: Any, **how: Any) -> int:
            entered.set()
            assert go.wait(LONG)
            return append(*args, **how)

        monkeypatch.setattr(RecordLog, "append", slow)
        row = {"at": dt.datetime.fromtimestamp(100, dt.UTC), "v": 1}
        pushed = pool.submit(hub.push, "p", [row])
        assert entered.wait(LONG)
        clock[0] += 10 * SECOND
        stepped = pool.submit(hub.loop.step)
        stepped.exception(0.5) if stepped.done() else threading.Event().wait(0.2)
        go.set()
        pushed.result(LONG)
        stepped.result(LONG)
        hub.catch_up()
        committed = hub.home.latest().stream("p")
        assert (committed.rows, committed.late) == (1, 0)


def test_rows_wait_for_others_as_long_as_the_latency_allows(tmp_path: Path) -> None:
    clock = [100 * SECOND]
    with opened(tmp_path, clock=lambda: clock[0]) as hub, ThreadPoolExecutor(1) as pool:
        hub.execute(SCRIPT.replace("push;", "push OPTIONS (latency '1 HOUR');"))
        with hub.running():
            answers = followed(hub)
            hub.push("p", [{"v": 0}])
            clock[0] += 60 * SECOND
            hub.push("p", [{"v": 1}])
            while hub.loop.engine.gathers_until is None:
                threading.Event().wait(0.001)
            assert hub.loop.engine.gathers_until == 3700 * SECOND
            patience = hub.loop._patience()
            assert patience is not None
            assert patience <= 3540
            clock[0] = 3700 * SECOND
            hub.loop.engine.intake.news.set()  # the clock of the test wakes no one
            assert pool.submit(next, answers).result(LONG) == [0, 1]
            hub.push("p", [{"v": 2}])
            hub.execute(
                "CREATE QUERY other FROM NOW AS SELECT v FROM p"
            )  # begins an epoch, which takes them along
            assert pool.submit(next, answers).result(LONG) == [2]
            hub.push("p", [{"v": 3}])
        hub.catch_up()  # a caller that asks for all there is does not wait
        assert [v for values in followed(hub) for v in values] == [0, 1, 2, 3]
    with opened(tmp_path) as hub:
        described = hub.execute("DESCRIBE EXTENDED p")[0].table
        assert described is not None
        assert {"property": "latency", "value": "1 HOUR"} in described.to_pylist()


def test_an_epoch_is_measured_once_those_who_wait_for_it_had_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    has_rows, poll = threading.Event(), threading.Event()
    monkeypatch.setattr(loop.Loop, "_pause", lambda _: order.append(f"paused {has_rows.wait(LONG)}"))
    with opened(tmp_path) as hub, ThreadPoolExecutor(1) as pool:
        hub.execute(SCRIPT)
        hub.run_once()
        answers = followed(hub)
        with hub.running():
            waits = pool.submit(lambda: (next(answers), has_rows.set()))
            while not hub.loop._waiting:
                poll.wait(0.001)
            hub.on_epoch(lambda _: order.append("measured"))
            hub.push("p", [{"v": 1}])
            assert waits.result(LONG)[0] == [1]
    assert order[-2:] == ["paused True", "measured"]


def test_the_pause_ends_when_those_who_waited_wait_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_HANDOVER_SECONDS", 2 * LONG)
    poll = threading.Event()
    with opened(tmp_path) as hub, ThreadPoolExecutor(2) as pool:
        hub.execute(SCRIPT)
        hub.run_once()
        streams = [followed(hub), followed(hub)]
        with hub.running():
            for number in range(3):
                waits = [pool.submit(next, answers) for answers in streams]
                while hub.loop._waiting < len(streams):
                    poll.wait(0.001)
                hub.push("p", [{"v": number}])
                assert [wait.result(LONG) for wait in waits] == [[number], [number]]
            waits = [pool.submit(next, answers, None) for answers in streams]  # the last pause ends, too
            hub.push("p", [{"v": 3}])
            assert [wait.result(LONG) for wait in waits] == [[3], [3]]
            waits = [pool.submit(next, answers, None) for answers in streams]


def test_an_epoch_that_nobody_waits_for_has_no_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[None] = []
    monkeypatch.setattr(loop.Loop, "_pause", lambda _: pauses.append(None))
    with opened(tmp_path) as hub:
        hub.execute(SCRIPT)
        hub.push("p", [{"v": 0}])
        hub.run_once()
        assert hub.query("q").history().num_rows == 1
    assert pauses == []

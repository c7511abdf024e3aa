"""A failed epoch is tried again by a new incarnation, a bounded number of times; what cannot pass is reported at once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.connectors.records.ingest_record import SourceChanged
from headrace.errors import AlreadyPublished, CorruptStore, EpochFailed, StoreError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries, may_pass
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.epoch_log import EpochLog
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.store.files import filesystem
from headrace.store.files.filesystem import MissingFile, NotPermitted
from headrace.store.files.lock import HomeLock
from tests.runtime.rig import QUERIES, Rig, answers, cut, expected, faults_once_tidy, made_rows
from tests.store.faults import FaultyDisk

FEW = {name: QUERIES[name] for name in ("tumble", "slide", "now", "some")}
FILES = cut(made_rows(61, 30), *range(6, 30, 6))
AT_ONCE = (0.0, 0.0, 0.0)


class Failing(LocalExecutor):
    """The next `left` jobs fail after their tasks have written everything."""

    def __init__(self, left: int = 0, failure: Exception | None = None) -> None:
        self.left, self.tries, self.revived = left, 0, 0
        self.failure = failure or EpochFailed("lost an executor")

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        self.tries += 1
        receipts = super().run(scans, states)
        if self.left:
            self.left -= 1
            raise self.failure
        return receipts

    def revive(self) -> bool:
        self.revived += 1
        return False


def rig_of(folder: Path) -> Rig:
    rig = Rig(folder, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES)
    return rig


def logged(hub: Hub) -> list[dict]:
    """The failures in `epochs.jsonl`."""
    lines = [json.loads(line) for line in (hub.path / "epochs.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "failure"]


def assert_right(hub: Hub) -> None:
    for name, rows in answers(hub, hub.run_once()).items():
        assert rows == expected(hub.operator_and_query(name)[1], FILES), name
    assert hub.status()["streams"]["s"]["rows"] == 30
    assert faults_once_tidy(hub) == []


def test_a_failed_epoch_is_tried_again_as_a_new_incarnation_and_reported(tmp_path: Path) -> None:
    executor = Failing(2, OSError(errno.EIO, "Input/output error"))
    heard = []
    with rig_of(tmp_path).hub(2, FEW, executor=executor, waits=AT_ONCE) as hub:
        hub.on_failure(heard.append)
        before = hub.home.latest()
        assert_right(hub)
        assert executor.revived == 2
        assert hub.home.latest().incarnation == before.incarnation + 2
        known = hub.status()["failures"]
        assert (known["count"], known["failing"]) == (2, False)
        assert known["last"]["attempt"] == 2
        assert known["last"]["incarnation"] == before.incarnation + 1
        assert [failure.as_dict() for failure in heard] == logged(hub)
        assert [line["attempt"] for line in logged(hub)] == [1, 2]
        assert {(line["error"], line["attempts"]) for line in logged(hub)} == {("OSError", 4)}
        assert "Input/output error" in logged(hub)[0]["message"]


def test_failures_far_apart_are_counted_anew_for_each_epoch(tmp_path: Path) -> None:
    executor = Failing()
    with rig_of(tmp_path).hub(2, FEW, executor=executor, waits=AT_ONCE[:1]) as hub:

        def fail_next(_: object) -> None:
            executor.left = 1

        hub.on_epoch(fail_next)
        hub.catch_up()
        hub._listeners.clear()
        executor.left = 0
        assert hub.status()["failures"]["count"] >= 4
        assert_right(hub)


def test_an_epoch_that_always_fails_ends_with_what_where_and_the_remedy(tmp_path: Path) -> None:
    executor = Failing(1000)
    with rig_of(tmp_path).hub(2, FEW, executor=executor, waits=AT_ONCE) as hub:
        epoch = hub.home.latest().epoch
        with pytest.raises(EpochFailed) as raised:
            hub.run_once()
        assert executor.tries == 4
        for words in (
            "failed 4 times in a row",
            "lost an executor",
            str(hub.path),
            "start again",
            "epochs.jsonl",
        ):
            assert words in str(raised.value)
        # Takeovers are epochs too, three of them; nothing else was published.
        assert hub.home.latest().epoch == epoch + 3
        assert hub.home.latest().kind == "takeover"
        assert hub.status()["failures"]["failing"]
        assert logged(hub)[-1]["retry_after"] is None
        executor.left = 0
        assert_right(hub)
        assert not hub.status()["failures"]["failing"]


def test_a_mistake_of_the_users_is_not_tried_again(tmp_path: Path) -> None:
    executor = Failing()
    with rig_of(tmp_path).hub(2, FEW, executor=executor, waits=AT_ONCE) as hub:
        hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())
        gone = tmp_path / "in" / "000000.parquet"
        gone.unlink()
        with pytest.raises(SourceChanged, match="found that it is gone"):
            hub.run_once()
        assert executor.tries == 1
        assert hub.status()["failures"]["count"] == 0
        assert logged(hub) == []


@pytest.mark.parametrize(
    ("failure", "passes"),
    [
        (EpochFailed("lost an executor"), True),
        (StoreError("the disk is full"), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (EpochFailed("a task failed: KeyError", lasting=True), False),
        (SourceChanged("a file has changed"), False),
        (CorruptStore("a file is damaged"), False),
        (MissingFile("a file is gone"), False),
        (NotPermitted("not yours"), False),
        (AlreadyPublished("another driver is here"), False),
        (KeyError("a bug"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_only_what_may_pass_is_tried_again(failure: BaseException, passes: bool) -> None:
    assert may_pass(failure) is passes


def test_the_background_loop_recovers_and_followers_miss_nothing(tmp_path: Path) -> None:
    executor = Failing(3)
    with rig_of(tmp_path).hub(2, FEW, executor=executor, waits=AT_ONCE) as hub:
        done = threading.Event()
        wanted = sum(row["x"] > 3 for file in FILES for row in file)

        def see(_: object) -> None:
            if hub.status()["streams"]["s"]["rows"] == 30:
                done.set()

        hub.on_epoch(see)
        hub.start()
        assert done.wait(60)
        hub.stop()
        assert len(hub.query("some").history()) == wanted
        assert hub.status()["failures"]["count"] == 3
        assert_right(hub)


def test_waiting_for_the_next_attempt_ends_when_the_loop_is_stopped(tmp_path: Path) -> None:
    executor = Failing(1000)
    with rig_of(tmp_path).hub(2, FEW, executor=executor, waits=(3600.0,)) as hub:
        failed = threading.Event()
        hub.on_failure(lambda _: failed.set())
        hub.start()
        assert failed.wait(60)
        with pytest.raises(EpochFailed, match="lost an executor"):
            hub.stop()
        assert executor.tries == 1
        executor.left = 0
        assert_right(hub)


def test_a_driver_that_was_replaced_does_not_take_the_home_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rig_of(tmp_path)
    monkeypatch.setattr(HomeLock, "acquire", lambda self: self)
    with rig.hub(2, FEW, executor=Failing(1), waits=AT_ONCE) as old, rig.hub(3) as new:
        with pytest.raises(AlreadyPublished, match="another process has taken over"):
            old.run_once()
        assert_right(new)
        assert new.home.latest().incarnation == new.home.incarnation


# -- disks --------------------------------------------------------------------------------------------------------------


def failing_disk(fails: Callable[[int, str], bool]) -> FaultyDisk:
    """A disk on which the calls fail that `fails` picks by number and name."""
    disk = FaultyDisk()

    def look(name: str) -> None:
        number = len(disk.trace)
        if fails(number, name):
            disk.trace.append(f"failed {name}")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.before_call = look
    return disk


def run_on(folder: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> int:
    """Two epochs on that disk, opened on a good one; how many attempts failed."""
    rig = Rig(folder, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES[:2])
    with rig.hub(1, {"slide": FEW["slide"]}, waits=AT_ONCE) as hub:
        with monkeypatch.context() as bad:
            bad.setattr(filesystem, "Disk", lambda: disk)
            bad.setattr(hub.home.store, "_disk", disk)
            hub.catch_up()
        answered = answers(hub, hub.run_once())["slide"]
        assert answered == expected(hub.operator_and_query("slide")[1], FILES[:2])
        assert hub.status()["streams"]["s"]["rows"] == 12
        assert faults_once_tidy(hub) == []
        return hub.status()["failures"]["count"]


def test_a_disk_that_is_full_for_one_call_costs_no_row_whichever_call_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = failing_disk(lambda *_: False)
    assert run_on(tmp_path / "whole", whole, monkeypatch) == 0
    calls = [number for number, name in enumerate(whole.trace) if name not in {"unlink", "mkdir"}]
    failed = 0
    for call in calls[::2]:
        failed += run_on(
            tmp_path / str(call), failing_disk(lambda number, _, call=call: number == call), monkeypatch
        )
    assert failed > 10


@pytest.mark.parametrize("call", ["create", "write", "fsync", "link", "fsync_folder"])
def test_a_takeover_that_fails_or_is_in_doubt_is_tried_again_too(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def fails(number: int, name: str) -> bool:
        """Two calls of that name, one after the other: of an epoch, then of the takeover after it."""
        if name == call and number > 20 and len(failed) < 2:
            failed.append(number)
            return True
        return False

    assert run_on(tmp_path, failing_disk(fails), monkeypatch) == 2


def test_a_log_of_epochs_that_cannot_be_written_waits_and_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EpochLog(tmp_path)
    log.write({"epoch": 1})

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        log.write({"epoch": 2})
        assert log.waiting > 0
    log.write({"epoch": 3})
    log.close()
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "epochs.jsonl").read_text().splitlines()]
    assert epochs == [1, 2, 3]


# -- Spark --------------------------------------------------------------------------------------------------------------


LOST = textwrap.dedent(
    """
    import json, os, signal, sys
    from pathlib import Path
    from pyspark import SparkContext
    import headrace as hr
    from tests.runtime.rig import QUERIES, Rig

    rig = Rig(Path(sys.argv[1]), {"maxFilesPerTrigger": "1"})
    with hr.open(rig.home, cores=1, brief=True) as hub:
        hub.execute(rig.script({"some": QUERIES["some"]}))
        hub.loop.step()
        first = SparkContext._gateway.proc.pid
        os.kill(first, signal.SIGKILL)
        hub.run_once()
        rows = hub.status()["streams"]["s"]["rows"]
        print(json.dumps([rows, hub.status()["failures"]["last"]["message"], SparkContext._gateway.proc.pid != first]))
    print(sorted(each.name for each in rig.home.glob("spark-*")))
    """
)


@pytest.mark.spark
def test_a_lost_jvm_is_replaced_and_the_epoch_done_again(tmp_path: Path) -> None:
    rig_of(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", LOST, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    report, left = ran.stdout.splitlines()
    rows, message, is_another = json.loads(report)
    assert rows == 30
    assert "JVM that runs Spark is gone" in message
    assert is_another
    assert left == "[]"
    assert ran.stderr == ""


def test_as_many_attempts_as_waits_and_one(tmp_path: Path) -> None:
    assert Retries(()).attempts == 1
    assert Retries().attempts == 5

"""Backpressure: a push waits for room while epochs run, is refused with a reason where there will be none, and is counted once in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.catalog.definitions import StreamDefinition
from headrace.errors import PushFailed, UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.ingest.backpressure import Backpressure
from headrace.server.metrics import HubMetrics
from headrace.time import SECOND
from tests.overload.slow_machine import START

STREAM = "CREATE STREAM s (at TIMESTAMP, v INT) USING push OPTIONS (mostWaiting '10') TIMESTAMP BY at"
COUNTED = "CREATE QUERY q AS SELECT v FROM s"


def rows(first: int, count: int = 10) -> list[dict[str, int]]:
    return [{"at": START + number * SECOND, "v": number} for number in range(first, first + count)]


def made(path: Path, stream: str = STREAM) -> Hub:
    hub = Hub(path, LocalExecutor())
    hub.execute(f"{stream}; {COUNTED}")
    hub.catch_up()
    return hub


def answers(hub: Hub) -> list[int]:
    return sorted(hub.query("q").history()["v"].to_pylist())


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.001)


class NoOneWaits:
    """In place of what a push waits for."""

    def __enter__(self) -> None:
        raise AssertionError("a push waits, and no epochs run")

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...


def test_without_epochs_a_push_beyond_what_may_wait_is_refused_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(tmp_path / "home") as hub, monkeypatch.context() as patch:
        hub.push("s", rows(0))
        patch.setattr(hub.loop.engine.intake, "taken", NoOneWaits())
        with pytest.raises(
            PushFailed, match="10 rows wait for an epoch, the option mostWaiting allows 10"
        ) as refused:
            hub.push("s", rows(10))
        assert refused.value.outcome == "absent"
        assert hub.status()["backpressure"] == {"waited": 1, "refused": 1}
        assert (
            '\nheadrace_pushes_without_room_total{outcome="refused"} 1.0\n' in HubMetrics(hub).text().decode()
        )
        patch.undo()
        hub.catch_up()
        again = refused.value.producer, refused.value.sequence
        for _ in range(2):
            hub.push("s", rows(10), producer=again[0], sequence=again[1])
        hub.catch_up()
        assert answers(hub) == list(range(20))


def test_a_repetition_of_what_is_there_does_not_wait(tmp_path: Path) -> None:
    with made(tmp_path / "home") as hub:
        for _ in range(2):
            hub.push("s", rows(0), producer="p", sequence=0)
        assert hub.status()["backpressure"] == {"waited": 0, "refused": 0}


def test_while_epochs_run_a_push_waits_until_one_has_made_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, full = list[str | None](), Backpressure._full

    def noted(of: Backpressure, stream: StreamDefinition) -> str | None:
        seen.append(full(of, stream))
        return seen[-1]

    monkeypatch.setattr(Backpressure, "_full", noted)
    with made(tmp_path / "home") as hub, hub.running():
        with hub.loop.lock:  # no epoch begins
            hub.push("s", rows(0))
            pushing = threading.Thread(target=hub.push, args=("s", rows(10)))
            pushing.start()
            wait_until(lambda: len(seen) > 4)
            assert pushing.is_alive()
        pushing.join(60)
        assert not pushing.is_alive()
        hub.push("s", rows(20))
        hub.catch_up()
        assert answers(hub) == list(range(30))
        assert hub.status()["backpressure"]["refused"] == 0


def test_a_push_that_waits_too_long_is_refused(tmp_path: Path) -> None:
    with made(tmp_path / "home") as hub, hub.running():
        hub.backpressure.patience = 0.0
        with hub.loop.lock:
            hub.push("s", rows(0))
            with pytest.raises(PushFailed):
                hub.push("s", rows(10))
        hub.catch_up()
        assert answers(hub) == list(range(10))


def test_rows_do_not_fill_the_reserve_of_a_disk_and_epochs_go_on(tmp_path: Path) -> None:
    with made(tmp_path / "home", STREAM.replace("OPTIONS (mostWaiting '10') ", "")) as hub:
        free = 5_000
        hub.backpressure._free = lambda: free
        hub.backpressure.disk_reserve = 4_000
        hub.push("s", rows(0))
        free = 3_999
        with pytest.raises(
            PushFailed, match="the disk of the home has 3,999 bytes left, disk_reserve is 4,000"
        ):
            hub.push("s", rows(10))
        hub.catch_up()
        assert answers(hub) == list(range(10))
        free = 4_000
        hub.push("s", rows(10))
        hub.catch_up()
        assert answers(hub) == list(range(20))


def test_the_reserve_is_given_when_a_hub_is_opened(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True, disk_reserve="1000000 GB") as hub:
        hub.execute(f"{STREAM}; {COUNTED}")
        with pytest.raises(PushFailed, match="disk_reserve"):
            hub.push("s", rows(0))
    with pytest.raises(UserError):
        open_hub(tmp_path / "home", local=True, disk_reserve="much")


def test_mostwaiting_is_a_number_of_rows(tmp_path: Path) -> None:
    with (
        Hub(tmp_path / "home", LocalExecutor()) as hub,
        pytest.raises(UserError, match="option mostWaiting is '0'"),
    ):
        hub.execute(STREAM.replace("'10'", "'0'"))


@pytest.mark.filterwarnings("ignore:the disk of the home")
def test_rows_of_files_wait_while_the_disk_is_nearly_full_and_are_taken_by_themselves_then(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    stream = f"CREATE STREAM f (at TIMESTAMP, v INT) USING csv OPTIONS (path '{folder}', header 'true') TIMESTAMP BY at"
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute(f"{stream}; CREATE QUERY q AS SELECT v FROM f")
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, v INT) USING push TIMESTAMP BY at; CREATE QUERY p AS SELECT v FROM s"
        )
        free = [3_999]
        hub.backpressure._free = lambda: free[0]
        hub.backpressure.disk_reserve = 4_000
        write_rows(folder / "1.csv", 0)
        with pytest.warns(
            RuntimeWarning, match="3,999 bytes left, disk_reserve is 4,000: rows of files and of Spark wait"
        ):
            hub.catch_up()
        assert answers(hub) == []
        assert hub.status()["held_back"] == ["f"]
        with hub.running():
            wait_until(lambda: hub.loop._patience() is not None)
            assert answers(hub) == []
            free[0] = 4_000
            wait_until(lambda: answers(hub) == [0, 1, 2])
        assert hub.status()["held_back"] == []
        free[0] = 3_999
        write_rows(folder / "2.csv", 3)
        hub.catch_up()
        assert answers(hub) == [0, 1, 2]
        hub.backpressure.disk_reserve = 0
        hub.catch_up()
        assert answers(hub) == list(range(6))


def test_rows_that_were_pushed_before_are_read_from_a_full_disk(tmp_path: Path) -> None:
    with made(tmp_path / "home") as hub:
        hub.push("s", rows(0, 5))
        hub.backpressure._free = lambda: 0
        hub.backpressure.disk_reserve = 1
        hub.catch_up()
        assert answers(hub) == list(range(5))
        assert hub.status()["held_back"] == []
        assert hub.loop._patience() is None
        hub.loop.engine.intake.held_back.add("of Spark")
        assert hub.loop._patience() is not None, "nothing wakes the thread when there is room"


@pytest.mark.filterwarnings("ignore:the disk of the home")
def test_a_micro_batch_waits_for_room_until_its_reading_is_stopped(tmp_path: Path) -> None:
    with made(tmp_path / "home") as hub:
        of_spark = replace(hub.stream_definition("s"), using="spark")
        stopped, free = threading.Event(), [0]
        hub.backpressure._free = lambda: free[0]
        assert hub.backpressure.wait_for_room(of_spark, stopped)
        hub.backpressure.disk_reserve = 1
        returned: list[bool] = []

        def wait() -> None:
            returned.append(hub.backpressure.wait_for_room(of_spark, stopped))

        for ends in (lambda: free.append(free.pop() + 1), stopped.set):
            waiting = threading.Thread(target=wait)
            waiting.start()
            wait_until(lambda: hub.backpressure._has_warned)
            assert waiting.is_alive()
            ends()
            waiting.join(60)
            hub.backpressure._has_warned, free[0] = False, 0
        assert returned == [True, False]


def write_rows(path: Path, first: int) -> None:
    path.write_text("at,v\n" + "".join(f"2024-01-01 00:00:{n:02},{n}\n" for n in range(first, first + 3)))

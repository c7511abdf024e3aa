"""Backpressure: a push waits for room while epochs run, is refused with a reason where there will be none, and is counted once in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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

"""Work beneath epochs pauses between its steps, for a share of its time and not for long; a thread holds Python's lock otherwise."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home import background_write
from headrace.runtime.home.background_write import BackgroundWrite, beneath_epochs, give_way
from headrace.runtime.hub.hub import Hub
from headrace.runtime.results.merging import Merger, Merging
from headrace.runtime.samples.joined_runs import Joiner, Joining

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
EPOCHS, DELETED = 100, 20
STEPS = 64
"""Epochs that are joined or merged at once."""


class Watch:
    """A clock that work and pauses move, by milliseconds; each reading of it takes `step` of them."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step
        self.pauses = list[float]()

    def perf_counter(self) -> float:
        self.now += self.step
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.pauses.append(round(1000 * seconds, 6))
        self.now += 1000 * seconds

    def work(self, milliseconds: float) -> None:
        self.now += milliseconds
        give_way()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(background_write, "time", watch)
    return watch


def test_a_pause_is_four_times_the_work_before_it(watch: Watch) -> None:
    with beneath_epochs():
        watch.work(2)
        watch.work(10)
    assert watch.pauses == [8, 40]


def test_steps_that_are_short_are_done_together(watch: Watch) -> None:
    with beneath_epochs():
        for _ in range(7):
            watch.work(0.2)
    assert watch.pauses == [2.4, 2.4]


def test_all_pauses_of_a_piece_of_work_are_half_a_second(watch: Watch) -> None:
    for _ in range(2):
        watch.pauses.clear()
        with beneath_epochs():
            for _ in range(1_000):
                watch.work(1)
        assert sum(watch.pauses) == pytest.approx(500)


def test_only_work_beneath_epochs_pauses(watch: Watch) -> None:
    watch.work(100)
    with pytest.raises(ValueError, match="mistake"), beneath_epochs():
        raise ValueError("a mistake")
    watch.work(100)
    with beneath_epochs():
        other = threading.Thread(target=watch.work, args=(100,))
        other.start()
        other.join()
    assert watch.pauses == []


def test_what_is_written_in_a_thread_is_written_beneath_epochs(watch: Watch) -> None:
    def write() -> str:
        watch.work(3)
        return "written"

    for in_thread in (True, False):
        writing = BackgroundWrite[str]("headrace-test")
        writing.start(write, in_thread=in_thread)
        writing.wait()
        assert writing.taken() == "written"
        assert watch.pauses == [12]


def collect(hub: Hub) -> None:
    housekeeping = hub.loop.engine.housekeeping
    housekeeping.readers = -1
    assert len(housekeeping.collect_retired()) >= DELETED


def join(hub: Hub) -> None:
    streams = list(hub.home.catalog.streams.values())
    assert Joiner(hub.home, hub.loop.engine.published).joined(streams)


def merge(hub: Hub) -> None:
    assert Merger(hub.home, hub.loop.engine.published, lambda _: True).merged()


@pytest.mark.parametrize(
    ("work", "steps"), [(collect, EPOCHS + DELETED), (join, 2 * STEPS), (merge, STEPS + 1)]
)
def test_each_epoch_run_and_file_is_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Hub], None], steps: int
) -> None:
    for kind in (Joining, Merging):
        monkeypatch.setattr(kind, "look", lambda *_, **__: None)
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        hub.execute("CREATE QUERY q AS SELECT v FROM s WHERE v >= 0")
        hub.execute("CREATE QUERY total AS SELECT SUM(v) AS total FROM s [RANGE 1 MINUTE]")
        hub.loop.engine.housekeeping.every = 1_000
        for number in range(EPOCHS):
            hub.push("s", [{"at": START + dt.timedelta(seconds=number), "v": number}])
            hub.loop.drain()
        watch = Watch(step=0.6)
        monkeypatch.setattr(background_write, "time", watch)
        monkeypatch.setattr(background_write, "_PAUSES", 1e9)
        with beneath_epochs():
            work(hub)
        assert len(watch.pauses) >= steps

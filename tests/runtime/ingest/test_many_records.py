"""Many records that wait: epochs admit them, and what an epoch reads and publishes takes work by the record, not by pairs of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest.admission import Admission, Pending
from headrace.runtime.ingest.clock_punctuation import clock_punctuations
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.schema import BIGINT, Field, Schema

STREAM = StreamDefinition("s", Schema((Field("v", BIGINT),)), "push")
EASY = 100


def pending(rows: Sequence[int]) -> list[Pending]:
    return [
        Pending(number, "s", count, 50, {"uri": str(number), "arrival": number})
        for number, count in enumerate(rows)
    ]


class Ordinals(Sequence[int]):
    """The first ordinals; counts how many were read."""

    def __init__(self, count: int) -> None:
        self.count, self.reads = count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return range(self.count)[index]

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.reads += 1
            yield number


@given(st.lists(st.integers(1, 150), max_size=600))
@example([1] * 99)
@example([1] * 100)
@example([1] * 500)
@example([101, 1])
def test_epochs_admit_what_is_easy_however_many_records_wait(rows: list[int]) -> None:
    waiting = pending(rows)
    taken = Admission().for_easy(waiting, EASY).take(waiting, STREAM)
    weight = sum(record.weight for record in waiting)
    if not EASY < weight <= 10 * EASY:
        assert taken == waiting
        return
    assert len(taken) == 1 or sum(record.weight for record in taken) <= EASY
    assert len(taken) == len(waiting) or sum(record.weight for record in waiting[: len(taken) + 1]) > EASY
    assert Admission(rows=0).for_easy(waiting, EASY).take(waiting, STREAM) == []


def test_a_backlog_of_single_rows_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub(tmp_path, LocalExecutor(), tasks=2) as hub:
        hub.execute("CREATE STREAM p (v BIGINT) USING push; CREATE QUERY q AS SELECT COUNT(*) AS n FROM p")
        monkeypatch.setattr(LocalExecutor, "easy_rows", 10)
        for number in range(30):
            hub.push("p", [{"v": number}])
        hub.catch_up()
        assert hub.query("q").invoke().to_pylist() == [{"n": 30}]


def test_published_records_are_removed_by_reading_their_ordinals_once() -> None:
    ordinals, intake = Ordinals(300), Intake.__new__(Intake)
    intake._waiting, intake._consumed, intake.taken = {"s": pending([1] * 400)}, {}, threading.Condition()
    intake.consumed({"s": ordinals})
    assert [record.ordinal for record in intake.waiting("s")] == list(range(300, 400))
    assert ordinals.reads <= 2 * len(ordinals)


def test_what_waits_besides_an_epoch_is_found_by_reading_its_ordinals_once() -> None:
    ordinals, intake = Ordinals(300), Intake.__new__(Intake)
    intake._waiting, intake.lock = {"s": pending([1] * 400)}, threading.RLock()
    stream: Any = SimpleNamespace(name="s", progress=SimpleNamespace(heartbeat=(1, 0)), idle_timeout=None)
    manifest: Any = SimpleNamespace(stream=lambda _: None)
    assert clock_punctuations(intake, [stream], manifest, {"s": ordinals}, 10**9) == {"s": 300}
    assert ordinals.reads <= 2 * len(ordinals)

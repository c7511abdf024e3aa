"""A plan of many queries is compiled by every process that scans, in the first epoch that has it: not by one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.operators.query_index import index, index_cache
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.gc_control import MANY
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.time import SECOND

ROWS = 40


class TwoCores(LocalExecutor):
    """Notes the scan messages of each epoch, and runs the last of them first, as another process might."""

    cores = 2

    def __init__(self) -> None:
        self.epochs = list[list[ScanMessage]]()

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        self.epochs.append(list(scans))
        return super().run(list(reversed(scans)), states)

    def shape(self) -> list[tuple[int, tuple[str, ...]]]:
        """The number of splits, and the rehearsed streams, of each task of the last epoch."""
        return [(len(scan.splits), scan.rehearsed) for scan in self.epochs[-1]]


def select(number: int) -> str:
    return (
        "SELECT window_end, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE TUMBLING 10 SECONDS]"
        f" WHERE v >= {number} AND k < {number + 5}"
    )


def opened(folder: Path, executor: LocalExecutor, queries: int) -> Hub:
    hub = Hub(folder, executor, tasks=1)
    hub.execute("CREATE STREAM s (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
    hub.register_many({f"q{number}": select(number) for number in range(queries)})
    return hub


def push(hub: Hub, second: int) -> None:
    numbers = range(ROWS)
    at = pa.array([second * SECOND] * ROWS).cast(pa.timestamp("us", tz="UTC"))
    hub.push("s", pa.table({"k": list(numbers), "v": [3 * number % ROWS for number in numbers], "at": at}))
    hub.catch_up()


def script(first: int, last: int) -> dict[str, str]:
    return {f"q{number}": select(number) for number in range(first, last)}


REHEARSED = [(1, ()), (0, ("s",))]
"""One task reads the rows, the other only rehearses."""


def test_the_first_epoch_with_rows_of_a_plan_of_many_queries_rehearses_on_the_other_cores(
    tmp_path: Path,
) -> None:
    executor = TwoCores()
    with opened(tmp_path / "home", executor, MANY) as hub:
        hub.catch_up()  # an epoch of the plan that has no rows
        push(hub, 0)
        assert executor.shape() == REHEARSED
        push(hub, 1)
        assert executor.shape() == [(1, ())]


def test_it_rehearses_again_when_there_are_as_many_more(tmp_path: Path) -> None:
    executor = TwoCores()
    with opened(tmp_path / "home", executor, MANY) as hub:
        push(hub, 0)
        for first, last, shape in (
            (MANY, MANY + 1, [(1, ())]),
            (MANY + 1, 2 * MANY - 1, [(1, ())]),
            (2 * MANY - 1, 2 * MANY, REHEARSED),
        ):
            hub.register_many(script(first, last), from_now=True)
            push(hub, last)
            assert executor.shape() == shape
        for number in range(2 * MANY):
            hub.execute(f"DROP QUERY q{number}")
        push(hub, 2 * MANY + 1)
        hub.register_many(script(0, MANY), from_now=True)
        push(hub, 2 * MANY + 2)
        assert executor.shape() == REHEARSED


def test_processes_of_another_start_rehearse_too(tmp_path: Path) -> None:
    with opened(tmp_path / "home", TwoCores(), MANY) as hub:
        push(hub, 0)
    executor = TwoCores()
    with Hub(tmp_path / "home", executor, tasks=1) as hub:
        push(hub, 1)
        assert executor.shape() == REHEARSED
        hub.loop.engine.take_over()  # as after a failure, which may have ended processes
        push(hub, 2)
        assert executor.shape() == REHEARSED


def test_few_queries_are_not_rehearsed(tmp_path: Path) -> None:
    executor = TwoCores()
    with opened(tmp_path / "home", executor, 5) as hub:
        push(hub, 0)
        assert executor.shape() == [(1, ())]


def test_a_backfill_rehearses_nothing_and_leaves_it_to_the_next_epoch(tmp_path: Path) -> None:
    executor = TwoCores()
    with opened(tmp_path / "home", executor, 5) as hub:
        push(hub, 0)
        hub.register_many(script(5, 5 + MANY))
        hub.catch_up()
        replays = [scans for scans in executor.epochs if any(scan.replay for scan in scans)]
        assert replays
        assert all(len(scans) == 1 and scans[0].rehearsed == () for scans in replays)
        push(hub, 1)
        assert executor.shape() == REHEARSED


def test_a_process_that_has_rehearsed_compiles_nothing_when_it_has_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = list[int]()
    changed = index_cache._changed

    def noting(before, queries):
        compiled.append(len(queries))
        return changed(before, queries)

    boxes, of_boxes = list[int](), index.compiled

    def noting_boxes(forms):
        boxes.append(len(forms))
        return of_boxes(forms)

    monkeypatch.setattr(index_cache, "_changed", noting)
    monkeypatch.setattr(index, "compiled", noting_boxes)
    executor = TwoCores()
    with opened(tmp_path / "home", executor, MANY) as hub:
        ran = LocalExecutor.run

        def rehearsal_only(self, scans, states):
            return ran(self, [scan for scan in scans if not scan.splits], states)

        with monkeypatch.context() as patched:
            patched.setattr(LocalExecutor, "run", rehearsal_only)
            push(hub, 0)
        assert compiled == [MANY]
        assert sum(boxes) == MANY
        push(hub, 1)
        assert compiled == [MANY]
        assert sum(boxes) == MANY


def test_answers_are_those_of_one_core(tmp_path: Path) -> None:
    answers = []
    for name, executor in (("one", LocalExecutor()), ("two", TwoCores())):
        with opened(tmp_path / name, executor, MANY) as hub:
            for second in (0, 4, 12, 25):
                push(hub, second)
            answers.append([hub.query(f"q{number}").history().to_pylist() for number in (0, 1, 17, 250)])
    assert answers[0] == answers[1]
    assert any(answers[0])

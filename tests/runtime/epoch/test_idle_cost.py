"""What an epoch without rows costs by the number of standing queries: counted, not timed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from benchmarks.suite.standing import Clocked, queries_of, script
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.runtime.epoch.work import disk_calls, steps

EPOCHS = 64
"""Two of the longer cycles: retention every 8 epochs, collection every 32, a review when the age of a run has doubled."""


def idle(path: Path, count: int) -> list[Counter[str]]:
    """The work of epochs with a row of a stream that no query reads, with so many queries of all kinds with rows."""
    work: list[Counter[str]] = []
    with Hub(path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(script(queries_of("mixed", count)))
        hub.loop.engine.housekeeping.every = EPOCHS // 2
        clocked = Clocked(hub)
        clocked.push(10, "s", "u")
        clocked.settle()
        for _ in range(20):  # the log of epochs then has the figures of all operators
            clocked.push(1, "quiet")
            clocked.settle()
        hub.loop.engine.housekeeping.collect_retired()  # what the epochs with rows have left
        for _ in range(EPOCHS):
            clocked.push(1, "quiet")
            with steps() as executed, disk_calls() as asked:
                assert hub.loop.step() is not None
            work.append(executed + asked)
    return work


@pytest.mark.timeout(300)
def test_an_idle_epoch_of_two_thousand_queries_does_the_work_of_one_of_ten(tmp_path: Path) -> None:
    """All epochs together may do a little more: a review of an old run reads some of its states, at most sixteen."""
    few, many = idle(tmp_path / "few", 10), idle(tmp_path / "many", 2000)
    for name in ("steps", "bytes written"):
        assert median(counted[name] for counted in many) <= 1.1 * median(counted[name] for counted in few), (
            name
        )
    in_all = [sum(work, Counter[str]()) for work in (few, many)]
    for name, count in in_all[1].items():
        assert count <= 1.4 * in_all[0][name] + EPOCHS // 4, (name, in_all)

"""Trains: rows of many pushes that one epoch takes together cost fewer calls of tasks, operators and the disk each; answers stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.store.files import filesystem
from headrace.time import SECOND
from tests.overload.slow_machine import START
from tests.store.faults import FaultyDisk

ROWS = 64
LENGTHS = (1, 4, 16, 64)


def driven(path: Path, length: int, patch: pytest.MonkeyPatch) -> tuple[dict[str, int], list[int]]:
    """The calls that epochs of so many pushes make for all rows, and the answers."""
    calls = {"tasks": 0, "operators": 0, "disk": 0}
    run, advance, disk = LocalExecutor.run, PaneAggregate.advance, FaultyDisk()

    def counted_run(self: LocalExecutor, scans: object, states: object) -> object:
        calls["tasks"] += 1
        return run(self, scans, states)  # type: ignore[arg-type]

    def counted_advance(self: PaneAggregate, *given: object) -> object:
        calls["operators"] += 1
        return advance(self, *given)  # type: ignore[arg-type]

    patch.setattr(filesystem, "Disk", lambda: disk)
    with Hub(path, LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v INT) USING push TIMESTAMP BY at")
        hub.execute("CREATE QUERY q AS SELECT SUM(v) AS total FROM s [RANGE TUMBLING 5 SECONDS]")
        hub.catch_up()
        patch.setattr(LocalExecutor, "run", counted_run)
        patch.setattr(PaneAggregate, "advance", counted_advance)
        for first in range(0, ROWS, length):
            for number in range(first, first + length):
                hub.push("s", [{"at": START + number * SECOND, "v": number}])
            before = len(disk.trace)
            hub.catch_up()
            calls["disk"] += len(disk.trace) - before
        return calls, sorted(hub.query("q").history()["total"].to_pylist())


def test_calls_per_row_fall_with_the_length_of_trains_and_answers_do_not_depend_on_it(tmp_path: Path) -> None:
    seen = []
    for length in LENGTHS:
        with pytest.MonkeyPatch.context() as patch:
            seen.append(driven(tmp_path / f"{length}", length, patch))
    counts, answers = [calls for calls, _ in seen], [answer for _, answer in seen]
    assert answers[0]
    assert all(answer == answers[0] for answer in answers)
    for kind in ("tasks", "operators", "disk"):
        of_kind = [calls[kind] for calls in counts]
        assert of_kind == sorted(of_kind, reverse=True)
        for (length, fewer), (longer, least) in zip(
            list(zip(LENGTHS, of_kind, strict=True)),
            list(zip(LENGTHS, of_kind, strict=True))[1:],
            strict=False,
        ):
            assert least <= 0.5 * fewer, (kind, length, longer)
    assert counts[0]["tasks"] >= ROWS
    assert counts[-1]["tasks"] <= 2

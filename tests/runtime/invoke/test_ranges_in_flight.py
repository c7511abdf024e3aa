"""A question that reads a part of each run announces the parts that follow, and no byte that it does not read. Counts only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.archive.in_flight import AHEAD
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import archived_rows
from headrace.runtime.invoke.questions.archived_rows import ArchivedRows, Extent
from headrace.store.files.filesystem import LocalStore

START = 1_700_000_000_000_000
RUNS, ROWS = 14, 65_536


def rows(number: int) -> pa.Table:
    at = START + (number * ROWS + np.arange(ROWS)) * 1000
    draw = np.random.default_rng(number)
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "v": draw.gamma(2.0, 10.0, ROWS),
            "other": draw.random(ROWS),
        }
    )


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What is announced and read, in that order: files, with their bytes or rows."""
    seen: list[tuple[str, str, int]] = []
    read = ArchivedRows._read

    def will_need(_: LocalStore, name: str, ranges: Sequence[tuple[int, int]]) -> None:
        seen.append(("announced", name, sum(size for _, size in ranges)))

    def noted(self: ArchivedRows, extents: Sequence[Extent]) -> Any:
        seen.extend(("read", extent.name, extent.rows) for extent in extents)
        return read(self, extents)

    monkeypatch.setattr(LocalStore, "will_need", will_need)
    monkeypatch.setattr(ArchivedRows, "_read", noted)
    monkeypatch.setattr(archived_rows, "_AT_ONCE", 1)  # one run at a time
    monkeypatch.setattr(archived_rows, "LEAST_BYTES", 1 << 12)
    return seen


def test_several_parts_are_in_flight_while_one_is_read(
    tmp_path: Path, events: list[tuple[str, str, int]]
) -> None:
    with open_hub(tmp_path, local=True) as hub:
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, v DOUBLE, other DOUBLE) USING push OPTIONS (blocks '8') TIMESTAMP BY at"
        )
        for number in range(RUNS):
            hub.push("s", rows(number))
            hub.catch_up()
        events.clear()
        hub.execute("SELECT AVG(v) AS mean FROM s WITHIN 2 PERCENT")
    read = [number for number, (what, _, _) in enumerate(events) if what == "read"]
    first = events[: read[0]]
    assert [what for what, _, _ in first] == ["announced"] * len(first)
    assert len(first) > AHEAD, "the parts of so many runs are in flight when the first is read"
    for number in read:
        name = events[number][1]
        assert ("announced", name) in [event[:2] for event in events[:number]], "each before it is read"
    of_runs = sum(size for what, _, size in events if what == "announced")
    sampled = sum(count for what, _, count in events if what == "read")
    assert sampled < RUNS * ROWS / 4
    assert of_runs < 2 * 16 * sampled, "about the bytes of the column of values, and of fates"

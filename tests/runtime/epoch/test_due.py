"""Queries of every kind that have nothing to do: an epoch in which only punctuation moves does not visit, open or write them.

And answers do not depend on who was visited: those of a home whose operators are visited when they are due equal those of a home
that visits all in each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.base.operator import Operator
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest.level_input import Due
from headrace.runtime.tasks.state import state_task
from headrace.runtime.tasks.state.round_progress import RoundProgress
from headrace.store.files.filesystem import LocalStore
from headrace.time import SECOND

HOUR = "3600 SECONDS"
KINDS = {
    "tumbling": "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING {r} SECONDS] WHERE x > {i} GROUP BY k",
    "sliding": "SELECT k, SUM(x) AS n FROM s [RANGE {r} SECONDS SLIDE {h} SECONDS] WHERE x > {i} GROUP BY k",
    "gaps": "SELECT k, SUM(x) AS n FROM s [RANGE {r} SECONDS SLIDE {d} SECONDS] WHERE x > {i} GROUP BY k",
    "range": "SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i} GROUP BY k",
    "one group": "SELECT COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i}",
    "counts of values": "SELECT COUNT(DISTINCT x) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i}",
    "ever": "SELECT k, COUNT(*) AS n FROM s WHERE x > {i} GROUP BY k",
    "rows": "SELECT SUM(x) AS n FROM s [ROWS {c}] WHERE x > {i}",
    "partitions": "SELECT k, MAX(x) AS n FROM s [PARTITION BY k ROWS {c}] WHERE x > {i} GROUP BY k",
    "slides of rows": "SELECT SUM(x) AS n FROM s [ROWS {c} SLIDE 3] WHERE x > {i}",
    "ends at rows": "SELECT SUM(x) AS n FROM s [RANGE {r} SECONDS SLIDE 2 ROWS] WHERE x > {i}",
    "sessions": "SELECT k, COUNT(*) AS n FROM s WHERE x > {i} GROUP BY session_window(at, '{r} seconds'), k",
    "frames": "SELECT COUNT(*) AS n FROM s [PARTITION BY k DELTA {c} ON x] WHERE x > {i}",
    "distinct": "SELECT DISTINCT k FROM s [RANGE {r} SECONDS] WHERE x > {i}",
    "distinct windows": "SELECT DISTINCT k FROM s [RANGE {r} SECONDS SLIDE {h} SECONDS] WHERE x > {i}",
    "whole rows": "SELECT k, x FROM s [RANGE {r} SECONDS] WHERE x > {i}",
    "new rows": "SELECT ISTREAM(k, x) FROM s [RANGE {r} SECONDS] WHERE x > {i}",
    "old rows": "SELECT DSTREAM(k, x) FROM s [RANGE {r} SECONDS] WHERE x > {i}",
    "old windows": "SELECT DSTREAM(k, COUNT(*) AS n) FROM s [RANGE {r} SECONDS SLIDE {h} SECONDS] WHERE x > {i} GROUP BY k",
    "best": "SELECT k, x FROM s [RANGE {r} SECONDS] WHERE x > {i} ORDER BY x DESC LIMIT 2",
    "percentile": "SELECT PERCENTILE(x, 0.5) AS n FROM s [RANGE {r} SECONDS SLIDE {h} SECONDS] WHERE x > {i}",
    "joins": "SELECT s.k, s.x, u.x AS y FROM s [RANGE {r} SECONDS], u [RANGE {r} SECONDS]"
    " WHERE s.k = u.k AND s.x > {i}",
    "joined windows": "SELECT s.k, COUNT(*) AS n FROM s [RANGE TUMBLING {r} SECONDS] JOIN u [RANGE TUMBLING {r} SECONDS]"
    " ON s.k = u.k WHERE s.x > {i} GROUP BY s.k",
    "joined rows": "SELECT s.x, u.x AS y FROM s [ROWS {c}], u [ROWS {c}] WHERE s.k = u.k AND s.x > {i}",
    "nested": "SELECT MAX(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i}"
    " GROUP BY k) AS c",
    "over windows": "SELECT SUM(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING {r} SECONDS] WHERE x > {i}"
    " GROUP BY k) AS c [RANGE TUMBLING {d} SECONDS]",
    "members": "SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i} AND k IN"
    " (SELECT k FROM u [RANGE {r} SECONDS]) GROUP BY k",
    "unions": "SELECT k, COUNT(*) AS n FROM s UNION ALL u [RANGE {r} SECONDS] GROUP BY k HAVING COUNT(*) > {i}",
    "approximate": "SELECT k, APPROX_COUNT(*) WITHIN 50 PERCENT AS n FROM s [RANGE {r} SECONDS] WHERE x > {i} GROUP BY k",
    "approximate windows": "SELECT APPROX_COUNT(*) WITHIN 50 PERCENT AS n FROM s [RANGE {r} SECONDS SLIDE {h} SECONDS]"
    " WHERE x > {i}",
    "revised": "SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS SLIDE {h} SECONDS] WHERE x > {i} GROUP BY k"
    " WITH REVISIONS FOR INTERVAL 8 SECONDS",
    "revised sessions": "SELECT k, COUNT(*) AS n FROM s WHERE x > {i} GROUP BY session_window(at, '{r} seconds'), k"
    " WITH REVISIONS FOR INTERVAL 8 SECONDS",
    "rows as they are": "SELECT k, x FROM s WHERE x > {i}",
    "on demand": "SELECT k, x FROM s WHERE x > {i} BEGIN NOW - INTERVAL {r} SECONDS END NOW",
}
"""A query of each kind: a range of {r} seconds, of which {h} is half and {d} twice, or {c} rows."""
REVIEWED = (
    *("ends at rows", "joins", "joined windows", "joined rows", "members", "on demand", "revised"),
    "nested",
)
"""Their rows expire without a visit, or a run has two levels of them, so each run is reviewed, and perhaps merged, whenever its age has doubled."""
STREAM = "CREATE STREAM {name} (k INT, x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;"


def script(ranges: tuple[int, ...], kinds: Any = tuple(KINDS)) -> str:
    """Each kind at each range, with conditions of their own."""
    streams = "".join(STREAM.format(name=name) for name in ("s", "u", "quiet"))
    return streams + "".join(
        f"CREATE QUERY {kind.replace(' ', '_')}_{number} AS "
        + KINDS[kind].format(r=r, h=r // 2, d=2 * r, c=2 + number, i=number - 1)
        + ";"
        for kind in kinds
        for number, r in enumerate(ranges)
    )


def rows(at: Any, rng: np.random.Generator) -> pa.Table:
    """Rows at such microseconds."""
    count = len(at)
    return pa.table(
        {
            "k": pa.array(rng.integers(0, 3, count), pa.int32()),
            "x": pa.array(rng.integers(0, 6, count), pa.int64()),
            "at": pa.array(at, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def events(seed: int) -> Iterator[tuple[str, Any]]:
    """What happens from epoch to epoch: (stream, rows or a punctuation)."""
    rng = np.random.default_rng(seed)
    now = {"s": 0, "u": 0, "quiet": 0}
    for _ in range(45):
        stream = str(rng.choice(["s", "s", "s", "u", "u", "quiet"]))
        choice = rng.integers(6)
        if choice < 3:
            late = rng.integers(-12, 3, 6) * SECOND // 2
            yield stream, rows(np.maximum(0, now[stream] + late[: rng.integers(1, 7)]), rng)
            now[stream] += int(rng.integers(0, 5)) * SECOND // 2
        elif choice < 5:
            now[stream] += int(rng.integers(1, 6)) * SECOND // 2
            yield stream, now[stream]
        else:  # a gap
            now["s"] += 9 * SECOND
            now["u"] += 9 * SECOND
            yield "s", now["s"]
    for step in range(1, 16):
        for stream in ("s", "u"):
            yield stream, max(now.values()) + step * step * SECOND // 4


def run(path: Path, seed: int, ranges: tuple[int, ...]) -> tuple[dict[str, list[Any]], int]:
    """The history of each query, and how many operators were visited."""
    visited = 0
    with Hub(path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(script(ranges))
        for stream, event in events(seed):
            if isinstance(event, pa.Table):
                hub.push(stream, event)
            else:
                hub.punctuate(stream, event)
            while (seen := hub.loop.step()) is not None:
                visited += len(seen.operators)
        names = sorted(query.definition.name for query in hub.catalog.queries.values())
        histories = {name: hub.query(name).history().to_pylist() for name in names if "on_demand" not in name}
        now = {f"now of {name}": hub.query(name).invoke().to_pylist() for name in names}
        return histories | now, visited


@contextmanager
def all_visited() -> Iterator[None]:
    """All operators are visited in the round of their level, and each level has one."""
    visits = state_task.visits

    def of_level(progress: RoundProgress, _: Any, runs: Any, deltas: Any) -> dict[str, list[Operator]]:
        level, clock_of = progress.message.level, progress.index.clock_of
        states = visits(progress, None, runs, deltas)
        if not progress.message.followers:
            return states
        return {
            name: operators
            for name, operators in states.items()
            if name in deltas or clock_of(operators[0].stream).level == level
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_task, "visits", of_level)
        patch.setattr(Due, "has", lambda *_: True)
        yield


@pytest.mark.parametrize("seed", [1, 2])
def test_answers_equal_those_of_a_home_that_visits_every_operator_in_each_epoch(
    tmp_path: Path, seed: int
) -> None:
    """Two of a kind share a state, a third has another range; rows are late, streams rest, punctuation leaps."""
    answered, visited = run(tmp_path / "due", seed, (4, 4, 10))
    with all_visited():
        expected, all_of_them = run(tmp_path / "all", seed, (4, 4, 10))
    assert sum(map(bool, expected.values())) > 0.6 * len(expected)
    for name, answer in expected.items():
        assert answered[name] == answer, name
    assert visited < 0.6 * all_of_them


@contextmanager
def counted() -> Iterator[dict[str, list[str]]]:
    """The names of files that are opened and written."""
    names: dict[str, list[str]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for call in ("read", "map", "write_once"):
            original, names[call] = getattr(LocalStore, call), []

            def noting(
                self: LocalStore, name: str, *args: Any, _call: Any = (original, names[call]), **how: Any
            ) -> Any:
                _call[1].append(name)
                return _call[0](self, name, *args, **how)

            patch.setattr(LocalStore, call, noting)
        yield names


@pytest.mark.parametrize("kind", KINDS)
def test_while_nothing_begins_or_ends_an_epoch_neither_visits_nor_opens_nor_writes(
    tmp_path: Path, kind: str
) -> None:
    """Within an hour's window: the last row was minutes ago. Then long after it."""
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(script((3600, 3600, 7200), [kind]))
        rng = np.random.default_rng(0)
        for second in range(8):
            for stream in ("s", "u"):
                hub.push(stream, rows(second * SECOND + np.arange(6), rng))
            hub.loop.drain()
        stored = len(hub.home.latest().state)
        assert stored or kind in ("rows as they are", "gaps")
        for start in (1000, 100_000):
            promised(hub, start)
            hub.loop.drain()
            for second in range(
                start + 1, start + 20
            ):  # what was written last is reviewed, and merged once more
                assert_rests(hub, second)
            with counted() as names:
                for second in range(start + 20, start + 50):
                    assert_rests(hub, second)
            opened = [name for name in names["map"] if name.startswith("state/")]
            written = [name for name in names["write_once"] if name.startswith(("state/", "results/"))]
            assert not (opened or written) or kind in REVIEWED
            assert len(opened + written) <= 4


def promised(hub: Hub, second: int) -> None:
    """Both streams are at this second."""
    for stream in ("s", "u"):
        hub.punctuate(stream, second * SECOND)


def assert_rests(hub: Hub, second: int) -> None:
    """An epoch in which both streams get there visits no operator, and is the only one."""
    promised(hub, second)
    seen = hub.loop.step()
    assert seen is not None
    assert not seen.operators, second
    assert hub.loop.step() is None

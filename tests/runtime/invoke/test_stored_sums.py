"""Sums of runs that questions have stored: another process reads only what is new, with the same answer; files go with their runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.invoke.questions import run_sums, stored_sums
from headrace.store.files.container import parts
from headrace.store.maintenance import sums_collection
from headrace.store.maintenance.sums_collection import RUNS, runs_of, sweep_sums
from headrace.time import HOUR, SECOND

START = 1_699_999_200 * SECOND
ROWS = 500
"""Rows of an epoch, which is an hour."""
TEXTS = (
    "SELECT symbol, COUNT(*) AS n, SUM(price) AS total, AVG(g) AS mean FROM ticks GROUP BY symbol WITHIN 0 PERCENT",
    "SELECT COUNT(*) AS n, SUM(price) / COUNT(price) AS mean FROM ticks AS t WHERE t.g > 1 AND symbol = 'a' WITHIN 0 PERCENT",
    "SELECT g % 2 AS odd, symbol, SUM(price) FILTER (WHERE g < 3) AS part FROM ticks GROUP BY g % 2, symbol WITHIN 0 PERCENT",
    "SELECT day, COUNT(*) AS n FROM ticks WHERE price > 1000000 GROUP BY day WITHIN 0 PERCENT",
    "SELECT day, COUNT(day) AS n FROM ticks GROUP BY day WITHIN 0 PERCENT",
)
ASK = """
import json, sys
from pathlib import Path
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.questions import stored_sums
from headrace.runtime.statements.show import show
stored_sums.LEAST_ROWS = 1
home = Home.at(Path(sys.argv[1]))
for text in sys.argv[2:]:
    (statement,) = parse_script(text)
    outcome = show(home, statement)
    print(json.dumps([outcome.message, outcome.table.to_pylist()], default=str))
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sums of few rows are stored; none are known when a test begins."""
    monkeypatch.setattr(stored_sums, "LEAST_ROWS", 1)
    run_sums.cached.clear()
    yield
    run_sums.cached.clear()


def hour(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    at = START + number * 3600 * SECOND + np.arange(ROWS) * 7 * SECOND
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "symbol": pa.array(np.array(["a", "b", None], object)[rng.integers(0, 3, ROWS)], pa.string()),
            "g": rng.integers(0, 5, ROWS),
            "price": pa.array(rng.integers(100, 900, ROWS) / 4, mask=rng.random(ROWS) < 0.1),
            "day": pa.array(rng.integers(0, 3, ROWS), pa.int32(), mask=rng.random(ROWS) < 0.1).cast(
                pa.date32()
            ),
        }
    )


@contextmanager
def opened(path: Path, options: str = "blocks '4'") -> Iterator[Hub]:
    with Hub(path, LocalExecutor()) as hub:
        hub.execute(
            "CREATE OR REPLACE STREAM ticks (at TIMESTAMP, symbol STRING, g BIGINT, price DOUBLE, day DATE) USING push"
            f" OPTIONS ({options}) TIMESTAMP BY at"
        )
        yield hub


def fill(hub: Hub, first: int, last: int) -> None:
    for number in range(first, last):
        hub.push("ticks", hour(number))
        hub.catch_up()


def asked(hub: Hub, text: str) -> tuple[str, list[dict[str, Any]]]:
    run_sums.cached.clear()
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    return outcome.message, outcome.table.to_pylist()


def in_another_process(path: Path, *texts: str) -> list[tuple[str, list[dict[str, Any]]]]:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(path), *texts], capture_output=True, text=True, check=True
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON writes them, doubles rounded."""
    read = json.loads(json.dumps(rows, default=str))
    return [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in read]


def files(hub: Hub) -> list[str]:
    return [file.name for file in hub.home.store.list("sums/")]


def test_the_question_of_another_process_reads_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "home"
    with opened(path) as hub:
        fill(hub, 0, 6)
        expected = [asked(hub, text) for text in TEXTS]
        assert all(message.startswith("read 3,000 of 3,000") for message, _ in expected)
    found = in_another_process(path, *TEXTS)
    for (message, rows), (_, before) in zip(found, expected, strict=True):
        assert message.startswith(
            "read 0 of 3,000 archived rows, sums of 3,000 others from earlier questions"
        )
        assert plain(rows) == plain(before)
    with opened(path) as hub:
        fill(hub, 6, 8)
    found = in_another_process(path, *TEXTS)
    assert all(message.startswith("read 1,000 of 4,000 archived rows") for message, _ in found)
    again = in_another_process(path, *TEXTS)
    assert all(message.startswith("read 0 of 4,000 archived rows") for message, _ in again)
    with opened(path) as hub:
        for name in files(hub):
            hub.home.store.delete(name)
        for text, (_, rows), (_, once_more) in zip(TEXTS, found, again, strict=True):
            assert plain(asked(hub, text)[1]) == plain(rows) == plain(once_more)


def test_what_is_stored_is_not_stored_again_and_of_two_files_with_one_run_it_counts_once(
    tmp_path: Path,
) -> None:
    """Two processes that ask at the same time store sums of the same runs."""
    text = "SELECT symbol, COUNT(*) AS n, SUM(g) AS total FROM ticks{} GROUP BY symbol WITHIN 0 PERCENT"
    part = " BEGIN TIMESTAMP '2023-11-14 23:00:00' END TIMESTAMP '2023-11-15 02:59:59'"
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 3)
        _, first = asked(hub, text.format(""))
        hub.execute(text.format(""))
        (one,) = files(hub)
        Path(hub.home.store.root, one).rename(tmp_path / "aside")
        fill(hub, 3, 5)
        asked(hub, text.format(part))
        (other,) = files(hub)
        (tmp_path / "aside").rename(Path(hub.home.store.root, one))
        assert len({*runs_of(hub.home.store, one), *runs_of(hub.home.store, other)}) == 5
        message, rows = asked(hub, text.format(""))
        assert message.startswith("read 0 of 2,500")
        assert sum(row["n"] for row in rows) == 5 * ROWS
        assert sum(row["n"] for row in first) == 3 * ROWS


def test_questions_that_differ_share_no_sums(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 3)
        for text in (
            "SELECT COUNT(*) AS n FROM ticks WHERE g > 1 WITHIN 0 PERCENT",
            "SELECT COUNT(*) AS n FROM ticks WHERE g > 2 WITHIN 0 PERCENT",
            "SELECT COUNT(price) AS n FROM ticks WHERE g > 1 WITHIN 0 PERCENT",
            "SELECT g, COUNT(*) AS n FROM ticks WHERE g > 1 GROUP BY g WITHIN 0 PERCENT",
        ):
            message, _ = asked(hub, text)
            assert message.startswith("read 1,500 of 1,500 archived rows"), text
        message, rows = asked(
            hub, "SELECT COUNT(*) AS m FROM ticks AS other WHERE other.g > 2 WITHIN 0 PERCENT"
        )
        assert message.startswith("read 0 of 1,500 archived rows")
        g = np.concatenate([hour(number).column("g").to_numpy() for number in range(3)])
        assert rows[0]["m"] == (g > 2).sum()


def test_a_part_of_the_time_reads_the_runs_that_it_cuts(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 5)
        asked(hub, "SELECT COUNT(*) AS n FROM ticks WITHIN 0 PERCENT")
        message, rows = asked(
            hub,
            "SELECT COUNT(*) AS n FROM ticks BEGIN TIMESTAMP '2023-11-14 22:30:00' END TIMESTAMP '2023-11-15 01:59:59' WITHIN 0 PERCENT",
        )
        assert message.startswith("read 500 of 2,000 archived rows")
        inside = START + np.arange(ROWS) * 7 * SECOND >= START + 1800 * SECOND
        assert rows[0]["n"] == 3 * ROWS + inside.sum()


def test_many_files_become_one_and_a_damaged_one_is_read_over(tmp_path: Path) -> None:
    text = TEXTS[0]
    with opened(tmp_path / "home") as hub:
        for number in range(stored_sums.MOST_FILES + 2):
            fill(hub, number, number + 1)
            asked(hub, text)
        store = hub.home.store
        sizes = sorted(len(runs_of(store, name)) for name in files(hub))
        assert sizes == [1] * (stored_sums.MOST_FILES + 1) + [stored_sums.MOST_FILES + 1]
        _, before = asked(hub, text)
        hub.loop.engine.housekeeping.grace = -HOUR
        hub.loop.engine.collect()
        assert sorted(len(runs_of(store, name)) for name in files(hub)) == [1, stored_sums.MOST_FILES + 1]
        message, rows = asked(hub, text)
        assert message.startswith("read 0 of")
        assert plain(rows) == plain(before)
        for name in files(hub):
            path = Path(store.root, name)
            path.write_bytes(path.read_bytes()[:-40])
        message, rows = asked(hub, text)
        assert message.startswith("read 5,000 of 5,000")
        assert plain(rows) == plain(before)


def test_sums_are_collected_with_their_runs(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '4', retain '3 HOURS'") as hub:
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.grace, housekeeping.readers = -HOUR, 0
        fill(hub, 0, 3)
        asked(hub, TEXTS[0])
        fill(hub, 3, 5)
        asked(hub, TEXTS[0])
        first, second = sorted(files(hub), key=lambda name: len(runs_of(hub.home.store, name)))[::-1]
        assert (len(runs_of(hub.home.store, first)), len(runs_of(hub.home.store, second))) == (3, 2)
        hub.loop.engine.collect()
        assert set(files(hub)) == {first, second}
        fill(hub, 5, 7)
        for _ in range(200):  # manifests that name the first runs are dropped
            hub.push("ticks", hour(6).slice(ROWS - 1))
            hub.catch_up()
        hub.loop.engine.collect()
        assert files(hub) == [second]
        hub.execute("DROP STREAM ticks")
        hub.catch_up()
        assert hub.check().faults == 0


def test_the_oldest_are_deleted_where_all_together_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "home") as hub:
        store = Home.at(tmp_path / "home").store
        for number in range(5):
            table = pa.table({"x": np.arange(1000)})
            store.write_once(
                f"sums/ticks/{number}/x.run", parts({"sums": table}, {RUNS: ["archive/ticks/a 0"]})
            )
        size = max(file.bytes for file in store.list("sums/"))
        monkeypatch.setattr(sums_collection, "MOST_BYTES", 3 * size)
        now = hub.loop.engine.clock()
        assert sweep_sums(store, {"archive/ticks/a"}, now=now, grace=HOUR) == []
        gone = sweep_sums(store, {"archive/ticks/a"}, now=now, grace=-HOUR)
        assert [file.name for file in gone] == ["sums/ticks/1/x.run", "sums/ticks/0/x.run"]
        assert len(sweep_sums(store, set(), now=now, grace=-HOUR)) == 3

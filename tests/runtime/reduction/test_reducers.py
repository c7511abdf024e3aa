"""Reducers by name: copies of an archive, what they keep, and questions over them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.algebra.expressions.expression import Column, Named
from headrace.archive.blocks import hashes_of, seed_of
from headrace.errors import UnsupportedQuery, UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.invoke.questions import answer, run_sums
from headrace.runtime.invoke.questions.clauses import question_of
from headrace.runtime.invoke.questions.whole_groups import WholeGroups
from headrace.runtime.plan import plan_files
from headrace.runtime.plan.bound_queries import bind_text
from headrace.runtime.reduction import vacuum
from headrace.runtime.reduction.segments import ARCHIVE, COPIES, Copy, copy_of, segments_of
from headrace.schema import STRING
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.time import SECOND
from tests.soak.ledger import digest
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

START = 1_699_999_200 * SECOND
ROWS = 2000
"""Rows of an epoch, which is an hour."""
HOSTS = ("big", "mid", "rare")
STREAM = "CREATE OR REPLACE STREAM s (at TIMESTAMP, id BIGINT, host STRING, v DOUBLE) USING push OPTIONS ({}) TIMESTAMP BY at"
BY_HOST = "CREATE REDUCER hosts ON s AS 'rows(40 PER host EVERY 1 HOUR)'"


def hosts_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).choice(HOSTS, ROWS, p=[0.9, 0.095, 0.005])


def hour(number: int) -> pa.Table:
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    at = START + number * 3600 * SECOND + np.arange(ROWS) * 1_800_000
    v = np.random.default_rng(1000 + number).gamma(2.0, 3.0, ROWS)
    at = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"at": at, "id": ids, "host": hosts_of(number), "v": v})


@contextmanager
def opened(path: Path, options: str = "blocks '8'", *statements: str) -> Iterator[Hub]:
    with Hub(path, LocalExecutor()) as hub:
        hub.execute(STREAM.format(options))
        for statement in statements:
            hub.execute(statement)
        yield hub


def fill(hub: Hub, first: int, last: int) -> None:
    for number in range(first, last):
        hub.push("s", hour(number), producer="p", sequence=number)
        hub.catch_up()


def copy(hub: Hub, name: str = "hosts") -> Copy:
    found = copy_of(hub.home.latest(), "s", name)
    assert found is not None
    return found


def ids_of(hub: Hub, of: Copy) -> dict[str, np.ndarray]:
    root = Path(hub.home.store.root)
    return {
        segment.file: pq.read_table(root / segment.file).column("id").to_numpy() for segment in of.segments
    }


def check_copy(hub: Hub, hours: int, name: str = "hosts") -> None:
    """Each row of the hours that were copied is in one segment, or was dropped from one by its hash: rows of a host and an hour have one share."""
    of = copy(hub, name)
    assert sum(segment.rows for segment in of.segments) == hours * ROWS
    ids = np.concatenate([*ids_of(hub, of).values(), np.zeros(0, np.int64)])
    assert len(np.unique(ids)) == len(ids)
    expected = []
    for number in range(hours):
        host = hosts_of(number)
        position = np.arange(ROWS) + (number << 32)
        below = (hashes_of(position, seed_of("s")) >> np.uint64(32)) / 2.0**32
        for each in HOSTS:
            share = 1.0
            while share / 2 >= 40 / max((host == each).sum(), 1):
                share /= 2
            expected += (np.flatnonzero((host == each) & (below < share)) + number * ROWS).tolist()
    assert sorted(ids.tolist()) == sorted(expected)


def asked(hub: Hub, text: str) -> tuple[list[dict[str, Any]], str]:
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    return outcome.table.to_pylist(), outcome.message


def truth(hours: int) -> dict[str, tuple[int, float]]:
    tables = pa.concat_tables([hour(number) for number in range(hours)])
    host, v = np.array(tables.column("host").to_pylist()), tables.column("v").to_numpy()
    return {each: (int((host == each).sum()), float(v[host == each].sum())) for each in HOSTS}


def test_a_copy_has_so_many_rows_of_each_host_and_hour_and_the_archive_stays_whole(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8'", BY_HOST) as hub:
        fill(hub, 0, 7)
        hub.vacuum()
        check_copy(hub, 6)
        assert segments_of(hub.home.latest(), "s") == ()
        assert len(hub.home.entries(hub.home.latest(), "archive:s")) == 7
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]", "late")
        hub.catch_up()
        assert hub.query("late").history()["n"].to_pylist() == [ROWS] * 6
        assert hub.check().faults == 0


def test_a_question_reads_the_copy_and_what_came_after_it(tmp_path: Path) -> None:
    text = "SELECT host, COUNT(*) AS n, SUM(v) AS total FROM s{} GROUP BY host WITHIN {} PERCENT"
    with opened(tmp_path / "home", "blocks '8'", BY_HOST) as hub:
        fill(hub, 0, 7)
        hub.vacuum()
        fill(hub, 7, 9)
        whole, _ = asked(hub, text.format("", 0))
        assert {row["host"]: row["n"] for row in whole} == {host: n for host, (n, _) in truth(9).items()}
        run_sums.cached.clear()
        found, message = asked(hub, text.format(" REDUCED BY Hosts", 0))
        for row in found:
            n, total = truth(9)[row["host"]]
            assert abs(row["n"] - n) <= 2 * row["n_error"] + 1e-6, row
            assert abs(row["total"] - total) <= 2 * row["total_error"] + 1e-6, row
        read = int(message.split()[1].replace(",", ""))
        stored = sum(segment.stored for segment in copy(hub).segments)
        assert read == stored + 3 * ROWS
        (row,), _ = asked(
            hub, "SELECT COUNT(*) AS n FROM s REDUCED BY hosts AS r WHERE r.host = 'big' WITHIN 0 PERCENT"
        )
        assert abs(row["n"] - truth(9)["big"][0]) <= 2 * row["n_error"]
        (outcome,) = hub.execute(f"EXPLAIN {text.format(' REDUCED BY hosts', 1)}")
        plan = "\n".join(outcome.table["plan"].to_pylist())
        assert "reduced by hosts, rows(40 PER host EVERY 1 HOUR): " in plan


def test_a_copy_outlives_the_rows_that_the_archive_drops(tmp_path: Path) -> None:
    """Rows stay until the copy has them, however short the archive's own retention is."""
    with opened(
        tmp_path / "home", "blocks '8', retain '2 HOURS'", "CREATE REDUCER few ON s AS 'uniform(0.75)'"
    ) as hub:
        hub.loop.engine.vacuuming.every = 1000
        fill(hub, 0, 8)
        assert len(hub.home.entries(hub.home.latest(), "archive:s")) == 8
        hub.vacuum()
        fill(hub, 8, 9)
        assert len(hub.home.entries(hub.home.latest(), "archive:s")) <= 3
        of = copy(hub, "few")
        assert [segment.keep for segment in of.segments] == [0.25]
        assert sum(segment.rows for segment in of.segments) == 7 * ROWS
        (row,), _ = asked(hub, "SELECT COUNT(*) AS n FROM s REDUCED BY few WITHIN 0 PERCENT")
        assert abs(row["n"] - 9 * ROWS) <= 2 * row["n_error"]
        (row,), _ = asked(hub, "SELECT COUNT(*) AS n FROM s WITHIN 0 PERCENT")
        assert row["n"] <= 3 * ROWS
        fill(hub, 9, 14)
        hub.vacuum()
        assert sum(segment.rows for segment in copy(hub, "few").segments) == 13 * ROWS


def test_several_copies_of_an_archive_that_is_reduced_itself(tmp_path: Path) -> None:
    """A new copy begins with what the archive has, whose files both name; dropped, replaced and opened again each has its own."""
    with opened(tmp_path / "home", "blocks '8', reduce 'uniform(0.5)'") as hub:
        fill(hub, 0, 4)
        hub.vacuum()
        hub.execute(
            "CREATE REDUCER few ON s AS 'uniform(0.875)'; CREATE REDUCER hosts ON s AS 'rows(40 PER host EVERY 1 HOUR)'"
        )
        hub.catch_up()
        fill(hub, 4, 7)
        hub.vacuum()
        assert [(s.keep, s.rows) for s in copy(hub, "few").segments] == [(0.125, 6 * ROWS)]
        inherited, *own = copy(hub).segments
        assert (inherited.keep, inherited.rows) == (0.5, 3 * ROWS)
        assert sum(segment.rows for segment in own) == 3 * ROWS
        found, _ = asked(
            hub, "SELECT host, COUNT(*) AS n FROM s REDUCED BY hosts GROUP BY host WITHIN 0 PERCENT"
        )
        assert len(found) == 3
        assert all(row["n_error"] > 0 for row in found)  # of what was inherited, every host has lost rows
        assert [(s.keep, s.rows) for s in segments_of(hub.home.latest(), "s")] == [(0.5, 6 * ROWS)]
        with pytest.raises(UserError, match="exists"):
            hub.execute("CREATE REDUCER few ON s AS 'uniform(0.5)'")
        hub.execute("CREATE OR REPLACE REDUCER few ON s AS 'uniform(0.5)'; DROP REDUCER hosts ON s")
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.catch_up()
        fill(hub, 7, 8)
        hub.vacuum()
        assert copy_of(hub.home.latest(), "s", "hosts") is None
        assert {s.keep for s in copy(hub, "few").segments} == {0.5}
        assert sum(s.rows for s in copy(hub, "few").segments) == 7 * ROWS
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.grace, housekeeping.readers = -1, 0
        housekeeping.collect_retired()
        hub.loop.engine.collect()
        assert hub.check().faults == 0
        hub.execute(STREAM.format("blocks '16', reduce 'uniform(0.5)'"))
        hub.catch_up()
        (row,), _ = asked(hub, "SELECT COUNT(*) AS n FROM s REDUCED BY few WITHIN 0 PERCENT")
        assert abs(row["n"] - 8 * ROWS) <= 2 * row["n_error"]


def test_files_that_a_copy_shares_are_not_collected_with_those_of_the_archive(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8', reduce 'uniform(0.5)'") as hub:
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.every, housekeeping.readers = 1, 0
        fill(hub, 0, 5)
        hub.vacuum()
        hub.execute("CREATE REDUCER same ON s AS 'uniform(0.5)'")
        hub.catch_up()
        fill(hub, 5, 6)
        (shared,) = copy(hub, "same").segments
        assert shared in segments_of(hub.home.latest(), "s")
        hub.execute(STREAM.format("blocks '8', reduce 'uniform(0.75)'"))
        hub.catch_up()
        hub.vacuum()
        assert shared in copy(hub, "same").segments
        assert shared not in segments_of(hub.home.latest(), "s")
        hub.loop.engine.vacuuming.every = 10_000
        for _ in range(150):  # manifests in which the archive names the file are dropped
            hub.push("s", hour(5).slice(ROWS - 1))
            hub.catch_up()
        assert (tmp_path / "home" / shared.file).exists()
        assert hub.check().faults == 0
        hub.execute("DROP STREAM s")
        hub.catch_up()
        assert COPIES not in hub.home.latest().facts or "s" not in hub.home.latest().facts[COPIES]


def test_segments_of_one_share_are_merged_whatever_others_are_of_the_same_time(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8'", BY_HOST) as hub:
        for number in range(9):
            fill(hub, number, number + 1)
            hub.vacuum()
        shares = Counter(segment.keep for segment in copy(hub).segments)
        assert len(shares) > 2
        assert max(shares.values()) <= 4
        check_copy(hub, 8)


def test_of_several_reductions_the_least_share_counts(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8'", f"{BY_HOST[:-1]}, age(2 HOURS 0.5, 4 HOURS 0.75)'") as hub:
        fill(hub, 0, 4)
        hub.vacuum()
        assert max(segment.keep for segment in copy(hub).segments) == 0.5
        fill(hub, 4, 7)
        hub.vacuum()
        assert {
            segment.keep for segment in copy(hub).segments if segment.high < START + 2 * 3600 * SECOND
        } <= {2.0**-n for n in range(2, 9)}
        assert all(segment.keep <= 0.5 for segment in copy(hub).segments)
        assert sum(segment.rows for segment in copy(hub).segments) == 4 * ROWS


def test_a_copy_that_falls_behind_keeps_less_of_every_group(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8'", f"{BY_HOST[:-1]}, load(3000 ROWS BEHIND)'") as hub:
        hub.loop.engine.vacuuming.every = 10_000
        fill(hub, 0, 6)
        hub.vacuum()  # 10,000 rows wait: more than twice 3,000, and less than four times
        assert max(segment.keep for segment in copy(hub).segments) == 0.25
        fill(hub, 6, 7)
        hub.vacuum()
        assert max(segment.keep for segment in copy(hub).segments) == 1.0


def test_while_epochs_run_a_copy_takes_many_rows_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "COPIED_ROWS", 3 * ROWS)
    with opened(tmp_path / "home", "blocks '8'", BY_HOST) as hub:
        hub.loop.engine.vacuuming.every = 1
        fill(hub, 0, 3)
        hub.push("s", hour(3).slice(0, 1))
        hub.catch_up()
        assert copy(hub).segments == ()
        fill_from = 4
        for number in range(fill_from, 8):
            hub.push("s", hour(number))
            hub.catch_up()
        taken = sum(segment.rows for segment in copy(hub).segments)
        assert taken >= 3 * ROWS
        assert hub.status()["archives"]["s"]["copies"]["hosts"]["behind"] == 8 - copy(hub).next
        (row,), _ = asked(hub, "SELECT COUNT(*) AS n FROM s REDUCED BY hosts WITHIN 0 PERCENT")
        assert row["n"] == pytest.approx(7 * ROWS + 1, abs=2 * row["n_error"] + 1e-6)


def test_of_what_was_read_in_part_no_group_is_exact(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8'", BY_HOST) as hub:
        fill(hub, 0, 5)
        hub.vacuum()
        query = bind_text(
            hub.home.catalog, "SELECT host, COUNT(*) AS n FROM s REDUCED BY hosts GROUP BY host"
        )
        manifest = hub.home.latest()
        sample = answer._sample(hub.home, manifest, question_of(query, hub.home.catalog.stream))
        sample.extend(0.25, lambda: False)
        _, found = sample.answer()
        assert (found["n"].error > 0).all()
        sample.extend(1.0, lambda: False)
        _, found = sample.answer()
        assert (found["n"].error == 0).sum() == 1


def test_groups_are_whole_by_all_columns_of_the_counts_alone() -> None:
    columns = {name: Column(f"s.{name}", STRING) for name in ("host", "g", "v")}
    named = {name: Named(name, column) for name, column in columns.items()}
    whole = WholeGroups(("s.host", "s.g"), pa.table({"host": ["a", None], "g": ["x", "y"]}))
    host, g = pa.array(["a", "a", None, "b"]), pa.array(["x", "y", "y", "x"])
    assert whole.are([named["host"], named["g"]], [host, g], 4).tolist() == [False, True, False, True]
    assert whole.are([named["g"], named["v"], named["host"]], [g, g, host], 4).tolist() == [
        False,
        True,
        False,
        True,
    ]
    assert not whole.are([named["host"]], [host], 4).any()
    assert WholeGroups(("s.host",), None).are([named["host"]], [host], 4).all()


def test_the_counts_of_an_archive_that_is_reduced_by_them_span_segments(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8', reduce 'rows(40 PER host EVERY 7 DAYS)'") as hub:
        for number in range(5):
            fill(hub, number, number + 1)
            hub.vacuum()
        manifest = hub.home.latest()
        assert copy_of(manifest, "s", ARCHIVE) is not None
        least = [segment.keep for segment in segments_of(manifest, "s")]
        assert min(least) == 2.0**-7  # of 7,200 rows of big in four hours 40: 1 in 180
        assert sum(segment.rows for segment in segments_of(manifest, "s")) == 4 * ROWS
        for host, (n, _) in truth(5).items():
            (row,), _ = asked(hub, f"SELECT COUNT(*) AS n FROM s WHERE host = '{host}' WITHIN 0 PERCENT")
            assert abs(row["n"] - n) <= 2 * row["n_error"], row


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE REDUCER r ON t AS 'uniform(0.5)'", "no stream 't'"),
        ("CREATE REDUCER r ON s AS 'rows(5 PER hots EVERY 1 HOUR)'", "no column 'hots'"),
        ("CREATE REDUCER r ON s AS 'error(5 PERCENT OF host EVERY 1 HOUR)'", "it is STRING"),
        ("DROP REDUCER r ON s", "no reducer 'r'"),
        ("SELECT COUNT(*) AS n FROM s REDUCED BY r WITHIN 1 PERCENT", "no reducer 'r'"),
        ("CREATE QUERY q AS SELECT COUNT(*) AS n FROM s REDUCED BY hosts", "standing query"),
        ("CREATE QUERY q AS SELECT id FROM s REDUCED BY hosts", "standing query"),
        ("EXPLAIN SELECT COUNT(*) AS n FROM s REDUCED BY hosts", "standing query"),
        (STREAM.format("blocks '1'"), "need random parts"),
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, statement: str, reason: str) -> None:
    with opened(tmp_path / "home", "blocks '8'", BY_HOST) as hub:
        with pytest.raises((UserError, UnsupportedQuery), match=reason):
            hub.execute(statement)
        hub.execute("DROP REDUCER IF EXISTS r ON s")


def test_a_stream_without_blocks_has_no_reducers(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "home", "retain '1 DAY'") as hub,
        pytest.raises(UserError, match="no random parts"),
    ):
        hub.execute(BY_HOST)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[FaultyDisk | None], None]:
    """Every store made from now on writes on this disk."""

    def use(faulty: FaultyDisk | None) -> None:
        monkeypatch.setattr(filesystem, "Disk", (lambda: faulty) if faulty is not None else Disk)

    return use


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("started") / "home"
    with opened(path, "blocks '8', reduce 'load(40 KB)'", BY_HOST) as hub:
        fill(hub, 0, 3)
        hub.vacuum()
        fill(hub, 3, 5)
    return path


def die(path: Path, faulty: FaultyDisk, use: Callable[[FaultyDisk | None], None]) -> None:
    """Take in an hour, make another copy and vacuum, on a disk that fails."""
    use(None)
    with suppress(SimulatedCrash), Hub(path, LocalExecutor()) as hub:
        use(faulty)
        for store in (hub.home.store, hub.loop.engine.home.store):
            store._disk = faulty
        hub.execute("CREATE OR REPLACE REDUCER few ON s AS 'uniform(0.75)'")
        fill(hub, 5, 6)
        hub.vacuum()
    use(None)
    plan_files.clear_caches()


def test_killed_at_any_call_the_copies_are_those_of_a_home_that_was_never_killed(
    started: Path, tmp_path: Path, disk: Callable[[FaultyDisk | None], None]
) -> None:
    """Laws 2 and 3: the rows of every copy and of the archive, after as many vacuums."""
    shutil.copytree(started, tmp_path / "traced")
    traced = FaultyDisk()
    die(tmp_path / "traced", traced, disk)
    points: list[Fault] = list(kill_points(traced.trace))
    assert len(points) > 50
    points = share_of(points, 24, digest() + "reducers")  # all of them in `make soak`
    unharmed = {}
    with Hub(tmp_path / "traced", LocalExecutor()) as hub:
        check_copy(hub, 5)
        unharmed = rows_by_share(hub)
    for number, fault in enumerate(points):
        path = tmp_path / f"home{number}"
        shutil.copytree(started, path)
        die(path, FaultyDisk(fault=fault), disk)
        with Hub(path, LocalExecutor()) as hub:
            assert hub.check().faults == 0, fault
            hub.execute("CREATE OR REPLACE REDUCER few ON s AS 'uniform(0.75)'")
            fill(hub, 5, 6)
            hub.vacuum()
            check_copy(hub, 5)
            assert rows_by_share(hub) == unharmed, fault
        shutil.rmtree(path)


def rows_by_share(hub: Hub) -> dict[tuple[str, float], int]:
    """Of each copy, how many rows each share represents."""
    found: dict[tuple[str, float], int] = {}
    manifest = hub.home.latest()
    of = {name: copy(hub, name).segments for name in ("hosts", "few")} | {"": segments_of(manifest, "s")}
    for name, segments in of.items():
        for segment in segments:
            found[name, segment.keep] = found.get((name, segment.keep), 0) + segment.rows
    return found

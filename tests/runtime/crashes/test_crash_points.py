"""Every call that changes the disk, of everything an engine does, is a place to die at.

The calls are found by recording them: all code that writes in a home goes through one `Disk`, which another test makes
sure of by watching what Python itself opens, links, renames and removes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.sources.segment_files import batch_name, batches_written, segment_record
from headrace.errors import StoreError
from headrace.runtime.hub.check import check
from headrace.runtime.hub.hub import Hub
from headrace.runtime.spark.streaming_source import _write_batches
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import UNFINISHED
from tests.runtime.rig import QUERIES, SEVERAL, Rig, answers, cut, expected, faults, made_rows
from tests.soak.ledger import digest
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

FEW = {name: QUERIES[name] for name in ("slide", "now", "rows")}
ALTERED = QUERIES["arrived"]
BATCH = pa.table({"v": pa.array([1, 2, 3], pa.int64())})
PUSHED = "CREATE STREAM p (v BIGINT) USING push; CREATE QUERY pushed AS SELECT SUM(v) AS total FROM p"
FEW["odd"] = "SELECT k, 10 / x AS part FROM s"
MORE = {"levels": {name: SEVERAL[name] for name in ("held", "closed", "of_a_side")}}
"""By operation: queries that are there for it alone, since each makes every point dearer."""
FILES = [[*file, {**file[0], "at": None}] for file in cut(made_rows(21, 48), *range(6, 48, 6))]
"""Every file has a row that the stream refuses, and most one on which a query fails."""
ACCEPTED = [len(file) - 1 for file in FILES]
BEFORE = 6
"""Epochs committed before the one that dies: enough that it also merges runs."""


def an_epoch(rig: Rig, hub: Hub) -> None:
    """The next file: listed, logged, read, archived, folded, merged, published."""
    rig.drop(FILES[BEFORE])
    assert hub.loop.step() is not None


def all_levels(rig: Rig, hub: Hub) -> None:
    """The next file, and the epochs in which joins read what relations have emitted of it, and queries what joins have."""
    rig.drop(FILES[BEFORE])
    while hub.loop.step() is not None:
        pass


def a_registration(rig: Rig, hub: Hub) -> None:
    """A query that is registered late, and its epoch over the archive."""
    hub.execute(f"CREATE QUERY late AS {QUERIES['tumble']}")
    assert hub.loop.step() is not None


def an_alteration(rig: Rig, hub: Hub) -> None:
    """A query gets another text, and its epoch over the archive."""
    hub.execute(f"ALTER QUERY rows AS {ALTERED}")
    assert hub.loop.step() is not None


def a_refresh(rig: Rig, hub: Hub) -> None:
    """A relation is read again, and met by the next file's rows."""
    hub.execute("REFRESH RELATION names")
    an_epoch(rig, hub)


def a_micro_batch(rig: Rig, hub: Hub) -> None:
    """What Spark's callback does with a batch of a streaming DataFrame, and the epoch that reads it."""
    take_micro_batch(hub)
    assert hub.loop.step() is not None


def take_micro_batch(hub: Hub) -> None:
    """As after every start: batches that are there are delivered, then Spark repeats what it does not know to be done."""
    folder, stream = hub.path / "segments" / "p", hub.stream_definition("p")
    for repeated in (False, True):
        if repeated:
            assert _write_batches(BATCH.to_batches(), folder, batch_name(0)) == (3, True)
        for batch in batches_written(folder):
            record = segment_record(stream, folder / batch_name(batch), 3, 5, batch=batch, root=hub.path)
            hub.loop.engine.intake.queue(record)


def a_collection(rig: Rig, hub: Hub) -> None:
    """Garbage goes: what an attempt has left that died before its epoch was published."""
    hub.home.store.write_once("state/left-by-nobody", [b"rows"])
    hub.loop.engine.housekeeping.grace = -1
    assert hub.loop.engine.collect().deleted


def an_opening(rig: Rig, hub: Hub) -> None:
    """The home is closed and opened at another number of tasks."""
    hub.close()
    with rig.hub(3):
        pass


OPERATIONS: dict[str, Callable[[Rig, Hub], None]] = {
    "epoch": an_epoch,
    "registration": a_registration,
    "collection": a_collection,
    "opening": an_opening,
    "alteration": an_alteration,
    "refresh": a_refresh,
    "micro-batch": a_micro_batch,
    "levels": all_levels,
}
LIKE_OTHERS = ("alteration", "refresh", "micro-batch", "levels")
"""Made of the same calls as those before: a twelfth of their points at a time, all of them in `make soak`."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[FaultyDisk | None], None]:
    """Every store made from now on, by the driver or in a task, writes on this disk."""

    def use(faulty: FaultyDisk | None) -> None:
        monkeypatch.setattr(filesystem, "Disk", (lambda: faulty) if faulty is not None else Disk)

    return use


def prepared(folder: Path, operation: str = "epoch") -> Rig:
    """A home after `BEFORE` epochs, always the same one in the same place: made once, then put back."""
    saved = folder.with_name(f"{folder.name}-saved")
    if saved.exists():
        shutil.rmtree(folder)
        shutil.copytree(saved, folder)
        return Rig(folder, {"maxFilesPerTrigger": "1"}, written=BEFORE)
    rig = Rig(folder, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES[:BEFORE])
    with rig.hub(2, {**FEW, **MORE.get(operation, {})}) as hub:
        hub.execute(PUSHED)
        hub.catch_up()
    shutil.copytree(folder, saved)
    return rig


@cache
def meant(text: str) -> list[Any]:
    """The reference's answer over the epochs as they are cut: one a file. The same, however often a run died."""
    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder)).hub(1, {"q": text}) as hub:
        return expected(hub.operator_and_query("q")[1], FILES)


def die(rig: Rig, operation: str, faulty: FaultyDisk, use: Callable[[FaultyDisk | None], None]) -> None:
    """Open the home, and carry out the operation on a disk that fails."""
    faulty_from_here = faulty
    use(None)
    with suppress(SimulatedCrash), rig.hub(2) as hub:
        use(faulty_from_here)
        for store in (hub.home.store, hub.loop.engine.home.store):
            store._disk = faulty_from_here
        OPERATIONS[operation](rig, hub)
    use(None)


def trace_of(operation: str, folder: Path, use: Callable[[FaultyDisk | None], None]) -> list[str]:
    faulty = FaultyDisk()
    die(prepared(folder, operation), operation, faulty, use)
    return faulty.trace


def resume(rig: Rig, tasks: int, operation: str = "") -> None:
    """Finish everything, and compare with the reference."""
    wanted = {**FEW, **MORE.get(operation, {}), "late": QUERIES["tumble"]}
    with rig.hub(tasks) as hub:
        if operation == "alteration":
            wanted["rows"] = ALTERED
            hub.execute(f"ALTER QUERY rows AS {ALTERED}")
        take_micro_batch(hub)
        rig.drop(*FILES[rig.written :])
        if hub.catalog.query("late") is None:
            hub.execute(f"CREATE QUERY late AS {QUERIES['tumble']}")
        answered = answers(hub, hub.run_once())
        del answered["pushed"]
        assert hub.query("pushed").invoke().to_pylist() == [{"total": 6}]
        assert set(answered) == set(wanted)
        for name, rows in answered.items():
            assert rows == meant(wanted[name]), name
        assert hub.status()["streams"]["s"]["rows"] == sum(ACCEPTED)
        assert hub.status()["streams"]["s"]["rejected"] == len(FILES)
        assert hub.status()["rejected"] == {"odd": sum(row["x"] == 0 for file in FILES for row in file[:-1])}
        hub.loop.engine.housekeeping.grace = -1
        hub.loop.engine.collect()
        assert faults(hub) == []
        assert [entry["rows"] for entry in hub.home.entries(hub.home.latest(), "archive:s")] == ACCEPTED


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_any_call_the_next_run_answers_as_if_nothing_had_happened(
    operation: str, tmp_path: Path, disk: Callable[[FaultyDisk | None], None]
) -> None:
    points = list(kill_points(trace_of(operation, tmp_path / "home", disk)))
    if operation in LIKE_OTHERS:
        points = share_of(points, 12, digest() + operation)
    assert len(points) > 2
    for number, fault in enumerate(points):
        rig = prepared(tmp_path / "home", operation)
        die(rig, operation, FaultyDisk(fault=fault), disk)
        resume(rig, 1 + number % 4, operation)


@pytest.mark.parametrize("operation", ["epoch", "registration", "opening"])
def test_when_power_fails_nothing_that_was_published_is_lost(
    operation: str, tmp_path: Path, disk: Callable[[FaultyDisk | None], None]
) -> None:
    calls = trace_of(operation, tmp_path / "home", disk)
    for number in [*range(0, len(calls), 6), len(calls) - 1]:
        rig = prepared(tmp_path / "home")
        (tmp_path / f"graves{number}").mkdir()
        faulty = FaultyDisk(fault=Fault(number, "after"), graves=str(tmp_path / f"graves{number}"))
        die(rig, operation, faulty, disk)
        faulty.lose_power(str(rig.home))
        resume(rig, 3)


def test_a_full_disk_is_reported_at_any_call_and_the_home_goes_on_when_there_is_space(
    tmp_path: Path, disk: Callable[[FaultyDisk | None], None]
) -> None:
    calls = trace_of("epoch", tmp_path / "home", disk)
    refused = 0
    for number, call in enumerate(calls):
        if call not in {"create", "write", "name", "fsync", "link", "mkdir"}:
            continue
        rig = prepared(tmp_path / "home")
        with pytest.raises(StoreError, match=r"disk of the home .* is full.*Free some space"):
            die(rig, "epoch", FaultyDisk(full_at=number), disk)
        disk(None)
        refused += 1
        if refused % 4 == 0:
            resume(rig, 2)
        else:
            assert check(rig.home).faults == 0
    assert refused > 8


WATCHED = textwrap.dedent(
    """
    import json, os, sys
    from pathlib import Path
    from headrace.store.files import disk
    from tests.runtime.rig import QUERIES, Rig, cut, made_rows

    inside, seen, stray, calls = [0], [], [], {}
    for name in ("create", "write", "name", "fsync", "fsync_file", "fsync_folder", "link", "unlink", "mkdir"):
        def counted(call, name=name):
            def counting(*arguments):
                inside[0] += 1
                try:
                    done = call(*arguments)
                    calls.setdefault(name, []).append(str(arguments[-1]))
                    return done
                finally:
                    inside[0] -= 1
            return counting
        setattr(disk.Disk, name, counted(getattr(disk.Disk, name)))

    rig = Rig(Path(sys.argv[1]), {"maxFilesPerTrigger": "1"})
    rig.drop(*cut(made_rows(22, 60), *range(6, 60, 6)))
    own = ("/LOCK", "/epochs.jsonl")

    def changes(event, arguments):
        if event == "open":
            mode, flags = arguments[1], arguments[2]
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                return False  # a file without a name, see store/files/spare_files.py
            return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
        return event in ("os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.symlink")

    def audit(event, arguments):
        paths = [str(each) for each in arguments[:2] if isinstance(each, (str, bytes, os.PathLike))]
        if changes(event, arguments) and any(path.startswith(str(rig.home)) for path in paths):
            seen.append(event)
            if not inside[0] and not paths[0].endswith(own) and paths[0] != str(rig.home):
                stray.append((event, *paths))

    sys.addaudithook(audit)
    with rig.hub(2, QUERIES) as hub:
        hub.run_once()
        hub.execute("CREATE QUERY late AS " + QUERIES["tumble"])
        hub.run_once(seal=True)
        hub.loop.engine.housekeeping.grace = -1
        hub.loop.engine.collect()
    print(json.dumps({"seen": len(seen), "stray": stray, "calls": calls}))
    """
)
OWN = ("LOCK", "epochs.jsonl")
"""The files of a home that do not go through the disk: one holds no data, the other is for people."""
CALLS = "openat,open,creat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir"
CALLS += ",truncate,ftruncate,fallocate,mknod,mknodat,copy_file_range"


@dataclass(frozen=True)
class Watched:
    """What Python reported that it changes in a home, and what the system was asked for (None: it may not be watched here)."""

    home: str
    report: dict[str, Any]
    traced: list[str] | None


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Every kind of query, backfill, seal and collection, in a process that is watched."""
    folder = tmp_path_factory.mktemp("watched")
    lines = folder / "calls"
    tracer = ["strace", "-f", "--seccomp-bpf", "-s", "500", "-e", f"trace={CALLS}", "-o", str(lines)]
    allowed = shutil.which("strace") and not subprocess.run([*tracer, "true"], capture_output=True).returncode
    ran = subprocess.run(
        [*(tracer if allowed else []), sys.executable, "-c", WATCHED, str(folder)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout.splitlines()[-1])
    return Watched(f"{folder}/home", report, lines.read_text().splitlines() if allowed else None)


def test_nothing_in_a_home_changes_but_through_the_disk(watched: Watched) -> None:
    assert watched.report["seen"] > 100
    assert watched.report["stray"] == []


def test_the_system_sees_no_call_that_changes_a_home_but_those_of_the_disk(watched: Watched) -> None:
    """Of every caller: Python, Arrow's own files, the system's library. The kill points are thus all there are."""
    if watched.traced is None:
        pytest.skip("strace is not here, or may not trace")
    calls: dict[str, list[str]] = {"create": [], "name": [], "link": [], "unlink": [], "mkdir": []}
    others = []
    for line in watched.traced:
        call = re.match(r"\d+ +(\w+)\(", line)
        paths = [path for path in re.findall(r'"([^"]*)"', line) if path.startswith(watched.home)]
        if call is None or not paths or " = -1 E" in line:
            continue
        name = call[1].removesuffix("at")
        if "O_TMPFILE" in line:  # a file without a name is in no folder until it is linked
            continue
        if name == "link" and "/proc/self/fd/" in line:
            name = "create" if Path(paths[-1]).name.startswith(UNFINISHED) else "name"
        elif name in ("open", "creat"):
            if not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND", line) and name == "open":
                continue
            name = "create"
        if paths[-1] == watched.home or Path(paths[-1]).name.startswith(OWN):
            continue
        calls.get(name, others).append(paths[-1])
    assert others == []
    assert len(calls["create"]) + len(calls["name"]) > 50
    for name, paths in calls.items():
        assert Counter(paths) - Counter(watched.report["calls"].get(name, [])) == Counter(), name
        assert Counter(watched.report["calls"].get(name, [])) - Counter(paths) == Counter(), name

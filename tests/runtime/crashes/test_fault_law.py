"""The law of faults: whatever a call to the disk meets, what the user repeats is there exactly once, and the home opens.

For any error, Ctrl-C or death at any call that changes the disk, of any statement, epoch or acknowledgement: once the user has
repeated what was not acknowledged, the home holds what it would hold if nothing had happened. `OPERATIONS` is the table of what
users do; whatever is added to it is under the law.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StoreError, UserError
from headrace.runtime.delivery.client import Client, Delivery
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore
from tests.runtime.rig import QUERIES, Rig, answers, cut, faults_once_tidy, made_rows
from tests.soak.ledger import digest
from tests.store.faults import (
    Fault,
    FaultyDisk,
    SimulatedCrash,
    Trouble,
    kill_points,
    share_of,
    troubles,
)

FILES = cut(made_rows(31, 24), 8, 16)
STANDING = {name: QUERIES[name] for name in ("slide", "some")} | {
    "old": QUERIES["tumble"],
    "resting": QUERIES["tumble"],
}
MORE = "CREATE STREAM p (v BIGINT) USING push; PAUSE QUERY resting; ALTER QUERY slide SET (owner 'me')"


@dataclass(frozen=True)
class Operation:
    """Something a user does; `error_when_repeated`: the error of a repetition after it took effect, if there is one.

    `once`: it is one append to the query log, so that the log shows whether it has been done twice. `says`: it is a statement
    or an acknowledgement, whose errors report what they have left; what has failed of an epoch the next one finds out.
    """

    do: Callable[[Run, Hub], object]
    error_when_repeated: str = ""
    once: bool = True
    says: bool = True


def statement(script: str, error_when_repeated: str = "", *, once: bool = True) -> Operation:
    return Operation(lambda _, hub: hub.execute(script), error_when_repeated, once)


def client_of(hub: Hub) -> Client:
    return hub.query("some").client("me")


def acknowledges(run: Run, hub: Hub) -> None:
    """The first of two deliveries, which the user has in hand and acknowledges until that is done."""
    run.in_hand = run.in_hand or next(client_of(hub).pending())
    client_of(hub).acknowledge(run.in_hand)


def reads_on(run: Run, hub: Hub) -> None:
    """The next file; it is put there once, and the hub run until it is read."""
    if run.rig.written < len(FILES):
        run.rig.drop(FILES[-1])
    hub.catch_up()


COPY = "CREATE RELATION copy (id INT, name STRING) USING parquet OPTIONS (path '{source}/names.parquet')"
OPERATIONS: dict[str, Operation] = {
    "create a query": statement(f"CREATE QUERY late AS {QUERIES['tumble']}"),
    "create three at once": statement(
        "".join(f"CREATE QUERY new{n} AS {QUERIES['slide']};" for n in range(3))
    ),
    "create a stream": statement("CREATE STREAM another (v BIGINT) USING push"),
    "replace a stream": statement("CREATE OR REPLACE STREAM p (w STRING, v BIGINT) USING push"),
    "create a relation": Operation(lambda run, hub: hub.execute(COPY.format(source=run.folder))),
    "drop a query": statement("DROP QUERY old", "there is no query 'old'"),
    "drop a stream": statement("DROP STREAM p", "there is no stream 'p'"),
    "rename": statement("ALTER QUERY old RENAME TO young", "there is no query 'old'"),
    "alter": statement(f"ALTER QUERY old AS {QUERIES['slide']}"),
    "set window": statement("ALTER QUERY slide SET WINDOW [RANGE 6 SECONDS SLIDE 3 SECONDS]"),
    "set an owner": statement("ALTER QUERY old SET (owner 'me')"),
    "pause": statement("PAUSE QUERY old"),
    "resume": statement("RESUME QUERY resting"),
    "pause all of one owner": statement("PAUSE QUERIES WHERE owner = 'me'"),
    "refresh": statement("REFRESH RELATION names", once=False),
    "drop, then create": statement(
        f"DROP QUERY IF EXISTS old; CREATE QUERY old AS {QUERIES['slide']}", once=False
    ),
    "punctuate": statement("PUNCTUATE p AT TIMESTAMP '2020-01-01'"),
    "push": Operation(lambda _, hub: hub.push("p", [{"v": 1}, {"v": 2}], producer="me", sequence=1)),
    "acknowledge": Operation(acknowledges),
    "skip": Operation(lambda _, hub: client_of(hub).skip()),
    "read on": Operation(reads_on, says=False),
    "take over": Operation(lambda _, hub: hub.loop.engine.take_over(), says=False),
    "seal": Operation(lambda _, hub: hub.finish(seal=True), says=False),
}


@dataclass
class Run:
    """One operation on a home that is always the same one before it, on a disk that is spoilt while it lasts."""

    folder: Path
    name: str
    patch: pytest.MonkeyPatch
    rig: Rig = field(init=False)
    in_hand: Delivery | None = None

    def __post_init__(self) -> None:
        saved = self.folder.with_name(f"{self.folder.name}-saved")
        if saved.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.copytree(saved, self.folder)
            self.rig = Rig(self.folder, {"maxFilesPerTrigger": "1"}, written=2)
            return
        self.rig = Rig(self.folder, {"maxFilesPerTrigger": "1"})
        self.rig.drop(*FILES[:2])
        with self.rig.hub(2, STANDING) as hub:
            hub.execute(MORE)
            hub.catch_up()
        shutil.copytree(self.folder, saved)

    @property
    def operation(self) -> Operation:
        return OPERATIONS[self.name]

    def use(self, hub: Hub, disk: Disk) -> None:
        """This disk, in every store there is and will be."""
        self.patch.setattr(filesystem, "Disk", lambda: disk)
        hub.home.store._disk = disk

    def spoilt(self, hub: Hub, disk: FaultyDisk) -> BaseException | None:
        """Carry it out on that disk, and repair the disk; what it ended with."""
        self.use(hub, disk)
        try:
            self.operation.do(self, hub)
        except (StoreError, KeyboardInterrupt, SimulatedCrash) as failure:
            return failure
        finally:
            self.use(hub, Disk())
            self.patch.setattr(filesystem, "Disk", Disk)
        return None

    def repeat(self, hub: Hub, failure: BaseException | None) -> None:
        """What a user does who got no answer that it is done."""
        if failure is None or getattr(failure, "outcome", None) == "present":
            return
        try:
            self.operation.do(self, hub)
        except UserError as again:
            message = str(again)
        else:
            return
        assert self.operation.error_when_repeated, message
        assert self.operation.error_when_repeated in message
        assert getattr(failure, "outcome", None) != "absent", "nothing of it was said to be there"

    def found(self, hub: Hub) -> dict[str, Any]:
        """All that a user can see, and what the query log holds."""
        place = client_of(hub)._cursor.read()
        self.rig.drop(*FILES[self.rig.written :])
        seen = answers(hub, hub.run_once())
        catalog = hub.catalog
        whole = {
            "answers": seen,
            "queries": {name: entry.definition for name, entry in catalog.queries.items()},
            "streams": dict(catalog.streams),
            "relations": {name: entry.definition for name, entry in catalog.relations.items()},
            "place": place,
            "rows": {name: stream.get("rows", 0) for name, stream in hub.status()["streams"].items()},
        }
        return whole | {"log": effective(self.rig)} if self.operation.once else whole


def durable(rig: Rig) -> tuple[list[str], int, list[str]]:
    """What there is of statements, of what was pushed, and of acknowledgements."""
    home = Home.at(rig.home)
    return effective(rig), home.ingest_log.length, [file.name for file in home.store.list("sinks/")]


def effective(rig: Rig) -> list[str]:
    """The changes in the query log, in order."""
    home = Home.at(rig.home)
    entries = enumerate(entry for chunk in home.query_log.chunks() for entry in chunk.records)
    return [entry["do"] for ordinal, entry in entries if ordinal not in home.catalog.ignored_entries]


@dataclass
class Law:
    """What an operation makes when nothing goes wrong, and the calls it makes to the disk."""

    folder: Path
    name: str
    patch: pytest.MonkeyPatch
    trace: list[str] = field(init=False)
    meant: dict[str, Any] = field(init=False)
    ended: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        run, disk = Run(self.folder, self.name, self.patch), FaultyDisk()
        with run.rig.hub(2) as hub:
            assert run.spoilt(hub, disk) is None
            self.meant = run.found(hub)
        self.trace = disk.trace

    def hold(self, point: Fault | Trouble, *, reopen: bool) -> None:
        run = Run(self.folder, self.name, self.patch)
        plan_files.clear_caches()
        disk = FaultyDisk(**{"fault" if isinstance(point, Fault) else "trouble": point})
        before = durable(run.rig)
        with run.rig.hub(2) as hub:
            failure = run.spoilt(hub, disk)
            self.note(run, failure, before)
            if not reopen and not isinstance(failure, SimulatedCrash):
                run.repeat(hub, failure)
                assert run.found(hub) == self.meant
        if reopen or isinstance(failure, SimulatedCrash):
            with run.rig.hub(3) as hub:
                run.repeat(hub, failure)
                assert run.found(hub) == self.meant
        with run.rig.hub(1) as hub:
            assert faults_once_tidy(hub) == []
            assert run.found(hub) == self.meant

    def note(self, run: Run, failure: BaseException | None, before: object) -> None:
        """What the error of a failed statement reports is so."""
        if not isinstance(failure, StoreError) or not run.operation.says:
            return
        self.ended.add(failure.outcome)
        assert failure.outcome in ("absent", "present", "unknown"), failure
        is_there = durable(run.rig) != before
        assert failure.outcome == "unknown" or is_there == (failure.outcome == "present"), failure


def points_of(law: Law) -> Iterator[Fault | Trouble]:
    yield from kill_points(law.trace)
    yield from troubles(law.trace)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_repeated_after_any_fault_is_there_exactly_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = Law(tmp_path / "rig", name, monkeypatch)
    points = list(points_of(law))
    assert len(points) > 10
    for number, point in enumerate(share_of(points, 12, digest() + name)):
        for reopen in (True, False) if is_soak() else (number % 2 == 0,):
            try:
                law.hold(point, reopen=reopen)
            except BaseException as failure:
                failure.add_note(
                    f"{name}: {point} of {law.trace}, {'opened again' if reopen else 'in one go'}"
                )
                raise

    assert not is_soak() or not OPERATIONS[name].says or {"absent", "unknown"} <= law.ended


def is_soak() -> bool:
    return os.environ.get("HYPOTHESIS_PROFILE") == "soak"


def test_what_a_dead_driver_had_not_synced_is_durable_before_it_is_acted_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between publishing an entry and syncing the folder; the next one commits an epoch by it, then power fails."""
    run = Run(tmp_path / "rig", "create a query", monkeypatch)
    (tmp_path / "graves").mkdir()
    disk = FaultyDisk(graves=str(tmp_path / "graves"))
    with run.rig.hub(2) as hub:
        run.use(hub, disk)
        disk.before_call = lambda call: (
            setattr(disk, "fault", Fault(len(disk.trace), "after")) if call == "link" else None
        )
        with pytest.raises(SimulatedCrash):
            run.operation.do(run, hub)
        disk.crashed, disk.fault, disk.before_call = False, None, None
    with run.rig.hub(2) as hub:
        assert hub.catalog.query("late") is not None
        hub.catch_up()
    monkeypatch.setattr(filesystem, "Disk", Disk)
    disk.lose_power(str(run.rig.home))
    with run.rig.hub(2) as hub:
        assert hub.catalog.query("late") is not None
        assert faults_once_tidy(hub) == []


READS = ("read", "map", "exists", "list")


@dataclass
class Reads:
    """Counts what a store is asked, and has no descriptor left at one call."""

    fails_at: int = -1
    count: int = 0

    def spoil(self, name: str, patched: pytest.MonkeyPatch) -> None:
        reading = getattr(LocalStore, name)

        def counted(store: LocalStore, *arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count - 1 == self.fails_at:
                raise store._store_error(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), name, "read")
            return reading(store, *arguments, **named)

        patched.setattr(LocalStore, name, counted)


@pytest.mark.parametrize("name", ["create a query", "rename", "skip"])
def test_the_same_holds_where_something_cannot_be_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = Law(tmp_path / "rig", name, monkeypatch)
    fails_at, outcomes = 0, set()
    while True:
        run, reads = Run(tmp_path / "rig", name, monkeypatch), Reads(fails_at)
        before = durable(run.rig)
        with run.rig.hub(2) as hub:
            with monkeypatch.context() as patched:
                for unreadable in READS:
                    reads.spoil(unreadable, patched)
                failure = run.spoilt(hub, FaultyDisk())
            law.note(run, failure, before)
            run.repeat(hub, failure)
            assert run.found(hub) == law.meant
        if reads.count <= fails_at:
            break
        outcomes.add(getattr(failure, "outcome", None))
        fails_at += 1
    assert fails_at >= 3
    assert "absent" in outcomes

"""Every kind of damage to a home is found, and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.store.files.container import parts
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.at_rest import NO_LISTS
from headrace.store.logs.manifest import Manifest, ManifestLog, StateRun
from headrace.store.logs.radix_list import RadixList
from headrace.store.logs.record_log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.maintenance.integrity_check import check_home
from headrace.time import FOREVER, HOUR


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two epochs with a state run, an archive run, a list with a sealed segment, and both logs."""
    store = LocalStore(tmp_path)
    for name in (INGEST_LOG, QUERY_LOG):
        log = RecordLog(store, name)
        for record in range(3):
            log.append([record])
    table = pa.table({"slot": [1, 2], "name": ["x", "y"]})
    size = store.write_once("state/run", parts({"op/rows": table}))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.write_once("archive/s/run.parquet", [sink.getvalue()])
    store.write_once("plans/p", [b"a plan"])

    def write(data: bytes) -> str:
        store.write_once("lists/segment", [data])
        return "lists/segment"

    entries = [{"name": "archive/s/run.parquet", "n": n} for n in range(70)]
    manifests = ManifestLog(store)
    first = replace(
        Manifest(0, 1, "takeover"),
        plan="plans/p",
        querylog=3,
        ingest=3,
        state=(StateRun("state/run", 0, 256, size),),
        lists=NO_LISTS.changed({"archive:s": RadixList().append(entries, write)}),
    )
    manifests.publish(first)
    manifests.publish(replace(first, epoch=1))
    return tmp_path


def found(home: Path) -> list[tuple[str, str, str]]:
    findings = check_home(LocalStore(home), now=0, grace=HOUR)
    return [(finding.severity, finding.name, finding.message) for finding in findings]


def test_a_whole_home_has_no_findings(home: Path) -> None:
    assert found(home) == []


def test_an_empty_home_has_no_findings(tmp_path: Path) -> None:
    assert found(tmp_path) == []


def flip(path: Path, index: int = -40) -> None:
    data = bytearray(path.read_bytes())
    data[index] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (lambda home: flip(home / "state/run", 400), "state/run", "checksum"),
        (
            lambda home: (home / "state/run").write_bytes(b"short"),
            "state/run",
            "5 bytes long, the manifest records",
        ),
        (lambda home: (home / "state/run").unlink(), "state/run", "there is no file"),
        (lambda home: (home / "plans/p").unlink(), "plans/p", "there is no file"),
        (lambda home: (home / "plans/p").write_bytes(b""), "plans/p", "is empty"),
        (
            lambda home: (home / "archive/s/run.parquet").write_bytes(b"PAR1"),
            "archive/s/run.parquet",
            "is damaged",
        ),
        (
            lambda home: flip(home / "lists/segment"),
            "epoch 0",
            "a list cannot be read: .*'lists/segment' is damaged",
        ),
        (
            lambda home: (home / "lists/segment").unlink(),
            "epoch 1",
            "a list cannot be read: there is no file",
        ),
        (lambda home: flip(home / "manifests/000000000001.json"), "epoch 1", "is damaged"),
        (
            lambda home: (home / "ingest/000000000001.json").unlink(),
            "ingest/000000000000.json",
            "is below a gap",
        ),
        (
            lambda home: (home / "ingest/000000000002.json").unlink(),
            "ingest/",
            "holds 2 records, .* has applied 3",
        ),
        (lambda home: flip(home / "querylog/000000000002.json"), "querylog/", "is damaged"),
        (lambda home: flip(home / "querylog/000000000000.json"), "querylog/", "is damaged"),
    ],
)
def test_damage_is_found_and_named(damage, name: str, message: str, home: Path) -> None:
    import re

    damage(home)
    matching = [
        finding for finding in found(home)
        if finding[0] == "fault" and finding[1] == name and re.search(message, finding[2])
    ]  # fmt: skip
    assert matching, found(home)


def test_epochs_that_go_backwards_are_found(home: Path) -> None:
    log = ManifestLog(LocalStore(home))
    log.publish(replace(log.latest(), epoch=2, incarnation=0, ingest=1))
    messages = [finding[2] for finding in found(home)]
    assert messages == [
        "incarnation went back from 1 at epoch 1 to 0",
        "ingest went back from 3 at epoch 1 to 1",
    ]


def test_an_orphan_is_a_note_while_it_is_young_and_garbage_when_it_is_old(home: Path) -> None:
    store = LocalStore(home)
    store.write_once("results/orphan", [b"abc"])
    ((severity, name, message),) = found(home)
    assert (severity, name) == ("note", "results/orphan")
    assert "3 bytes" in message
    ((old),) = check_home(store, now=FOREVER, grace=HOUR)
    assert (old.severity, old.name) == ("garbage", "results/orphan")
    assert "the next start collects it" in old.message

"""One flipped bit in a file of a home is an error with the name of the file for who reads it, and no answer."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.sources import segment_files
from headrace.errors import CorruptStore
from headrace.runtime.hub.check import check
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.store.files import container
from headrace.store.files.checksums import chunk_checksums
from headrace.store.files.container import Container

EPOCHS = 70
"""Results of the first 64 are merged."""


def next_epoch(hub: Hub) -> None:
    hub.push("s", rows(EPOCHS))
    hub.loop.drain()


def all_histories(hub: Hub) -> None:
    for name in ("counted", "named"):
        hub.query(name).history()


def a_later_query(hub: Hub) -> None:
    hub.register("SELECT k, v FROM s WHERE v > 1", "later")
    hub.loop.drain()


def a_query_of_rejects(hub: Hub) -> None:
    hub.register("SELECT reason FROM s REJECTS", "refused")
    hub.loop.drain()


READERS: Mapping[str, Callable[[Hub], None]] = {
    "state": next_epoch,
    "merged results": all_histories,
    "newest results": all_histories,
    "relations": next_epoch,
    "merged archive": a_later_query,
    "newest archive": a_later_query,
    "merged rejects": a_query_of_rejects,
    "newest rejects": a_query_of_rejects,
}
"""What reads each kind of file."""


def rows(epoch: int, count: int = 20) -> pa.Table:
    """Rows in one second of event time."""
    at = epoch * 1_000_000 + np.arange(count) * (1_000_000 // count)
    columns = {"k": np.arange(count) % 7, "v": np.arange(count) / 4}
    return pa.table({**columns, "at": pa.array(at).cast(pa.timestamp("us", tz="UTC"))})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    names = path / "names.csv"
    names.write_text("id,name\n" + "\n".join(f"{k},name {k}" for k in range(7)) + "\n")
    with open_hub(path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM s (k BIGINT, v DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at;"
            f"CREATE RELATION names (id BIGINT, name STRING) USING csv OPTIONS (path '{names}', header 'true');"
            "CREATE QUERY counted AS SELECT k, COUNT(*) AS n, SUM(v) AS total"
            " FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k;"
            "CREATE QUERY named AS SELECT name, v FROM s [NOW] JOIN names ON s.k = names.id"
        )
        for epoch in range(EPOCHS):
            hub.push("s", rows(epoch))
            hub.push("s", [{"k": 1, "v": 1.0, "at": None}])
            hub.loop.drain()
    return path / "home"


def file_of(home: Path, kind: str) -> Path:
    """The newest file of a kind."""
    files = [path for path in (home / kind.rpartition(" ")[2]).rglob("*") if path.is_file()]
    return max(path for path in files if ("+" in path.name) == kind.startswith("merged"))


def with_a_flipped_bit(file: Path, at: int) -> bytes:
    """Write a file again with another bit at this byte; what it was."""
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
    return data


def bytes_of_sections(file: Path) -> list[int]:
    """Of each section of a container the first byte, the last, and two between; some of Parquet."""
    if file.suffix == ".parquet":
        data = pa.py_buffer(file.read_bytes())
        end = chunk_checksums._footer_start(
            data
        )  # before it is the magic word of checksums: without that there are none
        return [*range(4, end - 8, end // 8), *range(end, data.size, (data.size - end) // 8)]
    index = Container.open(file.read_bytes())._index
    alone = [entry for entry in index.sections.values() if entry[0] != container._SLICE]
    places = [place for entry in (*index.groups, *alone) for place in entry[4]]
    return [offset + at for offset, size in places for at in (0, size // 3, size // 2, size - 1)]


@pytest.mark.parametrize("kind", READERS)
def test_a_flipped_bit_is_an_error_with_the_name_of_the_file(kind: str, saved: Path, tmp_path: Path) -> None:
    for at in bytes_of_sections(file_of(saved, kind)):
        home = tmp_path / str(at)  # of another name, since processes remember files
        shutil.copytree(saved, home)
        file = file_of(home, kind)
        data = with_a_flipped_bit(file, at)
        assert any(file.name in line for line in check(home).lines)
        with open_hub(home, local=True) as hub:
            with pytest.raises(CorruptStore, match=re.escape(file.name)):
                READERS[kind](hub)
            file.unlink()
            file.write_bytes(data)
        shutil.rmtree(tmp_path / str(at))


def test_results_of_other_queries_in_a_damaged_file_are_read(saved: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(saved, home)
    file = file_of(home, "merged results")
    with open_hub(saved, local=True) as hub:
        expected = hub.query("named").history()
        section = f"rows/0/{hub.operator_and_query('counted')[0].id}"
    ((offset, size),) = Container.open(file.read_bytes())._entry(section)[4]
    with_a_flipped_bit(file, offset + size // 2)
    with open_hub(home, local=True) as hub:
        with pytest.raises(CorruptStore, match=f"section '{section}'"):
            hub.query("counted").history()
        assert hub.query("named").history().equals(expected)
        hub.loop.drain()
        next_epoch(hub)


def test_a_flipped_bit_of_an_archive_stops_the_queries_that_read_it_and_no_other(
    saved: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(saved, home)
    file = file_of(home, "merged archive")
    data = with_a_flipped_bit(file, file.stat().st_size // 3)
    with open_hub(home, local=True) as hub:
        next_epoch(hub)
        assert hub.query("named").history().num_rows > 2 * 20 * EPOCHS, "inserted and retracted"
        with pytest.raises(CorruptStore, match=re.escape(file.name)):
            a_later_query(hub)
        hub.execute("DROP QUERY later")
        hub.loop.drain()
        file.unlink()
        file.write_bytes(data)
        a_later_query(hub)
        assert hub.query("later").history().num_rows == 15 * (EPOCHS + 1)


@pytest.mark.parametrize("count", [5_000, 600_000])
def test_a_flipped_bit_in_pushed_rows_is_an_error_and_no_other_rows(
    count: int, saved: Path, tmp_path: Path
) -> None:
    """Of one record batch and of several. The rows were acknowledged: no epoch takes others."""
    shutil.copytree(saved, tmp_path / "pushed")
    with open_hub(tmp_path / "pushed", local=True) as hub:
        hub.push("s", rows(EPOCHS, count))
    size = file_of(tmp_path / "pushed", "segments").stat().st_size
    for at in (9, 400, size // 3, size // 2, size - 1500, size - 60, size - 20, size - 13, size - 1):
        home = tmp_path / str(at)
        shutil.copytree(tmp_path / "pushed", home)
        file = file_of(home, "segments")
        data = with_a_flipped_bit(file, at)
        assert any(f"FAULT segments/s/{file.name}" in line for line in check(home).lines)
        with open_hub(home, local=True) as hub:
            with pytest.raises(CorruptStore, match=re.escape(file.name)):
                hub.loop.drain()
            file.unlink()
            file.write_bytes(data)
            if at == size // 3:
                hub.loop.drain()
                assert hub.home.latest().stream("s").rows == 20 * EPOCHS + count
        shutil.rmtree(home)


def test_segments_of_earlier_versions_have_no_checksums_and_are_read(saved: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(saved, home)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_files, "with_checksums", iter)
        with open_hub(home, local=True) as hub:
            hub.push("s", rows(EPOCHS, 5_000))
    assert file_of(home, "segments").read_bytes().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    assert not [line for line in check(home).lines if "segments/" in line]
    with open_hub(home, local=True) as hub:
        hub.loop.drain()
        assert hub.home.latest().stream("s").rows == 20 * EPOCHS + 5_000


def test_a_segment_is_read_as_any_other_arrow_stream(saved: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(saved, home)
    with open_hub(home, local=True) as hub:
        hub.push("s", rows(EPOCHS, 5_000))
    with pa.OSFile(str(file_of(home, "segments"))) as file:
        assert pa.ipc.open_stream(file).read_all().equals(rows(EPOCHS, 5_000))


def test_a_flipped_bit_in_rows_of_a_record_is_damage_of_its_log(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "pushed")
    with open_hub(tmp_path / "pushed", local=True) as hub:
        hub.push("s", rows(EPOCHS))
    size = file_of(tmp_path / "pushed", "ingest").stat().st_size
    for at in (3, size // 3, size // 2, size - 3):
        home = tmp_path / str(at)
        shutil.copytree(tmp_path / "pushed", home)
        file = file_of(home, "ingest")
        with_a_flipped_bit(file, at)
        with pytest.raises(CorruptStore, match=re.escape(file.name)), open_hub(home, local=True) as hub:
            hub.loop.drain()

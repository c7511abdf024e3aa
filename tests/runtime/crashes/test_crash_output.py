"""Killed while answers are written for others: at any call, a reader of `--output` or of a sink's folder sees whole files only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.runtime.delivery.output_files import Exporter
from headrace.runtime.delivery.sinks import open_sink
from headrace.runtime.hub.hub import Hub
from headrace.store.files import filesystem
from tests.runtime.rig import QUERIES, Rig, cut, made_rows
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

CHOSEN = {name: QUERIES[name] for name in ("slide", "some", "now")}
FILES = cut(made_rows(71, 48), 12, 24, 36)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Three epochs are committed, so that a sink has as many files to write."""
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES[:3])
    with rig.hub(2, CHOSEN) as opened:
        opened.catch_up()
        yield opened


def files(folder: Path) -> dict[str, bytes]:
    """What a reader of the folder sees."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize("style", ["csv", "parquet"])
def test_output_files_are_the_old_or_the_new_at_any_call_and_the_next_run_makes_them_new(
    hub: Hub, tmp_path: Path, style: str
) -> None:
    Exporter(hub, tmp_path / "old", style).refresh()
    before = files(tmp_path / "old")
    Rig(tmp_path, written=3).drop(FILES[3])
    hub.catch_up()
    recorded = FaultyDisk()
    Exporter(hub, tmp_path / "new", style, recorded).refresh()
    after = files(tmp_path / "new")
    assert all(before[name] != data for name, data in after.items())
    assert set(before) == set(after) == {f"{name}.{style}" for name in CHOSEN}
    assert recorded.trace.count("rename") == len(CHOSEN)
    for number, fault in enumerate(kill_points(recorded.trace)):
        out = tmp_path / f"out{number}"
        out.mkdir()
        for name, data in before.items():
            (out / name).write_bytes(data)
        with suppress(SimulatedCrash):
            Exporter(hub, out, style, FaultyDisk(fault=fault)).refresh()
        assert all(data in (before[name], after[name]) for name, data in files(out).items()), fault
        Exporter(hub, out, style).refresh()
        assert files(out) == after, fault
        assert len(list(out.iterdir())) == len(after), f"something is left over after {fault}"


def test_a_sink_s_folder_gets_every_file_once_and_whole_at_whatever_call_it_dies(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, disk = hub.home.store._disk, FaultyDisk()

    def delivered(folder: Path, faulty: FaultyDisk | None) -> dict[str, bytes]:
        """By a sink of its own, with a place of its own in the home."""
        hub.home.store._disk = own if faulty is None else faulty
        try:
            with monkeypatch.context() as patched, suppress(SimulatedCrash):
                if faulty is not None:
                    patched.setattr(filesystem, "Disk", lambda: faulty)
                open_sink(hub, "slide", folder, "csv").deliver()
        finally:
            hub.home.store._disk = own
        return files(folder) if folder.is_dir() else {}

    whole = delivered(tmp_path / "whole", disk)
    assert len(whole) == 3
    points = list(kill_points(disk.trace))
    assert len(points) > 20
    for number, fault in enumerate(points):
        folder = tmp_path / f"sink{number}"
        first = delivered(folder, FaultyDisk(fault=fault))
        assert first.items() <= whole.items(), fault
        assert delivered(folder, None) == whole, fault

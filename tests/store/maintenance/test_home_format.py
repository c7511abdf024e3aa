"""A home has the number of its format; one that this program does not read is refused before anything is changed."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from headrace.errors import CorruptStore, StoreError
from headrace.store.files.envelope import seal
from headrace.store.files.filesystem import LocalStore
from headrace.store.maintenance.home_format import FILE, FORMAT, put_format, require_format
from tests.cli.building import bid, headrace, put, script


def digests(home: Path) -> dict[str, str]:
    """Every file of a home but the lock, by its content."""
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in home.rglob("*")
        if path.is_file() and path.name != "LOCK"
    }


def a_home(folder: Path) -> Path:
    put(folder / "bids", "1.csv", bid(1, 2, 150))
    home = folder / "home"
    done = headrace("run", script(folder), "--once", "--home", home)
    assert done.returncode == 0, done.stderr
    return home


def test_a_new_home_has_the_number_of_its_format_and_the_program_reads_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert require_format(store) == 1
    put_format(store)
    put_format(store)
    assert require_format(store) == FORMAT


@pytest.mark.parametrize(
    "written",
    [
        seal("home", 1, {"format": FORMAT + 1}),
        seal("home", 1, {"format": "new"}),
        seal("home", 1, []),
        seal("home", 2, {"format": FORMAT}),
    ],
)
def test_every_command_refuses_a_home_of_a_format_it_does_not_know_and_changes_nothing(
    tmp_path: Path, written: bytes
) -> None:
    home = a_home(tmp_path)
    (home / FILE).write_bytes(written)
    before = digests(home)
    for command in (
        ("run", tmp_path / "script.cql", "--once", "--home", home),
        ("shell", "--home", home, "-e", "SHOW QUERIES;"),
        ("shell", "--home", home, "-e", "DROP QUERY dear;"),
        ("check", "--home", home),
    ):
        done = headrace(*command)
        assert (done.returncode, done.stdout) == (2, ""), command
        assert f"the home {home} has format" in done.stderr
        assert f"reads formats up to {FORMAT}\n" in done.stderr
        assert "Use the Headrace that wrote it, or a newer one" in done.stderr
    assert digests(home) == before


def test_a_home_made_before_there_was_a_number_is_read_and_gets_it_from_its_next_writer(
    tmp_path: Path,
) -> None:
    home = a_home(tmp_path)
    (home / FILE).unlink()
    assert headrace("check", "--home", home).returncode == 0
    assert headrace("shell", "--home", home, "-e", "SHOW QUERIES;").returncode == 0
    assert not (home / FILE).exists()
    again = headrace("run", tmp_path / "script.cql", "--once", "--home", home)
    assert (again.returncode, again.stdout) == (0, "n,auction,top\n1,2,150.0\n")
    assert require_format(LocalStore(home)) == FORMAT
    assert headrace("check", "--home", home).returncode == 0


def test_a_damaged_number_is_damage_and_no_format(tmp_path: Path) -> None:
    home = a_home(tmp_path)
    (home / FILE).write_bytes((home / FILE).read_bytes()[:-4])
    with pytest.raises(CorruptStore, match=r"home\.json"):
        require_format(LocalStore(home))
    done = headrace("run", tmp_path / "script.cql", "--once", "--home", home)
    assert done.returncode == 1
    assert "home.json' is damaged" in done.stderr


def test_a_number_that_cannot_be_read_is_not_taken_for_an_unknown_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    put_format(store)

    def no_descriptor_left(_: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "read_bytes", no_descriptor_left)
    with pytest.raises(StoreError, match=r"cannot read 'home.json' .*Too many open files"):
        require_format(store)
